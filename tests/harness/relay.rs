//! A relay in front of a server that is not ours: sees what our side does to its connections, and when.

#![allow(
    clippy::disallowed_methods,
    reason = "a real server lives in real time"
)]

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::watched::Watched;

/// Ends with whoever holds it.
pub struct Relay {
    address: SocketAddr,
    closings: std::sync::Arc<Watched<Vec<Instant>>>,
    _serving: JoinSet<()>,
}

impl Relay {
    /// Listens on a free port of loopback and passes everything on to `server`.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("its address");
        let closings = std::sync::Arc::new(Watched::new(Vec::new()));
        let mut serving = JoinSet::new();
        let noted = std::sync::Arc::clone(&closings);
        serving.spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((ours, _)) = listener.accept().await {
                passing.spawn(pass(ours, server, std::sync::Arc::clone(&noted)));
            }
        });
        Self {
            address,
            closings,
            _serving: serving,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Now, in the time of [`Relay::closed_after`].
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// How long after `since` our side closed a connection.
    pub async fn closed_after(&self, since: Instant) -> Duration {
        let closing = self
            .closings
            .until("our side to close its connection", |closings| {
                closings.iter().find(|at| **at >= since).copied()
            })
            .await;
        closing.duration_since(since)
    }
}

async fn pass(
    ours: TcpStream,
    server: SocketAddr,
    closings: std::sync::Arc<Watched<Vec<Instant>>>,
) {
    let Ok(theirs) = TcpStream::connect(server).await else {
        return;
    };
    let (mut from_us, mut to_us) = ours.into_split();
    let (mut from_them, mut to_them) = theirs.into_split();
    let up = async {
        // An end and a reset are both our side's leave-taking.
        let _ = tokio::io::copy(&mut from_us, &mut to_them).await;
        closings.change(|closings| closings.push(Instant::now()));
    };
    let down = async {
        let _ = tokio::io::copy(&mut from_them, &mut to_us).await;
        let _ = to_us.shutdown().await;
    };
    tokio::select! {
        // Whoever closes first takes the other side with it.
        () = up => {}
        () = down => {}
    }
}
