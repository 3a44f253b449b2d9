//! Where the reader stands in the transcript, and what is drawn there.
//!
//! Invariant: the view moves for two reasons only: the reader scrolls, or the reader is at the end and the end moves.
//! Everything else (older turns, turns drawn and given up, text that settles) happens around what is read.
//! Kept by: every change of what is drawn is followed, in the same frame, by `settle`, and so is every change of size.
//! Not here: which turns are near enough (`transcript::sheet`), and what scrolls by itself (the browser).

use std::collections::HashSet;

use leptos::{
    html,
    prelude::*,
    web_sys::{Element, HtmlElement},
};
use protocol::TurnId;
use transcript::{
    LinkState,
    sheet::{Drawn, Scrolled, Sheet, View},
};

use super::{hold::Hold, room};
use crate::{
    ipc::{self, Inside},
    library::set_if_new,
    pane::Pane,
};

/// Older turns are asked for when fewer heights of the view than this are left above it.
const NEAR_TOP_VIEWS: i32 = 3;
/// Before the page is laid out: a window of ordinary height.
const LIKELY_VIEW_PX: f64 = 900.0;
/// The attribute of a drawn turn's element with its number.
pub(super) const TURN: &str = "data-turn";

/// How much of the view a page goes, in hundredths: the eye finds its line again.
const PAGE_SHARE: i32 = 88;

/// Nobody sees less than this move.
const SEEN_PX: f64 = 0.75;
/// So often it is drawn anew within one frame.
const REDRAWS_MAX: u32 = 8;

/// Whether what is read stands where it stood.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Now,
    /// After the room above it was drawn anew, in this same frame.
    Later,
}

/// One view onto one pane.
#[derive(Clone, Copy)]
pub(super) struct Stand {
    pane: Pane,
    /// What scrolls.
    pub(super) view: NodeRef<html::Section>,
    /// What has the drawn turns.
    pub(super) list: NodeRef<html::Div>,
    /// Whether the view follows the end of the text.
    pub(super) follows: RwSignal<bool>,
    /// Whether older turns are on their way.
    pub(super) loading: RwSignal<bool>,
    pub(super) rows: RwSignal<Vec<Drawn>>,
    sheet: StoredValue<Sheet>,
    /// Turns in which the reader did something: what they unfolded stays unfolded.
    touched: StoredValue<HashSet<TurnId>>,
    hold: StoredValue<Hold, LocalStorage>,
    last_top: StoredValue<i32>,
    /// Whether a button of the pointer is down.
    pressed: StoredValue<bool>,
    /// How often it was drawn since it last came to rest.
    redraws: StoredValue<u32>,
}

impl Stand {
    pub(super) fn at_end_of(pane: Pane) -> Self {
        let stand = Self {
            pane,
            view: NodeRef::new(),
            list: NodeRef::new(),
            follows: RwSignal::new(true),
            loading: RwSignal::new(false),
            rows: RwSignal::new(Vec::new()),
            sheet: StoredValue::new(Sheet::default()),
            touched: StoredValue::new(HashSet::new()),
            hold: StoredValue::new_local(Hold::default()),
            last_top: StoredValue::new(0),
            pressed: StoredValue::new(false),
            redraws: StoredValue::new(0),
        };
        Effect::new(move |_| {
            pane.turns.with(|turns| stand.list_turns(turns));
        });
        stand
    }

    fn list_turns(self, turns: &[TurnId]) {
        self.sheet.update_value(|sheet| {
            sheet.list(turns, |turn| {
                self.pane.with_turn(turn, room::likely).unwrap_or_default()
            });
            if self.follows.get_untracked() {
                let height = match self.view.get_untracked() {
                    Some(view) => f64::from(view.client_height()),
                    None => LIKELY_VIEW_PX,
                };
                sheet.look(sheet.end(height), |_| true);
            }
        });
        self.draw();
    }

    /// Draws what the sheet says, and puts the view right before anybody sees it.
    fn draw(self) {
        self.rows.set(self.sheet.with_value(Sheet::drawn));
        let again = self.redraws.get_value();
        self.redraws.set_value(again + 1);
        ipc::spawn(async move {
            // The rows are put into the page by tasks that were woken just now, so this one comes after them. Drawing
            // what became near by drawing comes to an end; should it ever not, the page is not to stand still for it.
            if again >= REDRAWS_MAX {
                ipc::next_frame_or(100).await;
                self.redraws.try_update_value(|redraws| *redraws = 0);
            }
            self.settle();
        });
    }

    /// The room a row takes may have changed, or where it stands: puts the view where it belongs.
    pub(super) fn settle(self) {
        let redraws = self.redraws.try_get_value();
        self.settle_once();
        if self.redraws.try_get_value() == redraws {
            // Nothing was drawn anew: it has come to its end.
            self.redraws.try_update_value(|redraws| *redraws = 0);
        }
    }

    fn settle_once(self) {
        let Some((view, list)) = self.elements() else {
            return;
        };
        if self.follows.try_get_untracked() == Some(true) {
            if !self.pressed.get_value() {
                view.set_scroll_top(view.scroll_height());
                self.last_top.set_value(view.scroll_top());
            }
        } else if self.keep(&view) == Kept::Later {
            return;
        } else if view.scroll_height() <= view.client_height() {
            // All of it is in sight, so this is its end.
            self.follows.try_set(true);
        }
        self.take(&view, &list);
        self.look(&view, &list);
        self.load_older(&view);
    }

    /// Puts what is read back to where it stood. Rather by the room above than by scrolling: that would end a scroll
    /// that is still under way.
    fn keep(self, view: &HtmlElement) -> Kept {
        let moved = self.hold.try_with_value(|hold| hold.moved(view));
        let moved = moved.unwrap_or_default();
        let (kept, rest) = if moved.abs() < SEEN_PX {
            (Kept::Now, moved)
        } else if self.sheet.try_update_value(|sheet| sheet.absorb(moved)) == Some(true) {
            (Kept::Later, 0.0)
        } else {
            let px = moved.round();
            view.set_scroll_top(view.scroll_top() + px as i32);
            self.last_top.set_value(view.scroll_top());
            (Kept::Now, moved - px)
        };
        self.hold.try_update_value(|hold| hold.leave(rest));
        if kept == Kept::Later {
            self.draw();
        }
        kept
    }

    fn take(self, view: &HtmlElement, list: &Element) {
        self.hold.try_update_value(|hold| hold.take(view, list));
    }

    pub(super) fn to_end(self) {
        self.follows.set(true);
        self.settle();
    }

    /// Letting go at once, and not only when the scroll is reported: the next piece of text must not win the race.
    pub(super) fn let_go(self) {
        let scrollable = self
            .view
            .get_untracked()
            .is_some_and(|view| view.scroll_top() > 0);
        if scrollable && self.follows.get_untracked() {
            self.follows.set(false);
        }
    }

    pub(super) fn scrolled(self) {
        let Some((view, list)) = self.elements() else {
            return;
        };
        if self.follows.get_untracked() && view.scroll_top() == self.last_top.get_value() {
            // It was put there by what follows the end, and that has looked around already.
            return;
        }
        // What changed above since the last look may have moved the text under the reader's hands.
        let kept = if self.follows.get_untracked() {
            Kept::Now
        } else {
            self.keep(&view)
        };
        let scrolled = Scrolled {
            from: self.last_top.get_value(),
            to: view.scroll_top(),
            end: view.scroll_height() - view.client_height(),
        };
        self.last_top.set_value(scrolled.to);
        set_if_new(self.follows, scrolled.follows(self.follows.get_untracked()));
        if kept == Kept::Now {
            self.take(&view, &list);
            self.look(&view, &list);
            self.load_older(&view);
        }
    }

    /// Keys that go far go at once: an animated way would be cut by what is drawn on it.
    pub(super) fn go(self, key: &str) -> bool {
        let Some((view, _)) = self.elements() else {
            return false;
        };
        let page = view.client_height() * PAGE_SHARE / 100;
        match key {
            "PageUp" => view.set_scroll_top(view.scroll_top() - page),
            "PageDown" => view.set_scroll_top(view.scroll_top() + page),
            "Home" => view.set_scroll_top(0),
            "End" => view.set_scroll_top(view.scroll_height()),
            _ => return false,
        }
        true
    }

    pub(super) fn press(self) {
        self.pressed.set_value(true);
    }

    pub(super) fn release(self) {
        // Somebody who selected text is reading it.
        if self.pressed.get_value() && ipc::has_selection() {
            self.let_go();
        }
        self.pressed.set_value(false);
    }

    pub(super) fn touch(self, turn: TurnId) {
        self.touched.update_value(|touched| {
            touched.insert(turn);
        });
    }

    /// Measures what is drawn, and draws what has come near.
    fn look(self, view: &HtmlElement, list: &Element) {
        let stretch = View {
            top: ipc::extent(view).top - ipc::extent(list).top,
            height: f64::from(view.client_height()),
        };
        // A page that is not laid out has nothing near.
        if stretch.height <= 0.0 {
            return;
        }
        let selects = ipc::has_selection();
        let focused = ipc::focused_within(TURN);
        let changed = self.sheet.try_update_value(|sheet| {
            for (turn, height) in drawn_heights(list) {
                sheet.measured(turn, height);
            }
            self.touched.with_value(|touched| {
                sheet.look(stretch, |turn| {
                    selects
                        || touched.contains(&turn)
                        || focused.as_deref() == Some(turn.get().to_string().as_str())
                })
            })
        });
        if changed == Some(true) {
            self.draw();
        }
    }

    fn load_older(self, view: &HtmlElement) {
        let wanted = view.scroll_top() < NEAR_TOP_VIEWS * view.client_height();
        let pane = self.pane;
        let possible = pane.more_before.get_untracked()
            && pane.link_state.get_untracked() == LinkState::Live
            && !self.loading.get_untracked();
        if !(wanted && possible) {
            return;
        }
        self.loading.set(true);
        ipc::spawn(async move {
            // The turns that came are listed like all others.
            pane.load_older().await;
            self.loading.try_set(false);
        });
    }

    fn elements(self) -> Option<(HtmlElement, Element)> {
        let view = self.view.try_get_untracked().flatten()?;
        let list = self.list.try_get_untracked().flatten()?;
        Some((HtmlElement::clone(&view), Element::clone(&list)))
    }
}

/// The turns in the page and how high each stands, without what is left free above it.
fn drawn_heights(list: &Element) -> Vec<(TurnId, f64)> {
    let slots = Inside::of(list);
    let turn = |at| {
        let slot = slots.at(at)?;
        let turn = slot.get_attribute(TURN)?.parse().ok()?;
        let height = ipc::extent(&slot.last_element_child()?).height();
        Some((TurnId::new(turn), height))
    };
    (0..slots.count()).filter_map(turn).collect()
}
