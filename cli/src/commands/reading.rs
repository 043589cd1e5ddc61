//! How files of bars are read: the options that `trawl data import` and `trawl compute` share.

use trawl_market::{DateOrder, ImportFormat, ReadOptions, SymbolPattern, Zone};

use crate::failure::UserMistake;

/// Formats and notations, for the help of both commands.
pub const FORMATS_HELP: &str = "\
Files are recognised by their content: text with commas, semicolons, tabs or vertical bars between the cells, Parquet, Arrow \
IPC files and streams, Feather; plain, gzip, or members of zip archives. '-' is standard input. Columns are bound by \
name: date, time, datetime or timestamp; symbol or ticker; open, high, low, close, volume; any other column of numbers \
is a series under its own name in lower case ('Adj Close' is adj_close). Empty cells, NA, NaN, null and - are missing. Of a lake, \
folders name the symbol (symbol=AAPL) and, where the files have none, the date (date=2024-01-02, year=2024/month=01/day=02).

Formats (--format), recognised unless one is named:
  csv         any header with a time and a close, or mapped to them; without a column of symbols the file's name is one
  yfinance    Ticker.history() and download(), also of several symbols (header lines Price, Ticker, Date)
  stooq       aapl_us_d.csv is AAPL; bulk files with <TICKER>,<DATE>,<VOL>, AAPL.US is AAPL
  binance     klines with a header or without; BTCUSDT-1m-2024-06.csv is BTCUSDT; calendar 24/7
  polygon     day and minute aggregates (ticker, window_start)
  alpaca      frames of alpaca-py (symbol, timestamp, trade_count, vwap)
  lean        trade bars: prices x 10,000, milliseconds since midnight in New York, the date from the file's name
  metatrader  exports of MetaTrader 4 and 5; the times are those of the broker's server, so --tz is needed";

/// How to read the files.
#[derive(Debug, clap::Args)]
pub struct ReadArgs {
    /// Format of the files [default: recognised by their columns and names]
    #[arg(long, short, value_name = "FORMAT", default_value = "auto", hide_default_value = true, value_parser = format)]
    format: ImportFormat,

    /// Names of the columns of files without a header, such as time,open,high,low,close,volume
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,

    /// Read a column under another name, such as close=price; several with commas or by repeating. symbol and time may name the
    /// key of a folder too, such as time=trade_day for trade_day=2024-01-02/part-0.parquet
    #[arg(long, value_name = "MEANING=COLUMN", value_delimiter = ',')]
    map: Vec<String>,

    /// Time zone of times without one, such as America/New_York [default: UTC, refused if the times of day contradict
    /// it]
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    tz: Option<Zone>,

    /// Regular expression whose first group is the symbol in a file's name, such as 'hist_(.*)\.csv'
    #[arg(long, value_name = "REGEX", value_parser = pattern)]
    symbol_from: Option<SymbolPattern>,

    /// The decimal sign of text is a comma, dots separate thousands [default: inferred from all cells of a file, refused
    /// where they do not show it]
    #[arg(long)]
    decimal_comma: bool,

    /// Dates such as 1/4/1999 are month first [default: inferred from all dates of the files together]
    #[arg(long, conflicts_with = "day_first")]
    month_first: bool,

    /// Dates such as 1/4/1999 are day first
    #[arg(long)]
    day_first: bool,
}

fn format(text: &str) -> Result<ImportFormat, String> {
    text.parse().map_err(|_| format!("{} is expected", ImportFormat::names().join(", ")))
}

fn zone(text: &str) -> Result<Zone, String> {
    Zone::named(text).map_err(|e| e.to_string())
}

fn pattern(text: &str) -> Result<SymbolPattern, String> {
    text.parse().map_err(|e: trawl_market::MarketError| e.to_string())
}

impl ReadArgs {
    /// The options in the terms of the market crate.
    ///
    /// # Errors
    /// A mistake in `--map`.
    pub fn options(self) -> Result<ReadOptions, UserMistake> {
        Ok(ReadOptions {
            format: self.format,
            columns: (!self.columns.is_empty()).then_some(self.columns),
            map: self.map.iter().map(|item| split_map(item)).collect::<Result<_, _>>()?,
            date_order: match (self.month_first, self.day_first) {
                (true, _) => Some(DateOrder::MonthFirst),
                (_, true) => Some(DateOrder::DayFirst),
                _ => None,
            },
            decimal_comma: self.decimal_comma,
            zone: self.tz,
            symbol_from: self.symbol_from,
            symbol: None,
            partitions: Vec::new(),
            tickers: None,
        })
    }
}

fn split_map(item: &str) -> Result<(String, String), UserMistake> {
    match item.split_once('=').map(|(m, c)| (m.trim(), c.trim())) {
        Some((meaning, column)) if !meaning.is_empty() && !column.is_empty() => {
            Ok((meaning.to_lowercase(), column.to_owned()))
        }
        _ => Err(UserMistake::with_help(
            format!("--map '{item}' is not of the form MEANING=COLUMN"),
            "an example: --map close=price",
        )),
    }
}
