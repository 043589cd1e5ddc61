//! The date of a file's bars from the folders above it, where lakes have it and the file does not: `date=2024-01-02`, or
//! `year=2024/month=01/day=02`. It becomes a column of dates behind those of the file; one of times of the day in the file is read with it.
//!
//! A file with dates of its own is read by those, whatever its path says, unless `--map time=KEY` names the key of a folder.

use super::ReadOptions;
use super::cells::Cells;
use super::presets::{TIME_ALIASES, role, snake};
use crate::error::MarketError;
use crate::limits::PIECE_BYTES;
use crate::sources::BarSource;
use crate::time::{DAY, DateOrder, TimeMicros, parse_of_day, parse_written};

/// Keys whose value is a date.
const DATE_KEYS: [&str; 4] = ["date", "dt", "ds", "day"];
/// Keys whose values are one together.
const PARTS: [&str; 3] = ["year", "month", "day"];
/// What the column of dates is called unless `--map` names it.
const HEADING: &str = "date";
/// What is expected of a path.
const EXPECTED: &str =
    "a folder such as date=2024-01-02, or year=2024/month=01/day=02, a column of times, or --map time=COLUMN_OR_KEY";

/// The date in a file's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathDate {
    /// Name of its column.
    pub heading: String,
    /// The column is bound as `--map` says, and not by its name: the file has times of its own.
    pub is_mapped: bool,
    /// Midnight.
    pub date: TimeMicros,
}

/// The value of a key among those of a path, the nearest one.
pub(crate) fn value_of<'p>(partitions: &'p [(String, String)], key: &str) -> Option<&'p str> {
    let found = partitions.iter().find(|(name, _)| name.eq_ignore_ascii_case(key.trim()));
    found.map(|(_, value)| value.as_str())
}

/// Whether `--map` gives a column or a key the meaning of a time.
pub(super) fn is_time(meaning: &str) -> bool {
    role(&meaning.trim().to_ascii_lowercase()) == Some("time")
}

/// What the columns of a file say about times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    /// A column of dates, or of dates and times.
    Whole,
    /// One under this index, which may have times of the day alone.
    Maybe(usize),
    None,
}

/// The date in the path of a file that needs it. The source is at its start again.
///
/// # Errors
/// [`MarketError::BadCsv`] where the path has no date, and the file no times; those of the source.
pub(super) fn path_date(
    shown: &str,
    source: &mut dyn BarSource,
    options: &ReadOptions,
) -> Result<Option<PathDate>, MarketError> {
    let partitions = &options.partitions;
    if partitions.is_empty() {
        return Ok(None);
    }
    let headers: Vec<String> = source.columns().iter().map(|header| header.trim().to_owned()).collect();
    let bad = |why: String| MarketError::BadCsv { file: shown.to_owned(), why, expected: EXPECTED.to_owned() };
    let times = |source: &mut dyn BarSource| {
        Ok::<_, MarketError>(match times_of(&headers) {
            Times::Maybe(column) if !is_of_day(source, column)? => Times::Whole,
            times => times,
        })
    };
    let mut map = options.map.iter();
    if let Some((_, named)) = map.find(|(meaning, _)| is_time(meaning)) {
        let named = named.trim();
        if headers.iter().any(|header| header.eq_ignore_ascii_case(named)) {
            return Ok(None);
        }
        if value_of(partitions, named).is_none() {
            return Err(bad(format!("neither its header nor its path has '{named}', which --map names")));
        }
        let date = date_of(partitions, named).map_err(bad)?;
        let is_mapped = times(source)? == Times::Whole;
        let heading = if is_mapped { named } else { HEADING }.to_owned();
        return Ok(Some(PathDate { heading, is_mapped, date }));
    }
    let times = times(source)?;
    if times == Times::Whole {
        return Ok(None);
    }
    let Some(key) = DATE_KEYS.into_iter().find(|key| value_of(partitions, key).is_some()) else {
        // Times of the day without a date are reported row by row, as in any file; an index without a name may have times.
        if matches!(times, Times::Maybe(_)) || headers.first().is_some_and(String::is_empty) {
            return Ok(None);
        }
        let keys: Vec<&str> = partitions.iter().rev().map(|(key, _)| key.as_str()).collect();
        let no_date = format!("and none of the keys in its path ({}) is a date", keys.join(", "));
        return Err(bad(format!("its header '{}' has no date or time, {no_date}", headers.join(","))));
    };
    let date = date_of(partitions, key).map_err(bad)?;
    Ok(Some(PathDate { heading: HEADING.to_owned(), is_mapped: false, date }))
}

/// The date of a key, or of the year, the month and the day together; the error says what is wrong with it.
fn date_of(partitions: &[(String, String)], key: &str) -> Result<TimeMicros, String> {
    let parts = PARTS.map(|part| value_of(partitions, part));
    let is_part = PARTS.iter().any(|part| part.eq_ignore_ascii_case(key));
    let written = match parts {
        [Some(year), Some(month), Some(day)] if is_part => {
            let number = |text: &str| text.trim().parse::<u32>().ok();
            match (number(year), number(month), number(day)) {
                (Some(year), Some(month), Some(day)) => format!("{year:04}-{month:02}-{day:02}"),
                _ => format!("{year}-{month}-{day}"),
            }
        }
        _ => value_of(partitions, key).unwrap_or_default().to_owned(),
    };
    let date = parse_written(&written, DateOrder::MonthFirst).filter(|date| date.offset.is_none());
    let date = date.map(|date| date.local).filter(|local| local.rem_euclid(DAY) == 0);
    date.ok_or_else(|| format!("'{written}' of the key '{key}' in its path is not a date"))
}

/// What a header says, as columns are bound.
fn times_of(headers: &[String]) -> Times {
    let named: Vec<String> = headers.iter().map(|header| snake(header)).collect();
    let has = |name: &str| named.iter().any(|other| other == name);
    if ["date", "datetime", "timestamp"].into_iter().chain(TIME_ALIASES).any(has) {
        return Times::Whole;
    }
    named.iter().position(|name| name == "time").map_or(Times::None, Times::Maybe)
}

/// Whether the first time in a column is one of the day.
fn is_of_day(source: &mut dyn BarSource, column: usize) -> Result<bool, MarketError> {
    let all = source.columns().len();
    source.want((0..all).map(|at| at == column).collect());
    let piece = source.next_piece(PIECE_BYTES)?;
    let found = piece.as_ref().map(|piece| -> Result<bool, MarketError> {
        let batch = piece.batch(0)?;
        let Some(array) = batch.columns.get(column) else { return Ok(false) };
        let cells = Cells::new(array);
        Ok(match cells {
            Cells::Clock(_) => true,
            Cells::Lines(_) | Cells::Text(_) => {
                let first = (0..array.len()).map(|row| cells.text(row)).find(|text| !text.trim().is_empty());
                first.is_some_and(|text| {
                    parse_of_day(&text).is_some() && parse_written(&text, DateOrder::MonthFirst).is_none()
                })
            }
            _ => false,
        })
    });
    let found = found.transpose()?.unwrap_or(false);
    drop(piece);
    source.rewind();
    source.want(vec![true; all]);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::format_time;

    fn keys(path: &str) -> Vec<(String, String)> {
        let named = path.split('/').rev().filter_map(|folder| folder.split_once('='));
        named.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn dates_are_read_from_one_key_or_from_three() {
        for (path, key, expected) in [
            ("date=2024-01-02", "date", Ok("2024-01-02")),
            ("DT=20240102/x=1", "dt", Ok("2024-01-02")),
            ("date=2024-01-01/date=2024-01-02", "date", Ok("2024-01-02")),
            ("year=2024/month=1/day=02", "day", Ok("2024-01-02")),
            ("year=2024/month=01/day=2", "year", Ok("2024-01-02")),
            ("day=2024-01-02", "day", Ok("2024-01-02")),
            ("year=2024/month=02/day=30", "day", Err("'2024-02-30' of the key 'day'")),
            ("year=2024/month=x/day=30", "day", Err("'2024-x-30' of the key 'day'")),
            ("year=2024/month=02", "month", Err("'02' of the key 'month'")),
            ("date=2024-01-02 10:30", "date", Err("'2024-01-02 10:30' of the key 'date'")),
            ("date=__HIVE_DEFAULT_PARTITION__", "date", Err("is not a date")),
            ("date=", "date", Err("'' of the key 'date' in its path is not a date")),
        ] {
            match (date_of(&keys(path), key), expected) {
                (Ok(date), Ok(expected)) => assert_eq!(format_time(date), expected, "{path}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{path}: {why}"),
                (found, _) => panic!("{path}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_file_with_dates_of_its_own_needs_none_of_its_path() {
        let times = |header: &str| times_of(&header.split(',').map(str::to_owned).collect::<Vec<_>>());
        for (header, expected) in [
            ("symbol,close", Times::None),
            ("symbol,time,close", Times::Maybe(1)),
            ("date,time,close", Times::Whole),
            ("window_start,close", Times::Whole),
            ("<DTYYYYMMDD>,close", Times::None),
            ("Timestamp,close", Times::Whole),
        ] {
            assert_eq!(times(header), expected, "{header}");
        }
    }
}
