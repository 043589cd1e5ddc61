//! Reads the health of a fleet's devices at an interval, on a thread of its own: an idle worker notices a device that died, and a
//! device whose memory errs takes no more parts.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cuda::device::{Facts, Fault};
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::fleet::Fleet;
use crate::cuda::health::finding::{Finding, Health, Throttle};
use crate::cuda::health::nvml::{Event, Handle, NoNvml, Nvml};

/// Interval between two probes of each device. A probe takes about a millisecond; values that a device computed within one interval
/// before its error was seen may have been delivered, unless the error ended its context.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// How long the end of a watch waits for its thread, and how often it looks.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);
const STOP_POLL: Duration = Duration::from_millis(1);

/// Something that a watch has seen.
#[derive(Debug, Clone, PartialEq)]
pub enum HealthEvent<'a> {
    /// There is no NVML: only whether devices answer is seen.
    NoNvml(&'a NoNvml),
    /// NVML does not know this device: only whether it answers is seen.
    Unknown {
        /// The device.
        device: &'a Facts,
        /// Why.
        why: &'a str,
    },
    /// Something that was not so at the last probe.
    Found {
        /// The device.
        device: &'a Facts,
        /// What it is.
        finding: &'a Finding,
        /// Whether the device is given up for it.
        is_quarantined: bool,
    },
    /// Something is no longer so.
    Over {
        /// The device.
        device: &'a Facts,
        /// What it was.
        finding: &'a Finding,
    },
    /// The device was slow for this time, at the least.
    Slow {
        /// Why.
        reason: Throttle,
        /// Since the last probe.
        took: Duration,
    },
    /// All devices were probed.
    Probed {
        /// How many are in use and wait for a reset, to replace rows or pages of memory.
        waiting_for_reset: usize,
        /// The state of all in one line: `healthy`, or what is wrong with which.
        summary: &'a str,
    },
}

/// One device, as watched.
struct Watched {
    facts: Facts,
    handle: Option<Handle>,
    /// What was found at the last probe.
    health: Health,
    /// XIDs (each number once, of which there are some hundred) and the end of the context, which are found once and stay.
    lasting: Vec<Finding>,
}

/// A thread that watches a fleet until it is dropped.
#[derive(Debug)]
pub struct Watch {
    /// Dropped to end the thread.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the devices of `fleet`, by the NVML that `open` gives. `open` and `report` are called on the watch's thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(
        fleet: Arc<Fleet>,
        open: impl FnOnce() -> Result<Nvml, NoNvml> + Send + 'static,
        interval: Duration,
        mut report: impl FnMut(&HealthEvent<'_>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("trawl-health".to_owned());
        let thread = thread.spawn(move || {
            let nvml = open().inspect_err(|why| report(&HealthEvent::NoNvml(why))).ok();
            watch(&fleet, nvml, interval, &stopped, report);
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    /// Waits for a probe that is under way, but not for long: a device that does not respond may hold it.
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + STOP_TIME_MAX;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(STOP_POLL);
        }
        if thread.is_finished() {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

fn watch(
    fleet: &Fleet,
    mut nvml: Option<Nvml>,
    interval: Duration,
    stopped: &Receiver<()>,
    mut report: impl FnMut(&HealthEvent<'_>),
) {
    let mut devices: Vec<Watched> =
        fleet.executors().iter().map(|executor| Watched::new(executor, nvml.as_mut(), &mut report)).collect();
    let mut last = Instant::now();
    loop {
        let took = last.elapsed();
        last = Instant::now();
        let xids = nvml.as_mut().map(Nvml::take_xids).unwrap_or_default();
        for (device, executor) in devices.iter_mut().zip(fleet.executors()) {
            device.probe(executor, nvml.as_ref(), &xids, took, &mut report);
        }
        let summary = summary_of(&devices);
        let waits = |device: &&Watched| {
            !device.health.is_quarantined && device.health.findings.contains(&Finding::RepairPending)
        };
        let waiting_for_reset = devices.iter().filter(waits).count();
        report(&HealthEvent::Probed { waiting_for_reset, summary: &summary });
        if !matches!(stopped.recv_timeout(interval), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

/// The state of all devices in one line. The limit of power is left out: it is reached and left all the time.
fn summary_of(devices: &[Watched]) -> String {
    let worth_saying = |finding: &&Finding| !matches!(finding, Finding::Throttled(reason) if !reason.is_a_problem());
    let state = |device: &Watched| {
        let findings = device.health.findings.iter().filter(worth_saying).cloned().collect();
        let health = Health { findings, is_quarantined: device.health.is_quarantined };
        (health != Health::default()).then(|| format!("device {}: {health}", device.facts.ordinal))
    };
    let ill: Vec<String> = devices.iter().filter_map(state).collect();
    if ill.is_empty() { Health::default().to_string() } else { ill.join(", ") }
}

impl Watched {
    fn new(executor: &Executor, nvml: Option<&mut Nvml>, report: &mut impl FnMut(&HealthEvent<'_>)) -> Self {
        let facts = executor.facts().clone();
        let mut device = Self { facts, handle: None, health: Health::default(), lasting: Vec::new() };
        let Some(nvml) = nvml else { return device };
        match nvml.device(&device.facts.uuid) {
            Ok(handle) => {
                nvml.listen(handle);
                device.handle = Some(handle);
            }
            Err(why) => report(&HealthEvent::Unknown { device: &device.facts, why: &why }),
        }
        device
    }

    fn probe(
        &mut self,
        executor: &Executor,
        nvml: Option<&Nvml>,
        xids: &[Event],
        took: Duration,
        report: &mut impl FnMut(&HealthEvent<'_>),
    ) {
        let is_slice = self.facts.slice.is_some();
        let was_lost = executor.lost().is_some();
        // One that is lost releases what it still holds.
        if let Err(Fault::Lost(why)) = executor.probe()
            && !was_lost
        {
            self.lasting.push(Finding::Sticky(why));
        }
        let mut now = Vec::new();
        if let (Some(nvml), Some(handle)) = (nvml, self.handle) {
            now = Health::of(&nvml.read(handle), is_slice).findings;
            for xid in xids.iter().filter(|event| event.is_of(handle)).map(|event| Finding::Xid(event.xid)) {
                if !self.lasting.contains(&xid) {
                    self.lasting.push(xid);
                }
            }
        }
        let mut findings = self.lasting.clone();
        findings.append(&mut now);
        // A lost device may be lost by what a request met, before any probe.
        let is_quarantined = executor.lost().is_some() || findings.iter().any(|finding| finding.quarantines(is_slice));
        let before = std::mem::replace(&mut self.health, Health { findings, is_quarantined });
        for finding in self.health.findings.iter().filter(|finding| !before.findings.contains(finding)) {
            let is_quarantined = finding.quarantines(is_slice);
            report(&HealthEvent::Found { device: &self.facts, finding, is_quarantined });
            if is_quarantined {
                executor.quarantine(&format!("{finding}: {}", finding.remedy()));
            }
        }
        let may_end = |finding: &&Finding| matches!(finding, Finding::Throttled(_) | Finding::RepairPending);
        for finding in before.findings.iter().filter(|f| may_end(f) && !self.health.findings.contains(f)) {
            report(&HealthEvent::Over { device: &self.facts, finding });
        }
        for finding in &self.health.findings {
            if let Finding::Throttled(reason) = finding {
                report(&HealthEvent::Slow { reason: *reason, took });
            }
        }
    }
}
