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
    /// The same by segment: the index of each of its symbols among all.
    symbol_of: Vec<Vec<u32>>,
    /// The same as stretches, for scans with several points.
    stretches: Vec<Stretch>,
    /// Whether every row has values.
    every: bool,
}

/// The cells of one time by symbol, of a scan with one point. Segments are read one after the other, as they are in memory:
/// symbols that follow each other are in different ones.
#[derive(Debug, Default)]
struct BySymbol {
    status: Vec<Option<Status>>,
    edge: Vec<bool>,
    /// The number of a match in its segment; for others the index into [`PanelChunk::reasons`].
    detail: Vec<u32>,
}

/// Symbols that follow each other both in the scan and in a segment.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// Index of the first one among all symbols.
    symbol: u32,
    segment: u32,
    /// Index of the first one in the segment.
    at: u32,
    symbols: u32,
}

/// Rows of a panel, by column, in the order of the answers, one time after the other.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct PanelRows {
    /// Starts of the bars, each with the number of rows up to and with its own.
    pub times: Vec<(TimeMicros, usize)>,
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
    /// Rows that have values, ascending: those that match, or all.
    pub valued: Vec<Range<usize>>,
    /// Select columns: a value for each of these rows, in their order; NaN for NA.
    pub values: Vec<Vec<f64>>,
}

/// A match.
#[derive(Debug, Clone, Copy)]
struct Match {
    symbol: u32,
    point: u32,
    segment: u32,
    /// Its number in the segment.
    number: usize,
    edge: bool,
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
        let places: Vec<(u32, u32)> = found.into_iter().map(|(_, place)| place).collect();
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
        let mut symbol_of: Vec<Vec<u32>> = segments.iter().map(|segment| vec![0; segment.symbols.len()]).collect();
        for (symbol, (segment, at)) in (0u32..).zip(&places) {
            symbol_of[*segment as usize][*at as usize] = symbol;
        }
        let stretches = stretches(&places);
        let every = segments.iter().any(|segment| !segment.every.is_empty());
        let (symbols, spec) = (Arc::clone(symbols), Arc::clone(spec));
        Some(Self {
            times,
            provisional,
            symbols,
            reasons,
            spec,
            segments,
            reason_of,
            places,
            symbol_of,
            stretches,
            every,
        })
    }

    /// Rows of one time.
    pub fn rows_of_a_time(&self) -> usize {
        self.symbols.len() * self.spec.points.len()
    }

    /// The rows of some of its times.
    pub fn rows(&self, times: Range<usize>) -> PanelRows {
        let expected = times.len() * self.rows_of_a_time();
        let column = || Vec::with_capacity(expected);
        let mut rows = PanelRows {
            times: Vec::with_capacity(times.len()),
            point: column(),
            place: column(),
            symbol: column(),
            status: Vec::with_capacity(expected),
            edge: Vec::with_capacity(expected),
            provisional: Vec::with_capacity(expected),
            reason: column(),
            valued: Vec::new(),
            values: vec![Vec::new(); self.spec.select.len()],
        };
        let (mut matches, mut by_symbol) = (Vec::new(), BySymbol::default());
        for t in times {
            let first = rows.symbol.len();
            self.push_time(t, &mut rows, (&mut matches, &mut by_symbol));
            if self.every {
                self.push_every(t, first, &mut rows);
            }
            rows.times.push((self.times[t], rows.symbol.len()));
        }
        rows
    }

    /// The rows of one time as those of an answer.
    pub fn answer_rows(&self, time: usize) -> Vec<AnswerRow> {
        let rows = self.rows(time..time + 1);
        let mut numbered = 0;
        let row = |i: usize| {
            let (symbol, point, status) = (rows.symbol[i], rows.point[i], rows.status[i]);
            let matched = status == Status::Matched;
            let valued = match status {
                Status::NotMatched | Status::Unknown => self.every,
                other => other == Status::Matched,
            };
            let number = if self.every { i } else { numbered };
            numbered += usize::from(matched);
            let (segment, at) = self.places[symbol as usize];
            let panel = &self.segments[segment as usize];
            let cell = panel.at(time).start + at as usize * panel.points + point as usize;
            let row = SymbolRow {
                point,
                symbol: self.symbols[symbol as usize].clone(),
                status,
                edge: rows.edge[i],
                provisional: rows.provisional[i],
                reason: self.reasons[rows.reason[i] as usize].clone(),
                rank: match matched {
                    true => panel.rank.iter().map(|keys| keys[panel.detail[cell] as usize]).collect(),
                    false => Vec::new(),
                },
                values: if valued { rows.values.iter().map(|column| column[number]).collect() } else { Vec::new() },
            };
            AnswerRow { place: (rows.place[i] > 0).then_some(rows.place[i]), row }
        };
        (0..rows.symbol.len()).map(row).collect()
    }

    /// Appends the rows of a time in the order of its answer: point by point (all points together where the best are
    /// kept), matches in rank order, then the others by symbol.
    fn push_time(&self, time: usize, rows: &mut PanelRows, (matches, cells): (&mut Vec<Match>, &mut BySymbol)) {
        let points = self.spec.points.len();
        let tables = if self.spec.best { 1 } else { points };
        for table in 0..tables {
            let of_symbol = if self.spec.best { 0..points } else { table..table + 1 };
            matches.clear();
            if points == 1 {
                self.gather(time, cells);
                self.matches_of(cells, matches);
            } else {
                for stretch in &self.stretches {
                    self.matches(time, *stretch, of_symbol.clone(), matches);
                }
            }
            // Stable: rows of equal rank stay in the order of their symbols, and of points.
            matches.sort_by(|a, b| self.by_rank(a, b));
            self.push_matches(matches, rows);
            if points == 1 {
                cells.push_others(rows);
            } else {
                for stretch in &self.stretches {
                    self.push_others(time, *stretch, of_symbol.clone(), rows);
                }
            }
            // No other row has a rank.
            rows.place.resize(rows.symbol.len(), 0);
        }
        // A row without a bar, or without values, is final.
        let from = rows.provisional.len();
        match self.provisional[time] {
            true => rows
                .provisional
                .extend(rows.status[from..].iter().map(|status| !matches!(status, Status::Stale | Status::Failed))),
            false => rows.provisional.resize(rows.status.len(), false),
        }
    }

    /// Takes the cells of a time from all segments.
    fn gather(&self, time: usize, cells: &mut BySymbol) {
        cells.status.resize(self.symbols.len(), None);
        cells.edge.resize(self.symbols.len(), false);
        cells.detail.resize(self.symbols.len(), 0);
        for ((panel, symbol_of), reason_of) in self.segments.iter().zip(&self.symbol_of).zip(&self.reason_of) {
            let own = panel.at(time);
            let found = panel.status[own.clone()].iter().zip(&panel.edge[own.clone()]).zip(&panel.detail[own]);
            for (symbol, ((status, edge), detail)) in symbol_of.iter().zip(found) {
                let symbol = *symbol as usize;
                (cells.status[symbol], cells.edge[symbol]) = (*status, *edge);
                cells.detail[symbol] = match status {
                    Some(Status::Matched) => *detail,
                    _ => reason_of[*detail as usize],
                };
            }
        }
    }

    /// Appends the matches of the cells of a time, by symbol.
    fn matches_of(&self, cells: &BySymbol, matches: &mut Vec<Match>) {
        let matched = (0u32..).zip(&cells.status).filter(|(_, status)| **status == Some(Status::Matched));
        matches.extend(matched.map(|(symbol, _)| {
            let at = symbol as usize;
            let (segment, number) = (self.places[at].0, cells.detail[at] as usize);
            Match { symbol, point: 0, segment, number, edge: cells.edge[at] }
        }));
    }

    /// Appends the matches of a stretch, by symbol and point.
    fn matches(&self, time: usize, stretch: Stretch, points: Range<usize>, matches: &mut Vec<Match>) {
        let panel = &self.segments[stretch.segment as usize];
        let first = panel.at(time).start + stretch.at as usize * panel.points;
        let status = &panel.status[first..first + stretch.symbols as usize * panel.points];
        // Most stretches have none; this loop has no branch.
        if !status.iter().fold(false, |any, status| any | (*status == Some(Status::Matched))) {
            return;
        }
        let of_symbols = status.chunks_exact(panel.points);
        for (i, of_symbol) in (0u32..).zip(of_symbols) {
            for (point, status) in (0u32..).zip(of_symbol).take(points.end).skip(points.start) {
                if *status == Some(Status::Matched) {
                    let cell = first + i as usize * panel.points + point as usize;
                    let number = panel.detail[cell] as usize;
                    let (symbol, segment) = (stretch.symbol + i, stretch.segment);
                    matches.push(Match { symbol, point, segment, number, edge: panel.edge[cell] });
                }
            }
        }
    }

    /// Appends matches, in rank order.
    fn push_matches(&self, matches: &[Match], rows: &mut PanelRows) {
        let most = self.spec.limit.unwrap_or(u32::MAX);
        rows.point.extend(matches.iter().map(|m| m.point));
        rows.place.extend((1u32..).zip(matches).map(|(n, _)| if n <= most { n } else { 0 }));
        rows.symbol.extend(matches.iter().map(|m| m.symbol));
        rows.status.resize(rows.symbol.len(), Status::Matched);
        rows.edge.extend(matches.iter().map(|m| m.edge));
        // A match has no reason.
        rows.reason.resize(rows.symbol.len(), 0);
        if self.every {
            return;
        }
        rows.valued.push(rows.symbol.len() - matches.len()..rows.symbol.len());
        for (at, column) in rows.values.iter_mut().enumerate() {
            column.extend(matches.iter().map(|m| self.segments[m.segment as usize].values[at][m.number]));
        }
    }

    /// Appends the values of the rows of a time, from number `first` on.
    fn push_every(&self, time: usize, first: usize, rows: &mut PanelRows) {
        rows.valued.push(first..rows.symbol.len());
        for i in first..rows.symbol.len() {
            let (segment, at) = self.places[rows.symbol[i] as usize];
            let panel = &self.segments[segment as usize];
            let cell = panel.at(time).start + at as usize * panel.points + rows.point[i] as usize;
            for (number, column) in rows.values.iter_mut().enumerate() {
                // A segment that failed has none.
                column.push(panel.every.get(number).map_or(f64::NAN, |values| values[cell]));
            }
        }
    }

    /// Appends the rows of a stretch that do not match: all but `place` and `provisional`.
    fn push_others(&self, time: usize, stretch: Stretch, points: Range<usize>, rows: &mut PanelRows) {
        let panel = &self.segments[stretch.segment as usize];
        let reason_of = self.reason_of[stretch.segment as usize].as_slice();
        let first = panel.at(time).start + stretch.at as usize * panel.points;
        let cells = first..first + stretch.symbols as usize * panel.points;
        let (status, edge) = (&panel.status[cells.clone()], &panel.edge[cells.clone()]);
        let reason = &panel.detail[cells];
        let mut at = 0;
        for symbol in stretch.symbol..stretch.symbol + stretch.symbols {
            for point in points.clone() {
                let cell = at + point;
                let Some(of_row) = status[cell].filter(|status| *status != Status::Matched) else { continue };
                rows.point.push(u32::try_from(point).unwrap_or(u32::MAX));
                rows.symbol.push(symbol);
                rows.status.push(of_row);
                rows.edge.push(edge[cell]);
                rows.reason.push(reason_of[reason[cell] as usize]);
            }
            at += panel.points;
        }
    }

    /// The order of matches: key by key, NA last whichever the direction. Of 0 and -0 neither is first.
    fn by_rank(&self, a: &Match, b: &Match) -> Ordering {
        for (i, &descending) in self.spec.descending.iter().enumerate() {
            let key = |row: &Match| self.segments[row.segment as usize].rank.get(i).map_or(f64::NAN, |k| k[row.number]);
            let order = crate::merge::by_key(key(a), key(b), descending);
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }
}

impl BySymbol {
    /// Appends the rows that do not match: all but `place` and `provisional`.
    fn push_others(&self, rows: &mut PanelRows) {
        let mut from = 0;
        while from < self.status.len() {
            let other = |status: &Option<Status>| status.is_some_and(|status| status != Status::Matched);
            let Some(first) = self.status[from..].iter().position(other) else { return };
            let run = &self.status[from + first..];
            let run = &run[..run.iter().position(|status| !other(status)).unwrap_or(run.len())];
            let own = from + first..from + first + run.len();
            rows.point.resize(rows.point.len() + run.len(), 0);
            // There are fewer symbols than 2^32: their indices are of 32 bits.
            rows.symbol.extend(own.start as u32..own.end as u32);
            rows.status.extend(run.iter().map(|status| status.unwrap_or(Status::Failed)));
            rows.edge.extend_from_slice(&self.edge[own.clone()]);
            rows.reason.extend_from_slice(&self.detail[own.clone()]);
            from = own.end;
        }
    }
}

/// Cuts symbols into stretches.
fn stretches(places: &[(u32, u32)]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (symbol, &(segment, at)) in (0u32..).zip(places) {
        match stretches.last_mut() {
            Some(last) if last.segment == segment && last.at + last.symbols == at => last.symbols += 1,
            _ => stretches.push(Stretch { symbol, segment, at, symbols: 1 }),
        }
    }
    stretches
}
