//! A comparison as a table for people, and as JSON or CSV for programs.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};
use trawl_plan::ANSWER_TIME;
use trawl_wire::Status;

use super::compare::{Change, Difference, Pair, Side};
use crate::failure::UserMistake;
use crate::output::page::{Grid, Page, Tone};
use crate::output::table::{cell, short_snapshot};
use trawl_front::human::{counted, push_exact, readable};
use trawl_front::output::json::Number;
use trawl_front::output::read::TableRow;

/// Rows of one part that are shown by default.
const ROWS_SHOWN_MAX: usize = 50;
/// Most rows that did not change and are shown by default; of more only the number is.
const STILL_SHOWN_MAX: usize = 10;

/// How a comparison is written; chosen by the file's extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// One object.
    Json,
    /// One line for each row.
    Csv,
}

impl FileFormat {
    /// By extension, in any case.
    ///
    /// # Errors
    /// A mistake that names the two extensions.
    pub fn of(path: &Path) -> Result<Self, UserMistake> {
        match path.extension().unwrap_or_default().to_string_lossy().to_lowercase().as_str() {
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            _ => Err(UserMistake::with_help(
                format!("cannot tell from '{}' how to write the comparison", path.display()),
                "end the file name in .json or .csv",
            )),
        }
    }

    /// Writes all rows.
    ///
    /// # Errors
    /// The writer's error.
    pub fn write(self, difference: &Difference<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
        match self {
            Self::Json => json(difference, writer),
            Self::Csv => csv(difference, writer),
        }
    }
}

/// Values of the columns in one row, NaN where the row has none.
fn values<'a>(difference: &'a Difference<'_>, row: Option<&'a TableRow>, of_b: bool) -> impl Iterator<Item = f64> + 'a {
    difference.columns.iter().map(move |&(_, a, b)| {
        let index = if of_b { b } else { a };
        index.and_then(|i| row?.values.get(i).copied()).unwrap_or(f64::NAN)
    })
}

fn json(difference: &Difference<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    let side = |side: &Side| {
        json!({
            "file": side.path.display().to_string(),
            "identity": side.table.identity,
            "answer_digest": side.table.answer_digest,
        })
    };
    let row = |row: Option<&TableRow>, of_b: bool| -> anyhow::Result<Value> {
        let Some(row) = row else { return Ok(Value::Null) };
        let mut object = Map::new();
        object.insert("status".to_owned(), row.status.name().into());
        object.insert("reason".to_owned(), row.reason.as_str().into());
        object.insert("place".to_owned(), row.place.into());
        for (name, flag) in [("edge", row.edge), ("provisional", row.provisional)] {
            if let Some(flag) = flag {
                object.insert(name.to_owned(), flag.into());
            }
        }
        let mut named = Map::new();
        for (&(name, a, b), value) in difference.columns.iter().zip(values(difference, Some(row), of_b)) {
            if if of_b { b } else { a }.is_some() {
                named.insert(name.to_owned(), serde_json::to_value(Number(value))?);
            }
        }
        object.insert("values".to_owned(), named.into());
        Ok(object.into())
    };
    let mut counts = Map::new();
    let mut parts = Map::new();
    for change in Change::ALL {
        let pairs = difference.rows(change);
        counts.insert(change.name().to_owned(), pairs.len().into());
        let mut rows = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let Some(key) = pair.key() else { continue };
            let mut object = Map::new();
            object.insert("symbol".to_owned(), key.symbol.as_str().into());
            if !key.settings.is_empty() {
                let names = settings(difference).iter().cloned();
                let named: Map<String, Value> = names.zip(key.settings.iter().map(|s| s.as_str().into())).collect();
                object.insert("settings".to_owned(), named.into());
            }
            object.insert("a".to_owned(), row(pair.a, false)?);
            object.insert("b".to_owned(), row(pair.b, true)?);
            rows.push(Value::Object(object));
        }
        parts.insert(change.name().to_owned(), rows.into());
    }
    /// Written before the rows: which files were compared, and whether they can be.
    #[derive(Serialize)]
    struct Document<'a> {
        a: Value,
        b: Value,
        comparable: bool,
        identity_differences: &'a [super::compare::IdentityDifference],
        matches_differ: bool,
        counts: Value,
        #[serde(flatten)]
        parts: Value,
    }
    let document = Document {
        a: side(difference.a),
        b: side(difference.b),
        comparable: difference.comparable(),
        identity_differences: &difference.identity,
        matches_differ: difference.matches_differ(),
        counts: counts.into(),
        parts: parts.into(),
    };
    serde_json::to_writer_pretty(&mut *writer, &document)?;
    writer.write_all(b"\n")?;
    Ok(())
}

/// Names of a sweep's settings, from whichever answer has rows.
fn settings<'a>(difference: &'a Difference<'_>) -> &'a [String] {
    let (a, b) = (&difference.a.table.settings, &difference.b.table.settings);
    if b.is_empty() { a } else { b }
}

fn csv(difference: &Difference<'_>, writer: &mut impl Write) -> anyhow::Result<()> {
    let mut csv = ::csv::Writer::from_writer(writer);
    let mut head: Vec<String> = settings(difference).to_vec();
    head.extend(
        ["change", "symbol", "status_a", "reason_a", "place_a", "status_b", "reason_b", "place_b"].map(str::to_owned),
    );
    for (name, ..) in &difference.columns {
        head.extend([format!("{name}_a"), format!("{name}_b")]);
    }
    csv.write_record(&head)?;
    for change in Change::ALL {
        for pair in difference.rows(change) {
            let Some(key) = pair.key() else { continue };
            let mut fields = key.settings.clone();
            fields.resize(settings(difference).len(), String::new());
            fields.extend([change.name().to_owned(), key.symbol.clone()]);
            for row in [pair.a, pair.b] {
                fields.push(row.map_or_else(String::new, |row| row.status.name().to_owned()));
                fields.push(row.map_or_else(String::new, |row| row.reason.clone()));
                fields.push(row.and_then(|row| row.place).map_or_else(String::new, |place| place.to_string()));
            }
            for (a, b) in values(difference, pair.a, false).zip(values(difference, pair.b, true)) {
                for value in [a, b] {
                    let mut text = String::new();
                    push_exact(&mut text, value);
                    fields.push(text);
                }
            }
            csv.write_record(&fields)?;
        }
    }
    csv.flush()?;
    Ok(())
}

/// The whole text, ending in a line break. `all`: every row, however many.
pub fn table(difference: &Difference<'_>, all: bool, page: Page) -> String {
    let mut text = String::new();
    let count = |change| difference.rows(change).len();
    let _ = writeln!(
        text,
        "{} entered, {} left, {} still there; {} only in A, {} only in B",
        count(Change::Entered),
        count(Change::Left),
        count(Change::Still),
        count(Change::OnlyInA),
        count(Change::OnlyInB)
    );
    for side in [difference.a, difference.b] {
        let path = cell(&side.path.display().to_string());
        let of = |field| cell(side.identity(field).unwrap_or("?"));
        let name = side.table.name.as_deref().map_or_else(String::new, |name| format!("{}, ", cell(name)));
        let what = match &side.table.identity {
            Some(_) => format!("{}@{}, as of {}", of("dataset"), short_snapshot(&of("snapshot")), of("as_of")),
            None => "an answer without identity".to_owned(),
        };
        let _ = writeln!(text, "{} {path}: {name}{what}", side.name);
    }
    let summary = text.len();
    for change in Change::SHOWN {
        part(&mut text, difference, change, all, page);
    }
    if text.len() == summary {
        text.push_str("\nnothing matched in either\n");
    }
    text
}

/// One part with its rows; empty when there are none.
fn part(text: &mut String, difference: &Difference<'_>, change: Change, all: bool, page: Page) {
    let pairs = difference.rows(change);
    if pairs.is_empty() {
        return;
    }
    let title = match change {
        Change::Entered => "entered",
        Change::Left => "left",
        Change::Still => "still there",
        Change::OnlyInA => "only in A",
        Change::OnlyInB => "only in B",
    };
    let of = match settings(difference) {
        [] => "",
        [time] if time == ANSWER_TIME => " at a time",
        _ => " and setting",
    };
    let tone = match change {
        Change::Entered => Tone::Good,
        Change::Left => Tone::Bad,
        _ => Tone::Head,
    };
    let title = page.toned(tone, title);
    let _ = write!(text, "\n{title}: {}{of}", counted(pairs.len(), "symbol"));
    if change == Change::Still && pairs.len() > STILL_SHOWN_MAX && !all {
        text.push_str("; --all shows them\n");
        return;
    }
    text.push('\n');
    let shown = if all { pairs.len() } else { pairs.len().min(ROWS_SHOWN_MAX) };
    let mut head: Vec<String> = settings(difference).iter().map(|name| cell(name)).collect();
    let first = head.len();
    head.extend(["place", "symbol"].map(str::to_owned));
    head.extend(match change {
        Change::Entered => vec!["was".to_owned()],
        Change::Left => vec!["now".to_owned(), "reason".to_owned()],
        Change::Still => vec!["place in A".to_owned()],
        Change::OnlyInA | Change::OnlyInB => vec!["status".to_owned(), "reason".to_owned()],
    });
    let last = head.len();
    head.extend(difference.columns.iter().map(|(name, ..)| cell(name)));
    let mut numbers: Vec<usize> = (last..head.len()).collect();
    numbers.push(first);
    if change == Change::Still {
        numbers.push(first + 2);
    }
    let mut table = Grid::new(head, first + 2).numbers(numbers);
    for pair in &pairs[..shown] {
        table.row(cells(difference, change, pair));
    }
    table.push(text, page);
    text.truncate(text.len() - 1);
    if shown < pairs.len() {
        let _ = writeln!(text, "  ... and {} more: --all shows them, --output FILE keeps them", pairs.len() - shown);
    }
}

fn cells(difference: &Difference<'_>, change: Change, pair: &Pair<'_>) -> Vec<String> {
    let status = |row: Option<&TableRow>| row.map_or_else(String::new, |row| row.status.name().replace('_', " "));
    let reason = |row: Option<&TableRow>| row.map_or_else(String::new, |row| cell(&row.reason));
    let place = |row: Option<&TableRow>| row.and_then(|r| r.place).map_or_else(String::new, |p| p.to_string());
    // Place and values are of the side on which the row matched.
    let of_b = !matches!(change, Change::Left | Change::OnlyInA);
    let shown = if of_b { pair.b } else { pair.a };
    let mut cells: Vec<String> = pair.key().map_or_else(Vec::new, |row| row.settings.iter().map(|s| cell(s)).collect());
    cells.resize(settings(difference).len(), String::new());
    cells.extend([place(shown), pair.key().map_or_else(String::new, |row| cell(&row.symbol))]);
    cells.extend(match change {
        Change::Entered => vec![status(pair.a)],
        Change::Left => vec![status(pair.b), reason(pair.b)],
        Change::Still => vec![place(pair.a)],
        Change::OnlyInA | Change::OnlyInB => vec![status(shown), reason(shown)],
    });
    let matched = shown.is_some_and(|row| row.status == Status::Matched);
    let both = values(difference, pair.a, false).zip(values(difference, pair.b, true));
    cells.extend(both.map(|(a, b)| match change {
        Change::Still if a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()) => {
            format!("{} -> {}", readable(a), readable(b))
        }
        // With --values all both sides have values.
        Change::Left | Change::Entered if a.to_bits() != b.to_bits() && !a.is_nan() && !b.is_nan() => {
            format!("{} -> {}", readable(a), readable(b))
        }
        _ if matched => readable(if of_b { b } else { a }),
        _ => String::new(),
    }));
    cells
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::{side, two_days};
    use super::*;

    #[test]
    fn the_table_shows_what_entered_left_and_stayed_and_what_is_only_in_one() {
        let (a, b) = two_days();
        let difference = Difference::between(&a, &b).unwrap();
        let text = table(&difference, false, Page::default());
        assert!(text.contains("left: 1 symbol") && text.contains("1.5 -> 1.25"), "{text}");
        assert!(text.contains("1 entered, 1 left, 1 still there; 1 only in A, 1 only in B"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let of =
            |symbol: &str| lines.iter().find(|l| l.contains(symbol)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(of("COMES"), ["1", "COMES", "not", "matched", "9"]);
        assert_eq!(of("GOES"), ["2", "GOES", "stale", "no", "bar", "2"]);
        assert_eq!(of("DELISTED"), ["3", "DELISTED", "matched", "3"]);
        assert_eq!(of("LISTED")[0], "3", "DELISTED comes first");
        assert!(!text.contains("DULL"), "{text}");
        assert!(text.starts_with("1 entered, "), "the summary comes first: {text}");
        assert!(lines.iter().rposition(|l| l.contains("STAYS")) > lines.iter().rposition(|l| l.contains("LISTED")));
    }

    #[test]
    fn files_of_many_times_are_paired_by_time_and_many_that_stayed_are_counted() {
        let of_many = |name, times: &[&str]| {
            let rows: Vec<_> = times.iter().map(|_| ("X", Status::Matched, Some(1), 1.0)).collect();
            let mut side = side(name, "1", &rows);
            side.table.settings = vec![ANSWER_TIME.to_owned()];
            for (row, time) in side.table.rows.iter_mut().zip(times) {
                row.settings = vec![(*time).to_owned()];
            }
            side
        };
        let days: Vec<String> = (10..22).map(|day| format!("2024-01-{day}")).collect();
        let days: Vec<&str> = days.iter().map(String::as_str).collect();
        let (a, b) = (of_many("A", &days[..11]), of_many("B", &days));
        let text = table(&Difference::between(&a, &b).unwrap(), false, Page::default());
        assert!(text.contains("\nonly in B: 1 symbol at a time\n time "), "{text}");
        assert!(text.ends_with("\nstill there: 11 symbols at a time; --all shows them\n"), "{text}");
        let (one, _) = two_days();
        let message = Difference::between(&one, &b).unwrap_err().to_string();
        assert!(message.contains("'B.csv' has the answers at many times, 'A.csv' has one"), "{message}");
    }

    #[test]
    fn the_files_hold_both_sides_of_every_row() {
        let (a, b) = two_days();
        let difference = Difference::between(&a, &b).unwrap();
        let mut bytes = Vec::new();
        FileFormat::Csv.write(&difference, &mut bytes).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "change,symbol,status_a,reason_a,place_a,status_b,reason_b,place_b,close_a,close_b\n\
             entered,COMES,not_matched,,,matched,,1,,9\n\
             left,GOES,matched,,2,stale,no bar,,2,\n\
             still,STAYS,matched,,1,matched,,2,1.5,1.25\n\
             only_in_a,DELISTED,matched,,3,,,,3,\n\
             only_in_b,LISTED,,,,not_matched,,,,\n"
        );
        let mut bytes = Vec::new();
        FileFormat::Json.write(&difference, &mut bytes).unwrap();
        let read: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read["counts"], json!({"entered": 1, "left": 1, "still": 1, "only_in_a": 1, "only_in_b": 1}));
        assert_eq!((&read["comparable"], &read["matches_differ"]), (&json!(true), &json!(true)));
        assert_eq!(
            read["left"],
            json!([{
                "symbol": "GOES",
                "a": {"status": "matched", "reason": "", "place": 2, "values": {"close": 2.0}},
                "b": {"status": "stale", "reason": "no bar", "place": null, "values": {"close": null}},
            }])
        );
        assert_eq!(read["only_in_b"][0]["a"], Value::Null);
        assert_eq!(read["a"]["identity"]["as_of"], "2013-02-21");
    }

    #[test]
    fn text_from_a_file_cannot_control_the_terminal() {
        let a = side("A", "1\u{1b}[2J", &[("X\u{7}", Status::Matched, Some(1), 1.0)]);
        let b = side("B", "2", &[]);
        let text = table(&Difference::between(&a, &b).unwrap(), true, Page::default());
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
}
