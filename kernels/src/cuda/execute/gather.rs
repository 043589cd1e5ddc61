//! Cross-sections over several devices: the values of a step stay on the devices that computed them until all are there, are
//! gathered on each of them, and leave through one. What fails on this way is gathered by the host, from the block of each
//! device, with the same bits: a value belongs to its part and symbol, whatever block it came in, and reductions are added
//! up in the order of symbols.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trawl_plan::Program;

use crate::cuda::collective::Connect;
use crate::cuda::device::arguments::Wanted;
use crate::cuda::device::{Fault, Urgency};
use crate::cuda::execute::cells::row_cells;
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::fleet::{Fleet, Report};
use crate::cuda::execute::gather_queue::{GatherPart, GatherQueue};
use crate::cuda::execute::gatherer::{GatherOptions, Gatherer, Gathers};
use crate::cuda::execute::held::{HeldBatch, HeldState, Holding};
use crate::cuda::execute::request::{RequestEvent, RequestPart, of_host};
use crate::cuda::execute::transfer::DeviceBuffer;
use crate::{Cancel, Executable, Values};

impl Executor {
    /// A block of memory that all streams of the device may use.
    pub(super) fn block(&self, cells: usize) -> Result<Arc<DeviceBuffer>, Fault> {
        let lent = loop {
            if let Some(lent) = self.pool.lend(Urgency::Batch, true)? {
                break lent;
            }
        };
        let block = lent.allocate(cells)?;
        lent.mark()?.wait()?;
        Ok(Arc::new(block))
    }

    /// Reads held outputs, but not those of `left_out`, from a block that begins at cell `first` of this device's memory.
    pub(super) fn read_block(
        &self,
        block: &DeviceBuffer,
        first: usize,
        batches: &[HeldBatch],
        left_out: &Range<usize>,
        value: &mut dyn FnMut((usize, usize), usize, usize, f64),
    ) -> Result<(), Fault> {
        let mut lent = loop {
            if let Some(lent) = self.pool.lend(Urgency::Interactive, true)? {
                break lent;
            }
        };
        let room = lent.staging_cells;
        let mut read = || {
            for batch in batches {
                for (at, cells, outputs) in batch.runs(left_out) {
                    for done in (0..cells).step_by(room) {
                        let piece = room.min(cells - done);
                        let (from, to) = ((block.memory(), first + at + done), (&lent.outward[0], 0));
                        lent.device.copy_out(lent.stream, from, to, piece)?;
                        lent.mark()?.wait()?;
                        lent.device.read(&lent.outward[0], 0, piece, &mut |cells| {
                            batch.rows().read(outputs, done, cells, value);
                        });
                    }
                }
            }
            Ok(())
        };
        let done: Result<(), Fault> = read();
        if let Err(fault) = &done {
            // The track is used by others.
            let _ = lent.settle();
            self.notice(fault);
        }
        done
    }
}

/// A device's share of a cross-section.
struct Share {
    /// The executor's index.
    at: usize,
    parts: Vec<usize>,
    holding: Holding,
    /// The blocks of all devices, once they are gathered.
    receive: Arc<DeviceBuffer>,
}

/// Most cells that the outputs of a part take.
pub(super) fn cells_of(program: &Executable, part: &RequestPart<'_>, wanted: Wanted) -> usize {
    let longest = |group: &Vec<usize>| group.iter().map(|i| part.symbols[*i].visible).max().unwrap_or(0);
    let rows = |group: &Vec<usize>| if wanted == Wanted::Last { 1 } else { longest(group) };
    let rows: usize = part.groups().iter().map(rows).sum();
    rows * row_cells(program.precision()) * program.outputs.len()
}

/// Bytes of the values of a request.
fn value_bytes(program: &Program, parts: &[RequestPart<'_>]) -> u64 {
    let values = |part: &RequestPart<'_>| -> u64 {
        part.symbols.iter().zip(&part.from).map(|(symbol, from)| symbol.visible.saturating_sub(*from) as u64).sum()
    };
    parts.iter().map(values).sum::<u64>() * program.outputs.len() as u64 * size_of::<f64>() as u64
}

impl Fleet {
    /// Has the devices gather cross-sections through `connect` from now on.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn gather_by(&mut self, connect: Box<dyn Connect>, options: GatherOptions) -> Result<(), String> {
        let gatherer = Gatherer {
            queue: GatherQueue::new(connect, options.time_max)?,
            options,
            by_devices: AtomicU64::new(0),
            by_host: AtomicU64::new(0),
            on_failure: Mutex::default(),
        };
        self.gatherer = Some(gatherer);
        Ok(())
    }

    /// How cross-sections were gathered so far, those that were never to be gathered by devices left out.
    pub fn gathers(&self) -> Gathers {
        let count = |count: fn(&Gatherer) -> &AtomicU64| {
            self.gatherer.as_ref().map_or(0, |gatherer| count(gatherer).load(Ordering::Relaxed))
        };
        Gathers { by_devices: count(|g| &g.by_devices), by_host: count(|g| &g.by_host) }
    }

    /// Why devices do not gather any more; `None` while they do, and where they never did.
    pub fn gathering_over(&self) -> Option<String> {
        self.gatherer.as_ref()?.queue.over()
    }

    /// Calls `notify` whenever devices fail to gather, which is a few times at most.
    pub fn on_gather_failure(&self, notify: impl FnMut(&str) + Send + 'static) {
        if let Some(gatherer) = &self.gatherer {
            *gatherer.on_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(notify));
        }
    }

    /// As [`Self::evaluate_parts`], of values that are reduced over all symbols: they are gathered by the devices if that
    /// was asked for and they are many.
    pub fn evaluate_cross_section(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        cancel: &dyn Cancel,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        let wanted = |gatherer: &&Gatherer| {
            value_bytes(program, parts) >= gatherer.options.bytes_min && gatherer.queue.over().is_none()
        };
        let gatherer = self.gatherer.as_ref().filter(wanted);
        let shares = gatherer.and_then(|gatherer| Some((gatherer, self.held_shares(program, parts)?)));
        match shares {
            Some((gatherer, (shares, cells))) => {
                self.evaluate_held(gatherer, &shares, cells, program, parts, cancel, report);
            }
            None => self.evaluate_parts(program, parts, cancel, report),
        }
    }

    /// The shares of all devices, with memory for their outputs, and the cells of a block; `None` if there is no memory.
    fn held_shares(&self, program: &Executable, parts: &[RequestPart<'_>]) -> Option<(Vec<Share>, usize)> {
        let all: Vec<usize> = (0..parts.len()).collect();
        let mut divided = self.shares(parts, &all);
        // Devices without a share take part in the collective.
        let idle: Vec<usize> = self.living().filter(|at| divided.iter().all(|(known, _)| known != at)).collect();
        divided.extend(idle.into_iter().map(|at| (at, Vec::new())));
        divided.sort_unstable_by_key(|(at, _)| *at);
        let cells = |share: &Vec<usize>| -> usize {
            let is_last = |part: &usize| {
                let part = &parts[*part];
                part.symbols.iter().zip(&part.from).all(|(symbol, from)| from + 1 >= symbol.visible)
            };
            let wanted = if share.iter().all(is_last) { Wanted::Last } else { Wanted::All };
            share.iter().map(|part| cells_of(program, &parts[*part], wanted)).sum()
        };
        let most = divided.iter().map(|(_, share)| cells(share)).max().filter(|cells| *cells > 0)?;
        let count = divided.len();
        let share = |(at, parts): (usize, Vec<usize>)| {
            let executor = &self.executors[at];
            let (block, receive) = (executor.block(most).ok()?, executor.block(most.checked_mul(count)?).ok()?);
            Some(Share { at, parts, holding: Holding::new(block), receive })
        };
        let shares: Option<Vec<Share>> = divided.into_iter().map(share).collect();
        Some((shares?, most))
    }

    #[allow(clippy::too_many_arguments)]
    fn evaluate_held(
        &self,
        gatherer: &Gatherer,
        shares: &[Share],
        cells: usize,
        program: &Executable,
        parts: &[RequestPart<'_>],
        cancel: &dyn Cancel,
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        let lost = || Fault::Lost("no device took it".to_owned());
        let mut came: Vec<(Result<(), Fault>, Duration)> = vec![(Err(lost()), Duration::ZERO); parts.len()];
        std::thread::scope(|scope| {
            let (sender, reports) = channel();
            for share in shares.iter().filter(|share| !share.parts.is_empty()) {
                let (sender, holding) = (sender.clone(), Some(&share.holding));
                scope.spawn(move || {
                    self.evaluate_share(share.at, program, parts, (&share.parts, holding), cancel, &sender);
                });
            }
            drop(sender);
            for event in reports {
                match event {
                    Report::Stages(stages) => report(RequestEvent::Stages(&stages)),
                    Report::Part { part, values, took } => came[part] = (values.map(drop), took),
                }
            }
        });
        let is_there = came.iter().any(|(came, _)| came.is_ok());
        let gathered = is_there && !cancel.cancelled() && self.gather(gatherer, shares, cells);
        let mut values: Vec<Values> = vec![Values::default(); parts.len()];
        for (rank, share) in shares.iter().enumerate() {
            let HeldState { batches, ready, .. } = share.holding.take();
            let Some(ready) = ready else { continue };
            for part in share.parts.iter().filter(|part| came[**part].0.is_ok()) {
                values[*part] = of_host(program, &parts[*part], &ready.sequence, &(0..0));
            }
            let mut keep = |(part, symbol): (usize, usize), output: usize, bar: usize, value: f64| {
                let part = share.parts[part];
                let at = bar.checked_sub(parts[part].from[symbol]);
                // Of a part that failed there may be some groups.
                if let Some(at) = at {
                    values[part].put(symbol, output, at, value);
                }
            };
            let all = &shares[0];
            let by_devices = gathered
                && self.executors[all.at].read_block(&all.receive, rank * cells, &batches, &(0..0), &mut keep).is_ok();
            if !by_devices
                && let Err(fault) =
                    self.executors[share.at].read_block(&share.holding.block, 0, &batches, &(0..0), &mut keep)
            {
                for part in share.parts.iter().filter(|part| came[**part].0.is_ok()).copied().collect::<Vec<_>>() {
                    came[part].0 = Err(fault.clone());
                }
            }
        }
        let mut again = Vec::new();
        for (part, (came, took)) in came.into_iter().enumerate() {
            match came {
                Ok(()) => {
                    let values = Ok(std::mem::take(&mut values[part]));
                    report(RequestEvent::Part { part, values, took });
                }
                Err(Fault::Lost(_)) => again.push(part),
                Err(fault) => report(RequestEvent::Part { part, values: Err(fault), took }),
            }
        }
        if again.is_empty() {
            return;
        }
        // The other devices compute what a lost one had.
        let left: Vec<RequestPart<'_>> = again.iter().map(|part| parts[*part].clone()).collect();
        self.evaluate_parts(program, &left, cancel, &mut |event| match event {
            RequestEvent::Part { part, values, took } => {
                report(RequestEvent::Part { part: again[part], values, took });
            }
            RequestEvent::Stages(stages) => report(RequestEvent::Stages(stages)),
        });
    }

    /// Gathers the blocks of all devices on each of them; `false` if the host has to.
    fn gather(&self, gatherer: &Gatherer, shares: &[Share], cells: usize) -> bool {
        let is_lost = |share: &Share| self.executors[share.at].lost().is_some();
        let gathered = if shares.iter().any(is_lost) {
            Err("a device was lost".to_owned())
        } else {
            let part = |share: &Share| GatherPart {
                device: Arc::clone(&self.executors[share.at].device),
                send: Arc::clone(&share.holding.block),
                receive: Arc::clone(&share.receive),
            };
            gatherer.queue.gather(shares.iter().map(part).collect(), cells)
        };
        let count = if gathered.is_ok() { &gatherer.by_devices } else { &gatherer.by_host };
        count.fetch_add(1, Ordering::Relaxed);
        if let Err(why) = &gathered
            && let Some(notify) = &mut *gatherer.on_failure.lock().unwrap_or_else(PoisonError::into_inner)
        {
            notify(why);
        }
        gathered.is_ok()
    }
}
