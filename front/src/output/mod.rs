//! The answer of a scan as a file. One row for every symbol; the same answer gives the same bytes.
//!
//! Nothing here depends on clocks, hosts or attempts: those belong to the run report.

pub mod atomic_file;
pub mod batches;
mod column_chunk;
pub mod columnar;
pub mod csv;
mod hybrid;
pub mod json;
pub mod npy;
pub mod panel;
pub mod panel_table;
pub mod read;
pub mod series;
pub mod signals_table;
pub mod tensor_table;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use schemars::JsonSchema;
use serde::Serialize;
use trawl_market::{TimeMicros, Timeframe, format_label, format_time, parse_time};
use trawl_plan::{ColumnKind, ScanDocument, Setting};
use trawl_wire::{Answer, AnswerRow, Identity, Status};

use crate::mistake::UserMistake;
use atomic_file::StagedFile;

/// Key of the identity, as JSON, in the metadata of Parquet and Arrow files.
pub const IDENTITY_KEY: &str = "trawl.identity";
/// Key of the scan document, as JSON, in the metadata of Parquet and Arrow files.
pub const SCAN_KEY: &str = "trawl.scan";
/// Key of the answer's digest in the metadata of Parquet and Arrow files.
pub const DIGEST_KEY: &str = "trawl.answer_digest";

/// Format of an answer; chosen by the file's extension or by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Rows alone; the identity is beside them.
    Csv,
    /// One document with rows and metadata.
    Json,
    /// One JSON object a row.
    JsonLines,
    /// Parquet with metadata.
    Parquet,
    /// An Arrow IPC file with metadata.
    Arrow,
}

/// The extensions of files of answers, as messages name them.
pub const EXTENSIONS: &str = ".csv, .json, .jsonl, .parquet or .arrow";

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Csv, Self::Json, Self::JsonLines, Self::Parquet, Self::Arrow];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::JsonLines => "ndjson",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }

    /// Other names of it.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::JsonLines => &["jsonl", "json-lines"],
            Self::Csv | Self::Json | Self::Parquet | Self::Arrow => &[],
        }
    }

    /// By a name or an alias.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name || format.aliases().contains(&name))
    }

    /// By extension, in any case.
    ///
    /// # Errors
    /// A mistake that names the extensions.
    pub fn of(path: &Path) -> Result<Self, UserMistake> {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match extension.as_str() {
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "jsonl" | "ndjson" => Ok(Self::JsonLines),
            "parquet" => Ok(Self::Parquet),
            "arrow" | "feather" => Ok(Self::Arrow),
            _ => Err(UserMistake::with_help(
                format!("cannot tell from '{}' how to write the answer", path.display()),
                format!("end the file name in {EXTENSIONS}"),
            )),
        }
    }
}

impl Format {
    /// Whether an answer's identity is in a file of its own: rows alone have no room for it.
    pub fn has_identity_beside(self) -> bool {
        matches!(self, Self::Csv | Self::JsonLines)
    }

    /// Writes the answer.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(self, answer: &Answer, about: &About<'_>, writer: &mut (impl Write + Send)) -> anyhow::Result<()> {
        match self {
            Self::Csv => csv::write(answer, writer),
            Self::Json => json::write(answer, about, writer),
            Self::JsonLines => json::write_lines(answer, writer),
            Self::Parquet => columnar::write_parquet(answer, about, writer),
            Self::Arrow => columnar::write_arrow(answer, about, writer),
        }
    }
}

/// Key of the bar that was read, as JSON, in the metadata of Parquet and Arrow files.
pub const BAR_KEY: &str = "trawl.bar";

/// The bar of a scan whose bars are built from those of the dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BuiltBar {
    /// The scan's timeframe, such as `1w`.
    pub timeframe: String,
    /// Label of its newest bar that is whole at the as-of.
    pub time: String,
}

impl BuiltBar {
    /// Of an answer and the scan that it is of; `None` where the dataset's own bars are read.
    pub fn of(answer: &Answer, scan: Option<&ScanDocument>) -> Option<Self> {
        let (time, timeframe) = (answer.bar?, scan?.timeframe.clone()?);
        let dated = timeframe.parse().is_ok_and(Timeframe::is_dated);
        Some(Self { timeframe, time: format_label(time, dated) })
    }
}

/// The metadata of an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct About<'a> {
    /// What determines the answer.
    pub identity: &'a Identity,
    /// Digest of the answer, 64 hex digits; `None` for the answers of many times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_digest: Option<&'a str>,
    /// What was scanned; `None` if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<&'a ScanDocument>,
    /// The bar that was read, where bars are built from those of the dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<BuiltBar>,
    /// Rows per status; `None` for the answers of many times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Select columns of labels and dates, which a file of rows alone cannot distinguish from damaged numbers; `None` for the
    /// answers of many times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_columns: Option<Vec<&'a str>>,
}

impl<'a> About<'a> {
    /// The metadata of `answer`.
    pub fn new(answer: &'a Answer, scan: Option<&'a ScanDocument>) -> Self {
        let counts = Some(Counts::of(answer));
        let texts = answer
            .select
            .iter()
            .enumerate()
            .filter(|(i, _)| matches!(select_kind(answer, *i), ColumnKind::Date | ColumnKind::Text(_)));
        let text_columns = Some(texts.map(|(_, name)| name.as_str()).collect());
        let bar = BuiltBar::of(answer, scan);
        Self { identity: &answer.identity, answer_digest: Some(&answer.digest), scan, bar, counts, text_columns }
    }

    /// The metadata of the answers of many times.
    pub fn of_many(identity: &'a Identity, scan: &'a ScanDocument) -> Self {
        Self { identity, answer_digest: None, scan: Some(scan), bar: None, counts: None, text_columns: None }
    }

    /// The identity as one line of JSON.
    pub fn identity_json(&self) -> String {
        serde_json::to_string(self.identity).unwrap_or_default()
    }
}

/// Rows per status; serialised as an object in the order of [`Status::ALL`], then the number of symbols, and the number
/// of rows where a sweep gives a symbol several.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// In the order of [`Status::ALL`].
    pub rows: [usize; 6],
    /// Number of symbols.
    pub symbols: usize,
}

impl Counts {
    /// Counts the rows of an answer.
    pub fn of(answer: &Answer) -> Self {
        let rows = answer.counts();
        let symbols = if answer.best {
            answer.rows.iter().map(|r| r.row.symbol.as_str()).collect::<BTreeSet<_>>().len()
        } else {
            rows.iter().sum::<usize>() / answer.points.len().max(1)
        };
        Self { rows, symbols }
    }

    /// All rows.
    pub fn total(&self) -> usize {
        self.rows.iter().sum()
    }
}

impl JsonSchema for Counts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Counts".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let count = || serde_json::json!({ "type": "integer", "minimum": 0 });
        let names = Status::ALL.map(Status::name).into_iter().chain(["symbols"]);
        let required: Vec<&str> = names.collect();
        let all = required.iter().copied().chain(["rows"]).map(|name| (name.to_owned(), count()));
        let properties: serde_json::Map<String, serde_json::Value> = all.collect();
        schemars::json_schema!({
            "type": "object",
            "description": "Rows by status, symbols, and rows where they are not as many",
            "properties": properties,
            "required": required,
        })
    }
}

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(None)?;
        for status in Status::ALL {
            map.serialize_entry(status.name(), &self.rows[status as usize])?;
        }
        map.serialize_entry("symbols", &self.symbols)?;
        if self.total() != self.symbols {
            map.serialize_entry("rows", &self.total())?;
        }
        map.end()
    }
}

/// The answer file of a scan; its name and place are checked before anything is computed.
#[derive(Debug)]
pub struct AnswerFile {
    format: Format,
    /// `None` for standard output.
    path: Option<PathBuf>,
    /// `FILE.identity.json` beside `FILE`, where the format has no room for metadata.
    identity: Option<PathBuf>,
}

impl AnswerFile {
    /// Checks name and place. Nothing is left on disk: an interrupted scan leaves no partial file.
    ///
    /// # Errors
    /// A [`UserMistake`]: an unknown extension, or a place that cannot be written.
    pub fn prepare(path: &Path) -> Result<Self, UserMistake> {
        let format = Format::of(path)?;
        StagedFile::create(path)?;
        let identity = format.has_identity_beside().then(|| identity_path(path));
        if let Some(identity) = &identity {
            StagedFile::create(identity)?;
        }
        Ok(Self { format, path: Some(path.to_owned()), identity })
    }

    /// Standard output in place of a file.
    pub fn standard_output(format: Format) -> Self {
        Self { format, path: None, identity: None }
    }

    /// Whether `path` names one of its files.
    pub fn writes(&self, path: &Path) -> bool {
        let other = atomic_file::target(path);
        self.path.iter().chain(&self.identity).any(|own| atomic_file::target(own) == other)
    }

    /// Writes the answer and renames the file (or files) into place.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn write(self, answer: &Answer, scan: Option<&ScanDocument>) -> anyhow::Result<Vec<PathBuf>> {
        let about = About::new(answer, scan);
        let Some(path) = &self.path else {
            // Written at once, so that a reader that went away is noticed in one place.
            let mut bytes = Vec::new();
            self.format.write(answer, &about, &mut bytes)?;
            let mut out = std::io::stdout();
            out.write_all(&bytes).and_then(|()| out.flush()).context("cannot write to standard output")?;
            return Ok(Vec::new());
        };
        let mut file = StagedFile::create(path)?;
        let written = self.format.write(answer, &about, &mut file);
        written.with_context(|| format!("cannot write '{}'", path.display()))?;
        let mut written = vec![file.keep()?];
        if let Some(path) = &self.identity {
            let mut file = StagedFile::create(path)?;
            json::write_about(&about, &mut file).with_context(|| format!("cannot write '{}'", path.display()))?;
            written.push(file.keep()?);
        }
        Ok(written)
    }
}

/// Label of the bar that an answer is about.
pub fn time_of(answer: &Answer) -> Option<TimeMicros> {
    // Of days it is the as-of itself.
    answer.time.or_else(|| parse_time(&answer.identity.as_of))
}

/// The same as text, with the time of day where bars are shorter than a day.
pub fn time_text(answer: &Answer) -> String {
    // The as-of of such bars is an instant.
    let dated = !answer.identity.as_of.contains('T');
    time_of(answer).map_or_else(|| answer.identity.as_of.clone(), |time| format_label(time, dated))
}

/// The kind of a column of a sweep's variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Texts.
    Text,
    /// Numbers that are all whole.
    Whole,
    /// Numbers.
    Number,
}

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;
/// Largest size of whole numbers that are exact in f64.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A number as an integer, if it is one.
pub fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= WHOLE_MAX).then_some(value as i64)
}

/// The kind of a sweep's variable, by its values at all points.
pub fn setting_kind(answer: &Answer, variable: usize) -> Kind {
    let values = || answer.points.iter().filter_map(|point| point.get(variable)).map(|(_, value)| value);
    if values().any(|value| matches!(value, Setting::Text(_))) {
        return Kind::Text;
    }
    let is_whole = |value: &Setting| matches!(value, Setting::Number(number) if whole(*number).is_some());
    if values().all(is_whole) { Kind::Whole } else { Kind::Number }
}

/// The kind of a select column.
pub fn select_kind(answer: &Answer, column: usize) -> &ColumnKind {
    answer.kinds.get(column).unwrap_or(&ColumnKind::Number)
}

/// A value of a select column that files write as a text: one of texts, a date, a condition; `None` for a number or NA.
pub fn select_text(kind: &ColumnKind, value: f64) -> Option<String> {
    match kind {
        _ if value.is_nan() => None,
        ColumnKind::Number => None,
        ColumnKind::Condition => Some((value == 1.0).to_string()),
        ColumnKind::Date => Some(format_time((value as i64).saturating_mul(DAY_US))),
        ColumnKind::Text(_) => kind.text(value).map(str::to_owned),
    }
}

/// Names of the sweep's variables: the columns of an answer file behind the time.
pub fn setting_names(answer: &Answer) -> Vec<&str> {
    answer.points.first().map_or_else(Vec::new, |point| point.iter().map(|(name, _)| name.as_str()).collect())
}

/// Their values at a row's point.
pub fn settings_of<'a>(answer: &'a Answer, row: &AnswerRow) -> &'a [(String, Setting)] {
    answer.points.get(row.row.point as usize).map_or(&[], Vec::as_slice)
}

/// `answer.csv` -> `answer.csv.identity.json`.
pub fn identity_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".identity.json");
    PathBuf::from(name)
}

/// `answer.csv` -> `answer.identity.json`: of the several files of a wide panel, and of files that earlier releases wrote.
pub fn shared_identity_path(path: &Path) -> PathBuf {
    path.with_extension("identity.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_testing::sample_answer as sample;

    #[test]
    fn the_extension_decides_in_any_case_and_a_strange_one_is_refused() {
        assert_eq!(Format::of(Path::new("a.CSV")).unwrap(), Format::Csv);
        assert_eq!(Format::of(Path::new("x/a.b.arrow")).unwrap(), Format::Arrow);
        for strange in ["a.xlsx", "a", "csv", ".csv"] {
            let text = format!("{:?}", Format::of(Path::new(strange)).unwrap_err());
            assert!(text.contains(".csv, .json, .jsonl, .parquet or .arrow"), "{text}");
        }
    }

    #[test]
    fn the_time_of_a_bar_within_a_day_is_an_instant_at_midnight_too() {
        let day = 1_704_326_400_000_000;
        let mut answer = Answer { time: Some(day), ..sample() };
        assert_eq!(time_text(&answer), "2024-01-04");
        answer.identity.as_of = "2024-01-04T00:15:00Z".to_owned();
        assert_eq!(time_text(&answer), "2024-01-04T00:00:00Z");
    }

    #[test]
    fn the_bar_that_was_built_has_the_form_of_its_timeframe() {
        let answer = Answer { bar: Some(1_704_326_400_000_000), ..sample() };
        let scan = |timeframe: &str| ScanDocument { timeframe: Some(timeframe.to_owned()), ..ScanDocument::default() };
        let time = |timeframe: &str| BuiltBar::of(&answer, Some(&scan(timeframe))).map(|bar| bar.time);
        assert_eq!(time("1w").as_deref(), Some("2024-01-04"));
        assert_eq!(time("5m").as_deref(), Some("2024-01-04T00:00:00Z"));
        assert_eq!(BuiltBar::of(&sample(), Some(&scan("1w"))), None);
        assert!(About::new(&answer, Some(&scan("1w"))).bar.is_some());
    }

    #[test]
    fn a_sweep_counts_symbols_and_rows_separately() {
        let mut answer = sample();
        let second = answer.rows.iter().cloned().map(|mut row| {
            row.row.point = 1;
            row
        });
        answer.rows = answer.rows.iter().cloned().chain(second).collect();
        answer.points = [10.0, 20.0].map(|n| vec![("n".to_owned(), Setting::Number(n))]).to_vec();
        let counts = serde_json::to_value(Counts::of(&answer)).unwrap();
        assert_eq!((&counts["matched"], &counts["symbols"], &counts["rows"]), (&6.into(), &8.into(), &16.into()));
        let plain = serde_json::to_value(Counts::of(&sample())).unwrap();
        assert_eq!((&plain["symbols"], plain.get("rows")), (&8.into(), None));
    }

    #[test]
    fn a_report_in_the_place_of_an_answer_is_noticed_however_it_is_spelt() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        let json = AnswerFile::prepare(&at("a.json")).unwrap();
        assert!(json.writes(&at("a.json")) && json.writes(&at("sub/../a.json")) && json.writes(&at("./a.json")));
        assert!(!json.writes(&at("a.json.identity.json")), "JSON holds its identity");
        let csv = AnswerFile::prepare(&at("a.csv")).unwrap();
        assert!(csv.writes(&at("sub/../a.csv.identity.json")) && !csv.writes(&at("sub/a.csv")));
        #[cfg(unix)]
        {
            std::fs::write(at("a.json"), "").unwrap();
            std::os::unix::fs::symlink(at("a.json"), at("link.json")).unwrap();
            assert!(json.writes(&at("link.json")));
        }
    }

    #[test]
    fn csv_comes_with_its_identity_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer.csv");
        let written = AnswerFile::prepare(&path).unwrap().write(&sample(), None).unwrap();
        assert_eq!(written.len(), 2);
        let about: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("answer.csv.identity.json")).unwrap()).unwrap();
        assert_eq!(about["identity"]["as_of"], "2013-02-22");
        assert_eq!(about["answer_digest"], "d1");
        assert_eq!(about["counts"]["matched"], 3);
        assert_eq!(about["counts"]["symbols"], 8);
    }

    #[test]
    fn every_format_gives_the_same_bytes_twice() {
        let folder = tempfile::tempdir().unwrap();
        for extension in ["csv", "json", "parquet", "arrow"] {
            let bytes: Vec<Vec<u8>> = ["one", "two"]
                .iter()
                .map(|stem| {
                    let path = folder.path().join(format!("{stem}.{extension}"));
                    AnswerFile::prepare(&path).unwrap().write(&sample(), None).unwrap();
                    std::fs::read(path).unwrap()
                })
                .collect();
            assert_eq!(bytes[0], bytes[1], "{extension}");
        }
    }
}
