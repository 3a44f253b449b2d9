//! The hold: keeps what is read at its place while the text above it changes its height.
//!
//! Invariant: the element at the upper edge of the view stays where it is on the screen, whatever appears, settles or
//! goes above it. WebKitGTK does not do that by itself (it has no `overflow-anchor`). Places are counted from the
//! beginning of the text, not of the view: so the reader's own scrolling is never mistaken for a movement of the text.

use leptos::web_sys::{Element, HtmlElement};

use crate::ipc::{self, Extent, Inside};

/// Finer than a block of a list in a quote nothing needs to be.
const DEPTH_MAX: usize = 8;

/// Elements at the upper edge, the finest first, each with its place.
#[derive(Default)]
pub(super) struct Hold {
    anchors: Vec<(Element, f64)>,
    /// What is left of the last movement: a view scrolls by whole pixels.
    rest: f64,
}

impl Hold {
    /// Takes hold of what stands at the upper edge of `view`. `list` has the turns, each below the room of those that
    /// are not drawn. Room alone is nothing to hold on to: it is drawn on as soon as somebody looks at it.
    pub(super) fn take(&mut self, view: &HtmlElement, list: &Element) {
        self.anchors.clear();
        let edges = ipc::extent(view);
        let origin = origin(view, edges);
        let turn = first_below(list, edges.top).and_then(|slot| slot.last_element_child());
        let Some(turn) = turn.filter(|turn| ipc::extent(turn).top < edges.bottom) else {
            return;
        };
        self.anchors.push((turn.clone(), place(origin, &turn)));
        let mut parent = turn;
        while let Some(child) = first_below(&parent, edges.top) {
            self.anchors.push((child.clone(), place(origin, &child)));
            if self.anchors.len() == DEPTH_MAX {
                break;
            }
            parent = child;
        }
        self.anchors.reverse();
    }

    /// How far what is held has moved in the text since it was taken; 0 if nothing is held any more.
    pub(super) fn moved(&self, view: &HtmlElement) -> f64 {
        let held = self
            .anchors
            .iter()
            .find(|(element, _)| element.is_connected());
        held.map_or(0.0, |(element, stood)| {
            place(origin(view, ipc::extent(view)), element) - stood + self.rest
        })
    }

    /// Notes how much of that was not made good.
    pub(super) fn leave(&mut self, rest: f64) {
        self.rest = rest;
    }
}

/// Where the text begins, in the window.
fn origin(view: &HtmlElement, edges: Extent) -> f64 {
    edges.top - f64::from(view.scroll_top())
}

/// How far from there an element stands.
fn place(origin: f64, element: &Element) -> f64 {
    ipc::extent(element).top - origin
}

/// The first child that reaches below `edge`. Children stand below each other, so half of them need no look each time.
fn first_below(parent: &Element, edge: f64) -> Option<Element> {
    let children = Inside::of(parent);
    let (mut from, mut to) = (0, children.count());
    while from < to {
        let middle = from + (to - from) / 2;
        let reaches = children
            .at(middle)
            .is_some_and(|child| ipc::extent(&child).bottom > edge);
        if reaches {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    children.at(from)
}
