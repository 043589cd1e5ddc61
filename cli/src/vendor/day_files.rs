//! Files of one day each, `YYYY-MM-DD.csv.gz` in folders of years and months, in a directory or a bucket.
//!
//! Only names and sizes are looked at. A file is known by a tag, which changes when the file is published again.

use std::collections::BTreeMap;

use trawl_market::{TimeMicros, Timeframe, format_time, parse_time};

use super::place::{Found, Place};
use crate::failure::UserMistake;

/// Folders above the files that are searched: `us_stocks_sip/day_aggs_v1/2024/01` from the bucket on.
const DEPTH_MAX: usize = 6;
/// Endings of a day's file.
const ENDINGS: [&str; 2] = [".csv.gz", ".csv"];
/// What a folder's name says about the bars in it.
const KINDS: [(&str, &str); 2] = [("day_aggs", "1d"), ("minute_aggs", "1m")];

/// Microseconds of a day.
pub const DAY: TimeMicros = 86_400_000_000;

/// A file of a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayFile {
    /// Midnight in UTC of the date in its name.
    pub date: TimeMicros,
    /// Where it is.
    pub file: Found,
}

/// The files that were found.
#[derive(Debug)]
pub struct DayFiles {
    /// By date.
    pub days: BTreeMap<TimeMicros, DayFile>,
    /// Which folders were not searched, if any were too deep.
    pub unsearched: Option<String>,
}

/// The date in a file's name.
fn date_of(name: &str) -> Option<TimeMicros> {
    let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending))?;
    date(stem)
}

/// `YYYY-MM-DD` and nothing else.
pub fn date(text: &str) -> Option<TimeMicros> {
    let written = text.len() == 10
        && text.bytes().enumerate().all(|(at, c)| match at {
            4 | 7 => c == b'-',
            _ => c.is_ascii_digit(),
        });
    if written { parse_time(text) } else { None }
}

/// Whether a folder's name is that of a year or of a month whose days are all outside of the span.
fn is_outside(path: &str, (from, to): (TimeMicros, TimeMicros)) -> bool {
    let mut parts = path.rsplit('/');
    let (Some(last), before) = (parts.next(), parts.next()) else { return false };
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|c| c.is_ascii_digit());
    let (first, days) = match before {
        _ if digits(last, 4) => (date(&format!("{last}-01-01")), 365),
        Some(year) if digits(year, 4) && digits(last, 2) => (date(&format!("{year}-{last}-01")), 30),
        _ => return false,
    };
    // Its last day is at most so many days after its first.
    first.is_some_and(|first| first > to || first + days * DAY < from)
}

/// The files of the days of a span, both ends included, by date.
///
/// # Errors
/// A place that cannot be listed; [`UserMistake`] for two files of one day, and for none at all.
pub fn day_files(place: &Place, span: (TimeMicros, TimeMicros)) -> anyhow::Result<DayFiles> {
    let mut days: BTreeMap<TimeMicros, DayFile> = BTreeMap::new();
    let mut too_deep: Vec<String> = Vec::new();
    let mut waiting = vec![(String::new(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        let (folders, files) = place.list(&folder)?;
        for file in files {
            let name = file.name();
            let Some(date) = date_of(name).filter(|date| (span.0..=span.1).contains(date)) else { continue };
            if let Some(other) = days.get(&date) {
                let (one, two) = (place.shown(&other.file.path), place.shown(&file.path));
                return Err(UserMistake::with_help(
                    format!("{} has two files: {one} and {two}", format_time(date)),
                    "name the folder of one kind, such as us_stocks_sip/day_aggs_v1",
                )
                .into());
            }
            days.insert(date, DayFile { date, file });
        }
        let inside = folders.into_iter().filter(|path| !is_outside(path, span));
        if depth < DEPTH_MAX {
            waiting.extend(inside.map(|path| (path, depth + 1)));
        } else {
            too_deep.extend(inside);
        }
    }
    too_deep.sort_unstable();
    if days.is_empty() {
        let unsearched = unsearched(place, &too_deep).map_or_else(String::new, |what| format!("; {what}"));
        return Err(UserMistake::with_help(
            format!(
                "{} has no file of a day, such as 2024/06/2024-06-28.csv.gz, in these dates{unsearched}",
                place.shown("")
            ),
            "name the folder of one kind of aggregates, such as s3://flatfiles/us_stocks_sip/day_aggs_v1",
        )
        .into());
    }
    Ok(DayFiles { days, unsearched: unsearched(place, &too_deep) })
}

/// What is said about folders that were not searched.
fn unsearched(place: &Place, folders: &[String]) -> Option<String> {
    let first = place.shown(folders.first()?);
    let more = match folders.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!(
        "{first}{more} was not searched for files of days: it is more than {DEPTH_MAX} folders below {}",
        place.shown("")
    ))
}

/// The market and the length of the bars, as far as the folders' names say them: `us_stocks_sip`, `1d`.
///
/// # Errors
/// [`UserMistake`] where the folders say both lengths.
pub fn kind_of(
    place: &Place,
    days: &BTreeMap<TimeMicros, DayFile>,
) -> Result<(Option<String>, Option<Timeframe>), UserMistake> {
    let mut found: Option<(Option<String>, &str)> = None;
    for file in days.values() {
        let whole = place.shown(&file.file.path);
        let parts: Vec<&str> = whole.split(['/', '\\']).collect();
        // The nearest folder counts: those above may be named after anything.
        let known = parts.iter().enumerate().rev().find_map(|(at, part)| {
            let (_, timeframe) = KINDS.iter().find(|(kind, _)| part.starts_with(kind))?;
            let market = at.checked_sub(1).and_then(|at| parts.get(at)).filter(|market| is_market(market));
            Some((market.map(|market| (*market).to_owned()), *timeframe))
        });
        match (&found, known) {
            (Some((_, known)), Some((_, other))) if *known != other => {
                return Err(UserMistake::with_help(
                    format!("{} has files of days and of minutes", place.shown("")),
                    "name the folder of one of them, such as us_stocks_sip/day_aggs_v1",
                ));
            }
            (None, Some(kind)) => found = Some(kind),
            _ => {}
        }
    }
    let Some((market, timeframe)) = found else { return Ok((None, None)) };
    Ok((market, timeframe.parse().ok()))
}

/// Whether a folder is named like a market: `us_stocks_sip`, `global_crypto`.
fn is_market(name: &str) -> bool {
    ["us_", "global_"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    #[test]
    fn files_of_days_are_found_by_their_names_and_only_in_the_span() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::parse(folder.path().to_str().unwrap()).unwrap();
        for path in [
            "us_stocks_sip/day_aggs_v1/2023/12/2023-12-29.csv.gz",
            "us_stocks_sip/day_aggs_v1/2024/01/2024-01-02.csv.gz",
            "us_stocks_sip/day_aggs_v1/2024/01/2024-01-03.csv",
            "us_stocks_sip/day_aggs_v1/2024/01/2024-01-04.csv.gz.part",
            "us_stocks_sip/day_aggs_v1/2024/01/notes.csv",
            "us_stocks_sip/day_aggs_v1/2024/02/2024-02-30.csv",
            "us_stocks_sip/day_aggs_v1/2024/03/2024-03-01.csv",
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let found = |from: &str, to: &str| -> Vec<String> {
            day_files(&place, (at(from), at(to))).unwrap().days.into_keys().map(format_time).collect()
        };
        assert_eq!(found("2024-01-01", "2024-02-29"), ["2024-01-02", "2024-01-03"]);
        assert_eq!(found("2023-01-01", "2025-01-01").len(), 4);
        assert_eq!(found("2024-01-03", "2024-01-03"), ["2024-01-03"]);
        let none = day_files(&place, (at("2022-01-01"), at("2022-12-31"))).unwrap_err().to_string();
        assert!(none.contains("no file of a day"), "{none}");
        let days = day_files(&place, (at("2024-01-01"), at("2024-02-29"))).unwrap().days;
        let day: Timeframe = "1d".parse().unwrap();
        assert_eq!(kind_of(&place, &days).unwrap(), (Some("us_stocks_sip".to_owned()), Some(day)));
        let minutes = folder.path().join("us_stocks_sip/minute_aggs_v1/2024/01");
        fs::create_dir_all(&minutes).unwrap();
        fs::write(minutes.join("2024-01-05.csv.gz"), "x").unwrap();
        let days = day_files(&place, (at("2024-01-01"), at("2024-02-29"))).unwrap().days;
        assert!(kind_of(&place, &days).unwrap_err().to_string().contains("days and of minutes"));
        let below = Place::parse(minutes.parent().unwrap().to_str().unwrap()).unwrap();
        let minute: Timeframe = "1m".parse().unwrap();
        let copied = folder.path().join("day_aggs_and_more/minute_aggs_v1");
        fs::create_dir_all(&copied).unwrap();
        fs::write(copied.join("2024-01-05.csv.gz"), "x").unwrap();
        for place in [below, Place::parse(copied.to_str().unwrap()).unwrap()] {
            let days = day_files(&place, (at("2024-01-01"), at("2024-02-29"))).unwrap().days;
            assert_eq!(kind_of(&place, &days).unwrap().1, Some(minute), "{}", place.shown(""));
        }
        fs::remove_dir_all(copied.parent().unwrap()).unwrap();
        fs::write(minutes.join("2024-01-02.csv.gz"), "x").unwrap();
        let twice = day_files(&place, (at("2024-01-01"), at("2024-02-29"))).unwrap_err().to_string();
        assert!(twice.contains("2024-01-02 has two files"), "{twice}");
    }

    #[test]
    fn folders_that_are_too_deep_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::parse(folder.path().to_str().unwrap()).unwrap();
        let span = (at("2024-01-01"), at("2024-02-29"));
        let write = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        write("1/2/3/4/5/6/7/2024-01-02.csv");
        write("1/2/3/4/5/6/2022/2022-01-03.csv");
        let none = day_files(&place, span).unwrap_err().to_string();
        assert!(none.contains("in these dates; ") && none.contains("1/2/3/4/5/6/7 was not searched"), "{none}");
        write("1/2/3/4/5/6/2024-01-03.csv");
        let found = day_files(&place, span).unwrap();
        assert_eq!(found.days.len(), 1);
        assert!(found.unsearched.unwrap().contains("1/2/3/4/5/6/7 was not searched"));
        let below = Place::parse(folder.path().join("1").to_str().unwrap()).unwrap();
        let found = day_files(&below, span).unwrap();
        assert_eq!((found.days.len(), found.unsearched), (2, None));
    }

    #[test]
    fn folders_of_other_years_and_months_are_not_listed() {
        let span = (at("2023-12-15"), at("2024-02-03"));
        for outside in ["2022", "x/2025", "2023/11", "x/2024/03"] {
            assert!(is_outside(outside, span), "{outside}");
        }
        for inside in ["", "x", "2023", "2024", "2023/12", "2024/01", "x/2024/02", "12", "day_aggs_v1"] {
            assert!(!is_outside(inside, span), "{inside}");
        }
    }
}
