//! Whether a connection survived a sleep of the computer.
//!
//! Invariant: silence alone is no sign of death, since a model may think for minutes after waking as before; and a
//! connection whose server or whose own address is gone is not waited for. Any byte settles it. Without one, the server
//! is knocked at on a connection of its own, which disturbs no model, until it answers or [`PATIENCE`] is over.
//! A server that answers but has forgotten the connection says so to the kernel, whose keepalives (`dial`) ask it.

use std::{
    net::{IpAddr, UdpSocket},
    pin::Pin,
    time::Duration,
};

use protocol::Slept;
use reqwest::Url;

use super::{dial::Dialer, way::Way};
use crate::{Harness, mutant::mutated, wake::Woken};

/// For the network to come back and the server to answer, in time awake: a dead connection is named within 30 s of
/// waking, of which the first beat takes up to five.
const PATIENCE: Duration = Duration::from_secs(24);

/// Between two knocks.
const PAUSE: Duration = Duration::from_secs(3);

pub(super) struct Revival<'a> {
    dialer: &'a Dialer,
    url: &'a Url,
    way: &'a Way,
    harness: &'a Harness,
    woken: Woken,
    /// Our own end of the connection, once known.
    pub(super) local: Option<IpAddr>,
    /// The last sleep, until a byte came after it.
    slept: Option<Slept>,
    knocking: Option<Pin<Box<dyn Future<Output = Found> + Send + 'a>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Alive,
    Gone,
}

impl<'a> Revival<'a> {
    pub(super) fn new(
        dialer: &'a Dialer,
        url: &'a Url,
        way: &'a Way,
        harness: &'a Harness,
    ) -> Self {
        Self {
            dialer,
            url,
            way,
            harness,
            woken: dialer.wakes.follow(),
            local: None,
            slept: None,
            knocking: None,
        }
    }

    /// A byte came: it lives. A sleep that was not dealt with yet stays so: the byte may have waited in our own socket
    /// since before.
    pub(super) fn heard(&mut self) {
        self.slept = None;
        self.knocking = None;
    }

    /// The sleep that a connection which broke just now did not survive.
    pub(super) fn broke(&mut self) -> Option<Slept> {
        // The news of the break may be here before anybody noticed the sleep.
        self.dialer.wakes.look();
        while let Some(slept) = self.woken.ready() {
            self.slept = Some(slept);
        }
        self.slept
    }

    /// Ready when the connection is found to have died in a sleep. Cancel safe.
    pub(super) async fn died(&mut self) -> Slept {
        loop {
            let found = tokio::select! {
                slept = self.woken.next() => {
                    self.slept = Some(slept);
                    if !mutated!(self.harness, HalfOpenWaits) {
                        self.knocking = Some(Box::pin(self.knock()));
                    }
                    continue;
                }
                found = knocking(&mut self.knocking) => found,
            };
            self.knocking = None;
            match (found, self.slept) {
                (Found::Gone, Some(slept)) => return slept,
                (Found::Gone, None) | (Found::Alive, _) => {}
            }
        }
    }

    fn knock(&self) -> impl Future<Output = Found> + Send + use<'a> {
        let (dialer, url, way, local) = (self.dialer, self.url, self.way, self.local);
        let deaf = mutated!(self.harness, SilenceIsDeath);
        async move {
            let clock = dialer.clock.as_ref();
            let until = clock.monotonic().saturating_add(PATIENCE);
            loop {
                let mut over = clock.sleep_until(until);
                let answers = tokio::select! {
                    answers = dialer.answers(url, way) => answers,
                    () = &mut over => false,
                };
                if answers && local.is_none_or(is_ours) && !deaf {
                    return Found::Alive;
                }
                if clock.monotonic() >= until {
                    return Found::Gone;
                }
                clock.sleep(PAUSE).await;
            }
        }
    }
}

async fn knocking(future: &mut Option<Pin<Box<dyn Future<Output = Found> + Send + '_>>>) -> Found {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Whether this machine still has the address: one that went to another network has lost it, and with it every
/// connection made from there.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_network_is_not_ours() {
        assert!(is_ours(IpAddr::from([127, 0, 0, 1])));
        // Kept free for documents: nobody's machine has it.
        assert!(!is_ours(IpAddr::from([192, 0, 2, 1])));
    }
}
