//! The answers of a scan at many times, by column: the rows of all segments in the order of each time's answer.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use trawl_market::TimeMicros;
use trawl_wire::{AnswerRow, Status, SymbolRow};
use trawl_worker::SegmentPanel;

use crate::merge_spec::MergeSpec;

/// Some times of a scan at every bar. Any of its times can be taken from several threads at once.
#[derive(Debug)]
pub struct PanelChunk {
    /// The times, ascending.
    pub times: Vec<TimeMicros>,
    /// Whether the bar of each time is not closed yet.
    pub provisional: Vec<bool>,
    /// Every symbol of the scan, ascending.
    pub symbols: Arc<Vec<String>>,
    /// Every reason of the chunk; the first is empty.
    pub reasons: Vec<String>,
    spec: Arc<MergeSpec>,
    segments: Vec<SegmentPanel>,
    /// By segment: where its reasons are in `reasons`.
    reason_of: Vec<Vec<u32>>,
    /// By symbol: its segment, and its index there.
    places: Vec<(u32, u32)>,
}

/// Rows of a panel, by column, in the order of the answers, one time after the other.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct PanelRows {
    /// Start of the bar.
    pub time: Vec<TimeMicros>,
    /// Point of the sweep.
    pub point: Vec<u32>,
    /// Rank among the matches; 0 for none.
    pub place: Vec<u32>,
    /// Index into [`PanelChunk::symbols`].
    pub symbol: Vec<u32>,
    /// What became of the symbol.
    pub status: Vec<Status>,
    /// Whether rounding could turn a comparison.
    pub edge: Vec<bool>,
    /// Whether the bar was not complete.
    pub provisional: Vec<bool>,
    /// Index into [`PanelChunk::reasons`].
    pub reason: Vec<u32>,
    /// Select columns; NaN for NA and for rows that do not match.
    pub values: Vec<Vec<f64>>,
}

/// One row of a panel.
#[derive(Debug, Clone, Copy)]
struct Cell {
    symbol: u32,
    point: u32,
    segment: u32,
    cell: usize,
    status: Status,
}

impl PanelChunk {
    /// Joins the panels of all segments; `None` if they do not have the scan's symbols.
    pub(crate) fn new(
        times: Vec<TimeMicros>,
        provisional: Vec<bool>,
        symbols: &Arc<Vec<String>>,
        segments: Vec<SegmentPanel>,
        spec: &Arc<MergeSpec>,
    ) -> Option<Self> {
        let mut found: Vec<(&str, (u32, u32))> = Vec::with_capacity(symbols.len());
        for (s, segment) in (0u32..).zip(&segments) {
            found.extend((0u32..).zip(&segment.symbols).map(|(at, symbol)| (&**symbol, (s, at))));
        }
        found.sort_unstable();
        if !found.iter().map(|(symbol, _)| *symbol).eq(symbols.iter().map(String::as_str)) {
            return None;
        }
        let places = found.into_iter().map(|(_, place)| place).collect();
        let mut reasons = vec![String::new()];
        let mut known: HashMap<String, u32> = HashMap::from([(String::new(), 0)]);
        let mut reason_of = Vec::with_capacity(segments.len());
        for segment in &segments {
            let index = |reason: &String| {
                *known.entry(reason.clone()).or_insert_with(|| {
                    reasons.push(reason.clone());
                    u32::try_from(reasons.len() - 1).unwrap_or(0)
                })
            };
            reason_of.push(segment.reasons.iter().map(index).collect());
        }
        let (symbols, spec) = (Arc::clone(symbols), Arc::clone(spec));
        Some(Self { times, provisional, symbols, reasons, spec, segments, reason_of, places })
    }

    /// Rows of one time.
    pub fn rows_of_a_time(&self) -> usize {
        self.symbols.len() * self.spec.points.len()
    }

    /// The rows of some of its times.
    pub fn rows(&self, times: Range<usize>) -> PanelRows {
        let columns = self.spec.select.len();
        let expected = times.len() * self.rows_of_a_time();
        let mut rows = PanelRows { values: vec![Vec::new(); columns], ..PanelRows::default() };
        rows.point.reserve(expected);
        rows.place.reserve(expected);
        rows.symbol.reserve(expected);
        rows.status.reserve(expected);
        rows.edge.reserve(expected);
        rows.provisional.reserve(expected);
        rows.reason.reserve(expected);
        rows.values.iter_mut().for_each(|column| column.reserve(expected));
        let mut order = Vec::new();
        for t in times {
            self.order(t, &mut order);
            // Column by column: each pass is a loop without branches over rows that are in cache.
            let cells = || order.iter().map(|(cell, _)| cell);
            let panel = |cell: &Cell| &self.segments[cell.segment as usize];
            rows.point.extend(cells().map(|c| c.point));
            rows.place.extend(order.iter().map(|(_, place)| place));
            rows.symbol.extend(cells().map(|c| c.symbol));
            rows.status.extend(cells().map(|c| c.status));
            rows.edge.extend(cells().map(|c| panel(c).edge[c.cell]));
            rows.provisional.extend(cells().map(|c| self.is_provisional(t, c.status)));
            let reason = |c: &Cell| self.reason_of[c.segment as usize][panel(c).reason[c.cell] as usize];
            rows.reason.extend(cells().map(reason));
            for (at, column) in rows.values.iter_mut().enumerate() {
                column.extend(cells().map(|c| panel(c).values[at][c.cell]));
            }
            rows.time.resize(rows.point.len(), self.times[t]);
        }
        rows
    }

    /// The rows of one time as those of an answer.
    pub fn answer_rows(&self, time: usize) -> Vec<AnswerRow> {
        let mut order = Vec::new();
        self.order(time, &mut order);
        let row = |(Cell { symbol, point, segment, cell, status }, place): (Cell, u32)| {
            let (panel, reason_of) = (&self.segments[segment as usize], &self.reason_of[segment as usize]);
            let matched = |columns: &[Vec<f64>]| match status {
                Status::Matched => columns.iter().map(|values| values[cell]).collect(),
                _ => Vec::new(),
            };
            let row = SymbolRow {
                point,
                symbol: self.symbols[symbol as usize].clone(),
                status,
                edge: panel.edge[cell],
                provisional: self.is_provisional(time, status),
                reason: self.reasons[reason_of[panel.reason[cell] as usize] as usize].clone(),
                rank: matched(&panel.rank),
                values: matched(&panel.values),
            };
            AnswerRow { place: (place > 0).then_some(place), row }
        };
        order.into_iter().map(row).collect()
    }

    /// A row without a bar, or without values, is final.
    fn is_provisional(&self, time: usize, status: Status) -> bool {
        self.provisional[time] && !matches!(status, Status::Stale | Status::Failed)
    }

    /// The rows of a time in the order of its answer, each with its rank among the matches: point by point (all points
    /// together where the best are kept), matches in rank order, then the others by symbol.
    fn order(&self, time: usize, order: &mut Vec<(Cell, u32)>) {
        order.clear();
        let points = u32::try_from(self.spec.points.len()).unwrap_or(u32::MAX);
        let most = self.spec.limit.unwrap_or(u32::MAX);
        let (mut matched, mut others) = (Vec::new(), Vec::new());
        let tables = if self.spec.best { 1 } else { points };
        for table in 0..tables {
            let of_symbol = if self.spec.best { 0..points } else { table..table + 1 };
            for (symbol, &(segment, at)) in (0u32..).zip(&self.places) {
                let panel = &self.segments[segment as usize];
                let first = panel.at(time).start + at as usize * panel.points;
                for point in of_symbol.clone() {
                    let cell = first + point as usize;
                    let Some(status) = panel.status[cell] else { continue };
                    let row = Cell { symbol, point, segment, cell, status };
                    if status == Status::Matched { matched.push(row) } else { others.push((row, 0)) }
                }
            }
            // Stable: rows of equal rank stay in the order of their symbols, and of points.
            matched.sort_by(|a, b| self.by_rank(a, b));
            order.extend((1u32..).zip(matched.drain(..)).map(|(n, row)| (row, if n <= most { n } else { 0 })));
            order.append(&mut others);
        }
    }

    /// The order of matches: key by key, NA last whichever the direction. Of 0 and -0 neither is first.
    fn by_rank(&self, a: &Cell, b: &Cell) -> Ordering {
        for (i, &descending) in self.spec.descending.iter().enumerate() {
            let key = |row: &Cell| self.segments[row.segment as usize].rank.get(i).map_or(f64::NAN, |k| k[row.cell]);
            let order = crate::merge::by_key(key(a), key(b), descending);
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }
}
