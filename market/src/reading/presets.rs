//! Vendors' formats of bars: how each is recognised, and the meaning of its columns, its file names and its times.
//!
//! Columns named by `--map` take precedence over a preset, and what the user sets over what is recognised.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::MarketError;
use crate::name::column_name;
use crate::time::{DateOrder, TimeMicros, parse_written};

/// Format of a file of bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportFormat {
    /// One of the others, recognised by the file's columns and name.
    #[default]
    Auto,
    /// Any header that has a time and a close, or is mapped to them.
    Csv,
    /// `Date,Open,High,Low,Close,[Adj Close,]Volume`, and the two-line headers of `yfinance.download`.
    Yfinance,
    /// Downloads (`aapl_us_d.csv`) and the bulk files (`<TICKER>,<PER>,<DATE>,<TIME>,...`).
    Stooq,
    /// Klines, with a header or without.
    Binance,
    /// Flat files of aggregates.
    Polygon,
    /// Frames of alpaca-py.
    Alpaca,
    /// Trade bars of LEAN: prices times 10,000, milliseconds since midnight in New York.
    Lean,
    /// Exports of MetaTrader 4 and 5.
    Metatrader,
}

/// Formats by name; the second name of one that has two is its earlier one.
const NAMES: [(&str, ImportFormat); 10] = [
    ("auto", ImportFormat::Auto),
    ("csv", ImportFormat::Csv),
    ("yfinance", ImportFormat::Yfinance),
    ("stooq", ImportFormat::Stooq),
    ("binance", ImportFormat::Binance),
    ("polygon", ImportFormat::Polygon),
    ("alpaca", ImportFormat::Alpaca),
    ("lean", ImportFormat::Lean),
    ("metatrader", ImportFormat::Metatrader),
    ("yahoo-csv", ImportFormat::Yfinance),
];

const KLINES: [&str; 12] = [
    "open_time",
    "open",
    "high",
    "low",
    "close",
    "volume",
    "close_time",
    "quote_volume",
    "count",
    "taker_buy_volume",
    "taker_buy_quote_volume",
    "ignore",
];
const LEAN: [&str; 6] = ["time", "open", "high", "low", "close", "volume"];
const POLYGON: [&str; 7] = ["ticker", "volume", "open", "close", "high", "low", "window_start"];
const METATRADER: [&str; 7] = ["date", "time", "open", "high", "low", "close", "volume"];

impl FromStr for ImportFormat {
    type Err = MarketError;

    fn from_str(text: &str) -> Result<Self, MarketError> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, format)| *format).ok_or_else(|| MarketError::BadName {
            text: text.to_owned(),
            what: "format",
            expected: format!("expected {}", Self::names().join(", ")),
        })
    }
}

impl fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

fn is_digits(text: &str, lengths: std::ops::RangeInclusive<usize>) -> bool {
    lengths.contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit())
}

fn is_number(cell: &str) -> bool {
    cell.trim().parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether the first line of a file contains values and not names: all cells but one are numbers or times.
pub(crate) fn is_data_row<S: AsRef<str>>(cells: &[S]) -> bool {
    let is_clock = |cell: &str| cell.len() >= 4 && cell.contains(':') && cell.starts_with(|c: char| c.is_ascii_digit());
    let is_comma = |cell: &str| is_number(&cell.replace('.', "").replace(',', "."));
    let is_value = |cell: &str| {
        is_number(cell) || is_comma(cell) || parse_written(cell, DateOrder::MonthFirst).is_some() || is_clock(cell)
    };
    let values = cells.iter().filter(|c| is_value(c.as_ref().trim())).count();
    values > 0 && values + 1 >= cells.len() && cells.iter().any(|c| is_number(c.as_ref()))
}

impl ImportFormat {
    /// The names that [`FromStr`] accepts.
    pub fn names() -> Vec<&'static str> {
        NAMES[..NAMES.len() - 1].iter().map(|(name, _)| *name).collect()
    }

    pub(crate) fn expected(self) -> String {
        match self {
            Self::Yfinance => "a header line such as Date,Open,High,Low,Close,Adj Close,Volume".to_owned(),
            Self::Polygon => format!("the columns {} of Polygon's aggregates", POLYGON.join(", ")),
            _ => "a header line with date (or time, datetime, timestamp), close and any further columns, \
                  or --map close=NAME for a column of another name"
                .to_owned(),
        }
    }

    pub(super) fn required(self) -> &'static [&'static str] {
        if self == Self::Yfinance { &["open", "high", "low", "close"] } else { &["close"] }
    }

    /// Columns of a format that was asked for by name that a header lacks, with those of `--map`. A file of Polygon without one of
    /// its columns would be stored as bars of another symbol, or without values that the day has.
    pub(super) fn missing(self, headers: &[&str], map: &[(String, String)], names_symbol: bool) -> Vec<&'static str> {
        if self != Self::Polygon {
            return Vec::new();
        }
        let named: Vec<String> = headers.iter().map(|header| snake(header)).collect();
        let mapped: Vec<String> = map.iter().map(|(target, _)| target.trim().to_ascii_lowercase()).collect();
        let is_there = |column: &str| {
            let same = |name: &String| name == column || (role(column).is_some() && role(name) == role(column));
            let is_time = column == "window_start" && mapped.iter().any(|target| role(target) == Some("time"));
            named.iter().chain(&mapped).any(same) || is_time || (column == "ticker" && names_symbol)
        };
        POLYGON.into_iter().filter(|column| !is_there(column)).collect()
    }

    /// The vendor with this header; [`ImportFormat::Csv`] for any other.
    pub(crate) fn of_header(columns: &[String]) -> Self {
        let names: Vec<String> = columns.iter().map(|c| snake(c)).collect();
        let has = |wanted: &[&str]| wanted.iter().all(|w| names.iter().any(|n| n == w));
        let bracketed = columns.iter().filter(|c| c.trim().starts_with('<')).count() == columns.len();
        if bracketed && has(&["ticker", "date"]) {
            Self::Stooq
        } else if bracketed && has(&["date", "close"]) {
            Self::Metatrader
        } else if has(&["open_time", "close", "close_time"]) {
            Self::Binance
        } else if has(&["window_start", "ticker", "close"]) {
            Self::Polygon
        } else if has(&["symbol", "timestamp", "trade_count", "vwap"]) {
            Self::Alpaca
        } else if has(&["date", "open", "high", "low", "close", "adj_close"]) || has(&["dividends", "stock_splits"]) {
            Self::Yfinance
        } else {
            Self::Csv
        }
    }

    /// The vendor with such rows without a header, and the names of their cells.
    pub(crate) fn of_rows(self, file_name: &str, cells: &[String]) -> Option<(Self, Vec<String>)> {
        let first = cells.first()?.trim();
        let may = |format: Self| self == Self::Auto || self == format;
        let named = |format: Self, names: &[&str]| Some((format, names.iter().map(|n| (*n).to_owned()).collect()));
        if may(Self::Binance) && cells.len() == KLINES.len() && is_digits(first, 12..=17) {
            return named(Self::Binance, &KLINES);
        }
        // Bars of minutes and seconds count from the midnight in the file's name; those of hours and days have a date,
        // and whole prices in a file whose name is a symbol in lower case.
        let dated = first.split_once(' ').filter(|(date, clock)| is_digits(date, 8..=8) && clock.contains(':'));
        let hourly = dated.and_then(|(_, clock)| clock.strip_suffix(":00")).is_some_and(|hour| is_digits(hour, 2..=2));
        let prices = cells.get(1..5).is_some_and(|prices| prices.iter().all(|p| is_digits(p.trim(), 1..=18)));
        let own = self == Self::Lean && dated.is_some();
        let like = hourly && prices && !file_name.contains(|c: char| c.is_uppercase());
        let of_day = lean_date(file_name).is_some() && is_digits(first, 1..=8);
        if may(Self::Lean) && cells.len() == LEAN.len() && (own || like || of_day) {
            return named(Self::Lean, &LEAN);
        }
        let dotted = first.len() == 10 && first.as_bytes()[4] == b'.';
        if may(Self::Metatrader) && cells.len() == METATRADER.len() && dotted && cells[1].contains(':') {
            return named(Self::Metatrader, &METATRADER);
        }
        None
    }

    /// Columns that are not kept as series.
    pub(super) fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::Binance => &["close_time", "ignore"],
            Self::Stooq => &["per"],
            _ => &[],
        }
    }

    /// The calendar of a vendor that has only one.
    pub(crate) fn calendar(self) -> Option<&'static str> {
        (self == Self::Binance).then_some("24/7")
    }

    /// The zone of times without one.
    pub(crate) fn zone(self) -> Option<&'static str> {
        (self == Self::Lean).then_some("America/New_York")
    }

    /// The symbol in a file's name, given without extensions.
    pub(crate) fn symbol_of(self, file_name: &str) -> String {
        let stem = super::stem(file_name);
        let upper = |text: &str| text.to_uppercase();
        match self {
            Self::Binance => match stem.split_once('-') {
                Some((symbol, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => upper(symbol),
                _ => stem.to_owned(),
            },
            Self::Lean => match lean_date(file_name) {
                Some(_) => upper(stem.split('_').nth(1).unwrap_or_default()),
                None => upper(stem),
            },
            Self::Metatrader => {
                let mut parts = stem.rsplitn(4, '_');
                let (to, from, frame) = (parts.next(), parts.next(), parts.next());
                let dated = [to, from].iter().all(|t| t.is_some_and(|t| is_digits(t, 8..=14)));
                match (dated && frame.is_some(), parts.next()) {
                    (true, Some(symbol)) => symbol.to_owned(),
                    _ => stem.to_owned(),
                }
            }
            Self::Stooq => stooq(stem).unwrap_or_else(|| self.tidy(&upper(stem)).into_owned()),
            // Its daily downloads have no header of their own.
            Self::Csv => stooq(stem).unwrap_or_else(|| stem.to_owned()),
            _ => stem.to_owned(),
        }
    }

    /// The symbol as it is kept: Stooq's suffix of the American market is removed.
    pub(super) fn tidy(self, symbol: &str) -> Cow<'_, str> {
        match (self, symbol.strip_suffix(".US")) {
            (Self::Stooq, Some(bare)) => Cow::Borrowed(bare),
            _ => Cow::Borrowed(symbol),
        }
    }

    /// Midnight of the date in a file's name, from which its times are counted in milliseconds.
    pub(super) fn midnight(self, file_name: &str) -> Option<TimeMicros> {
        if self == Self::Lean { lean_date(file_name) } else { None }
    }
}

/// `aapl_us_d` is AAPL, `vod_uk_d` VOD.UK; `None` for other names.
fn stooq(stem: &str) -> Option<String> {
    let (rest, period) = stem.rsplit_once('_')?;
    let (symbol, country) = rest.rsplit_once('_')?;
    let known = ["us", "uk", "de", "jp", "hk", "hu", "pl"].contains(&country);
    if !known || !["d", "w", "m", "q", "y"].contains(&period) || symbol.is_empty() {
        return None;
    }
    let symbol = symbol.to_uppercase();
    Some(if country == "us" { symbol } else { format!("{symbol}.{}", country.to_uppercase()) })
}

/// `20240621_spy_minute_trade.csv`: midnight of its date.
fn lean_date(file_name: &str) -> Option<TimeMicros> {
    let mut parts = super::stem(file_name).split('_');
    let date = parts.next().filter(|date| is_digits(date, 8..=8))?;
    let is_trade = parts.any(|part| part == "trade");
    if is_trade { parse_written(date, DateOrder::MonthFirst).map(|w| w.local) } else { None }
}

/// Names that some vendors use for the time, accepted where the usual ones are missing.
pub(super) const TIME_ALIASES: [&str; 9] =
    ["open_time", "window_start", "t", "ts", "unix", "date_time", "datum", "index_level_0", "unnamed_0"];
/// The same for symbols.
pub(super) const SYMBOL_ALIASES: [&str; 4] = ["act_symbol", "instrument", "code", "sym"];
/// The same for values: (name, meaning).
pub(super) const VALUE_ALIASES: [(&str, &str); 7] =
    [("vol", "volume"), ("o", "open"), ("h", "high"), ("l", "low"), ("c", "close"), ("v", "volume"), ("last", "close")];

/// A header's name without brackets.
pub(super) fn bare(header: &str) -> String {
    column_name(header).unwrap_or_default()
}

/// Meaning of a header, or of a mapping's target, other than a numeric column.
pub(super) fn role(name: &str) -> Option<&'static str> {
    match name {
        "date" | "time" | "datetime" | "timestamp" => Some("time"),
        "symbol" | "ticker" => Some("symbol"),
        _ => None,
    }
}

/// Lower snake case, even of names with another meaning than a numeric column.
pub(super) fn snake(header: &str) -> String {
    let lower = header.trim().to_ascii_lowercase();
    let inner = lower.trim_start_matches('<').trim_end_matches('>').trim();
    if role(inner).is_some() { inner.to_owned() } else { bare(header) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|c| (*c).to_owned()).collect()
    }

    #[test]
    fn every_name_of_a_format_is_read_back() {
        for name in ImportFormat::names() {
            assert_eq!(name.parse::<ImportFormat>().unwrap().to_string(), name);
        }
        assert_eq!("yahoo-csv".parse::<ImportFormat>().unwrap(), ImportFormat::Yfinance);
        assert!("xls".parse::<ImportFormat>().unwrap_err().to_string().contains("yfinance, stooq, binance"));
    }

    #[test]
    fn a_vendor_is_recognised_by_its_header_or_its_rows() {
        let header = |line: &str| ImportFormat::of_header(&strings(&line.split(',').collect::<Vec<_>>()));
        for (line, format) in [
            ("<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>", ImportFormat::Stooq),
            ("<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<TICKVOL>,<VOL>,<SPREAD>", ImportFormat::Metatrader),
            ("open_time,open,high,low,close,volume,close_time,quote_volume,count,ignore", ImportFormat::Binance),
            ("ticker,volume,open,close,high,low,window_start,transactions", ImportFormat::Polygon),
            ("symbol,timestamp,open,high,low,close,volume,trade_count,vwap", ImportFormat::Alpaca),
            ("Date,Open,High,Low,Close,Adj Close,Volume", ImportFormat::Yfinance),
            ("date,open,high,low,close,volume", ImportFormat::Csv),
        ] {
            assert_eq!(header(line), format, "{line}");
        }
        let rows = |name: &str, line: &str| {
            let cells = strings(&line.split(',').collect::<Vec<_>>());
            assert!(is_data_row(&cells), "{line}");
            ImportFormat::Auto.of_rows(name, &cells).map(|(format, _)| format)
        };
        let kline = "1717200000000,1,1,1,1,5,1717200059999,6,7,3,3,0";
        assert_eq!(rows("BTCUSDT-1m-2024-06.csv", kline), Some(ImportFormat::Binance));
        assert_eq!(rows("20240621_spy_minute_trade.csv", "34200000,1,1,1,1,5"), Some(ImportFormat::Lean));
        assert_eq!(rows("spy.csv", "20240621 00:00,1,1,1,1,5"), Some(ImportFormat::Lean));
        // Not as LEAN writes them: its prices would be divided by 10,000.
        assert_eq!(rows("SPY.csv", "20240621 00:00,501,502,500,501,5"), None);
        assert_eq!(rows("spy.csv", "20240621 09:31,501,502,500,501,5"), None);
        assert_eq!(rows("spy.csv", "20240621 00:00,501.5,502,500,501,5"), None);
        assert_eq!(rows("EURUSD60.csv", "2024.06.21,09:00,1.1,1.2,1.0,1.1,5"), Some(ImportFormat::Metatrader));
        assert_eq!(rows("x.csv", "2013-01-02,1,2"), None);
    }

    #[test]
    fn a_file_of_polygon_has_all_of_its_columns_or_they_are_mapped() {
        let missing = |line: &str, map: &[(&str, &str)], named: bool| {
            let map: Vec<_> = map.iter().map(|(to, from)| ((*to).to_owned(), (*from).to_owned())).collect();
            ImportFormat::Polygon.missing(&line.split(',').collect::<Vec<_>>(), &map, named)
        };
        assert!(missing("low,ticker,VOLUME,Open,close,high,window_start,transactions", &[], false).is_empty());
        assert_eq!(missing("tick,vol,open,close,high,low,window_start", &[], false), ["ticker", "volume"]);
        assert_eq!(missing("ticker,volume,shut,date", &[], false), ["open", "close", "high", "low", "window_start"]);
        let map = [("symbol", "tick"), ("volume", "traded"), ("time", "start")];
        assert!(missing("tick,traded,open,close,high,low,start", &map, false).is_empty());
        assert!(missing("volume,open,close,high,low,window_start", &[], true).is_empty());
        assert!(ImportFormat::Csv.missing(&["date", "close"], &[], false).is_empty());
    }

    #[test]
    fn a_file_is_named_after_its_symbol_as_its_vendor_does() {
        for (format, name, symbol) in [
            (ImportFormat::Csv, "AAPL.csv", "AAPL"),
            (ImportFormat::Csv, "aapl_us_d.csv", "AAPL"),
            (ImportFormat::Csv, "vod_uk_d.csv", "VOD.UK"),
            (ImportFormat::Csv, "my_data_d.csv", "my_data_d"),
            (ImportFormat::Stooq, "brk-b.us.txt", "BRK-B"),
            (ImportFormat::Binance, "BTCUSDT-1m-2024-06.csv", "BTCUSDT"),
            (ImportFormat::Lean, "20240621_spy_minute_trade.csv", "SPY"),
            (ImportFormat::Lean, "spy.csv", "SPY"),
            (ImportFormat::Metatrader, "EURUSD_M1_202401020000_202406282359.csv", "EURUSD"),
            (ImportFormat::Metatrader, "EURUSD60.csv", "EURUSD60"),
        ] {
            assert_eq!(format.symbol_of(name), symbol, "{name}");
        }
    }
}
