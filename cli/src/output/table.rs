//! The answer as text for people: matches, the number of symbols by status, and why some gave no answer.
//!
//! On a terminal it fits its width and has colours; anywhere else it is always the same. Programs should not parse it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use trawl_front::human::{counted, readable};
use trawl_front::output::{Counts, select_kind, select_text, setting_names, settings_of};
use trawl_kernels::Precision;
use trawl_market::{Zone, parse_time};
use trawl_plan::{ColumnKind, Setting};
use trawl_wire::{Answer, AnswerRow, Status};

use super::matrix;
use super::page::{Grid, Page, Tone};
pub use super::page::{cell, clean};

/// Answers of up to this many rows list every symbol that has a reason; longer ones group the symbols by reason.
const LISTED_SYMBOLS_MAX: usize = 20;
/// Matches shown by default.
const MATCHES_SHOWN_MAX: usize = 50;
/// Different reasons shown for one status.
const REASONS_SHOWN_MAX: usize = 3;
/// Symbols named as examples of a reason.
const EXAMPLES_SHOWN_MAX: usize = 3;
/// Combinations of a sweep that are shown.
const POINTS_SHOWN_MAX: usize = 50;
/// Hex digits of a snapshot id that are shown; enough to name it as `NAME@SNAPSHOT`.
const SNAPSHOT_DIGITS: usize = 12;
/// Behind what is shown of a generated market.
const SYNTHETIC: &str = " (SYNTHETIC data, no real market)";

/// What the table shows besides the answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Every match and every symbol, however many.
    pub all: bool,
    /// Generated data are always marked as such.
    pub synthetic: bool,
    /// Of the dataset, `1d`; empty when not known.
    pub timeframe: &'a str,
    /// The as-of on the exchange's clock; empty when not known, then the identity's is shown.
    pub as_of: &'a str,
    /// The exchange's, where bars are shorter than a day: times in reasons are shown on its clock.
    pub zone: Option<Zone>,
    /// Where the text goes.
    pub page: Page,
}

/// The whole text, ending in a line break.
pub fn render(answer: &Answer, options: Options<'_>) -> String {
    let mut text = String::new();
    let scans = matrix::scans(answer);
    match &scans {
        Some(scans) => matrix::push(&mut text, answer, scans, (options.all, options.page)),
        None => matches(&mut text, answer, options),
    }
    if answer.points.len() > 1 && !answer.best {
        points(&mut text, answer, options.page);
    } else if options.all {
        // Matches are above.
        symbols(&mut text, answer.rows.iter().filter(|r| r.place.is_none()).collect(), options);
    } else if answer.rows.len() <= LISTED_SYMBOLS_MAX {
        symbols(&mut text, answer.rows.iter().filter(|r| !r.row.reason.is_empty()).collect(), options);
    } else {
        reasons(&mut text, answer, options.zone);
    }
    let counts = Counts::of(answer);
    if counts.rows[Status::Outside as usize] > 0 && counts.rows[Status::Outside as usize] == answer.rows.len() {
        text.push_str("no symbol is in the universe\n");
    }
    let times = match (answer.best, answer.points.len()) {
        (true, points) => format!(", each at the best of {points} combinations"),
        (false, 0 | 1) => String::new(),
        (false, several) if scans.is_some() => format!(", {several} scans each"),
        (false, points) => format!(", {points} combinations each"),
    };
    let _ = writeln!(text, "{}{times}", counts_line(counts, options.page));
    let identity = &answer.identity;
    let timeframe = if options.timeframe.is_empty() { String::new() } else { format!(", {} bars", options.timeframe) };
    let precision = match identity.precision.as_str() {
        text if Precision::named(text) == Some(Precision::F64) => String::new(),
        other => format!(", in {other}"),
    };
    let _ = writeln!(
        text,
        "dataset {}@{}{timeframe}, as of {}{precision}{}",
        identity.dataset,
        short_snapshot(&identity.snapshot),
        if options.as_of.is_empty() { &identity.as_of } else { options.as_of },
        if options.synthetic { options.page.toned(Tone::Bad, SYNTHETIC) } else { String::new() },
    );
    text
}

/// `1 matched, 4 not matched: 5 symbols in all`.
fn counts_line(counts: Counts, page: Page) -> String {
    let order = [Status::Matched, Status::NotMatched, Status::Unknown, Status::Outside, Status::Stale, Status::Failed];
    let part = |status: &Status| {
        let count = counts.rows[*status as usize];
        let part = format!("{count} {}", status.name().replace('_', " "));
        match status {
            Status::Matched if count > 0 => page.toned(Tone::Good, &part),
            Status::Failed if count > 0 => page.toned(Tone::Bad, &part),
            _ => part,
        }
    };
    let parts: Vec<String> = order.iter().map(part).collect();
    let rows = counts.total();
    let of = if rows == counts.symbols { String::new() } else { format!("{} of ", counted(rows, "row")) };
    format!("{} = {of}{}", parts.join(" + "), counted(counts.symbols, "symbol"))
}

/// The digits of a snapshot id that are shown.
pub fn short_snapshot(snapshot: &str) -> &str {
    snapshot.get(..SNAPSHOT_DIGITS).unwrap_or(snapshot)
}

fn matches(text: &mut String, answer: &Answer, options: Options<'_>) {
    let placed: Vec<&AnswerRow> = answer.rows.iter().filter(|r| r.place.is_some()).collect();
    let matched = answer.counts()[Status::Matched as usize];
    // A symbol may match at several points of a sweep.
    let noun = if answer.points.len() > 1 { "row" } else { "symbol" };
    if placed.is_empty() {
        if matched > 0 {
            let _ = writeln!(text, "{} matched; the limit keeps none of them\n", counted(matched, noun));
        } else {
            text.push_str("no symbol matched\n\n");
        }
        return;
    }
    let shown = if options.all { placed.len() } else { placed.len().min(MATCHES_SHOWN_MAX) };
    let settings = setting_names(answer);
    let flagged = placed[..shown].iter().any(|r| !flags(r).is_empty());
    let mut headings = settings.clone();
    headings.extend(["place", "symbol"]);
    headings.extend(flagged.then_some("flags"));
    let before = headings.len();
    headings.extend(answer.select.iter().map(String::as_str));
    let is_text = |at: &usize| matches!(select_kind(answer, at - before), ColumnKind::Text(_));
    let numbers = (0..=settings.len()).chain((before..headings.len()).filter(|at| !is_text(at)));
    let mut table = Grid::new(headings.into_iter().map(cell).collect(), before).numbers(numbers);
    for row in &placed[..shown] {
        let mut cells: Vec<String> = settings_of(answer, row).iter().map(|(_, value)| setting(value)).collect();
        cells.extend([row.place.map_or_else(String::new, |p| p.to_string()), cell(&row.row.symbol)]);
        cells.extend(flagged.then(|| flags(row).to_owned()));
        let value = |(at, value): (usize, &f64)| match select_text(select_kind(answer, at), *value) {
            Some(text) => cell(&text),
            None => readable(*value),
        };
        cells.extend(row.row.values.iter().enumerate().map(value));
        table.row(cells);
    }
    table.push(text, options.page);
    if shown < placed.len() {
        let rest = placed.len() - shown;
        text.truncate(text.len() - 1);
        let _ = writeln!(text, "  ... and {rest} more: --all shows them, --output FILE keeps them\n");
    }
    if matched > placed.len() {
        let _ = writeln!(text, "{} matched; the limit keeps {}\n", counted(matched, noun), placed.len());
    }
}

/// The flags of a match.
fn flags(row: &AnswerRow) -> &'static str {
    match (row.row.edge, row.row.provisional) {
        (false, false) => "",
        (true, false) => "edge",
        (false, true) => "provisional",
        (true, true) => "edge, provisional",
    }
}

fn setting(value: &Setting) -> String {
    match value {
        Setting::Number(value) => readable(*value),
        Setting::Text(word) => cell(word),
    }
}

/// Number of matches at each point of a sweep.
fn points(text: &mut String, answer: &Answer, page: Page) {
    let names = setting_names(answer);
    let headings = names.iter().copied().chain(["matched"]).map(cell).collect();
    let mut table = Grid::new(headings, 0).numbers(0..=names.len());
    for (number, settings) in (0u32..).zip(&answer.points).take(POINTS_SHOWN_MAX) {
        let matched = answer.counts_at(number)[Status::Matched as usize].to_string();
        table.row(settings.iter().map(|(_, v)| setting(v)).chain([matched]).collect());
    }
    table.push(text, page);
    if answer.points.len() > POINTS_SHOWN_MAX {
        text.truncate(text.len() - 1);
        let _ = writeln!(text, "  ... and {} more combinations\n", answer.points.len() - POINTS_SHOWN_MAX);
    }
}

fn symbols(text: &mut String, mut rows: Vec<&AnswerRow>, options: Options<'_>) {
    if rows.is_empty() {
        return;
    }
    rows.sort_by(|a, b| a.row.symbol.cmp(&b.row.symbol));
    let mut table = Grid::new(["symbol", "status", "reason"].map(str::to_owned).to_vec(), 2);
    for row in rows {
        let reason = clean(&on_clock(&row.row.reason, options.zone));
        table.row(vec![cell(&row.row.symbol), row.row.status.name().replace('_', " "), reason]);
    }
    table.push(text, options.page);
}

/// What a stale symbol's reason begins with; the time of its last bar follows.
const SINCE: &str = "no bar since ";

/// A reason with the time at its end on the exchange's clock, as the as-of is; answers have it in UTC. `zone` is that of bars within a
/// day, whose times are instants at midnight too.
pub fn on_clock(reason: &str, zone: Option<Zone>) -> Cow<'_, str> {
    let time = |time: &str| Some(Cow::Owned(format!("{SINCE}{}", zone?.format(parse_time(time)?))));
    reason.strip_prefix(SINCE).and_then(time).unwrap_or(Cow::Borrowed(reason))
}

/// Stale symbols whose last bars are of different times, as one line: from the earliest to the latest.
fn stale_together<'a>(groups: &mut Vec<(Cow<'a, str>, Vec<&'a str>)>, zone: Option<Zone>) {
    let mut since: Vec<(i64, &str, &str)> = Vec::new();
    for (reason, symbols) in groups.iter() {
        let Cow::Borrowed(reason) = reason else { continue };
        let Some((text, time)) = reason.strip_prefix(SINCE).and_then(|text| Some((text, parse_time(text)?))) else {
            continue;
        };
        since.extend(symbols.iter().map(|symbol| (time, text, *symbol)));
    }
    since.sort_by_key(|(time, _, symbol)| (*time, *symbol));
    let (Some(first), Some(last)) = (since.first(), since.last()) else { return };
    if first.0 == last.0 {
        return;
    }
    let shown =
        |(time, text, _): &(i64, &str, &str)| zone.map_or_else(|| (*text).to_owned(), |zone| zone.format(*time));
    let reason = format!("last bar between {} and {}", shown(first), shown(last));
    let symbols = since.iter().map(|(.., symbol)| *symbol).collect();
    groups.retain(|(reason, _)| !reason.starts_with(SINCE));
    groups.insert(0, (Cow::Owned(reason), symbols));
}

/// Why symbols were neither matched nor not matched, grouped by reason.
fn reasons(text: &mut String, answer: &Answer, zone: Option<Zone>) {
    let mut lines = 0;
    for status in [Status::Failed, Status::Stale, Status::Outside, Status::Unknown] {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in answer.rows.iter().filter(|r| r.row.status == status) {
            by_reason.entry(&row.row.reason).or_default().push(&row.row.symbol);
        }
        let mut groups: Vec<(Cow<'_, str>, Vec<&str>)> =
            by_reason.into_iter().map(|(reason, symbols)| (Cow::Borrowed(reason), symbols)).collect();
        stale_together(&mut groups, zone);
        groups.sort_by_key(|(_, symbols)| std::cmp::Reverse(symbols.len()));
        for (reason, symbols) in groups.iter().take(REASONS_SHOWN_MAX) {
            let examples: Vec<String> = symbols.iter().take(EXAMPLES_SHOWN_MAX).map(|s| cell(s)).collect();
            let more = if symbols.len() > EXAMPLES_SHOWN_MAX { ", ..." } else { "" };
            let count = symbols.len();
            let _ = writeln!(
                text,
                "{} {count}: {} ({}{more})",
                status.name(),
                clean(&on_clock(reason, zone)),
                examples.join(", ")
            );
            lines += 1;
        }
        if groups.len() > REASONS_SHOWN_MAX {
            let rest: usize = groups[REASONS_SHOWN_MAX..].iter().map(|(_, s)| s.len()).sum();
            let _ = writeln!(text, "{} {rest}: other reasons (--all lists every symbol)", status.name());
            lines += 1;
        }
    }
    if lines > 0 {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_testing::sample_answer as sample;

    const PLAIN: Options<'static> = Options {
        all: false,
        synthetic: false,
        timeframe: "1d",
        as_of: "",
        zone: None,
        page: Page { width: None, colours: false },
    };

    #[test]
    fn times_in_reasons_are_on_the_exchanges_clock() {
        let zone = Zone::named("America/New_York").expect("a zone");
        let shown = |reason: &'static str| on_clock(reason, Some(zone)).into_owned();
        assert_eq!(shown("no bar since 2024-12-06T20:27:00Z"), "no bar since 2024-12-06 15:27 EST");
        // Midnight of UTC is in the morning in Tokyo, and a day has no zone.
        assert_eq!(shown("no bar since 2024-12-06"), "no bar since 2024-12-05 19:00 EST");
        for as_it_is in ["no bar yet", "too short: 120 bars, 202 needed", "", "universe is false"] {
            assert_eq!(shown(as_it_is), as_it_is);
        }
        let days = "no bar since 2024-12-06";
        assert_eq!(on_clock(days, None), days);
    }

    #[test]
    fn stale_symbols_of_several_times_are_one_line() {
        let mut answer = sample();
        let rows = [
            ("A", "no bar since 2024-12-06T20:53:00Z"),
            ("B", "no bar since 2024-12-06T20:57:00Z"),
            ("C", "no bar yet"),
        ];
        let stale = |(symbol, reason): &(&str, &str)| {
            let mut row = answer.rows[5].clone();
            (row.row.symbol, row.row.reason) = ((*symbol).to_owned(), (*reason).to_owned());
            row
        };
        let mut many: Vec<AnswerRow> = rows.iter().map(stale).collect();
        many.extend(vec![answer.rows[3].clone(); LISTED_SYMBOLS_MAX]);
        answer.rows = many;
        let zone = Zone::named("America/New_York").ok();
        let text = render(&answer, Options { zone, ..PLAIN });
        let one =
            "stale 2: last bar between 2024-12-06 15:53 EST and 2024-12-06 15:57 EST (A, B)\nstale 1: no bar yet (C)\n";
        assert!(text.contains(one), "{text}");
    }

    #[test]
    fn a_small_dataset_lists_every_symbol_with_a_reason_and_the_counts_add_up() {
        let text = render(&sample(), PLAIN);
        assert!(!text.contains("AAPL") && text.matches("IBM").count() == 1, "matches are listed once: {text}");
        assert!(render(&sample(), Options { all: true, ..PLAIN }).contains(" AAPL     not matched"));
        for expected in [
            " place   symbol    close   a, \"b\"\n",
            "     1   IBM      201.09       NA\n",
            "     2   ÅÄÖ         0.1      inf\n",
            "3 symbols matched; the limit keeps 2",
            " FB       unknown   too short: 120 bars, 202 needed",
            " XOM      outside   universe is false",
            "3 matched + 1 not matched + 1 unknown + 1 outside + 1 stale + 1 failed = 8 symbols",
            "dataset us5@abcdef012345, 1d bars, as of 2013-02-22\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
        }
        assert!(!text.contains("SYNTHETIC"));
    }

    #[test]
    fn a_sweep_says_how_many_rows_and_symbols() {
        let mut answer = sample();
        let second = answer.rows.iter().cloned().map(|mut row| {
            row.row.point = 1;
            row
        });
        answer.rows = answer.rows.iter().cloned().chain(second).collect();
        answer.points = [10.0, 20.0].map(|n| vec![("n".to_owned(), Setting::Number(n))]).to_vec();
        let text = render(&answer, Options::default());
        assert!(text.contains("6 rows matched; the limit keeps 4"), "{text}");
        assert!(text.contains("+ 2 failed = 16 rows of 8 symbols, 2 combinations each\n"), "{text}");
    }

    #[test]
    fn a_large_dataset_gathers_reasons_and_says_when_it_is_synthetic() {
        let mut answer = sample();
        let mut row = answer.rows[4].clone();
        for i in 0..100 {
            row.row.symbol = format!("S{i}");
            answer.rows.push(row.clone());
        }
        let text = render(&answer, Options { synthetic: true, ..PLAIN });
        assert!(text.contains("unknown 101: too short: 120 bars, 202 needed (FB, S0, S1, ...)"), "{text}");
        assert!(text.contains("SYNTHETIC"), "{text}");
        assert!(!text.contains("S99"), "{text}");
        assert!(render(&answer, Options { all: true, ..PLAIN }).contains("S99"));
    }

    #[test]
    fn an_empty_universe_is_reported() {
        let mut answer = sample();
        answer.rows.retain(|r| r.row.status == Status::Outside);
        assert!(render(&answer, PLAIN).contains("no symbol is in the universe"));
        assert!(!render(&sample(), PLAIN).contains("no symbol is in the universe"));
    }

    #[test]
    fn many_matches_are_truncated_and_the_rest_is_counted() {
        let mut answer = sample();
        let row = answer.rows[0].clone();
        answer.rows = (0..80)
            .map(|i| {
                let mut row = row.clone();
                row.place = Some(i + 1);
                row.row.symbol = format!("M{i}");
                row
            })
            .collect();
        let text = render(&answer, PLAIN);
        assert!(text.contains("... and 30 more"), "{text}");
        assert!(render(&answer, Options { all: true, ..PLAIN }).contains("M79"));
    }

    #[test]
    fn text_from_a_file_cannot_control_the_terminal() {
        let mut answer = sample();
        answer.rows[3].row.symbol = "A\u{1b}[2J".to_owned();
        answer.rows[4].row.reason = "b\u{7}c".to_owned();
        assert!(!render(&answer, PLAIN).chars().any(|c| c.is_control() && c != '\n'));
    }
}
