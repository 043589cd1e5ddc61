//! The content of a snapshot, for people and for `--json`.

use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::jumps::{Jump, find_jumps};
use crate::limits::JUMPS_LISTED_MAX;
use crate::manifest::{GroupFile, SymbolEntry};
use crate::quality::{Quality, quality};
use crate::reference::{FactorRow, ListingRow, attribute_name};
use crate::series::Series;
use crate::time::TimeMicros;
use trawl_terms::Timeframe;

/// What to look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct InspectOptions<'a> {
    /// One symbol in detail.
    pub symbol: Option<&'a str>,
    /// Read every file, compare its checksum, and look for jumps in every symbol.
    pub verify: bool,
    /// Look at every bar for what is doubtful.
    pub quality: bool,
}

/// A snapshot, described.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Inspection {
    /// Name.
    pub dataset: String,
    /// Comes with the program.
    pub bundled: bool,
    /// Generated, not a real market.
    pub synthetic: bool,
    /// Where the bars come from.
    pub origin: String,
    /// Id of the snapshot.
    pub snapshot: String,
    /// Length of a bar.
    #[schemars(with = "String")]
    pub timeframe: Timeframe,
    /// Number of symbols.
    pub symbols: u64,
    /// Bars of all symbols.
    pub bars: u64,
    /// Distinct bar times.
    pub times: u64,
    /// Name of the exchange calendar.
    pub calendar: String,
    /// The instant up to which the data are complete; a bar that ends later is forming.
    pub complete_to: TimeMicros,
    /// Names of the labels of symbols.
    pub labels: Vec<String>,
    /// Rows of the table of symbols.
    pub symbol_rows: u64,
    /// Attributes of symbols.
    pub attributes: Vec<String>,
    /// Rows of the table of attributes.
    pub attribute_rows: u64,
    /// Splits and dividends.
    pub factors: u64,
    /// Earliest bar.
    pub first_time: TimeMicros,
    /// Latest bar.
    pub last_time: TimeMicros,
    /// Symbols that have no bar at the latest time.
    pub symbols_ended: u64,
    /// Fewest bars of a symbol.
    pub bars_fewest: u64,
    /// Most bars of a symbol.
    pub bars_most: u64,
    /// Number of groups.
    pub groups: u32,
    /// Numeric columns.
    pub columns: Vec<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files of bars that were appended to the groups; `trawl data compact` makes them part of these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub appended_files: u64,
    /// Bars in them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub appended_bars: u64,
    /// The files of the groups.
    pub files: Vec<GroupFile>,
    /// The result of the checks, if requested.
    pub checks: Option<Checks>,
    /// What is doubtful about the bars, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<Quality>,
    /// The requested symbol.
    pub symbol: Option<SymbolInspection>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Result of reading every file.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Checks {
    /// Files read, those of the times and of the tables included.
    pub files: u64,
    /// Problems found, in words; empty when there are none.
    pub problems: Vec<String>,
    /// Number of jumps of the close by more than a factor of three or by a usual split ratio.
    pub jumps: u64,
    /// The first of them.
    pub jumps_listed: Vec<Jump>,
}

/// One symbol, described.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct SymbolInspection {
    /// Where its bars are.
    pub entry: SymbolEntry,
    /// Distinct times of the snapshot within its history at which it has no bar.
    pub bars_missing: u64,
    /// One per column.
    pub columns: Vec<ColumnSummary>,
    /// Number of jumps of the close by more than a factor of three or by a usual split ratio.
    pub jumps: u64,
    /// The first of them.
    pub jumps_listed: Vec<Jump>,
    /// First and last bars, in time order.
    pub sample: Vec<BarSample>,
    /// Its rows of the table of symbols, by time: ticker and labels, each with the interval in which they hold.
    pub listing: Vec<ListingRow>,
    /// Its splits and dividends, by ex-date.
    pub factors: Vec<FactorRow>,
}

/// The values of one column.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ColumnSummary {
    /// Name.
    pub column: String,
    /// Bars that lack it.
    pub missing: u64,
    /// Smallest value.
    pub smallest: Option<f64>,
    /// Greatest value.
    pub greatest: Option<f64>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct BarSample {
    /// Its time.
    pub time: TimeMicros,
    /// In the order of the columns; `None` where missing.
    pub values: Vec<Option<f64>>,
}

/// Bars shown from each end of a symbol's history.
const SAMPLE_BARS: usize = 3;

/// Describes a snapshot. Reads its bars only for a symbol, or when verification or quality is requested.
///
/// # Errors
/// [`MarketError::UnknownSymbol`]; reading errors for the requested symbol. Damage found by `verify` is not an error
/// but reported in [`Checks::problems`].
pub fn inspect(dataset: &Dataset, options: InspectOptions<'_>) -> Result<Inspection, MarketError> {
    let manifest = &*dataset.manifest;
    let rows = || manifest.symbols.iter().map(|s| s.rows);
    let symbol = match options.symbol {
        Some(symbol) => Some(inspect_symbol(dataset, symbol)?),
        None => None,
    };
    Ok(Inspection {
        dataset: manifest.name.clone(),
        bundled: dataset.is_bundled(),
        synthetic: manifest.synthetic,
        origin: manifest.origin.clone(),
        snapshot: manifest.snapshot.clone(),
        timeframe: manifest.timeframe,
        symbols: manifest.symbols.len() as u64,
        bars: manifest.bars,
        times: manifest.distinct_times(),
        calendar: manifest.calendar().name().to_owned(),
        complete_to: manifest.complete_to(),
        labels: manifest.labels().to_vec(),
        symbol_rows: manifest.symbol_table.as_ref().map_or(0, |t| t.rows),
        attributes: manifest.attributes().iter().map(|stored| attribute_name(stored).0.to_owned()).collect(),
        attribute_rows: manifest.attributes.as_ref().map_or(0, |t| t.rows),
        factors: manifest.factors.as_ref().map_or(0, |t| t.rows),
        first_time: manifest.first_time,
        last_time: manifest.last_time,
        symbols_ended: manifest.symbols.iter().filter(|s| s.last_time < manifest.last_time).count() as u64,
        bars_fewest: rows().min().unwrap_or(0),
        bars_most: rows().max().unwrap_or(0),
        groups: manifest.groups,
        columns: manifest.columns.clone(),
        bytes: manifest.files.iter().map(|f| f.bytes).sum::<u64>()
            + manifest.times.bytes
            + manifest.tails().iter().map(|tail| tail.bytes + tail.index_bytes).sum::<u64>(),
        appended_files: manifest.tails().len() as u64,
        appended_bars: manifest.tails().iter().map(|tail| tail.rows).sum(),
        files: manifest.files.clone(),
        checks: options.verify.then(|| check(dataset)),
        quality: if options.quality { Some(quality(dataset)?) } else { None },
        symbol,
    })
}

fn check(dataset: &Dataset) -> Checks {
    let manifest = &*dataset.manifest;
    let mut problems = Vec::new();
    let mut jumps = Vec::new();
    let damaged = dataset.verify();
    // A damaged file is reported once, though its bars are read again for the jumps.
    let mut problem = |error: &MarketError| {
        let text = describe(error);
        if !problems.contains(&text) {
            problems.push(text);
        }
    };
    damaged.iter().for_each(&mut problem);
    for error in
        [dataset.times().err(), dataset.symbol_table().err(), dataset.factors().err(), dataset.attributes().err()]
            .iter()
            .flatten()
    {
        problem(error);
    }
    let close: Vec<String> = manifest.columns.iter().filter(|c| *c == "close").cloned().collect();
    for group in manifest.filled_groups() {
        match dataset.load_group(group, &close) {
            Ok(bars) => {
                for b in &bars {
                    for closes in &b.columns {
                        jumps.extend(find_jumps(&b.symbol, &b.times, closes, TimeMicros::MIN));
                    }
                }
            }
            Err(error) => problem(&error),
        }
    }
    if let Err(error) = dataset.retain_unadjusted(&mut jumps) {
        problem(&error);
    }
    jumps.sort_by(|a, b| (&a.symbol, a.time).cmp(&(&b.symbol, b.time)));
    let tables = manifest.tables().count();
    let (files, count) = (manifest.files.len() + 2 * manifest.tails().len() + 1 + tables, jumps.len() as u64);
    jumps.truncate(JUMPS_LISTED_MAX);
    Checks { files: files as u64, problems, jumps: count, jumps_listed: jumps }
}

/// An error and its cause on one line.
fn describe(error: &MarketError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn inspect_symbol(dataset: &Dataset, symbol: &str) -> Result<SymbolInspection, MarketError> {
    let manifest = &*dataset.manifest;
    let bars = dataset.load_symbol(symbol, &manifest.columns)?;
    let times = dataset.times()?;
    let entry = manifest.symbol(symbol).cloned().ok_or_else(|| MarketError::UnknownSymbol {
        dataset: manifest.name.clone(),
        symbol: symbol.to_owned(),
        suggestion: None,
    })?;
    let within = times.partition_point(|&t| t <= entry.last_time) - times.partition_point(|&t| t < entry.first_time);
    let summarise = |(column, values): (&String, &Series<f64>)| {
        let known = || values.iter().copied().filter(|v| !v.is_nan());
        ColumnSummary {
            column: column.clone(),
            missing: values.iter().filter(|v| v.is_nan()).count() as u64,
            smallest: known().reduce(f64::min),
            greatest: known().reduce(f64::max),
        }
    };
    let columns = manifest.columns.iter().zip(&bars.columns).map(summarise).collect();
    let close = manifest.columns.iter().position(|c| c == "close");
    let mut jumps = close.map_or_else(Vec::new, |i| find_jumps(symbol, &bars.times, &bars.columns[i], TimeMicros::MIN));
    dataset.retain_unadjusted(&mut jumps)?;
    let count = jumps.len() as u64;
    jumps.truncate(JUMPS_LISTED_MAX);
    let rows = bars.times.len();
    let shown = (0..rows).filter(|&i| i < SAMPLE_BARS || i + SAMPLE_BARS >= rows);
    let value = |v: f64| if v.is_nan() { None } else { Some(v) };
    let sample = shown
        .map(|i| BarSample { time: bars.times[i], values: bars.columns.iter().map(|c| value(c[i])).collect() })
        .collect();
    let bars_missing = (within as u64).saturating_sub(entry.rows);
    let table = dataset.symbol_table()?;
    let listing = table.rows().iter().filter(|r| r.symbol == symbol).cloned().collect();
    let mut factors = dataset.factors()?;
    factors.retain(|f| table.resolve(&f.symbol, f.date) == Some(symbol));
    factors.sort_by_key(|f| f.date);
    Ok(SymbolInspection { entry, bars_missing, columns, jumps: count, jumps_listed: jumps, sample, listing, factors })
}
