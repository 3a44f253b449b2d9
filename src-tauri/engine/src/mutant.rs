//! Mutants: guards that a test takes out one at a time, to see that some scenario notices.
//!
//! Invariant: compiled with the cargo feature `mutants` only; without it `mutated!` is the literal `false` and the
//! enum does not exist. A mutant takes out exactly one guard. `tests/scenarios/mutants.rs` says which scenario turns
//! red, and with which words; a variant without a line there does not compile.

/// Whether mutants are compiled in. The product never has them.
pub const MUTANTS: bool = cfg!(feature = "mutants");

/// Text that only a build with mutants contains, for whoever packs the product.
#[cfg(feature = "mutants")]
pub(crate) const MARKER: &str = "holdfast-mutants-compiled-in";

/// Whether a guard was taken out: `if mutated!(harness, EofIsDone) || …`.
macro_rules! mutated {
    ($harness:expr, $mutant:ident) => {{
        #[cfg(feature = "mutants")]
        {
            $harness.lacks($crate::mutant::Mutant::$mutant)
        }
        #[cfg(not(feature = "mutants"))]
        {
            let _ = &$harness;
            false
        }
    }};
}

pub(crate) use mutated;

#[cfg(feature = "mutants")]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The guards that can be taken out of an engine.
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
    // The end of an answer.
    /// The end of the bytes passes for the end of the answer.
    EofIsDone,
    /// An attempt is repeated although something of it was shown.
    RetryAfterContent,
    /// Every attempt makes attempts of its own.
    NestedRetry,
    /// A model of this computer is not told that nobody waits for its answer any more.
    LocalWritesOn,
    /// A model that loads is asked again when it took long.
    RetryLoad,
    /// Every read from the socket ends a line.
    LinePerChunk,
    /// A limit that ended an answer is not told.
    HideLimit,
    /// An answer of reasoning alone passes for none.
    TextOnly,

    // Time.
    /// An attempt may take so long and no longer, however lively it is.
    TotalTimeout,
    /// The shorter patience begins with the head of the reply, not with its first word.
    GapFromHeaders,
    /// Silence is counted from the last word, though nobody listened since.
    GapByProgress,
    /// A server that says when to come again is asked after the usual wait.
    IgnoreRetryAfter,
    /// Time counts by a clock that goes on while the computer sleeps.
    WallClock,
    /// A connection whose server is gone since the sleep is waited for as any other.
    HalfOpenWaits,
    /// A model that is silent after a sleep counts as gone, though its server answers.
    SilenceIsDeath,

    // The end of a turn.
    /// A turn that the ceiling ended passes for a whole one.
    OutcomeByErrorType,
    /// Closing Holdfast counts as a failure of the model's.
    ShutdownIsFailure,
    /// The log is closed before the turns have said how they ended.
    CloseLogFirst,
    /// An end that could not be written is only logged.
    LogAndGoOn,
    /// A turn whose view cannot be made has no end.
    ViewFailsTerminal,
    /// What is done after a turn belongs to it.
    ViewInTurn,
    /// The connection stays open after the turn.
    LeaveSocket,
    /// A turn may be limited to as long as it may be silent.
    AcceptEqual,
    /// A panic of a turn is nobody's.
    NoGuard,
    /// Which of two ends that are due at once is the turn's is left to chance.
    TerminalInSelect,
    /// A turn may take any number of steps.
    NoStepLimit,
    /// The same calls may come any number of times.
    NoToolLoop,
    /// Another model takes over though something was said.
    FailoverAfterContent,
    /// The log does not say who takes over.
    SilentFailover,
    /// What the server says is wrong passes for the end of the answer.
    IgnoreErrorLine,
    /// Bytes that are no answer pass for the end of one.
    SkipUnreadable,
    /// A squeezed body is read as if it were words.
    AnyEncoding,
    /// A conversation that does not fit is summed up again and again.
    CompactAgain,
    /// A conversation that does not fit is not summed up.
    ThresholdOnly,
    /// The model is told other turns than the reader reads.
    SecondIterator,
    /// A summary that was cut counts.
    CutSummaryCounts,
    /// The summary is asked for with options of its own, and the server loads the model anew.
    SummaryOwnOptions,
    /// The request for a summary is not in the log.
    SummaryUnlisted,
    /// What the server took away from the conversation is not told.
    UnreadUntold,
    /// What a server read less than was sent was cut, also where it may have taken the rest from its cache.
    CacheIsCut,
    /// In the ledger, an attempt that failed and its repeat are one.
    RetryOverwrites,
    /// In the ledger, what nobody counted is zero.
    UnknownIsZero,
    /// A result that was left out is told as if it had been empty.
    PlaceholderAsResult,
    /// Calls are told apart by the provider's own names for them.
    KeyByProviderId,
    /// Blocks that the server wants back with the results are made up anew.
    ForgetVerbatim,

    // Servers and their keys.
    /// A key goes to whatever address its server has now.
    KeyFollowsAddress,
    /// A key goes wherever a server says that it is to be found.
    FollowRedirects,
    /// A key is shown to whoever answers, though everybody on the way can read it.
    KeyInTheClear,
    /// A certificate that is trusted at one place is trusted at every place.
    TrustAnywhere,
    /// The system's proxy is asked for this computer too.
    LocalThroughProxy,
    /// A keychain is waited for as long as it takes.
    KeychainForEver,
    /// What people copy with a key is sent as a part of it.
    KeyAsPasted,

    // Models of a server.
    /// What is told of a download may get less, as the server's word does.
    PullGoesBack,
    /// The end of the bytes passes for the end of a download.
    PullEofIsDone,
    /// A download that ends while the log is read is told of by nobody.
    PullsReadOnce,
    /// A list of models waits until each of them was looked at.
    WaitForLooks,
    /// A copy may take the place of another model.
    CopyOver,
    /// A model's file is believed to be whole.
    TrustCutModels,
    /// Any file is added to the models of this computer.
    AddAnything,
    /// A download goes on although the file is another one by now.
    ResumeAnything,
    /// A checksum that is not the announced one is none of our business.
    AnyChecksum,
    /// Whatever a server sends is a model.
    AnyPageIsAModel,
    /// A download begins whatever room there is.
    NoRoomLook,

    // Tools.
    /// A call runs though its answer was cut.
    RunOnParse,
    /// Waiting for the user's word counts as work.
    ParkCounts,
    /// Whoever leaves says no.
    CloseIsDeny,
    /// A question takes every answer, not only the first.
    AnyAnswerCounts,
    /// A change that may have happened already is repeated without a word.
    MayHaveRunIgnored,
    /// The same call is made as often as the model says it.
    FollowerRunsToo,
    /// A file is replaced though it is not what it was when the user was asked.
    ChangedSinceAsked,
    /// A file is written behind a link that was put there since.
    FollowLinks,
    /// A call's start is as durable as text.
    TextClassForCalls,

    // The log.
    /// What the last run left open stays open.
    NoRecovery,
    /// Recovery closes turns and not their calls.
    NoToolRecovery,
    /// Waiters are woken before the commit.
    WakeBeforeCommit,
    /// Each piece of text has the turn so far written again.
    RewriteWhole,
    /// Every piece of text is a commit of its own.
    FlushEveryToken,
    /// Text that waits to be joined may be overtaken by the next event.
    NoFlushBeforeOther,
    /// The events of an op are not one transaction.
    SplitOp,
    /// A damaged database is refused, and nothing of it is saved.
    NoSalvage,
    /// A database is opened without a look, though a reader met damage in it.
    SkipDamageCheck,
    /// A turn begins though there is no room for its end.
    RoomIgnored,
    /// A step of a migration is committed before its number.
    VersionAfterTx,
    /// A folder is opened though somebody has it.
    NoLock,
    /// A lock that a killed process left behind for a moment is taken for another engine's.
    LockTriedOnce,

    // Ops.
    /// A session applies an op again.
    NoOpId,
    /// What cannot be done to the settings is refused, though it was done by this very op.
    NoOpIdInSettings,
    /// The writer applies an op again.
    NoOpIdInWriter,
    /// A structural op is applied to whatever the conversation has become.
    NoExpectedHead,
    /// A session takes a message while its turn runs.
    NoTurnActive,
    /// Whether a turn runs is asked before the session is, and not by it.
    CheckOutsideTx,
    /// A title makes an op stale that was decided before it.
    AnyEventIsStale,
    /// An edit takes the old message out, and leaves it to the window to say the new one.
    EditInTwoOps,
    /// The work of an op belongs to nobody.
    BareSpawn,
    /// An image is named by a message and stored nowhere.
    ImageNotStored,
    /// A message may name an image that nobody stored.
    UnknownImageSent,
    /// What the user showed is not told to the model.
    ImagesForgotten,
    /// A model that its server says sees no images is asked all the same.
    BlindAsked,
    /// What was seen is noted again and again.
    SeenAgain,
    /// A turn that the user stopped is news to the user.
    StoppedIsNews,

    // Attach and poll.
    /// A cursor of another log is taken for one of this.
    SkipLogId,
    /// A cursor ahead of the log is taken for its end.
    ClampCursor,
    /// A poll looks first and becomes a waiter then.
    CheckThenPark,
    /// A parked poll keeps what it read from.
    PollHoldsRead,
    /// An op waits until no poll is parked.
    PollsShareOneThread,
    /// To open a conversation is to ask its servers how they are.
    PingOnOpen,
    /// A page of another version is answered as if it were of this one.
    SkipVersion,
    /// A stream whose length could not be read passes for an empty one.
    FailedCountIsZero,
    /// Epochs of every boot begin alike.
    EpochFromOne,
    /// A page's attachments outlive it.
    NoReap,
    /// An attachment that nobody polls stays.
    NoIdleReap,
    /// A page that was overtaken is told that its attachment is unknown.
    ForgetSuperseded,
    /// Whichever attach is answered last counts, not the one that was asked for last.
    LateAttachWins,
    /// A batch never holds more than it may, not even one whole event.
    StrictMaxBytes,
    /// Whoever says hello last is the newest page.
    LastHelloWins,
}
