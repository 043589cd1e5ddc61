//! The zone of times without one: the named one, else UTC where the bars do not contradict it.

use std::collections::BTreeSet;

use super::ImportOptions;
use super::fit::{percent, share_outside};
use super::inputs::ReadFile;
use super::spool::{Load, Spooled, SymbolRows};
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::limits::FIT_BARS_MAX;
use crate::reading::FileSeries;
use crate::time::TimeMicros;
use crate::zone::Zone;

/// Zones that are tried for times without one, besides the calendar's own.
const ZONES_TRIED: [&str; 5] = ["America/New_York", "Europe/London", "Europe/Berlin", "Europe/Athens", "Asia/Tokyo"];
/// Least number of bars to conclude that one zone fits better than another.
const ZONE_BARS_MIN: usize = 20;
/// A zone in which this much more of the bars lies outside the sessions is not theirs.
const CLEARLY_WORSE: f64 = 0.05;
const READ_AS_UTC: &str = "times without a zone were read as UTC; --tz sets their zone";

/// The zone of times without one: the requested one, else that of the files' format. `None` reads them as UTC, which is
/// refused where the bars' times of day contradict it, and, for a dataset that exists, where they do not show it.
pub(super) fn choose_zone(
    (files, rows): (&[ReadFile], &Spooled),
    options: &ImportOptions,
    calendar: Calendar,
    existing: Option<&Dataset>,
    notes: &mut Vec<String>,
) -> Result<Option<Zone>, MarketError> {
    let zones: BTreeSet<Option<&str>> = files.iter().map(|file| file.facts.format.zone()).collect();
    let of_format = zones.first().copied().flatten().filter(|_| zones.len() == 1);
    if let Some(zone) = options.read.zone {
        return Ok(Some(zone));
    }
    if let Some(name) = of_format {
        return Zone::named(name).map(Some);
    }
    let count: u64 = files.iter().map(|file| file.naive).sum();
    if count == 0 {
        return Ok(None);
    }
    let sample = sample(files, rows, count / FIT_BARS_MAX as u64 + 1)?;
    let shown = reads_as_utc(&sample, calendar)?;
    if let (false, Some(existing)) = (shown, existing) {
        let (name, zone) = (&existing.manifest.name, calendar.zone().name());
        return Err(MarketError::Refused(format!(
            "the bars have times without a zone and do not show which it is; dataset '{name}' exists, and the zone of its \
             earlier files is not known: name it with --tz, such as --tz {zone}, or --tz UTC if they are UTC"
        )));
    }
    notes.push(READ_AS_UTC.to_owned());
    Ok(None)
}

/// Local times without a zone: every so many of all of them, in the order of the files.
fn sample(files: &[ReadFile], rows: &Spooled, step: u64) -> Result<Vec<TimeMicros>, MarketError> {
    let mut before = Vec::with_capacity(files.len());
    let mut sum = 0;
    for file in files {
        before.push(sum);
        sum += file.naive;
    }
    let chosen = |found: &SymbolRows| {
        let of_file = |(file, range): &(usize, std::ops::Range<usize>)| {
            let rank = |row: usize| rows.naive_rank(found.rows[row]).map(|rank| before[*file] + rank);
            let chosen = range.clone().filter_map(|row| Some((rank(row)?, found.local[row])));
            chosen.filter(|(rank, _)| rank % step == 0).collect::<Vec<_>>()
        };
        found.files.iter().flat_map(of_file).collect::<Vec<_>>()
    };
    let mut chosen = rows.scan(Load::Rows, chosen)?.concat();
    chosen.sort_unstable();
    Ok(chosen.into_iter().map(|(_, local)| local).collect())
}

/// Whether only UTC fits these local times.
///
/// # Errors
/// [`MarketError::Refused`] where UTC does not fit, or another zone fits better.
fn reads_as_utc(sample: &[TimeMicros], calendar: Calendar) -> Result<bool, MarketError> {
    let outside = |zone: Zone| share_outside(calendar, sample.iter().map(|local| zone.to_utc(*local)));
    let as_utc = outside(Zone::UTC);
    let tried = ZONES_TRIED.iter().filter_map(|name| Zone::named(name).ok());
    let all: Vec<(f64, Zone)> =
        std::iter::once(calendar.zone()).chain(tried).map(|zone| (outside(zone), zone)).collect();
    let best = all.iter().min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share < as_utc / 2.0);
    let other_is_better = sample.len() >= ZONE_BARS_MIN
        && best.is_some_and(|(share, zone)| {
            let doubtful = if *zone == calendar.zone() { 0.02 } else { 0.1 };
            as_utc > doubtful && share * 4.0 < as_utc
        });
    if as_utc <= 0.5 && !other_is_better {
        let same = |zone: Zone| sample.iter().all(|local| zone.to_utc(*local) == *local);
        let others_fail = all.iter().all(|(share, zone)| *share > as_utc + CLEARLY_WORSE || same(*zone));
        return Ok(sample.len() >= ZONE_BARS_MIN && others_fail);
    }
    let advice = match best {
        Some((share, zone)) => {
            let zone = zone.name();
            format!("read in {zone} it would be {}: set --tz {zone}, or --tz UTC if they are UTC", percent(*share))
        }
        None => {
            "set --tz to the zone of these times, or to UTC if they are UTC, or set the --calendar that fits".to_owned()
        }
    };
    Err(MarketError::Refused(format!(
        "{} of the bars are outside the regular sessions of {} when times without a zone are read as UTC; {advice}",
        percent(as_utc),
        calendar.name()
    )))
}

/// That times of day without a zone can be read as UTC: what an import would decide about bars at these times.
///
/// # Errors
/// [`MarketError::Refused`] where the bars contradict UTC.
pub fn check_times_without_zone(times: &[TimeMicros], calendar: Calendar) -> Result<(), MarketError> {
    let sample: Vec<TimeMicros> = times.iter().copied().step_by(times.len() / FIT_BARS_MAX + 1).collect();
    reads_as_utc(&sample, calendar).map(drop)
}

impl FileSeries {
    /// What an import would decide about times without a zone; only expressions that use a calendar depend on it. A note
    /// if they are read as UTC, `None` where the file or the options say the zone.
    ///
    /// # Errors
    /// [`MarketError::Refused`] where the bars contradict UTC.
    pub fn check_zone(&self, calendar: Calendar) -> Result<Option<String>, MarketError> {
        if self.naive.is_empty() {
            return Ok(None);
        }
        reads_as_utc(&self.naive, calendar).map(|_| Some(READ_AS_UTC.to_owned()))
    }
}
