//! `trawl diff`: two answers of one scan, and which symbols entered and left between them.
//!
//! It reads two files and compares rows by symbol (and by the settings of a sweep). It evaluates no expression and
//! opens no dataset: the identities of the answers decide whether they can be compared at all.

mod compare;
mod write;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::diagnostics::warning_line;
use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::output::page::Page;
use compare::{Difference, Side};
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::output::read;
use write::FileFormat;

const AFTER_HELP: &str = "\
A and B are files that 'trawl scan --output' wrote (.csv or .jsonl with FILE.identity.json beside it, .json, .parquet or \
.arrow, mixed as you like); A is the earlier one. Every symbol (with a sweep: every symbol and setting) that matched in either \
is in one part:
  entered    matched in B, in A but not matched there
  left       matched in A, in B but not matched there; with what it is now and why
  still      matched in both
  only in A, only in B   not in the other file at all, whatever its status

Answers of different scans are compared too, with a warning that says what differs; as_of and snapshot may differ.

The exit code is 0 when both files could be read. With --exit-code it is 1 when the matches differ: something entered \
or left, or a match is of a symbol that only one of the files has.

Examples:
  trawl diff monday.parquet tuesday.parquet
  trawl diff monday.csv tuesday.csv --output changes.json
  trawl diff --exit-code --quiet old.json new.json || echo 'the matches changed'";

/// Compare two answers: what entered, what left, what is still there
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The earlier answer: .csv, .json, .jsonl, .parquet or .arrow
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The later answer
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Write the comparison to a file ending in .json or .csv
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Exit with 1 when the matches differ
    #[arg(long)]
    exit_code: bool,

    /// Show every row, however many
    #[arg(long)]
    all: bool,

    /// Print no table; only the file, warnings and the exit code report the result
    #[arg(long, short, conflicts_with = "all")]
    quiet: bool,
}

/// Compares; [`NOT_DONE`] with `--exit-code` when the matches differ.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let output = match args.output.as_deref() {
        None => None,
        Some(path) if path == args.a || path == args.b => {
            return Err(
                UserMistake::plain(format!("--output would overwrite the answer in '{}'", path.display())).into()
            );
        }
        Some(path) => {
            let format = FileFormat::of(path)?;
            StagedFile::create(path)?;
            Some((path, format))
        }
    };
    let a = Side { name: "A", path: args.a.clone(), table: read::answer(&args.a)? };
    let b = Side { name: "B", path: args.b.clone(), table: read::answer(&args.b)? };
    let difference = Difference::between(&a, &b)?;
    for warning in &difference.warnings {
        warning_line(warning);
    }
    let written = match output {
        None => None,
        Some((path, format)) => {
            let mut file = StagedFile::create(path)?;
            format.write(&difference, &mut file).with_context(|| format!("cannot write '{}'", path.display()))?;
            Some(file.keep()?)
        }
    };
    if !args.quiet {
        let mut text = write::table(&difference, args.all, Page::of_stdout());
        if let Some(path) = written {
            text.push_str(&format!("wrote {}\n", path.display()));
        }
        io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    }
    Ok(ExitCode::from(if args.exit_code && difference.matches_differ() { NOT_DONE } else { DONE }))
}
