//! One step of several segments in as few calls of a device as possible: one segment would leave most of it idle.
//!
//! Piece by piece, the inputs of the segments are gathered on the compute threads, passed to the device in one call,
//! and reported for each segment as soon as its values are available. A result is the same as if the segment were
//! computed alone, byte for byte.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use trawl_kernels::cuda::{Ahead, Fault, Fleet, RequestEvent, RequestPart};
use trawl_kernels::stages::{EngineStage, StageSpan, Stages};
use trawl_kernels::{Cancel, Engine, EngineError, Executable, Values};
use trawl_market::{LoadedBars, Timeframe};
use trawl_plan::FrameProgram;
use trawl_plan::frame::{BarSize, Subject};
use trawl_wire::{SegmentResult, StepInputV1};

use super::step::StepRun;
use super::{ExecuteError, References, ScanSource, ScanStep, StepKind, StepOutput};
use crate::axis::Axis;
use crate::evaluate::Needed;
use crate::piece::{Forming, PieceInputs, inputs_of_states, push_last_of};
use crate::stage_run::{Computed, StageRun};

/// Number of states of forming bars in one call of a device: more lanes than it computes at once.
const FORMING_CALL: usize = 1024;

/// A segment with its bars loaded.
#[derive(Debug, Clone, Copy)]
pub struct Loaded<'b> {
    /// Group id.
    pub segment: u32,
    /// Bars of its symbols, sorted by symbol.
    pub bars: &'b [LoadedBars],
}

/// A report about segments that are computed together.
#[derive(Debug)]
pub enum BatchEvent {
    /// The stages of one batch of the device, over all its segments.
    Stages(Stages),
    /// A segment has ended; reported once per segment.
    Segment {
        /// Its index among the given segments.
        at: usize,
        /// The segment's result.
        result: Result<SegmentResult, ExecuteError>,
        /// Stages of the threads that worked on it.
        stages: Stages,
        /// Time of these threads, plus its share of the device's time.
        took: Duration,
    },
}

/// A segment being computed.
struct Live<'r> {
    at: usize,
    segment: u32,
    run: &'r StageRun<'r>,
    needed: Needed,
    /// `[piece][axis]`: values computed so far.
    computed: Vec<Vec<Computed>>,
    stages: Stages,
    took: Duration,
}

/// Runs one segment's share of the work; a panic is a bug that fails the segment, not the worker.
fn guarded<T>(work: impl FnOnce() -> Result<T, ExecuteError>) -> Result<T, ExecuteError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(ExecuteError::Panicked))
}

impl Live<'_> {
    /// As [`guarded`], and adds its time to the segment.
    fn work<T>(
        &mut self,
        stage: Option<EngineStage>,
        work: impl FnOnce(&mut Self) -> Result<T, ExecuteError>,
    ) -> Result<T, ExecuteError> {
        let started = Instant::now();
        let done = guarded(|| work(self));
        let ended = Instant::now();
        self.took += ended - started;
        if let Some(stage) = stage {
            self.stages.record(StageSpan { stage, part: 0, bytes: 0, started, ended });
        }
        done
    }

    fn fail(self, error: ExecuteError, report: &Report<'_>) {
        report(BatchEvent::Segment { at: self.at, result: Err(error), stages: self.stages, took: self.took });
    }

    fn end(mut self, step: &StepRun<'_>, report: &Report<'_>) {
        let output = self.work(Some(EngineStage::Encode), |live| step.output(live.run, &live.computed));
        self.finish(output, report);
    }

    fn finish(self, output: Result<StepOutput, ExecuteError>, report: &Report<'_>) {
        let result = output.and_then(|output| output.of(self.segment));
        report(BatchEvent::Segment { at: self.at, result, stages: self.stages, took: self.took });
    }

    /// Adds the values of one more piece.
    fn take(&mut self, inputs: &PieceInputs<'_>, values: Values) {
        let mut mine = vec![Computed::default(); self.run.axes.len()];
        inputs.keep(values, &mut mine);
        self.computed.push(mine);
    }
}

/// Receives reports, on any thread.
type Report<'a> = dyn Fn(BatchEvent) + Sync + 'a;

/// Forming bars of one axis of a segment, and their values.
struct Subjected<'r> {
    /// The segment's index among those being computed.
    live: usize,
    axis: usize,
    forming: Forming<'r>,
    outputs: Vec<Vec<f64>>,
}

/// What all pieces are computed with: device, threads and plan.
struct Device<'a> {
    /// The lowered pieces of the stage.
    executables: &'a [Executable],
    fleet: &'a Fleet,
    /// Whether the last piece has the values of a cross-section, which are reduced over all symbols.
    is_cross: bool,
    engine: &'a Engine,
    pool: &'a rayon::ThreadPool,
    cancel: &'a dyn Cancel,
    report: &'a Report<'a>,
}

impl ScanSource {
    /// The devices that compute segments together; `None` if each segment is computed by one thread.
    pub fn device(&self) -> Option<&Arc<Fleet>> {
        match &self.engine {
            Engine::Device(fleet) if self.checkpoints.is_none() => Some(fleet),
            _ => None,
        }
    }

    /// Runs one step of several segments on `fleet`, its own devices; the threads of `pool` prepare and finish them.
    /// Reports every segment once, with the result of [`Self::evaluate`] on it alone. Must not be called from a thread
    /// of the pool.
    #[allow(clippy::too_many_arguments)]
    pub fn evaluate_together(
        &self,
        fleet: &Fleet,
        step: ScanStep,
        input: &StepInputV1,
        segments: &[Loaded<'_>],
        references: &References,
        pool: &rayon::ThreadPool,
        cancel: &dyn Cancel,
        report: &(dyn Fn(BatchEvent) + Sync),
    ) {
        let times = [self.as_of];
        let shared = match StepRun::new(self, step, input, &times, references) {
            Ok(shared) => shared,
            Err(_) => {
                // All have the same error, reported for each.
                for (at, Loaded { segment, bars }) in segments.iter().enumerate() {
                    let mut stages = Stages::default();
                    let result = self.evaluate(*segment, step, input, bars, references, cancel, &mut stages);
                    report(BatchEvent::Segment { at, result, stages, took: Duration::ZERO });
                }
                return;
            }
        };
        let executables = self.executable.stage(step.stage);
        let is_cross = step.stage + 1 < self.plan().stages().len();
        let device = Device { executables, fleet, is_cross, engine: &self.engine, pool, cancel, report };
        let laid: Vec<_> =
            pool.install(|| segments.par_iter().map(|s| (Instant::now(), guarded(|| shared.axes(s.bars)))).collect());
        let mut runs: Vec<(usize, Instant, StageRun<'_>)> = Vec::with_capacity(segments.len());
        let mut whole: Vec<Vec<Axis<'_>>> = Vec::with_capacity(segments.len());
        let mut begun: Vec<(usize, Instant)> = Vec::with_capacity(segments.len());
        for (at, (started, axes)) in laid.into_iter().enumerate() {
            match axes {
                Ok(axes) => {
                    whole.push(axes);
                    begun.push((at, started));
                }
                Err(error) => {
                    report(BatchEvent::Segment {
                        at,
                        result: Err(error),
                        stages: Stages::default(),
                        took: started.elapsed(),
                    });
                }
            }
        }
        pool.install(|| {
            let begun = begun.par_iter().zip(&whole);
            begun
                .map(|((at, started), axes)| (*at, *started, shared.stage_run(axes, segments[*at].bars.len())))
                .collect_into_vec(&mut runs);
        });
        let prepare = |(at, started, run): &'_ (usize, Instant, StageRun<'_>)| {
            (*at, *started, guarded(|| Ok(shared.needed(run))))
        };
        let prepared: Vec<_> = pool.install(|| runs.par_iter().map(prepare).collect());
        let mut lives: Vec<Live<'_>> = Vec::with_capacity(prepared.len());
        for ((at, started, prepared), (_, _, run)) in prepared.into_iter().zip(&runs) {
            let segment = segments[at].segment;
            let mut live = Live {
                at,
                segment,
                run,
                needed: Needed::new(),
                computed: Vec::new(),
                stages: Stages::default(),
                took: started.elapsed(),
            };
            match prepared {
                Ok((_, reads)) if step.kind == StepKind::Times => {
                    live.finish(Ok(StepRun::times(run.times_of(&reads))), report);
                }
                Ok((needed, _)) => {
                    let ended = Instant::now();
                    live.stages.record(StageSpan { stage: EngineStage::Load, part: 0, bytes: 0, started, ended });
                    live.needed = needed;
                    lives.push(live);
                }
                Err(error) => live.fail(error, report),
            }
        }
        share_needs(&mut lives);
        for (p, piece) in shared.stage.pieces.iter().enumerate() {
            let Some(first) = lives.first() else { return };
            let frame = first.run.frame(piece);
            lives = match (&frame.subject, &frame.bars) {
                (Subject::Reference(_), _) => device.reference(p, piece, lives),
                (Subject::Own, BarSize::Higher { timeframe, forming: true }) => {
                    device.forming(p, piece, *timeframe, lives)
                }
                (Subject::Own, _) if p + 1 == shared.stage.pieces.len() => {
                    return device.last(p, piece, lives, &shared);
                }
                (Subject::Own, _) => device.whole(p, piece, lives),
            };
        }
        pool.install(|| lives.into_par_iter().for_each(|live| live.end(&shared, report)));
    }
}

impl ScanSource {
    /// Brings the bars of segments to the devices before [`Self::evaluate_together`] is called for them, as far as the first piece
    /// of the step reads them; the bytes that were brought. Whatever fails is reported by that call.
    #[allow(clippy::too_many_arguments)]
    pub fn prefetch(
        &self,
        fleet: &Fleet,
        step: ScanStep,
        input: &StepInputV1,
        segment: &Loaded<'_>,
        references: &References,
        ahead: Ahead<'_>,
        cancel: &dyn Cancel,
    ) -> u64 {
        let times = [self.as_of];
        let brought = guarded(|| {
            let shared = StepRun::new(self, step, input, &times, references)?;
            let axes = shared.axes(segment.bars)?;
            let run = shared.stage_run(&axes, segment.bars.len());
            let (needed, _) = shared.needed(&run);
            let Some((piece, needed)) = shared.stage.pieces.first().zip(needed.first()) else { return Ok(0) };
            let frame = run.frame(piece);
            let is_whole = !matches!(frame.bars, BarSize::Higher { forming: true, .. });
            if step.kind != StepKind::Values || !matches!(frame.subject, Subject::Own) || !is_whole {
                return Ok(0);
            }
            let read = run.inputs_of(0, run.given(frame, needed), needed, &[]);
            let part = RequestPart { symbols: read.symbols(), from: read.from.clone(), source: read.source() };
            Ok(fleet.prefetch(&self.executable.stage(step.stage)[0], std::slice::from_ref(&part), ahead, cancel))
        });
        brought.unwrap_or(0)
    }
}

/// Extends the needed rows of references to the first row that any segment needs, since they are computed once for all.
fn share_needs(lives: &mut [Live<'_>]) {
    let Some(first) = lives.first() else { return };
    let mut least: Vec<Vec<usize>> = first.needed.iter().map(|piece| piece[first.run.own..].to_vec()).collect();
    for live in lives.iter() {
        for (least, needed) in least.iter_mut().zip(&live.needed) {
            for (least, needed) in least.iter_mut().zip(&needed[live.run.own..]) {
                *least = (*least).min(*needed);
            }
        }
    }
    for live in lives.iter_mut() {
        for (least, needed) in least.iter().zip(&mut live.needed) {
            needed[live.run.own..].copy_from_slice(least);
        }
    }
}

fn of_fault(fault: Fault) -> ExecuteError {
    match fault {
        Fault::Cancelled => ExecuteError::Cancelled,
        fault => ExecuteError::Device(fault),
    }
}

impl Device<'_> {
    /// Gathers the inputs of a piece for all segments; segments that fail here are reported and dropped.
    fn gather<'r>(
        &self,
        p: usize,
        piece: &'r FrameProgram,
        lives: Vec<Live<'r>>,
    ) -> (Vec<Live<'r>>, Vec<PieceInputs<'r>>) {
        let read = |mut live: Live<'r>| {
            let inputs = live.work(None, |live| {
                let run = live.run;
                let given = run.given(run.frame(piece), &live.needed[p]);
                Ok(run.inputs_of(p, given, &live.needed[p], &live.computed))
            });
            (live, inputs)
        };
        let read: Vec<_> = self.pool.install(|| lives.into_par_iter().map(read).collect());
        let (mut lives, mut inputs) = (Vec::with_capacity(read.len()), Vec::with_capacity(read.len()));
        for (live, read) in read {
            match read {
                Ok(read) => {
                    lives.push(live);
                    inputs.push(read);
                }
                Err(error) => live.fail(error, self.report),
            }
        }
        (lives, inputs)
    }

    /// Runs a piece over segments in one call; `came` is called with the result of each.
    fn call(&self, p: usize, inputs: &[PieceInputs<'_>], came: &mut dyn FnMut(usize, Result<Values, Fault>, Duration)) {
        let parts: Vec<RequestPart<'_>> = inputs
            .iter()
            .map(|read| RequestPart { symbols: read.symbols(), from: read.from.clone(), source: read.source() })
            .collect();
        let mut report = |event: RequestEvent<'_>| match event {
            RequestEvent::Stages(stages) => (self.report)(BatchEvent::Stages(stages.clone())),
            RequestEvent::Part { part, values, took } => came(part, values, took),
        };
        let (executable, cancel) = (&self.executables[p], self.cancel);
        match self.is_cross && p + 1 == self.executables.len() {
            true => self.fleet.evaluate_cross_section(executable, &parts, cancel, &mut report),
            false => self.fleet.evaluate_parts(executable, &parts, cancel, &mut report),
        }
    }

    /// Runs on the CPU what no kernel supports; the bits are the same.
    fn on_processors(&self, p: usize, inputs: &PieceInputs<'_>, live: &mut Live<'_>) -> Result<(), ExecuteError> {
        if inputs.is_unread() {
            return Err(ExecuteError::Device(Fault::NotHeld));
        }
        live.work(Some(EngineStage::Kernel), |live| {
            let symbols = inputs.symbols();
            let values = self.executables[p].evaluate_from(&symbols, &inputs.from, self.cancel);
            live.take(inputs, values.map_err(EngineError::from)?);
            Ok(())
        })
    }

    /// Computes a piece that other pieces read.
    fn whole<'r>(&self, p: usize, piece: &'r FrameProgram, lives: Vec<Live<'r>>) -> Vec<Live<'r>> {
        let (mut lives, inputs) = self.gather(p, piece, lives);
        let mut ended: Vec<Option<Fault>> = vec![None; lives.len()];
        self.call(p, &inputs, &mut |at, values, took| {
            lives[at].took += took;
            match values {
                Ok(values) => lives[at].take(&inputs[at], values),
                Err(fault) => ended[at] = Some(fault),
            }
        });
        let finish = |((mut live, inputs), fault): ((Live<'r>, &PieceInputs<'_>), Option<Fault>)| {
            let done = match fault {
                None => Ok(()),
                Some(fault) if fault.has_no_kernel() => self.on_processors(p, inputs, &mut live),
                Some(fault) => Err(of_fault(fault)),
            };
            match done {
                Ok(()) => Some(live),
                Err(error) => {
                    live.fail(error, self.report);
                    None
                }
            }
        };
        let all = lives.into_par_iter().zip(&inputs).zip(ended);
        self.pool.install(|| all.filter_map(finish).collect())
    }

    /// Computes the last piece of a stage; each segment is reported as soon as its values are available.
    fn last<'r>(&self, p: usize, piece: &'r FrameProgram, lives: Vec<Live<'r>>, step: &StepRun<'_>) {
        let (lives, inputs) = self.gather(p, piece, lives);
        let mut lives: Vec<Option<Live<'_>>> = lives.into_iter().map(Some).collect();
        let inputs = &inputs;
        self.pool.in_place_scope(|scope| {
            self.call(p, inputs, &mut |at, values, took| {
                let Some(mut live) = lives[at].take() else { return };
                live.took += took;
                match values {
                    Ok(values) => scope.spawn(move |_| {
                        live.take(&inputs[at], values);
                        live.end(step, self.report);
                    }),
                    Err(fault) if fault.has_no_kernel() => {
                        scope.spawn(move |_| match self.on_processors(p, &inputs[at], &mut live) {
                            Ok(()) => live.end(step, self.report),
                            Err(error) => live.fail(error, self.report),
                        });
                    }
                    Err(fault) => live.fail(of_fault(fault), self.report),
                }
            });
        });
    }

    /// Computes a piece along the bars of a reference, which is the same for all segments.
    fn reference<'r>(&self, p: usize, piece: &'r FrameProgram, mut lives: Vec<Live<'r>>) -> Vec<Live<'r>> {
        let Some(first) = lives.first_mut() else { return lives };
        let (run, mut stages) = (first.run, Stages::default());
        let computed = first.work(None, |live| {
            let (frame, mut mine) = (run.frame(piece), vec![Computed::default(); run.axes.len()]);
            let wanted = run.wanted(frame, &live.needed[p]);
            match &frame.bars {
                BarSize::Higher { timeframe, forming: true } => {
                    for a in wanted {
                        mine[a] = run.forming(p, a, *timeframe, live.needed[p][a], self.cancel, &mut stages)?;
                    }
                }
                _ => {
                    let read = run.inputs_of(p, wanted, &live.needed[p], &live.computed);
                    let (symbols, source, executable) = (read.symbols(), read.source(), &self.executables[p]);
                    let (engine, cancel) = (self.engine, self.cancel);
                    let from = &read.from;
                    let source = source.as_ref();
                    let values = engine.evaluate_from(executable, &symbols, from, source, cancel, &mut stages)?;
                    read.keep(values, &mut mine);
                }
            }
            Ok(mine.split_off(run.own))
        });
        (self.report)(BatchEvent::Stages(stages));
        let failed = match computed {
            Ok(shared) => {
                for live in &mut lives {
                    let mut mine = vec![Computed::default(); live.run.own];
                    mine.extend(shared.iter().cloned());
                    live.computed.push(mine);
                }
                return lives;
            }
            Err(failed) => failed,
        };
        for live in lives {
            // Fails only because of the device or a cancellation: all segments get the same error.
            let error = match &failed {
                ExecuteError::Device(fault) => ExecuteError::Device(fault.clone()),
                ExecuteError::Cancelled => ExecuteError::Cancelled,
                _ => ExecuteError::Panicked,
            };
            live.fail(error, self.report);
        }
        Vec::new()
    }

    /// Computes a piece on the forming bars of the segments' symbols, states of many symbols side by side.
    fn forming<'r>(
        &self,
        p: usize,
        piece: &'r FrameProgram,
        timeframe: Timeframe,
        lives: Vec<Live<'r>>,
    ) -> Vec<Live<'r>> {
        let frame_of = |live: &Live<'r>| live.run.wanted(live.run.frame(piece), &live.needed[p]);
        let mut ended: Vec<Option<ExecuteError>> = Vec::new();
        ended.resize_with(lives.len(), || None);
        let mut lives = lives;
        let mut subjects: Vec<Subjected<'r>> = Vec::new();
        for (at, live) in lives.iter_mut().enumerate() {
            let run = live.run;
            let wanted = frame_of(live);
            let found = live.work(None, |live| {
                let forming = |a: usize| Some((a, Forming::new(run, p, a, timeframe, live.needed[p][a])?));
                Ok(wanted.into_iter().filter_map(forming).collect::<Vec<_>>())
            });
            match found {
                Ok(found) => subjects.extend(found.into_iter().map(|(axis, forming)| {
                    let outputs = vec![Vec::new(); piece.program.outputs.len()];
                    Subjected { live: at, axis, forming, outputs }
                })),
                Err(error) => ended[at] = Some(error),
            }
        }
        let rows = |(number, subject): (usize, &Subjected<'r>)| {
            let live = &lives[subject.live];
            let (needed, visible) = (live.needed[p][subject.axis], live.run.axes[subject.axis].visible);
            (needed..visible).map(move |row| (number, row))
        };
        let states: Vec<(usize, usize)> = subjects.iter().enumerate().flat_map(rows).collect();
        for chunk in states.chunks(FORMING_CALL) {
            let (begun, mut stages) = (Instant::now(), Stages::default());
            let columns = guarded(|| {
                Ok(self.pool.install(|| {
                    chunk.par_iter().map(|(number, row)| subjects[*number].forming.state(*row)).collect::<Vec<_>>()
                }))
            });
            let values = columns.and_then(|columns| {
                let (inputs, last) = inputs_of_states(&columns);
                let (engine, executable, cancel) = (self.engine, &self.executables[p], self.cancel);
                Ok(engine.evaluate_from(executable, &inputs, &last, None, cancel, &mut stages)?)
            });
            (self.report)(BatchEvent::Stages(stages));
            let took = begun.elapsed().div_f64(chunk.len() as f64);
            match values {
                Ok(values) => {
                    for (state, (number, _)) in chunk.iter().enumerate() {
                        let subject = &mut subjects[*number];
                        lives[subject.live].took += took;
                        push_last_of(&mut subject.outputs, &values, state);
                    }
                }
                Err(error) => {
                    for (number, _) in chunk {
                        ended[subjects[*number].live] = Some(match &error {
                            ExecuteError::Device(fault) => ExecuteError::Device(fault.clone()),
                            ExecuteError::Cancelled => ExecuteError::Cancelled,
                            _ => ExecuteError::Panicked,
                        });
                    }
                }
            }
        }
        for live in &mut lives {
            live.computed.push(vec![Computed::default(); live.run.axes.len()]);
        }
        for Subjected { live, axis, outputs, .. } in subjects {
            let live = &mut lives[live];
            let from = live.needed[p][axis];
            if let Some(mine) = live.computed.last_mut() {
                mine[axis] = Computed::alone(from, outputs);
            }
        }
        let mut left = Vec::with_capacity(lives.len());
        for (live, error) in lives.into_iter().zip(ended) {
            match error {
                None => left.push(live),
                Some(error) => live.fail(error, self.report),
            }
        }
        left
    }
}
