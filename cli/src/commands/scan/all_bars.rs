//! `--all-bars FILE`: the answer at every bar up to the as-of, written while it is computed.

use std::path::{Path, PathBuf};

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{
    AllBarsError, CHUNK_BYTES_MAX, PanelChunk, PreparedScan, all_bars_by_column, answer_at, answer_digest,
};
use trawl_kernels::NoCancel;
use trawl_market::format_time;
use trawl_wire::Answer;

use crate::failure::UserMistake;
use crate::output::atomic_file::StagedFile;
use crate::output::panel::{PanelFile, TIME};
use crate::output::{About, Format, csv, json, panel};

/// Where the answers go.
enum Sink {
    Csv(Box<::csv::Writer<StagedFile>>),
    JsonLines(StagedFile),
    Columns(Box<PanelFile<StagedFile>>),
}

/// What was written.
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Number of bars with an answer.
    pub times: usize,
    /// Number of rows of all answers.
    pub rows: u64,
    /// Number of matches among them.
    pub matched: u64,
}

/// As a mistake of the user where it is one.
pub(super) fn mistake(error: AllBarsError) -> anyhow::Error {
    match error {
        AllBarsError::History | AllBarsError::Renamed { .. } => UserMistake::plain(error.to_string()).into(),
        error => anyhow::Error::new(error),
    }
}

/// Writes the answers of all times. Memory holds one chunk of times; see [`CHUNK_BYTES_MAX`].
///
/// # Errors
/// A [`UserMistake`] for the file's name or place, or for a scan with a limited history; errors of the run or the disk.
pub fn write(prepared: &PreparedScan, options: LocalOptions, path: &Path) -> anyhow::Result<Written> {
    let format = Format::of(path)?;
    if format == Format::Json {
        let help = "end the file name in .csv, .jsonl, .parquet or .arrow";
        return Err(UserMistake::with_help("--all-bars does not write one JSON document", help).into());
    }
    let headings = prepared.plan.headings.iter();
    if headings.chain(prepared.plan.points[0].settings.iter().map(|(name, _)| name)).any(|name| name == TIME) {
        let message = format!("--all-bars adds a column '{TIME}', but the scan has a column of this name already");
        return Err(UserMistake::with_help(message, "give it another name: EXPR as NAME").into());
    }
    let mut staged = Some(StagedFile::create(path)?);
    let mut sink: Option<Sink> = None;
    let mut written = Written { path: path.to_owned(), times: 0, rows: 0, matched: 0 };
    let identity = &prepared.identity;
    let mut push = |chunk: &PanelChunk| -> anyhow::Result<()> {
        // The file's metadata are those of its first time.
        let begin = |file: StagedFile| -> anyhow::Result<Sink> {
            let first = answer_at(prepared, chunk, 0);
            let digest = answer_digest(&first);
            let first = Answer { identity: identity.clone(), ..first };
            match format {
                Format::Csv => {
                    let mut writer = ::csv::Writer::from_writer(file);
                    csv::header(&first, Some(TIME), &mut writer)?;
                    Ok(Sink::Csv(Box::new(writer)))
                }
                Format::Json | Format::JsonLines => Ok(Sink::JsonLines(file)),
                Format::Parquet | Format::Arrow => {
                    let about = About::new(&first, &digest);
                    Ok(Sink::Columns(Box::new(PanelFile::begin(format == Format::Parquet, &first, &about, file)?)))
                }
            }
        };
        let sink = match (&mut sink, staged.take()) {
            (Some(sink), _) => sink,
            (empty, Some(file)) => empty.insert(begin(file)?),
            (None, None) => anyhow::bail!("the file was not started"),
        };
        written.times += chunk.times.len();
        match sink {
            Sink::Columns(file) => {
                let panel::Written { rows, matched } = file.push(chunk)?;
                written.rows += rows;
                written.matched += matched;
                return Ok(());
            }
            Sink::Csv(_) | Sink::JsonLines(_) => {}
        }
        for time in 0..chunk.times.len() {
            let answer = answer_at(prepared, chunk, time);
            written.rows += answer.rows.len() as u64;
            written.matched += answer.counts()[trawl_wire::Status::Matched as usize] as u64;
            let at = format_time(chunk.times[time]);
            match sink {
                Sink::Csv(writer) => csv::rows(&answer, Some(&at), writer)?,
                Sink::JsonLines(file) => json::write_lines(&answer, Some((TIME, &at)), file)?,
                Sink::Columns(_) => {}
            }
        }
        Ok(())
    };
    let ran = all_bars_by_column(prepared, options, None, CHUNK_BYTES_MAX, &NoCancel, |chunk| {
        push(chunk).map_err(|e| format!("{e:#}"))
    });
    ran.map_err(mistake)?;
    match sink {
        Some(Sink::Csv(writer)) => writer
            .into_inner()
            .map_err(|e| anyhow::anyhow!("cannot write '{}': {}", path.display(), e.error()))?
            .keep()?,
        Some(Sink::JsonLines(file)) => file.keep()?,
        Some(Sink::Columns(file)) => file.finish()?.keep()?,
        None => anyhow::bail!("the dataset has no bar up to the as-of"),
    };
    Ok(written)
}
