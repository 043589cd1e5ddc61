//! Reads one file for computing on it: every row is kept as it is, symbol by symbol, oldest first.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::cells::NAIVE;
use super::date_order::{DateOrderKey, OrderEvidence};
use super::rows::{FileFacts, Policy, RawRows, Rows, UNREAD, read_rows};
use super::{CORE, LEAN_STORES, ReadOptions, RowBudget, map_symbol, newest_first};
use crate::error::MarketError;
use crate::limits::{FIT_BARS_MAX, SERIES_ROWS_MAX};
use crate::sources::expand;
use crate::time::{DAY, SECOND, TimeMicros};
use crate::zone::Zone;

/// A file of series.
#[derive(Debug, Clone)]
pub struct FileSeries {
    /// The file's name in messages.
    pub shown: String,
    /// Header of the column of times.
    pub time_heading: String,
    /// Header of the column of symbols, if there is one.
    pub symbol_heading: Option<String>,
    /// Names of the series.
    pub columns: Vec<String>,
    /// For each series a message about its first cell that is neither a number nor NA.
    pub garbage: Vec<Option<String>>,
    /// In the order in which the file has them.
    pub symbols: Vec<SymbolSeries>,
    /// Decisions that the user should know.
    pub notes: Vec<String>,
    /// Some of the times of day that have no zone, as local times.
    pub(crate) naive: Vec<TimeMicros>,
}

/// The rows of one symbol, oldest first.
#[derive(Debug, Clone)]
pub struct SymbolSeries {
    /// As in the file.
    pub symbol: Arc<str>,
    /// Times as written.
    pub texts: Vec<String>,
    /// The same as instants, those of days as 00:00 UTC of the date; `None` when one of them is not a time.
    pub times: Option<Vec<TimeMicros>>,
    /// By series, then by row; NaN for NA.
    pub values: Vec<Vec<f64>>,
}

/// Reads one file; `-` is standard input.
///
/// # Errors
/// [`MarketError::BadCsv`] for a file that is not a table with a time and a close, or whose rows are not in order of
/// time, one for each time and symbol;
/// [`MarketError::Input`], [`MarketError::Limit`].
pub fn read_series(path: PathBuf, options: &ReadOptions) -> Result<FileSeries, MarketError> {
    let inputs = expand(&[path], &BTreeMap::new(), None, None)?;
    let [input] = inputs.as_slice() else {
        let file = inputs.first().map_or_else(String::new, |i| i.shown.clone());
        let why = format!("it is one of {} files in an archive", inputs.len());
        return Err(MarketError::BadCsv { file, why, expected: "one file of bars".to_owned() });
    };
    let budget = RowBudget::new(SERIES_ROWS_MAX);
    let rows = read_rows(&input.shown, &input.name, &input.content()?, options, Policy::Keep, &budget)?;
    let mut notes = decisions(&rows);
    let zone = options.zone.or_else(|| rows.facts.format.zone().and_then(|name| Zone::named(name).ok()));
    let (times, naive) = instants(&rows, zone);
    let mut order: Vec<usize> = (0..rows.rows.of.len()).collect();
    let read = |row: &usize| times[*row];
    if newest_first(order.iter().map(|row| (rows.rows.of[*row], read(row)))) {
        order.reverse();
        notes.push(format!("{} had its newest bar first and was reversed", input.shown));
    }
    let mut symbols: Vec<SymbolSeries> = rows
        .symbols
        .iter()
        .map(|symbol| SymbolSeries {
            symbol: Arc::clone(symbol),
            texts: Vec::new(),
            times: Some(Vec::new()),
            values: vec![Vec::new(); rows.facts.columns.len()],
        })
        .collect();
    if symbols.is_empty() {
        // A file without rows has the series of its header.
        let values = vec![Vec::new(); rows.facts.columns.len()];
        symbols.push(SymbolSeries { symbol: "".into(), texts: Vec::new(), times: Some(Vec::new()), values });
    }
    let mut last = vec![UNREAD; symbols.len()];
    let texts_of = |(column, garbage): (&String, &Option<String>)| {
        let text = garbage.is_some() && !CORE.contains(&column.as_str());
        rows.facts.meanings.iter().find(|(_, meaning)| text && meaning == column).map(|(heading, _)| heading.clone())
    };
    let mut named: Vec<String> = rows.facts.columns.iter().zip(&rows.facts.garbage).filter_map(texts_of).collect();
    named.extend(rows.facts.text_columns.iter().cloned());
    let RawRows { of, lines, mut texts, values, .. } = rows.rows;
    let FileFacts { time_heading, symbol_heading, columns, garbage, .. } = rows.facts;
    for row in order {
        let at = of[row] as usize;
        let series = &mut symbols[at];
        let time = times[row];
        if time == UNREAD {
            series.times = None;
        } else {
            if time < last[at] {
                let why = format!(
                    "line {}: '{}' is before the bar above it, and the file is not consistently newest first",
                    lines[row], texts[row]
                );
                let expected = "bars in order of time; 'trawl data import' reports what is out of order".to_owned();
                return Err(MarketError::BadCsv { file: input.shown.clone(), why, expected });
            }
            if time == last[at] {
                let why = format!("line {}: the time '{}' is that of the bar before it", lines[row], texts[row]);
                let expected = match symbol_heading {
                    Some(_) => "one row for each symbol and time".to_owned(),
                    None => format!("one row for each time, or {}", map_symbol(&named)),
                };
                return Err(MarketError::BadCsv { file: input.shown.clone(), why, expected });
            }
            last[at] = time;
        }
        series.texts.push(std::mem::take(&mut texts[row]));
        if let Some(times) = &mut series.times {
            times.push(time);
        }
        for (to, from) in series.values.iter_mut().zip(&values) {
            to.push(from[row]);
        }
    }
    Ok(FileSeries { shown: input.shown.clone(), time_heading, symbol_heading, columns, garbage, symbols, notes, naive })
}

/// How the file was read where it leaves a choice.
fn decisions(rows: &Rows) -> Vec<String> {
    let order = match rows.facts.evidence {
        OrderEvidence::NotNeeded => None,
        OrderEvidence::Silent | OrderEvidence::Decided(DateOrderKey::MonthFirst) => Some("were read month first"),
        OrderEvidence::Decided(DateOrderKey::DayFirst) => Some("were read day first"),
        OrderEvidence::Mixed => Some("have both orders of day and month; those with the day first are not times"),
    };
    let order = order.map(|order| format!("dates such as 1/4/1999 {order}"));
    let comma = rows.facts.decimal_comma.then(|| "numbers were read with a decimal comma".to_owned());
    let scaled = rows.facts.scaled.then(|| format!("prices were divided by 10,000, {LEAN_STORES}"));
    order.into_iter().chain(comma).chain(scaled).collect()
}

/// By row; [`UNREAD`] where the file has no valid time. And some of the local times whose zone is not known.
fn instants(rows: &Rows, zone: Option<Zone>) -> (Vec<TimeMicros>, Vec<TimeMicros>) {
    let dated = rows.rows.local.iter().all(|local| *local == UNREAD || local.rem_euclid(DAY) == 0);
    let instant = |(local, offset): (&TimeMicros, &i32)| match (*local, *offset) {
        (UNREAD, _) => UNREAD,
        (local, _) if dated => local,
        (local, NAIVE) => zone.map_or(local, |zone| zone.to_utc(local)),
        (local, offset) => local - i64::from(offset) * SECOND,
    };
    let naive = |(local, offset): &(&TimeMicros, &i32)| **local != UNREAD && **offset == NAIVE;
    let open = !dated && zone.is_none();
    let clocks = rows.rows.local.iter().zip(&rows.rows.offset).filter(naive).map(|(local, _)| *local);
    let sample = clocks.step_by(rows.rows.local.len() / FIT_BARS_MAX + 1).filter(|_| open).collect();
    (rows.rows.local.iter().zip(&rows.rows.offset).map(instant).collect(), sample)
}
