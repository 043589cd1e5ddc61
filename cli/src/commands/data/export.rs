//! `trawl data export`: the bars of a dataset as one table that other programs can read, and `trawl data import` too.
//!
//! Long format: one row per bar, by symbol and time, with the columns `symbol`, `time` and those of the dataset.
//! Numbers in CSV are the shortest that read back as the same bits.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use trawl_market::{Adjustment, AsOf, Dataset, LoadedBars, MarketError, TimeMicros, format_label};

use crate::app::Context;
use crate::failure::{UserMistake, of_market};
use crate::vendor::inbox::at_once;
use crate::vendor::lake_out::{LakeOut, is_address};
use trawl_front::human::counted;
use trawl_front::output::atomic_file::StagedFile;

/// Rows of one record batch.
const BATCH_ROWS: usize = 64 * 1024;

const AFTER_HELP: &str = "\
One row per bar, sorted by symbol and time: symbol,time and the dataset's columns. Times are UTC; of daily and longer bars \
they are dates. Imported again with the same timeframe and calendar, an export of all bars is the same snapshot. A lake of --hive in a \
directory appears when all of it is written; in a bucket, file after file. The bucket's variables are TRAWL_SOURCE_AWS_ENDPOINT_URL and \
so on, as for an import.

Examples:
  trawl data export us5 -o us5.parquet
  trawl data export us5 --symbol IBM -o - | head
  trawl data export mine --from 2024-01-01 --adjust split -o adjusted.csv
  trawl data export mine --hive -o lake
  trawl data export mine --hive -o s3://lakes/mine";

/// Write the bars of a dataset to a CSV, Parquet or Arrow file
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Dataset: NAME, or NAME@SNAPSHOT with at least 8 digits of a snapshot's id
    #[arg(value_name = "DATASET")]
    dataset: String,

    /// File to write: .csv, .parquet or .arrow; '-' writes CSV to standard output. With --hive a directory that is not there
    /// yet, or s3://BUCKET/PREFIX with nothing below it
    #[arg(long, short, value_name = "FILE|URL")]
    output: PathBuf,

    /// Only this symbol; several with commas or by repeating
    #[arg(long, short, value_name = "SYMBOL", value_delimiter = ',')]
    symbol: Vec<String>,

    /// Only bars that start at or after this date or time, on the exchange's clock
    #[arg(long, value_name = "WHEN", value_parser = time)]
    from: Option<AsOf>,

    /// Only bars that start at or before this time, on the exchange's clock; a date includes its day
    #[arg(long, value_name = "WHEN", value_parser = time)]
    to: Option<AsOf>,

    /// Adjust prices and volumes: none, split or split+dividend, as of the last bar, or of a date as in split@2024-06-28
    #[arg(long, value_name = "HOW", default_value = "none")]
    adjust: String,

    /// Write a lake of Parquet files, one for each symbol in a folder such as symbol=AAPL
    #[arg(long)]
    hive: bool,
}

fn time(text: &str) -> Result<AsOf, String> {
    match AsOf::parse(text).map_err(|mistake| format!("{mistake}; {}", mistake.help))? {
        AsOf::LastSession => Err("a date or a time is expected, such as 2024-06-28 or '2024-06-28 10:30'".to_owned()),
        time => Ok(time),
    }
}

enum Kind {
    Csv,
    Parquet,
    Arrow,
}

fn kind(path: &Path) -> Result<Kind, UserMistake> {
    if is_address(path) {
        return Err(UserMistake::with_help(
            format!("'{}' is in a bucket, to which lakes alone are written", path.display()),
            "add --hive for a lake below that address, or name a file of this machine",
        ));
    }
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        _ if path == Path::new("-") => Ok(Kind::Csv),
        "csv" => Ok(Kind::Csv),
        "parquet" => Ok(Kind::Parquet),
        "arrow" | "feather" => Ok(Kind::Arrow),
        _ => Err(UserMistake::with_help(
            format!("'{}' does not say what to write", path.display()),
            "end its name in .csv, .parquet or .arrow; '-' writes CSV to standard output",
        )),
    }
}

/// Writes the bars.
pub fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let kind = if args.hive { Kind::Parquet } else { kind(&args.output)? };
    let dataset = context.store()?.open(&args.dataset).map_err(of_market)?;
    // Events after the last bar are not applied, as in a scan.
    let manifest = &dataset.manifest;
    let adjustment = Adjustment::parse(&args.adjust).map_err(of_market)?.on(manifest.calendar(), manifest.timeframe);
    let adjustment = adjustment.known_at(manifest.last_time);
    if !adjustment.is_none() && dataset.manifest.factors.is_none() {
        crate::diagnostics::warning_line(&format!(
            "--adjust {} changes nothing: dataset {} has no splits and dividends ('trawl data import --factors' adds them)",
            args.adjust, dataset.manifest.name
        ));
    }
    let from = args.from.as_ref().map_or(Ok(TimeMicros::MIN), |from| manifest.span_start(from)).map_err(of_market)?;
    let to = args.to.as_ref().map_or(Ok(TimeMicros::MAX), |to| manifest.span_end(to)).map_err(of_market)?;
    if let (Some(first), Some(last)) = (&args.from, &args.to)
        && from > to
    {
        let message = format!("--from: '{first}' is after --to '{last}'");
        return Err(UserMistake::with_help(message, "give the first of the two times as --from").into());
    }
    let span = (from, to);
    if args.hive {
        return hive(&dataset, args, span, &adjustment);
    }
    let bars = bars(&dataset, &args.symbol, span, &adjustment).map_err(of_market)?;
    let rows: usize = bars.iter().map(|b| b.times.len()).sum();
    let columns = &dataset.manifest.columns;
    let dated = dataset.manifest.is_dated();
    if args.output == Path::new("-") {
        csv(&bars, columns, dated, &mut io::BufWriter::new(io::stdout().lock()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut file = StagedFile::create(&args.output)?;
    let written = match kind {
        Kind::Csv => csv(&bars, columns, dated, &mut file),
        Kind::Parquet => parquet(&bars, columns, &mut file),
        Kind::Arrow => arrow(&bars, columns, &mut file),
    };
    written.with_context(|| format!("cannot write '{}'", args.output.display()))?;
    let path = file.keep()?;
    let what = format!("{} of {}", counted(rows, "bar"), counted(bars.len(), "symbol"));
    writeln!(io::stdout(), "wrote {what} to {}", path.display()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a lake: group after group, so that no more than the bars of one are in memory; several files at once.
fn hive(
    dataset: &Dataset,
    args: &Args,
    span: (TimeMicros, TimeMicros),
    adjustment: &Adjustment,
) -> anyhow::Result<ExitCode> {
    check_symbols(dataset, &args.symbol).map_err(of_market)?;
    let lake = LakeOut::open(&args.output)?;
    let (mut rows, mut symbols) = (0, 0);
    for group in dataset.manifest.filled_groups() {
        let all = of_group(dataset, group, &args.symbol, span, adjustment).map_err(of_market)?;
        at_once(&all, |bars| lake.part(&bars.symbol, |file| parquet_of_symbol(bars, &dataset.manifest.columns, file)))?;
        (rows, symbols) = (rows + all.iter().map(|bars| bars.times.len()).sum::<usize>(), symbols + all.len());
    }
    let target = lake.keep()?;
    let what = format!("{} of {}", counted(rows, "bar"), counted(symbols, "symbol"));
    writeln!(io::stdout(), "wrote {what} to {target}").context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Bars of one symbol, without a column of symbols: its folder says which.
fn parquet_of_symbol(bars: &LoadedBars, columns: &[String], to: &mut (impl Write + Send)) -> anyhow::Result<()> {
    let schema = schema(columns);
    let kept: Vec<usize> = (1..schema.fields().len()).collect();
    let mut writer = ArrowWriter::try_new(to, Arc::new(schema.project(&kept)?), None)?;
    for batch in batches(std::slice::from_ref(bars), &schema) {
        writer.write(&batch?.project(&kept)?)?;
    }
    writer.close()?;
    Ok(())
}

/// Reports an unknown symbol, with the nearest one.
fn check_symbols(dataset: &Dataset, symbols: &[String]) -> Result<(), MarketError> {
    match symbols.iter().find(|symbol| dataset.manifest.symbol(symbol).is_none()) {
        Some(unknown) => dataset.load_symbol(unknown, &[]).map(drop),
        None => Ok(()),
    }
}

/// The selected bars of a group; symbols without any are left out.
fn of_group(
    dataset: &Dataset,
    group: u32,
    symbols: &[String],
    (from, to): (TimeMicros, TimeMicros),
    adjustment: &Adjustment,
) -> Result<Vec<LoadedBars>, MarketError> {
    let manifest = &*dataset.manifest;
    let wanted = |symbol: &str| symbols.is_empty() || symbols.iter().any(|s| s == symbol);
    if !manifest.symbols.iter().any(|s| s.group == group && wanted(&s.symbol)) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for mut bars in dataset.load_group_adjusted(group, &manifest.columns, adjustment)? {
        let range = bars.times.partition_point(|&t| t < from)..bars.times.partition_point(|&t| t <= to);
        if range.is_empty() || !wanted(&bars.symbol) {
            continue;
        }
        for column in &mut bars.columns {
            *column = column.part(range.clone());
        }
        bars.times = bars.times.part(range);
        all.push(bars);
    }
    Ok(all)
}

/// The selected bars, sorted by symbol; symbols without any are left out.
fn bars(
    dataset: &Dataset,
    symbols: &[String],
    span: (TimeMicros, TimeMicros),
    adjustment: &Adjustment,
) -> Result<Vec<LoadedBars>, MarketError> {
    check_symbols(dataset, symbols)?;
    let mut all = Vec::new();
    for group in dataset.manifest.filled_groups() {
        all.extend(of_group(dataset, group, symbols, span, adjustment)?);
    }
    all.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    Ok(all)
}

fn csv(bars: &[LoadedBars], columns: &[String], dated: bool, to: &mut impl Write) -> anyhow::Result<()> {
    let mut csv = ::csv::Writer::from_writer(to);
    csv.write_record(["symbol", "time"].into_iter().chain(columns.iter().map(String::as_str)))?;
    let mut text = String::new();
    for bars in bars {
        for (row, &time) in bars.times.iter().enumerate() {
            csv.write_field(&*bars.symbol)?;
            csv.write_field(format_label(time, dated))?;
            for column in &bars.columns {
                text.clear();
                if !column[row].is_nan() {
                    let _ = write!(text, "{}", column[row]);
                }
                csv.write_field(&text)?;
            }
            csv.write_record(None::<&[u8]>)?;
        }
    }
    csv.flush()?;
    Ok(())
}

fn schema(columns: &[String]) -> Arc<Schema> {
    let mut fields = vec![
        Field::new("symbol", DataType::Utf8, false),
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
    ];
    fields.extend(columns.iter().map(|name| Field::new(name, DataType::Float64, true)));
    Arc::new(Schema::new(fields))
}

/// Batches of bounded length, each of one symbol; a missing value is null.
fn batches<'a>(
    bars: &'a [LoadedBars],
    schema: &'a Arc<Schema>,
) -> impl Iterator<Item = Result<RecordBatch, arrow_schema::ArrowError>> + 'a {
    bars.iter().flat_map(move |bars| {
        (0..bars.times.len()).step_by(BATCH_ROWS).map(move |from| {
            let range = from..bars.times.len().min(from + BATCH_ROWS);
            let times = TimestampMicrosecondArray::from(bars.times[range.clone()].to_vec()).with_timezone("UTC");
            let mut arrays: Vec<ArrayRef> =
                vec![Arc::new(StringArray::from_iter_values(range.clone().map(|_| &*bars.symbol))), Arc::new(times)];
            for column in &bars.columns {
                let values = column[range.clone()].iter().map(|v| (!v.is_nan()).then_some(*v));
                arrays.push(Arc::new(values.collect::<Float64Array>()));
            }
            RecordBatch::try_new(Arc::clone(schema), arrays)
        })
    })
}

fn parquet(bars: &[LoadedBars], columns: &[String], to: &mut (impl Write + Send)) -> anyhow::Result<()> {
    let schema = schema(columns);
    let mut writer = ArrowWriter::try_new(to, Arc::clone(&schema), None)?;
    for batch in batches(bars, &schema) {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

fn arrow(bars: &[LoadedBars], columns: &[String], to: &mut impl Write) -> anyhow::Result<()> {
    let schema = schema(columns);
    let mut writer = arrow_ipc::writer::FileWriter::try_new(to, &schema)?;
    for batch in batches(bars, &schema) {
        writer.write(&batch?)?;
    }
    writer.finish()?;
    Ok(())
}
