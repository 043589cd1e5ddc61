//! `trawl chart`: price and expressions of one symbol as a picture.
//!
//! `trawl_front::chart` computes and draws; here is what a user may ask for.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use trawl_coordinator::{Many, PreparedScan};
use trawl_front::chart::draw::{self, Picture};
use trawl_front::chart::layout::{CANDLE_PIXELS_MIN, ChartLayout, Place, candles_max};
use trawl_front::chart::{BARS, BARS_MAX, ChartRequest, Drawing, SHEET_BARS, SIDE_PIXELS, first_matches};
use trawl_front::human::counted;
use trawl_front::output::atomic_file::StagedFile;
use trawl_market::AsOf;

use super::scan;
use crate::app::Context;
use crate::failure::UserMistake;

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

/// Computes, lays out, draws.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    let groups = [
        ("--expr", &args.exprs, Place::ByValues),
        ("--panel", &args.panel, Place::Panel),
        ("--overlay", &args.overlay, Place::Overlay),
    ];
    let groups: Vec<Drawing> = groups
        .into_iter()
        .flat_map(|(option, texts, place)| texts.iter().map(move |text| (option.to_owned(), text.clone(), place)))
        .collect();
    let path = output(&args)?;
    let as_of = scan::as_of(args.as_of.as_deref())?;
    let marked = args.scan.as_deref().map(|file| marked(&args, context, file, &as_of)).transpose()?;
    let of_scan = marked.as_ref().and_then(|(scan, _)| scan.document.dataset.clone());
    let dataset = args.dataset.clone().or(of_scan).unwrap_or_default();
    let store = context.store()?;
    let mut request =
        ChartRequest::new(&store, (dataset, as_of), groups, !args.no_volume, &crate::diagnostics::warning_line)?;
    request.timeframe.clone_from(&args.timeframe);
    request.adjust.clone_from(&args.adjust);
    request.marked = marked;
    request.titled = args.symbol.is_some();
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
        .map(|symbol| request.layout(symbol, bars, plot))
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
    if let Err(many) = prepared.check_one() {
        let message = format!("{many}, and the matches of one scan are marked");
        let help = match many {
            Many::Combinations(_) => "give each variable one value in the document",
            Many::Scans(_) => many.help(),
        };
        return Err(UserMistake::with_help(message, help).into());
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = document.name.unwrap_or(stem);
    Ok((prepared, name))
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
