//! Evaluation resumed from states of earlier bars, with the same bits as an evaluation of the whole history.

use crate::cpu::{Course, Cut, LANES, Lanes, Real, Source, Workspace};
use crate::{Cancel, Cancelled, Executable, Precision, SymbolInput};

/// The state of a program's steps for one symbol. Valid for one program, precision, [`Executable::carried_layout`] and
/// [`crate::NUMERICS_ID`]; independent of tile, lane and instruction set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// First bar whose outputs can be computed. Earlier bars may still be read, and must not have changed.
    pub bars: usize,
    /// The states of all tasks, concatenated. Numbers are IEEE 754 bits of `f64`, which represents both precisions
    /// exactly.
    pub words: Vec<u64>,
}

/// One symbol and its evaluation request.
#[derive(Debug, Clone)]
pub struct Resuming<'a> {
    /// Its bars from the first one on. Bars before [`Executable::resumed_begins`] of the state's bar are not read.
    pub input: SymbolInput<'a>,
    /// First bar whose outputs are wanted.
    pub from: usize,
    /// State to resume from. Evaluation starts at the first bar when it is `None`, of a later bar than wanted, or of
    /// the wrong size.
    pub state: Option<&'a State>,
    /// Bar at which to save a state; at most `visible`.
    pub save: Option<usize>,
}

/// The result of one symbol.
#[derive(Debug, Clone, Default)]
pub struct Resumed {
    /// `[output][bar - from]`
    pub series: Vec<Vec<f64>>,
    /// The state saved at [`Resuming::save`].
    pub state: Option<State>,
    /// Whether evaluation resumed from the given state.
    pub resumed: bool,
}

impl Executable {
    /// Evaluates the program's outputs on the bars `from..visible` of each symbol, in the order of `symbols`, on the
    /// calling thread, resuming from the given states, which must come from runs of the same precision.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn evaluate_resuming(&self, symbols: &[Resuming<'_>], cancel: &dyn Cancel) -> Result<Vec<Resumed>, Cancelled> {
        match self.precision() {
            Precision::F64 => self.resume::<f64>(symbols, cancel),
            Precision::F32 => self.resume::<f32>(symbols, cancel),
        }
    }

    fn resume<T: Real>(&self, symbols: &[Resuming<'_>], cancel: &dyn Cancel) -> Result<Vec<Resumed>, Cancelled> {
        let words = self.words::<T>();
        let mut workspace = Workspace::<T>::new(self.schedule());
        let mut results: Vec<Resumed> = symbols
            .iter()
            .map(|symbol| Resumed {
                series: vec![Vec::new(); self.outputs.len()],
                resumed: fitting(symbol, words.iter().sum()).is_some(),
                ..Resumed::default()
            })
            .collect();
        // Group resumed symbols together, so that symbols that start at the first bar do not delay them.
        let mut order: Vec<usize> = (0..symbols.len()).collect();
        order.sort_by_key(|&i| (results[i].resumed, symbols[i].input.visible));
        for part in order.chunk_by(|&a, &b| results[a].resumed == results[b].resumed).collect::<Vec<_>>() {
            for chunk in part.chunks(LANES) {
                run_chunk(symbols, chunk, words, self.inputs.len(), &mut workspace, cancel, &mut results)?;
            }
        }
        Ok(results)
    }
}

/// The state to resume a symbol from, if it is usable.
fn fitting<'a>(symbol: &Resuming<'a>, words: usize) -> Option<&'a State> {
    let most = symbol.from.min(symbol.save.unwrap_or(usize::MAX)).min(symbol.input.visible);
    symbol.state.filter(|state| state.words.len() == words && state.bars <= most)
}

fn run_chunk<T: Real>(
    symbols: &[Resuming<'_>],
    chunk: &[usize],
    words: &[usize],
    inputs: usize,
    workspace: &mut Workspace<'_, T>,
    cancel: &dyn Cancel,
    results: &mut [Resumed],
) -> Result<(), Cancelled> {
    let schedule = workspace.schedule;
    let mut begins = vec![usize::MAX; words.len()];
    let mut bases = vec![usize::MAX; inputs];
    let mut cuts: Vec<Vec<Cut>> = Vec::new();
    cuts.resize_with(words.len(), Vec::new);
    for (lane, symbol) in chunk.iter().map(|&i| &symbols[i]).enumerate() {
        let state = fitting(symbol, words.iter().sum());
        let first = state.map_or(symbol.from.min(symbol.input.visible), |state| state.bars);
        let backs = if state.is_some() { &schedule.resumed } else { &schedule.restarted };
        let from = backs.starts(first);
        begins.iter_mut().zip(&from.tasks).for_each(|(begin, start)| *begin = (*begin).min(*start));
        bases.iter_mut().zip(&from.inputs).for_each(|(base, start)| *base = (*base).min(*start));
        let mut rest = state.map_or(&[][..], |state| state.words.as_slice());
        let save = symbol.save.map(|save| schedule.resumed.tasks(save.min(symbol.input.visible)));
        for (task, (cuts, count)) in cuts.iter_mut().zip(words).enumerate().filter(|(_, (_, count))| **count > 0) {
            if let Some((mine, others)) = state.and_then(|_| rest.split_at_checked(*count)) {
                rest = others;
                cuts.push(Cut { bar: from.tasks[task], lane, words: Some(mine.to_vec()) });
            }
            if let Some(save) = &save {
                cuts.push(Cut { bar: save[task], lane, words: None });
            }
        }
    }
    // At the same bar, load before saving.
    cuts.iter_mut().for_each(|cuts| cuts.sort_by_key(|cut| (cut.bar, cut.words.is_none())));
    let members: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i].input).collect();
    let lanes = Lanes::of(&members, bases);
    let source = Source::Lanes(&lanes);
    let wanted_from = chunk.iter().map(|&i| symbols[i].from).min().unwrap_or(0);
    let course = Course { wanted_from, read: begins.clone(), begins, cuts };
    let saved = workspace.run_course(source, course, cancel, |w, strip| {
        for (&i, (lane, visible)) in chunk.iter().zip(lanes.visible.iter().enumerate()) {
            for row in strip.start.max(symbols[i].from)..strip.end.min(*visible) {
                for (output, series) in results[i].series.iter_mut().enumerate() {
                    series.push(w.value(source, output, lane, row));
                }
            }
        }
    })?;
    for (lane, &i) in chunk.iter().enumerate() {
        results[i].state = symbols[i].save.map(|save| State {
            bars: save.min(symbols[i].input.visible),
            words: saved.iter().flat_map(|task| of_lane(task, lane)).copied().collect(),
        });
    }
    Ok(())
}

fn of_lane(saved: &[(usize, Vec<u64>)], lane: usize) -> &[u64] {
    saved.iter().find(|(l, _)| *l == lane).map_or(&[], |(_, words)| words)
}
