//! How bars reach the kernels of a device, and which way a device allows.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// How bars reach the kernels of a device. The bits of an answer do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MemoryMode {
    /// Copied from pinned host memory.
    #[default]
    Pinned,
    /// In managed memory, whose pages are moved to the device before they are read.
    Managed,
    /// A kernel reads bars in host memory, over a link that keeps caches coherent, as on GH200, and lays them out in the device's. Where
    /// the host lays them, kernels read them in place, and those that are read again are copied.
    Coherent,
}

impl MemoryMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Pinned, Self::Managed, Self::Coherent];

    /// The mode's name in options, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Managed => "managed",
            Self::Coherent => "coherent",
        }
    }

    /// The mode for a device with this access, and the reason: the one that was asked for, or the fastest.
    ///
    /// # Errors
    /// Why the device does not allow the mode that was asked for.
    pub fn choose(access: HostAccess, asked: Option<Self>) -> Result<(Self, &'static str), String> {
        match asked {
            Some(Self::Coherent) if !access.is_coherent => Err(if access.has_page_faults {
                "memory mode 'coherent': this device reads host memory by page faults (HMM), not over a coherent link, \
                 which would be slower than copies; 'pinned' copies"
                    .to_owned()
            } else {
                "memory mode 'coherent': this device does not read host memory, as a GH200 does; 'pinned' copies"
                    .to_owned()
            }),
            Some(Self::Managed) if !access.is_managed => {
                Err("memory mode 'managed': this device does not let the host \
                 write managed memory while kernels run; 'pinned' copies"
                    .to_owned())
            }
            Some(mode) => Ok((mode, "requested")),
            None if access.is_coherent => Ok((Self::Coherent, "the device reads host memory over a coherent link")),
            None => Ok((Self::Pinned, "the device has memory of its own behind a bus")),
        }
    }
}

impl Display for MemoryMode {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MemoryMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| "'pinned', 'managed' or 'coherent' is expected".to_owned())
    }
}

/// How a device reaches host memory, as the driver reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostAccess {
    /// Kernels read any host memory through the host's page tables: GH200 and its like (attribute 100). Attribute 88 alone is
    /// access by page faults, as of x86 machines with Linux's HMM.
    pub is_coherent: bool,
    /// Kernels read any host memory by page faults at least (attribute 88).
    pub has_page_faults: bool,
    /// The host may access managed memory while kernels run (attribute 89).
    pub is_managed: bool,
    /// The node of host memory that is closest to the device; `None` if it is unknown or the machine has one node.
    pub numa_node: Option<u32>,
    /// How many copies run beside kernels (attribute 40): 1 is one direction at a time.
    pub copy_engines: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_chosen_by_what_the_device_allows_and_refused_with_the_reason() {
        let h200 = HostAccess { is_managed: true, ..HostAccess::default() };
        let hmm = HostAccess { has_page_faults: true, ..h200 };
        let gh200 = HostAccess { is_coherent: true, ..hmm };
        let mode = |access, asked| MemoryMode::choose(access, asked).map(|(mode, _)| mode);
        assert_eq!(mode(h200, None), Ok(MemoryMode::Pinned));
        // Page faults alone are no coherent link.
        assert_eq!(mode(hmm, None), Ok(MemoryMode::Pinned));
        assert_eq!(mode(gh200, None), Ok(MemoryMode::Coherent));
        for asked in MemoryMode::ALL {
            assert_eq!(mode(gh200, Some(asked)), Ok(asked));
            assert_eq!(asked.name().parse(), Ok(asked));
        }
        assert!(mode(hmm, Some(MemoryMode::Coherent)).unwrap_err().contains("HMM"));
        assert!(mode(h200, Some(MemoryMode::Coherent)).unwrap_err().contains("GH200"));
        assert!(mode(HostAccess::default(), Some(MemoryMode::Managed)).unwrap_err().contains("managed"));
        assert!("unified".parse::<MemoryMode>().unwrap_err().contains("'managed'"));
    }
}
