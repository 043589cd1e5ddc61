//! Splits, dividends and tickers from Polygon's HTTP interface, as the tables that `trawl data import` reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::value::RawValue;
use trawl_market::{TimeMicros, format_time};

use super::answers::Answers;
use super::client::encoded;
use super::day_files::date;

/// Results of a page, the most that the server accepts.
const ACTIONS_MAX: u32 = 5_000;
const TICKERS_MAX: u32 = 1_000;
/// Tickers of one question.
const TICKERS_ASKED: usize = 100;
/// The currency of the prices.
const CURRENCY: &str = "USD";

/// What is known of a symbol's listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Ticker, case as in the answer.
    pub ticker: String,
    /// Date of the delisting, as midnight in UTC.
    pub(super) delisted: Option<TimeMicros>,
    /// The answer has no date of the delisting: it was on the last day of the question or before.
    pub(super) is_undated: bool,
    pub(super) name: String,
    pub(super) exchange: String,
    pub(super) kind: String,
    /// Composite FIGI: that of the company's shares, whatever their ticker.
    pub(super) figi: Option<String>,
}

/// The stocks of two days.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listings {
    /// Those of the last day, and those delisted since the first.
    pub last: Vec<Listed>,
    /// Those of the first day; empty where it is the last one too.
    pub first: Vec<Listed>,
}

/// A table as text, and what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    pub text: String,
    /// Rows of it.
    pub rows: usize,
    /// Decisions that the user should know.
    pub notes: Vec<String>,
}

#[derive(Debug, serde::Deserialize)]
struct Split {
    ticker: String,
    execution_date: String,
    split_from: Box<RawValue>,
    split_to: Box<RawValue>,
}

#[derive(Debug, serde::Deserialize)]
struct Dividend {
    ticker: String,
    ex_dividend_date: String,
    cash_amount: f64,
    currency: Option<String>,
}

#[derive(Debug, serde::Deserialize)]
struct Ticker {
    ticker: String,
    name: Option<String>,
    primary_exchange: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    delisted_utc: Option<String>,
    composite_figi: Option<String>,
}

/// All results of a question.
fn all<T: serde::de::DeserializeOwned>(answers: Answers<'_>, path: &str) -> anyhow::Result<Vec<T>> {
    Ok(answers.pages::<Vec<T>>(path)?.into_iter().flatten().collect())
}

/// The filters of questions about these tickers; one without a filter where there are none.
fn filters(tickers: &[String]) -> Vec<String> {
    if tickers.is_empty() {
        return vec![String::new()];
    }
    let filter = |part: &[String]| {
        let encoded: Vec<String> = part.iter().map(|ticker| encoded(ticker)).collect();
        format!("&ticker.any_of={}", encoded.join(","))
    };
    tickers.chunks(TICKERS_ASKED).map(filter).collect()
}

/// Splits and dividends with an ex-date in a span, both ends included, of these tickers or of all; those that are not wanted are left out,
/// by ticker and date.
///
/// # Errors
/// Those of [`Answers::pages`].
pub fn corporate_actions(
    answers: Answers<'_>,
    tickers: &[String],
    (from, to): (TimeMicros, TimeMicros),
    is_wanted: impl Fn(&str, TimeMicros) -> bool,
) -> anyhow::Result<Table> {
    let (mut splits, mut dividends) = (Vec::new(), Vec::new());
    for filter in filters(tickers) {
        let path = |kind: &str, column: &str| {
            let (from, to) = (format_time(from), format_time(to));
            format!(
                "/stocks/v1/{kind}?{column}.gte={from}&{column}.lte={to}&limit={ACTIONS_MAX}&sort={column}.asc{filter}"
            )
        };
        splits.extend(all::<Split>(answers, &path("splits", "execution_date"))?);
        dividends.extend(all::<Dividend>(answers, &path("dividends", "ex_dividend_date"))?);
    }
    // What has no date is refused by the import, with its line.
    let wanted = |ticker: &str, day: &str| date(day).is_none_or(|date| is_wanted(ticker, date));
    splits.retain(|split: &Split| wanted(&split.ticker, &split.execution_date));
    dividends.retain(|dividend: &Dividend| wanted(&dividend.ticker, &dividend.ex_dividend_date));
    Ok(actions_table(splits, dividends))
}

/// One row for each symbol and date: several dividends of a date are added up.
fn actions_table(splits: Vec<Split>, dividends: Vec<Dividend>) -> Table {
    #[derive(Default)]
    struct Row {
        split: Vec<(String, String)>,
        dividends: Vec<f64>,
    }
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for split in splits {
        let ratio = (split.split_from.get().to_owned(), split.split_to.get().to_owned());
        if !is_same(&ratio, &("1".to_owned(), "1".to_owned())) {
            let known = &mut rows.entry((split.ticker, split.execution_date)).or_default().split;
            if !known.iter().any(|other| is_same(other, &ratio)) {
                known.push(ratio);
            }
        }
    }
    let mut foreign = 0;
    for dividend in dividends {
        if dividend.currency.as_deref().is_some_and(|currency| !currency.eq_ignore_ascii_case(CURRENCY)) {
            foreign += 1;
        } else if dividend.cash_amount > 0.0 {
            rows.entry((dividend.ticker, dividend.ex_dividend_date)).or_default().dividends.push(dividend.cash_amount);
        }
    }
    let mut table = Table { text: "symbol,date,split_from,split_to,dividend\n".to_owned(), ..Table::default() };
    for ((ticker, date), mut row) in rows {
        if row.split.len() > 1 {
            table.notes.push(format!("{ticker} has {} different splits on {date}; none is used", row.split.len()));
        }
        let (from, to) = match row.split.as_slice() {
            [one] => one.clone(),
            _ => ("1".to_owned(), "1".to_owned()),
        };
        // In one order, whatever that of the answer: the sum has the same bits.
        row.dividends.sort_by(f64::total_cmp);
        let dividend = row.dividends.iter().fold(0.0, |sum, amount| sum + amount);
        let _ = writeln!(table.text, "{},{},{from},{to},{dividend}", cell(&ticker), cell(&date));
        table.rows += 1;
    }
    if foreign > 0 {
        let left_out = if foreign == 1 {
            format!("dividend is not in {CURRENCY} and was")
        } else {
            format!("dividends are not in {CURRENCY} and were")
        };
        table.notes.push(format!("{foreign} {left_out} left out"));
    }
    table
}

/// Whether two ratios are one, however they are written: 1 to 2, 1.0 to 2.0, 2 to 4.
fn is_same(one: &(String, String), other: &(String, String)) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    match [&one.0, &one.1, &other.0, &other.1].map(|text| number(text)) {
        [Some(a), Some(b), Some(c), Some(d)] => a * d == b * c,
        _ => one == other,
    }
}

/// A cell of CSV.
pub(super) fn cell(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The stocks that were listed on the first or on the last day of a span, or delisted in between. A company that was renamed has its old
/// ticker in the listing of the first day alone.
///
/// # Errors
/// Those of [`Answers::pages`].
pub fn tickers(answers: Answers<'_>, (from, to): (TimeMicros, TimeMicros)) -> anyhow::Result<Listings> {
    let path = |day: TimeMicros, active: bool| {
        let date = format_time(day);
        format!(
            "/v3/reference/tickers?market=stocks&date={date}&active={active}&limit={TICKERS_MAX}&sort=ticker&order=asc"
        )
    };
    let on = |day: TimeMicros| -> anyhow::Result<Vec<Listed>> {
        let found = all::<Ticker>(answers, &path(day, true))?;
        Ok(found.into_iter().map(|ticker| listed(ticker, None)).collect())
    };
    let mut last = on(to)?;
    for ticker in all::<Ticker>(answers, &path(to, false))? {
        let delisted = ticker.delisted_utc.as_deref().and_then(date_of);
        // Of one without a date nothing is known but that it is gone on the last day: it may have bars on all days before.
        if delisted.is_none_or(|date| date >= from) {
            last.push(Listed { is_undated: delisted.is_none(), ..listed(ticker, delisted.or(Some(to))) });
        }
    }
    last.sort();
    last.dedup();
    let first = if from < to { on(from)? } else { Vec::new() };
    Ok(Listings { last, first })
}

fn date_of(text: &str) -> Option<TimeMicros> {
    date(text.get(..10)?)
}

fn listed(ticker: Ticker, delisted: Option<TimeMicros>) -> Listed {
    Listed {
        ticker: ticker.ticker,
        delisted,
        is_undated: false,
        name: ticker.name.unwrap_or_default(),
        exchange: ticker.primary_exchange.unwrap_or_default(),
        kind: ticker.kind.unwrap_or_default(),
        figi: ticker.composite_figi.filter(|figi| !figi.trim().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> Vec<T> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn splits_and_dividends_of_a_date_are_one_row() {
        let splits = read(
            r#"[{"ticker":"B","execution_date":"2024-06-10","split_from":1,"split_to":10},
                {"ticker":"B","execution_date":"2024-06-10","split_from":1.0,"split_to":10.00},
                {"ticker":"B","execution_date":"2024-06-10","split_from":2,"split_to":20},
                {"ticker":"C","execution_date":"2024-06-10","split_from":1.0,"split_to":1.0},
                {"ticker":"D","execution_date":"2024-06-10","split_from":1,"split_to":2},
                {"ticker":"D","execution_date":"2024-06-10","split_from":1,"split_to":3}]"#,
        );
        let dividends = read(
            r#"[{"ticker":"B","ex_dividend_date":"2024-06-10","cash_amount":0.25,"currency":"USD"},
                {"ticker":"B","ex_dividend_date":"2024-06-10","cash_amount":0.5,"currency":"usd"},
                {"ticker":"B","ex_dividend_date":"2024-06-11","cash_amount":0.5,"currency":"CAD"},
                {"ticker":"A","ex_dividend_date":"2024-06-11","cash_amount":0}]"#,
        );
        let table = actions_table(splits, dividends);
        assert_eq!(
            table.text,
            "symbol,date,split_from,split_to,dividend\nB,2024-06-10,1,10,0.75\nD,2024-06-10,1,1,0\n"
        );
        assert_eq!((table.rows, table.notes.len()), (2, 2), "{table:?}");
        assert_eq!(table.notes[1], "1 dividend is not in USD and was left out");
    }
}
