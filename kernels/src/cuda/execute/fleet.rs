//! The devices of one process as one. Parts of a request are divided among them by rendezvous hashing of their symbols,
//! so that the bars of a part are cached on the same device in every scan; when a device is lost, only its parts move.
//!
//! Values do not depend on which device computes a part: all devices of a fleet give the same bits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trawl_plan::Program;
use twox_hash::XxHash3_64;

use crate::cuda::device::{Facts, Fault};
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::gatherer::Gatherer;
use crate::cuda::execute::held::Holding;
use crate::cuda::execute::paying::Prefetches;
use crate::cuda::execute::request::{BarsSource, RequestEvent, RequestPart};
use crate::stages::{DeviceMove, Stages};
use crate::{Cancel, Executable, SymbolInput, Values};

/// A device takes parts of which it is the first choice until its load exceeds the mean by 1/`OVERLOAD_SHARE`; the next
/// ones go to their second choice.
const OVERLOAD_SHARE: u64 = 8;

/// The loss of one device of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLoss {
    /// The driver's number of the device.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Why it is no longer used.
    pub why: String,
    /// How many devices are left.
    pub left: usize,
}

/// One or several devices that compute together.
#[derive(Debug)]
pub struct Fleet {
    /// At least one.
    pub(super) executors: Vec<Executor>,
    /// Requests without a known source so far, which go to the devices in turn.
    turn: AtomicUsize,
    /// What gathers cross-sections; `None` if the host does.
    pub(super) gatherer: Option<Gatherer>,
    /// What prefetching had done when it was reported last.
    pub(super) taken: Mutex<Prefetches>,
}

/// A report of a device's thread, which outlives the batch that it is about.
pub(super) enum Report {
    Stages(Stages),
    Part { part: usize, values: Result<Values, Fault>, took: Duration },
}

impl From<Executor> for Fleet {
    fn from(executor: Executor) -> Self {
        Self { executors: vec![executor], turn: AtomicUsize::new(0), gatherer: None, taken: Mutex::default() }
    }
}

impl Fleet {
    /// The devices as one; `None` if there is none.
    pub fn new(executors: Vec<Executor>) -> Option<Self> {
        (!executors.is_empty()).then(|| Self {
            executors,
            turn: AtomicUsize::new(0),
            gatherer: None,
            taken: Mutex::default(),
        })
    }

    /// The devices, lost ones included.
    pub fn executors(&self) -> &[Executor] {
        &self.executors
    }

    /// Properties of the first device.
    pub fn facts(&self) -> &Facts {
        self.executors[0].facts()
    }

    /// The devices' name, with their number if there are several: `2 x NVIDIA H200`.
    pub fn name(&self) -> String {
        let mut names: Vec<(&str, usize)> = Vec::new();
        for executor in &self.executors {
            let name = executor.facts().name.as_str();
            match names.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => names.push((name, 1)),
            }
        }
        let of = |(name, count): &(&str, usize)| match count {
            1 => (*name).to_owned(),
            _ => format!("{count} x {name}"),
        };
        names.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    /// Maximum bytes of device memory that may be used on all devices together.
    pub fn device_memory_bytes(&self) -> u64 {
        self.executors.iter().map(Executor::device_memory_bytes).sum()
    }

    /// Bytes of columns currently cached on all devices together.
    pub fn resident_bytes(&self) -> u64 {
        self.executors.iter().map(Executor::resident_bytes).sum()
    }

    /// Why no device is used any more; `None` while there is one.
    pub fn lost(&self) -> Option<&str> {
        let lost = |executor| Executor::lost(executor).is_some();
        if self.executors.iter().all(lost) { self.executors[0].lost() } else { None }
    }

    /// The devices that are lost by now, each with how many devices are left.
    pub fn losses(&self) -> Vec<DeviceLoss> {
        let left = self.living().count();
        let loss = |executor: &Executor| {
            let Facts { ordinal, name, .. } = executor.facts().clone();
            Some(DeviceLoss { ordinal, name, why: executor.lost()?.to_owned(), left })
        };
        self.executors.iter().filter_map(loss).collect()
    }

    /// Bytes of host memory that are allocated for all devices together: pinned, and read by kernels in place.
    pub fn host_bytes(&self) -> u64 {
        self.executors.iter().map(Executor::host_bytes).sum()
    }

    /// Calls `notify` once for each device that is lost, immediately for those that are lost already.
    pub fn on_lost(&self, notify: impl FnMut(&DeviceLoss) + Send + 'static) {
        // The number left and the notification are one step, so that the last loss is reported last.
        let state = Arc::new(Mutex::new((self.executors.len(), notify)));
        for executor in &self.executors {
            let (state, facts) = (Arc::clone(&state), executor.facts().clone());
            executor.on_lost(move |why| {
                let (left, notify) = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
                *left -= 1;
                let Facts { ordinal, name, .. } = facts;
                notify(&DeviceLoss { ordinal, name, why: why.to_owned(), left: *left });
            });
        }
    }

    /// Whether the fused kernels of a program are in use on every device that is not lost.
    pub fn is_fused(&self, program: &Executable) -> bool {
        self.living().all(|at| self.executors[at].is_fused(program))
    }

    /// As [`Executor::warm`], on every device.
    pub fn warm(&self, programs: &[Program]) {
        for executor in &self.executors {
            executor.warm(programs.to_vec());
        }
    }

    /// Indices of the devices that are not lost.
    pub(super) fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.executors.len()).filter(|at| self.executors[*at].lost().is_none())
    }

    /// The devices that are not lost, the best for these bars first.
    pub(super) fn ranked(&self, source: Option<&BarsSource<'_>>) -> Vec<usize> {
        let mut living: Vec<usize> = self.living().collect();
        match source.and_then(|source| source.symbols.first()) {
            Some(symbol) => {
                living.sort_by_key(|at| std::cmp::Reverse(weight(symbol.name, self.executors[*at].facts())))
            }
            None if living.len() > 1 => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) % living.len();
                living.rotate_left(turn);
            }
            None => {}
        }
        living
    }

    /// Divides parts among the devices that are not lost: per device, indices of its parts. Empty without a device.
    pub(super) fn shares(&self, parts: &[RequestPart<'_>], waiting: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let cells = |part: &usize| parts[*part].symbols.iter().map(|symbol| symbol.visible as u64).sum::<u64>();
        let living: Vec<usize> = self.living().collect();
        let mean = waiting.iter().map(cells).sum::<u64>() / (living.len() as u64).max(1);
        let room = mean + mean / OVERLOAD_SHARE;
        let mut shares: Vec<(usize, u64, Vec<usize>)> = living.iter().map(|at| (*at, 0, Vec::new())).collect();
        for part in waiting {
            let ranked = self.ranked(parts[*part].source.as_ref());
            let place = |at: &usize| living.binary_search(at).ok();
            // Bars that the host lacks are on the device of the first choice.
            let has_room = |at: &usize| shares[*at].1 < room || parts[*part].is_unread();
            let with_room = ranked.iter().filter_map(place).find(has_room);
            // A device may have been lost meanwhile: its share fails, and is divided again.
            let Some(at) = with_room.or_else(|| ranked.first().and_then(place)) else { continue };
            shares[at].1 += cells(part);
            shares[at].2.push(*part);
        }
        shares.into_iter().map(|(at, _, share)| (at, share)).filter(|(_, share)| !share.is_empty()).collect()
    }

    /// As [`Executor::evaluate_parts`], on all devices: parts of a device that is lost meanwhile are computed by the
    /// others.
    pub fn evaluate_parts(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        cancel: &dyn Cancel,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        if let [only] = self.executors.as_slice() {
            return only.evaluate_parts(program, parts, cancel, report);
        }
        let mut waiting: Vec<usize> = (0..parts.len()).collect();
        while !waiting.is_empty() {
            let shares = self.shares(parts, &waiting);
            // A part that no device took is reported as lost below.
            let mut lost: Vec<usize> = waiting.clone();
            for (_, share) in &shares {
                lost.retain(|part| !share.contains(part));
            }
            if shares.is_empty() {
                let fault = Fault::Lost(self.lost().unwrap_or("no device is left").to_owned());
                for part in lost {
                    report(RequestEvent::Part { part, values: Err(fault.clone()), took: Duration::ZERO });
                }
                return;
            }
            let mut again = lost;
            let mut take = |event| match event {
                Report::Stages(stages) => report(RequestEvent::Stages(&stages)),
                Report::Part { part, values: Err(Fault::Lost(_)), .. } => again.push(part),
                Report::Part { part, values, took } => report(RequestEvent::Part { part, values, took }),
            };
            std::thread::scope(|scope| {
                let (sender, reports) = channel();
                for (at, share) in shares {
                    let sender = sender.clone();
                    scope.spawn(move || self.evaluate_share(at, program, parts, (&share, None), cancel, &sender));
                }
                drop(sender);
                reports.iter().for_each(&mut take);
            });
            again.sort_unstable();
            waiting = again;
        }
    }

    /// Evaluates a device's share, whose outputs stay on the device if there is a place for them; reports are about the parts
    /// of the whole request.
    pub(super) fn evaluate_share(
        &self,
        at: usize,
        program: &Executable,
        parts: &[RequestPart<'_>],
        (share, holding): (&[usize], Option<&Holding>),
        cancel: &dyn Cancel,
        reports: &Sender<Report>,
    ) {
        let own: Vec<RequestPart<'_>> = share.iter().map(|part| parts[*part].clone()).collect();
        self.executors[at].evaluate_share(program, &own, cancel, holding, &mut |event| {
            let owned = match event {
                RequestEvent::Stages(stages) => Report::Stages(self.numbered(at, stages)),
                RequestEvent::Part { part, values, took } => Report::Part { part: share[part], values, took },
            };
            // Fails only when the request has ended, which is after all of its threads.
            let _ = reports.send(owned);
        });
    }

    /// Stages with batch numbers that are distinct among all devices.
    fn numbered(&self, at: usize, stages: &Stages) -> Stages {
        let mut numbered = stages.clone();
        let (count, at) = (self.executors.len() as u32, at as u32);
        numbered.renumber(|part| part.saturating_mul(count).saturating_add(at));
        numbered
    }

    /// As [`Executor::evaluate_from`], on one device; on another one if that is lost.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn evaluate_from(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&BarsSource<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Values, Fault> {
        self.on_one(source, stages, |executor, stages| {
            executor.evaluate_from(program, symbols, from, source, cancel, stages)
        })
    }

    /// As [`Executor::evaluate_in_chunks`], on one device; on another one if that is lost.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn evaluate_in_chunks(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        from: &[usize],
        source: Option<&BarsSource<'_>>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Values, Fault> {
        self.on_one(source, stages, |executor, stages| {
            executor.evaluate_in_chunks(program, symbols, from, source, cancel, stages, true)
        })
    }

    fn on_one<T>(
        &self,
        source: Option<&BarsSource<'_>>,
        stages: &mut Stages,
        mut run: impl FnMut(&Executor, &mut Stages) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut last = Fault::Lost(self.lost().unwrap_or("no device is left").to_owned());
        let mut lost: Vec<usize> = Vec::new();
        for at in self.ranked(source) {
            let executor = &self.executors[at];
            let ordinal = executor.facts().ordinal;
            match run(executor, stages) {
                Err(fault @ Fault::Lost(_)) => {
                    last = fault;
                    lost.push(ordinal);
                }
                Ok(done) => {
                    lost.into_iter().for_each(|from| stages.moved(DeviceMove { from, to: ordinal }));
                    return Ok(done);
                }
                failed => return failed,
            }
        }
        Err(last)
    }
}

/// Weight of a device for a part whose first symbol has this name: the part goes to the device of the greatest.
fn weight(symbol: &str, facts: &Facts) -> (u64, usize) {
    (XxHash3_64::oneshot_with_seed(facts.ordinal as u64, symbol.as_bytes()), facts.ordinal)
}
