//! The steps of a scan in order, and the data passed between them.
//!
//! A plan with cross-sections is run in passes over all segments. From the last stage back, each pass collects the
//! times at which symbols read cross-sections; then, from the first stage on, their values at those times, one chunk of
//! times per pass; the last pass returns the rows of the answer. Pure but for the labels of the snapshot's symbol
//! table: both modes drive it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use trawl_market::{SymbolTable, TimeMicros};
use trawl_wire::{CrossTable, CrossTimes, CrossValues, ErrorKind, SegmentOutput, SegmentResultV2, StepInputV1};
use trawl_worker::{ScanStep, StepKind};

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

/// One cross-section so far: by key, one value for each time.
#[derive(Debug, Clone, Default)]
struct Table {
    times: Vec<TimeMicros>,
    values: BTreeMap<String, Vec<f64>>,
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
        let labels = prepared.dataset.symbol_table().map_err(|e| PassError::Labels(e.to_string()))?;
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

    /// The current step; the last one returns the answer's rows.
    pub fn step(&self) -> ScanStep {
        *self.steps.front().expect("the last step is never taken away")
    }

    /// Whether the current step is the last one.
    pub fn is_last(&self) -> bool {
        self.steps.len() == 1
    }

    /// The input of the current step for `segments`: the wanted times, and the values of earlier cross-sections that
    /// their symbols and the references read.
    pub fn input(&self, segments: &[u32]) -> StepInputV1 {
        let step = self.step();
        let wanted = match step.kind {
            StepKind::Times => self.wanted(step.stage),
            StepKind::Values => self.chunks.front().cloned().unwrap_or_default(),
        };
        if step.kind == StepKind::Times || self.tables.is_empty() {
            return StepInputV1 { wanted, tables: Vec::new() };
        }
        let mut keys: BTreeSet<String> = self.prepared.plan.references().iter().map(|s| (*s).to_owned()).collect();
        keys.extend(segments.iter().flat_map(|segment| self.prepared.symbols_of(*segment)));
        let cut = |(cross, table): (&u16, &Table)| {
            let series = self.prepared.plan.crosses[usize::from(*cross)].function.is_market_series();
            let mine = |(key, _): &(&String, &Vec<f64>)| series || keys.contains(*key);
            let rows: Vec<(&String, &Vec<f64>)> = table.values.iter().filter(mine).collect();
            CrossTable {
                cross: *cross,
                times: table.times.clone(),
                keys: rows.iter().map(|(key, _)| (*key).clone()).collect(),
                values: rows.iter().flat_map(|(_, values)| values.iter().copied()).collect(),
            }
        };
        StepInputV1 { wanted, tables: self.tables.iter().map(cut).collect() }
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
                        for need in needs {
                            self.times.entry(need.cross).or_default().extend(need.times);
                        }
                    }
                }
                self.steps.pop_front();
                if self.step().kind == StepKind::Values {
                    self.check_size()?;
                }
            }
            StepKind::Values => {
                self.gather(&results);
                self.chunks.pop_front();
                if self.chunks.is_empty() {
                    self.steps.pop_front();
                }
            }
        }
        if self.step().kind == StepKind::Values && !self.is_last() && self.chunks.is_empty() {
            self.chunks = chunks(&self.wanted(self.step().stage), self.prepared.symbol_count() as u64);
        }
        Ok(())
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
        let manifest = Arc::clone(&self.prepared.dataset.manifest);
        let symbols: Vec<&str> = manifest.symbols.iter().map(|s| s.symbol.as_str()).collect();
        let at: BTreeMap<&str, usize> = symbols.iter().enumerate().map(|(i, s)| (*s, i)).collect();
        // A cross-section that is not read has no table: its readers have no bars.
        for CrossTimes { cross, times } in chunk.into_iter().filter(|c| !c.times.is_empty()) {
            // `[time][symbol]`, symbols in the order of the manifest.
            let mut panel = vec![f64::NAN; times.len() * symbols.len()];
            for result in results {
                let SegmentOutput::Values(given) = &result.output else { continue };
                let Some(CrossValues { values, .. }) = given.iter().find(|v| v.cross == cross && v.times == times)
                else {
                    continue;
                };
                for (symbol, values) in self.prepared.symbols_of(result.segment).iter().zip(values.chunks(times.len()))
                {
                    let Some(&column) = at.get(symbol.as_str()) else { continue };
                    values.iter().enumerate().for_each(|(t, v)| panel[t * symbols.len() + column] = *v);
                }
            }
            self.reduce(cross, &times, &symbols, &panel);
        }
    }

    fn reduce(&mut self, cross: u16, times: &[TimeMicros], symbols: &[&str], panel: &[f64]) {
        let section = &self.prepared.plan.crosses[usize::from(cross)];
        let table = self.tables.entry(cross).or_default();
        let before = table.times.len();
        for (values, time) in panel.chunks(symbols.len().max(1)).zip(times) {
            let group = |i: usize| match &section.by {
                None => Some(""),
                Some(by) => self.labels.label_at(symbols[i], by, *time),
            };
            let (each, all) = reduce_groups(section.function, values, group);
            let known = table.times.len();
            let mut keep = |key: &str, value: f64| {
                let series = match table.values.get_mut(key) {
                    Some(series) => series,
                    None => table.values.entry(key.to_owned()).or_default(),
                };
                series.resize(known, f64::NAN);
                series.push(value);
            };
            if section.function.is_market_series() {
                all.into_iter().for_each(|(key, value)| keep(key, value));
            } else {
                symbols.iter().zip(each).for_each(|(symbol, value)| keep(symbol, value));
            }
            table.times.push(*time);
        }
        debug_assert_eq!(table.times.len(), before + times.len());
        let known = table.times.len();
        table.values.values_mut().for_each(|series| series.resize(known, f64::NAN));
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
mod tests {
    use trawl_wire::SegmentResult;

    use super::*;

    #[test]
    fn values_of_other_times_are_none_of_the_step() {
        let wanted = [CrossTimes { cross: 0, times: vec![1, 2] }, CrossTimes { cross: 1, times: Vec::new() }];
        let step = |values| SegmentResult::Step(SegmentResultV2 { segment: 3, output: SegmentOutput::Values(values) });
        let given = |times: Vec<i64>| step(vec![CrossValues { cross: 0, values: vec![0.0; times.len()], times }]);
        assert_eq!(PreparedScan::check_times(&wanted, &given(vec![1, 2])), Ok(()));
        for other in [vec![1], vec![1, 3], Vec::new()] {
            let error = PreparedScan::check_times(&wanted, &given(other)).unwrap_err();
            assert!(error.contains("segment 3 has other times of cross-section 0"), "{error}");
        }
        assert!(PreparedScan::check_times(&wanted, &step(Vec::new())).is_err());
    }

    #[test]
    fn chunks_hold_every_time_once_and_stay_within_the_limit() {
        let symbols = GATHER_BYTES_MAX / VALUE_BYTES / 10;
        let wanted = vec![
            CrossTimes { cross: 0, times: (0..25).collect() },
            CrossTimes { cross: 1, times: Vec::new() },
            CrossTimes { cross: 2, times: (0..5).collect() },
        ];
        let cut = chunks(&wanted, symbols);
        assert!(cut.iter().all(|c| c.iter().map(|w| w.times.len()).sum::<usize>() <= 10), "{cut:?}");
        for want in &wanted {
            let all: Vec<i64> =
                cut.iter().flatten().filter(|c| c.cross == want.cross).flat_map(|c| c.times.clone()).collect();
            assert_eq!(all, want.times);
        }
        assert_eq!(chunks(&[], 1).len(), 1);
    }
}
