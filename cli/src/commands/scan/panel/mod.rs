//! `trawl panel`: a scan over history as features and labels, for models and backtests.

mod tensors;
mod tidy;
mod wide;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arrow_schema::{DataType, TimeUnit};
use clap::builder::TypedValueParser;
use trawl_coordinator::PreparedScan;
use trawl_coordinator::features::{FOLDS_MAX, FeatureChunk, FeaturePanel, Scaler, WINDOW_MAX};
use trawl_coordinator::local::LocalOptions;
use trawl_front::history::{EMBARGO_MAX, HORIZON_MAX, Names, PanelWanted, unused_limit};
use trawl_front::refused::of_panel;
use trawl_kernels::NoCancel;
use trawl_market::AsOf;
use trawl_wire::Status;

use super::all_bars::format_of;
use super::{Clauses, Running, asked, begin, prepare, routed, warn_unused};
use crate::app::Context;
use crate::backend::Workload;
use crate::failure::{DONE, NOT_DONE, UserMistake};
use crate::output::format_parser;
use tensors::Tensors;
use tidy::Tidy;
use trawl_front::document::STANDARD_STREAM;
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::output::{About, Format, identity_path, json, shared_identity_path};
use wide::Wide;

/// Files that are named one by one when they have been written.
const FILES_NAMED_MAX: usize = 4;

const AFTER_HELP: &str = "\
One row for each symbol and bar that has one and is in the universe: time, symbol, the select columns (features), matched, then the \
labels forward_N: the return of the symbol's own close N of its bars later, adjusted for splits (for dividends too with --adjust \
split+dividend), empty where it is not known yet. A feature at a bar reads no later bar. Rank and limit are not used.

--split and --folds add columns that say what a row is for: train, test, purged (a training row whose furthest label reaches into \
the bars of the test) or embargoed (too near to them).

Examples:
  trawl panel --dataset us5 --where 'close > sma(50)' --select 'rsi(14) as rsi' --select 'roc(20) as roc' --output panel.parquet
  trawl panel --file scan.toml --from 2012-06-01 --forward 1,5 --split 2013-01-02 --embargo 5 --scaler scaler.json --output panel.arrow
  trawl panel --file scan.toml --forward 5 --tensors tensors/ --window 60
  trawl panel --file scan.toml --wide --output frame.parquet";

/// Write a scan's columns over history as a table of features and forward returns
#[derive(Debug, clap::Args)]
#[command(
    after_help = AFTER_HELP,
    mut_arg("backend", |arg| arg.hide(true)),
    mut_arg("device_memory", |arg| arg.hide(true)),
    mut_arg("allow_partial", |arg| arg.hide(true)),
    mut_arg("deadline", |arg| arg.hide(true)),
    mut_arg("profile", |arg| arg.hide(true))
)]
pub struct Args {
    #[command(flatten)]
    clauses: Clauses,

    /// The first bar: a date or a time on the exchange's clock
    #[arg(long, value_name = "WHEN", value_parser = begin)]
    from: Option<AsOf>,

    /// The last bar: a date (to the end of that day), a time on the exchange's clock, an instant such as 2024-06-28T14:31:00Z,
    /// now, today or last-session [default: the newest closed bar]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    to: Option<String>,

    /// Add the returns over these numbers of bars, with commas, as columns forward_N
    #[arg(long, value_name = "BARS,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(HORIZON_MAX)))]
    forward: Vec<u32>,

    /// Write only rows at which the condition is true
    #[arg(long)]
    matches_only: bool,

    /// File of the rows, ending in .csv, .parquet or .arrow; '-' is standard output
    #[arg(long, short, value_name = "FILE", required_unless_present = "tensors", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Format of --output -
    #[arg(long, value_parser = table_format(), value_name = "FORMAT", help_heading = "Output")]
    format: Option<Format>,

    /// Write a file for each column, FILE.COLUMN.parquet, with a row for each time and a column for each symbol
    #[arg(long, conflicts_with_all = ["split", "folds"], requires = "output", help_heading = "Output")]
    wide: bool,

    /// Write windows of the features to this folder, as NumPy arrays [sample, window, feature]
    #[arg(long, value_name = "DIR", requires = "window", help_heading = "Output")]
    tensors: Option<PathBuf>,

    /// Bars of a window; the last is the row's own
    #[arg(long, value_name = "BARS", requires = "tensors", value_parser = clap::value_parser!(u32).range(1..=WINDOW_MAX as i64), help_heading = "Output")]
    window: Option<u32>,

    /// Test from this date or time on, train before it
    #[arg(long, value_name = "WHEN", value_parser = begin, help_heading = "Splits")]
    split: Option<AsOf>,

    /// Cut the span into this many runs of bars and test each once: a column split_K for each
    #[arg(long, value_name = "K", conflicts_with = "split", value_parser = clap::value_parser!(u32).range(2..=i64::from(FOLDS_MAX)), help_heading = "Splits")]
    folds: Option<u32>,

    /// Keep training rows this many more bars away from the test's
    #[arg(long, value_name = "BARS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(EMBARGO_MAX)), help_heading = "Splits")]
    embargo: u32,

    /// Scale the features by their mean and standard deviation over the training rows, and save these as JSON
    #[arg(long, value_name = "FILE", requires = "split", help_heading = "Splits")]
    scaler: Option<PathBuf>,

    /// Print nothing about what was written
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,

    #[command(flatten)]
    running: Running,
}

/// What is written of each chunk.
#[derive(Default)]
struct Sinks {
    tidy: Option<Tidy>,
    wide: Option<Wide>,
    tensors: Option<Tensors>,
}

impl Sinks {
    fn push(&mut self, chunk: &FeatureChunk) -> anyhow::Result<()> {
        if let Some(tidy) = &mut self.tidy {
            tidy.push(chunk)?;
        }
        if let Some(wide) = &mut self.wide {
            wide.push(chunk)?;
        }
        if let Some(tensors) = &mut self.tensors {
            tensors.push(chunk)?;
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        self.tidy.map_or(Ok(()), Tidy::finish)?;
        self.wide.map_or(Ok(()), Wide::finish)?;
        self.tensors.map_or(Ok(()), Tensors::finish)
    }
}

/// Computes the panel and writes it; [`NOT_DONE`] when the bars of a symbol could not be read.
///
/// # Errors
/// Those of a scan at every bar; a [`UserMistake`] for a sweep, a split without bars, a format that has no tables, or a place that
/// cannot be written.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let (document, as_of) = asked(&args.clauses, args.to.as_deref())?;
    let prepared = prepare(context, &document, as_of).map_err(|error| args.clauses.placed(error))?;
    args.running.backend.choose(Workload::CpuOnly("a panel is computed"))?;
    let warnings = prepared.span_warnings().chain(unused_limit(&document));
    for warning in warnings.filter(|_| !args.quiet) {
        crate::diagnostics::warning_line(warning);
    }
    warn_unused(&args.clauses, &document, args.quiet);
    let local = LocalOptions { threads: routed(&args.running, &prepared).threads(), ..LocalOptions::default() };
    let panel =
        FeaturePanel::new(&prepared, local, wanted(&args).options(&prepared, Names::OPTIONS)?).map_err(of_panel)?;
    let mut sinks = sinks(&args, &prepared, &panel)?;
    let written = written(&args, &sinks);
    let place = args.scaler.as_deref().map(StagedFile::create).transpose()?;
    let scaler = args.scaler.as_ref().map(|_| panel.fit(&NoCancel)).transpose().map_err(of_panel)?;
    let (mut rows, mut failed) = (0u64, false);
    let ran = panel.each_chunk(&NoCancel, |mut chunk| {
        if let Some(scaler) = &scaler {
            scaler.apply(&mut chunk);
        }
        let more = if args.wide { chunk.own.len() } else { chunk.rows().count() };
        rows += more as u64;
        failed |= chunk.status.contains(&Status::Failed);
        sinks.push(&chunk).map_err(|error| format!("cannot write the panel: {error:#}"))
    });
    ran.map_err(of_panel)?;
    sinks.finish()?;
    if let (Some(mut file), Some(scaler)) = (place, &scaler) {
        write_scaler(&mut file, scaler, &panel, &prepared)?;
        file.keep()?;
    }
    if let Some(path) = args.output.as_deref().filter(|path| *path != Path::new(STANDARD_STREAM))
        && Format::of(path)?.has_identity_beside()
    {
        // One for all columns' files.
        let place = if args.wide { shared_identity_path(path) } else { identity_path(path) };
        let mut file = StagedFile::create(&place)?;
        json::write_about(&About::of_many(&prepared.identity, &prepared.document), &mut file)?;
        file.keep()?;
    }
    if failed {
        crate::diagnostics::warning_line("the bars of some symbols could not be read: they have no rows");
    }
    let piped = args.output.as_deref() == Some(Path::new(STANDARD_STREAM));
    if !args.quiet && !piped {
        let synthetic = if prepared.dataset.manifest.synthetic { " (SYNTHETIC data, no real market)" } else { "" };
        writeln!(io::stdout(), "wrote {written}: {rows} rows{synthetic}")?;
    }
    Ok(ExitCode::from(if failed { NOT_DONE } else { DONE }))
}

/// The files and the folder that are written, as the last line names them.
fn written(args: &Args, sinks: &Sinks) -> String {
    let table = match (&sinks.wide, &args.output) {
        (Some(wide), _) => match wide.paths() {
            [first, .., last] if wide.paths().len() > FILES_NAMED_MAX => {
                Some(format!("{} files from {} to {}", wide.paths().len(), first.display(), last.display()))
            }
            paths => Some(paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")),
        },
        (None, output) => output.as_ref().map(|path| path.display().to_string()),
    };
    let tensors = args.tensors.as_ref().map(|folder| folder.display().to_string());
    table.into_iter().chain(tensors).collect::<Vec<_>>().join(" and ")
}

/// The formats that a panel can have: those of tables.
fn table_format() -> impl TypedValueParser<Value = Format> {
    format_parser([Format::Csv, Format::Parquet, Format::Arrow])
}

/// What is asked for, as every door checks it.
fn wanted(args: &Args) -> PanelWanted {
    PanelWanted {
        from: args.from.clone(),
        forward: args.forward.clone(),
        matches_only: args.matches_only,
        split: args.split.clone(),
        folds: args.folds,
        embargo: args.embargo,
        window: args.window,
    }
}

fn sinks(args: &Args, prepared: &PreparedScan, panel: &FeaturePanel<'_>) -> anyhow::Result<Sinks> {
    let mut sinks = Sinks::default();
    let about = About::of_many(&prepared.identity, &prepared.document);
    if let Some(path) = &args.output {
        let format = format(path, args.format)?;
        match args.wide {
            true => sinks.wide = Some(Wide::begin(path, format, panel, &about)?),
            false => sinks.tidy = Some(Tidy::begin(path, format, (panel, args.matches_only), &about)?),
        }
    }
    if let (Some(folder), Some(window)) = (&args.tensors, args.window) {
        sinks.tensors = Some(Tensors::begin(folder, window as usize, panel, &about)?);
    }
    Ok(sinks)
}

fn format(path: &Path, stated: Option<Format>) -> Result<Format, UserMistake> {
    match format_of(path, stated, "--output -")? {
        Format::Json | Format::JsonLines => {
            let help = "take csv, parquet or arrow; 'trawl scan --all-bars' writes JSON";
            Err(UserMistake::with_help("a panel is a table, and JSON has none", help))
        }
        format => Ok(format),
    }
}

/// The scaler with what it was fitted on.
fn write_scaler(
    file: &mut StagedFile,
    scaler: &Scaler,
    panel: &FeaturePanel<'_>,
    prepared: &PreparedScan,
) -> anyhow::Result<()> {
    let test = panel.parts().all.first().map(|part| trawl_market::format_time(part.test.0));
    let value = serde_json::json!({
        "features": scaler.features,
        "trained_before": test,
        "identity": prepared.identity,
    });
    serde_json::to_writer_pretty(&mut *file, &value)?;
    writeln!(file)?;
    Ok(())
}

/// The type of times in columnar files.
fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}
