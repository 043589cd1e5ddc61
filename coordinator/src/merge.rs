//! Segments' results into one answer: every symbol exactly once, matches in rank order, all others by symbol.
//!
//! Pure. The answer does not depend on the order of arrival, the number of shards, or which worker computed what.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use trawl_wire::digest::{AnswerHead, AnswerSegment, tree_digest};
use trawl_wire::{
    Answer, AnswerRow, Columns, EnvelopeError, ErrorKind, RowView, SegmentOutput, SegmentResult, SegmentResultV2,
    Status,
};

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
/// result takes precedence over a failure. `partial` as in the answer's identity.
///
/// # Errors
/// None for results that were checked, as all are that come from [`SegmentResult::of`] or an envelope.
pub fn merge(
    prepared: &PreparedScan,
    results: Vec<SegmentResult>,
    failures: Vec<FailedSegment>,
    partial: bool,
) -> Result<Answer, EnvelopeError> {
    let mut answered: BTreeMap<u32, SegmentResult> = BTreeMap::new();
    for result in results {
        answered.entry(result.segment()).or_insert(result);
    }
    let mut failures: BTreeMap<u32, FailedSegment> = failures.into_iter().map(|f| (f.segment, f)).collect();
    let (mut kept, mut failed) = (BTreeMap::new(), Vec::new());
    for &segment in prepared.segments.iter() {
        let (kind, message) = match (answered.remove(&segment), failures.remove(&segment)) {
            (Some(result), _) => match prepared.rows_of(result) {
                Ok(columns) => {
                    kept.insert(segment, columns);
                    continue;
                }
                Err(message) => (ErrorKind::Permanent, message),
            },
            (None, Some(failure)) => (failure.kind, failure.message),
            (None, None) => (ErrorKind::Permanent, format!("segment {segment} has no result")),
        };
        failed.push(FailedSegment { segment, symbols: prepared.symbols_of(segment), kind, message });
    }
    let mut spec = prepared.merge_spec();
    spec.identity.partial = partial;
    answer_of(&spec, &kept, &failed)
}

/// As [`merge`], from a header only, as available to a client.
///
/// # Errors
/// Results whose rows are not well-formed.
pub fn merge_results(
    spec: &MergeSpec,
    results: Vec<SegmentResultV2>,
    failures: Vec<FailedSegment>,
) -> Result<Answer, EnvelopeError> {
    let mut columns = BTreeMap::new();
    for SegmentResultV2 { segment, output } in results {
        if let SegmentOutput::Rows(rows) = output {
            columns.insert(segment, Columns::of_rows(segment, &rows)?);
        }
    }
    answer_of(spec, &columns, &failures)
}

/// The digest of an answer, from those of its segments' columns. A result takes precedence over a failure.
pub(crate) fn digest_of(
    spec: &MergeSpec,
    results: impl Iterator<Item = (u32, [u8; 32])>,
    failures: &[FailedSegment],
) -> String {
    let mut segments: BTreeMap<u32, AnswerSegment<'_>> = BTreeMap::new();
    for FailedSegment { segment, symbols, message, .. } in failures {
        segments.insert(*segment, AnswerSegment::Failed { reason: message, symbols });
    }
    segments.extend(results.map(|(segment, digest)| (segment, AnswerSegment::Result(digest))));
    let head = AnswerHead {
        identity: &spec.identity,
        select: &spec.select,
        points: &spec.points,
        best: spec.best,
        descending: &spec.descending,
        limit: spec.limit,
    };
    tree_digest(&head, segments.into_iter())
}

/// Number of rows with status `failed` of a segment without a result; a symbol counts once per point.
pub(crate) fn failed_count(failed: &FailedSegment, spec: &MergeSpec) -> u64 {
    u64::from(points_of(spec)).saturating_mul(failed.symbols.len() as u64)
}

/// Number of points at which a symbol that failed has a row: where the best are kept the first alone.
fn points_of(spec: &MergeSpec) -> u32 {
    if spec.best { 1 } else { u32::try_from(spec.points.len()).unwrap_or(u32::MAX) }
}

/// The answer made of the results of segments; each segment of the scan is in `results` or in `failures`.
///
/// # Errors
/// None for columns that were checked.
pub(crate) fn answer_of(
    spec: &MergeSpec,
    results: &BTreeMap<u32, Columns>,
    failures: &[FailedSegment],
) -> Result<Answer, EnvelopeError> {
    let digests = results.iter().map(|(segment, columns)| (*segment, columns.digest()));
    let digest = digest_of(spec, digests, failures);
    let rows = all_rows(spec, results, failures)?;
    let mut ordered = Vec::with_capacity(rows.len());
    ordered.extend(places(&rows, spec).map(|(row, place)| AnswerRow { place, row: row.to_row() }));
    Ok(Answer {
        identity: spec.identity.clone(),
        time: spec.time,
        bar: spec.bar,
        select: spec.select.clone(),
        kinds: spec.kinds.clone(),
        points: spec.points.clone(),
        best: spec.best,
        rows: ordered,
        digest,
    })
}

/// The rows of all segments, in their order, then those of the failed ones.
fn all_rows<'a>(
    spec: &MergeSpec,
    results: &'a BTreeMap<u32, Columns>,
    failures: &'a [FailedSegment],
) -> Result<Vec<RowView<'a>>, EnvelopeError> {
    let views = results.values().map(Columns::view).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::with_capacity(views.iter().map(trawl_wire::columns::View::len).sum());
    views.iter().for_each(|view| rows.extend(view.rows()));
    let failed = failures.iter().filter(|failure| !results.contains_key(&failure.segment));
    rows.extend(failed.flat_map(|failure| failed_rows(failure, spec)));
    Ok(rows)
}

/// The rows of a segment without a result: at every point, or where the best are kept at the first.
pub(crate) fn failed_rows<'a>(
    failed: &'a FailedSegment,
    spec: &MergeSpec,
) -> impl Iterator<Item = RowView<'a>> + use<'a> {
    let row =
        move |point: u32| failed.symbols.iter().map(move |symbol| RowView::failed(point, symbol, &failed.message));
    (0..points_of(spec)).flat_map(row)
}

/// A row to be ordered.
struct Entry<'a> {
    /// Its first rank key as a number that ascends in the order of the answer; stored inline so that most comparisons need no other
    /// memory access.
    key: u64,
    /// The beginning of its symbol, for the same reason.
    prefix: u64,
    row: &'a RowView<'a>,
}

impl Entry<'_> {
    fn by_symbol(&self, other: &Self) -> Ordering {
        let by_text = || self.row.symbol.cmp(other.row.symbol);
        self.prefix.cmp(&other.prefix).then_with(by_text).then(self.row.point.cmp(&other.row.point))
    }

    /// The order of matches: key by key, NA last whichever the direction, ties by symbol.
    fn by_rank(&self, other: &Self, descending: &[bool]) -> Ordering {
        let mut order = self.key.cmp(&other.key);
        for (i, &descending) in descending.iter().enumerate().skip(1) {
            order = order.then_with(|| by_key(self.row.rank(i), other.row.rank(i), descending));
        }
        order.then_with(|| self.by_symbol(other))
    }
}

/// The first bytes of a text, as a number in the order of the texts.
fn prefix_of(text: &str) -> u64 {
    let mut first = [0; 8];
    let bytes = text.len().min(first.len());
    first[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
    u64::from_be_bytes(first)
}

/// A rank key as a number: the numbers ascend where the keys are in the order of [`by_key`], and are equal where they are.
fn place_of_key(key: f64, descending: bool) -> u64 {
    const SIGN: u64 = 1 << 63;
    if key.is_nan() {
        return u64::MAX;
    }
    // -0 and 0 become the same number.
    let bits = (key + 0.0).to_bits();
    let ascending = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    if descending { !ascending } else { ascending }
}

/// The rows in the order of the answer with their ranks: by table, matches before others. Rows that are equal in all that orders them
/// keep their order.
fn places<'a>(rows: &'a [RowView<'a>], spec: &MergeSpec) -> impl Iterator<Item = (&'a RowView<'a>, Option<u32>)> {
    let mut parts: BTreeMap<(u32, bool), Vec<Entry<'a>>> = BTreeMap::new();
    let first = spec.descending.first();
    for row in rows {
        let table = if spec.best { 0 } else { row.point };
        let others = row.status != Status::Matched;
        let key = first.filter(|_| !others).map_or(0, |descending| place_of_key(row.rank(0), *descending));
        parts.entry((table, others)).or_default().push(Entry { key, prefix: prefix_of(row.symbol), row });
    }
    for ((_, others), part) in &mut parts {
        match others {
            true => part.sort_by(Entry::by_symbol),
            false => part.sort_by(|a, b| a.by_rank(b, &spec.descending)),
        }
    }
    let most = spec.limit.unwrap_or(u32::MAX);
    parts.into_iter().flat_map(move |((_, others), part)| {
        let place = move |n: u32| (!others && n <= most).then_some(n);
        (1u32..).zip(part).map(move |(n, entry)| (entry.row, place(n)))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trawl_wire::{Identity, SymbolRow, answer_digest};

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
            time: None,
            bar: None,
            points: vec![Vec::new()],
            best: false,
            select: vec!["close".to_owned()],
            kinds: Vec::new(),
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
    fn the_number_of_a_key_orders_as_the_key_does() {
        let keys = [f64::NEG_INFINITY, -2.5, -f64::MIN_POSITIVE, -0.0, 0.0, 5e-324, 1.0, 1.5, f64::INFINITY, f64::NAN];
        for descending in [false, true] {
            for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (*a, *b))) {
                let numbers = place_of_key(a, descending).cmp(&place_of_key(b, descending));
                assert_eq!(numbers, by_key(a, b, descending), "{a} {b} {descending}");
            }
        }
    }

    #[test]
    fn na_comes_last_in_either_direction_and_ties_go_by_symbol() {
        let rows = vec![
            matched("A", &[0.0, 1.0]),
            matched("B", &[-0.0, 1.0]),
            matched("C", &[2.0, 1.0]),
            matched("D", &[2.0, f64::NAN]),
            matched("E", &[f64::NAN, 0.0]),
        ];
        let result = SegmentResultV2 { segment: 0, output: SegmentOutput::Rows(rows) };
        let places = |descending: &[bool]| {
            let answer = merge_results(&spec(descending, Some(4)), vec![result.clone()], Vec::new()).unwrap();
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
        let answer = merge_results(&spec(&[], None), vec![result], vec![failure]).unwrap();
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
        let answer = merge_results(&spec(&[true], Some(1)), vec![result], Vec::new()).unwrap();
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

    #[test]
    fn the_tree_sees_the_head_each_segment_and_each_failure() {
        let results = |value: f64| {
            let row = |symbol: &str| SymbolRow { values: vec![value], ..matched(symbol, &[1.0]) };
            let of = |segment, symbol: &str| {
                let output = SegmentOutput::Rows(vec![row(symbol)]);
                SegmentResultV2 { segment, output }
            };
            vec![of(0, "A"), of(4, "B")]
        };
        let failed = |segment, message: &str, symbol: &str| FailedSegment {
            segment,
            symbols: vec![symbol.to_owned()],
            kind: ErrorKind::Permanent,
            message: message.to_owned(),
        };
        let with = |spec: &MergeSpec, value, failures: Vec<FailedSegment>| {
            merge_results(spec, results(value), failures).unwrap().digest
        };
        let usual = spec(&[true], Some(1));
        let first = with(&usual, 1.0, vec![failed(2, "why", "C")]);
        let mut partial = usual.clone();
        partial.identity.partial = true;
        let mut digests = vec![
            first.clone(),
            with(&usual, 2.0, vec![failed(2, "why", "C")]),
            with(&usual, 1.0, vec![failed(3, "why", "C")]),
            with(&usual, 1.0, vec![failed(2, "other", "C")]),
            with(&usual, 1.0, vec![failed(2, "why", "D")]),
            with(&usual, 1.0, vec![]),
            with(&spec(&[true], Some(2)), 1.0, vec![failed(2, "why", "C")]),
            with(&spec(&[true], None), 1.0, vec![failed(2, "why", "C")]),
            with(&spec(&[false], Some(1)), 1.0, vec![failed(2, "why", "C")]),
            with(&partial, 1.0, vec![failed(2, "why", "C")]),
        ];
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);
        // What kind of failure it was is not shown; and a result takes precedence.
        let invalid = FailedSegment { kind: ErrorKind::Invalid, ..failed(2, "why", "C") };
        assert_eq!(with(&usual, 1.0, vec![invalid, failed(4, "why", "B")]), first);
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
            let answer = merge_results(&spec, results.clone(), Vec::new()).unwrap();
            let before = (answer_digest(&answer), answer.digest);
            let turn = rotate % results.len();
            results.rotate_left(turn);
            results.reverse();
            let again = merge_results(&spec, results, Vec::new()).unwrap();
            prop_assert_eq!(before, (answer_digest(&again), again.digest));
        }
    }
}
