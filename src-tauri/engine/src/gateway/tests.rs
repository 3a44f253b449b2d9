//! The gateway against recorded answers, made-up shapes and real sockets on loopback.

mod cassette;

mod recorded;
mod shapes;

mod loopback;
