//! Digests of results and answers: SHA-256 over an explicit encoding of every field, never over memory or an archive.
//!
//! Integers are little-endian, texts and lists are preceded by their length as u64, numbers are their IEEE 754 bits
//! with every NaN written as the one canonical NaN. A digest changes exactly when a field changes.

use sha2::{Digest, Sha256};
use trawl_plan::Setting;

use crate::result::{Answer, AnswerRow, Identity, SegmentOutput, SegmentResultV2, SymbolRow};

/// Size of the buffer in front of the hash, which is fast with blocks, not with single numbers.
const WAITING_BYTES: usize = 8 << 10;

/// Encodes fields into a hash.
struct Fields {
    hash: Sha256,
    waiting: Vec<u8>,
}

impl Fields {
    /// `domain` keeps digests of different types apart.
    fn new(domain: &str) -> Self {
        let mut fields = Self { hash: Sha256::new(), waiting: Vec::with_capacity(WAITING_BYTES) };
        fields.text(domain);
        fields
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if self.waiting.len() + bytes.len() > WAITING_BYTES {
            self.hash.update(&self.waiting);
            self.waiting.clear();
        }
        if bytes.len() > WAITING_BYTES {
            self.hash.update(bytes);
        } else {
            self.waiting.extend_from_slice(bytes);
        }
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    fn numbers(&mut self, numbers: &[f64]) {
        self.u64(numbers.len() as u64);
        for number in numbers {
            let bits = if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
            self.u64(bits);
        }
    }

    fn row(&mut self, row: &SymbolRow) {
        self.u64(u64::from(row.point));
        self.text(&row.symbol);
        self.u64(row.status as u64);
        self.u64(u64::from(row.edge) + 2 * u64::from(row.provisional));
        self.text(&row.reason);
        self.numbers(&row.rank);
        self.numbers(&row.values);
    }

    /// What an answer says beside its rows.
    fn head(&mut self, id: &Identity, select: &[String], points: &[Vec<(String, Setting)>], best: bool) {
        let identity = [
            &id.plan,
            &id.dataset,
            &id.snapshot,
            &id.as_of,
            &id.engine,
            &id.numerics,
            &id.backend,
            &id.precision,
            &id.adjustment,
        ];
        identity.into_iter().for_each(|text| self.text(text));
        if id.partial {
            self.text("partial");
        }
        self.u64(select.len() as u64);
        select.iter().for_each(|name| self.text(name));
        self.u64(points.len() as u64);
        for settings in points {
            self.u64(settings.len() as u64);
            for (name, value) in settings {
                self.text(name);
                match value {
                    Setting::Number(value) => self.numbers(&[*value]),
                    Setting::Text(text) => {
                        // A marker: numbers of a sweep are never NaN.
                        self.numbers(&[f64::NAN]);
                        self.text(text);
                    }
                }
            }
        }
        if best {
            self.text("best");
        }
    }

    fn times(&mut self, times: &[i64]) {
        self.u64(times.len() as u64);
        times.iter().for_each(|t| self.u64(*t as u64));
    }

    fn finish(mut self) -> [u8; 32] {
        self.hash.update(&self.waiting);
        self.hash.finalize().into()
    }
}

/// Digest of everything in a request that affects its answer, or whether there is one. Excludes the trace, the
/// idempotency key, the client's release, the priority, and whether the client waits for the answer.
pub fn request_digest(request: &crate::pb::ScanRequest) -> [u8; 32] {
    let same = crate::pb::ScanRequest {
        trace: None,
        idempotency_key: String::new(),
        protocol_version: 0,
        priority: 0,
        detached: false,
        gathers: false,
        columns: false,
        fresh: false,
        profile: false,
        ..request.clone()
    };
    Sha256::digest(prost::Message::encode_to_vec(&same)).into()
}

/// Digest of one segment's result.
pub fn segment_digest(result: &SegmentResultV2) -> [u8; 32] {
    let mut fields = Fields::new("trawl segment 2");
    fields.u64(u64::from(result.segment));
    match &result.output {
        SegmentOutput::Times(needs) => {
            fields.text("times");
            fields.u64(needs.len() as u64);
            for need in needs {
                fields.u64(u64::from(need.cross));
                fields.times(&need.times);
            }
        }
        SegmentOutput::Values(given) => {
            fields.text("values");
            fields.u64(given.len() as u64);
            for one in given {
                fields.u64(u64::from(one.cross));
                fields.times(&one.times);
                fields.numbers(&one.values);
            }
        }
        SegmentOutput::Rows(rows) => {
            fields.text("rows");
            fields.u64(rows.len() as u64);
            rows.iter().for_each(|row| fields.row(row));
        }
    }
    fields.finish()
}

/// An answer without its rows, and how they are ranked.
#[derive(Debug, Clone, Copy)]
pub struct AnswerHead<'a> {
    /// As [`Answer::identity`].
    pub identity: &'a Identity,
    /// As [`Answer::select`].
    pub select: &'a [String],
    /// As [`Answer::points`].
    pub points: &'a [Vec<(String, Setting)>],
    /// As [`Answer::best`].
    pub best: bool,
    /// Per rank key: whether the largest value comes first.
    pub descending: &'a [bool],
    /// Maximum number of matches that get a place.
    pub limit: Option<u32>,
}

/// One segment of an answer.
#[derive(Debug, Clone, Copy)]
pub enum AnswerSegment<'a> {
    /// The digest of its columns.
    Result([u8; 32]),
    /// It has no result: each of its symbols fails with this reason.
    Failed {
        /// Why.
        reason: &'a str,
        /// Its symbols.
        symbols: &'a [String],
    },
}

/// The digest of an answer, 64 hex digits: over its head and the digests of its segments, which are given in their order. The order and the
/// places of the rows follow from the head and the rows. So it depends on no row directly, nor on who computed what.
pub fn tree_digest<'a>(
    head: &AnswerHead<'_>,
    segments: impl ExactSizeIterator<Item = (u32, AnswerSegment<'a>)>,
) -> String {
    let mut fields = Fields::new("trawl answer 3");
    fields.head(head.identity, head.select, head.points, head.best);
    fields.u64(head.descending.len() as u64);
    head.descending.iter().for_each(|descending| fields.u64(u64::from(*descending)));
    // 0 is no limit.
    fields.u64(head.limit.map_or(0, |limit| 1 + u64::from(limit)));
    fields.u64(segments.len() as u64);
    for (segment, content) in segments {
        fields.u64(u64::from(segment));
        match content {
            AnswerSegment::Result(digest) => {
                fields.text("result");
                fields.bytes(&digest);
            }
            AnswerSegment::Failed { reason, symbols } => {
                fields.text("failed");
                fields.text(reason);
                fields.u64(symbols.len() as u64);
                symbols.iter().for_each(|symbol| fields.text(symbol));
            }
        }
    }
    hex::encode(fields.finish())
}

/// Digest of an answer's rows, 64 hex digits: equal for equal rows, however they are cut into segments. The digest of an answer that
/// coordinators gave before there was [`tree_digest`].
pub fn answer_digest(answer: &Answer) -> String {
    let Answer { identity, time: _, bar: _, select, kinds: _, points, best, rows, digest: _ } = answer;
    let mut fields = Fields::new("trawl answer 2");
    fields.head(identity, select, points, *best);
    fields.u64(rows.len() as u64);
    for AnswerRow { place, row } in rows {
        // Places begin at 1, so 0 encodes "none".
        fields.u64(place.map_or(0, u64::from));
        fields.row(row);
    }
    hex::encode(fields.finish())
}
