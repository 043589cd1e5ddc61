//! Which questions about bars are asked: each is about one ticker and days on which it is that of one symbol, so that the bars of its
//! answer are those of this symbol.

use std::collections::BTreeSet;

use trawl_market::{Calendar, SymbolTable, TimeMicros, Timeframe, format_time};

use super::bars::Question;
use super::tickers::alike;

/// Days of one question about a symbol's bars of a day and of shorter ones: an answer is kept whole or not at all.
const DAYS_ASKED: (i64, i64) = (20 * 366, 366);
/// Notes about tickers that were also others' in these days.
const NOTES_MAX: usize = 10;
pub const DAY: TimeMicros = 86_400_000_000;

/// Days, both ends included, on which a ticker is that of a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    symbol: String,
    from: TimeMicros,
    to: TimeMicros,
}

/// What is asked about named symbols.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub questions: Vec<Question>,
    /// For each name, in their order, which of the questions are about it.
    pub of_name: Vec<Vec<usize>>,
    /// The symbols that were meant.
    pub symbols: BTreeSet<String>,
    /// The tickers that these had in the days asked for.
    pub tickers: BTreeSet<String>,
    /// Tickers that were also others'.
    pub notes: Vec<String>,
}

/// A question for each session.
pub fn market_days(calendar: Calendar, (from, to): (TimeMicros, TimeMicros)) -> Vec<Question> {
    let first = calendar.next_session(from - DAY);
    let sessions = std::iter::successors(first, |session| calendar.next_session(session.date));
    sessions.map(|session| session.date).take_while(|date| *date <= to).map(|date| Question::Market { date }).collect()
}

/// The parts of a span in which a ticker is that of one symbol each; one part without a table.
fn parts(table: Option<&SymbolTable>, ticker: &str, (from, to): (TimeMicros, TimeMicros)) -> Vec<Part> {
    let Some(table) = table else { return vec![Part { symbol: ticker.to_owned(), from, to }] };
    let mut parts: Vec<Part> = Vec::new();
    for day in table
        .changes(ticker)
        .into_iter()
        .filter(|day| (from + 1..=to).contains(day))
        .chain([from])
        .collect::<BTreeSet<_>>()
    {
        let symbol = table.symbol_of_ticker(ticker, day);
        if let Some(before) = parts.last_mut() {
            before.to = day - DAY;
        }
        match parts.last_mut().filter(|before| before.symbol == symbol) {
            Some(before) => before.to = to,
            None => parts.push(Part { symbol: symbol.into_owned(), from: day, to }),
        }
    }
    if let Some(last) = parts.last_mut() {
        last.to = to;
    }
    parts
}

/// Questions about parts of a ticker's days, each about a bounded number of days.
fn asked(ticker: &str, timeframe: Timeframe, parts: impl IntoIterator<Item = Part>) -> Vec<Question> {
    let days = if timeframe == Timeframe::DAY { DAYS_ASKED.0 } else { DAYS_ASKED.1 };
    let of_part = |part: Part| {
        let starts = std::iter::successors(Some(part.from), move |start| Some(start + days * DAY));
        starts
            .take_while(move |start| *start <= part.to)
            .map(move |start| (start, part.to.min(start + (days - 1) * DAY)))
    };
    let question = |(from, to)| Question::Symbol { ticker: ticker.to_owned(), timeframe, from, to };
    parts.into_iter().flat_map(of_part).map(question).collect()
}

/// Questions about all bars of tickers.
pub fn of_tickers<'a>(
    tickers: impl Iterator<Item = &'a str>,
    table: Option<&SymbolTable>,
    timeframe: Timeframe,
    span: (TimeMicros, TimeMicros),
) -> Vec<Question> {
    tickers.flat_map(|ticker| asked(ticker, timeframe, parts(table, ticker, span))).collect()
}

/// Questions about named symbols: all tickers that each of them had in these days. A name is that of the symbol that has it as its ticker
/// on the last day, or had it last.
pub fn of_names(
    names: &[String],
    table: Option<&SymbolTable>,
    timeframe: Timeframe,
    span: (TimeMicros, TimeMicros),
) -> Named {
    let mut named = Named::default();
    for name in names {
        let of_name = parts(table, name, span);
        let is_listed = |symbol: &str| table.is_some_and(|table| table.rows().iter().any(|row| row.symbol == symbol));
        // In a part, the table may say it of some of the days alone.
        let has_it = |part: &&Part| {
            let is_held = |table: &SymbolTable, day| table.holder(name, day) == Some(&part.symbol);
            table.is_some_and(|table| {
                let changes = table.changes(name).into_iter().filter(|day| (part.from..=part.to).contains(day));
                changes.chain([part.from]).any(|day| is_held(table, day))
            })
        };
        let had_it_last = of_name.iter().rev().find(has_it).map(|part| part.symbol.clone());
        let by_name = || table.and_then(|table| table.resolve(name, span.1)).map(str::to_owned);
        let own = had_it_last.or_else(by_name).unwrap_or_else(|| name.clone());
        for other in of_name.iter().filter(|other| other.symbol != own && is_listed(&other.symbol)) {
            if named.notes.len() < NOTES_MAX {
                let (until, symbol) = (format_time(other.to + DAY), &other.symbol);
                named
                    .notes
                    .push(format!("{name} was the ticker of {symbol} until {until}; those bars were not asked for"));
            }
        }
        let mut tickers = BTreeSet::from([name.clone()]);
        let rows = table.map_or(&[][..], SymbolTable::rows).iter().filter(|row| row.symbol == own);
        tickers.extend(rows.filter_map(|row| row.ticker.clone()).filter(|ticker| alike(ticker) != alike(name)));
        let mut numbers = Vec::new();
        for ticker in tickers {
            let of_it = parts(table, &ticker, span).into_iter().filter(|part| part.symbol == own);
            for question in asked(&ticker, timeframe, of_it) {
                named.tickers.insert(ticker.clone());
                // Two names of one symbol ask for its bars once.
                let known = named.questions.iter().position(|other| *other == question);
                numbers.push(known.unwrap_or(named.questions.len()));
                if known.is_none() {
                    named.questions.push(question);
                }
            }
        }
        named.of_name.push(numbers);
        named.symbols.insert(own);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::day_files::date;

    const TABLE: &str = "symbol,ticker,from,to\nMETV,META,,2022-01-31\nMETV,METV,2022-01-31,\nMETA,FB,,2022-06-09\n\
                         META,META,2022-06-09,\nFB,FB,2022-10-03,\nDEAD,DEAD,,2022-03-01\n";

    fn table() -> SymbolTable {
        SymbolTable::parse("t", TABLE.as_bytes(), ["META"].into_iter()).unwrap()
    }

    fn lines(questions: &[Question]) -> Vec<String> {
        let line = |question: &Question| match question {
            Question::Symbol { ticker, from, to, .. } => {
                format!("{ticker} {} {}", format_time(*from), format_time(*to))
            }
            Question::Market { date } => format_time(*date),
        };
        questions.iter().map(line).collect()
    }

    fn span(from: &str, to: &str) -> (TimeMicros, TimeMicros) {
        (date(from).unwrap(), date(to).unwrap())
    }

    #[test]
    fn a_name_is_asked_for_by_all_tickers_that_its_symbol_had() {
        let ask = |names: &[&str], days| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            of_names(&names, Some(&table()), Timeframe::DAY, days)
        };
        let year = span("2022-01-03", "2022-12-30");
        let meta = ask(&["META"], year);
        assert_eq!(lines(&meta.questions), ["FB 2022-01-03 2022-06-08", "META 2022-06-09 2022-12-30"]);
        assert_eq!(meta.notes.len(), 1, "a fund's until January, and nobody's then: {:?}", meta.notes);
        assert!(meta.notes[0].starts_with("META was the ticker of METV until 2022-01-31"), "{:?}", meta.notes);
        // By the ticker that it had then, also where nobody has it on the last day.
        for days in [span("2022-05-02", "2022-06-08"), span("2022-05-02", "2022-07-01")] {
            let both = ask(&["FB", "META"], days);
            assert_eq!(lines(&both.questions)[0], "FB 2022-05-02 2022-06-08");
            assert_eq!((&both.of_name[0], both.symbols.len()), (&both.of_name[1], 1), "two names of one company");
        }
        let both = ask(&["FB", "META"], span("2022-10-03", "2022-12-30"));
        assert_eq!((both.of_name, both.symbols.len()), (vec![vec![0], vec![1]], 2));
        let twice = ask(&["BRK.B", "BRK-B", "META", "META"], span("2022-07-01", "2022-12-30"));
        assert_eq!(twice.of_name[2..], [[2], [2]]);
        // On the last day it is another company's.
        let later = ask(&["FB"], year);
        assert_eq!(lines(&later.questions), ["FB 2022-06-09 2022-12-30"]);
        assert!(later.notes[0].starts_with("FB was the ticker of META until 2022-06-09"), "{:?}", later.notes);
        // A delisting ends nothing: there may be a bar on its day.
        assert_eq!(lines(&ask(&["DEAD"], year).questions), ["DEAD 2022-01-03 2022-12-30"]);
        assert_eq!(lines(&ask(&["NONE"], year).questions), ["NONE 2022-01-03 2022-12-30"]);
        let without = of_names(&["META".to_owned()], None, Timeframe::DAY, year);
        assert_eq!(lines(&without.questions), ["META 2022-01-03 2022-12-30"]);
    }

    #[test]
    fn bars_of_all_tickers_are_asked_for_in_parts_of_one_symbol_and_of_bounded_length() {
        let minute: Timeframe = "1m".parse().unwrap();
        let all = of_tickers(["FB", "IBM"].into_iter(), Some(&table()), minute, span("2021-12-01", "2022-12-30"));
        let expected = [
            "FB 2021-12-01 2022-06-08",
            "FB 2022-06-09 2022-12-30",
            "IBM 2021-12-01 2022-12-01",
            "IBM 2022-12-02 2022-12-30",
        ];
        assert_eq!(lines(&all), expected);
    }
}
