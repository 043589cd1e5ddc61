//! Expressions on every bar of some symbols, each on its own: `trawl compute`, and `trawl.compute` of Python.
//!
//! Bars come as slices and values go into slices, so that neither a file nor a frame is copied. There is no dataset, as-of or answer.

use std::num::NonZero;
use std::ops::Range;

use anyhow::ensure;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};
use trawl_kernels::{Cancel, Cancelled, Executable, Precision, SymbolInput, WORKSPACE_BYTES_MAX, streamed};
use trawl_market::{Calendar, TimeMicros};
use trawl_plan::graph::Kind;
use trawl_plan::{Input, Plan, Schema, compile_expressions};

use crate::human::counted;
use crate::mistake::UserMistake;

/// Times are in microseconds.
const DAY_MICROS: i64 = 86_400_000_000;
/// Symbols that a thread computes one after the other: enough to fill the lanes of several tiles.
const SYMBOLS_AT_ONCE: usize = 64;

/// Bytes of all results from which on they are written past the caches, which could not hold them.
const STREAMED_BYTES_MIN: usize = 32 << 20;

/// Runs of NA that are kept of the symbols that are computed at once; of more, the values are read again.
const RUNS_MAX: usize = 64 * SYMBOLS_AT_ONCE;

/// The bars of one symbol, oldest first.
#[derive(Debug, Clone)]
pub struct SymbolBars<'a> {
    /// What messages call it; empty where there is only one.
    pub name: &'a str,
    /// Number of bars.
    pub rows: usize,
    /// Time of each bar, those of days as 00:00 UTC of the date; `None` where they are not known to be times.
    pub times: Option<&'a [TimeMicros]>,
    /// A series for each column of the table, in its order; NaN for NA.
    pub columns: Vec<&'a [f64]>,
}

/// Where expressions come from, for messages.
#[derive(Debug, Clone, Copy)]
pub struct Wording<'a> {
    /// What a mistake calls the list of expressions: `--expr`, `exprs`.
    pub clause: &'a str,
    /// What the table is called, such as a file's name.
    pub table: &'a str,
    /// How each symbol of a market can be compared with the others, for an expression that needs it.
    pub compare: &'a str,
}

/// Expressions compiled over the columns of a table.
#[derive(Debug)]
pub struct Compute {
    plan: Plan,
    columns: Vec<String>,
    executable: Executable,
}

impl Compute {
    /// Compiles expressions. `copied` are columns that are beside the results.
    ///
    /// # Errors
    /// A [`UserMistake`]: in an expression, for one that compares symbols, and for a name that is copied too.
    pub fn new(
        columns: Vec<String>,
        exprs: &[String],
        copied: &[&str],
        precision: Precision,
        wording: Wording<'_>,
    ) -> Result<Self, UserMistake> {
        let schema = Schema::of_columns(columns.clone());
        let compiled = |exprs: &[String]| compile_expressions(exprs, wording.clause, &schema);
        let plan = compiled(exprs).map_err(UserMistake::Drawn)?;
        if !plan.crosses.is_empty() {
            let alone =
                |text: &&String| compiled(std::slice::from_ref(*text)).is_ok_and(|plan| !plan.crosses.is_empty());
            let text = exprs.iter().find(alone).map_or("an expression", String::as_str);
            return Err(UserMistake::with_help(
                format!(
                    "'{text}' compares the symbols of a market at each bar, but compute evaluates each symbol on its own"
                ),
                wording.compare,
            ));
        }
        if let Some(name) = plan.headings.iter().find(|name| copied.contains(&name.as_str())) {
            let message =
                format!("an expression is named '{name}', which is also a column that is copied to the output");
            return Err(UserMistake::with_help(message, "give it another name: EXPR as NAME"));
        }
        let executable = Executable::new(plan.program(), precision);
        Ok(Self { plan, columns, executable })
    }

    /// Names of the results, in order.
    pub fn headings(&self) -> &[String] {
        &self.plan.headings
    }

    /// For each result whether it is a condition: 1, 0 or NA.
    pub fn conditions(&self) -> Vec<bool> {
        let of = |id: &trawl_plan::graph::NodeId| self.plan.nodes()[id.index()].kind == Kind::Bool;
        self.plan.points.first().map_or_else(Vec::new, |point| point.select.iter().map(of).collect())
    }

    /// Names of the table's columns, in its order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Columns that the expressions read.
    pub fn needs(&self) -> impl Iterator<Item = &str> {
        self.plan.program().inputs.iter().filter_map(|input| match input {
            Input::Column(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether an expression depends on the times of bars.
    pub fn needs_times(&self) -> bool {
        self.plan.program().inputs.iter().any(|input| matches!(input, Input::Begins(_) | Input::Clock(_)))
    }

    /// That the bars fit into memory, and that histories are long enough for functions that are not defined over shorter ones.
    ///
    /// # Errors
    /// A [`UserMistake`].
    pub fn check(&self, symbols: &[SymbolBars<'_>], wording: Wording<'_>) -> Result<(), UserMistake> {
        let rows = symbols.iter().map(|bars| bars.rows).max().unwrap_or(0);
        let needed = self.executable.workspace_bytes(rows);
        if needed > WORKSPACE_BYTES_MAX {
            let message = format!(
                "these expressions need {needed} bytes of memory besides the bars; the limit is {WORKSPACE_BYTES_MAX}"
            );
            return Err(UserMistake::with_help(message, "use shorter windows, or compute them in several runs"));
        }
        let needed = self.plan.bars_needed;
        let Some(short) = symbols.iter().find(|bars| bars.rows < needed) else { return Ok(()) };
        let whose = match short.name {
            "" => wording.table.to_owned(),
            name => format!("{name} in {}", wording.table),
        };
        let (by, bars) = (self.plan.needed_by, counted(needed, "bar"));
        let message = format!("{by} needs {bars} with these parameters, and {whose} has {}", short.rows);
        Err(UserMistake::with_help(message, "give it more bars, or shorter lengths and a smaller cutout"))
    }

    /// Computes every expression on every bar into `outputs`, by symbol and then by heading, as long as the symbol has bars; NaN is
    /// NA, and the result says where. Values do not depend on `threads`; 0 takes one for each core.
    ///
    /// # Errors
    /// A [`UserMistake`] for an expression that needs times where there are none or not in order; [`Cancelled`]; no threads.
    pub fn evaluate<'o>(
        &self,
        symbols: &[SymbolBars<'_>],
        outputs: Vec<Vec<&'o mut [f64]>>,
        calendar: Calendar,
        threads: usize,
        cancel: &dyn Cancel,
    ) -> anyhow::Result<Missing> {
        let bytes = symbols.iter().map(|bars| bars.rows).sum::<usize>() * self.headings().len() * size_of::<f64>();
        let how = (calendar, bytes >= STREAMED_BYTES_MIN);
        let parts: Vec<_> = symbols.chunks(SYMBOLS_AT_ONCE).zip(in_parts(outputs)).enumerate().collect();
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if threads == 0 { cores() } else { threads }.min(parts.len());
        let run = |(part, (symbols, outputs)): (usize, (&[SymbolBars<'_>], Slots<'o>))| {
            self.evaluate_part((symbols, part * SYMBOLS_AT_ONCE), outputs, how, cancel)
        };
        let found: Vec<Missing> = if threads <= 1 {
            parts.into_iter().map(run).collect::<anyhow::Result<_>>()?
        } else {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|i| format!("trawl-compute-{i}"))
                .build()?;
            pool.install(|| parts.into_par_iter().with_max_len(1).map(run).collect::<anyhow::Result<_>>())?
        };
        Ok(Missing(found.into_iter().flat_map(|part| part.0).collect()))
    }

    fn evaluate_part(
        &self,
        (symbols, first): (&[SymbolBars<'_>], usize),
        mut outputs: Vec<Vec<&mut [f64]>>,
        (calendar, past_caches): (Calendar, bool),
        cancel: &dyn Cancel,
    ) -> anyhow::Result<Missing> {
        if cancel.cancelled() {
            return Err(Cancelled.into());
        }
        let made = symbols.iter().map(|bars| self.made(bars, calendar)).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<SymbolInput<'_>> = symbols
            .iter()
            .zip(&made)
            .filter(|(bars, _)| bars.rows > 0)
            .map(|(bars, made)| SymbolInput { columns: self.inputs(bars, made), visible: bars.rows })
            .collect();
        let filled: Vec<usize> =
            symbols.iter().enumerate().filter(|(_, bars)| bars.rows > 0).map(|(at, _)| at).collect();
        let mut missing: Vec<PartMissing> =
            self.headings().iter().map(|_| PartMissing { runs: Some(Vec::new()) }).collect();
        streamed(|streaming| {
            self.executable.evaluate_each(&inputs, &vec![0; inputs.len()], cancel, |symbol, output, bars| {
                let at = filled[symbol];
                let slot = &mut outputs[at][output];
                // What is left of the slot says how far its symbol is.
                let begin = symbols[at].rows - slot.len();
                let (now, rest) = std::mem::take(slot).split_at_mut(bars.len());
                if past_caches {
                    streaming.copy(now, bars);
                } else {
                    now.copy_from_slice(bars);
                }
                *slot = rest;
                if bars.iter().fold(false, |any, value| any | value.is_nan()) {
                    missing[output].add(first + at, begin, bars);
                }
            })
        })?;
        // What is not written would be whatever the memory held.
        ensure!(
            outputs.iter().flatten().all(|slot| slot.is_empty()),
            "internal error: a result has bars without a value"
        );
        Ok(Missing(vec![missing]))
    }

    /// What the expressions read besides the columns of the table; empty for those.
    fn made(&self, bars: &SymbolBars<'_>, calendar: Calendar) -> Result<Vec<Vec<f64>>, UserMistake> {
        let of = |input: &Input| {
            Ok(match input {
                Input::Begins(period) => {
                    let (times, dated) = times_in_order(bars)?;
                    calendar.begins(*period, dated, times).into_iter().map(|b| f64::from(u8::from(b))).collect()
                }
                Input::Clock(clock) => {
                    let (times, dated) = times_in_order(bars)?;
                    // A single bar at midnight says nothing.
                    if dated && clock.is_within_day() && times.len() > 1 {
                        let message = "an expression reads the time of day, and the bars have dates alone";
                        return Err(UserMistake::with_help(message, "weekday and month are known of dates"));
                    }
                    let mut reader = calendar.clock(*clock, dated);
                    times.iter().map(|time| reader.at(*time)).collect()
                }
                Input::Column(name) if self.columns.contains(name) => Vec::new(),
                // Without other symbols, labels and timeframes, no other kind of input is planned.
                _ => vec![f64::NAN; bars.rows],
            })
        };
        self.plan.program().inputs.iter().map(of).collect()
    }

    /// The series that the expressions read, in their order.
    fn inputs<'a>(&self, bars: &SymbolBars<'a>, made: &'a [Vec<f64>]) -> Vec<&'a [f64]> {
        let of = |(input, made): (&Input, &'a Vec<f64>)| match input {
            Input::Column(name) => match self.columns.iter().position(|column| column == name) {
                Some(at) => bars.columns[at],
                None => made.as_slice(),
            },
            _ => made.as_slice(),
        };
        self.plan.program().inputs.iter().zip(made).map(of).collect()
    }
}

/// Where the results of some symbols go: by symbol, then by heading.
type Slots<'o> = Vec<Vec<&'o mut [f64]>>;

/// Where results are NA, as they were written: nobody has to read them again to know.
#[derive(Debug, Default)]
pub struct Missing(Vec<Vec<PartMissing>>);

impl Missing {
    /// The runs of rows in which a result is NA: the index of the symbol, and rows of the symbol; `None` where they are too many to have
    /// been kept.
    pub fn runs(&self, output: usize) -> Option<impl Iterator<Item = (usize, Range<usize>)> + '_> {
        let parts = self.0.iter().map(move |part| &part[output]);
        if parts.clone().any(|part| part.runs.is_none()) {
            return None;
        }
        let wide = |(symbol, rows): &(u32, Range<u32>)| (*symbol as usize, rows.start as usize..rows.end as usize);
        Some(parts.flat_map(move |part| part.runs.iter().flatten().map(wide)))
    }
}

/// The same of the symbols that were computed at once, of one result.
#[derive(Debug)]
struct PartMissing {
    runs: Option<Vec<(u32, Range<u32>)>>,
}

impl PartMissing {
    /// Adds those of some values of a symbol, the first of which is of row `begin`.
    fn add(&mut self, symbol: usize, begin: usize, values: &[f64]) {
        let Some(runs) = &mut self.runs else { return };
        let mut at = begin;
        for run in values.chunk_by(|a, b| a.is_nan() == b.is_nan()) {
            if run[0].is_nan() {
                // Bars of one table are fewer than u32 counts, as are symbols.
                runs.push((symbol as u32, at as u32..(at + run.len()) as u32));
            }
            at += run.len();
        }
        if runs.len() > RUNS_MAX {
            self.runs = None;
        }
    }
}

/// Parts of as many symbols as are computed at once.
fn in_parts<T>(items: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let part: Vec<T> = items.by_ref().take(SYMBOLS_AT_ONCE).collect();
        (!part.is_empty()).then_some(part)
    })
}

/// The times of all bars, for what the calendar says of them, and whether they are dates.
fn times_in_order<'a>(bars: &SymbolBars<'a>) -> Result<(&'a [TimeMicros], bool), UserMistake> {
    let Some(times) = bars.times else {
        let message = "functions of the calendar, such as 'avwap', need the time of each bar, but not all of the table's times are \
                       dates or times";
        let help = "write 2013-02-22 or 2013-02-22T14:30:00Z in the column 'date'";
        return Err(UserMistake::with_help(message, help));
    };
    if let Some(at) = times.windows(2).position(|pair| pair[0] >= pair[1]) {
        let date = trawl_market::format_time(times[at + 1]);
        let message = format!(
            "functions of the calendar, such as 'avwap', need bars in order of time, but '{date}' is not after the previous bar"
        );
        return Err(UserMistake::plain(message));
    }
    Ok((times, times.iter().all(|t| t.rem_euclid(DAY_MICROS) == 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::CancelFlag;
    use trawl_kernels::NoCancel;

    const WORDING: Wording<'static> = Wording { clause: "exprs", table: "the frame", compare: "import it" };

    fn compute(exprs: &[&str]) -> Compute {
        let exprs: Vec<String> = exprs.iter().map(|text| (*text).to_owned()).collect();
        Compute::new(vec!["close".to_owned()], &exprs, &["time"], Precision::F64, WORDING).unwrap()
    }

    fn closes(symbols: usize) -> Vec<Vec<f64>> {
        (0..symbols).map(|s| (0..20 + s % 7).map(|i| (i * (s + 3) % 11) as f64 + 1.0).collect()).collect()
    }

    fn run(compute: &Compute, closes: &[Vec<f64>], threads: usize, cancel: &dyn Cancel) -> anyhow::Result<Vec<f64>> {
        let of = |close: &'_ Vec<f64>| close.len();
        let symbols: Vec<SymbolBars<'_>> = closes
            .iter()
            .map(|close| SymbolBars { name: "", rows: of(close), times: None, columns: vec![close] })
            .collect();
        let mut made: Vec<Vec<Vec<f64>>> =
            closes.iter().map(|close| vec![vec![0.0; of(close)]; compute.headings().len()]).collect();
        let outputs = made.iter_mut().map(|of| of.iter_mut().map(Vec::as_mut_slice).collect()).collect();
        let missing = compute.evaluate(&symbols, outputs, Calendar::XNYS, threads, cancel)?;
        for (output, _) in compute.headings().iter().enumerate() {
            let mut known: Vec<Vec<bool>> = made.iter().map(|of| vec![true; of[output].len()]).collect();
            for (symbol, rows) in missing.runs(output).unwrap() {
                known[symbol][rows].fill(false);
            }
            let expected: Vec<Vec<bool>> =
                made.iter().map(|of| of[output].iter().map(|value| !value.is_nan()).collect()).collect();
            assert_eq!(known, expected, "of output {output}");
        }
        Ok(made.into_iter().flatten().flatten().collect())
    }

    #[test]
    fn values_do_not_depend_on_threads_or_on_other_symbols() {
        let compute = compute(&["sma(3)", "close > sma(5) as up"]);
        let closes = closes(300);
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        let alone: Vec<f64> =
            closes.iter().flat_map(|one| run(&compute, std::slice::from_ref(one), 1, &NoCancel).unwrap()).collect();
        let alone = bits(alone);
        assert_eq!(bits(run(&compute, &closes, 1, &NoCancel).unwrap()), alone);
        assert_eq!(bits(run(&compute, &closes, 3, &NoCancel).unwrap()), alone);
        assert_eq!(compute.conditions(), [false, true]);
        assert_eq!(compute.needs().collect::<Vec<_>>(), ["close"]);
    }

    /// A scan of daily bars refuses them too; a column without values would say nothing.
    #[test]
    fn words_within_a_day_are_refused_over_dates() {
        let close = [1.0, 2.0];
        let of = |expr: &str, times: &[TimeMicros]| {
            let compute = compute(&[expr]);
            let symbols = [SymbolBars { name: "", rows: 2, times: Some(times), columns: vec![&close] }];
            let mut made = [0.0; 2];
            let ended = compute.evaluate(&symbols, vec![vec![&mut made[..]]], Calendar::XNYS, 1, &NoCancel);
            ended.map(|_| made).map_err(|error| error.to_string())
        };
        let (dates, times) = ([0, DAY_MICROS], [54_000_000_000, 54_060_000_000]);
        assert!(of("minutes_since_open", &dates).unwrap_err().contains("the bars have dates alone"));
        assert_eq!(of("weekday", &dates), Ok([4.0, 5.0]));
        assert_eq!(of("time_of_day", &times), Ok([600.0, 601.0]));
    }

    #[test]
    fn a_flag_that_is_set_stops_it() {
        let cancel = CancelFlag::default();
        cancel.set();
        let error = run(&compute(&["sma(3)"]), &closes(2), 1, &cancel).unwrap_err();
        assert!(error.downcast_ref::<Cancelled>().is_some(), "{error}");
    }

    #[test]
    fn many_runs_of_na_are_not_kept() {
        let mut part = PartMissing { runs: Some(Vec::new()) };
        let values: Vec<f64> = (0..2 * RUNS_MAX + 4).map(|i| if i % 2 == 0 { f64::NAN } else { 1.0 }).collect();
        part.add(0, 0, &values[..2 * RUNS_MAX]);
        assert_eq!(part.runs.as_ref().map(Vec::len), Some(RUNS_MAX));
        part.add(0, 2 * RUNS_MAX, &values[2 * RUNS_MAX..]);
        assert!(part.runs.is_none() && Missing(vec![vec![part]]).runs(0).is_none());
    }

    #[test]
    fn a_symbol_without_bars_has_no_values() {
        let made = run(&compute(&["close"]), &[Vec::new(), vec![2.0]], 1, &NoCancel).unwrap();
        assert_eq!(made, [2.0]);
    }
}
