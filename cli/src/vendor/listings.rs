//! The table of symbols from what Polygon knows of listings, merged into the table that a dataset has.
//!
//! An answer is about the days that were asked for. In them, its names, exchanges, kinds and delistings take precedence. Everything else
//! of the dataset's table stays: other labels, other symbols (a company that is gone by now is in no answer about today), and other times.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use trawl_market::{ListingRow, TimeMicros, format_time};

use super::companies::{Company, Tenure};
use super::names::{Held, symbols_of};
use super::reference::{Listed, Table, cell};
use super::tickers::{alike, end, start, ticker};

/// Columns of the vendor.
const LABELS: [&str; 3] = ["name", "exchange", "kind"];
/// Bytes of a label's value.
const VALUE_BYTES_MAX: usize = trawl_market::limits::LABEL_BYTES_MAX;

/// Rows of one ticker.
#[derive(Debug, Default)]
struct Own {
    /// In order of time.
    rows: Vec<ListingRow>,
    is_undated: bool,
}

/// The table of symbols: the tickers of each company with the intervals in which it has them, merged into the dataset's table.
pub fn listing_table(companies: &[Company], held: Option<Held<'_>>) -> Table {
    let mut table = Table::default();
    let symbols = symbols_of(companies, held, &mut table.notes);
    let own = by_ticker(companies, &symbols, &mut table.notes);
    let mut labels: Vec<&str> = LABELS.to_vec();
    let rows = match held {
        None => own.into_values().flat_map(|own| own.rows).collect(),
        Some(held) => {
            labels.extend(held.labels.iter().map(String::as_str).filter(|label| !LABELS.contains(label)));
            let mut rows = merged(own, held);
            let shortened = settle(&mut rows);
            if shortened > 0 {
                table.notes.push(format!(
                    "{shortened} rows of the dataset's table of symbols contradicted Polygon's and were shortened"
                ));
            }
            rows
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
fn by_ticker(companies: &[Company], symbols: &[String], notes: &mut Vec<String>) -> BTreeMap<String, Own> {
    let mut by_ticker: BTreeMap<String, Vec<(&Tenure, &str, bool)>> = BTreeMap::new();
    for (company, symbol) in companies.iter().zip(symbols) {
        for (at, tenure) in company.tenures.iter().enumerate() {
            by_ticker.entry(alike(&tenure.listed.ticker)).or_default().push((tenure, symbol, at == 0));
        }
    }
    let mut all: BTreeMap<String, Own> = BTreeMap::new();
    for (name, mut tenures) in by_ticker {
        let is_undated = tenures.iter().all(|(tenure, ..)| tenure.listed.is_undated);
        if !is_undated && let Some((gone, ..)) = tenures.iter().find(|(tenure, ..)| tenure.listed.is_undated) {
            // Any date would give one company the labels of the other.
            let ticker = &gone.listed.ticker;
            notes.push(format!("{ticker} was also that of a company whose delisting has no date; it was left out"));
            tenures.retain(|(tenure, ..)| !tenure.listed.is_undated);
        }
        tenures.sort_by_key(|(tenure, ..)| (tenure.to.unwrap_or(TimeMicros::MAX), tenure.from));
        let mut own = Own { is_undated, ..Own::default() };
        let mut free: Option<TimeMicros> = None;
        for (tenure, symbol, is_first) in tenures {
            // Bars from before a company's first event are its own, unless another one had the ticker.
            let from = if is_first && free.is_none() { None } else { tenure.from.max(free) };
            // Of two that still have it, by contradicting answers, the first is taken.
            let is_taken = own.rows.last().is_some_and(|before| before.to.is_none());
            if is_taken || tenure.to.is_some_and(|to| from.is_some_and(|from| to <= from)) {
                continue;
            }
            let listed = &tenure.listed;
            own.rows.push(ListingRow {
                symbol: symbol.to_owned(),
                ticker: Some(listed.ticker.clone()),
                from,
                to: tenure.to,
                labels: labels(listed),
            });
            free = tenure.to;
        }
        all.insert(name, own);
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

/// Ends rows where another one of the same symbol, or with the same ticker, begins; returns how many.
fn settle(rows: &mut Vec<ListingRow>) -> usize {
    let mut shortened = 0;
    let keys: [fn(&ListingRow) -> String; 2] = [|row| alike(&row.symbol), |row| alike(ticker(row))];
    for key in keys {
        // Where two begin at once, the one that ends later counts.
        rows.sort_by_cached_key(|row| (key(row), start(row), end(row)));
        let mut settled: Vec<ListingRow> = Vec::with_capacity(rows.len());
        for row in rows.drain(..) {
            if let Some(before) =
                settled.last_mut().filter(|before| key(before) == key(&row) && start(&row) < end(before))
            {
                shortened += 1;
                before.to = row.from;
                if start(before) == start(&row) {
                    settled.pop();
                }
            }
            settled.push(row);
        }
        *rows = settled;
    }
    shortened
}

/// Rows of the dataset's table.
type Rows<'a> = HashMap<String, Vec<&'a ListingRow>>;

fn merged(own: BTreeMap<String, Own>, held: Held<'_>) -> Vec<ListingRow> {
    let (mut by_ticker, mut by_symbol) = (Rows::new(), Rows::new());
    let mut rows = Vec::new();
    for row in held.rows {
        by_symbol.entry(alike(&row.symbol)).or_default().push(row);
        let name = alike(ticker(row));
        if own.contains_key(&name) {
            by_ticker.entry(name).or_default().push(row);
        } else {
            rows.push(row.clone());
        }
    }
    // A row from before a delisting, or before a ticker changed, says nothing about the time after it.
    let is_over = |row: &ListingRow, time: TimeMicros| {
        let own = own.get(&alike(ticker(row))).map_or(&[][..], |own| &own.rows);
        own.iter().any(|own| start(row) < end(own) && end(own) <= time)
    };
    for (name, own) in &own {
        let same = by_ticker.remove(name).unwrap_or_default();
        rows.extend(merged_ticker(name, own, (&same, &by_symbol), is_over, held));
    }
    rows
}

/// The rows of one ticker. `same`: those of the dataset's table with this ticker.
fn merged_ticker(
    name: &str,
    own: &Own,
    (same, by_symbol): (&[&ListingRow], &Rows<'_>),
    is_over: impl Fn(&ListingRow, TimeMicros) -> bool,
    held: Held<'_>,
) -> Vec<ListingRow> {
    let (from, until) = held.known;
    let of_symbol = |symbol: &str| by_symbol.get(&alike(symbol)).map_or(&[][..], Vec::as_slice);
    // Those of the symbol of this name, when it has another ticker.
    let taken: Vec<&ListingRow> = of_symbol(name).iter().copied().filter(|row| alike(ticker(row)) != name).collect();
    let other = || same.iter().chain(&taken).copied();
    let last = own.rows.last().map_or(TimeMicros::MAX, end);
    if own.is_undated && !same.is_empty() && same.iter().all(|row| end(row) <= last) {
        // The end that is known is better than a last day on which it was gone.
        return same.iter().map(|row| (*row).clone()).collect();
    }
    let at = |row: &ListingRow, time: TimeMicros| start(row) <= time && time < end(row);
    // A row of a symbol that the dataset's table knows by another ticker keeps what else is known of it.
    let with_labels = |listed: &ListingRow, time: TimeMicros| {
        let before = of_symbol(&listed.symbol).iter().filter(|row| start(row) <= time).max_by_key(|row| start(row));
        let mut row = listed.clone();
        for (label, value) in before.iter().flat_map(|row| &row.labels) {
            if !LABELS.contains(&label.as_str()) {
                row.labels.entry(label.clone()).or_insert_with(|| value.clone());
            }
        }
        row
    };
    let row_at = |time: TimeMicros| {
        let listed = own.rows.iter().find(|row| at(row, time));
        let Some(known) = same.iter().find(|row| at(row, time)) else {
            let listed = listed?;
            // A symbol has one ticker at a time.
            let has_other = |row: &&ListingRow| alike(ticker(row)) != name && at(row, time) && !is_over(row, time);
            let is_free = !of_symbol(&listed.symbol).iter().any(has_other);
            // Between rows of the dataset's table it is not known to be listed.
            let holds = match time {
                _ if time < from => !other().any(|row| start(row) < from),
                _ if time >= until => !other().any(|row| (until + 1..=time).contains(&end(row))),
                _ => true,
            };
            return (is_free && holds).then(|| with_labels(listed, time));
        };
        let is_over = is_over(known, time);
        let is_asked = from <= time && (time < until || (held.is_newest && start(known) < until));
        match listed {
            None if is_over => None,
            // Another company has the ticker since.
            Some(listed) if is_over && alike(&listed.symbol) != alike(&known.symbol) => Some(listed.clone()),
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
            name: name.to_owned(),
            exchange: "XNAS".to_owned(),
            kind: "CS".to_owned(),
            ..Listed::default()
        }
    }

    /// Each listing is a company.
    fn each(found: &[Listed]) -> Vec<Company> {
        let tenure = |listed: &Listed| Tenure { from: None, to: listed.delisted, listed: listed.clone() };
        found.iter().map(|listed| Company { tenures: vec![tenure(listed)] }).collect()
    }

    /// A company with tickers from these dates on.
    fn renamed(name: &str, tickers: &[(&str, &str)], delisted: Option<&str>) -> Company {
        let ends = tickers.iter().skip(1).map(|(from, _)| Some(*from)).chain([delisted]);
        let tenures = tickers.iter().zip(ends).map(|((from, ticker), to)| Tenure {
            from: date(from),
            to: to.and_then(date),
            listed: one(ticker, to, name),
        });
        Company { tenures: tenures.collect() }
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
    fn merge(found: &[Listed], held: &[&str], span: (&str, &str), is_newest: bool) -> Vec<String> {
        merge_companies(&each(found), held, span, is_newest).0
    }

    /// The same of companies, and the notes.
    fn merge_companies(
        found: &[Company],
        held: &[&str],
        (from, to): (&str, &str),
        is_newest: bool,
    ) -> (Vec<String>, Vec<String>) {
        let (rows, labels) = (rows(held), ["name".to_owned(), "sector".to_owned()]);
        let known = (date(from).unwrap(), date(to).unwrap() + 86_400_000_000);
        let held = Held { rows: &rows, labels: &labels, symbols: &[], known, is_newest };
        let table = listing_table(found, Some(held));
        let mut lines = table.text.lines();
        assert_eq!(lines.next().unwrap(), format!("{HEADER},sector"));
        let mut lines: Vec<String> = lines.map(|line| line.replace(",XNAS,CS", "")).collect();
        assert_eq!(lines.len(), table.rows);
        lines.sort();
        (lines, table.notes)
    }

    #[test]
    fn a_ticker_that_is_used_again_has_intervals_that_follow_each_other() {
        let found =
            [one("FB", None, "ProShares, \"FB\""), one("FB", Some("2022-06-09"), "Meta"), one("IBM", None, "IBM")];
        assert_eq!(
            listing_table(&each(&found), None).text,
            format!(
                "{HEADER}\n\
                 FB-20220609,FB,,2022-06-09,Meta,XNAS,CS\n\
                 FB,FB,2022-06-09,,\"ProShares, \"\"FB\"\"\",XNAS,CS\n\
                 IBM,IBM,,,IBM,XNAS,CS\n"
            )
        );
        let gone = Listed { is_undated: true, ..one("FB", Some("2024-01-05"), "Meta") };
        let table = listing_table(&each(&[gone.clone(), one("FB", None, "ProShares")]), None);
        assert_eq!(table.text, format!("{HEADER}\nFB,FB,,,ProShares,XNAS,CS\n"));
        assert_eq!(table.notes.len(), 1);
        assert_eq!(listing_table(&each(&[gone]), None).text, format!("{HEADER}\nFB,FB,,2024-01-05,Meta,XNAS,CS\n"));
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
        assert_eq!(reused, [&ended[..], &["DEAD-2,DEAD,2024-02-10,,Next,"]].concat(), "two companies are two symbols");
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
        // Polygon says so itself: the same table, and what is known of the company goes with it.
        let company = [renamed("Meta", &[("2012-05-18", "FB"), ("2022-06-09", "META")], None)];
        let span = ("2022-06-01", "2022-06-30");
        let (merged, notes) = merge_companies(&company, &held, span, true);
        assert_eq!((merged[2].as_str(), notes.len()), ("META,META,2022-06-09,,Meta,Tech", 0), "{merged:?}");
        // A share class in another spelling is the same ticker.
        let merged = merge(&[one("BRK.B", None, "Berkshire")], &["BRK-B,,,"], ("2022-06-01", "2022-06-30"), true);
        assert_eq!(merged, ["BRK-B,,,2022-06-01,,,,", "BRK-B,,2022-06-01,,Berkshire,"]);
    }
    #[test]
    fn a_company_that_was_renamed_is_one_symbol_whatever_was_imported_before() {
        let meta = || renamed("Meta", &[("2012-05-18", "FB"), ("2022-06-09", "META")], None);
        let fund = || renamed("Fund", &[("2021-06-30", "META"), ("2022-01-31", "METV")], None);
        let proshares = || renamed("ProShares", &[("2024-10-01", "FB")], None);
        let table = listing_table(&[meta(), fund(), proshares()], None);
        assert_eq!(
            table.text.replace(",XNAS,CS", "").lines().skip(1).collect::<Vec<_>>(),
            [
                "META,FB,,2022-06-09,Meta",
                "FB,FB,2024-10-01,,ProShares",
                "METV,META,,2022-01-31,Fund",
                "META,META,2022-06-09,,Meta",
                "METV,METV,2022-01-31,,Fund",
            ]
        );
        assert!(table.notes.is_empty(), "{table:?}");
        // The company's symbol in the dataset is its ticker of then; its sector goes with it, and the new FB is another symbol.
        let span = ("2022-06-01", "2024-12-31");
        let (merged, notes) = merge_companies(&[meta(), proshares()], &["FB,,,,name=Facebook,sector=Tech"], span, true);
        let expected = [
            "FB,,,2022-06-01,Facebook,,,Tech",
            "FB,,2022-06-01,2022-06-09,Meta,Tech",
            "FB,META,2022-06-09,,Meta,Tech",
            "FB-20241001,FB,2024-10-01,,ProShares,",
        ];
        assert_eq!((merged.as_slice(), notes.len()), (&expected.map(str::to_owned)[..], 0));
        // Both were imported as they were spelled: they stay apart, and that is reported.
        let held = ["FB,,,,name=Facebook", "META,,,,name=Meta"];
        let (merged, notes) = merge_companies(&[meta()], &held, ("2022-06-01", "2022-06-30"), true);
        assert!(merged.iter().any(|line| line == "FB,,2022-06-01,2022-06-09,Meta,"), "{merged:?}");
        assert!(notes.len() == 1 && notes[0].starts_with("FB and META are one company"), "{notes:?}");
    }

    #[test]
    fn the_symbol_of_bars_without_a_table_is_that_of_the_company_that_had_the_ticker_then() {
        let meta = renamed("Meta", &[("2012-05-18", "FB"), ("2022-06-09", "META")], None);
        let fund = renamed("Fund", &[("2021-06-30", "META"), ("2022-01-31", "METV")], None);
        let time = |text: &str| date(text).unwrap();
        let bars = |symbol: &str| vec![(symbol.to_owned(), time("2021-07-01"), time("2021-12-31"))];
        for (symbol, first) in [("FB", "FB,FB,,2022-06-09,Meta"), ("META", "META-20220609,FB,,2022-06-09,Meta")] {
            let (symbols, known) = (bars(symbol), (time("2022-01-03"), time("2022-07-01")));
            let held = Held { rows: &[], labels: &[], symbols: &symbols, known, is_newest: true };
            let table = listing_table(&[meta.clone(), fund.clone()], Some(held));
            assert_eq!(table.text.replace(",XNAS,CS", "").lines().nth(1), Some(first), "{}", table.text);
        }
    }

    /// Whether no symbol has two tickers at a time, and no ticker two symbols.
    fn is_sound(rows: &[ListingRow]) -> bool {
        let meet = |a: &ListingRow, b: &ListingRow| start(a) < end(b) && start(b) < end(a);
        let pairs = rows.iter().enumerate().flat_map(|(at, a)| rows[at + 1..].iter().map(move |b| (a, b)));
        pairs.into_iter().all(|(a, b)| {
            let (symbol, name) = (alike(&a.symbol) == alike(&b.symbol), alike(ticker(a)) == alike(ticker(b)));
            !((symbol || name) && meet(a, b))
        })
    }

    #[test]
    fn whatever_is_imported_one_after_another_a_symbol_has_one_ticker_at_a_time() {
        // A small generator of numbers (Numerical Recipes' constants).
        let mut state = 1_u64;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let day = |number: u64| format!("2024-{:02}-{:02}", 1 + number / 28, 1 + number % 28);
        let tickers = ["A", "B", "C", "D"];
        for case in 0..3000 {
            let mut held: Vec<ListingRow> = Vec::new();
            for step in 0..3 {
                let mut companies = Vec::new();
                for number in 0..1 + draw(3) {
                    let mut dates: Vec<String> = (0..1 + draw(3)).map(|_| day(draw(200))).collect();
                    dates.sort();
                    dates.dedup();
                    let pairs: Vec<(&str, &str)> =
                        dates.iter().map(|date| (date.as_str(), tickers[draw(4) as usize])).collect();
                    let delisted = (draw(2) == 0).then(|| day(210 + draw(60)));
                    companies.push(renamed(&format!("N{number}"), &pairs, delisted.as_deref()));
                }
                let (from, to) = (draw(150), 150 + draw(100));
                let known = (date(&day(from)).unwrap(), date(&day(to)).unwrap());
                let held_now = Held { rows: &held, labels: &[], symbols: &[], known, is_newest: draw(2) == 0 };
                let table = listing_table(&companies, Some(held_now));
                let lines: Vec<&str> = table.text.lines().skip(1).collect();
                held = rows(&lines);
                assert!(is_sound(&held), "case {case}, step {step}: {}", table.text);
            }
        }
    }
}
