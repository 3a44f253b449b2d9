//! The versions of a turn: which one stands here, and the way to the others.

use leptos::{html, prelude::*};
use protocol::{Op, TurnId};

use crate::{
    components::{
        icons::{Glyph, Icon},
        transcript::Hold,
    },
    desk::{Desk, use_desk},
    ipc,
    pane::Pane,
    versions::{Version, Way},
};

impl Way {
    /// What its button does.
    const fn name(self) -> &'static str {
        match self {
            Self::Earlier => "Bring back the earlier version",
            Self::Later => "Bring back the later version",
        }
    }

    const fn testid(self) -> &'static str {
        match self {
            Self::Earlier => "version-earlier",
            Self::Later => "version-later",
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Earlier => "icon-button version-way is-earlier",
            Self::Later => "icon-button version-way",
        }
    }

    const fn of(self, version: Version) -> Option<TurnId> {
        match self {
            Self::Earlier => version.earlier,
            Self::Later => version.later,
        }
    }
}

/// Which version of a turn this is; nothing where there is only one.
#[component]
pub(crate) fn Versions(pane: Pane, turn: TurnId) -> impl IntoView {
    let version = Memo::new(move |_| pane.versions.of(turn));
    move || {
        version.get().map(|version| {
            let said = format!("Version {} of {}", version.at, version.of);
            let focus = pane.versions.focus_of(turn).map(|way| {
                // The one that led here, as long as it leads further.
                match (way, version.earlier, version.later) {
                    (Way::Earlier, Some(_), _) | (Way::Later, _, None) => Way::Earlier,
                    (Way::Later, _, Some(_)) | (Way::Earlier, None, _) => Way::Later,
                }
            });
            let button = move |way| {
                let focused = focus == Some(way);
                view! { <WayButton pane version way focused /> }
            };
            view! {
                <div class="versions" role="group" aria-label=said.clone()>
                    {button(Way::Earlier)}
                    <span data-testid="version">{said.clone()}</span>
                    {button(Way::Later)}
                </div>
            }
            .into_any()
        })
    }
}

#[component]
fn WayButton(pane: Pane, version: Version, way: Way, focused: bool) -> impl IntoView {
    let desk = use_desk();
    let hold = use_context::<Hold>();
    let to = way.of(version);
    let button = NodeRef::<html::Button>::new();
    button.on_load(move |button| {
        if focused {
            // Focus is a courtesy.
            let _ = button.focus();
        }
    });
    view! {
        <button
            node_ref=button
            type="button"
            class=way.class()
            data-testid=way.testid()
            aria-label=way.name()
            title=way.name()
            disabled=move || to.is_none() || !pane.is_live() || pane.running.get().is_some()
            on:click=move |_| {
                if let Some(to) = to {
                    bring_back(desk, pane, hold, to, way);
                }
            }
        >
            <Glyph icon=Icon::Chevron />
        </button>
    }
    .into_any()
}

/// In words, where a turn ended badly that took the place of another one.
#[component]
pub(crate) fn BringBack(pane: Pane, turn: TurnId) -> impl IntoView {
    let desk = use_desk();
    let hold = use_context::<Hold>();
    let earlier = Memo::new(move |_| pane.versions.of(turn)?.earlier);
    move || {
        earlier.get().map(|earlier| {
            view! {
                <button
                    type="button"
                    class="button"
                    data-testid="bring-back"
                    disabled=move || !pane.is_live()
                    on:click=move |_| bring_back(desk, pane, hold, earlier, Way::Earlier)
                >
                    {Way::Earlier.name()}
                </button>
            }
            .into_any()
        })
    }
}

/// Puts a version in the place of the one that stands there, if nothing has changed since the reader saw it.
fn bring_back(desk: Desk, pane: Pane, hold: Option<Hold>, turn: TurnId, way: Way) {
    let Some(expected_tip) = pane.tip() else {
        return;
    };
    if !pane.versions.begin(turn, way) {
        return;
    }
    if let Some(Hold(stay)) = hold {
        stay.run(());
    }
    ipc::spawn(async move {
        let op = Op::RestoreTurn {
            session: pane.session,
            turn,
            expected_tip,
        };
        let answer = desk.submit(op).await;
        pane.versions.end(answer.is_ok());
        if let Err(error) = answer {
            desk.tell(&error);
        }
    });
}
