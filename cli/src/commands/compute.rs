//! `trawl compute`: expressions on every bar of one file, symbol by symbol. A way for anyone to check a value.
//!
//! It reads one file, as an import does, and writes one; there is no dataset, snapshot or quarantine: a cell that is
//! not a number, in a column that is read, is an error.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_front::compute::{Compute, SymbolBars, Wording};
use trawl_kernels::{NoCancel, Precision};
use trawl_market::{Calendar, FileSeries, read_series};

use super::reading::{FORMATS_HELP, ReadArgs};
use crate::app::Context;
use crate::failure::{UserMistake, of_market};
use trawl_front::output::Format;
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::output::series::{Table, write};

const AFTER_HELP: &str = "\
'close' is required; the column of times is copied to the output unchanged, and may be a row count 'i'. Rows are bars; a file \
with its newest bar first is reversed. With a column of symbols each symbol is computed on its own, and written beside the \
time. A cell that is neither a number nor missing is an error that names its line, if an expression reads the column.

Output: the times, then one column per expression, headed by its text or its NAME; in the format of the file name's ending in --output \
(.csv, .json, .jsonl, .parquet, .arrow or .feather). In CSV an empty cell is NA, infinities are inf and -inf, and a condition is 1, 0 or empty; \
numbers have the fewest digits that read back as the same bits.

Examples:
  trawl compute --input AAPL.csv --expr 'sma(close, 20)' --expr 'rsi() as r'
  trawl compute --input bars.csv.gz --map close=price --expr 'ema(close, 12)' --output out.parquet
  zcat bars.csv.gz | trawl compute --input - --expr 'close > highest(high, 252)[1] as breakout'";

/// Evaluate expressions on every bar of one file
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{FORMATS_HELP}\n\n{AFTER_HELP}"))]
pub struct Args {
    /// File of bars: CSV, JSON lines, Parquet, Arrow; '-' reads standard input
    #[arg(long, value_name = "FILE")]
    input: PathBuf,

    /// Expression to evaluate, 'EXPR' or 'EXPR as NAME'; may be given several times
    #[arg(long = "expr", value_name = "EXPR", required = true, allow_hyphen_values = true)]
    exprs: Vec<String>,

    #[command(flatten)]
    read: ReadArgs,

    /// Exchange calendar by which 'avwap' starts over: a code such as XNYS, XLON or CMES, 24/7 or weekdays; the times
    /// must be dates or times
    #[arg(long, value_name = "CALENDAR", default_value = "XNYS", value_parser = calendar)]
    calendar: Calendar,

    /// Number type of the arithmetic; f32 is less exact
    #[arg(long, value_name = "TYPE", default_value = Precision::F64.name(), value_parser = Precision::ALL.map(Precision::name))]
    precision: String,

    /// File to write, replaced as a whole at the end; its extension decides the format [default: CSV to standard
    /// output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Columns of a bar that are checked in every file, whether an expression reads them or not.
const BAR_COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// Reads, compiles, evaluates, writes.
pub fn run(args: Args, _context: &Context) -> anyhow::Result<ExitCode> {
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    let format = output.map_or(Ok(Format::Csv), Format::of)?;
    let file = read_series(args.input, &args.read.options()?).map_err(of_market)?;
    let precision = Precision::named(&args.precision).unwrap_or_default();
    let compute = compile(&file, &args.exprs, precision)?;
    if let Some(path) = output {
        StagedFile::create(path)?;
    }
    let symbols = bars_of(&file);
    compute.check(&symbols, wording(&file))?;
    let zone = if compute.needs_times() { file.check_zone(args.calendar).map_err(of_market)? } else { None };
    let outputs = evaluate(&compute, &symbols, args.calendar)?;
    for note in file.notes.iter().chain(&zone) {
        crate::diagnostics::warning_line(note);
    }
    let table = Table { file: &file, headings: compute.headings(), outputs: &outputs };
    match output {
        Some(path) => {
            let mut staged = StagedFile::create(path)?;
            write(table, format, &mut staged)?;
            staged.keep()?;
        }
        None => {
            let mut out = io::BufWriter::new(io::stdout());
            write(table, format, &mut out).context("cannot write to standard output")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How messages name the file and the option.
fn wording(file: &FileSeries) -> Wording<'_> {
    let compare = "import the file and scan every bar: trawl scan --where true --select EXPR --all-bars FILE";
    Wording { clause: "--expr", table: &file.shown, compare }
}

/// Compiles the expressions over the file's series; refuses those that need more than one symbol's bars.
fn compile(file: &FileSeries, exprs: &[String], precision: Precision) -> anyhow::Result<Compute> {
    let copied: Vec<&str> =
        std::iter::once(&file.time_heading).chain(&file.symbol_heading).map(String::as_str).collect();
    let compute = Compute::new(file.columns.clone(), exprs, &copied, precision, wording(file))?;
    for name in BAR_COLUMNS.into_iter().chain(compute.needs()) {
        let garbage = file.columns.iter().position(|c| c == name).and_then(|at| file.garbage[at].as_ref());
        if let Some(garbage) = garbage {
            return Err(UserMistake::with_help(
                format!("{}: {garbage}", file.shown),
                "correct the cell, or leave it empty if the value is unknown",
            )
            .into());
        }
    }
    Ok(compute)
}

/// The bars of each symbol.
fn bars_of(file: &FileSeries) -> Vec<SymbolBars<'_>> {
    let named = file.symbol_heading.is_some();
    file.symbols
        .iter()
        .map(|series| SymbolBars {
            name: if named { &series.symbol } else { "" },
            rows: series.texts.len(),
            times: series.times.as_deref(),
            columns: series.values.iter().map(Vec::as_slice).collect(),
        })
        .collect()
}

fn calendar(name: &str) -> Result<Calendar, String> {
    Calendar::named(name).map_err(|e| e.to_string())
}

/// The outputs of each symbol, on one thread.
fn evaluate(compute: &Compute, symbols: &[SymbolBars<'_>], calendar: Calendar) -> anyhow::Result<Vec<Vec<Vec<f64>>>> {
    let columns = compute.headings().len();
    let mut made: Vec<Vec<Vec<f64>>> =
        symbols.iter().map(|bars| (0..columns).map(|_| vec![0.0; bars.rows]).collect()).collect();
    let outputs = made.iter_mut().map(|of| of.iter_mut().map(Vec::as_mut_slice).collect()).collect();
    compute.evaluate(symbols, outputs, calendar, 1, &NoCancel)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use trawl_market::ReadOptions;

    use super::*;

    fn compute(text: &str, exprs: &[&str], map: &[&str]) -> anyhow::Result<String> {
        let map = map.iter().filter_map(|item| item.split_once('=')).map(|(m, c)| (m.to_owned(), c.to_owned()));
        let options = ReadOptions { map: map.collect(), ..ReadOptions::default() };
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("test.csv");
        std::fs::write(&path, text)?;
        let mut file = read_series(path, &options).map_err(of_market)?;
        file.shown = "test.csv".to_owned();
        let exprs: Vec<String> = exprs.iter().map(ToString::to_string).collect();
        let compute = compile(&file, &exprs, Precision::F64)?;
        let symbols = bars_of(&file);
        compute.check(&symbols, wording(&file))?;
        let outputs = evaluate(&compute, &symbols, Calendar::XNYS)?;
        let mut bytes = Vec::new();
        write(Table { file: &file, headings: compute.headings(), outputs: &outputs }, Format::Csv, &mut bytes)?;
        Ok(String::from_utf8(bytes)?)
    }

    #[test]
    fn expressions_become_columns_after_the_unchanged_date() {
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

    #[test]
    fn each_symbol_of_a_file_is_computed_on_its_own() {
        let text = "ticker,date,close\nB,2020-01-02,10\nA,2020-01-02,1\nB,2020-01-03,20\nA,2020-01-03,3\n";
        let out = compute(text, &["sma(2) as m"], &[]).unwrap();
        assert_eq!(out, "date,ticker,m\n2020-01-02,B,\n2020-01-03,B,15\n2020-01-02,A,\n2020-01-03,A,2\n");
    }

    #[test]
    fn a_newest_first_file_is_reversed_and_an_unordered_one_is_refused() {
        let out = compute("date,close\n2020-01-06,3\n2020-01-03,2\n2020-01-02,1\n", &["sma(2) as m"], &[]).unwrap();
        assert_eq!(out, "date,m\n2020-01-02,\n2020-01-03,1.5\n2020-01-06,2.5\n");
        let mixed = "date,close\n2020-01-02,1\n2020-01-06,3\n2020-01-03,2\n2020-01-07,2\n";
        let error = compute(mixed, &["sma(2)"], &[]).unwrap_err().to_string();
        assert!(error.contains("line 4: '2020-01-03' is before the bar above it"), "{error}");
    }

    #[test]
    fn an_expression_that_compares_symbols_is_refused() {
        for text in ["xs_rank(close)", "close > 1 and breadth(close > sma(2)) > 0.5"] {
            let error = compute("i,close\n1,2\n", &["close as c", text], &[]).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(text) && message.contains("compares the symbols of a market"), "{message}");
        }
    }

    #[test]
    fn words_in_a_column_matter_only_when_it_is_read() {
        assert!(compute("i,close,note\n1,2,x\n", &["close"], &[]).is_ok());
        let error = compute("i,close,note\n1,2,x\n", &["note + 1"], &[]).unwrap_err().to_string();
        assert!(error.contains("test.csv: line 2, column 'note': 'x' is not a number"), "{error}");
    }

    #[test]
    fn separators_and_missing_cells_are_those_of_an_import() {
        let out = compute("i;price;Adj Close\n1;-;1,5\n2;7;2\n", &["close as c", "adj_close as a"], &["close=price"]);
        assert_eq!(out.unwrap(), "i,c,a\n1,,1.5\n2,7,2\n");
    }
}
