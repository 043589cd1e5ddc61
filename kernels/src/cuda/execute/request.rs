//! One request to the executor: parts, cut into groups of symbols, and their results so far.
//!
//! A group contains symbols of one part only, ordered by length: the layout of a part and the cache keys of its bars do
//! not depend on which other parts share its request.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trawl_plan::{Input, Program};
use twox_hash::XxHash3_128;

use crate::cuda::codegen::number::{number_bytes, rounded, row_bytes};
use crate::cuda::device::arguments::GROUP_LANES;
use crate::cuda::device::{Fault, Urgency};
use crate::cuda::execute::batch::{Batched, Task};
use crate::cuda::execute::column_cache::ColumnKey;
use crate::cuda::execute::programs::Ready;
use crate::cuda::execute::sequence::{Sequence, Series};
use crate::stages::Stages;
use crate::{Precision, SymbolInput};

/// The source of bars, under which they can be cached on the device.
#[derive(Debug, Clone)]
pub struct BarsSource<'a> {
    /// Dataset, snapshot, adjustment, frame, as-of: whatever the bars depend on besides the symbols.
    pub bars: Arc<str>,
    /// Distinguishes sets of symbols under the same `bars`.
    pub group: u32,
    /// Names of the symbols, in the order of the part.
    pub symbols: &'a [&'a str],
}

/// Symbols of a request whose values are reported together: those of one segment.
#[derive(Debug, Clone)]
pub struct RequestPart<'a> {
    /// Their bars.
    pub symbols: Vec<SymbolInput<'a>>,
    /// The first wanted bar of each symbol.
    pub from: Vec<usize>,
    /// Bars of a known source are cached on the device.
    pub source: Option<BarsSource<'a>>,
}

/// A report of a running request.
#[derive(Debug)]
pub enum RequestEvent<'a> {
    /// Stages of one batch, over all its parts.
    Stages(&'a Stages),
    /// A part has ended; reported once per part.
    Part {
        /// Its index in the request.
        part: usize,
        /// `[symbol][output][bar - from]`.
        values: Result<Vec<Vec<Vec<f64>>>, Fault>,
        /// Its share, by bars, of the time of the batches that it was in.
        took: Duration,
    },
}

/// Symbols that one warp computes together.
#[derive(Debug)]
pub(super) struct Group {
    part: usize,
    /// Their indices in the part, the shortest history first.
    members: Vec<usize>,
    /// Number of bars of the longest history.
    rows: usize,
    /// Cache keys, one per column of the program; `None` if the bars have no known source.
    pub keys: Vec<Option<ColumnKey>>,
}

/// The results of a part so far.
#[derive(Debug, Default)]
struct State {
    values: Vec<Vec<Vec<f64>>>,
    /// Number of groups that are not done.
    left: usize,
    begun: bool,
    ended: bool,
    took: Duration,
}

/// A request in progress.
pub(super) struct Request<'a> {
    program: &'a Program,
    parts: &'a [RequestPart<'a>],
    pub ready: &'a Arc<Ready>,
    pub task: Task<'a>,
    pub groups: Vec<Group>,
    states: Vec<State>,
    next_batch: u32,
    /// End of the previous batch, so that overlapping time is not counted twice.
    before: Option<Instant>,
}

impl<'a> Request<'a> {
    pub fn new(program: &'a Program, parts: &'a [RequestPart<'a>], ready: &'a Arc<Ready>, task: Task<'a>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut states = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            let mut order: Vec<usize> = (0..part.symbols.len()).filter(|i| part.symbols[*i].visible > 0).collect();
            order.sort_by_key(|i| part.symbols[*i].visible);
            states.push(State { left: order.len().div_ceil(GROUP_LANES), ..State::default() });
            groups.extend(order.chunks(GROUP_LANES).map(|members| Group {
                part: number,
                members: members.to_vec(),
                rows: members.last().map_or(0, |i| part.symbols[*i].visible),
                keys: if task.resident.is_some() {
                    keys_of(program, ready.sequence.precision, part, members)
                } else {
                    Vec::new()
                },
            }));
        }
        Self { program, parts, ready, task, groups, states, next_batch: 0, before: None }
    }

    /// Reports parts without bars, which need no computation.
    pub fn report_empty(&mut self, report: &mut dyn FnMut(RequestEvent<'_>)) {
        for part in 0..self.parts.len() {
            if self.states[part].left == 0 {
                self.begin(part);
                self.end(part, report);
            }
        }
    }

    /// Peak bytes of device memory for the series of some groups.
    pub fn bytes_of(&self, groups: &Range<usize>) -> u64 {
        let rows: u64 = self.groups[groups.clone()].iter().map(|group| group.rows as u64).sum();
        let series = self.ready.uses.series_at_once(self.task.wanted) as u64;
        rows * series * row_bytes(self.ready.sequence.precision) as u64
    }

    /// How soon it is wanted: requests of at most so many bytes of series are small.
    pub fn urgency(&self, interactive_bytes_max: u64) -> Urgency {
        let bytes = self.bytes_of(&(0..self.groups.len()));
        if bytes <= interactive_bytes_max { Urgency::Interactive } else { Urgency::Batch }
    }

    /// Bytes of a group's columns that have to be copied to the device.
    pub fn bytes_in(&self, group: usize) -> u64 {
        let group = &self.groups[group];
        let there = |column: &usize| {
            let key = group.keys.get(*column).and_then(Option::as_ref);
            self.task.resident.zip(key).is_some_and(|(kept, key)| kept.has(key))
        };
        let columns = self.ready.uses.columns.iter().filter(|column| !there(column)).count();
        (columns * group.rows * row_bytes(self.ready.sequence.precision)) as u64
    }

    /// Prepares a batch of these groups: its number, and the groups whose part has not failed meanwhile.
    pub fn batch(&mut self, groups: Range<usize>) -> (u32, Vec<Batched<'a>>) {
        let mut batched = Vec::with_capacity(groups.len());
        for number in groups {
            let (part, group) = (self.groups[number].part, &self.groups[number]);
            if self.states[part].ended {
                continue;
            }
            batched.push(Batched {
                group: number,
                part,
                symbols: group.members.iter().map(|i| self.parts[part].symbols[*i].clone()).collect(),
                members: group.members.clone(),
                keys: group.keys.clone(),
            });
            self.begin(part);
        }
        self.next_batch += 1;
        (self.next_batch - 1, batched)
    }

    /// Allocates a part's values; outputs that are columns or constants are filled in.
    fn begin(&mut self, part: usize) {
        let state = &mut self.states[part];
        if !std::mem::replace(&mut state.begun, true) && self.task.fetch {
            state.values = of_host(self.program, &self.parts[part], &self.ready.sequence, &(0..0));
        }
    }

    /// Stores one value of a symbol of a part.
    pub fn keep(&mut self, (part, symbol): (usize, usize), output: usize, bar: usize, value: f64) {
        let state = &mut self.states[part];
        if state.ended {
            return;
        }
        if let Some(at) = bar.checked_sub(self.parts[part].from[symbol]) {
            state.values[symbol][output][at] = value;
        }
    }

    /// Records that a batch of these groups ran from `began` to `ended`; reports the parts that it completes.
    pub fn done(
        &mut self,
        groups: &[usize],
        (began, ended): (Instant, Instant),
        report: &mut dyn FnMut(RequestEvent<'_>),
    ) {
        let began = self.before.map_or(began, |before| before.max(began));
        self.before = Some(self.before.map_or(ended, |before| before.max(ended)));
        let took = ended.saturating_duration_since(began);
        let rows: usize = groups.iter().map(|group| self.groups[*group].rows).sum();
        for group in groups {
            let (part, mine) = (self.groups[*group].part, self.groups[*group].rows);
            let state = &mut self.states[part];
            state.took += took.mul_f64(mine as f64 / rows.max(1) as f64);
            state.left = state.left.saturating_sub(1);
            if state.left == 0 {
                self.end(part, report);
            }
        }
    }

    fn end(&mut self, part: usize, report: &mut dyn FnMut(RequestEvent<'_>)) {
        let state = &mut self.states[part];
        if !std::mem::replace(&mut state.ended, true) {
            report(RequestEvent::Part { part, values: Ok(std::mem::take(&mut state.values)), took: state.took });
        }
    }

    /// Fails the parts of these groups.
    pub fn fail(&mut self, groups: Range<usize>, fault: &Fault, report: &mut dyn FnMut(RequestEvent<'_>)) {
        for group in groups {
            let part = self.groups[group].part;
            let state = &mut self.states[part];
            if !std::mem::replace(&mut state.ended, true) {
                state.values = Vec::new();
                report(RequestEvent::Part { part, values: Err(fault.clone()), took: state.took });
            }
        }
    }
}

/// Allocates all values, `[symbol][output][bar - from]`; outputs that are columns or constants are filled in, rounded to
/// the precision. Outputs of `left_out` that kernels make are empty.
pub(super) fn of_host(
    program: &Program,
    part: &RequestPart<'_>,
    sequence: &Sequence,
    left_out: &Range<usize>,
) -> Vec<Vec<Vec<f64>>> {
    let (outputs, precision) = (&sequence.outputs, sequence.precision);
    let of_symbol = |(symbol, from): (&SymbolInput<'_>, &usize)| {
        let bars = symbol.visible.saturating_sub(*from);
        let series = |(number, output): (usize, &Series)| match *output {
            Series::Column(column) => {
                let wanted = symbol.columns.get(column).and_then(|c| c.get(*from..symbol.visible)).unwrap_or_default();
                wanted.iter().map(|x| if x.is_nan() { f64::NAN } else { rounded(precision, *x) }).collect()
            }
            Series::Constant(value) => vec![rounded(precision, value); bars],
            Series::Made { .. } if left_out.contains(&number) => Vec::new(),
            Series::Made { .. } => vec![f64::NAN; bars],
        };
        debug_assert_eq!(outputs.len(), program.outputs.len(), "an output is reported once");
        outputs.iter().enumerate().map(series).collect()
    };
    part.symbols.iter().zip(&part.from).map(of_symbol).collect()
}

/// Cache keys of a group's columns, from the symbols and lengths of its lanes. Only columns of bars are cached.
pub(super) fn keys_of(
    program: &Program,
    precision: Precision,
    part: &RequestPart<'_>,
    members: &[usize],
) -> Vec<Option<ColumnKey>> {
    let Some(source) = part.source.as_ref().filter(|source| source.symbols.len() == part.symbols.len()) else {
        return Vec::new();
    };
    keys_by(program, precision, source, members.iter().map(|i| (part.symbols[*i].visible as u64, source.symbols[*i])))
}

/// Cache keys of a group's columns, from a number and a name per lane.
pub(super) fn keys_by<'a>(
    program: &Program,
    precision: Precision,
    source: &BarsSource<'_>,
    lanes: impl Iterator<Item = (u64, &'a str)>,
) -> Vec<Option<ColumnKey>> {
    let lane = |(number, name): (u64, &'a str)| number.to_ne_bytes().into_iter().chain(name.bytes()).chain([0]);
    let lanes: Vec<u8> = lanes.flat_map(lane).collect();
    let shape = XxHash3_128::oneshot(&lanes);
    let key = |input: &Input| match input {
        Input::Column(name) => Some(ColumnKey {
            shape,
            source: Arc::clone(&source.bars),
            group: source.group,
            column: Arc::from(name.as_str()),
            number_bytes: number_bytes(precision),
        }),
        _ => None,
    };
    program.inputs.iter().map(key).collect()
}
