//! What is drawn. Signals and callbacks go down; the desk is the one context.

pub(crate) mod chat;
pub(crate) mod settings;
pub(crate) mod sidebar;
pub(crate) mod toast;
pub(crate) mod welcome;

pub(crate) mod approval;
mod background;
mod compacted;
mod composer;
mod doctor;
mod failure;
mod fallbacks;
mod folder_picker;
pub(crate) mod health;
mod icons;
mod limits;
mod markdown;
mod message;
mod meter;
mod model_picker;
mod models;
mod options;
mod player;
mod prices;
mod reasoning;
mod server_connection;
mod server_key;
mod status_line;
mod times;
mod tool_call;
mod transcript;
pub(crate) mod turn;
mod usage;
pub(crate) mod versions;

pub(crate) use icons::{Glyph, Icon};
