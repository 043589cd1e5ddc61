//! The steps of a scan in order, and the data passed between them.
//!
//! A plan with cross-sections is run in passes over all segments. From the last stage back, each pass collects the
//! times at which symbols read cross-sections, unless those follow from plan and manifest; then, from the first stage on, their values at those times, one chunk of
//! times per pass; the last pass returns the rows of the answer. Pure but for the labels of the snapshot's symbol
//! table: both modes drive it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rayon::prelude::*;
use trawl_market::{SymbolTable, TimeMicros};
use trawl_wire::{CrossTable, CrossTimes, CrossValues, ErrorKind, SegmentOutput, SegmentResultV2, StepInputV1};
use trawl_worker::{ManifestTimes, ScanStep, StepKind};

use crate::cross::reduce_groups;
use crate::merge::FailedSegment;
use crate::prepare::PreparedScan;

/// Maximum bytes of values gathered in one pass; longer lists of times are split into chunks.
pub const GATHER_BYTES_MAX: u64 = 256 << 20;
/// Maximum bytes of all cross-sections of a scan; larger ones are rejected.
pub const TABLES_BYTES_MAX: u64 = 1 << 30;
const VALUE_BYTES: u64 = 8;

/// Why a scan with cross-sections cannot continue.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PassError {
    /// Too many symbols at too many times.
    #[error(
        "the cross-sections of this scan take {needed} bytes ({times} times), at most {TABLES_BYTES_MAX} are kept; \
         use shorter windows over them"
    )]
    TooLarge {
        /// Bytes of one value for each symbol and time.
        needed: u64,
        /// Number of times, over all cross-sections.
        times: usize,
    },
    /// A segment failed for a reason that may not recur: a cross-section without it would change the answer.
    #[error(
        "segment {segment} failed before the cross-sections were made: {message}; --allow-partial makes them without it"
    )]
    Incomplete {
        /// Group id.
        segment: u32,
        /// The kind of its failure.
        kind: ErrorKind,
        /// Its failure as text.
        message: String,
    },
    /// The snapshot's symbol table cannot be read.
    #[error("{0}")]
    Labels(String),
}

/// One cross-section so far.
#[derive(Debug, Clone)]
struct Table {
    times: Vec<TimeMicros>,
    values: TableValues,
}

/// The values of a cross-section: one for each time.
#[derive(Debug, Clone)]
enum TableValues {
    /// Of each of the snapshot's symbols, by its place.
    OfSymbols(Vec<Vec<f64>>),
    /// Of each label, or of an empty text.
    OfLabels(BTreeMap<String, Vec<f64>>),
}

/// Times whose values are reduced side by side before they are kept.
const TIMES_AT_ONCE: usize = 64;

/// Values that are computed rather for nobody than to learn from all bars that nobody reads them: 1 MiB of them. A pass is a request, a
/// stream and several messages for each shard, and reads the times of all bars.
const VALUES_FOR_NOBODY_MAX: usize = 1 << 17;
/// Of so many values, one may be for nobody in any case.
const FOR_NOBODY_ONE_IN: usize = 8;

/// Whether values at so many times that may be read by nobody cost less than a pass over all bars. `known`: all times of a step.
fn worth_it(uncertain: usize, known: usize, symbols: usize) -> bool {
    uncertain.saturating_mul(symbols) <= VALUES_FOR_NOBODY_MAX || uncertain.saturating_mul(FOR_NOBODY_ONE_IN) <= known
}

/// The passes of one scan.
#[derive(Debug, Clone)]
pub struct Passes {
    prepared: PreparedScan,
    labels: Arc<SymbolTable>,
    steps: VecDeque<ScanStep>,
    /// Times at which each cross-section is read.
    times: BTreeMap<u16, BTreeSet<TimeMicros>>,
    /// Chunks of the current stage still to be gathered.
    chunks: VecDeque<Vec<CrossTimes>>,
    tables: BTreeMap<u16, Table>,
}

impl Passes {
    /// The state before the first pass.
    ///
    /// # Errors
    /// [`PassError::Labels`].
    pub fn new(prepared: &PreparedScan) -> Result<Self, PassError> {
        let labels = prepared.dataset.labels().map_err(|e| PassError::Labels(e.to_string()))?;
        let last = prepared.plan.stages().len() - 1;
        let times = (1..=last).rev().map(|stage| ScanStep { stage, kind: StepKind::Times });
        let values = (0..=last).map(|stage| ScanStep { stage, kind: StepKind::Values });
        Ok(Self {
            prepared: prepared.clone(),
            labels,
            steps: times.chain(values).collect(),
            times: BTreeMap::new(),
            chunks: VecDeque::new(),
            tables: BTreeMap::new(),
        })
    }

    /// Leaves out the steps that only collect times, as far as plan and manifest say which; returns how many. Reads the dataset's times,
    /// and no bars. The others keep their numbers, under which the results of recorded scans are stored.
    ///
    /// Where symbols lack bars, times may be among them that nobody reads. They change no value; but results with them are not those that
    /// another release has for a step of a recorded scan, which is why such a scan (`recorded`) does without. Nor are there more of them than
    /// what a pass over all bars would cost.
    ///
    /// # Errors
    /// [`PassError::TooLarge`].
    pub fn leave_out_times(&mut self, recorded: bool) -> Result<u32, PassError> {
        if self.step().kind == StepKind::Values {
            return Ok(0);
        }
        // Whatever cannot be read here is reported by those that need it.
        let Ok(all) = self.prepared.dataset.times() else { return Ok(0) };
        let (all, source) = (all.into(), self.prepared.source());
        let before = self.clone();
        let (mut left_out, mut uncertain) = (0, 0);
        while self.step().kind == StepKind::Times {
            let found = source.times_without_bars(self.step(), &self.input(&[]), &all);
            let Ok(Some(ManifestTimes { times, uncertain: more })) = found else { break };
            let known: usize = times.iter().map(|own| own.times.len()).sum();
            if more > 0 && (recorded || !worth_it(uncertain + more, known, self.prepared.symbol_count())) {
                break;
            }
            uncertain += more;
            self.collect(times);
            match self.end_step() {
                // They may fit without those that nobody reads.
                Err(PassError::TooLarge { .. }) if uncertain > 0 => {
                    *self = before;
                    return Ok(0);
                }
                ended => ended?,
            }
            left_out += 1;
        }
        Ok(left_out)
    }

    fn collect(&mut self, read: Vec<CrossTimes>) {
        read.into_iter().for_each(|CrossTimes { cross, times }| self.times.entry(cross).or_default().extend(times));
    }

    /// Goes on to the next step.
    fn end_step(&mut self) -> Result<(), PassError> {
        let ended = self.steps.pop_front();
        if ended.is_some_and(|ended| ended.kind == StepKind::Times) && self.step().kind == StepKind::Values {
            self.check_size()?;
        }
        if self.step().kind == StepKind::Values && !self.is_last() {
            self.chunks = chunks(&self.wanted(self.step().stage), self.prepared.symbol_count() as u64);
        }
        Ok(())
    }

    /// The current step; the last one returns the answer's rows.
    pub fn step(&self) -> ScanStep {
        *self.steps.front().expect("the last step is never taken away")
    }

    /// Whether the current step is the last one.
    pub fn is_last(&self) -> bool {
        self.steps.len() == 1
    }

    /// Whether there are values of cross-sections for the steps to come.
    pub fn has_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    /// The input of the current step for `segments`: the wanted times, and the values of earlier cross-sections that
    /// their symbols and the references read.
    pub fn input(&self, segments: &[u32]) -> StepInputV1 {
        let (step, wanted) = (self.step(), self.wanted_now());
        if step.kind == StepKind::Times || self.tables.is_empty() {
            return StepInputV1 { wanted, tables: Vec::new() };
        }
        let symbols = &self.prepared.dataset.manifest.symbols;
        let place = |name: &&str| symbols.binary_search_by(|entry| entry.symbol.as_str().cmp(name)).ok();
        // In the order of the symbols, which is that of their names.
        let mut places: BTreeSet<usize> = self.prepared.plan.references().iter().filter_map(place).collect();
        places.extend(segments.iter().flat_map(|segment| self.prepared.places_of(*segment)));
        let cut = |(cross, table): (&u16, &Table)| {
            let mut cut =
                CrossTable { cross: *cross, times: table.times.clone(), keys: Vec::new(), values: Vec::new() };
            let mut keep = |key: &str, values: &[f64]| {
                cut.keys.push(key.to_owned());
                cut.values.extend_from_slice(values);
            };
            match &table.values {
                TableValues::OfLabels(values) => values.iter().for_each(|(key, values)| keep(key, values)),
                TableValues::OfSymbols(values) => {
                    let mine = places.iter().filter_map(|place| Some((symbols.get(*place)?, values.get(*place)?)));
                    mine.for_each(|(entry, values)| keep(&entry.symbol, values));
                }
            }
            cut
        };
        StepInputV1 { wanted, tables: self.tables.iter().map(cut).collect() }
    }

    /// The times that the current step is asked for.
    pub fn wanted_now(&self) -> Vec<CrossTimes> {
        match self.step().kind {
            StepKind::Times => self.wanted(self.step().stage),
            StepKind::Values => self.chunks.front().cloned().unwrap_or_default(),
        }
    }

    fn wanted(&self, stage: usize) -> Vec<CrossTimes> {
        let crosses = self.prepared.plan.stages()[stage].crosses.iter().map(|(cross, _, _)| *cross);
        let times = |cross| CrossTimes {
            cross,
            times: self.times.get(&cross).map_or_else(Vec::new, |t| t.iter().copied().collect()),
        };
        crosses.map(times).collect()
    }

    /// Takes the results of the current step and advances to the next. Must not be called for the last step.
    /// `allow_partial`: failed segments are left out of the populations.
    ///
    /// # Errors
    /// [`PassError`].
    pub fn advance(
        &mut self,
        mut results: Vec<SegmentResultV2>,
        failures: &[FailedSegment],
        allow_partial: bool,
    ) -> Result<(), PassError> {
        // Damaged bars are damaged everywhere: their symbols belong to no population. Any other failure may be
        // temporary, and stops the scan unless partial populations are allowed.
        let beyond = failures.iter().find(|f| f.kind != ErrorKind::Permanent && !allow_partial);
        if let Some(failed) = beyond {
            let FailedSegment { segment, kind, message, .. } = failed.clone();
            return Err(PassError::Incomplete { segment, kind, message });
        }
        results.sort_by_key(|r| r.segment);
        match self.step().kind {
            StepKind::Times => {
                for result in results {
                    if let SegmentOutput::Times(needs) = result.output {
                        self.collect(needs);
                    }
                }
                self.end_step()
            }
            StepKind::Values => {
                self.gather(&results);
                self.chunks.pop_front();
                if self.chunks.is_empty() { self.end_step() } else { Ok(()) }
            }
        }
    }

    /// Bytes of one value for each symbol and time of all cross-sections, and the number of times.
    fn size(&self) -> (u64, usize) {
        let times: usize = self.times.values().map(BTreeSet::len).sum();
        ((times as u64).saturating_mul(self.prepared.symbol_count() as u64).saturating_mul(VALUE_BYTES), times)
    }

    /// Estimate of the memory for cross-sections, in bytes: the tables, and one pass's values as received and as a
    /// panel. 0 while the times are not known yet.
    pub fn bytes_needed(&self) -> u64 {
        if self.step().kind == StepKind::Times {
            return 0;
        }
        let (tables, _) = self.size();
        tables + 3 * tables.min(GATHER_BYTES_MAX)
    }

    fn check_size(&self) -> Result<(), PassError> {
        let (needed, times) = self.size();
        if needed > TABLES_BYTES_MAX {
            return Err(PassError::TooLarge { needed, times });
        }
        Ok(())
    }

    /// Puts one chunk of values into the tables.
    fn gather(&mut self, results: &[SegmentResultV2]) {
        let Some(chunk) = self.chunks.front().cloned() else { return };
        let symbols = self.prepared.symbol_count();
        // A cross-section that is not read has no table: its readers have no bars.
        for CrossTimes { cross, times } in chunk.into_iter().filter(|c| !c.times.is_empty()) {
            // `[time][symbol]`, symbols in the order of the manifest.
            let mut panel = vec![f64::NAN; times.len() * symbols];
            for result in results {
                let SegmentOutput::Values(given) = &result.output else { continue };
                let Some(CrossValues { values, .. }) = given.iter().find(|v| v.cross == cross && v.times == times)
                else {
                    continue;
                };
                for (place, values) in self.prepared.places_of(result.segment).zip(values.chunks(times.len())) {
                    let column = panel.iter_mut().skip(place).step_by(symbols.max(1));
                    column.zip(values).for_each(|(to, value)| *to = *value);
                }
            }
            self.reduce(cross, &times, &panel);
        }
    }

    /// Reduces the values of all symbols at each time, `[time][symbol]`. No time depends on another one.
    fn reduce(&mut self, cross: u16, times: &[TimeMicros], panel: &[f64]) {
        let section = &self.prepared.plan.crosses[usize::from(cross)];
        let symbols = &self.prepared.dataset.manifest.symbols;
        let is_series = section.function.is_market_series();
        let table = self.tables.entry(cross).or_insert_with(|| Table {
            times: Vec::new(),
            values: match is_series {
                true => TableValues::OfLabels(BTreeMap::new()),
                false => TableValues::OfSymbols(vec![Vec::new(); symbols.len()]),
            },
        });
        let labels = &self.labels;
        let reduced = |(values, time): (&[f64], &TimeMicros)| {
            let group = |i: usize| match &section.by {
                None => Some(""),
                Some(by) => labels.label_at(&symbols[i].symbol, by, *time),
            };
            reduce_groups(section.function, values, group)
        };
        let rows: Vec<(&[f64], &TimeMicros)> = panel.chunks(symbols.len().max(1)).zip(times).collect();
        for some in rows.chunks(TIMES_AT_ONCE) {
            let reduced: Vec<(Vec<f64>, BTreeMap<&str, f64>)> = some.par_iter().copied().map(reduced).collect();
            for ((each, all), (_, time)) in reduced.into_iter().zip(some) {
                let known = table.times.len();
                match &mut table.values {
                    TableValues::OfSymbols(values) => {
                        values.iter_mut().zip(each).for_each(|(series, value)| series.push(value));
                    }
                    TableValues::OfLabels(values) => {
                        for (key, value) in all {
                            let series = match values.get_mut(key) {
                                Some(series) => series,
                                None => values.entry(key.to_owned()).or_default(),
                            };
                            series.resize(known, f64::NAN);
                            series.push(value);
                        }
                    }
                }
                table.times.push(**time);
            }
        }
        let known = table.times.len();
        if let TableValues::OfLabels(values) = &mut table.values {
            values.values_mut().for_each(|series| series.resize(known, f64::NAN));
        }
    }
}

/// Splits times so that a chunk's values of all symbols fit into [`GATHER_BYTES_MAX`]. Returns at least one chunk.
fn chunks(wanted: &[CrossTimes], symbols: u64) -> VecDeque<Vec<CrossTimes>> {
    let most = (GATHER_BYTES_MAX / (symbols.max(1) * VALUE_BYTES)).max(1) as usize;
    let mut chunks: VecDeque<Vec<CrossTimes>> = VecDeque::new();
    let (mut chunk, mut used): (Vec<CrossTimes>, usize) = (Vec::new(), 0);
    for CrossTimes { cross, times } in wanted {
        let mut rest = times.as_slice();
        loop {
            let (now, later) = rest.split_at(rest.len().min(most - used));
            chunk.push(CrossTimes { cross: *cross, times: now.to_vec() });
            used += now.len();
            rest = later;
            if rest.is_empty() {
                break;
            }
            chunks.push_back(std::mem::take(&mut chunk));
            used = 0;
        }
        if used == most {
            chunks.push_back(std::mem::take(&mut chunk));
            used = 0;
        }
    }
    if !chunk.is_empty() || chunks.is_empty() {
        chunks.push_back(chunk);
    }
    chunks
}

#[cfg(test)]
mod tests;
