//! `--all-bars FILE`: the answer at every bar of a span, written while it is computed.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{CHUNK_BYTES_MAX, PanelChunk, PreparedScan, all_bars_by_column, answer_at};
use trawl_kernels::NoCancel;
use trawl_market::TimeMicros;
use trawl_wire::{Answer, Status};

use crate::failure::UserMistake;
use trawl_front::document::STANDARD_STREAM;
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::output::panel::{self, PanelFile};
use trawl_front::output::{About, Format, csv, identity_path, json};

/// Where the bytes go.
pub(super) enum Target {
    File(StagedFile),
    StandardOutput(BufWriter<Stdout>),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::StandardOutput(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::StandardOutput(out) => out.flush(),
        }
    }
}

impl Target {
    /// Of a path; `-` is standard output.
    ///
    /// # Errors
    /// A [`UserMistake`]: a place that cannot be written.
    pub(super) fn of(path: &Path) -> Result<Self, UserMistake> {
        Ok(match path == Path::new(STANDARD_STREAM) {
            true => Self::StandardOutput(BufWriter::new(io::stdout())),
            false => Self::File(StagedFile::create(path)?),
        })
    }

    /// Renames a file into place.
    pub(super) fn keep(self) -> anyhow::Result<()> {
        match self {
            Self::File(file) => drop(file.keep()?),
            Self::StandardOutput(mut out) => out.flush()?,
        }
        Ok(())
    }
}

/// Where the answers go.
enum Sink {
    Csv(Box<::csv::Writer<Target>>),
    Json(json::ManyAnswers<Target>),
    JsonLines(Target),
    Columns(Box<PanelFile<Target>>),
}

impl Sink {
    /// Starts a file; `first` is the answer at its first time.
    fn begin(format: Format, prepared: &PreparedScan, first: &Answer, target: Target) -> anyhow::Result<Self> {
        let about = About::of_many(&prepared.identity, &prepared.document);
        Ok(match format {
            Format::Csv => {
                let mut writer = ::csv::Writer::from_writer(target);
                csv::header(first, &mut writer)?;
                Self::Csv(Box::new(writer))
            }
            Format::Json => Self::Json(json::ManyAnswers::begin(&about, target)?),
            Format::JsonLines => Self::JsonLines(target),
            Format::Parquet | Format::Arrow => {
                Self::Columns(Box::new(PanelFile::begin(format == Format::Parquet, first, &about, target)?))
            }
        })
    }

    /// Appends the answers of a chunk.
    fn push(&mut self, prepared: &PreparedScan, chunk: &PanelChunk) -> anyhow::Result<panel::Written> {
        if let Self::Columns(file) = self {
            return file.push(chunk);
        }
        let mut written = panel::Written::default();
        for time in 0..chunk.times.len() {
            let answer = answer_at(prepared, chunk, time);
            written.rows += answer.rows.len() as u64;
            written.matched += answer.counts()[Status::Matched as usize] as u64;
            match self {
                Self::Csv(writer) => csv::rows(&answer, writer)?,
                Self::Json(file) => file.push(&answer)?,
                Self::JsonLines(file) => json::write_lines(&answer, file)?,
                Self::Columns(_) => {}
            }
        }
        Ok(written)
    }

    fn finish(self) -> anyhow::Result<()> {
        let target = match self {
            Self::Csv(writer) => writer.into_inner().map_err(|e| anyhow::anyhow!("{}", e.error()))?,
            Self::Json(file) => file.finish()?,
            Self::JsonLines(file) => file,
            Self::Columns(file) => file.finish()?,
        };
        target.keep()
    }
}

/// The file of a scan at every bar; its name and place are checked before anything is computed.
pub struct AllBarsFile {
    /// The file as given; `-` is standard output.
    path: PathBuf,
    format: Format,
}

/// What was written.
#[derive(Default)]
pub struct Written {
    /// Number of bars with an answer.
    pub times: usize,
    /// Number of rows of all answers.
    pub rows: u64,
    /// Number of matches among them.
    pub matched: u64,
}

/// The format that a path or, for standard output, `stated` gives; CSV if nothing does. `option` writes to standard output.
///
/// # Errors
/// A [`UserMistake`]: an unknown extension, or a stated format where the name gives it.
pub(super) fn format_of(path: &Path, stated: Option<Format>, option: &str) -> Result<Format, UserMistake> {
    match stated {
        stated if path == Path::new(STANDARD_STREAM) => Ok(stated.unwrap_or(Format::Csv)),
        Some(_) => {
            let help = format!("'{}' is written in the format of its extension", path.display());
            Err(UserMistake::with_help(format!("--format is for {option}"), help))
        }
        None => Format::of(path),
    }
}

impl AllBarsFile {
    /// Checks name and place; `format` is that of standard output.
    ///
    /// # Errors
    /// A [`UserMistake`]: an unknown extension, a place that cannot be written, or a format where the name gives it.
    pub fn prepare(path: &Path, format: Option<Format>) -> Result<Self, UserMistake> {
        let format = format_of(path, format, "--all-bars -")?;
        let file = Self { path: path.to_owned(), format };
        if !file.is_piped() {
            StagedFile::create(path)?;
        }
        Ok(file)
    }

    /// Whether it is standard output.
    pub fn is_piped(&self) -> bool {
        self.path == Path::new(STANDARD_STREAM)
    }

    /// Writes the answers of all times from `from` (the first when `None`) to the scan's as-of. Memory holds one chunk of times;
    /// see [`CHUNK_BYTES_MAX`].
    ///
    /// # Errors
    /// A [`UserMistake`] for a scan with a limited history or for a span without bars; errors of the run or the disk.
    pub fn write(
        &self,
        prepared: &PreparedScan,
        options: LocalOptions,
        from: Option<TimeMicros>,
    ) -> anyhow::Result<Written> {
        let mut sink: Option<Sink> = None;
        let mut written = Written::default();
        let mut push = |chunk: &PanelChunk| -> anyhow::Result<()> {
            let sink = match &mut sink {
                Some(sink) => sink,
                empty => {
                    let first = answer_at(prepared, chunk, 0);
                    empty.insert(Sink::begin(self.format, prepared, &first, Target::of(&self.path)?)?)
                }
            };
            let panel::Written { rows, matched } = sink.push(prepared, chunk)?;
            written.times += chunk.times.len();
            written.rows += rows;
            written.matched += matched;
            Ok(())
        };
        let ran = all_bars_by_column(prepared, options, from, CHUNK_BYTES_MAX, &NoCancel, |chunk| {
            push(chunk).map_err(|e| format!("cannot write '{}': {e:#}", self.path.display()))
        });
        ran.map_err(trawl_front::refused::of_all_bars)?;
        let Some(sink) = sink else {
            let help = format!("the bars end at {}", prepared.shown_as_of());
            return Err(UserMistake::with_help("the span from --from on has no bar", help).into());
        };
        sink.finish()?;
        if self.format.has_identity_beside() && !self.is_piped() {
            let mut file = StagedFile::create(&identity_path(&self.path))?;
            json::write_about(&About::of_many(&prepared.identity, &prepared.document), &mut file)?;
            file.keep()?;
        }
        Ok(written)
    }
}
