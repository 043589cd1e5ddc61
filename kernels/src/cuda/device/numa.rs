//! The node of host memory that is closest to a device, and allocating there: on a machine with two sockets, copies from
//! the other socket's memory cross the link between them.

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;

    /// Policies of `set_mempolicy(2)`.
    const DEFAULT: libc::c_int = 0;
    const PREFERRED: libc::c_int = 1;
    /// Highest number of a node that the mask below can name.
    const NODE_MAX: u32 = 63;

    /// The node of the PCI device with this id, such as `0000:3b:00.0`, by the system's files under `root` (`/sys`).
    pub fn node_of(root: &Path, pci: &str) -> Option<u32> {
        let path = root.join("bus/pci/devices").join(pci.to_ascii_lowercase()).join("numa_node");
        parsed(&std::fs::read_to_string(path).ok()?)
    }

    /// A node's number; the system writes -1 where there is one node only.
    fn parsed(text: &str) -> Option<u32> {
        text.trim().parse::<i64>().ok().and_then(|node| u32::try_from(node).ok())
    }

    /// Runs `work`, whose allocations are on `node` as far as it has room.
    pub fn on_node<T>(node: Option<u32>, work: impl FnOnce() -> T) -> T {
        let Some(node) = node.filter(|node| *node <= NODE_MAX) else { return work() };
        let mask: u64 = 1 << node;
        // SAFETY: the mask has the given number of bits and lives for the call; only this thread's policy changes. A
        // system that refuses it allocates where it always does.
        let is_set = unsafe { libc::syscall(libc::SYS_set_mempolicy, PREFERRED, &raw const mask, 64u64) } == 0;
        let done = work();
        if is_set {
            // SAFETY: without a mask, as the default policy requires.
            unsafe { libc::syscall(libc::SYS_set_mempolicy, DEFAULT, std::ptr::null::<u64>(), 0u64) };
        }
        done
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_node_is_read_from_the_systems_files() {
            let root = std::env::temp_dir().join(format!("trawl-numa-{}", std::process::id()));
            let device = root.join("bus/pci/devices/0000:3b:00.0");
            std::fs::create_dir_all(&device).expect("a folder");
            for (text, node) in [("1\n", Some(1)), ("0", Some(0)), ("-1\n", None), ("", None), ("one", None)] {
                std::fs::write(device.join("numa_node"), text).expect("a file");
                // The driver writes the id in capitals.
                assert_eq!(node_of(&root, "0000:3B:00.0"), node, "{text:?}");
            }
            assert_eq!(node_of(&root, "0000:3c:00.0"), None);
            std::fs::remove_dir_all(&root).expect("a folder");
        }

        #[test]
        fn work_runs_whether_the_node_exists_or_not() {
            for node in [None, Some(0), Some(63), Some(64)] {
                assert_eq!(on_node(node, || vec![1u8; 100_000].len()), 100_000, "{node:?}");
            }
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{node_of, on_node};

/// Elsewhere the system decides.
#[cfg(not(target_os = "linux"))]
pub(super) fn node_of(_root: &std::path::Path, _pci: &str) -> Option<u32> {
    None
}

/// Elsewhere the system decides.
#[cfg(not(target_os = "linux"))]
pub(super) fn on_node<T>(_node: Option<u32>, work: impl FnOnce() -> T) -> T {
    work()
}
