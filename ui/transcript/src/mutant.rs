//! Mutants: guards of the link that a test takes out one at a time, to see that some scenario notices.
//!
//! Invariant: compiled with the cargo feature `mutants` only; without it `mutated!` is the literal `false` and the
//! enum does not exist. A mutant takes out exactly one guard. `tests/scenarios/mutants.rs` says which scenario turns
//! red, and with which words; a variant without a line there does not compile.

/// Whether mutants are compiled in. The page never has them.
pub const MUTANTS: bool = cfg!(feature = "mutants");

/// Text that only a build with mutants contains, for whoever packs the page.
#[cfg(feature = "mutants")]
#[used]
static MARKER: &str = "holdfast-mutants-compiled-in";

/// Whether a guard was taken out of this link: `if mutated!(self, NoEpochCheck) || …`.
macro_rules! mutated {
    ($link:expr, $mutant:ident) => {{
        #[cfg(feature = "mutants")]
        {
            $link.mutant == Some($crate::mutant::Mutant::$mutant)
        }
        #[cfg(not(feature = "mutants"))]
        {
            false
        }
    }};
}

pub(crate) use mutated;

#[cfg(feature = "mutants")]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The guards that can be taken out of a link.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

#[cfg(feature = "mutants")]
mutants! {
    /// A poll's answer counts though it is not the one that is waited for.
    AnyAnswer,
    /// An attach's answer counts though it is not the one that is waited for.
    AnyAttachAnswer,
    /// An answer counts though it is of another epoch.
    NoEpochCheck,
    /// An event that was applied is applied again.
    NoSeqDrop,
    /// An event is applied though others are missing before it.
    NoGapCheck,
    /// What is shown is thrown away before something else is there.
    ClearBeforeLoad,
    /// What was armed in sight fires out of sight.
    NoFireCheck,
    /// Out of sight nothing is asked, as if the page were set aside.
    BackgroundRests,
    /// Out of sight what went wrong is repaired as in sight.
    RepairsUnseen,
    /// While a turn runs nothing that was loaded is shown.
    OneBusy,
    /// An answer may take for ever.
    NoWaitLimit,
    /// After a repair what needs the engine stays out of use until something else is shown.
    LatchOnFail,
    /// The first answer after a reset passes for progress.
    ResetsUncounted,
    /// A repair does not count as a try.
    HealTriggersItself,
    /// A repair begins at once.
    NoRepairDelay,
    /// A new transcript is shown before it has reached the head it was promised to reach.
    SwapAtFirstEvent,
    /// What a turn is doing passes for seen as soon as it may have been sent.
    StateOnlyOnce,
    /// A closed pane goes on.
    LeakScope,
    /// A piece of text is added wherever it says that it begins.
    AnyOffset,
    /// What cannot be read leaves nothing in its place.
    CorruptIsDefault,
    /// Older turns are filed though another transcript has taken the place of the one they were asked for.
    AnyEdition,
    /// Older turns are filed though others are missing below them.
    FileAnywhere,
    /// Older turns are filed as they were read, whatever was rewound since.
    IgnoreAsOf,
    /// The last page of older turns to arrive says what is above, whichever was asked for last.
    LastArrivedWins,
}
