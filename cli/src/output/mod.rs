//! The answer of a scan as a file or a table. One row for every symbol, the same bytes for the same answer.
//!
//! Nothing here knows of clocks, hosts or attempts: those go to the run report.

pub mod columnar;
pub mod csv;
pub mod json;
pub mod read;
pub mod series;
pub mod staged;
pub mod table;
pub mod waterfall;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use trawl_plan::{Diagnostic, ScanDocument, Setting};
use trawl_protocol::{Answer, AnswerRow, Identity, Status};

use crate::failure::UserMistake;
use staged::StagedFile;

/// Columns that every answer file begins with, after the sweep's variables; no select column may be called so.
pub const FIXED_COLUMNS: [&str; 6] = ["place", "symbol", "status", "edge", "provisional", "reason"];
/// Key of the identity, as JSON, in the metadata of Parquet and Arrow files.
pub const IDENTITY_KEY: &str = "trawl.identity";
/// Key of the answer's digest in the metadata of Parquet and Arrow files.
pub const DIGEST_KEY: &str = "trawl.answer_digest";

/// How an answer is written; chosen by the file's extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    Json,
    Parquet,
    Arrow,
}

impl Format {
    /// By extension, in any case.
    ///
    /// # Errors
    /// A mistake that names the four extensions.
    pub fn of(path: &Path) -> Result<Self, UserMistake> {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match extension.as_str() {
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "parquet" => Ok(Self::Parquet),
            "arrow" | "feather" => Ok(Self::Arrow),
            _ => Err(UserMistake::with_help(
                format!("cannot tell from '{}' how to write the answer", path.display()),
                "end the file name in .csv, .json, .parquet or .arrow",
            )),
        }
    }
}

/// What an answer says about itself, beside its rows.
#[derive(Debug, Serialize)]
pub struct About<'a> {
    pub identity: &'a Identity,
    pub answer_digest: &'a str,
    pub counts: Counts,
}

impl<'a> About<'a> {
    pub fn new(answer: &'a Answer, answer_digest: &'a str) -> Self {
        Self { identity: &answer.identity, answer_digest, counts: Counts(answer.counts()) }
    }

    /// The identity as one line of JSON.
    pub fn identity_json(&self) -> String {
        serde_json::to_string(self.identity).unwrap_or_default()
    }
}

/// Symbols per status; serialised as an object in the order of [`Status::ALL`], with their sum.
#[derive(Debug, Clone, Copy)]
pub struct Counts(pub [usize; 6]);

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(Some(Status::ALL.len() + 1))?;
        for status in Status::ALL {
            map.serialize_entry(status.name(), &self.0[status as usize])?;
        }
        map.serialize_entry("symbols", &self.0.iter().sum::<usize>())?;
        map.end()
    }
}

/// The answer file of a scan, its name and place checked before anything is computed.
#[derive(Debug)]
pub struct AnswerFile {
    format: Format,
    path: PathBuf,
    /// `FILE.identity.json` beside `FILE.csv`: CSV has no room for metadata.
    identity: Option<PathBuf>,
}

impl AnswerFile {
    /// Checks name and place. Nothing stays on disk: a scan that is interrupted leaves no half file.
    ///
    /// # Errors
    /// A [`UserMistake`]: an unknown extension, a place that cannot be written.
    pub fn prepare(path: &Path) -> Result<Self, UserMistake> {
        let format = Format::of(path)?;
        StagedFile::create(path)?;
        let identity = (format == Format::Csv).then(|| identity_path(path));
        if let Some(identity) = &identity {
            StagedFile::create(identity)?;
        }
        Ok(Self { format, path: path.to_owned(), identity })
    }

    /// Writes the answer and gives the file (or files) their names.
    ///
    /// # Errors
    /// What the disk says.
    pub fn write(self, answer: &Answer, digest: &str) -> anyhow::Result<Vec<PathBuf>> {
        let about = About::new(answer, digest);
        let mut file = StagedFile::create(&self.path)?;
        match self.format {
            Format::Csv => csv::write(answer, &mut file),
            Format::Json => json::write(answer, &about, &mut file),
            Format::Parquet => columnar::write_parquet(answer, &about, &mut file),
            Format::Arrow => columnar::write_arrow(answer, &about, &mut file),
        }
        .with_context(|| format!("cannot write '{}'", self.path.display()))?;
        let mut written = vec![file.keep()?];
        if let Some(path) = &self.identity {
            let mut file = StagedFile::create(path)?;
            json::write_about(&about, &mut file).with_context(|| format!("cannot write '{}'", path.display()))?;
            written.push(file.keep()?);
        }
        Ok(written)
    }
}

/// Names of the sweep's variables: the first columns of an answer file.
pub fn setting_names(answer: &Answer) -> Vec<&str> {
    answer.points.first().map_or_else(Vec::new, |point| point.iter().map(|(name, _)| name.as_str()).collect())
}

/// Their values at a row's point.
pub fn settings_of<'a>(answer: &'a Answer, row: &AnswerRow) -> &'a [(String, Setting)] {
    answer.points.get(row.row.point as usize).map_or(&[], Vec::as_slice)
}

/// `answer.csv` -> `answer.identity.json`.
pub fn identity_path(path: &Path) -> PathBuf {
    path.with_extension("identity.json")
}

/// Select columns whose headings would clash with the fixed ones, as mistakes in their clauses.
pub fn heading_clashes(document: &ScanDocument) -> Vec<Diagnostic> {
    let clash = |(i, text): (usize, &String)| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = match words[..] {
            [.., "as", name] => name,
            _ => text.trim(),
        };
        let at = text.rfind(name).filter(|_| FIXED_COLUMNS.contains(&name))?;
        Some(Diagnostic {
            message: format!("every answer has a column '{name}' already"),
            clause: format!("select[{}]", i + 1),
            text: text.clone(),
            span: at..at + name.len(),
            label: "taken".to_owned(),
            help: Some("give it another name: EXPR as NAME".to_owned()),
        })
    };
    let sweep = |name: &&String| FIXED_COLUMNS.contains(&name.as_str()) || document.select.contains(*name);
    let taken = |name: &String| Diagnostic {
        message: format!("every answer has a column '{name}' already"),
        clause: "sweep".to_owned(),
        text: name.clone(),
        span: 0..name.len(),
        label: "taken".to_owned(),
        help: Some("give the variable another name: it becomes a column of the answer".to_owned()),
    };
    let select = document.select.iter().enumerate().filter_map(clash);
    select.chain(document.sweep.keys().filter(sweep).map(taken)).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use trawl_protocol::SymbolRow;

    /// An answer with every status, an NA, infinities, a match beyond the limit and a reason that CSV must quote.
    pub fn sample() -> Answer {
        let row = |symbol: &str, status, reason: &str, values: &[f64]| SymbolRow {
            point: 0,
            edge: symbol == "ZZZ",
            provisional: false,
            symbol: symbol.to_owned(),
            status,
            reason: reason.to_owned(),
            rank: values.iter().take(1).copied().collect(),
            values: values.to_vec(),
        };
        let rows = vec![
            (Some(1), row("IBM", Status::Matched, "", &[201.09, f64::NAN])),
            (Some(2), row("ÅÄÖ", Status::Matched, "", &[0.1, f64::INFINITY])),
            (None, row("ZZZ", Status::Matched, "", &[-1e-7, f64::NEG_INFINITY])),
            (None, row("AAPL", Status::NotMatched, "", &[])),
            (None, row("FB", Status::Unknown, "too short: 120 bars, 202 needed", &[])),
            (None, row("GOOG", Status::Stale, "no bar since \"2012\", sorry", &[])),
            (None, row("MSFT", Status::Failed, "checksum differs", &[])),
            (None, row("XOM", Status::Outside, "universe is false", &[])),
        ];
        Answer {
            identity: Identity {
                plan: "p".repeat(64),
                dataset: "us5".to_owned(),
                snapshot: "abcdef0123456789".repeat(4),
                as_of: "2013-02-22".to_owned(),
                engine: "0.1.0".to_owned(),
                numerics: "n1".to_owned(),
                backend: "cpu".to_owned(),
                precision: "f64".to_owned(),
                adjustment: "none".to_owned(),
                partial: false,
            },
            points: vec![Vec::new()],
            best: false,
            select: vec!["close".to_owned(), "a, \"b\"".to_owned()],
            rows: rows.into_iter().map(|(place, row)| AnswerRow { place, row }).collect(),
        }
    }

    #[test]
    fn the_extension_decides_in_any_case_and_a_strange_one_is_refused() {
        assert_eq!(Format::of(Path::new("a.CSV")).unwrap(), Format::Csv);
        assert_eq!(Format::of(Path::new("x/a.b.arrow")).unwrap(), Format::Arrow);
        for strange in ["a.xlsx", "a", "csv", ".csv"] {
            let text = format!("{:?}", Format::of(Path::new(strange)).unwrap_err());
            assert!(text.contains(".csv, .json, .parquet or .arrow"), "{text}");
        }
    }

    #[test]
    fn a_heading_of_the_files_own_is_refused_in_its_place() {
        let select = ["close", "close as symbol", "close + 1 as placebo"].map(str::to_owned).to_vec();
        let clashes = heading_clashes(&ScanDocument { select, ..ScanDocument::default() });
        assert_eq!(clashes.len(), 1);
        assert_eq!((clashes[0].clause.as_str(), clashes[0].span.clone()), ("select[2]", 9..15));
    }

    #[test]
    fn csv_comes_with_its_identity_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer.csv");
        let written = AnswerFile::prepare(&path).unwrap().write(&sample(), "d1").unwrap();
        assert_eq!(written.len(), 2);
        let about: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("answer.identity.json")).unwrap()).unwrap();
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
                    AnswerFile::prepare(&path).unwrap().write(&sample(), "d").unwrap();
                    std::fs::read(path).unwrap()
                })
                .collect();
            assert_eq!(bytes[0], bytes[1], "{extension}");
        }
    }
}
