//! `trawl compute`: expressions on every bar of one CSV. This is how anyone checks a number.
//!
//! It reads one file and writes one; no dataset, no snapshot, no quarantine: a cell that is no number stops it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_kernels::{NoCancel, PRECISION_F32, PRECISION_F64, Precision, SymbolInput};
use trawl_market::{Calendar, parse_time};
use trawl_plan::family::Period;
use trawl_plan::{Input, Plan, Schema};

use crate::bar_csv::{BarCsv, ColumnMap};
use crate::context::Context;
use crate::failure::UserMistake;
use crate::number::{counted, push_exact};
use crate::output::staged::{StagedFile, plain};

const AFTER_HELP: &str = "\
Input: CSV with a header; gzip is recognised by its content. The column 'date' (or else 'i') is written through as it \
came. 'close' is required; open, high, low and volume are used where there; every other column is a series under its \
own name in lower case ('Adj Close' is adj_close). Rows are bars, oldest first. Empty cells, NA, NaN and null are NA; \
any other text in a numeric column is an error that names its line.

Output: the date column, then one column per expression, headed by its text or its NAME. Empty is NA; inf and -inf; a \
condition is 1, 0 or empty; numbers have the fewest digits that read back as the same bits.

Examples:
  trawl compute --input AAPL.csv --expr 'sma(close, 20)' --expr 'rsi() as r'
  trawl compute --input bars.csv.gz --map close=price --expr 'ema(close, 12)' --output out.csv
  zcat bars.csv.gz | trawl compute --input - --expr 'close > highest(high, 252)[1] as breakout'";

/// Evaluate expressions on every bar of one CSV file
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// CSV file, plain or gzip; '-' reads standard input
    #[arg(long, value_name = "FILE")]
    input: PathBuf,

    /// Expression to evaluate, 'EXPR' or 'EXPR as NAME'; may be given several times
    #[arg(long = "expr", value_name = "EXPR", required = true, allow_hyphen_values = true)]
    exprs: Vec<String>,

    /// Take a series from another column, such as close=price; several with commas or by repeating
    #[arg(long, value_name = "SERIES=COLUMN", value_delimiter = ',')]
    map: Vec<String>,

    /// Exchange calendar by which 'avwap' begins anew: XNYS, 24/7 or weekdays; the date column must hold dates or UTC times
    #[arg(long, value_name = "CALENDAR", default_value = "XNYS", value_parser = calendar)]
    calendar: Calendar,

    /// Number type of the arithmetic; f32 is less exact
    #[arg(long, value_name = "TYPE", default_value = PRECISION_F64, value_parser = [PRECISION_F64, PRECISION_F32])]
    precision: String,

    /// File to write, replaced whole at the end [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Times are in microseconds.
const DAY_MICROS: i64 = 86_400_000_000;

/// Reads, compiles, evaluates, writes.
pub fn run(args: Args, _context: &Context) -> anyhow::Result<ExitCode> {
    let map = ColumnMap::parse(&args.map)?;
    let source =
        if args.input == Path::new("-") { "standard input".to_owned() } else { args.input.display().to_string() };
    let csv = BarCsv::read(open(&args.input)?, &source, &map)?;
    let schema = Schema::of_columns(csv.series_names());
    let plan = trawl_plan::compile_expressions(&args.exprs, "--expr", &schema).map_err(UserMistake::Drawn)?;
    if plan.headings.iter().any(|name| name == csv.date_heading()) {
        let message = format!("an expression is headed '{}', as the date column is", csv.date_heading());
        return Err(UserMistake::with_help(message, "give it another name: EXPR as NAME").into());
    }
    long_enough(&plan, &csv, &source)?;
    if let Some(path) = &args.output {
        StagedFile::create(path)?;
    }
    let precision = Precision::named(&args.precision).unwrap_or_default();
    let needed = trawl_kernels::workspace_bytes(plan.program(), csv.rows(), precision);
    if needed > trawl_kernels::WORKSPACE_BYTES_MAX {
        let most = trawl_kernels::WORKSPACE_BYTES_MAX;
        let message = format!("these expressions need {needed} bytes beside the bars, at most {most} are taken");
        return Err(UserMistake::with_help(message, "use shorter windows, or compute them in several runs").into());
    }
    let columns = inputs(&csv, &plan, args.calendar)?;
    let outputs = evaluate(&plan, &columns, csv.rows(), precision)?;
    if let Some(line) = csv.first_step_back() {
        crate::diagnostics::warning_line(&format!(
            "line {line} of {source} is dated before the line above it; bars are taken in the order of the file, oldest first"
        ));
    }
    match &args.output {
        Some(path) => {
            let mut file = StagedFile::create(path)?;
            write(&csv, &plan, &outputs, &mut file)?;
            file.keep()?;
        }
        None => write(&csv, &plan, &outputs, &mut io::stdout().lock()).context("cannot write to standard output")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> Result<Box<dyn Read>, UserMistake> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let refused = |e: io::Error| UserMistake::plain(format!("cannot read '{}': {}", path.display(), plain(&e)));
    let file = File::open(path).map_err(refused)?;
    if file.metadata().map_err(refused)?.is_dir() {
        return Err(refused(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok(Box::new(file))
}

/// Some functions are not defined over short histories.
fn long_enough(plan: &Plan, csv: &BarCsv, source: &str) -> Result<(), UserMistake> {
    if csv.rows() >= plan.bars_needed {
        return Ok(());
    }
    let (by, needed, rows) = (plan.needed_by, plan.bars_needed, csv.rows());
    let message = format!("{by} needs {} with these parameters, and {source} has {rows}", counted(needed, "bar"));
    Err(UserMistake::with_help(message, "give it more bars, or shorter lengths and a smaller cutout"))
}

fn calendar(name: &str) -> Result<Calendar, String> {
    Calendar::named(name).map_err(|e| e.to_string())
}

/// What the expressions read, in the order in which they do.
fn inputs(csv: &BarCsv, plan: &Plan, calendar: Calendar) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut inputs = Vec::new();
    for input in &plan.program().inputs {
        inputs.push(match input {
            Input::Begins(period) => begins(csv, *period, calendar)?,
            Input::Column(name) => csv.series(std::slice::from_ref(name))?.pop().unwrap_or_default(),
            // Without other symbols, labels and timeframes nothing else is planned.
            _ => vec![f64::NAN; csv.rows()],
        });
    }
    Ok(inputs)
}

/// 1 on the first bar of each period, 0 on the others.
fn begins(csv: &BarCsv, period: Period, calendar: Calendar) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(csv.rows());
    for date in csv.dates() {
        let Some(time) = parse_time(date) else {
            let message =
                format!("'avwap' needs to know when each bar was, and '{date}' is neither a date nor a UTC time");
            return Err(UserMistake::with_help(
                message,
                "write 2013-02-22 or 2013-02-22T14:30:00Z in the column 'date'",
            )
            .into());
        };
        if times.last().is_some_and(|last| *last >= time) {
            let message =
                format!("'avwap' needs bars in order of time, and '{date}' does not come after the bar before it");
            return Err(UserMistake::plain(message).into());
        }
        times.push(time);
    }
    let dated = times.iter().all(|t| t.rem_euclid(DAY_MICROS) == 0);
    let begins = calendar.begins(trawl_worker::calendar_period(period), dated, &times);
    Ok(begins.into_iter().map(|b| f64::from(u8::from(b))).collect())
}

fn evaluate(plan: &Plan, columns: &[Vec<f64>], rows: usize, precision: Precision) -> anyhow::Result<Vec<Vec<f64>>> {
    if rows == 0 {
        return Ok(vec![Vec::new(); plan.headings.len()]);
    }
    let input = SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: rows };
    let mut series = precision.evaluate_from(plan.program(), &[input], &[0], &NoCancel)?;
    Ok(series.pop().unwrap_or_default())
}

fn write(csv: &BarCsv, plan: &Plan, outputs: &[Vec<f64>], writer: &mut impl Write) -> anyhow::Result<()> {
    let mut out = ::csv::Writer::from_writer(writer);
    let headings = plan.headings.iter().map(String::as_str);
    out.write_record(std::iter::once(csv.date_heading()).chain(headings))?;
    let mut text = String::new();
    for (row, date) in csv.dates().enumerate() {
        out.write_field(date)?;
        for output in outputs {
            text.clear();
            push_exact(&mut text, output[row]);
            out.write_field(&text)?;
        }
        out.write_record(None::<&[u8]>)?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(text: &str, exprs: &[&str], map: &[&str]) -> anyhow::Result<String> {
        let map: Vec<String> = map.iter().map(ToString::to_string).collect();
        let csv = BarCsv::read(text.as_bytes(), "test.csv", &ColumnMap::parse(&map)?)?;
        let schema = Schema::of_columns(csv.series_names());
        let exprs: Vec<String> = exprs.iter().map(ToString::to_string).collect();
        let plan = trawl_plan::compile_expressions(&exprs, "--expr", &schema).map_err(UserMistake::Drawn)?;
        long_enough(&plan, &csv, "test.csv")?;
        let columns = inputs(&csv, &plan, Calendar::XNYS)?;
        let outputs = evaluate(&plan, &columns, csv.rows(), Precision::F64)?;
        let mut bytes = Vec::new();
        write(&csv, &plan, &outputs, &mut bytes)?;
        Ok(String::from_utf8(bytes)?)
    }

    #[test]
    fn expressions_become_columns_behind_the_date_as_it_came() {
        let text = "Close,Date,x\n1.5,1/4/1999,1\n2.5,1/5/1999,\n,\"Jan 6, 1999\",3\n0.1,1/7/1999,inf\n";
        let out = compute(text, &["close", "close > 2 as up", "sma(close, 2)", "x"], &[]).unwrap();
        assert_eq!(
            out,
            "Date,close,up,\"sma(close, 2)\",x\n\
             1/4/1999,1.5,0,,1\n\
             1/5/1999,2.5,1,2,\n\
             \"Jan 6, 1999\",,,,3\n\
             1/7/1999,0.1,0,,inf\n"
        );
    }

    #[test]
    fn a_file_without_rows_gives_a_header() {
        assert_eq!(compute("i,close\n", &["close"], &[]).unwrap(), "i,close\n");
    }

    #[test]
    fn a_history_shorter_than_the_longest_average_is_the_users_mistake() {
        let text =
            |bars: usize| (0..bars).fold("i,close\n".to_owned(), |text, i| format!("{text}{i},{}\n", 50 + i % 7));
        let error = compute(&text(33), &["atc().signal"], &[]).unwrap_err();
        assert!(error.downcast_ref::<UserMistake>().is_some(), "{error}");
        assert_eq!(error.to_string(), "atc needs 34 bars with these parameters, and test.csv has 33");
        assert!(compute(&text(40), &["atc(cutout=40).ema"], &[]).unwrap_err().to_string().contains("needs 41 bars"));
        let out = compute(&text(34), &["atc().signal", "atc().kama"], &[]).unwrap();
        assert_eq!(out.lines().nth(1), Some("0,0,0"), "every bar has its values");
        assert_eq!(out.lines().count(), 35);
    }

    #[test]
    fn an_empty_cell_is_data_for_a_classification() {
        let mut text = "i,close\n".to_owned();
        (0..60).for_each(|i| text += &if i == 45 { format!("{i},\n") } else { format!("{i},{}\n", 50 + i % 7) });
        let out = compute(&text, &["atc().ema_equity"], &[]).unwrap();
        assert!(out.lines().skip(1).all(|line| line.split(',').nth(1).is_some_and(|cell| !cell.is_empty())), "{out}");
    }

    #[test]
    fn a_misspelt_name_is_the_users_mistake() {
        let error = compute("i,close\n1,2\n", &["clsoe"], &[]).unwrap_err();
        assert!(error.downcast_ref::<UserMistake>().is_some(), "{error}");
        assert!(error.to_string().contains("did you mean 'close'?"), "{error}");
    }
}
