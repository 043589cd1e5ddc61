//! The health of devices: `finding` says what follows from what is read of them, `nvml` calls the library, `watch` reads at an interval.
//!
//! A device that may compute wrongly, or that does not answer, is given up by [`Executor::quarantine`], so that its parts go to
//! others; what makes it slow is only reported ([ADR 62](../../../../docs/adr/0062-health-and-tuning-of-devices.md)).
//!
//! [`Executor::quarantine`]: crate::cuda::Executor::quarantine

pub(super) mod finding;
pub(super) mod nvml;
pub(super) mod watch;
