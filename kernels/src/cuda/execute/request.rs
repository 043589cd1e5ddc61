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
use crate::cuda::device::arguments::{GROUP_LANES, Laid};
use crate::cuda::device::{Fault, Urgency};
use crate::cuda::execute::batch::{Batched, Task};
use crate::cuda::execute::column_cache::ColumnKey;
use crate::cuda::execute::programs::Ready;
use crate::cuda::execute::sequence::{Sequence, Series};
use crate::stages::Stages;
use crate::{Precision, SymbolInput, Values};

/// The source of bars, under which they can be cached on the device.
///
/// Columns of bars may be longer than what is visible: they are cached whole, so that a scan as of an earlier bar finds them.
#[derive(Debug, Clone)]
pub struct BarsSource<'a> {
    /// Dataset, snapshot, way of adjusting, frame: whatever the bars depend on besides the symbols. Not the as-of, except where the bars
    /// themselves differ.
    pub bars: Arc<str>,
    /// Distinguishes sets of symbols under the same `bars`.
    pub group: u32,
    /// In the order of the part.
    pub symbols: &'a [SourceSymbol<'a>],
}

/// A symbol whose bars have a known source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSymbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its bars depend on beside their source, such as how many events adjust them.
    pub version: u64,
    /// How many of its first bars the host does not have: in the columns that it gives their values are arbitrary. Columns may also be
    /// empty. Programs run over these where the device has them whole, and fail with [`Fault::NotHeld`] otherwise.
    pub unread: usize,
}

impl<'a> From<&'a str> for SourceSymbol<'a> {
    /// A symbol whose bars the host has.
    fn from(name: &'a str) -> Self {
        Self { name, version: 0, unread: 0 }
    }
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
        /// From the first wanted bar of each symbol on.
        values: Result<Values, Fault>,
        /// Its share, by bars, of the time of the batches that it was in.
        took: Duration,
    },
}

/// Columns are laid whole where they have at most so many times the bars that any of their symbols sees: a scan as of an early bar would bring
/// years that nobody reads. What is laid is then what is visible, and found by scans as of the same bar.
const WHOLE_TIMES_MAX: usize = 2;

/// Symbols that one warp computes together.
#[derive(Debug)]
pub(super) struct Group {
    part: usize,
    /// Their indices in the part, the shortest history first.
    members: Vec<usize>,
    /// Number of visible bars of the longest history.
    rows: usize,
    /// Number of rows that columns of a known source have.
    laid: usize,
    /// Which bars these are.
    holds: Laid,
    /// Cache keys, one per column of the program; `None` if the bars have no known source.
    pub keys: Vec<Option<ColumnKey>>,
    /// Whether the host lacks bars of its symbols.
    is_unread: bool,
}

/// The results of a part so far.
#[derive(Debug, Default)]
struct State {
    values: Values,
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

impl RequestPart<'_> {
    /// Which bars the columns of a group hold.
    pub(super) fn holds(&self, members: &[usize]) -> Laid {
        let longest = |bars: &dyn Fn(&usize) -> usize| members.iter().map(bars).max().unwrap_or(0);
        let rows = longest(&|i| self.symbols[*i].visible);
        if longest(&|i| self.laid(*i)) <= rows.saturating_mul(WHOLE_TIMES_MAX) { Laid::Whole } else { Laid::Visible }
    }

    /// Number of rows of the columns of a group.
    pub(super) fn rows(&self, members: &[usize], holds: Laid) -> usize {
        let bars = |i: &usize| if holds == Laid::Whole { self.laid(*i) } else { self.symbols[*i].visible };
        members.iter().map(bars).max().unwrap_or(0)
    }

    /// How many bars a symbol's columns have: those that it sees or, of a known source, all.
    fn laid(&self, symbol: usize) -> usize {
        let input = &self.symbols[symbol];
        match &self.source {
            Some(_) => input.laid(),
            None => input.visible,
        }
    }

    /// The symbols that share groups: those with bars, by the number of their bars. It does not depend on how many of them are visible,
    /// so that groups of a known source are the same as of any bar. Groups of which no bar is wanted are left out.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.symbols.len()).filter(|i| self.laid(*i) > 0).collect();
        order.sort_by_key(|i| self.laid(*i));
        let is_wanted = |members: &&[usize]| members.iter().any(|i| self.from[*i] < self.symbols[*i].visible);
        order.chunks(GROUP_LANES).filter(is_wanted).map(<[usize]>::to_vec).collect()
    }

    /// Whether the host lacks any bars of its symbols.
    pub(super) fn is_unread(&self) -> bool {
        self.symbols.iter().enumerate().any(|(i, symbol)| symbol.is_unread(self.unread(i)))
    }

    /// How many of a symbol's first bars the host does not have.
    pub(super) fn unread(&self, symbol: usize) -> usize {
        let known = self.source.as_ref().and_then(|source| source.symbols.get(symbol));
        known.map_or(0, |known| known.unread)
    }
}

impl<'a> Request<'a> {
    pub fn new(program: &'a Program, parts: &'a [RequestPart<'a>], ready: &'a Arc<Ready>, task: Task<'a>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut states = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            let together = part.groups();
            states.push(State { left: together.len(), ..State::default() });
            groups.extend(together.into_iter().map(|members| Group {
                part: number,
                holds: part.holds(&members),
                rows: members.iter().map(|i| part.symbols[*i].visible).max().unwrap_or(0),
                laid: part.rows(&members, part.holds(&members)),
                is_unread: members.iter().any(|i| part.symbols[*i].is_unread(part.unread(*i))),
                keys: if task.resident.is_some() {
                    keys_of(program, ready.sequence.precision, part, &members)
                } else {
                    Vec::new()
                },
                members,
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

    /// Fails parts of which the host lacks bars that are not on the device either.
    pub fn fail_not_held(&mut self, report: &mut dyn FnMut(RequestEvent<'_>)) {
        let lacking: Vec<usize> =
            (0..self.groups.len()).filter(|group| self.lacks_bars(&self.groups[*group])).collect();
        lacking.into_iter().for_each(|group| self.fail(group..group + 1, &Fault::NotHeld, report));
    }

    /// Whether bars that a group needs are neither on the device nor on the host.
    fn lacks_bars(&self, group: &Group) -> bool {
        if !group.is_unread {
            return false;
        }
        let is_bars = |column: usize| matches!(self.program.inputs.get(column), Some(Input::Column(_)));
        let part = &self.parts[group.part];
        // What is passed on as it is comes from the host.
        let is_there = |column: usize, i: usize| {
            let (symbol, from) = (&part.symbols[i], part.from[i]);
            let wanted = symbol.columns.get(column).and_then(|bars| bars.get(from..symbol.visible));
            from >= part.unread(i) && wanted.is_some()
        };
        let is_lacking = |column: usize| !group.members.iter().all(|i| is_there(column, *i));
        let passed_on =
            |output: &Series| matches!(output, Series::Column(column) if is_bars(*column) && is_lacking(*column));
        let uses = &self.ready.uses.columns;
        uses.iter().any(|column| is_bars(*column) && !self.is_held(group, *column))
            || self.ready.sequence.outputs.iter().any(passed_on)
    }

    fn is_held(&self, group: &Group, column: usize) -> bool {
        let key = group.keys.get(column).and_then(Option::as_ref);
        self.task.resident.zip(key).is_some_and(|(kept, key)| kept.has(key))
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
        let columns = self.ready.uses.columns.iter().filter(|column| !self.is_held(group, **column)).count();
        (columns * group.laid * row_bytes(self.ready.sequence.precision)) as u64
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
                holds: group.holds,
                is_unread: group.is_unread,
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
            state.values.put(symbol, output, at, value);
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
                state.values = Values::default();
                report(RequestEvent::Part { part, values: Err(fault.clone()), took: state.took });
            }
        }
    }
}

/// Allocates all values, from the first wanted bar of each symbol on; outputs that are columns or constants are filled in, rounded to
/// the precision. Outputs of `left_out` that kernels make are left out.
pub(super) fn of_host(
    program: &Program,
    part: &RequestPart<'_>,
    sequence: &Sequence,
    left_out: &Range<usize>,
) -> Values {
    let (outputs, precision) = (&sequence.outputs, sequence.precision);
    debug_assert_eq!(outputs.len(), program.outputs.len(), "an output is reported once");
    let is_left_out = |output: usize| left_out.contains(&output) && matches!(outputs[output], Series::Made { .. });
    let bars = part.symbols.iter().zip(&part.from).map(|(symbol, from)| symbol.visible.saturating_sub(*from));
    let mut values = Values::new(outputs.len(), is_left_out, bars);
    for (output, series) in outputs.iter().enumerate() {
        match *series {
            Series::Column(column) => {
                for (i, (symbol, from)) in part.symbols.iter().zip(&part.from).enumerate() {
                    let wanted = symbol.columns.get(column).and_then(|c| c.get(*from..symbol.visible));
                    let to = values.series_mut(i, output).iter_mut().zip(wanted.unwrap_or_default());
                    to.for_each(|(to, x)| *to = if x.is_nan() { f64::NAN } else { rounded(precision, *x) });
                }
            }
            Series::Constant(value) => {
                let value = rounded(precision, value);
                (0..part.symbols.len()).for_each(|i| values.series_mut(i, output).fill(value));
            }
            Series::Made { .. } => {}
        }
    }
    values
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
    let holds = part.holds(members);
    let bars = |i: &usize| part.rows(std::slice::from_ref(i), holds) as u64;
    keys_by(program, precision, source, members.iter().map(|i| (bars(i), source.symbols[*i])))
}

/// Cache keys of a group's columns, from a number and a symbol per lane.
pub(super) fn keys_by<'a>(
    program: &Program,
    precision: Precision,
    source: &BarsSource<'_>,
    lanes: impl Iterator<Item = (u64, SourceSymbol<'a>)>,
) -> Vec<Option<ColumnKey>> {
    let lane = |(number, symbol): (u64, SourceSymbol<'a>)| {
        let numbers = number.to_ne_bytes().into_iter().chain(symbol.version.to_ne_bytes());
        numbers.chain(symbol.name.bytes()).chain([0])
    };
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
