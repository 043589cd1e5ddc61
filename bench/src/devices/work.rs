//! The work that devices are measured with: the screen W1, last bar, over a synthetic market.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use trawl_kernels::cuda::{Ahead, BarsSource, CELL_BYTES, Fault, Fleet, RequestEvent, RequestPart, SourceSymbol};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Cancel, Executable, NoCancel, Precision, SymbolInput, Values};

use crate::gpu::figures::{compiled, inputs, market, screen_items};

/// Symbols of a part, as of a segment of a dataset.
const PART_SYMBOLS: usize = 64;

/// The market.
pub(super) struct Market {
    symbols: Vec<[Vec<f64>; 5]>,
    names: Vec<String>,
}

/// A program over a market, cut into parts.
pub(super) struct Work<'a> {
    pub program: Executable,
    pub symbols: Vec<SymbolInput<'a>>,
    names: Vec<SourceSymbol<'a>>,
}

/// Evaluates parts, and reports them.
type Evaluate<'e> = &'e mut dyn FnMut(&[RequestPart<'_>], &mut dyn FnMut(RequestEvent<'_>));

/// Whether bars that are brought ahead are wanted now.
struct Superseded<'a>(&'a AtomicBool);

impl Cancel for Superseded<'_> {
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One run.
pub(super) struct Run {
    /// From the call to its last part.
    pub took: Duration,
    /// Busy time of the copies in, the kernels and the copies out, each without what overlaps itself.
    pub busy: [Duration; 3],
    /// Bytes copied in.
    pub bytes_in: u64,
    /// The bits of all values, in the parts' order.
    pub bits: Vec<u64>,
}

impl Market {
    pub fn new(symbols: u32, bars: u32) -> Self {
        Self { symbols: market(symbols, bars), names: (0..symbols).map(|at| format!("S{at}")).collect() }
    }
}

impl<'a> Work<'a> {
    /// # Errors
    /// None that depends on the machine.
    pub fn new(market: &'a Market) -> Result<Self> {
        let program = Executable::new(compiled(&screen_items())?.program(), Precision::F64);
        let symbols = inputs(&program, &market.symbols)?;
        Ok(Self { program, symbols, names: market.names.iter().map(|name| name.as_str().into()).collect() })
    }

    /// Bytes of the bars that it reads.
    pub fn bytes(&self) -> u64 {
        let cells = |symbol: &SymbolInput<'_>| (symbol.columns.len() * symbol.visible) as u64;
        self.symbols.iter().map(cells).sum::<u64>() * CELL_BYTES as u64
    }

    /// Runs it. `known`: the bars have a name, by which they stay on the device.
    ///
    /// # Errors
    /// [`Fault`] of any part.
    pub fn run(&self, fleet: &Fleet, known: bool) -> Result<Run, Fault> {
        let parts = self.parts(known.then_some("bench"));
        self.run_parts(&parts, &mut |parts, report| fleet.evaluate_parts(&self.program, parts, &NoCancel, report))
    }

    /// Runs it in two calls, as a worker runs a shard: while the first is computed the bars of the second are brought, where the fleet's
    /// options allow it; what is not there then the second copies itself. `bars` is the name under which they stay.
    ///
    /// # Errors
    /// [`Fault`] of any part.
    pub fn run_ahead(&self, fleet: &Fleet, bars: &str) -> Result<Run, Fault> {
        let parts = self.parts(Some(bars));
        self.run_parts(&parts, &mut |parts, report| {
            let half = parts.len() / 2;
            let (first, second) = parts.split_at(half);
            let is_wanted = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| fleet.prefetch(&self.program, second, Ahead::NextCall, &Superseded(&is_wanted)));
                fleet.evaluate_parts(&self.program, first, &NoCancel, report);
                is_wanted.store(true, Ordering::Relaxed);
            });
            fleet.evaluate_parts(&self.program, second, &NoCancel, &mut |event| match event {
                RequestEvent::Part { part, values, took } => {
                    report(RequestEvent::Part { part: part + half, values, took });
                }
                RequestEvent::Stages(stages) => report(RequestEvent::Stages(stages)),
            });
        })
    }

    /// Runs it as a cross-section, whose values the devices may gather.
    ///
    /// # Errors
    /// [`Fault`] of any part.
    pub fn run_gathered(&self, fleet: &Fleet) -> Result<Run, Fault> {
        let parts = self.parts(Some("bench"));
        self.run_parts(&parts, &mut |parts, report| {
            fleet.evaluate_cross_section(&self.program, parts, &NoCancel, report);
        })
    }

    /// Its parts; of a known source if `bars` has a name.
    fn parts(&self, bars: Option<&str>) -> Vec<RequestPart<'_>> {
        let parts = self.symbols.chunks(PART_SYMBOLS).zip(self.names.chunks(PART_SYMBOLS)).enumerate();
        parts
            .map(|(group, (symbols, names))| RequestPart {
                symbols: symbols.to_vec(),
                from: symbols.iter().map(|symbol| symbol.visible.saturating_sub(1)).collect(),
                source: bars.map(|bars| BarsSource {
                    bars: Arc::from(bars),
                    group: u32::try_from(group).unwrap_or(u32::MAX),
                    symbols: names,
                }),
            })
            .collect()
    }

    fn run_parts(&self, parts: &[RequestPart<'_>], evaluate: Evaluate<'_>) -> Result<Run, Fault> {
        let mut values: Vec<Result<Values, Fault>> = parts.iter().map(|_| Ok(Values::default())).collect();
        let (begun, mut stages) = (Instant::now(), Stages::default());
        evaluate(parts, &mut |event| match event {
            RequestEvent::Stages(batch) => stages.extend(batch),
            RequestEvent::Part { part, values: came, .. } => values[part] = came,
        });
        let took = begun.elapsed();
        let mut bits = Vec::new();
        for part in values {
            bits.extend(part?.iter().map(f64::to_bits));
        }
        let of = |stage: EngineStage| busy(&stages, stage);
        let busy = [EngineStage::HostToDevice, EngineStage::Kernel, EngineStage::DeviceToHost].map(of);
        let copied = stages.spans().iter().filter(|span| span.stage == EngineStage::HostToDevice);
        Ok(Run { took, busy, bytes_in: copied.map(|span| span.bytes).sum(), bits })
    }

    /// The fastest of `repeats` runs after one that compiles; the bits of all have to be `want`.
    ///
    /// # Errors
    /// A device fails, or gives other bits.
    pub fn best(&self, fleet: &Fleet, known: bool, repeats: u32, want: &mut Vec<u64>) -> Result<Run> {
        let mut best = self.checked(fleet, known, want)?;
        for at in 0..repeats {
            let run = self.checked(fleet, known, want)?;
            if at == 0 || run.took < best.took {
                best = run;
            }
        }
        Ok(best)
    }

    /// One run; its bits have to be `want`, which the first run sets.
    ///
    /// # Errors
    /// As [`Self::best`].
    pub fn checked(&self, fleet: &Fleet, known: bool, want: &mut Vec<u64>) -> Result<Run> {
        of_bits(self.run(fleet, known)?, want)
    }
}

/// The run, if its bits are `want`, which the first run sets.
///
/// # Errors
/// They are not.
pub(super) fn of_bits(run: Run, want: &mut Vec<u64>) -> Result<Run> {
    if want.is_empty() {
        want.clone_from(&run.bits);
    }
    if *want != run.bits {
        bail!("the bits differ from those of the first run: report this");
    }
    Ok(run)
}

/// The time within which at least one span of a stage ran.
fn busy(stages: &Stages, stage: EngineStage) -> Duration {
    let mut spans: Vec<(Instant, Instant)> =
        stages.spans().iter().filter(|span| span.stage == stage).map(|span| (span.started, span.ended)).collect();
    spans.sort_unstable();
    let (mut busy, mut until) = (Duration::ZERO, None);
    for (started, ended) in spans {
        let from = until.map_or(started, |until: Instant| until.max(started));
        busy += ended.saturating_duration_since(from);
        until = Some(until.map_or(ended, |until: Instant| until.max(ended)));
    }
    busy
}
