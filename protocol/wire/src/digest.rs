//! Digests of results and answers: SHA-256 over an explicit encoding of every field, never over memory or an archive.
//!
//! Integers are little-endian, texts and lists are preceded by their length as u64, numbers are their IEEE 754 bits
//! with every NaN written as the one canonical NaN. A digest changes exactly when a field changes.

use sha2::{Digest, Sha256};
use trawl_plan::Setting;

use crate::result::{Answer, Identity, SegmentOutput, SegmentResultV2, SymbolRow};

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
        fresh: false,
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

/// An answer without its rows.
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
}

/// Digest of an answer, 64 hex digits.
pub fn answer_digest(answer: &Answer) -> String {
    let Answer { identity, select, points, best, rows } = answer;
    let head = AnswerHead { identity, select, points, best: *best };
    digest_of_rows(&head, rows.iter().map(|row| (row.place, &row.row)))
}

/// As [`answer_digest`], over rows stored elsewhere: given with their places, in the answer's order.
pub fn digest_of_rows<'a>(
    answer: &AnswerHead<'_>,
    rows: impl Iterator<Item = (Option<u32>, &'a SymbolRow)> + Clone,
) -> String {
    let mut fields = Fields::new("trawl answer 2");
    let id = answer.identity;
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
    identity.into_iter().for_each(|text| fields.text(text));
    if id.partial {
        fields.text("partial");
    }
    fields.u64(answer.select.len() as u64);
    answer.select.iter().for_each(|name| fields.text(name));
    fields.u64(answer.points.len() as u64);
    for settings in answer.points {
        fields.u64(settings.len() as u64);
        for (name, value) in settings {
            fields.text(name);
            match value {
                Setting::Number(value) => fields.numbers(&[*value]),
                Setting::Text(text) => {
                    // A marker: numbers of a sweep are never NaN.
                    fields.numbers(&[f64::NAN]);
                    fields.text(text);
                }
            }
        }
    }
    if answer.best {
        fields.text("best");
    }
    fields.u64(rows.clone().count() as u64);
    for (place, row) in rows {
        // Places begin at 1, so 0 encodes "none".
        fields.u64(place.map_or(0, u64::from));
        fields.row(row);
    }
    hex::encode(fields.finish())
}
