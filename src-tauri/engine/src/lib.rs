//! Holdfast's engine: sessions, turns, the gateway to model servers, and the log. No Tauri, no UI.

pub mod clock;
pub mod gateway;
