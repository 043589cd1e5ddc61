//! The table of symbols from what Polygon knows of listings, merged into the table that a dataset has.
//!
//! An answer is about the days that were asked for. In them, its names, exchanges, kinds and delistings take precedence. Everything else
//! of the dataset's table stays: other labels, other symbols (a company that is gone by now is in no answer about today), and other times.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use trawl_market::{ListingRow, TimeMicros, format_time};

use super::reference::{Listed, Table, cell};

/// Columns of the vendor.
const LABELS: [&str; 3] = ["name", "exchange", "kind"];
/// Bytes of a label's value.
const VALUE_BYTES_MAX: usize = trawl_market::limits::LABEL_BYTES_MAX;

/// The table that a dataset has, and what an answer is about.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub rows: &'a [ListingRow],
    /// Names of its labels.
    pub labels: &'a [String],
    /// First instant of the days that were asked for, and the first after them.
    pub known: (TimeMicros, TimeMicros),
    /// The dataset has no bars after these days: what is known on their end holds on.
    pub is_newest: bool,
}

/// Rows of one ticker.
#[derive(Debug, Default)]
struct Own {
    /// Without gaps from the beginning on.
    rows: Vec<ListingRow>,
    is_undated: bool,
}

/// Share classes are spelled `BRK.B`, `BRK-B` and `BRK/B`.
fn alike(name: &str) -> String {
    name.trim().replace(['-', '/', ' '], ".")
}

fn ticker(row: &ListingRow) -> &str {
    row.ticker.as_deref().unwrap_or(&row.symbol)
}

fn start(row: &ListingRow) -> TimeMicros {
    row.from.unwrap_or(TimeMicros::MIN)
}

fn end(row: &ListingRow) -> TimeMicros {
    row.to.unwrap_or(TimeMicros::MAX)
}

/// The table of symbols: tickers with the interval in which they are listed, merged into the dataset's table.
pub fn listing_table(found: &[Listed], held: Option<Held<'_>>) -> Table {
    let mut table = Table::default();
    let own = by_ticker(found, &mut table.notes);
    let mut labels: Vec<&str> = LABELS.to_vec();
    let rows = match held {
        None => own.into_values().flat_map(|own| own.rows).collect(),
        Some(held) => {
            labels.extend(held.labels.iter().map(String::as_str).filter(|label| !LABELS.contains(label)));
            merged(own, held)
        }
    };
    let _ = writeln!(table.text, "symbol,ticker,from,to,{}", labels.join(","));
    for row in &rows {
        let time = |time: Option<TimeMicros>| time.map_or_else(String::new, format_time);
        let own = [cell(&row.symbol), cell(row.ticker.as_deref().unwrap_or_default()), time(row.from), time(row.to)];
        let values = labels.iter().map(|label| row.labels.get(*label).map(|value| cell(value)).unwrap_or_default());
        let _ = writeln!(table.text, "{}", own.into_iter().chain(values).collect::<Vec<_>>().join(","));
    }
    table.rows = rows.len();
    table
}

/// Rows by ticker, share classes in one spelling. A ticker that is used again has several rows, and each ends where the next begins.
fn by_ticker(found: &[Listed], notes: &mut Vec<String>) -> BTreeMap<String, Own> {
    let mut by_ticker: BTreeMap<&str, Vec<&Listed>> = BTreeMap::new();
    for one in found {
        by_ticker.entry(&one.ticker).or_default().push(one);
    }
    let mut all: BTreeMap<String, Own> = BTreeMap::new();
    for (ticker, mut listed) in by_ticker {
        let own = all.entry(alike(ticker)).or_default();
        own.is_undated = listed.iter().all(|one| one.is_undated);
        if !own.is_undated && listed.iter().any(|one| one.is_undated) {
            // Any date would give one company the labels of the other.
            notes.push(format!("{ticker} was also that of a company whose delisting has no date; it was left out"));
            listed.retain(|one| !one.is_undated);
        }
        listed.sort_by_key(|one| one.delisted.unwrap_or(TimeMicros::MAX));
        let mut from = None;
        for one in listed {
            if one.delisted.is_some() && one.delisted == from {
                continue;
            }
            let symbol = ticker.to_owned();
            let row = ListingRow { ticker: Some(symbol.clone()), symbol, from, to: one.delisted, labels: labels(one) };
            own.rows.push(row);
            from = one.delisted;
        }
    }
    all
}

fn labels(listed: &Listed) -> BTreeMap<String, String> {
    let value = |text: &str| {
        let end = (0..=text.len().min(VALUE_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text[..end].trim().to_owned()
    };
    let values = LABELS.into_iter().zip([&listed.name, &listed.exchange, &listed.kind]);
    values.map(|(label, text)| (label.to_owned(), value(text))).filter(|(_, value)| !value.is_empty()).collect()
}

fn merged(own: BTreeMap<String, Own>, held: Held<'_>) -> Vec<ListingRow> {
    let (mut by_ticker, mut by_symbol) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
    let mut rows = Vec::new();
    for row in held.rows {
        let name = alike(ticker(row));
        let symbol = alike(&row.symbol);
        if symbol != name {
            by_symbol.entry(symbol).or_default().push(row);
        }
        if own.contains_key(&name) {
            by_ticker.entry(name).or_default().push(row);
        } else {
            rows.push(row.clone());
        }
    }
    for (name, own) in own {
        let same = by_ticker.remove(&name).unwrap_or_default();
        let taken = by_symbol.remove(&name).unwrap_or_default();
        rows.extend(merged_ticker(&own, (&same, &taken), held));
    }
    rows
}

/// The rows of one ticker. `same`: those of the dataset's table with this ticker; `taken`: those of the symbol of this name, when it has
/// another ticker.
fn merged_ticker(own: &Own, (same, taken): (&[&ListingRow], &[&ListingRow]), held: Held<'_>) -> Vec<ListingRow> {
    let (from, until) = held.known;
    let other = || same.iter().chain(taken).copied();
    if other().next().is_none() {
        return own.rows.clone();
    }
    let last = own.rows.last().map_or(TimeMicros::MAX, end);
    if own.is_undated && !same.is_empty() && same.iter().all(|row| end(row) <= last) {
        // The end that is known is better than a last day on which it was gone.
        return same.iter().map(|row| (*row).clone()).collect();
    }
    let at = |row: &ListingRow, time: TimeMicros| start(row) <= time && time < end(row);
    let row_at = |time: TimeMicros| {
        let listed = own.rows.iter().find(|row| at(row, time));
        let Some(known) = same.iter().find(|row| at(row, time)) else {
            let is_free = !taken.iter().any(|row| at(row, time));
            // Between rows of the dataset's table it is not known to be listed.
            let holds = match time {
                _ if time < from => !other().any(|row| start(row) < from),
                _ if time >= until => !other().any(|row| (until + 1..=time).contains(&end(row))),
                _ => true,
            };
            return listed.filter(|_| is_free && holds).cloned();
        };
        // A row from before a delisting says nothing about the time after it.
        let is_over = own.rows.iter().any(|row| start(known) < end(row) && end(row) <= time);
        let is_asked = from <= time && (time < until || (held.is_newest && start(known) < until));
        match listed {
            None if is_over => None,
            Some(listed) if is_over || is_asked => {
                let mut row = (*known).clone();
                row.labels.extend(listed.labels.clone());
                Some(row)
            }
            _ => Some((*known).clone()),
        }
    };
    let all = || own.rows.iter().chain(other());
    let mut changes: BTreeSet<TimeMicros> = all().flat_map(|row| [start(row), end(row)]).collect();
    changes.extend([TimeMicros::MIN, from, until]);
    changes.remove(&TimeMicros::MAX);
    let ends = changes.iter().skip(1).copied().map(Some).chain([None]);
    let mut made: Vec<ListingRow> = Vec::new();
    for (&begin, to) in changes.iter().zip(ends) {
        let Some(row) = row_at(begin) else { continue };
        let row = ListingRow { from: (begin != TimeMicros::MIN).then_some(begin), to, ..row };
        match made.last_mut() {
            Some(before)
                if before.to == Some(begin)
                    && (&before.symbol, &before.ticker, &before.labels) == (&row.symbol, &row.ticker, &row.labels) =>
            {
                before.to = row.to;
            }
            _ => made.push(row),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::day_files::date;

    const HEADER: &str = "symbol,ticker,from,to,name,exchange,kind";

    fn one(ticker: &str, delisted: Option<&str>, name: &str) -> Listed {
        Listed {
            ticker: ticker.to_owned(),
            delisted: delisted.and_then(date),
            is_undated: false,
            name: name.to_owned(),
            exchange: "XNAS".to_owned(),
            kind: "CS".to_owned(),
        }
    }

    /// Rows as lines `symbol,ticker,from,to,label=value,...`.
    fn rows(lines: &[&str]) -> Vec<ListingRow> {
        let row = |line: &&str| {
            let cells: Vec<&str> = line.split(',').collect();
            let labels = cells[4..].iter().filter_map(|cell| cell.split_once('='));
            ListingRow {
                symbol: cells[0].to_owned(),
                ticker: Some(cells[1].to_owned()).filter(|ticker| !ticker.is_empty()),
                from: date(cells[2]),
                to: date(cells[3]),
                labels: labels.map(|(label, value)| (label.to_owned(), value.to_owned())).collect(),
            }
        };
        lines.iter().map(row).collect()
    }

    /// Lines of the merged table after its header.
    fn merge(found: &[Listed], held: &[&str], (from, to): (&str, &str), is_newest: bool) -> Vec<String> {
        let (rows, labels) = (rows(held), ["name".to_owned(), "sector".to_owned()]);
        let known = (date(from).unwrap(), date(to).unwrap() + 86_400_000_000);
        let table = listing_table(found, Some(Held { rows: &rows, labels: &labels, known, is_newest }));
        let mut lines = table.text.lines();
        assert_eq!(lines.next().unwrap(), format!("{HEADER},sector"));
        let mut lines: Vec<String> = lines.map(|line| line.replace(",XNAS,CS", "")).collect();
        assert_eq!(lines.len(), table.rows);
        lines.sort();
        lines
    }

    #[test]
    fn a_ticker_that_is_used_again_has_intervals_that_follow_each_other() {
        let found =
            [one("FB", None, "ProShares, \"FB\""), one("FB", Some("2022-06-09"), "Meta"), one("IBM", None, "IBM")];
        assert_eq!(
            listing_table(&found, None).text,
            format!(
                "{HEADER}\n\
                 FB,FB,,2022-06-09,Meta,XNAS,CS\n\
                 FB,FB,2022-06-09,,\"ProShares, \"\"FB\"\"\",XNAS,CS\n\
                 IBM,IBM,,,IBM,XNAS,CS\n"
            )
        );
        let gone = Listed { is_undated: true, ..one("FB", Some("2024-01-05"), "Meta") };
        let table = listing_table(&[gone.clone(), one("FB", None, "ProShares")], None);
        assert_eq!(table.text, format!("{HEADER}\nFB,FB,,,ProShares,XNAS,CS\n"));
        assert_eq!(table.notes.len(), 1);
        assert_eq!(listing_table(&[gone], None).text, format!("{HEADER}\nFB,FB,,2024-01-05,Meta,XNAS,CS\n"));
    }

    #[test]
    fn what_an_answer_does_not_know_stays() {
        let span = ("2024-02-01", "2024-02-29");
        let held = ["DEAD,,,2024-01-04,name=Gone,sector=Tech", "AAPL,,,,name=Apple,sector=Tech"];
        // Another symbol, another label; the vendor's own label is its newest from the days asked for on.
        let found = [one("AAPL", None, "Apple Inc."), one("NEW", None, "New")];
        let expected = [
            "AAPL,,,2024-02-01,Apple,,,Tech",
            "AAPL,,2024-02-01,,Apple Inc.,Tech",
            "DEAD,,,2024-01-04,Gone,,,Tech",
            "NEW,NEW,,,New,",
        ];
        assert_eq!(merge(&found, &held, span, true), expected);
        // Bars after these days: later times are left alone.
        let back = merge(&found[..1], &held[1..], span, false);
        let expected = [
            "AAPL,,,2024-02-01,Apple,,,Tech",
            "AAPL,,2024-02-01,2024-03-01,Apple Inc.,Tech",
            "AAPL,,2024-03-01,,Apple,,,Tech",
        ];
        assert_eq!(back, expected);
        // A value that the vendor does not give.
        assert_eq!(merge(&[one("AAPL", None, "")], &held[1..], span, true)[1], "AAPL,,2024-02-01,,Apple,Tech");
    }

    #[test]
    fn delistings_and_reuse_end_the_rows_from_before_them() {
        let span = ("2024-02-01", "2024-02-29");
        let held = ["DEAD,,,,name=Gone,sector=Tech"];
        let gone = one("DEAD", Some("2024-02-10"), "Gone");
        let ended = ["DEAD,,,2024-02-01,Gone,,,Tech", "DEAD,,2024-02-01,2024-02-10,Gone,Tech"];
        assert_eq!(merge(std::slice::from_ref(&gone), &held, span, false), ended);
        let reused = merge(&[gone.clone(), one("DEAD", None, "Next")], &held, span, false);
        assert_eq!(reused[2..], ["DEAD,,2024-02-10,,Next,Tech"]);
        // One that is listed again later, by another import.
        let later = ["DEAD,,,2024-02-10,name=Gone", "DEAD,,2024-05-01,,name=Later"];
        assert_eq!(merge(&[gone], &later, span, false)[2..], ["DEAD,,2024-05-01,,Later,,,"]);
        // An end that is known is not moved by a delisting without a date.
        let undated = Listed { is_undated: true, ..one("DEAD", Some("2024-02-29"), "Gone") };
        assert_eq!(merge(&[undated], &["DEAD,,,2024-01-04,name=Gone"], span, true), ["DEAD,,,2024-01-04,Gone,,,"]);
    }

    #[test]
    fn renames_of_the_users_table_stay() {
        let held = ["META,FB,,2022-06-09,sector=Tech", "META,META,2022-06-09,,sector=Tech"];
        // Before the rename, the ticker META was that of another company.
        let found = [one("FB", Some("2022-06-09"), "Meta"), one("META", None, "Meta Platforms")];
        let merged = merge(&found, &held, ("2022-06-01", "2022-06-30"), true);
        let expected = [
            "META,FB,,2022-06-01,,,,Tech",
            "META,FB,2022-06-01,2022-06-09,Meta,Tech",
            "META,META,2022-06-09,,Meta Platforms,Tech",
        ];
        assert_eq!(merged, expected);
        // A share class in another spelling is the same ticker.
        let merged = merge(&[one("BRK.B", None, "Berkshire")], &["BRK-B,,,"], ("2022-06-01", "2022-06-30"), true);
        assert_eq!(merged, ["BRK-B,,,2022-06-01,,,,", "BRK-B,,2022-06-01,,Berkshire,"]);
    }
}
