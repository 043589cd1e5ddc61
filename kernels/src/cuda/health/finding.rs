//! What can be wrong with a device, and what follows from it. Pure: readings in, findings out.

use std::fmt::{Display, Formatter};

/// XIDs after which a device's values or memory cannot be relied on, or that it does not survive: ECC errors that were not corrected
/// (48, 94, 95, 140), no spare row or page (64), off the bus (79), the device's own processor without an answer (119, 120), not
/// initialised (143). The others are an application's, or are followed by an error of the context.
const FATAL_XIDS: [u64; 9] = [48, 64, 79, 94, 95, 119, 120, 140, 143];

/// Why a device's clocks are lower than they could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Throttle {
    /// The limit of its power is reached, as is usual under load.
    PowerCap,
    /// It is hot: the driver lowers its clocks.
    Thermal,
    /// It is too hot: the hardware lowers its clocks by half or more.
    HotHardware,
    /// The power supply asks for less.
    PowerBrake,
    /// The hardware lowers its clocks, for another reason.
    Slowdown,
}

impl Throttle {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::PowerCap, Self::Thermal, Self::HotHardware, Self::PowerBrake, Self::Slowdown];

    /// Its bit in NVML.
    const fn bit(self) -> u64 {
        match self {
            Self::PowerCap => 0x4,
            Self::Slowdown => 0x8,
            Self::Thermal => 0x20,
            Self::HotHardware => 0x40,
            Self::PowerBrake => 0x80,
        }
    }

    /// Whether something is wrong with cooling or power: the limit of power alone is usual.
    pub const fn is_a_problem(self) -> bool {
        !matches!(self, Self::PowerCap)
    }

    /// What it is.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PowerCap => "its power limit",
            Self::Thermal => "heat",
            Self::HotHardware => "heat beyond what the hardware allows",
            Self::PowerBrake => "the power supply",
            Self::Slowdown => "the hardware",
        }
    }
}

/// A set of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling(u64);

impl Throttling {
    pub(in crate::cuda::health) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether clocks are low for this reason.
    pub fn is_by(self, reason: Throttle) -> bool {
        // Hardware that is too hot or braked is slowed down too: one reason is enough.
        let nearer = Throttle::HotHardware.bit() | Throttle::PowerBrake.bit();
        self.0 & reason.bit() != 0 && (reason != Throttle::Slowdown || self.0 & nearer == 0)
    }

    /// The reasons.
    pub fn reasons(self) -> impl Iterator<Item = Throttle> {
        Throttle::ALL.into_iter().filter(move |reason| self.is_by(*reason))
    }
}

/// What NVML says of a device at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// Errors of memory that could not be corrected, since the driver was loaded or the device was reset; `None` where they are not
    /// counted.
    pub uncorrected_errors: Option<u64>,
    /// Rows or pages of memory are replaced at the next reset.
    pub is_repair_pending: bool,
    /// A row could not be replaced: there is no spare one.
    pub has_repair_failed: bool,
    /// Why clocks are low.
    pub throttling: Throttling,
    /// NVML does not reach the device, or says that it must be reset: with its error.
    pub unreachable: Option<String>,
}

/// Something that is wrong with a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Errors of memory that could not be corrected.
    Uncorrected(u64),
    /// A row of memory could not be replaced.
    RepairFailed,
    /// NVML does not reach it.
    Unreachable(String),
    /// The context answers every call with an error.
    Sticky(String),
    /// The driver has logged this XID.
    Xid(u64),
    /// Rows or pages of memory are replaced at the next reset.
    RepairPending,
    /// Its clocks are low.
    Throttled(Throttle),
}

impl Finding {
    /// Whether the device is given up. Errors that are counted for a whole GPU may be those of another slice's memory; a slice is
    /// given up by XIDs of its own instance, and by an error of its context.
    pub fn quarantines(&self, is_slice: bool) -> bool {
        match self {
            Self::Uncorrected(_) | Self::RepairFailed => !is_slice,
            Self::Unreachable(_) | Self::Sticky(_) => true,
            Self::Xid(xid) => FATAL_XIDS.contains(xid),
            Self::RepairPending | Self::Throttled(_) => false,
        }
    }

    /// What an operator does about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Uncorrected(_) | Self::RepairPending => "reset the GPU (nvidia-smi --gpu-reset) once nothing uses it",
            Self::RepairFailed => "replace the GPU: it has no spare rows of memory",
            Self::Unreachable(_) => "restart the machine; if it happens again, replace the GPU",
            Self::Sticky(_) => "restart the worker; if it happens again, look for XIDs in the kernel's log",
            Self::Xid(_) => "look the XID up in NVIDIA's catalogue, and in the kernel's log for its process",
            Self::Throttled(Throttle::PowerCap) => "nothing, unless the limit was lowered (nvidia-smi -q -d POWER)",
            Self::Throttled(Throttle::Thermal | Throttle::HotHardware) => "check fans, air flow and inlet temperature",
            Self::Throttled(Throttle::PowerBrake | Throttle::Slowdown) => "check the power supply and its cables",
        }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uncorrected(1) => f.write_str("1 memory error that could not be corrected"),
            Self::Uncorrected(errors) => write!(f, "{errors} memory errors that could not be corrected"),
            Self::RepairFailed => f.write_str("a row of memory could not be replaced"),
            Self::Unreachable(why) => write!(f, "NVML does not reach it: {why}"),
            Self::Sticky(why) => write!(f, "every call fails: {why}"),
            Self::Xid(xid) => write!(f, "XID {xid}"),
            Self::RepairPending => f.write_str("rows of memory are replaced at the next reset"),
            Self::Throttled(reason) => write!(f, "slowed by {}", reason.text()),
        }
    }
}

/// The state of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// What is wrong with it, the gravest first.
    pub findings: Vec<Finding>,
    /// Whether it must not be used.
    pub is_quarantined: bool,
}

impl Health {
    /// What follows from a reading.
    pub fn of(reading: &Reading, is_slice: bool) -> Self {
        let mut findings = Vec::new();
        findings.extend(reading.unreachable.clone().map(Finding::Unreachable));
        findings.extend(reading.uncorrected_errors.filter(|errors| *errors > 0).map(Finding::Uncorrected));
        findings.extend(reading.has_repair_failed.then_some(Finding::RepairFailed));
        findings.extend(reading.is_repair_pending.then_some(Finding::RepairPending));
        findings.extend(reading.throttling.reasons().map(Finding::Throttled));
        let is_quarantined = findings.iter().any(|finding| finding.quarantines(is_slice));
        Self { findings, is_quarantined }
    }

    /// The gravest finding that says that the device must not be used, and what to do.
    pub fn refusal(&self, is_slice: bool) -> Option<String> {
        let finding = self.findings.iter().find(|finding| finding.quarantines(is_slice))?;
        Some(format!("{finding}: {}", finding.remedy()))
    }
}

impl Display for Health {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let text: Vec<String> = self.findings.iter().map(Finding::to_string).collect();
        match (self.is_quarantined, text.is_empty()) {
            (true, _) => write!(f, "quarantined: {}", text.join("; ")),
            (false, true) => f.write_str("healthy"),
            (false, false) => f.write_str(&text.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_memory_quarantine_a_gpu_and_slowness_is_only_reported() {
        let health = |reading: Reading, is_slice| Health::of(&reading, is_slice);
        assert_eq!(health(Reading::default(), false).to_string(), "healthy");
        let errors = Reading { uncorrected_errors: Some(2), is_repair_pending: true, ..Reading::default() };
        let whole = health(errors.clone(), false);
        assert!(whole.is_quarantined);
        let text =
            "quarantined: 2 memory errors that could not be corrected; rows of memory are replaced at the next reset";
        assert_eq!(whole.to_string(), text);
        assert!(whole.refusal(false).is_some_and(|why| why.contains("--gpu-reset")));
        // They may be another slice's.
        assert!(!health(errors, true).is_quarantined);
        let slow = Reading { throttling: Throttling::of_bits(0x40 | 0x8 | 0x1), ..Reading::default() };
        let slow = health(slow, false);
        assert_eq!(slow.findings, [Finding::Throttled(Throttle::HotHardware)], "one reason, and none for being idle");
        assert!(!slow.is_quarantined && slow.refusal(false).is_none());
        let none = Reading { uncorrected_errors: Some(0), throttling: Throttling::of_bits(0x1), ..Reading::default() };
        assert_eq!(health(none, false), Health::default());
        let gone = Reading { unreachable: Some("GPU is lost".to_owned()), ..Reading::default() };
        assert!(health(gone, true).is_quarantined);
    }

    #[test]
    fn xids_of_the_device_quarantine_it_and_those_of_an_application_do_not() {
        for (xid, quarantines) in
            [(48, true), (79, true), (94, true), (13, false), (31, false), (43, false), (63, false)]
        {
            assert_eq!(Finding::Xid(xid).quarantines(false), quarantines, "{xid}");
        }
        assert!(Finding::Sticky(String::new()).quarantines(true));
        assert!(!Finding::RepairPending.quarantines(false));
        for finding in [Finding::Uncorrected(1), Finding::RepairFailed, Finding::Throttled(Throttle::Thermal)] {
            assert!(!finding.remedy().is_empty() && !finding.to_string().is_empty());
        }
    }
}
