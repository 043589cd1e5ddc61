//! The answer of a scan at a time: every symbol's status, flag and values.

use std::rc::Rc;

use super::edges::Edge;
use super::evaluate::{Axis, Frame, Reference};
use super::expression::{Expr, Node};
use super::indicators::Value;
use super::market::Market;

/// A scan as a tree.
#[derive(Debug, Clone)]
pub struct Scan {
    pub universe: Option<Node>,
    pub condition: Node,
    /// Key and whether the smallest comes first.
    pub rank: Vec<(Node, bool)>,
    pub limit: Option<u32>,
    pub select: Vec<Node>,
    /// Names that the trees above use, inner ones first.
    pub lets: Vec<(String, Node)>,
    /// Functions that the trees above use, with their parameter: `f0(p)` and its text.
    pub defs: Vec<(String, String)>,
    /// Splits, and whether dividends too.
    pub adjust: Option<bool>,
    pub history: Option<Limit>,
    /// Days that a symbol's newest bar may be older than the day it is read on.
    pub max_age: Option<i64>,
    /// Whether every clause means the longer bars, weeks or five minutes.
    pub timeframe: bool,
}

/// `history = { bars = N, origin = ... }`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub bars: u32,
    pub origin: bool,
}

impl Scan {
    /// The clauses as text: `name = "expression"`.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        if let Some(universe) = &self.universe {
            lines.push(format!("universe = \"{}\"", universe.text()));
        }
        lines.push(format!("where = \"{}\"", self.condition.text()));
        if let Some(rank) = self.rank_text() {
            lines.push(format!("rank = \"{rank}\""));
        }
        if let Some(limit) = self.limit {
            lines.push(format!("limit = {limit}"));
        }
        if !self.select.is_empty() {
            let select: Vec<String> = self.select_texts().iter().map(|s| format!("\"{s}\"")).collect();
            lines.push(format!("select = [{}]", select.join(", ")));
        }
        lines.extend(self.adjust_text().map(|how| format!("adjust = \"{how}\"")));
        lines.extend(self.timeframe.then(|| "timeframe = \"1w\"".to_owned()));
        lines.extend(self.max_age_text().map(|age| format!("max_age = \"{age}\"")));
        lines.extend(
            self.history.map(|Limit { bars, origin }| format!("history = {{ bars = {bars}, origin = {origin} }}")),
        );
        if !self.lets.is_empty() {
            lines.push("[let]".to_owned());
        }
        lines.extend(self.lets.iter().map(|(name, node)| format!("{name} = \"{}\"", node.text())));
        if !self.defs.is_empty() {
            lines.push("[def]".to_owned());
        }
        lines.extend(self.defs.iter().map(|(name, text)| format!("\"{name}\" = \"{text}\"")));
        lines.join("\n") + "\n"
    }

    /// The clause `adjust`.
    pub fn adjust_text(&self) -> Option<&'static str> {
        self.adjust.map(|dividends| if dividends { "split+dividend" } else { "split" })
    }

    /// The clause `max_age`.
    pub fn max_age_text(&self) -> Option<String> {
        self.max_age.map(|days| format!("{days}d"))
    }

    /// The clause `rank`.
    pub fn rank_text(&self) -> Option<String> {
        let keys: Vec<String> = self
            .rank
            .iter()
            .enumerate()
            .map(|(i, (key, ascending))| match (ascending, i % 2) {
                (true, _) => format!("{} asc", key.text()),
                (false, 0) => key.text(),
                (false, _) => format!("{} desc", key.text()),
            })
            .collect();
        (!keys.is_empty()).then(|| keys.join(", "))
    }

    /// The clause `select`, each column with a name.
    pub fn select_texts(&self) -> Vec<String> {
        self.select.iter().enumerate().map(|(i, node)| format!("{} as c{i}", node.text())).collect()
    }

    /// The scan in which every clause is read from the last whole bar of its timeframe.
    fn meant(&self) -> Self {
        let mut meant = self.clone();
        if self.timeframe {
            let read = |node: &mut Node| *node = Rc::new(Expr::Week { of: Rc::clone(node), partial: false });
            meant.universe.iter_mut().chain([&mut meant.condition]).for_each(read);
            meant.rank.iter_mut().for_each(|(key, _)| read(key));
            meant.select.iter_mut().for_each(read);
        }
        meant
    }

    /// Every tree with the clause it is in.
    pub fn roots(&self) -> Vec<&Node> {
        let rank = self.rank.iter().map(|r| &r.0);
        self.universe.iter().chain([&self.condition]).chain(rank).chain(&self.select).collect()
    }
}

/// As the language writes them; `failed` never comes from expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Failed,
    Stale,
    Outside,
    Unknown,
    Matched,
    NotMatched,
}

/// One symbol at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub symbol: usize,
    pub status: Status,
    pub edge: Edge,
    /// Keys and columns, whatever the status is; empty for a symbol without a bar.
    pub rank: Vec<Value>,
    pub select: Vec<Value>,
    /// Whether a comparison behind each of these, keys first, is so close that rounding may decide the value.
    pub near: Vec<bool>,
}

/// The rows of every symbol, in the market's order, at every day on which some symbol has a bar.
pub fn answers(reference: &Reference<'_>, scan: &Scan) -> Vec<(i64, Vec<Row>)> {
    reference.market.days().into_iter().map(|day| (day, rows(reference, scan, day))).collect()
}

/// The rows at some days, each adjusted as of it and with its own history; with a seed, the arithmetic is disturbed as
/// [`Reference::disturbed`] describes.
///
/// Windows are not affected by a limited history. Functions that never forget begin at its first bar, and only then do
/// the days need references of their own.
pub fn answers_on(market: &Market, scan: &Scan, days: &[i64], disturbed: Option<u64>) -> Vec<(i64, Vec<Row>)> {
    let scan = &scan.meant();
    let limit = scan.history.filter(|limit| limit.origin);
    let alike = |a: &i64, b: &i64| {
        limit.is_none() && (scan.adjust.is_none() || market.known_events(*a) == market.known_events(*b))
    };
    let mut all = Vec::with_capacity(days.len());
    for days in days.chunk_by(alike) {
        let adjusted = scan.adjust.map(|dividends| market.adjusted(days[0], dividends));
        let seen = adjusted.as_ref().unwrap_or(market);
        let universe = scan.universe.clone();
        let mut reference = match disturbed {
            None => Reference::new(seen, universe),
            Some(seed) => Reference::disturbed(seen, universe, seed),
        };
        reference.adjusted = scan.adjust.is_some();
        reference.max_age = scan.max_age;
        reference.window = limit.map(|limit| (limit.bars as usize, days[0]));
        all.extend(days.iter().map(|day| (*day, rows(&reference, scan, *day))));
    }
    all
}

fn rows(reference: &Reference<'_>, scan: &Scan, day: i64) -> Vec<Row> {
    let market: &Market = reference.market;
    (0..market.symbols.len()).map(|symbol| row(reference, scan, symbol, day)).collect()
}

fn row(reference: &Reference<'_>, scan: &Scan, symbol: usize, day: i64) -> Row {
    let Some(t) = reference.read_at(&reference.market.symbols[symbol].days, day) else {
        let (status, edge) = (Status::Stale, Edge::default());
        return Row { symbol, status, edge, rank: Vec::new(), select: Vec::new(), near: Vec::new() };
    };
    let outside = Frame { axis: Axis::Base, in_universe: false, referred: false };
    let inside = Frame { in_universe: true, ..outside };
    let value = |node: &Node| reference.series(node, symbol, outside)[t];
    let universe = scan.universe.as_ref().map_or(Some(1.0), |u| reference.series(u, symbol, inside)[t]);
    let status = match (universe, value(&scan.condition)) {
        (None | Some(0.0), _) => Status::Outside,
        (_, None) => Status::Unknown,
        (_, Some(0.0)) => Status::NotMatched,
        _ => Status::Matched,
    };
    let mut edge = reference.edges(&scan.condition, symbol, outside)[t];
    if let Some(universe) = &scan.universe {
        edge = edge | reference.edges(universe, symbol, inside)[t];
    }
    let rank = scan.rank.iter().map(|(key, _)| value(key)).collect();
    let shown = scan.rank.iter().map(|r| &r.0).chain(&scan.select);
    let near = shown.map(|node| reference.edges(node, symbol, outside)[t].may).collect();
    Row { symbol, status, edge, rank, select: scan.select.iter().map(value).collect(), near }
}
