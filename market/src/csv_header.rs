//! From a CSV file's header to what each of its cells means. Columns are bound by name, never by place.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::MarketError;
use crate::limits::COLUMNS_MAX;
use crate::name::column_name;

/// Columns that a bar has by its nature, in the order in which they are kept.
pub(crate) const CORE: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// How a CSV file spells bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportFormat {
    /// `Date,Open,High,Low,Close,[Adj Close,][Volume]`, one symbol per file, named by the file.
    YahooCsv,
    /// Any header that has a time and a close, or is mapped to them; a symbol column, else named by the file.
    #[default]
    Csv,
}

impl FromStr for ImportFormat {
    type Err = MarketError;

    fn from_str(text: &str) -> Result<Self, MarketError> {
        match text {
            "yahoo-csv" => Ok(Self::YahooCsv),
            "csv" => Ok(Self::Csv),
            _ => Err(MarketError::BadName {
                text: text.to_owned(),
                what: "format",
                expected: "expected yahoo-csv or csv".to_owned(),
            }),
        }
    }
}

impl fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::YahooCsv => "yahoo-csv",
            Self::Csv => "csv",
        })
    }
}

impl ImportFormat {
    fn required(self) -> &'static [&'static str] {
        match self {
            Self::YahooCsv => &["open", "high", "low", "close"],
            Self::Csv => &["close"],
        }
    }

    pub(crate) fn expected(self) -> String {
        match self {
            Self::YahooCsv => "a header line such as Date,Open,High,Low,Close,Adj Close,Volume".to_owned(),
            Self::Csv => "a header line with date (or time, datetime, timestamp), close and what else there is, \
                          or --map close=NAME for a column of another name"
                .to_owned(),
        }
    }
}

/// What the cells of a row mean, by place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Binding {
    /// Cells of a row.
    pub width: usize,
    pub time: usize,
    /// A second column that holds the time of day.
    pub clock: Option<usize>,
    pub symbol: Option<usize>,
    /// Cell and column: core columns in their order, then the others by name.
    pub values: Vec<(usize, String)>,
    /// Headers that mean nothing here.
    pub ignored: Vec<String>,
}

/// Role that a header or a mapping's target has besides being a numeric column.
fn role(name: &str) -> Option<&'static str> {
    match name {
        "date" | "time" | "datetime" | "timestamp" => Some("time"),
        "symbol" | "ticker" => Some("symbol"),
        _ => None,
    }
}

/// Binds a header; `map` holds (meaning, header) pairs.
pub(crate) fn bind(
    file: &str,
    headers: &[&str],
    format: ImportFormat,
    map: &[(String, String)],
) -> Result<Binding, MarketError> {
    let bad = |why: String| MarketError::BadCsv { file: file.to_owned(), why, expected: format.expected() };
    if headers.len() > COLUMNS_MAX {
        let what = format!("columns of {file}");
        return Err(MarketError::Limit { what, found: headers.len() as u64, limit: COLUMNS_MAX as u64 });
    }
    let listed = || {
        const SHOWN_CHARS: usize = 200;
        headers.join(",").chars().take(SHOWN_CHARS).collect::<String>()
    };
    let numeric = headers.iter().filter(|h| h.trim().parse::<f64>().is_ok()).count();
    if numeric > 0 && numeric + 1 >= headers.len() {
        return Err(bad(format!("its first line holds numbers ('{}'), so it has no header", listed())));
    }

    let mut taken = vec![false; headers.len()];
    let mut meaning: BTreeMap<String, usize> = BTreeMap::new();
    for (target, header) in map {
        let wanted = header.trim();
        let Some(cell) = headers.iter().position(|h| h.trim().eq_ignore_ascii_case(wanted)) else {
            return Err(bad(format!("its header '{}' has no column '{wanted}', which --map names", listed())));
        };
        let target = target.trim().to_ascii_lowercase();
        let name = role(&target).map(str::to_owned).or_else(|| column_name(&target));
        let name = name.ok_or_else(|| bad(format!("'{target}' in --map cannot name a column")))?;
        if std::mem::replace(&mut taken[cell], true) || meaning.insert(name, cell).is_some() {
            return Err(bad(format!("--map names '{target}' or '{wanted}' twice")));
        }
    }

    let mut ignored = Vec::new();
    let mut clock = None;
    let named: Vec<String> = headers.iter().map(|h| snake(h)).collect();
    // A column of dates and one of times of the day are read together.
    if !meaning.contains_key("time") {
        let find = |name: &str| named.iter().zip(&taken).position(|(n, &taken)| !taken && n == name);
        let whole = find("datetime").or_else(|| find("timestamp"));
        let (date, time) = (find("date"), find("time"));
        if let Some(cell) = whole.or(date).or(time) {
            meaning.insert("time".to_owned(), cell);
            taken[cell] = true;
        }
        if let (None, Some(_), Some(time)) = (whole, date, time) {
            clock = Some(time);
            taken[time] = true;
        }
    }
    let by_file = format == ImportFormat::YahooCsv;
    for (cell, name) in named.iter().enumerate() {
        if taken[cell] {
            continue;
        }
        match (role(name), column_name(headers[cell])) {
            (Some("symbol"), _) if !by_file && !meaning.contains_key("symbol") => {
                meaning.insert("symbol".to_owned(), cell);
            }
            (None, Some(column)) => match meaning.get(&column) {
                // What --map says goes before what the header says.
                Some(&other) if taken[other] => ignored.push(headers[cell].trim().to_owned()),
                Some(_) => return Err(bad(format!("its header has column '{column}' twice"))),
                None => {
                    meaning.insert(column, cell);
                }
            },
            _ => ignored.push(headers[cell].trim().to_owned()),
        }
    }
    let Some(time) = meaning.remove("time") else {
        return Err(bad(format!("its header '{}' has no date or time", listed())));
    };
    let symbol = meaning.remove("symbol");
    if let Some(missing) = format.required().iter().find(|&&c| !meaning.contains_key(c)) {
        return Err(bad(format!("its header '{}' has no column '{missing}'", listed())));
    }
    let mut values = Vec::with_capacity(meaning.len());
    for core in CORE {
        values.extend(meaning.remove(core).map(|cell| (cell, core.to_owned())));
    }
    values.extend(meaning.into_iter().map(|(column, cell)| (cell, column)));
    Ok(Binding { width: headers.len(), time, clock, symbol, values, ignored })
}

/// Lower snake case even of names that mean something else than a numeric column.
fn snake(header: &str) -> String {
    let lower = header.trim().to_ascii_lowercase();
    let inner = lower.trim_start_matches('<').trim_end_matches('>').trim();
    if role(inner).is_some() { inner.to_owned() } else { column_name(header).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(binding: &Binding) -> Vec<(usize, &str)> {
        binding.values.iter().map(|(i, n)| (*i, n.as_str())).collect()
    }

    #[test]
    fn columns_are_bound_by_name_in_any_order_and_case() {
        let b =
            bind("f", &["VOLUME", "adj close", "Close", "Low", "High", "Open", "DATE"], ImportFormat::YahooCsv, &[]);
        let b = b.unwrap();
        assert_eq!(b.time, 6);
        let expected = [(5, "open"), (4, "high"), (3, "low"), (2, "close"), (0, "volume"), (1, "adj_close")];
        assert_eq!(names(&b), expected);
    }

    #[test]
    fn a_map_goes_before_the_header() {
        let map = [("close".to_owned(), "Price".to_owned()), ("date".to_owned(), "day".to_owned())];
        let b = bind("f", &["ticker", "Day", "price", "close", "Unnamed: 0", ""], ImportFormat::Csv, &map).unwrap();
        assert_eq!((b.time, b.symbol), (1, Some(0)));
        assert_eq!(names(&b), [(2, "close"), (4, "unnamed_0")]);
        assert_eq!(b.ignored, ["close", ""]);
    }

    #[test]
    fn a_date_and_a_time_of_the_day_belong_together() {
        let b = bind("f", &["<DATE>", "<TIME>", "<CLOSE>"], ImportFormat::Csv, &[]).unwrap();
        assert_eq!((b.time, b.clock), (0, Some(1)));
    }

    #[test]
    fn what_cannot_be_bound_is_told() {
        for (headers, told) in [
            (&["a", "b"][..], "no date or time"),
            (&["date", "b"], "no column 'close'"),
            (&["2013-01-01", "1", "2"], "no header"),
            (&["date", "close", "CLOSE"], "'close' twice"),
        ] {
            let error = bind("x.csv", headers, ImportFormat::Csv, &[]).unwrap_err().to_string();
            assert!(error.starts_with("x.csv: ") && error.contains(told), "{error}");
        }
        let map = [("close".to_owned(), "price".to_owned())];
        assert!(bind("f", &["date", "close"], ImportFormat::Csv, &map).unwrap_err().to_string().contains("'price'"));
    }
}
