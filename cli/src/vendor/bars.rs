//! Bars from Polygon's HTTP interface: aggregates of a symbol, and of all symbols on a day. Each question becomes a file of text as flat
//! files are, numbers with the digits of the answer, which the import then reads.

use std::borrow::Cow;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::value::RawValue;
use trawl_market::{TimeMicros, Timeframe, Zone, format_time};

use super::answers::settled;
use super::client::{Client, encoded};
use super::inbox::Inbox;
use super::reference::cell;

/// Base bars of a page, the most that the server accepts.
const PAGE_BARS: u32 = 50_000;
/// Header of the files.
const HEADER: &str = "ticker,volume,open,close,high,low,window_start,transactions,vwap\n";
/// Nanoseconds of a millisecond and of a microsecond.
const NANOS: (i64, i64) = (1_000_000, 1_000);
const DAY: TimeMicros = 86_400_000_000;
/// Microseconds of a millisecond and of a minute.
const MICROS: (i64, i64) = (1_000, 60_000_000);
/// Where the days of stocks begin and end; those of other markets do in UTC.
const ZONE: &str = "America/New_York";
/// What tickers of other markets have in them, such as `X:BTCUSD`.
const OTHER_MARKET: char = ':';

/// A question whose answer is a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Bars of one symbol, from one day to another.
    Symbol { ticker: String, timeframe: Timeframe, from: TimeMicros, to: TimeMicros },
    /// The daily bars of all symbols on a day.
    Market { date: TimeMicros },
}

/// A result: a bar. Numbers as they are written.
#[derive(Debug, serde::Deserialize)]
struct Bar<'a> {
    #[serde(rename = "T")]
    ticker: Option<String>,
    /// Milliseconds since 1970 in UTC.
    t: Option<i64>,
    #[serde(borrow)]
    o: Option<&'a RawValue>,
    #[serde(borrow)]
    h: Option<&'a RawValue>,
    #[serde(borrow)]
    l: Option<&'a RawValue>,
    #[serde(borrow)]
    c: Option<&'a RawValue>,
    #[serde(borrow)]
    v: Option<&'a RawValue>,
    #[serde(borrow)]
    vw: Option<&'a RawValue>,
    #[serde(borrow)]
    n: Option<&'a RawValue>,
}

#[derive(Debug, serde::Deserialize)]
struct Page<'a> {
    ticker: Option<String>,
    adjusted: Option<bool>,
    /// Absent or null where there are none.
    #[serde(borrow, default)]
    results: Option<Vec<Bar<'a>>>,
    #[serde(rename = "resultsCount")]
    count: Option<usize>,
}

impl Question {
    /// Path and query.
    fn path(&self) -> Option<String> {
        Some(match self {
            Self::Symbol { ticker, timeframe, from, to } => {
                let (multiplier, span) = span_of(*timeframe)?;
                format!(
                    "/v2/aggs/ticker/{}/range/{multiplier}/{span}/{}/{}?adjusted=false&sort=asc&limit={PAGE_BARS}",
                    encoded(ticker),
                    format_time(*from),
                    format_time(*to)
                )
            }
            Self::Market { date } => {
                format!("/v2/aggs/grouped/locale/us/market/stocks/{}?adjusted=false", format_time(*date))
            }
        })
    }

    /// Name of its file: it begins with the date on which the import looks up whose the ticker is.
    fn name(&self) -> String {
        match self {
            Self::Symbol { ticker, from, to, .. } => {
                format!("{}_{}_{}.csv", format_time(*from), ticker.replace('/', "-"), format_time(*to))
            }
            Self::Market { date } => format!("{}.csv", format_time(*date)),
        }
    }

    /// The day of a question about all symbols.
    pub fn date(&self) -> Option<TimeMicros> {
        match self {
            Self::Market { date } => Some(*date),
            Self::Symbol { .. } => None,
        }
    }

    /// The first and the last day that it asks for.
    fn days(&self) -> (TimeMicros, TimeMicros) {
        match self {
            Self::Symbol { from, to, .. } => (*from, *to),
            Self::Market { date } => (*date, *date),
        }
    }

    /// Whether an answer of that age is to be asked for again: the time it is about was not long over.
    fn is_stale(&self, file: &Path) -> bool {
        let settled = settled(self.days().1);
        std::fs::metadata(file).and_then(|found| found.modified()).map_or(true, |asked| asked < settled)
    }

    /// The first instant at which a bar of its answer may begin, and the first after the last one.
    fn span(&self, zone: Zone) -> (TimeMicros, TimeMicros) {
        let (first, last) = self.days();
        let zone = match self {
            Self::Symbol { ticker, .. } if ticker.contains(OTHER_MARKET) => None,
            _ => Some(zone),
        };
        let begin = |day: TimeMicros| zone.map_or(day, |zone| zone.to_utc(day));
        // Bars whose length is no part of a day are counted from before the first one.
        let length = match self {
            Self::Symbol { timeframe, .. } => timeframe.minutes().map_or(DAY, |minutes| minutes * MICROS.1),
            Self::Market { .. } => DAY,
        };
        let early = if length > 0 && DAY % length == 0 { 0 } else { length };
        (begin(first) - early, begin(last.saturating_add(DAY)))
    }

    /// The file with the answer, asked for unless it is here; `None` where there is no bar.
    ///
    /// # Errors
    /// Those of [`Client::pages`]; an answer that is about something else; the disk.
    pub fn answer(&self, client: &Client, inbox: &Inbox) -> anyhow::Result<Option<PathBuf>> {
        let asked = self.path().ok_or_else(|| anyhow::anyhow!("Polygon has no bars of this length"))?;
        let span = self.span(Zone::named(ZONE)?);
        let path = inbox.path(&[&asked], &self.name());
        if self.is_stale(&path) {
            Inbox::put(&path, |file| {
                let mut to = BufWriter::new(file);
                to.write_all(HEADER.as_bytes())?;
                client.pages(&asked, |body| self.write(body, span, &mut to))?;
                Ok(to.flush()?)
            })?;
        }
        let bytes = std::fs::metadata(&path)?.len();
        Ok((bytes > HEADER.len() as u64).then_some(path))
    }

    /// Writes the bars of a page, all of which have to begin within the span.
    fn write(
        &self,
        body: &[u8],
        (begin, end): (TimeMicros, TimeMicros),
        to: &mut impl std::io::Write,
    ) -> anyhow::Result<()> {
        let page: Page<'_> = serde_json::from_slice(body)?;
        if let (Self::Symbol { ticker, .. }, Some(other)) = (self, &page.ticker)
            && ticker != other
        {
            anyhow::bail!("the bars are those of {other}, not of {ticker}");
        }
        anyhow::ensure!(page.adjusted != Some(true), "the prices are adjusted, though others were asked for");
        let results = page.results.unwrap_or_default();
        if let Some(count) = page.count
            && count != results.len()
        {
            anyhow::bail!("{} results came, not the {count} that are announced", results.len());
        }
        // The import gives a file's bars to the symbol that has the ticker on the days that were asked for.
        let times = results.iter().filter_map(|bar| bar.t).map(|t| t.saturating_mul(MICROS.0));
        if let Some(other) = times.into_iter().find(|time| !(begin..end).contains(time)) {
            let (first, last) = self.days();
            let (first, last) = (format_time(first), format_time(last));
            anyhow::bail!("a bar is of {}, which is outside of {first} to {last}", format_time(other));
        }
        let mut line = String::new();
        for bar in &results {
            line.clear();
            self.line(bar, &mut line);
            to.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    /// A line of the file. What a bar lacks is an empty cell: the import puts the line into the quarantine, as it does with a bar whose
    /// values cannot be.
    fn line(&self, bar: &Bar<'_>, line: &mut String) {
        let (ticker, start) = match self {
            Self::Symbol { ticker, .. } => (ticker.as_str(), bar.t.and_then(|t| t.checked_mul(NANOS.0))),
            // Its own time is that of the close.
            Self::Market { date } => (bar.ticker.as_deref().unwrap_or_default(), date.checked_mul(NANOS.1)),
        };
        line.push_str(&cell(ticker));
        for value in [bar.v, bar.o, bar.c, bar.h, bar.l] {
            line.push(',');
            line.push_str(&written(value));
        }
        line.push(',');
        line.push_str(&start.map(|start| start.to_string()).unwrap_or_default());
        for value in [bar.n, bar.vw] {
            line.push(',');
            line.push_str(&written(value));
        }
        line.push('\n');
    }
}

/// The tickers in a file of an answer about all symbols.
///
/// # Errors
/// A file that cannot be read.
pub fn tickers_of(file: &Path) -> anyhow::Result<Vec<String>> {
    let failed = || format!("cannot read '{}'", file.display());
    let mut rows = csv::Reader::from_path(file).with_context(failed)?;
    let mut tickers = Vec::new();
    for row in rows.records() {
        let row = row.with_context(failed)?;
        tickers.extend(row.get(0).filter(|ticker| !ticker.is_empty()).map(str::to_owned));
    }
    Ok(tickers)
}

/// The text of a value: the digits of a number; what is none as it is, so that the quarantine shows it.
fn written(value: Option<&RawValue>) -> Cow<'_, str> {
    match value.map(RawValue::get) {
        None | Some("null") => Cow::Borrowed(""),
        Some(text) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => Cow::Borrowed(text),
        // The quotes of a string stay in the cell, else it would be read as the number in it.
        Some(text) => Cow::Owned(cell(text)),
    }
}

/// How the server names the length of a bar.
pub fn span_of(timeframe: Timeframe) -> Option<(i64, &'static str)> {
    match timeframe.minutes() {
        Some(minutes) if minutes % 60 == 0 => Some((minutes / 60, "hour")),
        Some(minutes) => Some((minutes, "minute")),
        None if timeframe == Timeframe::DAY => Some((1, "day")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(question: &Question, body: &str) -> anyhow::Result<String> {
        let mut to = Vec::new();
        question.write(body.as_bytes(), question.span(Zone::named(ZONE)?), &mut to)?;
        Ok(String::from_utf8(to)?)
    }

    #[test]
    fn an_answer_becomes_lines_with_its_digits() {
        let (from, to) =
            (trawl_market::parse_time("2024-01-02").unwrap(), trawl_market::parse_time("2024-01-03").unwrap());
        let symbol = Question::Symbol { ticker: "A.B".to_owned(), timeframe: "5m".parse().unwrap(), from, to };
        assert_eq!(
            symbol.path().unwrap(),
            "/v2/aggs/ticker/A.B/range/5/minute/2024-01-02/2024-01-03?adjusted=false&sort=asc&limit=50000"
        );
        let body = r#"{"ticker":"A.B","adjusted":false,"resultsCount":1,"results":[{"o":1.10,"h":2,"l":1,"c":1.5,"v":1.25e3,"t":1704186000000}]}"#;
        assert_eq!(lines(&symbol, body).unwrap(), "A.B,1.25e3,1.10,1.5,2,1,1704186000000000000,,\n");
        assert_eq!(lines(&symbol, r#"{"status":"OK","resultsCount":0}"#).unwrap(), "");
        let day = Question::Market { date: from };
        let body = r#"{"results":[{"T":"X","o":1,"h":2,"l":1,"c":1.5,"v":7.5,"t":1704229200000,"n":3,"vw":1.25}]}"#;
        assert_eq!(lines(&day, body).unwrap(), "X,7.5,1,1.5,2,1,1704153600000000000,3,1.25\n");
        assert_eq!(lines(&day, r#"{"status":"OK","results":null}"#).unwrap(), "");
        // What a bar lacks does not refuse the others.
        let body =
            r#"{"results":[{"o":null,"h":2,"l":1,"c":"1,5","t":1704186000000},{"o":1,"h":2,"l":1,"c":1,"v":2}]}"#;
        assert_eq!(
            lines(&symbol, body).unwrap(),
            "A.B,,,\"\"\"1,5\"\"\",2,1,1704186000000000000,,\nA.B,2,1,1,2,1,,,\n"
        );
        assert_eq!(lines(&day, body).unwrap().lines().next().unwrap(), ",,,\"\"\"1,5\"\"\",2,1,1704153600000000000,,");
        for (body, why) in [
            (r#"{"ticker":"B","results":[]}"#, "those of B"),
            (r#"{"adjusted":true}"#, "adjusted"),
            (r#"{"resultsCount":2,"results":[]}"#, "0 results came, not the 2"),
            (r#"{"resultsCount":2,"results":null}"#, "0 results came, not the 2"),
            // A minute before the first day begins in New York, and when the last one is over.
            (
                r#"{"results":[{"t":1704171540000}]}"#,
                "a bar is of 2024-01-02T04:59:00Z, which is outside of 2024-01-02 to",
            ),
            (r#"{"results":[{"t":1704344400000}]}"#, "a bar is of 2024-01-04T05:00:00Z"),
        ] {
            let error = lines(&symbol, body).unwrap_err().to_string();
            assert!(error.contains(why), "{body}: {error}");
        }
        let late = r#"{"results":[{"T":"X","t":1704258000000}]}"#;
        assert!(lines(&day, late).unwrap_err().to_string().contains("outside of 2024-01-02 to 2024-01-02"));
        // The days of other markets are those of UTC; seven hours are no part of a day.
        let other = |ticker: &str, timeframe: &str| Question::Symbol {
            ticker: ticker.to_owned(),
            timeframe: timeframe.parse().unwrap(),
            from,
            to,
        };
        let at = |hour: i64| format!(r#"{{"results":[{{"t":{}}}]}}"#, 1_704_153_600_000 + hour * 3_600_000);
        for (ticker, timeframe, first, last) in [("X:BTCUSD", "1h", 0, 47), ("A", "1h", 5, 52), ("A", "7h", -2, 52)] {
            let question = other(ticker, timeframe);
            for (hour, is_inside) in [(first - 1, false), (first, true), (last, true), (last + 1, false)] {
                assert_eq!(lines(&question, &at(hour)).is_ok(), is_inside, "{ticker} {timeframe} {hour}");
            }
        }
    }

    #[test]
    fn an_answer_about_a_time_that_was_not_over_is_asked_for_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let on = |date: &str| Question::Market { date: trawl_market::parse_time(date).unwrap() };
        assert!(!on("2024-01-02").is_stale(file.path()));
        assert!(on(&format_time(trawl_market::now() - trawl_market::now().rem_euclid(DAY))).is_stale(file.path()));
        assert!(on("2024-01-02").is_stale(Path::new("/no/such/file")));
    }
}
