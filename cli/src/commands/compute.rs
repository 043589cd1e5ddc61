//! `trawl compute`: expressions on every bar of one file, symbol by symbol. A way for anyone to check a value.
//!
//! It reads one file, as an import does, and writes one; there is no dataset, snapshot or quarantine: a cell that is
//! not a number, in a column that is read, is an error.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_market::{Calendar, FileSeries, SymbolSeries, TimeMicros, read_series};
use trawl_plan::{Input, Plan, Schema};

use super::reading::{FORMATS_HELP, ReadArgs};
use crate::app::Context;
use crate::failure::{UserMistake, of_market};
use trawl_front::human::counted;
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

/// Times are in microseconds.
const DAY_MICROS: i64 = 86_400_000_000;
/// Columns of a bar that are checked in every file, whether an expression reads them or not.
const BAR_COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// Reads, compiles, evaluates, writes.
pub fn run(args: Args, _context: &Context) -> anyhow::Result<ExitCode> {
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    let format = output.map_or(Ok(Format::Csv), Format::of)?;
    let file = read_series(args.input, &args.read.options()?).map_err(of_market)?;
    let plan = compile(&file, &args.exprs)?;
    if let Some(path) = output {
        StagedFile::create(path)?;
    }
    let precision = Precision::named(&args.precision).unwrap_or_default();
    let rows = file.symbols.iter().map(|series| series.texts.len()).max().unwrap_or(0);
    let executable = Executable::new(plan.program(), precision);
    let needed = executable.workspace_bytes(rows);
    if needed > trawl_kernels::WORKSPACE_BYTES_MAX {
        let most = trawl_kernels::WORKSPACE_BYTES_MAX;
        let message = format!("these expressions need {needed} bytes of memory besides the bars; the limit is {most}");
        return Err(UserMistake::with_help(message, "use shorter windows, or compute them in several runs").into());
    }
    let by_calendar = plan.program().inputs.iter().any(|input| matches!(input, Input::Begins(_) | Input::Clock(_)));
    let zone = if by_calendar { file.check_zone(args.calendar).map_err(of_market)? } else { None };
    let outputs = evaluate(&file, &plan, args.calendar, &executable)?;
    for note in file.notes.iter().chain(&zone) {
        crate::diagnostics::warning_line(note);
    }
    let table = Table { file: &file, headings: &plan.headings, outputs: &outputs };
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

/// Compiles the expressions over the file's series; refuses those that need more than one symbol's bars.
fn compile(file: &FileSeries, exprs: &[String]) -> anyhow::Result<Plan> {
    let schema = Schema::of_columns(file.columns.clone());
    let compiled = |exprs: &[String]| trawl_plan::compile_expressions(exprs, "--expr", &schema);
    let plan = compiled(exprs).map_err(UserMistake::Drawn)?;
    if !plan.crosses.is_empty() {
        let alone = |text: &&String| compiled(std::slice::from_ref(*text)).is_ok_and(|plan| !plan.crosses.is_empty());
        let text = exprs.iter().find(alone).map_or("an expression", String::as_str);
        return Err(UserMistake::with_help(
            format!(
                "'{text}' compares the symbols of a market at each bar, but compute evaluates each symbol on its own"
            ),
            "import the file and scan every bar: trawl scan --where true --select EXPR --all-bars FILE",
        )
        .into());
    }
    let clash = |name: &&String| **name == file.time_heading || Some(*name) == file.symbol_heading.as_ref();
    if let Some(name) = plan.headings.iter().find(clash) {
        let message = format!("an expression is named '{name}', which is also a column that is copied to the output");
        return Err(UserMistake::with_help(message, "give it another name: EXPR as NAME").into());
    }
    let read = plan.program().inputs.iter().filter_map(|input| match input {
        Input::Column(name) => Some(name.as_str()),
        _ => None,
    });
    for name in BAR_COLUMNS.into_iter().chain(read) {
        let garbage = file.columns.iter().position(|c| c == name).and_then(|at| file.garbage[at].as_ref());
        if let Some(garbage) = garbage {
            return Err(UserMistake::with_help(
                format!("{}: {garbage}", file.shown),
                "correct the cell, or leave it empty if the value is unknown",
            )
            .into());
        }
    }
    for series in &file.symbols {
        long_enough(&plan, file, series)?;
    }
    Ok(plan)
}

/// Some functions are not defined over short histories.
fn long_enough(plan: &Plan, file: &FileSeries, series: &SymbolSeries) -> Result<(), UserMistake> {
    let (by, needed, rows) = (plan.needed_by, plan.bars_needed, series.texts.len());
    if rows >= needed {
        return Ok(());
    }
    let whose = match &file.symbol_heading {
        Some(_) => format!("{} in {}", series.symbol, file.shown),
        None => file.shown.clone(),
    };
    let message = format!("{by} needs {} with these parameters, and {whose} has {rows}", counted(needed, "bar"));
    Err(UserMistake::with_help(message, "give it more bars, or shorter lengths and a smaller cutout"))
}

fn calendar(name: &str) -> Result<Calendar, String> {
    Calendar::named(name).map_err(|e| e.to_string())
}

/// The outputs of each symbol.
fn evaluate(
    file: &FileSeries,
    plan: &Plan,
    calendar: Calendar,
    executable: &Executable,
) -> anyhow::Result<Vec<Vec<Vec<f64>>>> {
    let of = |series: &SymbolSeries| -> anyhow::Result<Vec<Vec<f64>>> {
        let rows = series.texts.len();
        if rows == 0 {
            return Ok(vec![Vec::new(); plan.headings.len()]);
        }
        let columns = inputs(file, series, plan, calendar)?;
        let input = SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: rows };
        let mut series = executable.evaluate_from(&[input], &[0], &NoCancel)?;
        Ok(series.pop().unwrap_or_default())
    };
    file.symbols.iter().map(of).collect()
}

/// The columns that the expressions read, in that order.
fn inputs(file: &FileSeries, series: &SymbolSeries, plan: &Plan, calendar: Calendar) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut inputs = Vec::new();
    for input in &plan.program().inputs {
        inputs.push(match input {
            Input::Begins(period) => {
                let (times, dated) = times_in_order(series)?;
                calendar.begins(*period, dated, times).into_iter().map(|b| f64::from(u8::from(b))).collect()
            }
            Input::Clock(clock) => {
                let (times, dated) = times_in_order(series)?;
                let mut reader = calendar.clock(*clock, dated);
                times.iter().map(|time| reader.at(*time)).collect()
            }
            Input::Column(name) => {
                let at = file.columns.iter().position(|column| column == name);
                at.map_or_else(|| vec![f64::NAN; series.texts.len()], |at| series.values[at].clone())
            }
            // Without other symbols, labels and timeframes, no other kind of input is planned.
            _ => vec![f64::NAN; series.texts.len()],
        });
    }
    Ok(inputs)
}

/// The times of all bars, for what the calendar says of them, and whether they are dates.
fn times_in_order(series: &SymbolSeries) -> anyhow::Result<(&[TimeMicros], bool)> {
    let Some(times) = &series.times else {
        let message = "functions of the calendar, such as 'avwap', need the time of each bar, but not all of the file's times are \
                       dates or times";
        let help = "write 2013-02-22 or 2013-02-22T14:30:00Z in the column 'date'";
        return Err(UserMistake::with_help(message, help).into());
    };
    if let Some(at) = times.windows(2).position(|pair| pair[0] >= pair[1]) {
        let date = &series.texts[at + 1];
        let message = format!(
            "functions of the calendar, such as 'avwap', need bars in order of time, but '{date}' is not after the previous bar"
        );
        return Err(UserMistake::plain(message).into());
    }
    Ok((times, times.iter().all(|t| t.rem_euclid(DAY_MICROS) == 0)))
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
        let plan = compile(&file, &exprs)?;
        let outputs = evaluate(&file, &plan, Calendar::XNYS, &Executable::new(plan.program(), Precision::F64))?;
        let mut bytes = Vec::new();
        write(Table { file: &file, headings: &plan.headings, outputs: &outputs }, Format::Csv, &mut bytes)?;
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
