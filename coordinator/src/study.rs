//! What followed the matches of a scan: returns over the next bars, against those of all symbols that were looked at.
//!
//! At each bar a symbol is a match or not, by the answer of a scan as of that bar; its return over `h` bars is that of its own close
//! `h` of its bars later, adjusted by all splits that the dataset has, and by dividends where the scan adjusts by them. Returns are
//! labels and never part of an answer. The excess of a bar is the mean return of its matches less that of all symbols that were
//! looked at then, matched or not (of the same group, where symbols are grouped), and `t` tests the mean excess over bars: matches of one bar
//! count as one observation, and overlapping returns are allowed for by weights that fall to 0 over `h` bars (Newey and West 1987).
//!
//! Groups are those of a label of the symbols, or of the bars: periods of the exchange's clock, or what dates divide. A match is in the
//! period of its own bar, wherever its return ends.

use std::collections::BTreeMap;

use rayon::prelude::*;
use trawl_kernels::Cancel;
use trawl_market::{MarketError, TimeMicros};
use trawl_wire::Status;

use crate::all_bars::{AllBarsError, CHUNK_BYTES_MAX, all_bars_by_column};
use crate::forward::Closes;
use crate::local::LocalOptions;
use crate::one_scan::Many;
use crate::prepare::PreparedScan;
use crate::study_groups::{By, GroupsError, Periods};

/// Horizons of a study.
pub const HORIZONS_MAX: usize = 16;
/// Symbols at bars that a study takes: each takes a byte of memory.
pub const STUDY_CELLS_MAX: u64 = 2_000_000_000;
/// Groups of symbols whose closes are in memory at once, for each thread.
const GROUPS_PER_THREAD: usize = 2;
/// What a symbol is at a bar, besides not looked at.
const LOOKED_AT: u8 = 1;
const MATCHED: u8 = 2;

/// Why there is no study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A mistake of the user.
    #[error("{0}, and a study follows one condition")]
    Many(Many),
    /// A mistake of the user.
    #[error("a study needs the column 'close', which this dataset does not have")]
    NoClose,
    /// A mistake of the user.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// Too much for memory.
    #[error("{0} symbols at bars are too many for a study; at most {STUDY_CELLS_MAX} are taken: take a shorter span")]
    TooLarge(u64),
    /// The answers could not be computed.
    #[error(transparent)]
    AllBars(#[from] AllBarsError),
    /// Bars could not be read.
    #[error(transparent)]
    Market(#[from] MarketError),
}

/// What is studied.
#[derive(Debug, Clone)]
pub struct StudyOptions {
    /// Bars ahead, ascending, each at least 1.
    pub horizons: Vec<u32>,
    /// By what matches are grouped: a label of the symbols, as it is at each bar; else one of [`PERIODS`], or dates with commas, at each of
    /// which a group begins.
    pub by: Option<String>,
    /// The first bar at which matches count.
    pub from: Option<TimeMicros>,
}

/// Returns over one horizon, of one group.
#[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct HorizonStudy {
    /// Value of the label, or name of the period, by which matches are grouped; `None` without groups.
    pub group: Option<String>,
    /// Bars ahead.
    pub horizon: u32,
    /// Matches with a bar so far ahead.
    pub matches: u64,
    /// Matches without one: at the end of a history.
    pub open: u64,
    /// Bars with such matches.
    pub bars: u64,
    /// Share of the matches whose return is above 0; `None` without matches, here and below.
    pub hit_rate: Option<f64>,
    /// Mean return of the matches: 0.01 for one percent.
    pub mean: Option<f64>,
    /// Their median return.
    pub median: Option<f64>,
    /// Returns of all symbols that were looked at, matches included.
    pub universe: u64,
    /// Share of them above 0.
    pub universe_hit_rate: Option<f64>,
    /// Their mean.
    pub universe_mean: Option<f64>,
    /// Mean over bars of the mean return of a bar's matches less that of its universe.
    pub excess: Option<f64>,
    /// That mean over its standard error; `None` where it has none: with fewer than two bars, or without variation.
    pub t: Option<f64>,
}

/// Studies a scan over all bars up to its as-of. The result does not depend on threads.
///
/// # Errors
/// [`StudyError`].
pub fn study(
    prepared: &PreparedScan,
    local: LocalOptions,
    options: &StudyOptions,
    cancel: &dyn Cancel,
) -> Result<Vec<HorizonStudy>, StudyError> {
    prepared.check_one().map_err(StudyError::Many)?;
    let manifest = &prepared.dataset.manifest;
    if !Closes::are_in(prepared) {
        return Err(StudyError::NoClose);
    }
    let by = options.by.as_deref().map(|by| By::of(by, manifest.labels())).transpose()?;
    let seen = Seen::of(prepared, local, options, cancel)?;
    let label = by.as_ref().and_then(By::label);
    let periods = by.as_ref().and_then(|by| {
        let zone = manifest.calendar().zone();
        let wall = |time: &TimeMicros| if manifest.is_dated() { *time } else { zone.wall(*time) };
        by.periods(seen.times.iter().map(wall))
    });
    let mut sums = Sums::new(options.horizons.len(), seen.times.len(), label.is_some(), periods);
    let threads = local.threads.max(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(AllBarsError::from)?;
    for groups in prepared.segments.chunks(threads * GROUPS_PER_THREAD) {
        let found: Vec<Result<Vec<SymbolReturns>, MarketError>> = pool.install(|| {
            groups.par_iter().map(|group| seen.returns_of(prepared, *group, &options.horizons, label)).collect()
        });
        // In the order of the groups, so that sums do not depend on who is done first.
        for symbols in found {
            symbols?.iter().for_each(|symbol| sums.add(symbol));
        }
    }
    Ok(sums.finished(options))
}

/// What each symbol is at each bar.
struct Seen {
    times: Vec<TimeMicros>,
    /// By symbol: a cell for each of the times.
    cells: BTreeMap<String, Vec<u8>>,
}

impl Seen {
    fn of(
        prepared: &PreparedScan,
        local: LocalOptions,
        options: &StudyOptions,
        cancel: &dyn Cancel,
    ) -> Result<Self, StudyError> {
        let all = prepared.dataset.times()?;
        let wanted = |t: &TimeMicros| *t <= prepared.as_of && options.from.is_none_or(|from| *t >= from);
        let count = all.iter().filter(|t| wanted(t)).count() as u64 * prepared.symbol_count() as u64;
        if count > STUDY_CELLS_MAX {
            return Err(StudyError::TooLarge(count));
        }
        let mut times: Vec<TimeMicros> = Vec::new();
        let mut symbols: Vec<String> = Vec::new();
        let mut cells: Vec<Vec<u8>> = Vec::new();
        all_bars_by_column(prepared, local, options.from, CHUNK_BYTES_MAX, cancel, |chunk| {
            if symbols.is_empty() {
                symbols.clone_from(&chunk.symbols);
                cells = vec![Vec::new(); symbols.len()];
            }
            let rows = chunk.rows(0..chunk.times.len());
            let mut row = 0;
            for (time, end) in &rows.times {
                times.push(*time);
                cells.iter_mut().for_each(|of| of.push(0));
                for at in row..*end {
                    let cell = match rows.status[at] {
                        Status::Matched => LOOKED_AT | MATCHED,
                        Status::NotMatched => LOOKED_AT,
                        _ => 0,
                    };
                    if let Some(last) = cells.get_mut(rows.symbol[at] as usize).and_then(|of| of.last_mut()) {
                        *last = cell;
                    }
                }
                row = *end;
            }
            Ok(())
        })?;
        Ok(Self { times, cells: symbols.into_iter().zip(cells).collect() })
    }

    /// The returns that follow the bars at which the symbols of a group were looked at.
    fn returns_of(
        &self,
        prepared: &PreparedScan,
        group: u32,
        horizons: &[u32],
        label: Option<&str>,
    ) -> Result<Vec<SymbolReturns>, MarketError> {
        let labels = prepared.dataset.labels()?;
        let mut found = Vec::new();
        for closes in Closes::of_group(prepared, group)? {
            let Some(cells) = self.cells.get(&**closes.symbol()) else { continue };
            let bars = closes.times();
            let mut of = SymbolReturns { looks: Vec::new(), returns: Vec::new(), labels: Vec::new() };
            let mut at = 0;
            for (time, cell) in cells.iter().enumerate().filter(|(_, cell)| **cell != 0) {
                // A symbol that is looked at has a bar at the time.
                while bars.get(at).is_some_and(|t| *t < self.times[time]) {
                    at += 1;
                }
                if bars.get(at) != Some(&self.times[time]) {
                    continue;
                }
                of.looks.push((time, cell & MATCHED != 0));
                if let Some(label) = label {
                    of.labels.push(labels.label_at(closes.symbol(), label, self.times[time]).map(str::to_owned));
                }
                of.returns.extend(horizons.iter().map(|horizon| closes.forward(at, *horizon)));
            }
            found.push(of);
        }
        Ok(found)
    }
}

/// Returns after the bars of one symbol.
struct SymbolReturns {
    /// Index of the time, and whether the symbol matched.
    looks: Vec<(usize, bool)>,
    /// `looks x horizons`; NaN where there is none.
    returns: Vec<f64>,
    /// The label of each look; empty where symbols are not grouped.
    labels: Vec<Option<String>>,
}

/// Sums of returns at one bar.
#[derive(Debug, Clone, Copy, Default)]
struct AtBar {
    universe: f64,
    universe_count: u32,
    matched: f64,
    matched_count: u32,
}

/// What is known of a group over one horizon.
#[derive(Debug, Clone, Default)]
struct Gathered {
    /// Index of the time of the first of `bars`.
    first: usize,
    /// One for each time of the group, so that distances between bars are those of the dataset.
    bars: Vec<AtBar>,
    matched: Vec<f64>,
    open: u64,
    universe_hits: u64,
}

/// A group: its place among the others, and its name.
type Group = (usize, String);

struct Sums {
    times: usize,
    horizons: usize,
    /// `None` of the whole market where nothing is grouped.
    groups: BTreeMap<Option<Group>, Vec<Gathered>>,
    by_label: bool,
    /// The period of each time.
    periods: Option<Periods>,
}

impl Sums {
    fn new(horizons: usize, times: usize, by_label: bool, periods: Option<Periods>) -> Self {
        Self { times, horizons, groups: BTreeMap::new(), by_label, periods }
    }

    fn add(&mut self, symbol: &SymbolReturns) {
        for (look, (time, matched)) in symbol.looks.iter().enumerate() {
            let (group, span) = match &self.periods {
                Some(periods) => {
                    let number = periods.of_time[*time];
                    (Some((number, periods.names[number].clone())), periods.spans[number].clone())
                }
                None if self.by_label => match symbol.labels.get(look) {
                    Some(Some(label)) => (Some((0, label.clone())), 0..self.times),
                    // Symbols without the label are in no group.
                    _ => continue,
                },
                None => (None, 0..self.times),
            };
            let empty =
                || Gathered { first: span.start, bars: vec![AtBar::default(); span.len()], ..Gathered::default() };
            let of_group = self.groups.entry(group).or_insert_with(|| (0..self.horizons).map(|_| empty()).collect());
            for (h, of) in of_group.iter_mut().enumerate() {
                let value = symbol.returns[look * self.horizons + h];
                if !value.is_finite() {
                    of.open += u64::from(*matched);
                    continue;
                }
                let bar = &mut of.bars[*time - of.first];
                bar.universe += value;
                bar.universe_count += 1;
                of.universe_hits += u64::from(value > 0.0);
                if *matched {
                    bar.matched += value;
                    bar.matched_count += 1;
                    of.matched.push(value);
                }
            }
        }
    }

    fn finished(self, options: &StudyOptions) -> Vec<HorizonStudy> {
        let mut all = Vec::new();
        for (group, of_group) in self.groups {
            for (horizon, of) in options.horizons.iter().zip(of_group) {
                all.push(of.finished(group.clone().map(|(_, name)| name), *horizon));
            }
        }
        all
    }
}

impl Gathered {
    fn finished(mut self, group: Option<String>, horizon: u32) -> HorizonStudy {
        self.matched.sort_by(f64::total_cmp);
        let matches = self.matched.len();
        let universe: u64 = self.bars.iter().map(|bar| u64::from(bar.universe_count)).sum();
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        let hits = self.matched.iter().filter(|value| **value > 0.0).count() as u64;
        // The bars that have matches, by number, and their excess.
        let excess: Vec<(usize, f64)> = self
            .bars
            .iter()
            .enumerate()
            .filter(|(_, bar)| bar.matched_count > 0)
            .map(|(at, bar)| {
                let of = bar.matched / f64::from(bar.matched_count);
                (at, of - bar.universe / f64::from(bar.universe_count))
            })
            .collect();
        let (excess_mean, t) = mean_and_t(&excess, horizon as usize);
        HorizonStudy {
            group,
            horizon,
            matches: matches as u64,
            open: self.open,
            bars: excess.len() as u64,
            hit_rate: share(hits, matches as u64),
            mean: mean(self.matched.iter().sum(), matches as u64),
            median: match matches {
                0 => None,
                n if n % 2 == 1 => Some(self.matched[n / 2]),
                n => Some((self.matched[n / 2 - 1] + self.matched[n / 2]) / 2.0),
            },
            universe,
            universe_hit_rate: share(self.universe_hits, universe),
            universe_mean: mean(self.bars.iter().map(|bar| bar.universe).sum(), universe),
            excess: excess_mean,
            t,
        }
    }
}

/// The mean of values at numbered bars, and the mean over its standard error, with autocovariances of up to `lags - 1` bars.
fn mean_and_t(values: &[(usize, f64)], lags: usize) -> (Option<f64>, Option<f64>) {
    let n = values.len();
    if n == 0 {
        return (None, None);
    }
    let mean = values.iter().map(|(_, value)| value).sum::<f64>() / n as f64;
    if n < 2 {
        return (Some(mean), None);
    }
    let mut variance: f64 = values.iter().map(|(_, value)| (value - mean).powi(2)).sum();
    for lag in 1..lags {
        let weight = 1.0 - lag as f64 / lags as f64;
        let mut later = 0;
        for (at, value) in values {
            while later < n && values[later].0 < at + lag {
                later += 1;
            }
            if later < n && values[later].0 == at + lag {
                variance += 2.0 * weight * (value - mean) * (values[later].1 - mean);
            }
        }
    }
    let error = variance.max(0.0).sqrt() / n as f64;
    (Some(mean), (error > 0.0).then(|| mean / error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_values_have_the_plain_t_and_overlapping_ones_a_smaller_one() {
        let values: Vec<(usize, f64)> = [0.02, -0.01, 0.03, 0.0, 0.01].into_iter().enumerate().collect();
        let (mean, t) = mean_and_t(&values, 1);
        // 0.01 over sqrt(0.001)/5.
        assert!((mean.unwrap_or(0.0) - 0.01).abs() < 1e-15);
        assert!((t.unwrap_or(0.0) - 0.01 / (0.001f64.sqrt() / 5.0)).abs() < 1e-9);
        // Runs of equal values carry less than their number.
        let runs: Vec<(usize, f64)> = [0.02, 0.02, 0.02, -0.01, -0.01, -0.01].into_iter().enumerate().collect();
        let (plain, overlapping) = (mean_and_t(&runs, 1).1, mean_and_t(&runs, 3).1);
        assert!(overlapping < plain, "{overlapping:?} {plain:?}");
        // Bars that are far apart have nothing to do with each other.
        let apart: Vec<(usize, f64)> = runs.iter().map(|(at, value)| (at * 10, *value)).collect();
        assert_eq!(mean_and_t(&apart, 3).1, plain);
        assert_eq!(mean_and_t(&[(0, 0.5)], 5), (Some(0.5), None));
        assert_eq!(mean_and_t(&[], 5), (None, None));
        assert_eq!(mean_and_t(&[(0, 0.5), (1, 0.5)], 1), (Some(0.5), None));
    }
}
