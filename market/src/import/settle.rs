//! Interprets the times of an import once all its files are known: the length of a bar, and which bars are duplicates or
//! out of order. Contradictions are refused with advice.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::ImportOptions;
use super::fit::Fit;
use crate::arrow_file::SymbolBars;
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::merge::SymbolRows;
use crate::quarantine::Reason;
use crate::reading::{DATED_STEPS, Inferred, MANY_STEPS, NAIVE, Rows, SURE_STEPS, Spacing, length, newest_first};
use crate::sources::Input;
use crate::time::{DAY, SECOND, TimeMicros, format_time};
use crate::zone::Zone;
use trawl_terms::{TimeUnit, Timeframe};

const DAILY: Timeframe = Timeframe { count: 1, unit: TimeUnit::Day };

/// The timeframe of an import, and how it was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen {
    pub timeframe: Timeframe,
    /// Neither requested nor that of the dataset, but inferred from the spacing of the bars.
    pub inferred: bool,
    /// Not inferred from any spacing: bars with a date alone were taken for days.
    pub by_date: bool,
}

/// Instants of a file's rows, times without a zone taken as UTC.
fn instants(rows: &Rows) -> impl Iterator<Item = TimeMicros> + '_ {
    let utc = |(local, offset): (&TimeMicros, &i32)| {
        if *offset == NAIVE { *local } else { *local - i64::from(*offset) * SECOND }
    };
    rows.local.iter().zip(&rows.offset).map(utc)
}

/// Steps between bars of a symbol that are in different files.
fn across(files: &[(usize, Rows)]) -> Spacing {
    let mut times: BTreeMap<&str, Vec<TimeMicros>> = BTreeMap::new();
    for (_, rows) in files {
        for (symbol, time) in rows.of.iter().zip(instants(rows)) {
            times.entry(&rows.symbols[*symbol as usize]).or_default().push(time);
        }
    }
    let mut spacing = Spacing::default();
    for mut times in times.into_values() {
        times.sort_unstable();
        times.windows(2).for_each(|pair| spacing.add(pair[1] - pair[0]));
    }
    spacing
}

/// The requested timeframe, else the dataset's, else the one inferred from the bars; refused where the bars contradict
/// it.
pub(super) fn choose_timeframe(
    inputs: &[Input],
    files: &[(usize, Rows)],
    options: &ImportOptions,
    existing: Option<&Dataset>,
    calendar: Calendar,
) -> Result<Chosen, MarketError> {
    let requested = options.timeframe;
    let held = existing.map(|e| e.manifest.timeframe);
    if let (Some(requested), Some(held)) = (requested, held)
        && requested != held
    {
        return Err(other_timeframe(
            &options.dataset,
            held,
            &format!("bars of {requested} cannot be added"),
            requested,
        ));
    }
    let mut spacing = Spacing::default();
    files.iter().for_each(|(_, rows)| spacing.merge(&rows.spacing));
    if spacing.count() == 0 {
        spacing = across(files);
    }
    let plain = |timeframe| Chosen { timeframe, inferred: false, by_date: false };
    let chosen = match (requested.or(held), spacing.timeframe()) {
        (Some(timeframe), _) => plain(timeframe),
        (None, Some(Inferred::Timeframe(timeframe, _))) => Chosen { inferred: true, ..plain(timeframe) },
        (None, Some(Inferred::Odd(step))) => {
            return Err(MarketError::Refused(format!(
                "the bars are {} apart, which is not a timeframe: set it with --timeframe, such as --timeframe 1m",
                length(step)
            )));
        }
        (None, None) => {
            if files.iter().any(|(_, rows)| with_clock(rows, options, calendar).is_some()) {
                let message = "with one bar per symbol the timeframe cannot be inferred: set it with --timeframe, such as \
                            --timeframe 1m";
                return Err(MarketError::Refused(message.to_owned()));
            }
            Chosen { by_date: true, ..plain(DAILY) }
        }
    };
    let timeframe = chosen.timeframe;
    // A timeframe that the user names is refused only by many bars; the dataset's says nothing about these files.
    let many = if requested.is_none() && held.is_some() { DATED_STEPS } else { MANY_STEPS };
    let each = files.iter().map(|(at, rows)| (inputs[*at].shown.as_str(), &rows.spacing, SURE_STEPS, MANY_STEPS));
    let whole = files.first().map(|(at, _)| (inputs[*at].shown.as_str(), &spacing, 1, many));
    for (file, spacing, least, many) in each.chain(whole) {
        let Some(why) = spacing.contradicts(timeframe, least, many) else { continue };
        let instead = match spacing.timeframe() {
            Some(Inferred::Timeframe(timeframe, _)) => Some(timeframe),
            _ => None,
        };
        let refused = |why: String, expected: String| MarketError::BadCsv { file: file.to_owned(), why, expected };
        let usable = instead.map_or_else(
            || "bars of a minute or longer".to_owned(),
            |timeframe| format!("--timeframe {timeframe}, or none to infer it from the bars"),
        );
        return Err(match (requested, held) {
            (Some(requested), _) => refused(format!("{why}, which contradicts --timeframe {requested}"), usable),
            (None, Some(held)) => {
                let message = format!("{why} in {file}, so they cannot be added");
                other_timeframe(&options.dataset, held, &message, instead.unwrap_or(held))
            }
            (None, None) => {
                let expected = "bars of one timeframe; import those of others into datasets of their own".to_owned();
                refused(format!("{why}, but those of the other files are {timeframe} apart"), expected)
            }
        });
    }
    if requested.is_none() && timeframe.is_dated() && spacing.count() < DATED_STEPS {
        check_clocks(inputs, files, options, calendar, (timeframe, held.is_some()))?;
    }
    Ok(chosen)
}

/// The first row whose time is not midnight, neither as written nor on the exchange's clock.
fn with_clock(rows: &Rows, options: &ImportOptions, calendar: Calendar) -> Option<usize> {
    let zone = options.read.zone.unwrap_or_else(|| calendar.zone());
    (0..rows.local.len()).find(|&row| {
        let (local, offset) = (rows.local[row], rows.offset[row]);
        let instant = || local - i64::from(offset) * SECOND;
        local.rem_euclid(DAY) != 0 && (offset == NAIVE || zone.wall(instant()).rem_euclid(DAY) != 0)
    })
}

/// Refuses bars with a time of day when too few follow each other to show that they are dated ones: one minute of each
/// symbol would replace the bars of that day.
fn check_clocks(
    inputs: &[Input],
    files: &[(usize, Rows)],
    options: &ImportOptions,
    calendar: Calendar,
    (timeframe, adds): (Timeframe, bool),
) -> Result<(), MarketError> {
    let found = files.iter().find_map(|(at, rows)| Some((at, rows, with_clock(rows, options, calendar)?)));
    let Some((at, rows, row)) = found else { return Ok(()) };
    let (file, line) = (&inputs[*at].shown, rows.lines[row]);
    let time = instants(rows).nth(row).map_or_else(String::new, format_time);
    let instead = if adds { ", or import shorter bars into a dataset of their own" } else { " or another one" };
    Err(MarketError::Refused(format!(
        "{file}, line {line}: the bar at {time} has a time of day, and too few bars follow each other to show that they \
         are bars of {timeframe}: set --timeframe {timeframe} if they are{instead}"
    )))
}

/// The error that a dataset holds bars of another timeframe, with advice.
pub(super) fn other_timeframe(dataset: &str, held: Timeframe, why: &str, other: Timeframe) -> MarketError {
    MarketError::Refused(format!(
        "dataset '{dataset}' holds bars of {held}, and {why}: import them into a dataset of their own, such as \
         --dataset {dataset}-{other}, or remove this one first (trawl data rm {dataset})"
    ))
}

/// How times are converted to the labels of bars.
#[derive(Clone, Copy)]
pub(crate) struct Labels {
    pub timeframe: Timeframe,
    pub zone: Option<Zone>,
    pub calendar: Calendar,
}

impl Labels {
    /// Dated bars are labelled by the date as written; where an instant is written instead, by its date in the zone of
    /// the exchange. All others by their start.
    fn label(self, local: TimeMicros, offset: i32) -> TimeMicros {
        let date = |local: TimeMicros| local - local.rem_euclid(DAY);
        match (self.timeframe.is_dated(), offset) {
            (true, 0) if local.rem_euclid(DAY) != 0 => {
                date(self.zone.unwrap_or_else(|| self.calendar.zone()).wall(local))
            }
            (true, _) => date(local),
            (false, NAIVE) => self.zone.map_or(local, |zone| zone.to_utc(local)),
            (false, offset) => local - i64::from(offset) * SECOND,
        }
    }
}

/// The bars of a file by symbol, the rows that are duplicates or out of order, and whether the file was newest first.
pub(crate) type Labelled = (BTreeMap<Arc<str>, SymbolRows>, Vec<(u64, Reason)>, bool);

/// Labels the rows of one file and puts them in order.
pub(crate) fn label_rows(rows: Rows, labels: Labels) -> Labelled {
    let Rows { symbols, of, local, offset, lines, values, .. } = rows;
    let times: Vec<TimeMicros> = local.iter().zip(&offset).map(|(l, o)| labels.label(*l, *o)).collect();
    drop((local, offset));
    let turned = newest_first(of.iter().copied().zip(times.iter().copied()));
    if symbols.len() == 1 && times.windows(2).all(|pair| pair[0] < pair[1]) {
        let symbol = Arc::clone(&symbols[0]);
        let bars = SymbolBars { symbol: Arc::clone(&symbol), times, columns: values };
        return (BTreeMap::from([(symbol, SymbolRows { bars, lines })]), Vec::new(), false);
    }
    let mut counts = vec![0usize; symbols.len()];
    of.iter().for_each(|symbol| counts[*symbol as usize] += 1);
    let empty = |(symbol, count): (&Arc<str>, &usize)| SymbolRows {
        bars: SymbolBars {
            symbol: Arc::clone(symbol),
            times: Vec::with_capacity(*count),
            columns: (0..values.len()).map(|_| Vec::with_capacity(*count)).collect(),
        },
        lines: Vec::with_capacity(*count),
    };
    let mut split: Vec<SymbolRows> = symbols.iter().zip(&counts).map(empty).collect();
    let mut bad = Vec::new();
    // Of rows with one time the first of the file is kept, also where the file is read from its end.
    let mut push = |row: usize| {
        let (rows, time) = (&mut split[of[row] as usize], times[row]);
        if rows.bars.times.last().is_some_and(|&last| time <= last) {
            match rows.bars.times.binary_search(&time) {
                Ok(known) if turned => {
                    bad.push((std::mem::replace(&mut rows.lines[known], lines[row]), Reason::DuplicateTime));
                    for (to, from) in rows.bars.columns.iter_mut().zip(&values) {
                        to[known] = from[row];
                    }
                }
                Ok(_) => bad.push((lines[row], Reason::DuplicateTime)),
                Err(_) => bad.push((lines[row], Reason::TimeOutOfOrder)),
            }
            return;
        }
        rows.bars.times.push(time);
        rows.lines.push(lines[row]);
        for (to, from) in rows.bars.columns.iter_mut().zip(&values) {
            to.push(from[row]);
        }
    };
    match turned {
        true => (0..times.len()).rev().for_each(&mut push),
        false => (0..times.len()).for_each(&mut push),
    }
    let split = symbols.into_iter().zip(split).filter(|(_, rows)| !rows.bars.times.is_empty()).collect();
    (split, bad, turned)
}

/// Labels the rows of all files, in parallel.
pub(super) fn label_all(files: Vec<(usize, Rows)>, labels: Labels) -> Vec<(usize, Vec<String>, Labelled)> {
    files
        .into_par_iter()
        .map(|(at, mut rows)| (at, std::mem::take(&mut rows.columns), label_rows(rows, labels)))
        .collect()
}

/// Refuses an import with more than a few bars on dates without a session; a calendar that the user named is accepted
/// as it is.
pub(super) fn check_calendar(
    fit: &Fit,
    options: &ImportOptions,
    existing: Option<&Dataset>,
) -> Result<(), MarketError> {
    let Some(misfit) = fit.misfit().filter(|_| options.calendar.is_none()) else { return Ok(()) };
    let advice = match (fit.better(), existing) {
        (Some(other), None) => format!("use --calendar {other}, which fits"),
        (Some(other), Some(_)) => format!(
            "these bars fit {other}: import them into a dataset of their own with --calendar {other}, or name the \
             dataset's calendar to keep it"
        ),
        (None, _) => "name the calendar with --calendar".to_owned(),
    };
    Err(MarketError::Refused(format!("{misfit}: {advice}")))
}
