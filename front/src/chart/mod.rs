//! Price and expressions of one symbol as a picture.
//!
//! The values are those of the scan engine, bar by bar; `layout` decides where each series is drawn, `draw` draws it.

mod axis;
pub mod draw;
pub mod layout;
mod pixels;
mod ticks;
mod wanted;

pub use wanted::{ChartWanted, PictureFormat};

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZero;

use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{CHUNK_BYTES_MAX, PreparedScan, SymbolSeries, all_bars, series_cost_ns, symbol_series};
use trawl_kernels::{Cancel, NoCancel};
use trawl_market::{AsOf, Store, format_time};
use trawl_plan::ScanDocument;
use trawl_plan::graph::Kind;

use crate::human::counted;
use crate::mistake::{UserMistake, of_market};
use crate::refused::{of_all_bars, of_series};
use crate::run::{CancelFlag, prepared};
use layout::{ChartLayout, Group, Place, Price, Series};

/// Most bars of a chart: more than a screen can distinguish.
pub const BARS_MAX: u32 = 20_000;
/// Pixels of a side of a picture.
pub const SIDE_PIXELS: std::ops::RangeInclusive<u32> = 200..=8000;
/// Expressions in one picture.
pub const EXPRESSIONS_MAX: usize = 32;
/// Bars that are drawn if nothing else is asked for.
pub const BARS: u32 = 500;
/// Bars of each chart of a sheet if nothing else is asked for.
pub const SHEET_BARS: u32 = 120;

/// Names of the columns of bars in the scan; chosen so that a user's expression cannot have one of them by accident.
const COLUMNS: [(&str, &str); 5] = [
    ("open", "chart_open"),
    ("high", "chart_high"),
    ("low", "chart_low"),
    ("close", "chart_close"),
    ("volume", "chart_volume"),
];
/// The expressions of one panel, which `;` separates.
pub fn texts(expr: &str) -> impl Iterator<Item = &str> {
    expr.split(';').map(str::trim).filter(|text| !text.is_empty())
}

/// A group of expressions: what messages call its place, such as an option, its text, and where it is drawn.
pub type Drawing = (String, String, Place);

/// What is drawn of each symbol.
pub struct ChartRequest<'a> {
    store: &'a Store,
    groups: Vec<Drawing>,
    dataset: String,
    /// Columns of the dataset that are drawn, by their names in the scan.
    prices: Vec<(&'static str, &'static str)>,
    as_of: AsOf,
    /// Which bars, and how prices are adjusted, as in a scan's document.
    pub timeframe: Option<String>,
    /// How prices are adjusted, as in a scan's document.
    pub adjust: Option<String>,
    /// The scan whose matches are marked, and its name.
    pub marked: Option<(PreparedScan, String)>,
    /// Whether the dataset is in the title, as it is where there is one chart.
    pub titled: bool,
    /// Threads that compute; as many as there are cores if nothing else is said.
    pub threads: usize,
    /// Ends the computing soon after it is set.
    pub cancel: Option<CancelFlag>,
    /// Receives what whoever looks at the charts should know, once each.
    warn: &'a dyn Fn(&str),
    warned: RefCell<BTreeSet<String>>,
}

impl<'a> ChartRequest<'a> {
    /// Checks what is drawn: groups of expressions, over the prices of the dataset, with its volume or without.
    ///
    /// # Errors
    /// A [`UserMistake`] for an unknown dataset or too many expressions; a dataset that cannot be read.
    pub fn new(
        store: &'a Store,
        (dataset, as_of): (String, AsOf),
        groups: Vec<Drawing>,
        volume: bool,
        warn: &'a dyn Fn(&str),
    ) -> anyhow::Result<Self> {
        let count: usize = groups.iter().map(|(_, text, _)| texts(text).count()).sum();
        if count > EXPRESSIONS_MAX {
            let message = format!("{count} expressions; at most {EXPRESSIONS_MAX} are drawn");
            return Err(UserMistake::with_help(message, "make several charts").into());
        }
        let manifest = store.open(&dataset).map_err(of_market)?.manifest;
        let has = |name: &&str| manifest.columns.iter().any(|column| column == name);
        let wanted = |name: &str| name != "volume" || volume;
        let prices = COLUMNS.into_iter().filter(|(name, _)| has(name) && wanted(name)).collect();
        let (timeframe, adjust) = (None, None);
        Ok(Self {
            store,
            groups,
            dataset,
            prices,
            as_of,
            timeframe,
            adjust,
            marked: None,
            titled: true,
            threads: cores(),
            cancel: None,
            warn,
            warned: RefCell::default(),
        })
    }

    /// What is true of all charts is said once.
    fn warn_once(&self, warning: &str) {
        if self.warned.borrow_mut().insert(warning.to_owned()) {
            (self.warn)(warning);
        }
    }

    /// The scan that gives the series of a symbol.
    fn document(&self) -> ScanDocument {
        let mut select: Vec<String> = self.prices.iter().map(|(name, own)| format!("{name} as {own}")).collect();
        select.extend(self.groups.iter().flat_map(|(_, text, _)| texts(text)).map(str::to_owned));
        ScanDocument {
            dataset: Some(self.dataset.clone()),
            timeframe: self.timeframe.clone(),
            adjust: self.adjust.clone(),
            // A condition that is true at every bar.
            condition: "1 == 1".to_owned(),
            // Words of the scan's document may be used in expressions.
            lets: self.marked.as_ref().map(|(scan, _)| scan.document.lets.clone()).unwrap_or_default(),
            select,
            ..ScanDocument::default()
        }
    }

    /// Opens and compiles the scan that gives the series.
    fn prepared(&self) -> anyhow::Result<PreparedScan> {
        prepared(self.store, &self.document(), self.as_of.clone()).map_err(|error| self.in_place(error))
    }

    /// The estimated work of the chart of a symbol, in nanoseconds of one core.
    ///
    /// # Errors
    /// As [`ChartRequest::layout`].
    pub fn work_ns(&self, symbol: &str) -> anyhow::Result<f64> {
        let own = series_cost_ns(&self.prepared()?, symbol).map_err(of_series)?;
        let marks =
            self.marked.as_ref().map(|(scan, _)| series_cost_ns(scan, symbol)).transpose().map_err(of_series)?;
        Ok(own as f64 + marks.unwrap_or(0) as f64)
    }

    /// The last `bars` bars of a symbol with the columns of a scan.
    fn series(&self, scan: &PreparedScan, symbol: &str, bars: usize) -> anyhow::Result<SymbolSeries> {
        let options = LocalOptions { threads: self.threads, ..LocalOptions::default() };
        let cancel: &dyn Cancel = self.cancel.as_ref().map_or(&NoCancel, |flag| flag);
        symbol_series(scan, symbol, bars, options, cancel).map_err(of_series)
    }

    /// The chart of a symbol; the plot is `plot` pixels wide.
    ///
    /// # Errors
    /// A [`UserMistake`] in an expression, for an unknown symbol or one without bars; bars that cannot be read.
    pub fn layout(&self, symbol: &str, bars: usize, plot: u32) -> anyhow::Result<ChartLayout> {
        let prepared = self.prepared()?;
        prepared.warnings.iter().for_each(|warning| self.warn_once(warning));
        let count: usize = self.groups.iter().map(|(_, text, _)| texts(text).count()).sum();
        if prepared.plan.headings.len() != self.prices.len() + count {
            let help = "give the expressions one by one; 'trawl indicators NAME' lists the columns of a set";
            return Err(UserMistake::with_help("a named set of columns cannot be drawn", help).into());
        }
        let found = self.series(&prepared, symbol, bars)?;
        if found.times.len() < 2 {
            let message = format!("'{}' has {} to draw", found.symbol, counted(found.times.len(), "bar"));
            return Err(UserMistake::with_help(message, "take a later last bar or more bars").into());
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
                    self.warn_once(&empty(name, plan.look_back_of(*id) + 1, &found.symbol, rows));
                }
                series
            });
            groups.push(Group { place: *place, series: series.collect() });
        }
        let synthetic = if manifest.synthetic { "  SYNTHETIC" } else { "" };
        let title = match self.titled {
            true => format!("{}  ({} {}){synthetic}", found.symbol, manifest.name, manifest.timeframe),
            false => format!("{}{synthetic}", found.symbol),
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
            let matched = self.series(scan, &found.symbol, bars)?.times;
            let bars = matched.iter().filter_map(|time| found.times.binary_search(time).ok());
            layout.marks = Some((name.clone(), bars.collect()));
        }
        Ok(layout)
    }

    /// Attributes mistakes in the expressions to the option with it instead of the select clause that was built from it.
    fn in_place(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<UserMistake>() {
            Ok(UserMistake::Drawn(mut mistakes)) => {
                let options: Vec<&String> =
                    self.groups.iter().flat_map(|(option, text, _)| texts(text).map(move |_| option)).collect();
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

/// That an expression is left out, and why.
fn empty(name: &str, needed: usize, symbol: &str, rows: usize) -> String {
    let why = if needed > rows {
        format!("it needs {}, and '{symbol}' has {rows}", counted(needed, "bar"))
    } else {
        "it is NA on every bar shown".to_owned()
    };
    format!("'{name}' has no value and is left out: {why}")
}

/// The symbols of the first matches.
///
/// # Errors
/// A [`UserMistake`] where nothing matches; bars that cannot be read.
pub fn first_matches(scan: &PreparedScan, name: &str) -> anyhow::Result<Vec<String>> {
    let mut symbols = Vec::new();
    all_bars(scan, options(), Some(scan.as_of), CHUNK_BYTES_MAX, &NoCancel, |_, answer| {
        let placed = answer.rows.into_iter().filter(|row| row.place.is_some());
        symbols = placed.map(|row| row.row.symbol).take(draw::SHEET_CHARTS_MAX).collect();
        Ok(())
    })
    .map_err(of_all_bars)?;
    if symbols.is_empty() {
        let message = format!("no symbol matches '{name}' as of {}", scan.shown_as_of());
        return Err(UserMistake::with_help(message, "take another --as-of, or name a symbol").into());
    }
    Ok(symbols)
}

/// Of runs in this process.
fn options() -> LocalOptions {
    LocalOptions { threads: cores(), ..LocalOptions::default() }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
