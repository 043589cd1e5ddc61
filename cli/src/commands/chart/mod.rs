//! `trawl chart`: price and expressions of one symbol as a picture.
//!
//! The values are those of the scan engine, bar by bar; `layout` decides where each series is drawn.

mod draw;
mod layout;
mod ticks;

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{SeriesError, symbol_series};
use trawl_kernels::NoCancel;
use trawl_plan::ScanDocument;
use trawl_plan::graph::Kind;

use super::scan;
use crate::app::Context;
use crate::failure::UserMistake;
use crate::human::counted;
use crate::output::atomic_file::StagedFile;
use layout::{CANDLE_PIXELS_MIN, ChartLayout, Price, Series, candles_max};

/// Most bars of a chart: more than a screen can distinguish.
const BARS_MAX: u32 = 20_000;
/// Expressions in one picture.
const EXPRESSIONS_MAX: usize = 32;
/// Pixels of a side.
const SIDE_PIXELS: std::ops::RangeInclusive<u32> = 200..=8000;

/// Names of the price columns in the scan; chosen so that a user's expression cannot have one of them by accident.
const PRICES: [(&str, &str); 4] =
    [("open", "chart_open"), ("high", "chart_high"), ("low", "chart_low"), ("close", "chart_close")];

const AFTER_HELP: &str = "\
A series that moves with the price and has a similar size is drawn over it, any other in a panel of its own below; conditions are shaded \
where they are true. Expressions of one --expr, separated by ';', share a panel. 'EXPR as NAME' sets the name in the legend.

Examples:
  trawl chart IBM --dataset us5 --expr 'sma(close, 50)' --expr 'sma(close, 200)' --expr 'rsi(close, 14)'
  trawl chart IBM --dataset us5 --bars 250 --expr 'close > highest(high, 50)[1] as breakout' --output ibm.svg
  trawl chart MSFT --dataset us5 --expr 'macd(close).macd as macd; macd(close).signal as signal'";

/// Draw price and expressions of one symbol to an SVG file
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Symbol to draw
    #[arg(value_name = "SYMBOL")]
    symbol: String,

    /// Dataset that holds it: NAME, or NAME@SNAPSHOT
    #[arg(long, short, value_name = "NAME")]
    dataset: String,

    /// Expression to draw: 'EXPR' or 'EXPR as NAME', several in one panel with ';'; may be given several times
    #[arg(long = "expr", short, value_name = "EXPR", allow_hyphen_values = true)]
    exprs: Vec<String>,

    /// Last bar, as the --as-of of 'trawl scan' [default: the newest closed bar]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    as_of: Option<String>,

    /// How many bars
    #[arg(long, short, value_name = "N", default_value_t = 500, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(2..=i64::from(BARS_MAX)))]
    bars: u32,

    /// Adjust prices for the splits and dividends known at the last bar: split, split+dividend or none
    #[arg(long, value_name = "HOW[@DATE]")]
    adjust: Option<String>,

    /// Use bars of this timeframe, such as 1d; refused when the dataset has none
    #[arg(long, short, value_name = "TIMEFRAME")]
    timeframe: Option<String>,

    /// File to write, ending in .svg [default: SYMBOL.svg]
    #[arg(long, short, value_name = "FILE.svg")]
    output: Option<PathBuf>,

    /// Width and height in pixels [default: 1400 wide, as high as the panels need]
    #[arg(long, value_name = "WxH", value_parser = size)]
    size: Option<(u32, u32)>,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let side = |text: &str| text.trim().parse().ok().filter(|side| SIDE_PIXELS.contains(side));
    let found = text.split_once(['x', 'X']).and_then(|(w, h)| Some((side(w)?, side(h)?)));
    found
        .ok_or_else(|| format!("write it as 1400x900, each side from {} to {}", SIDE_PIXELS.start(), SIDE_PIXELS.end()))
}

/// The expressions of one `--expr`.
fn texts(expr: &str) -> impl Iterator<Item = &str> {
    expr.split(';').map(str::trim).filter(|text| !text.is_empty())
}

/// Computes, lays out, draws.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let count: usize = args.exprs.iter().map(|expr| texts(expr).count()).sum();
    if count > EXPRESSIONS_MAX {
        let message = format!("{count} expressions; at most {EXPRESSIONS_MAX} are drawn");
        return Err(UserMistake::with_help(message, "make several charts").into());
    }
    let path = output(&args)?;
    let as_of = scan::as_of(args.as_of.as_deref())?;
    let store = context.store()?;
    let columns = store.open(&args.dataset).map_err(crate::failure::of_market)?.manifest.columns.clone();
    let prices: Vec<(&str, &str)> = PRICES.into_iter().filter(|(name, _)| columns.iter().any(|c| c == name)).collect();
    let mut select: Vec<String> = prices.iter().map(|(name, own)| format!("{name} as {own}")).collect();
    select.extend(args.exprs.iter().flat_map(|expr| texts(expr)).map(str::to_owned));
    let document = ScanDocument {
        dataset: Some(args.dataset.clone()),
        timeframe: args.timeframe.clone(),
        adjust: args.adjust.clone(),
        // A condition that is true at every bar.
        condition: "1 == 1".to_owned(),
        select,
        ..ScanDocument::default()
    };
    let prepared = scan::prepare(context, &document, as_of).map_err(|error| in_place(error, prices.len()))?;
    for warning in &prepared.warnings {
        crate::diagnostics::warning_line(warning);
    }
    if prepared.plan.headings.len() != prices.len() + count {
        let help = "give the expressions one by one; 'trawl indicators NAME' lists the columns of a set";
        return Err(UserMistake::with_help("a named set of columns cannot be drawn", help).into());
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let options = LocalOptions { threads, ..LocalOptions::default() };
    let found = symbol_series(&prepared, &args.symbol, args.bars as usize, options, &NoCancel).map_err(mistake_of)?;
    if found.times.len() < 2 {
        let message = format!("'{}' has {} to draw", found.symbol, counted(found.times.len(), "bar"));
        return Err(UserMistake::with_help(message, "take an earlier --as-of or more --bars").into());
    }
    let mut columns = found.columns.into_iter();
    let mut price = Price::default();
    for (name, _) in &prices {
        price.set(name, columns.next().unwrap_or_default());
    }
    let (plan, rises) = (&prepared.plan, prepared.plan.rises());
    let mut named = plan.headings.iter().zip(&plan.points[0].select).skip(prices.len()).zip(columns);
    let rows = prepared.dataset.manifest.symbol(&found.symbol).map_or(0, |entry| entry.rows as usize);
    let groups: Vec<Vec<Series>> = args
        .exprs
        .iter()
        .map(|expr| {
            let series = named.by_ref().take(texts(expr).count());
            let series = series.map(|((name, id), values)| {
                let is_condition = plan.nodes()[id.index()].kind == Kind::Bool;
                let series = Series { name: name.clone(), is_condition, rise: rises[id.index()], values };
                if series.is_empty() {
                    warn_empty(name, plan.look_back_of(*id) + 1, &found.symbol, rows);
                }
                series
            });
            series.collect()
        })
        .collect();
    let manifest = &prepared.dataset.manifest;
    let made_up = if manifest.synthetic { ", SYNTHETIC data" } else { "" };
    let title = format!("{}  ({} {}{made_up})", found.symbol, manifest.name, manifest.timeframe);
    let (width, height) = args.size.map_or((draw::WIDTH, None), |(width, height)| (width, Some(height)));
    let plot = width.saturating_sub(draw::LABELS_PIXELS);
    let layout = ChartLayout::new(title, found.times, price, groups, plot);
    let svg = draw::svg(&layout, args.size).map_err(|why| anyhow::anyhow!("the chart cannot be drawn: {why}"))?;
    let mut file = StagedFile::create(&path)?;
    file.write_all(svg.as_bytes())?;
    file.keep()?;
    let (bars, most) = (layout.times.len(), candles_max(plot));
    let line = if bars > most {
        let wider = (bars as f64 * CANDLE_PIXELS_MIN).ceil() as u32 + draw::LABELS_PIXELS;
        let size = match height {
            _ if wider > *SIDE_PIXELS.end() => String::new(),
            height => format!(" or --size {wider}x{}", height.unwrap_or(900)),
        };
        format!(", as a line: candles fit with --bars {most}{size}")
    } else {
        String::new()
    };
    writeln!(io::stdout(), "wrote {}: {} of {}{line}", path.display(), counted(bars, "bar"), found.symbol)?;
    Ok(ExitCode::SUCCESS)
}

/// Warns that an expression is left out, and why.
fn warn_empty(name: &str, needed: usize, symbol: &str, rows: usize) {
    let why = if needed > rows {
        format!("it needs {}, and '{symbol}' has {rows}", counted(needed, "bar"))
    } else {
        "it is NA on every bar shown".to_owned()
    };
    crate::diagnostics::warning_line(&format!("'{name}' has no value and is left out: {why}"));
}

/// The output file; known to be writable.
fn output(args: &Args) -> Result<PathBuf, UserMistake> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => {
            // A symbol may contain characters that would make it a path.
            let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
            PathBuf::from(format!("{}.svg", args.symbol.chars().map(plain).collect::<String>()))
        }
    };
    if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("svg")) {
        let message = format!("'{}' does not name an SVG file", path.display());
        return Err(UserMistake::with_help(message, "end its name in .svg"));
    }
    StagedFile::create(&path)?;
    Ok(path)
}

/// Attributes mistakes in the expressions to `--expr` instead of the select clause that was built from it.
fn in_place(error: anyhow::Error, prices: usize) -> anyhow::Error {
    match error.downcast::<UserMistake>() {
        Ok(UserMistake::Drawn(mut mistakes)) => {
            for mistake in &mut mistakes {
                let number = mistake.clause.strip_prefix("select[").and_then(|n| n.strip_suffix(']'));
                if let Some(number) = number.and_then(|n| n.parse::<usize>().ok()) {
                    mistake.clause = format!("--expr[{}]", number.saturating_sub(prices));
                }
            }
            UserMistake::Drawn(mistakes).into()
        }
        Ok(other) => other.into(),
        Err(error) => error,
    }
}

fn mistake_of(error: SeriesError) -> anyhow::Error {
    match error {
        SeriesError::Symbol(error) => scan::no_symbol(&error).into(),
        SeriesError::Market(error) => crate::failure::of_market(error),
        error => anyhow::Error::new(error),
    }
}
