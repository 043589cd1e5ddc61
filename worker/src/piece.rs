//! The inputs of one piece of a stage on the axes that it is computed on: whole series, or states of a forming bar.

use std::borrow::Cow;
use std::sync::Arc;

use trawl_kernels::cuda::{BarsSource, SourceSymbol};
use trawl_kernels::{Engine, SymbolInput, Values};
use trawl_market::{TimeMicros, Timeframe};
use trawl_plan::frame::{BarSize, Frame};
use trawl_plan::{Input, Program};

use crate::axis::{Axis, Higher};
use crate::stage_run::{Computed, StageRun, Trim};

/// The input series of a piece, and the rows wanted of it.
pub(crate) struct PieceInputs<'r> {
    /// The axes that it is computed on.
    axes: Vec<usize>,
    /// Per axis: the first needed row; `trims` are the rows passed to the kernels.
    needed: Vec<usize>,
    trims: Vec<Trim>,
    /// Per axis: number of rows of its frame.
    rows: Vec<usize>,
    /// Columns of bars that are kept on a device are whole; all others have the rows that are passed to the kernels.
    columns: Vec<Vec<Cow<'r, [f64]>>>,
    symbols: Vec<SourceSymbol<'r>>,
    /// Key of the bars on a device, if they may be cached.
    bars: Option<Arc<str>>,
    /// Per axis: index of the first wanted row within the passed rows.
    pub from: Vec<usize>,
}

/// Under what the bars of a frame are kept on a device, by what they depend on besides and the time until which there are any.
pub(crate) fn kept_under(bars: &str, frame: &Frame, horizon: TimeMicros) -> Arc<str> {
    match frame.bars {
        BarSize::Base => format!("{bars} {frame:?}").into(),
        // The last one is incomplete, and as of an earlier bar there are fewer of them.
        BarSize::Higher { .. } => format!("{bars} {frame:?} {horizon}").into(),
    }
}

impl<'a> StageRun<'a> {
    /// The inputs of piece `p` on the axes `wanted`; of one of which no row is needed, none is wanted of the engine.
    pub fn inputs_of<'r>(
        &'r self,
        p: usize,
        wanted: Vec<usize>,
        needed: &[usize],
        computed: &[Vec<Computed>],
    ) -> PieceInputs<'r> {
        let (frame, executable) = (self.frame(&self.stage.pieces[p]), &self.executables[p]);
        let needed: Vec<usize> =
            needed.iter().zip(self.axes).map(|(needed, axis)| *needed.min(&axis.rows(&frame.bars))).collect();
        let trims: Vec<Trim> = wanted.iter().map(|&a| self.shortened(p, &self.axes[a], needed[a])).collect();
        let bars = self.source_of(frame, &trims);
        let is_whole = bars.is_some() && frame.bars == BarSize::Base;
        // Of many symbols as many bars are wanted.
        let (mut wanted_from, mut begins) = (usize::MAX, Vec::new());
        let columns = |(&a, &trim): (&usize, &Trim)| {
            let from = needed[a] - trim.given;
            if from != wanted_from {
                (wanted_from, begins) = (from, executable.input_begins(from));
            }
            let inputs = executable.inputs.iter().zip(&begins);
            let input = |(input, &begin): (&Input, &usize)| {
                if let (true, Input::Column(name)) = (is_whole, input) {
                    return Cow::Borrowed(self.whole_column(&self.axes[a], name));
                }
                let begin = trim.there.max(trim.given + begin);
                trim.masked(self.input(frame, a, input, (trim.given, begin), computed))
            };
            inputs.map(input).collect()
        };
        PieceInputs {
            columns: wanted.iter().zip(&trims).map(columns).collect(),
            rows: wanted.iter().map(|&a| self.axes[a].rows(&frame.bars)).collect(),
            from: wanted.iter().zip(&trims).map(|(&a, trim)| needed[a] - trim.given).collect(),
            symbols: wanted.iter().map(|&a| self.source_symbol(a)).collect(),
            bars,
            needed: wanted.iter().map(|&a| needed[a]).collect(),
            trims,
            axes: wanted,
        }
    }

    /// As [`Self::trim`]; on the CPU without what comes before all that is read of a whole history. Long histories of unequal length
    /// then end side by side, and series are not made for bars that nobody reads.
    /// Where `forgetting` was shown, means begin after the bars that were not read.
    pub fn shortened(&self, p: usize, axis: &Axis<'_>, from: usize) -> Trim {
        match self.engine {
            Engine::Cpu if self.plan.history.is_none() => {
                let first = self.executables[p].shortened_begin(from);
                let forgotten = self.forgetting.filter(|_| first < axis.bars.unread);
                let first = forgotten.map_or(first, |forgetting| forgetting.begin(axis.bars.unread, axis.visible));
                Trim { given: first, there: first }
            }
            _ => self.trim(p, axis, from),
        }
    }

    /// The key of bars on a device; `None` if rows of a limited history are left out, since those rows change from bar
    /// to bar.
    fn source_of(&self, frame: &Frame, trims: &[Trim]) -> Option<Arc<str>> {
        let source = self.source.as_ref().filter(|_| trims.iter().all(|trim| trim.there == 0))?;
        Some(kept_under(source.bars, frame, source.horizon))
    }

    /// What an axis's bars are kept under on a device.
    fn source_symbol(&self, a: usize) -> SourceSymbol<'_> {
        let bars = self.axes[a].bars;
        let events = self.source.as_ref().and_then(|source| source.events.get(a));
        let version = events.map_or(0, |events| *events as u64);
        SourceSymbol { name: &bars.symbol, version, unread: bars.unread }
    }
}

impl Trim {
    /// A series from the first row that is given on, with NA for rows that a limited history does not contain.
    fn masked<'a>(&self, series: Cow<'a, [f64]>) -> Cow<'a, [f64]> {
        let missing = (self.there - self.given).min(series.len());
        if missing == 0 {
            return series;
        }
        let mut masked = vec![f64::NAN; series.len()];
        masked[missing..].copy_from_slice(&series[missing..]);
        Cow::Owned(masked)
    }
}

impl PieceInputs<'_> {
    /// The symbols in the form that an engine takes.
    pub fn symbols(&self) -> Vec<SymbolInput<'_>> {
        self.columns
            .iter()
            .zip(self.trims.iter().zip(&self.rows))
            .map(|(columns, (trim, rows))| SymbolInput {
                columns: columns.iter().map(|column| &**column).collect(),
                visible: rows - trim.given,
            })
            .collect()
    }

    /// The axes, in the order of the symbols.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// The source under which the bars may be cached on a device. The symbols distinguish segments.
    pub fn source(&self) -> Option<BarsSource<'_>> {
        Some(BarsSource { bars: Arc::clone(self.bars.as_ref()?), group: 0, symbols: &self.symbols })
    }

    /// Whether the host lacks bars of its symbols.
    pub fn is_unread(&self) -> bool {
        self.bars.is_some()
            && self.symbols().iter().zip(&self.symbols).any(|(input, symbol)| input.is_unread(symbol.unread))
    }

    /// Stores the values, one [`Computed`] per axis.
    pub fn keep(&self, values: Values, mine: &mut [Computed]) {
        let values = Arc::new(values);
        for (place, (&a, &from)) in self.axes.iter().zip(&self.needed).enumerate() {
            mine[a] = Computed::new(from, &values, place);
        }
    }
}

/// A piece on the forming bars of one axis: per base bar the complete bars before it and the partial bar so far.
pub(crate) struct Forming<'r> {
    run: &'r StageRun<'r>,
    program: &'r Program,
    axis: &'r Axis<'r>,
    higher: &'r Higher,
    /// From the first row that is given.
    complete: Vec<Cow<'r, [f64]>>,
    trim: Trim,
}

impl<'r> Forming<'r> {
    /// The states from base bar `from` on; `None` if the axis has no such bars.
    pub fn new(run: &'r StageRun<'r>, p: usize, a: usize, timeframe: Timeframe, from: usize) -> Option<Self> {
        let (piece, axis) = (&run.stage.pieces[p], &run.axes[a]);
        let frame = run.frame(piece);
        let whole = Frame { subject: frame.subject.clone(), bars: BarSize::Higher { timeframe, forming: false } };
        let higher = axis.higher.get(&timeframe)?;
        // A forming frame contains only columns, which change with each state, and what its period decides.
        let trim = run.trim(p, axis, from);
        let complete = |input: &Input| trim.masked(run.input(&whole, a, input, (trim.given, trim.there), &[]));
        let complete = piece.program.inputs.iter().map(complete).collect();
        Some(Self { run, program: &piece.program, axis, higher, complete, trim })
    }

    /// The columns of the state at a base bar.
    pub fn state(&self, row: usize) -> Vec<Vec<f64>> {
        let (program, bars) = (self.program, &self.higher.bars);
        let forming = bars.forming(row);
        let count = forming.as_ref().map_or(bars.completed(row).unwrap_or(0), |(at, _)| at + 1).max(self.trim.given);
        let column = |(input, complete): (&Input, &Cow<'_, [f64]>)| {
            let mut column = complete[..count - self.trim.given].to_vec();
            if let (Some((_, members)), Input::Column(name), Some(last)) = (&forming, input, column.last_mut()) {
                let base = &self.axis.bars.columns[self.run.column_at(name)];
                let values: Vec<f64> = members.iter().map(|&i| base[i]).collect();
                *last = trawl_market::aggregate(name, &values, 0..values.len());
            }
            column
        };
        let mut state: Vec<Vec<f64>> = program.inputs.iter().zip(&self.complete).map(column).collect();
        // A program without inputs still needs its rows.
        if program.inputs.is_empty() {
            state.push(vec![0.0; count - self.trim.given]);
        }
        state
    }
}

/// States in the form that an engine takes, with only the last bar wanted.
pub(crate) fn inputs_of_states(states: &[Vec<Vec<f64>>]) -> (Vec<SymbolInput<'_>>, Vec<usize>) {
    let inputs: Vec<SymbolInput<'_>> = states
        .iter()
        .map(|columns| SymbolInput {
            columns: columns.iter().map(Vec::as_slice).collect(),
            visible: columns.first().map_or(0, Vec::len),
        })
        .collect();
    let last = inputs.iter().map(|input| input.visible.saturating_sub(1)).collect();
    (inputs, last)
}

/// Adds the last bar's value of each state to its output's series.
pub(crate) fn push_last(outputs: &mut [Vec<f64>], values: &Values) {
    for state in 0..values.symbols() {
        push_last_of(outputs, values, state);
    }
}

/// Adds the last bar's value of one of several states.
pub(crate) fn push_last_of(outputs: &mut [Vec<f64>], values: &Values, state: usize) {
    for (output, series) in outputs.iter_mut().enumerate() {
        series.push(values.series(state, output).last().copied().unwrap_or(f64::NAN));
    }
}
