//! Interprets the times of an import once all its files are known: the length of a bar, and which bars are duplicates or
//! out of order. Contradictions are refused with advice.

use super::ImportOptions;
use super::fit::Fit;
use super::inputs::ReadFile;
use super::spool::{Load, Spooled, SymbolRows};
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::reading::{DATED_STEPS, Inferred, MANY_STEPS, NAIVE, SURE_STEPS, Spacing, length};
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

/// The instant of a row, a time without a zone taken as UTC.
fn instant(local: TimeMicros, offset: i32) -> TimeMicros {
    if offset == NAIVE { local } else { local - i64::from(offset) * SECOND }
}

/// Steps between bars of a symbol that are in different files.
fn across(rows: &Spooled) -> Result<Spacing, MarketError> {
    let mut spacing = Spacing::default();
    let steps = |rows: &SymbolRows| {
        let mut times: Vec<TimeMicros> =
            rows.local.iter().zip(&rows.offset).map(|(local, offset)| instant(*local, *offset)).collect();
        times.sort_unstable();
        let mut steps = Spacing::default();
        times.windows(2).for_each(|pair| steps.add(pair[1] - pair[0]));
        steps
    };
    rows.scan(Load::Times, steps)?.iter().for_each(|steps| spacing.merge(steps));
    Ok(spacing)
}

/// The requested timeframe, else the dataset's, else the one inferred from the bars; refused where the bars contradict
/// it.
pub(super) fn choose_timeframe(
    inputs: &[Input],
    (files, rows): (&[ReadFile], &Spooled),
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
    files.iter().for_each(|file| spacing.merge(&file.facts.spacing));
    if spacing.count() == 0 {
        spacing = across(rows)?;
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
            if with_clock(rows, options, calendar)?.is_some() {
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
    let each = files.iter().map(|file| (inputs[file.at].shown.as_str(), &file.facts.spacing, SURE_STEPS, MANY_STEPS));
    // A bar out of place is in one of the files; of several that contradict only together, none is named alone.
    let own = files.iter().find(|file| file.facts.spacing.contradicts(timeframe, 1, many).is_some());
    let blamed = own.or(files.first()).map(|file| match (own, files.len() - 1) {
        (Some(_), _) | (None, 0) => inputs[file.at].shown.clone(),
        (None, more) => format!("{} (and {more} more)", inputs[file.at].shown),
    });
    let whole = blamed.iter().map(|shown| (shown.as_str(), &spacing, 1, many));
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
        check_clocks(inputs, (files, rows), options, calendar, (timeframe, held.is_some()))?;
    }
    Ok(chosen)
}

/// The first row whose time is not midnight, neither as written nor on the exchange's clock: its file, its line, its instant.
fn with_clock(
    rows: &Spooled,
    options: &ImportOptions,
    calendar: Calendar,
) -> Result<Option<(usize, u64, TimeMicros)>, MarketError> {
    let zone = options.read.zone.unwrap_or_else(|| calendar.zone());
    let has_clock = |local: TimeMicros, offset: i32| {
        local.rem_euclid(DAY) != 0 && (offset == NAIVE || zone.wall(instant(local, offset)).rem_euclid(DAY) != 0)
    };
    let first = |rows: &SymbolRows| {
        let of_file = |(file, range): &(usize, std::ops::Range<usize>)| {
            let row = range.clone().find(|&row| has_clock(rows.local[row], rows.offset[row]))?;
            Some((*file, rows.rows[row], instant(rows.local[row], rows.offset[row])))
        };
        rows.files.iter().find_map(of_file)
    };
    let first = rows.scan(Load::Rows, first)?.into_iter().flatten().min_by_key(|(file, row, _)| (*file, *row));
    Ok(first.map(|(file, row, time)| (file, rows.line(row), time)))
}

/// Refuses bars with a time of day when too few follow each other to show that they are dated ones: one minute of each
/// symbol would replace the bars of that day.
fn check_clocks(
    inputs: &[Input],
    (files, rows): (&[ReadFile], &Spooled),
    options: &ImportOptions,
    calendar: Calendar,
    (timeframe, adds): (Timeframe, bool),
) -> Result<(), MarketError> {
    let Some((file, line, time)) = with_clock(rows, options, calendar)? else { return Ok(()) };
    let (file, time) = (&inputs[files[file].at].shown, format_time(time));
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
    pub fn label(self, local: TimeMicros, offset: i32) -> TimeMicros {
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
