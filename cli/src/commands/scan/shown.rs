//! How an answer is delivered: files, a table, a notification, an exit code.

use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_coordinator::RunReport;
use trawl_front::run::Outcome;
use trawl_market::Zone;
use trawl_wire::Status;

use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::notify::{self, Notifier};
use crate::output::page::Page;
use crate::output::{format_parser, table};
use trawl_front::document::STANDARD_STREAM;
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::output::{AnswerFile, BuiltBar, Format};

/// Where an answer goes.
#[derive(Debug, clap::Args)]
pub struct ShownArgs {
    /// Write the answer to a file ending in .csv, .json, .jsonl, .parquet or .arrow; '-' writes it, and nothing else,
    /// to standard output
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// With '-' as the file: format of the answer [default: csv]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(Format::ALL), help_heading = "Output")]
    pub format: Option<Format>,

    /// Write the timings of the run as JSON; they are never part of the answer
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Show every match, and every symbol with its status and reason
    #[arg(long, help_heading = "Output")]
    pub all: bool,

    /// Print no table and no progress; only files, errors and the exit code report the result
    #[arg(long, short, conflicts_with = "all", help_heading = "Output")]
    pub quiet: bool,

    #[command(flatten)]
    pub notify: notify::Args,
}

impl ShownArgs {
    /// Whether standard output carries only the answer.
    pub fn is_piped(&self) -> bool {
        self.output.as_deref() == Some(Path::new(STANDARD_STREAM))
    }
}

/// The output files of a run, checked before it starts.
pub struct Files {
    answer: Option<AnswerFile>,
    report: Option<PathBuf>,
    notifier: Option<Notifier>,
}

impl Files {
    /// Checks the options before anything is computed.
    ///
    /// # Errors
    /// The user's mistake.
    pub fn check(args: &ShownArgs) -> Result<Self, UserMistake> {
        let answer = match args.output.as_deref() {
            Some(_) if args.is_piped() && args.all => {
                return Err(UserMistake::with_help(
                    "--output - and --all both need standard output",
                    "leave out --all",
                ));
            }
            Some(_) if args.is_piped() => Some(AnswerFile::standard_output(args.format.unwrap_or(Format::Csv))),
            Some(path) if args.format.is_some() => {
                let help = format!("'{}' is written in the format of its extension", path.display());
                return Err(UserMistake::with_help("--format is for --output -", help));
            }
            None if args.format.is_some() => {
                return Err(UserMistake::with_help("--format is for --output -", "add --output -"));
            }
            path => path.map(AnswerFile::prepare).transpose()?,
        };
        if let (Some(answer), Some(report)) = (&answer, &args.report)
            && answer.writes(report)
        {
            return Err(UserMistake::plain(format!("--report would overwrite the answer in '{}'", report.display())));
        }
        if let Some(report) = &args.report {
            StagedFile::create(report)?;
        }
        Ok(Self { answer, report: args.report.clone(), notifier: args.notify.prepare()? })
    }
}

/// Shows an answer: files, a table, a notification; [`NOT_DONE`] when a symbol failed.
pub fn finish(args: &ShownArgs, outcome: Outcome, files: Files) -> anyhow::Result<ExitCode> {
    let Outcome { answer, report, synthetic, timeframe, document, engine: _engine } = outcome;
    // The process ends, and so does its memory: the rows of a sweep are many to give back one by one.
    let answer = ManuallyDrop::new(answer);
    let quiet = args.quiet || args.is_piped();
    let written = match files.answer {
        Some(file) => file.write(&answer, document.as_ref())?,
        None => Vec::new(),
    };
    if let Some(path) = &files.report {
        write_report(&report, path)?;
    }
    let mut printed = Ok(());
    // Warnings are not part of what is piped.
    for warning in report.warnings.iter().filter(|_| !args.quiet) {
        crate::diagnostics::warning_line(warning);
    }
    // A table says it, and so do documents; rows alone do not.
    if let (true, false, Some(bar)) = (args.is_piped(), args.quiet, BuiltBar::of(&answer, document.as_ref()))
        && args.format.is_none_or(Format::has_identity_beside)
    {
        crate::diagnostics::warning_line(&format!(
            "the bars of {} are built: the newest whole one is that of {}",
            bar.timeframe, bar.time
        ));
    }
    if !quiet {
        let page = Page::of_stdout();
        let as_of = &report.as_of_shown;
        let scanned = document.as_ref().and_then(|document| document.timeframe.as_deref());
        let timeframe = match scanned.filter(|scanned| *scanned != timeframe) {
            Some(scanned) => format!("{scanned} bars built of {timeframe}"),
            None => timeframe,
        };
        let zone = Zone::named(&report.zone).ok();
        let options = table::Options { all: args.all, synthetic, timeframe: &timeframe, as_of, zone, page };
        let mut text = table::render(&answer, options);
        for path in written.iter().chain(&files.report) {
            text.push_str(&format!("wrote {}\n", path.display()));
        }
        printed = io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    }
    // Posted even when the reader of the table went away.
    let posted = files.notifier.is_none_or(|n| n.deliver(&answer, document.as_ref(), quiet));
    printed?;
    let failed = answer.counts()[Status::Failed as usize];
    if failed == 0 && report.is_complete() {
        return Ok(ExitCode::from(if posted { DONE } else { NOT_DONE }));
    }
    if failed == 0 {
        let message =
            "workers gave different results and it could not be determined which are correct: run the scan again";
        crate::diagnostics::error_line(message, None);
        return Ok(ExitCode::from(NOT_DONE));
    }
    let first = answer.rows.iter().find(|r| r.row.status == Status::Failed).map(|r| &r.row);
    let example = first.map_or_else(String::new, |r| format!(" ({}: {})", r.symbol, r.reason));
    let message =
        format!("the scan is not complete: {} failed{example}", trawl_front::human::counted(failed, "symbol"));
    crate::diagnostics::error_line(&message, None);
    Ok(ExitCode::from(NOT_DONE))
}

fn write_report(report: &RunReport, path: &Path) -> anyhow::Result<()> {
    let mut file = StagedFile::create(path)?;
    serde_json::to_writer_pretty(&mut file, report)?;
    file.write_all(b"\n")?;
    file.keep()?;
    Ok(())
}
