//! `trawl chart`: price and expressions of one symbol as a picture.
//!
//! The values are those of the scan engine, bar by bar; `layout` decides where each series is drawn, `draw` draws it.

mod draw;
mod layout;
mod ticks;

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{CHUNK_BYTES_MAX, PreparedScan, SeriesError, all_bars, symbol_series};
use trawl_kernels::NoCancel;
use trawl_market::{AsOf, format_time};
use trawl_plan::ScanDocument;
use trawl_plan::graph::Kind;

use super::scan;
use crate::app::Context;
use crate::failure::UserMistake;
use draw::Picture;
use layout::{CANDLE_PIXELS_MIN, ChartLayout, Group, Place, Price, Series, candles_max};
use trawl_front::human::counted;
use trawl_front::output::atomic_file::StagedFile;

/// Most bars of a chart: more than a screen can distinguish.
const BARS_MAX: u32 = 20_000;
/// Expressions in one picture.
const EXPRESSIONS_MAX: usize = 32;
/// Pixels of a side.
const SIDE_PIXELS: std::ops::RangeInclusive<u32> = 200..=8000;

/// Names of the columns of bars in the scan; chosen so that a user's expression cannot have one of them by accident.
const COLUMNS: [(&str, &str); 5] = [
    ("open", "chart_open"),
    ("high", "chart_high"),
    ("low", "chart_low"),
    ("close", "chart_close"),
    ("volume", "chart_volume"),
];
/// Bars that are drawn if nothing else is asked for; and on a sheet.
const BARS: u32 = 500;
const SHEET_BARS: u32 = 120;

const AFTER_HELP: &str = "\
A series that moves with the price and has a similar size is drawn over it, any other in a panel of its own below; --panel and --overlay decide \
themselves. Conditions are shaded where they are true. Expressions of one --expr, separated by ';', share a panel. 'EXPR as NAME' sets \
the name in the legend. Times are those of the exchange's clock.

Examples:
  trawl chart IBM --dataset us5 --expr 'sma(close, 50)' --expr 'sma(close, 200)' --expr 'rsi(close, 14)'
  trawl chart IBM --dataset us5 --bars 250 --expr 'close > highest(high, 50)[1] as breakout' --output ibm.png
  trawl chart MSFT --dataset us5 --expr 'macd().line as macd; macd().signal as signal; macd().hist as histogram'
  trawl chart IBM --scan scan.toml           # marks the bars at which the scan matches
  trawl chart --scan scan.toml -o sheet.png  # the first 20 matches on one sheet";

/// Draw price and expressions of one symbol, or the matches of a scan, to an SVG or PNG file
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Symbol to draw [default: the first matches of --scan, on one sheet]
    #[arg(value_name = "SYMBOL", required_unless_present = "scan")]
    symbol: Option<String>,

    /// Dataset that holds it: NAME, or NAME@SNAPSHOT [default: that of --scan]
    #[arg(long, short, value_name = "NAME", required_unless_present = "scan")]
    dataset: Option<String>,

    /// Expression to draw: 'EXPR' or 'EXPR as NAME', several in one panel with ';'; may be given several times
    #[arg(long = "expr", short, value_name = "EXPR", allow_hyphen_values = true)]
    exprs: Vec<String>,

    /// The same, always in a panel of its own
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    panel: Vec<String>,

    /// The same, always over the price
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    overlay: Vec<String>,

    /// Mark the bars at which the scan of this TOML document matches
    #[arg(long, value_name = "FILE.toml")]
    scan: Option<PathBuf>,

    /// Leave out the bars of the volume
    #[arg(long)]
    no_volume: bool,

    /// Last bar, as the --as-of of 'trawl scan' [default: the newest closed bar]
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    as_of: Option<String>,

    /// How many bars [default: 500, on a sheet 120]
    #[arg(long, short, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(2..=i64::from(BARS_MAX)))]
    bars: Option<u32>,

    /// Adjust prices for the splits and dividends known at the last bar: split, split+dividend or none
    #[arg(long, value_name = "HOW[@DATE]")]
    adjust: Option<String>,

    /// The timeframe that the dataset's bars must have, such as 1d; longer bars are drawn by --expr "tf('1w', ...)"
    #[arg(long, short, value_name = "TIMEFRAME")]
    timeframe: Option<String>,

    /// File to write, ending in .svg or .png [default: SYMBOL.svg, of a sheet matches.svg]
    #[arg(long, short, value_name = "FILE")]
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

/// What is asked for, checked.
struct Request<'a> {
    args: &'a Args,
    /// The option, the text and the place of each group of expressions.
    groups: Vec<(&'static str, &'a str, Place)>,
    dataset: String,
    /// Columns of the dataset that are drawn, by their names in the scan.
    prices: Vec<(&'static str, &'static str)>,
    as_of: AsOf,
    /// The scan whose matches are marked, and its name.
    marked: Option<(PreparedScan, String)>,
}

/// Computes, lays out, draws.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let groups = [
        ("--expr", &args.exprs, Place::ByValues),
        ("--panel", &args.panel, Place::Panel),
        ("--overlay", &args.overlay, Place::Overlay),
    ];
    let groups: Vec<_> = groups
        .into_iter()
        .flat_map(|(option, texts, place)| texts.iter().map(move |text| (option, text.as_str(), place)))
        .collect();
    let count: usize = groups.iter().map(|(_, text, _)| texts(text).count()).sum();
    if count > EXPRESSIONS_MAX {
        let message = format!("{count} expressions; at most {EXPRESSIONS_MAX} are drawn");
        return Err(UserMistake::with_help(message, "make several charts").into());
    }
    let path = output(&args)?;
    let as_of = scan::as_of(args.as_of.as_deref())?;
    let marked = args.scan.as_deref().map(|file| marked(&args, context, file, &as_of)).transpose()?;
    let of_scan = marked.as_ref().and_then(|(scan, _)| scan.document.dataset.clone());
    let dataset = args.dataset.clone().or(of_scan).unwrap_or_default();
    let manifest = context.store()?.open(&dataset).map_err(crate::failure::of_market)?.manifest;
    let has = |name: &&str| manifest.columns.iter().any(|column| column == name);
    let wanted = |name: &str| name != "volume" || !args.no_volume;
    let prices = COLUMNS.into_iter().filter(|(name, _)| has(name) && wanted(name)).collect();
    let request = Request { args: &args, groups, dataset, prices, as_of, marked };
    let symbols = match (&args.symbol, &request.marked) {
        (Some(symbol), _) => vec![symbol.clone()],
        (None, Some((scan, name))) => first_matches(scan, name)?,
        (None, None) => Vec::new(),
    };
    let of_sheet = args.symbol.is_none();
    let bars = args.bars.unwrap_or(if of_sheet { SHEET_BARS } else { BARS }) as usize;
    let width = if of_sheet { draw::CELL_PIXELS.0 } else { args.size.map_or(draw::WIDTH, |(width, _)| width) };
    let plot = width.saturating_sub(draw::LABELS_PIXELS);
    let charts = symbols
        .iter()
        .map(|symbol| request.layout(context, symbol, bars, plot))
        .collect::<anyhow::Result<Vec<ChartLayout>>>()?;
    let picture = match charts.first() {
        Some(layout) if !of_sheet => Picture::One(layout, args.size),
        _ => Picture::Sheet(&charts, args.size),
    };
    let mut file = StagedFile::create(&path)?;
    let drawn = if is_png(&path) { picture.png() } else { picture.svg().map(String::into_bytes) };
    file.write_all(&drawn.map_err(|why| anyhow::anyhow!("the chart cannot be drawn: {why}"))?)?;
    file.keep()?;
    let what = match charts.first() {
        Some(layout) if !of_sheet => {
            let bars = layout.times.len();
            format!("{} of {}{}", counted(bars, "bar"), layout.symbol, line_instead(&args, bars, plot))
        }
        _ => format!("the first {}", counted(charts.len(), "match").replace("matchs", "matches")),
    };
    writeln!(io::stdout(), "wrote {}: {what}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Why there are no candles, and what to do.
fn line_instead(args: &Args, bars: usize, plot: u32) -> String {
    let most = candles_max(plot);
    if bars <= most {
        return String::new();
    }
    let wider = (bars as f64 * CANDLE_PIXELS_MIN).ceil() as u32 + draw::LABELS_PIXELS;
    let size = match args.size {
        _ if wider > *SIDE_PIXELS.end() => String::new(),
        size => format!(" or --size {wider}x{}", size.map_or(900, |(_, height)| height)),
    };
    format!(", as a line: candles fit with --bars {most}{size}")
}

/// The scan whose matches are marked, with the dataset and the as-of of the chart; and its name.
fn marked(args: &Args, context: &Context, file: &Path, as_of: &AsOf) -> anyhow::Result<(PreparedScan, String)> {
    let clauses = scan::Clauses::of_document(file.to_owned(), args.dataset.clone(), args.adjust.clone());
    let document = clauses.document()?;
    let prepared = scan::prepare(context, &document, as_of.clone()).map_err(|error| clauses.placed(error))?;
    if prepared.plan.points.len() > 1 {
        let help = "give each variable one value in the document";
        return Err(UserMistake::with_help("a sweep has many scans, and one is marked", help).into());
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = document.name.unwrap_or(stem);
    Ok((prepared, name))
}

/// The symbols of the first matches.
fn first_matches(scan: &PreparedScan, name: &str) -> anyhow::Result<Vec<String>> {
    let mut symbols = Vec::new();
    all_bars(scan, options(), Some(scan.as_of), CHUNK_BYTES_MAX, &NoCancel, |_, answer| {
        let placed = answer.rows.into_iter().filter(|row| row.place.is_some());
        symbols = placed.map(|row| row.row.symbol).take(draw::SHEET_CHARTS_MAX).collect();
        Ok(())
    })
    .map_err(scan::all_bars::mistake)?;
    if symbols.is_empty() {
        let message = format!("no symbol matches '{name}' as of {}", scan.shown_as_of());
        return Err(UserMistake::with_help(message, "take another --as-of, or name a symbol").into());
    }
    Ok(symbols)
}

/// Of runs in this process.
fn options() -> LocalOptions {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    LocalOptions { threads, ..LocalOptions::default() }
}

impl Request<'_> {
    /// The scan that gives the series of a symbol.
    fn document(&self) -> ScanDocument {
        let mut select: Vec<String> = self.prices.iter().map(|(name, own)| format!("{name} as {own}")).collect();
        select.extend(self.groups.iter().flat_map(|(_, text, _)| texts(text)).map(str::to_owned));
        ScanDocument {
            dataset: Some(self.dataset.clone()),
            timeframe: self.args.timeframe.clone(),
            adjust: self.args.adjust.clone(),
            // A condition that is true at every bar.
            condition: "1 == 1".to_owned(),
            // Words of the scan's document may be used in expressions.
            lets: self.marked.as_ref().map(|(scan, _)| scan.document.lets.clone()).unwrap_or_default(),
            select,
            ..ScanDocument::default()
        }
    }

    /// The chart of a symbol; the plot is `plot` pixels wide.
    fn layout(&self, context: &Context, symbol: &str, bars: usize, plot: u32) -> anyhow::Result<ChartLayout> {
        let prepared =
            scan::prepare(context, &self.document(), self.as_of.clone()).map_err(|error| self.in_place(error))?;
        for warning in &prepared.warnings {
            crate::diagnostics::warning_line(warning);
        }
        let count: usize = self.groups.iter().map(|(_, text, _)| texts(text).count()).sum();
        if prepared.plan.headings.len() != self.prices.len() + count {
            let help = "give the expressions one by one; 'trawl indicators NAME' lists the columns of a set";
            return Err(UserMistake::with_help("a named set of columns cannot be drawn", help).into());
        }
        let found = symbol_series(&prepared, symbol, bars, options(), &NoCancel).map_err(mistake_of)?;
        if found.times.len() < 2 {
            let message = format!("'{}' has {} to draw", found.symbol, counted(found.times.len(), "bar"));
            return Err(UserMistake::with_help(message, "take an earlier --as-of or more --bars").into());
        }
        let mut columns = found.columns.into_iter();
        let (mut price, mut volume) = (Price::default(), None);
        for (name, _) in &self.prices {
            let values = columns.next().unwrap_or_default();
            match *name {
                "volume" => volume = Some(Series::new((*name).to_owned(), name, false, None, values)),
                _ => price.set(name, values),
            }
        }
        let mut groups: Vec<Group> =
            volume.into_iter().map(|series| Group { place: Place::Panel, series: vec![series] }).collect();
        let (plan, rises) = (&prepared.plan, prepared.plan.rises());
        let mut named = plan.headings.iter().zip(&plan.points[0].select).skip(self.prices.len()).zip(columns);
        let manifest = &prepared.dataset.manifest;
        let rows = manifest.symbol(&found.symbol).map_or(0, |entry| entry.rows as usize);
        for (_, expr, place) in &self.groups {
            let series = texts(expr).zip(named.by_ref()).map(|(text, ((name, id), values))| {
                let is_condition = plan.nodes()[id.index()].kind == Kind::Bool;
                // What is called is in front of the name.
                let text = text.rsplit_once(" as ").map_or(text, |(text, _)| text);
                let series = Series::new(name.clone(), text, is_condition, rises[id.index()], values);
                if series.is_empty() {
                    warn_empty(name, plan.look_back_of(*id) + 1, &found.symbol, rows);
                }
                series
            });
            groups.push(Group { place: *place, series: series.collect() });
        }
        let synthetic = if manifest.synthetic { "  SYNTHETIC" } else { "" };
        let title = match &self.args.symbol {
            Some(_) => format!("{}  ({} {}){synthetic}", found.symbol, manifest.name, manifest.timeframe),
            None => format!("{}{synthetic}", found.symbol),
        };
        let zone = manifest.calendar().zone();
        let dated = manifest.is_dated();
        let wall: Vec<i64> = found.times.iter().map(|time| if dated { *time } else { zone.wall(*time) }).collect();
        let mut layout = ChartLayout::new(title, wall, price, groups, plot);
        layout.symbol.clone_from(&found.symbol);
        if let (Some(first), Some(last)) = (found.times.first(), found.times.last()) {
            layout.span = match dated {
                true => format!("{} to {}", format_time(*first), format_time(*last)),
                false => format!("{} to {}", zone.format(*first), zone.format(*last)),
            };
        }
        if let Some((scan, name)) = &self.marked {
            let matched = symbol_series(scan, &found.symbol, bars, options(), &NoCancel).map_err(mistake_of)?.times;
            let bars = matched.iter().filter_map(|time| found.times.binary_search(time).ok());
            layout.marks = Some((name.clone(), bars.collect()));
        }
        Ok(layout)
    }

    /// Attributes mistakes in the expressions to the option with it instead of the select clause that was built from it.
    fn in_place(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<UserMistake>() {
            Ok(UserMistake::Drawn(mut mistakes)) => {
                let options: Vec<&str> =
                    self.groups.iter().flat_map(|(option, text, _)| texts(text).map(move |_| *option)).collect();
                for mistake in &mut mistakes {
                    let number = mistake.clause.strip_prefix("select[").and_then(|n| n.strip_suffix(']'));
                    let Some(number) = number.and_then(|n| n.parse::<usize>().ok()) else { continue };
                    let at = number.saturating_sub(self.prices.len() + 1);
                    if let Some(option) = options.get(at) {
                        let before = options[..at].iter().filter(|other| *other == option).count();
                        mistake.clause = format!("{option}[{}]", before + 1);
                    }
                }
                UserMistake::Drawn(mistakes).into()
            }
            Ok(other) => other.into(),
            Err(error) => error,
        }
    }
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

fn is_png(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png"))
}

/// The output file; known to be writable.
fn output(args: &Args) -> Result<PathBuf, UserMistake> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => {
            // A symbol may contain characters that would make it a path.
            let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
            let name = args.symbol.as_deref().unwrap_or("matches");
            PathBuf::from(format!("{}.svg", name.chars().map(plain).collect::<String>()))
        }
    };
    let is_svg = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("svg"));
    if !is_svg && !is_png(&path) {
        let message = format!("'{}' does not name an SVG or PNG file", path.display());
        return Err(UserMistake::with_help(message, "end its name in .svg or .png"));
    }
    StagedFile::create(&path)?;
    Ok(path)
}

fn mistake_of(error: SeriesError) -> anyhow::Error {
    match error {
        SeriesError::Symbol(error) => trawl_front::why::no_symbol(&error).into(),
        SeriesError::Market(error) => crate::failure::of_market(error),
        SeriesError::AllBars(error) => scan::all_bars::mistake(error),
        error => anyhow::Error::new(error),
    }
}
