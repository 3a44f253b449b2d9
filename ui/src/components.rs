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
mod enclosures;
mod failure;
mod fallbacks;
mod folder_picker;
pub(crate) mod health;
mod icons;
mod limits;
pub(crate) mod local_models;
mod markdown;
mod message;
mod meter;
mod missing_model;
mod model_form;
mod model_picker;
mod models;
mod options;
pub(crate) mod picture;
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
