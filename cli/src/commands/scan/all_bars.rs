//! `--all-bars FILE`: the answer at every bar up to the as-of, written while it is computed.

use std::path::{Path, PathBuf};

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{AllBarsError, CHUNK_BYTES_MAX, PreparedScan, all_bars, answer_digest};
use trawl_kernels::NoCancel;
use trawl_market::format_time;
use trawl_wire::Answer;

use crate::failure::UserMistake;
use crate::output::atomic_file::StagedFile;
use crate::output::columnar::{History, TIME};
use crate::output::{About, Format, csv};

/// Where the answers go.
enum Sink {
    Csv(Box<::csv::Writer<StagedFile>>),
    Columns(Box<History<StagedFile>>),
}

/// What was written.
pub struct Written {
    pub path: PathBuf,
    pub times: usize,
    pub rows: u64,
    pub matched: u64,
}

/// Writes the answers of all times. Memory holds one chunk of times; see [`CHUNK_BYTES_MAX`].
///
/// # Errors
/// A [`UserMistake`] for the file's name or place, or for a scan with a limited history; errors of the run or the disk.
pub fn write(prepared: &PreparedScan, options: LocalOptions, path: &Path) -> anyhow::Result<Written> {
    let format = Format::of(path)?;
    if format == Format::Json {
        let help = "end the file name in .csv, .parquet or .arrow";
        return Err(UserMistake::with_help("--all-bars does not write JSON", help).into());
    }
    let headings = prepared.plan.headings.iter();
    if headings.chain(prepared.plan.points[0].settings.iter().map(|(name, _)| name)).any(|name| name == TIME) {
        let message = format!("--all-bars adds a column '{TIME}', but the scan has a column of this name already");
        return Err(UserMistake::with_help(message, "give it another name: EXPR as NAME").into());
    }
    let mut staged = Some(StagedFile::create(path)?);
    let mut sink: Option<Sink> = None;
    let mut written = Written { path: path.to_owned(), times: 0, rows: 0, matched: 0 };
    let identity = prepared.identity.clone();
    let mut push = |time: i64, answer: Answer| -> anyhow::Result<()> {
        let digest = answer_digest(&answer);
        written.times += 1;
        written.rows += answer.rows.len() as u64;
        written.matched += answer.counts()[trawl_wire::Status::Matched as usize] as u64;
        let whole = Answer { identity: identity.clone(), ..answer };
        let about = About::new(&whole, &digest);
        let sink = match (&mut sink, staged.take()) {
            (Some(sink), _) => sink,
            (empty, Some(file)) if format == Format::Csv => {
                let mut writer = ::csv::Writer::from_writer(file);
                csv::header(&whole, Some(TIME), &mut writer)?;
                empty.insert(Sink::Csv(Box::new(writer)))
            }
            (empty, Some(file)) => {
                let history = History::begin(format == Format::Parquet, &whole, &about, file)?;
                empty.insert(Sink::Columns(Box::new(history)))
            }
            (None, None) => anyhow::bail!("the file was not started"),
        };
        match sink {
            Sink::Csv(writer) => csv::rows(&whole, Some(&format_time(time)), writer),
            Sink::Columns(history) => history.push(time, &whole, &about),
        }
    };
    let ran = all_bars(prepared, options, None, CHUNK_BYTES_MAX, &NoCancel, |time, answer| {
        push(time, answer).map_err(|e| format!("{e:#}"))
    });
    ran.map_err(|error| match error {
        AllBarsError::History | AllBarsError::Renamed { .. } => UserMistake::plain(error.to_string()).into(),
        error => anyhow::Error::new(error),
    })?;
    match sink {
        Some(Sink::Csv(writer)) => writer
            .into_inner()
            .map_err(|e| anyhow::anyhow!("cannot write '{}': {}", path.display(), e.error()))?
            .keep()?,
        Some(Sink::Columns(history)) => history.finish()?.keep()?,
        None => anyhow::bail!("the dataset has no bar up to the as-of"),
    };
    Ok(written)
}
