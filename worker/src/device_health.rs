//! The health of a worker's devices: in its log, its metrics and its record. What follows from it, the kernels decide.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use trawl_kernels::cuda::{Finding, Fleet, HealthEvent, Nvml, Search, Throttle, Watch};
use trawl_telemetry::metrics::catalogue::worker::{
    DEVICE_FINDINGS, DEVICE_PROBES, DEVICE_THROTTLED, DEVICES_WAITING, DeviceFinding, ThrottleReason,
};

use crate::registration::Registered;

/// Probes between two changes of the record, at the least: throttling comes and goes.
const PROBES_PER_RECORD: u32 = 6;
/// Maximum characters of the state in the record.
const RECORD_CHARS_MAX: usize = 512;

/// Watches the devices; their state in one line goes to `shown`. `None` if there is no thread for it.
pub(crate) fn watch(fleet: &Arc<Fleet>, interval: Duration, shown: watch::Sender<String>) -> Option<Watch> {
    let open = || Nvml::open(&Search::of_environment());
    let watching = Watch::start(Arc::clone(fleet), open, interval, move |event| {
        record(event);
        if let HealthEvent::Probed { summary, .. } = event {
            shown.send_if_modified(|last| {
                let is_new = last != summary;
                (*summary).clone_into(last);
                is_new
            });
        }
    });
    watching.inspect_err(|error| tracing::error!(%error, "the health of devices is not watched: no thread")).ok()
}

/// Writes each new state of the devices into the worker's record.
pub(crate) async fn show(
    mut state: watch::Receiver<String>,
    interval: Duration,
    registered: &Registered,
) -> Infallible {
    while state.changed().await.is_ok() {
        let line: String = state.borrow_and_update().chars().take(RECORD_CHARS_MAX).collect();
        registered.device_health(line).await;
        tokio::time::sleep(interval * PROBES_PER_RECORD).await;
    }
    // There are no devices, or they are no longer watched.
    std::future::pending().await
}

fn record(event: &HealthEvent<'_>) {
    match event {
        HealthEvent::NoNvml(why) => tracing::warn!("{why}"),
        HealthEvent::Unknown { device, why } => tracing::warn!(
            device = device.ordinal,
            uuid = device.uuid,
            why,
            "NVML does not know this device: its errors of memory, XIDs and throttling are not seen"
        ),
        HealthEvent::Found { device, finding, is_quarantined } => {
            DEVICE_FINDINGS.of(label_of(finding)).inc();
            let (ordinal, uuid, name) = (device.ordinal, &device.uuid, &device.name);
            let (what, remedy) = (finding.to_string(), finding.remedy());
            match finding {
                _ if *is_quarantined => {
                    tracing::error!(
                        device = ordinal,
                        uuid,
                        name,
                        what,
                        remedy,
                        "a device is faulty, and gets no more work"
                    );
                }
                Finding::Throttled(reason) if !reason.is_a_problem() => {
                    tracing::debug!(device = ordinal, uuid, name, what, "a device is slowed");
                }
                _ => tracing::warn!(device = ordinal, uuid, name, what, remedy, "a device needs attention"),
            }
        }
        HealthEvent::Over { device, finding } => match finding {
            Finding::Throttled(reason) if !reason.is_a_problem() => {}
            _ => {
                tracing::info!(device = device.ordinal, uuid = device.uuid, what = finding.to_string(), "no longer so")
            }
        },
        HealthEvent::Slow { reason, took } => DEVICE_THROTTLED.of(reason_of(*reason)).add_time(*took),
        HealthEvent::Probed { waiting_for_reset, .. } => {
            DEVICE_PROBES.inc();
            DEVICES_WAITING.set_count(*waiting_for_reset);
        }
    }
}

fn label_of(finding: &Finding) -> DeviceFinding {
    match finding {
        Finding::Uncorrected(_) => DeviceFinding::MemoryError,
        Finding::RepairFailed => DeviceFinding::RepairFailed,
        Finding::Unreachable(_) => DeviceFinding::Unreachable,
        Finding::Sticky(_) => DeviceFinding::StickyError,
        Finding::Xid(_) => DeviceFinding::Xid,
        Finding::RepairPending => DeviceFinding::RepairPending,
        Finding::Throttled(_) => DeviceFinding::Throttled,
    }
}

fn reason_of(reason: Throttle) -> ThrottleReason {
    match reason {
        Throttle::PowerCap => ThrottleReason::PowerCap,
        Throttle::Thermal => ThrottleReason::Thermal,
        Throttle::HotHardware => ThrottleReason::HotHardware,
        Throttle::PowerBrake => ThrottleReason::PowerBrake,
        Throttle::Slowdown => ThrottleReason::Slowdown,
    }
}
