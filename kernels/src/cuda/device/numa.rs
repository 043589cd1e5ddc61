//! The node of host memory that is closest to a device, and allocating there: on a machine with two sockets, copies from
//! the other socket's memory cross the link between them.

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;

    /// A policy of `set_mempolicy(2)`.
    const PREFERRED: libc::c_int = 1;
    /// Nodes that a mask can name: the most that a kernel is built for.
    const NODES: usize = 1024;
    /// The system reads one bit less than it is given the number of.
    const MASK_BITS: usize = NODES + 1;

    /// The policy by which the system chooses the node of a thread's new memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Policy {
        mode: libc::c_int,
        /// A bit for each node.
        mask: [u64; NODES / 64],
    }

    impl Policy {
        /// This node first; `None` if a mask cannot name it.
        fn preferring(node: u32) -> Option<Self> {
            let mut mask = [0; NODES / 64];
            *mask.get_mut(node as usize / 64)? |= 1 << (node % 64);
            Some(Self { mode: PREFERRED, mask })
        }

        /// That of this thread; `None` if the system does not say.
        fn of_this_thread() -> Option<Self> {
            let (mut mode, mut mask) = (0, [0u64; NODES / 64]);
            let (mode_at, mask_at): (*mut libc::c_int, *mut u64) = (&raw mut mode, mask.as_mut_ptr());
            // SAFETY: places for a number, and for a mask of at least so many bits; without flags no address is read.
            let got = unsafe {
                libc::syscall(libc::SYS_get_mempolicy, mode_at, mask_at, MASK_BITS, std::ptr::null::<u8>(), 0u64)
            };
            (got == 0).then_some(Self { mode, mask })
        }

        /// Makes it that of this thread; `false` if the system refuses it.
        fn set(&self) -> bool {
            let is_empty = self.mask.iter().all(|word| *word == 0);
            let (mask, bits) = if is_empty { (std::ptr::null(), 0) } else { (self.mask.as_ptr(), MASK_BITS) };
            // SAFETY: a mask of at least so many bits, which is read by the call; only this thread's policy changes.
            unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, mask, bits) == 0 }
        }
    }

    /// The node of the PCI device with this id, such as `0000:3b:00.0`, by the system's files under `root` (`/sys`).
    pub fn node_of(root: &Path, pci: &str) -> Option<u32> {
        let path = root.join("bus/pci/devices").join(pci.to_ascii_lowercase()).join("numa_node");
        parsed(&std::fs::read_to_string(path).ok()?)
    }

    /// A node's number; the system writes -1 where there is one node only.
    fn parsed(text: &str) -> Option<u32> {
        text.trim().parse::<i64>().ok().and_then(|node| u32::try_from(node).ok())
    }

    /// Runs `work`, whose allocations are on `node` as far as it has room; the thread's policy is as before afterwards. A system that
    /// refuses it, or does not say what it was before, allocates where it always does.
    pub fn on_node<T>(node: Option<u32>, work: impl FnOnce() -> T) -> T {
        let policies = node.and_then(Policy::preferring).zip(Policy::of_this_thread());
        let before = policies.filter(|(wanted, _)| wanted.set()).map(|(_, before)| before);
        let done = work();
        if let Some(before) = before {
            // It was accepted before.
            let _ = before.set();
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
            for node in [None, Some(0), Some(63), Some(64), Some(1023), Some(1024), Some(u32::MAX)] {
                assert_eq!(on_node(node, || vec![1u8; 100_000].len()), 100_000, "{node:?}");
            }
        }

        /// In a thread of its own, whose policy is changed.
        #[test]
        fn the_policy_of_a_thread_is_what_it_was_before() {
            let tried = std::thread::spawn(|| {
                let Some(usual) = Policy::of_this_thread() else { return false };
                // MPOL_BIND and MPOL_INTERLEAVE, as numactl sets them for a whole process, and what there was.
                let nodes = Policy::preferring(0).expect("the first node");
                for before in [Policy { mode: 2, ..nodes }, Policy { mode: 3, ..nodes }, usual] {
                    if !before.set() {
                        return false;
                    }
                    let within = on_node(Some(0), Policy::of_this_thread);
                    assert_eq!(within, Policy::preferring(0), "of {before:?}");
                    assert_eq!(Policy::of_this_thread(), Some(before));
                }
                true
            });
            if !tried.join().expect("no panic") {
                eprintln!("SKIPPED: this system does not let a thread choose the node of its memory");
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
