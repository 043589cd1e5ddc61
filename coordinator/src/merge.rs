//! Segments' results into one answer: every symbol exactly once, matches in rank order, all others by symbol.
//!
//! Pure. The answer does not depend on the order of arrival, the number of shards, or which worker computed what.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use trawl_wire::digest::{AnswerHead, digest_of_rows};
use trawl_wire::{Answer, AnswerRow, ErrorKind, SegmentOutput, SegmentResultV2, Status, SymbolRow};

use crate::merge_spec::MergeSpec;
use crate::prepare::PreparedScan;

/// A segment without a result: each of its symbols fails with the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedSegment {
    /// The segment.
    pub segment: u32,
    /// Its symbols.
    pub symbols: Vec<String>,
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Why; enters the answer.
    pub message: String,
}

/// Merges the results of a scan's segments. Each segment of the scan should be in `results` or in `failures`; one that
/// is in neither, or whose result is not about its symbols, fails. Of two results for a segment the first counts, and a
/// result takes precedence over a failure.
pub fn merge(prepared: &PreparedScan, results: Vec<SegmentResultV2>, failures: Vec<FailedSegment>) -> Answer {
    let mut answered: BTreeMap<u32, SegmentResultV2> = BTreeMap::new();
    for result in results {
        answered.entry(result.segment).or_insert(result);
    }
    let mut failures: BTreeMap<u32, FailedSegment> = failures.into_iter().map(|f| (f.segment, f)).collect();
    let (mut kept, mut failed) = (Vec::new(), Vec::new());
    for &segment in prepared.segments.iter() {
        let (kind, message) = match (answered.remove(&segment), failures.remove(&segment)) {
            (Some(result), _) => match prepared.check_result(&result) {
                Ok(()) => {
                    kept.push(result);
                    continue;
                }
                Err(message) => (ErrorKind::Permanent, message),
            },
            (None, Some(failure)) => (failure.kind, failure.message),
            (None, None) => (ErrorKind::Permanent, format!("segment {segment} has no result")),
        };
        failed.push(FailedSegment { segment, symbols: prepared.symbols_of(segment), kind, message });
    }
    merge_results(&prepared.merge_spec(), kept, failed)
}

/// As [`merge`], from a header only, as available to a client.
pub fn merge_results(spec: &MergeSpec, results: Vec<SegmentResultV2>, failures: Vec<FailedSegment>) -> Answer {
    let parts: Vec<Vec<SymbolRow>> = results.into_iter().map(rows_in).collect();
    // Of the right size: a vector that grows to a sweep's rows touches several times their memory.
    let mut rows = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    parts.into_iter().for_each(|part| rows.extend(part));
    rows.extend(failures.iter().flat_map(|failure| failed_rows(failure, spec)));
    answer_of(spec, place_rows(rows, spec))
}

fn answer_of(spec: &MergeSpec, rows: Vec<AnswerRow>) -> Answer {
    Answer {
        identity: spec.identity.clone(),
        select: spec.select.clone(),
        points: spec.points.clone(),
        best: spec.best,
        rows,
    }
}

fn rows_in(result: SegmentResultV2) -> Vec<SymbolRow> {
    match result.output {
        SegmentOutput::Rows(rows) => rows,
        SegmentOutput::Times(_) | SegmentOutput::Values(_) => Vec::new(),
    }
}

/// The outcome of [`merge_results`] without moving the results: the digest, and the position of each row.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Digest of the answer.
    pub digest: String,
    /// Number of rows with status `failed`; a symbol counts once per point.
    pub failed: u64,
    order: Vec<RowPlace>,
}

impl Placed {
    /// Places the rows of results, which are given by segment.
    pub fn of(spec: &MergeSpec, results: &BTreeMap<u32, SegmentResultV2>, failures: &[FailedSegment]) -> Self {
        let failed: Vec<SymbolRow> = failures.iter().flat_map(|failure| failed_rows(failure, spec)).collect();
        let given = results.values().flat_map(|result| match &result.output {
            SegmentOutput::Rows(rows) => &rows[..],
            SegmentOutput::Times(_) | SegmentOutput::Values(_) => &[],
        });
        let rows: Vec<&SymbolRow> = given.chain(&failed).collect();
        let order = places(&rows, spec);
        let head = AnswerHead { identity: &spec.identity, select: &spec.select, points: &spec.points, best: spec.best };
        let digest = digest_of_rows(&head, order.iter().filter_map(|p| Some((p.place, *rows.get(p.at)?))));
        let failed = rows.iter().filter(|row| row.status == Status::Failed).count() as u64;
        Self { digest, failed, order }
    }

    /// The answer; `results` and `failures` as given to [`Self::of`].
    pub fn into_answer(
        self,
        spec: &MergeSpec,
        results: BTreeMap<u32, SegmentResultV2>,
        failures: &[FailedSegment],
    ) -> Answer {
        let failed = failures.iter().flat_map(|failure| failed_rows(failure, spec));
        let rows = results.into_values().flat_map(rows_in).chain(failed).collect();
        answer_of(spec, in_order(rows, self.order))
    }
}

/// The rows of a segment without a result: at every point, or where the best are kept at the first.
pub(crate) fn failed_rows<'a>(
    failed: &'a FailedSegment,
    spec: &MergeSpec,
) -> impl Iterator<Item = SymbolRow> + use<'a> {
    let points = if spec.best { 1 } else { u32::try_from(spec.points.len()).unwrap_or(u32::MAX) };
    let row = move |(point, symbol): (u32, &'a String)| SymbolRow {
        point,
        symbol: symbol.clone(),
        status: Status::Failed,
        edge: false,
        provisional: false,
        reason: failed.message.clone(),
        rank: Vec::new(),
        values: Vec::new(),
    };
    (0..points).flat_map(|point| failed.symbols.iter().map(move |symbol| (point, symbol))).map(row)
}

/// Orders the rows of an answer and ranks the matches of each point, or all matches together if only the best points
/// are kept.
pub(crate) fn place_rows(rows: Vec<SymbolRow>, spec: &MergeSpec) -> Vec<AnswerRow> {
    let order = places(&rows.iter().collect::<Vec<_>>(), spec);
    in_order(rows, order)
}

fn in_order(rows: Vec<SymbolRow>, order: Vec<RowPlace>) -> Vec<AnswerRow> {
    let mut rows: Vec<Option<SymbolRow>> = rows.into_iter().map(Some).collect();
    let placed = |RowPlace { at, place }| Some(AnswerRow { place, row: rows.get_mut(at)?.take()? });
    let mut answer = Vec::with_capacity(order.len());
    answer.extend(order.into_iter().filter_map(placed));
    answer
}

/// The index of a row in the input, and its rank among the matches.
#[derive(Debug, Clone, Copy)]
struct RowPlace {
    at: usize,
    place: Option<u32>,
}

/// A row to be ordered.
struct Entry<'a> {
    at: usize,
    /// Its first rank key, stored inline so that most comparisons need no other memory access.
    key: f64,
    row: &'a SymbolRow,
}

/// The order of the rows: by table, matches before others.
fn places(rows: &[&SymbolRow], spec: &MergeSpec) -> Vec<RowPlace> {
    let mut parts: BTreeMap<(u32, bool), Vec<Entry<'_>>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        let table = if spec.best { 0 } else { row.point };
        let key = row.rank.first().copied().unwrap_or(f64::NAN);
        parts.entry((table, row.status != Status::Matched)).or_default().push(Entry { at, key, row });
    }
    let most = spec.limit.unwrap_or(u32::MAX);
    let mut order = Vec::with_capacity(rows.len());
    for ((_, others), mut part) in parts {
        if others {
            part.sort_by(|a, b| a.row.symbol.cmp(&b.row.symbol).then(a.row.point.cmp(&b.row.point)));
            order.extend(part.iter().map(|entry| RowPlace { at: entry.at, place: None }));
        } else {
            part.sort_by(|a, b| by_rank(a, b, &spec.descending).then(a.row.point.cmp(&b.row.point)));
            let placed = (1u32..).zip(&part);
            order.extend(placed.map(|(n, entry)| RowPlace { at: entry.at, place: (n <= most).then_some(n) }));
        }
    }
    order
}

/// The order of two values of a rank key: NA last whichever the direction; 0 and -0 are equal.
pub(crate) fn by_key(x: f64, y: f64, descending: bool) -> Ordering {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        // Neither is NaN.
        (false, false) if descending => y.partial_cmp(&x).unwrap_or(Ordering::Equal),
        (false, false) => x.partial_cmp(&y).unwrap_or(Ordering::Equal),
    }
}

/// The order of matches: key by key, NA last whichever the direction, ties by symbol.
fn by_rank(a: &Entry<'_>, b: &Entry<'_>, descending: &[bool]) -> Ordering {
    for (i, &descending) in descending.iter().enumerate() {
        let key = |entry: &Entry<'_>| match i {
            0 => entry.key,
            _ => entry.row.rank.get(i).copied().unwrap_or(f64::NAN),
        };
        let order = by_key(key(a), key(b), descending);
        if order.is_ne() {
            return order;
        }
    }
    a.row.symbol.cmp(&b.row.symbol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trawl_wire::{Identity, answer_digest};

    fn spec(descending: &[bool], limit: Option<u32>) -> MergeSpec {
        let text = || "x".to_owned();
        let identity = Identity {
            plan: text(),
            dataset: text(),
            snapshot: text(),
            as_of: text(),
            engine: text(),
            numerics: text(),
            backend: text(),
            precision: text(),
            adjustment: text(),
            partial: false,
        };
        MergeSpec {
            identity,
            points: vec![Vec::new()],
            best: false,
            select: vec!["close".to_owned()],
            descending: descending.to_vec(),
            limit,
        }
    }

    fn matched(symbol: &str, rank: &[f64]) -> SymbolRow {
        SymbolRow {
            point: 0,
            edge: false,
            provisional: false,
            symbol: symbol.to_owned(),
            status: Status::Matched,
            reason: String::new(),
            rank: rank.to_vec(),
            values: vec![1.0],
        }
    }

    fn order(answer: &Answer) -> Vec<(&str, Option<u32>)> {
        answer.rows.iter().map(|r| (r.row.symbol.as_str(), r.place)).collect()
    }

    #[test]
    fn na_comes_last_in_either_direction_and_ties_go_by_symbol() {
        let rows = vec![
            matched("E", &[f64::NAN, 0.0]),
            matched("D", &[2.0, f64::NAN]),
            matched("C", &[2.0, 1.0]),
            matched("B", &[-0.0, 1.0]),
            matched("A", &[0.0, 1.0]),
        ];
        let result = SegmentResultV2 { segment: 0, output: SegmentOutput::Rows(rows) };
        let places = |descending: &[bool]| {
            let answer = merge_results(&spec(descending, Some(4)), vec![result.clone()], Vec::new());
            order(&answer).into_iter().map(|(s, p)| format!("{s}{}", p.unwrap_or(0))).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(places(&[true, true]), "C1 D2 A3 B4 E0");
        assert_eq!(places(&[false, false]), "A1 B2 C3 D4 E0");
        assert_eq!(places(&[]), "A1 B2 C3 D4 E0");
    }

    #[test]
    fn matches_come_first_then_all_others_by_symbol_with_failed_ones_among_them() {
        let mut stale = matched("B", &[]);
        (stale.status, stale.reason, stale.values) = (Status::Stale, "no bars".to_owned(), Vec::new());
        let result = SegmentResultV2 { segment: 0, output: SegmentOutput::Rows(vec![stale, matched("Z", &[])]) };
        let failure = FailedSegment {
            segment: 1,
            symbols: vec!["A".to_owned(), "C".to_owned()],
            kind: ErrorKind::Permanent,
            message: "checksum".to_owned(),
        };
        let answer = merge_results(&spec(&[], None), vec![result], vec![failure]);
        assert_eq!(order(&answer), [("Z", Some(1)), ("A", None), ("B", None), ("C", None)]);
        assert_eq!(answer.counts(), [2, 1, 0, 0, 1, 0]);
        assert_eq!(answer.rows[1].row.reason, "checksum");
    }

    #[test]
    fn the_digest_sees_every_field() {
        let result = SegmentResultV2 {
            segment: 0,
            output: SegmentOutput::Rows(vec![matched("A", &[1.0]), matched("B", &[2.0])]),
        };
        let answer = merge_results(&spec(&[true], Some(1)), vec![result], Vec::new());
        let changes: [fn(&mut Answer); 9] = [
            |a| a.identity.as_of.push('x'),
            |a| a.identity.precision = "f32".to_owned(),
            |a| a.select[0].push('x'),
            |a| a.rows[1].place = Some(2),
            |a| a.rows.swap(0, 1),
            |a| a.rows[0].row.values[0] = -1.0,
            |a| a.rows[0].row.rank[0] = f64::NAN,
            |a| a.rows[0].row.status = Status::NotMatched,
            |a| a.rows[0].row.reason.push('x'),
        ];
        let mut digests = vec![answer_digest(&answer)];
        for change in changes {
            let mut changed = answer.clone();
            change(&mut changed);
            digests.push(answer_digest(&changed));
        }
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }

    proptest! {
        #[test]
        fn the_answer_does_not_depend_on_the_order_of_arrival(
            keys in proptest::collection::vec((0u8..4, 0u8..3), 1..40),
            cuts in 1usize..6,
            rotate in 0usize..6,
        ) {
            let rows: Vec<SymbolRow> = keys.iter().enumerate().map(|(i, (a, b))| {
                let key = |k: u8| if k == 0 { f64::NAN } else { f64::from(k) };
                matched(&format!("S{i:03}"), &[key(*a), key(*b)])
            }).collect();
            let mut results: Vec<SegmentResultV2> = rows
                .chunks(rows.len().div_ceil(cuts))
                .enumerate()
                .map(|(segment, rows)| SegmentResultV2 { segment: segment as u32, output: SegmentOutput::Rows(rows.to_vec()) })
                .collect();
            let spec = spec(&[true, false], Some(3));
            let before = answer_digest(&merge_results(&spec, results.clone(), Vec::new()));
            let by_segment: BTreeMap<u32, SegmentResultV2> = results.iter().map(|r| (r.segment, r.clone())).collect();
            let placed = Placed::of(&spec, &by_segment, &[]);
            prop_assert_eq!(&placed.digest, &before);
            prop_assert_eq!(answer_digest(&placed.into_answer(&spec, by_segment, &[])), before.clone());
            let turn = rotate % results.len();
            results.rotate_left(turn);
            results.reverse();
            prop_assert_eq!(before, answer_digest(&merge_results(&spec, results, Vec::new())));
        }
    }
}
