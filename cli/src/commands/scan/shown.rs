//! What becomes of an answer: files, a table, a notification, an exit code.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_coordinator::client::Scanned;
use trawl_coordinator::{RunReport, answer_digest};
use trawl_kernels::Engine;
use trawl_protocol::{Answer, Status};

use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::notify::{self, Notifier};
use crate::output::staged::StagedFile;
use crate::output::{AnswerFile, table};

/// Where an answer goes.
#[derive(Debug, clap::Args)]
pub struct ShownArgs {
    /// Write the answer to a file ending in .csv, .json, .parquet or .arrow
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// Write times and places of the run as JSON; they are never part of the answer
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Show every match, and every symbol with its status and reason
    #[arg(long, help_heading = "Output")]
    pub all: bool,

    /// Print no table and no progress; files, errors and the exit code tell
    #[arg(long, short, conflicts_with = "all", help_heading = "Output")]
    pub quiet: bool,

    #[command(flatten)]
    pub notify: notify::Args,
}

impl From<Scanned> for Outcome {
    fn from(scanned: Scanned) -> Self {
        let Scanned { answer, report, synthetic, timeframe } = scanned;
        Self { answer, report, synthetic, timeframe, engine: Engine::Cpu }
    }
}

/// Where a run is written to, checked before it begins.
pub struct Files {
    answer: Option<AnswerFile>,
    report: Option<PathBuf>,
    notifier: Option<Notifier>,
}

impl Files {
    pub fn check(args: &ShownArgs) -> Result<Self, UserMistake> {
        if let (Some(output), Some(report)) = (&args.output, &args.report)
            && (output == report || crate::output::identity_path(output) == *report)
        {
            return Err(UserMistake::plain(format!("--report would overwrite the answer in '{}'", report.display())));
        }
        let answer = args.output.as_deref().map(AnswerFile::prepare).transpose()?;
        if let Some(report) = &args.report {
            StagedFile::create(report)?;
        }
        Ok(Self { answer, report: args.report.clone(), notifier: args.notify.prepare()? })
    }
}

/// What came back, and what a table says beside it.
pub struct Outcome {
    pub answer: Answer,
    pub report: RunReport,
    pub synthetic: bool,
    pub timeframe: String,
    /// What computed here. Kept until all is shown: the compiler of a device ends its work before the device goes.
    pub engine: Engine,
}

/// Shows an answer: files, a table, a notification; [`NOT_DONE`] when a symbol failed.
pub fn finish(args: &ShownArgs, outcome: Outcome, files: Files) -> anyhow::Result<ExitCode> {
    let Outcome { answer, report, synthetic, timeframe, engine: _engine } = outcome;
    let written = match files.answer {
        Some(file) => file.write(&answer, &answer_digest(&answer))?,
        None => Vec::new(),
    };
    if let Some(path) = &files.report {
        write_report(&report, path)?;
    }
    let mut printed = Ok(());
    if !args.quiet {
        for warning in &report.warnings {
            crate::diagnostics::warning_line(warning);
        }
        let options = table::Options { all: args.all, synthetic, timeframe: &timeframe, as_of: &report.as_of_shown };
        let mut text = table::render(&answer, options);
        for path in written.iter().chain(&files.report) {
            text.push_str(&format!("wrote {}\n", path.display()));
        }
        printed = io::stdout().write_all(text.as_bytes()).context("cannot write to standard output");
    }
    // Posted also when nobody reads the table to its end.
    let posted = files.notifier.is_none_or(|n| n.deliver(&answer, &answer_digest(&answer), args.quiet));
    printed?;
    let failed = answer.counts()[Status::Failed as usize];
    if failed == 0 && report.is_complete() {
        return Ok(ExitCode::from(if posted { DONE } else { NOT_DONE }));
    }
    if failed == 0 {
        let message = "workers gave different results and it could not be settled which are right: run the scan again";
        crate::diagnostics::error_line(message, None);
        return Ok(ExitCode::from(NOT_DONE));
    }
    let first = answer.rows.iter().find(|r| r.row.status == Status::Failed).map(|r| &r.row);
    let example = first.map_or_else(String::new, |r| format!(" ({}: {})", r.symbol, r.reason));
    let message = format!("the scan is not complete: {} failed{example}", crate::number::counted(failed, "symbol"));
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
