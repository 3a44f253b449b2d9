//! Files that were dropped on a window, where the browser does not hand them to its page.

use serde::{Deserialize, Serialize};

/// One of them. WebKitGTK has told a page of none since 2.50.3, for a page might have made one up (CVE-2025-13947); so
/// the window itself notes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedFile {
    /// What it is asked for by; of this window's boot.
    pub number: u64,
    /// Its name, without its folder.
    pub name: String,
    /// Its size; 0 where that cannot be told.
    pub bytes: u64,
    /// Where it lies, if it has a model's name: that is all there is to be done with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Has the engine take one of them as an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeDroppedArgs {
    /// Which.
    pub number: u64,
}
