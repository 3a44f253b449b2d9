//! The web view's renderer on Linux: fast where that works, safe where it is known to show an empty window.
//!
//! WebKitGTK passes frames to the window as DMA buffers. That needs a GPU's render node, and with NVIDIA's own driver it
//! ends in a blank window or in a Wayland protocol error. The safe setting copies frames instead; text does not notice.
//! RULING: a machine with a render node and a broken driver of another make is not recognised; whoever has one sets
//! the variable, which is honoured in every case. What would reopen it: a first paint that can be observed.

use std::path::Path;

/// WebKitGTK's own switch; whatever the user has set it to stays.
pub(crate) const SWITCH: &str = "WEBKIT_DISABLE_DMABUF_RENDERER";

/// What the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Graphics {
    render_node: bool,
    nvidia: bool,
}

/// Whether this machine needs the safe setting.
pub(crate) fn needs_safe_renderer() -> bool {
    needs(Graphics {
        render_node: has_render_node(Path::new("/dev/dri")),
        nvidia: Path::new("/proc/driver/nvidia/version").exists(),
    })
}

fn needs(graphics: Graphics) -> bool {
    !graphics.render_node || graphics.nvidia
}

/// A folder that cannot be read has no node that could be opened either.
fn has_render_node(devices: &Path) -> bool {
    std::fs::read_dir(devices).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_render_node_without_nvidias_driver_gets_the_fast_renderer() {
        let needs = |render_node, nvidia| {
            needs(Graphics {
                render_node,
                nvidia,
            })
        };
        assert!(!needs(true, false), "an ordinary machine");
        assert!(needs(true, true), "NVIDIA's own driver");
        assert!(
            needs(false, false),
            "a virtual display, a container, no GPU"
        );
        assert!(needs(false, true));
    }

    #[test]
    fn a_render_node_is_recognised_by_its_name() {
        let devices = tempfile::tempdir().expect("a folder for the test");
        assert!(!has_render_node(devices.path()));
        std::fs::write(devices.path().join("card0"), "").expect("written");
        assert!(!has_render_node(devices.path()), "a card without rendering");
        std::fs::write(devices.path().join("renderD128"), "").expect("written");
        assert!(has_render_node(devices.path()));
        assert!(!has_render_node(&devices.path().join("absent")));
    }
}
