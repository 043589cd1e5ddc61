//! Which symbol of a dataset a company is.
//!
//! A symbol stays what it is, whatever its ticker becomes: the company whose ticker it was in its time keeps it. Only a company that the
//! dataset does not have gets a new one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use trawl_market::{ListingRow, TimeMicros, format_time};

use super::companies::Company;
use super::tickers::{alike, end, start, ticker};

/// The table that a dataset has, and what an answer is about.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    pub rows: &'a [ListingRow],
    /// Names of its labels.
    pub labels: &'a [String],
    /// Its symbols with the times of their first and last bars.
    pub symbols: &'a [(String, TimeMicros, TimeMicros)],
    /// First instant of the days that were asked for, and the first after them.
    pub known: (TimeMicros, TimeMicros),
    /// The dataset has no bars after these days: what is known on their end holds on.
    pub is_newest: bool,
}

/// The symbol of each company: the one that the dataset has for it, else its last ticker; with a date behind it, if another company has
/// that symbol.
pub fn symbols_of(companies: &[Company], held: Option<Held<'_>>, notes: &mut Vec<String>) -> Vec<String> {
    let spans = held.map(|held| spans_of_symbols(&held)).unwrap_or_default();
    // By ticker: company, start and end of a tenure.
    let mut tenures: HashMap<String, Vec<(usize, TimeMicros, TimeMicros)>> = HashMap::new();
    for (at, company) in companies.iter().enumerate() {
        for tenure in &company.tenures {
            let span = (tenure.from.unwrap_or(TimeMicros::MIN), tenure.to.unwrap_or(TimeMicros::MAX));
            tenures.entry(alike(&tenure.listed.ticker)).or_default().push((at, span.0, span.1));
        }
    }
    // A symbol of the dataset is that of the first company that has its ticker while the symbol has it.
    let mut claims: BTreeMap<usize, Vec<(TimeMicros, &str)>> = BTreeMap::new();
    for (symbol, spans) in &spans {
        for (ticker, from, to) in spans {
            let found = tenures.get(ticker).map_or(&[][..], Vec::as_slice).iter();
            let both = found.map(|(at, start, end)| (*from.max(start), *to.min(end), *at));
            if let Some((_, end, company)) = both.filter(|(start, end, _)| start < end).min() {
                claims.entry(company).or_default().push((end, symbol));
            }
        }
    }
    let mut taken: BTreeSet<String> = spans.keys().map(|symbol| alike(symbol)).collect();
    let mut symbols: Vec<Option<String>> = vec![None; companies.len()];
    for (company, mut claimed) in claims {
        claimed.sort_unstable();
        let mut names: Vec<&str> = Vec::new();
        for (_, symbol) in claimed {
            names.retain(|other| *other != symbol);
            names.push(symbol);
        }
        if let Some((last, before @ [_, ..])) = names.split_last() {
            notes.push(format!(
                "{} and {last} are one company and symbols of this dataset: the bars that it has stay apart; a new dataset joins them",
                before.join(", ")
            ));
        }
        symbols[company] = names.last().map(|symbol| (*symbol).to_owned());
    }
    // Plain names go to those that are listed now, then to those that were longest.
    let end = |at: usize| companies[at].tenures.last().and_then(|last| last.to);
    let mut order: Vec<usize> = (0..companies.len()).filter(|at| symbols[*at].is_none()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(end(*at).unwrap_or(TimeMicros::MAX)));
    for at in order {
        let Some(last) = companies[at].tenures.last() else { continue };
        let ticker = &last.listed.ticker;
        let dated = || end(at).or(last.from).map(|date| format!("{ticker}-{}", format_time(date).replace('-', "")));
        let numbered = (2..).map(|number| format!("{ticker}-{number}"));
        let mut names = std::iter::once(ticker.clone()).chain(dated()).chain(numbered);
        symbols[at] = names.find(|name| taken.insert(alike(name)));
    }
    symbols.into_iter().map(Option::unwrap_or_default).collect()
}

/// The tickers of the dataset's symbols, with spans: by its table, where it has bars by those.
fn spans_of_symbols<'a>(held: &Held<'a>) -> BTreeMap<&'a str, Vec<(String, TimeMicros, TimeMicros)>> {
    let bars: HashMap<&str, (TimeMicros, TimeMicros)> =
        held.symbols.iter().map(|(symbol, first, last)| (symbol.as_str(), (*first, last.saturating_add(1)))).collect();
    let mut spans: BTreeMap<&str, Vec<(String, TimeMicros, TimeMicros)>> = BTreeMap::new();
    for row in held.rows {
        let known = bars.get(row.symbol.as_str()).copied().unwrap_or((TimeMicros::MIN, TimeMicros::MAX));
        let (from, to) = (start(row).max(known.0), end(row).min(known.1));
        let (from, to) = if from < to { (from, to) } else { (start(row), end(row)) };
        spans.entry(&row.symbol).or_default().push((alike(ticker(row)), from, to));
    }
    for (symbol, (first, end)) in bars {
        spans.entry(symbol).or_insert_with(|| vec![(alike(symbol), first, end)]);
    }
    spans
}
