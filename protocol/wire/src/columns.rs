//! The rows of a segment as columns: how they travel, are stored and are digested.
//!
//! The same rows always give the same bytes: names ascend, reasons are in the order of their first row, a column that the others imply is
//! empty, and every NaN is the one canonical NaN. So the digest of a segment is a hash of its archive, and whoever passes it on makes no
//! object of a row. A reader checks an archive in place before it looks at a row; then a row is a view into it.

use std::sync::OnceLock;

use bytes::Bytes;
use rkyv::rancor;
use rkyv::rend::{f64_le, u32_le};
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::content::{EnvelopeError, content};
use crate::limits::REASON_BYTES_MAX;
use crate::result::{Status, SymbolRow};

/// Keeps the digest of columns apart from all others.
const DIGEST_DOMAIN: &[u8] = b"trawl segment 3\0";
/// Bits of a row's state.
const STATUS_BITS: u8 = 0b0_0111;
const EDGE_BIT: u8 = 0b0_1000;
const PROVISIONAL_BIT: u8 = 0b1_0000;

/// The rows of one segment, by point and symbol. See the module about what makes it unique.
#[derive(Debug, Clone, Default, PartialEq, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
pub struct SegmentColumnsV3 {
    /// Group id.
    pub segment: u32,
    /// The points of the sweep that have rows, ascending.
    pub points: Vec<u32>,
    /// For each of these points its number of rows.
    pub rows_at: Vec<u32>,
    /// The symbols' names, ascending, one after another.
    pub names: String,
    /// Where each name ends in `names`, in bytes.
    pub name_ends: Vec<u32>,
    /// For each row the index of its name; empty if every point has a row of every symbol.
    pub symbols: Vec<u32>,
    /// For each row its status (bits 0 to 2), edge (bit 3) and provisional (bit 4).
    pub states: Vec<u8>,
    /// The different reasons, in the order of their first rows, one after another.
    pub reasons: String,
    /// Where each reason ends in `reasons`, in bytes.
    pub reason_ends: Vec<u32>,
    /// For each row with a reason the index of the reason.
    pub reason_of: Vec<u32>,
    /// Rank keys of a match; 0 without a match.
    pub rank_width: u32,
    /// Values of a match; 0 without a match.
    pub value_width: u32,
    /// `[key][match]`, flattened.
    pub rank: Vec<f64>,
    /// `[column][match]`, flattened.
    pub values: Vec<f64>,
}

impl SegmentColumnsV3 {
    /// The state of a row.
    pub(crate) fn state(status: Status, edge: bool, provisional: bool) -> u8 {
        let bits = |is: bool, bit: u8| if is { bit } else { 0 };
        status as u8 | bits(edge, EDGE_BIT) | bits(provisional, PROVISIONAL_BIT)
    }
}

/// Whether rows with this status have a reason.
pub(crate) fn has_reason(status: Status) -> bool {
    !matches!(status, Status::Matched | Status::NotMatched)
}

/// The rows of a segment: a checked archive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The archive, in memory as it has to be aligned.
    payload: Bytes,
    segment: u32,
    /// Computed when it is asked for: whoever only sends them does not need it.
    digest: OnceLock<[u8; 32]>,
}

impl Columns {
    /// Columns that are known to be well-formed.
    ///
    /// # Errors
    /// [`EnvelopeError::Encode`].
    pub(crate) fn of(columns: &SegmentColumnsV3) -> Result<Self, EnvelopeError> {
        let archive = rkyv::to_bytes::<rancor::Error>(columns).map_err(|e| EnvelopeError::Encode(e.to_string()))?;
        Ok(Self::new(columns.segment, Bytes::from_owner(archive)))
    }

    /// Reads an archive, which is copied to memory of its own: as received it is a part of a larger buffer, and not aligned.
    ///
    /// # Errors
    /// [`EnvelopeError::Archive`], [`EnvelopeError::Content`].
    pub(crate) fn read(archive: &[u8]) -> Result<Self, EnvelopeError> {
        let mut aligned: AlignedVec = AlignedVec::with_capacity(archive.len());
        aligned.extend_from_slice(archive);
        let payload = Bytes::from_owner(aligned);
        let view = View::of(&payload)?;
        view.check(payload.len())?;
        let segment = view.0.segment.to_native();
        Ok(Self::new(segment, payload))
    }

    fn new(segment: u32, payload: Bytes) -> Self {
        Self { payload, segment, digest: OnceLock::new() }
    }

    /// Group id.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Digest of the segment's result: SHA-256 over the archive.
    pub fn digest(&self) -> [u8; 32] {
        let digest = || Sha256::new().chain_update(DIGEST_DOMAIN).chain_update(&self.payload).finalize().into();
        *self.digest.get_or_init(digest)
    }

    /// The archive.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// A look at the rows.
    ///
    /// # Errors
    /// None: it has been checked.
    pub fn view(&self) -> Result<View<'_>, EnvelopeError> {
        View::of(&self.payload)
    }

    /// The rows as objects.
    ///
    /// # Errors
    /// Those of [`Self::view`].
    pub fn to_rows(&self) -> Result<Vec<SymbolRow>, EnvelopeError> {
        Ok(self.view()?.rows().map(|row| row.to_row()).collect())
    }
}

/// A look at columns.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a ArchivedSegmentColumnsV3);

/// The text with an index; `None` if its place is not one of a text.
fn text<'a>(all: &'a str, ends: &[u32_le], at: usize) -> Option<&'a str> {
    let begin = match at.checked_sub(1) {
        Some(before) => ends.get(before)?.to_native() as usize,
        None => 0,
    };
    all.get(begin..ends.get(at)?.to_native() as usize)
}

/// All texts of a list; `None` if they are not exactly its bytes.
fn texts<'a>(all: &'a str, ends: &[u32_le]) -> Option<Vec<&'a str>> {
    if ends.last().map_or(0, |end| end.to_native() as usize) != all.len() {
        return None;
    }
    (0..ends.len()).map(|at| text(all, ends, at)).collect()
}

impl<'a> View<'a> {
    fn of(archive: &'a [u8]) -> Result<Self, EnvelopeError> {
        let found = rkyv::access::<ArchivedSegmentColumnsV3, rancor::Error>(archive);
        found.map(Self).map_err(|error| EnvelopeError::Archive(error.to_string()))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.0.states.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.0.states.is_empty()
    }

    /// Number of rows with a status.
    pub fn count(&self, status: Status) -> usize {
        self.0.states.iter().filter(|state| *state & STATUS_BITS == status as u8).count()
    }

    /// Number of rank keys and of values of a match; `None` without a match.
    pub fn widths(&self) -> Option<(usize, usize)> {
        let widths = (self.0.rank_width.to_native() as usize, self.0.value_width.to_native() as usize);
        self.0.states.iter().any(|state| state & STATUS_BITS == Status::Matched as u8).then_some(widths)
    }

    /// Whether each of the first `points` points has a row of exactly the symbols whose names are `names`, one after another, each up to
    /// its place in `ends` less `before`. Does not look at rows one by one.
    pub fn is_of_all(&self, points: usize, names: &str, ends: &[u32], before: u32) -> bool {
        let of = self.0;
        let points = if ends.is_empty() { 0 } else { points };
        of.symbols.is_empty()
            && of.points.len() == points
            && of.points.iter().zip(0..).all(|(have, want)| have.to_native() == want)
            && of.names.as_str() == names
            && of.name_ends.len() == ends.len()
            && of.name_ends.iter().zip(ends).all(|(have, end)| Some(have.to_native()) == end.checked_sub(before))
    }

    /// The rows, by point and symbol.
    pub fn rows(&self) -> Rows<'a> {
        let matches = self.count(Status::Matched);
        Rows { of: self.0, matches, row: 0, points: 0, point: 0, begun: 0, left: 0, matched: 0, reasoned: 0 }
    }

    /// Checks what a well-formed archive of `bytes` bytes may still have wrong. Another archive of the same rows is wrong as well.
    fn check(&self, bytes: usize) -> Result<(), EnvelopeError> {
        let of = self.0;
        let refuse = |what: &str| Err(content(what));
        let Some(names) = texts(&of.names, &of.name_ends) else { return refuse("names that cannot be told apart") };
        if !names.is_sorted_by(|a, b| a < b) {
            return refuse("names out of order");
        }
        let rows: u64 = of.rows_at.iter().map(|rows| u64::from(rows.to_native())).sum();
        if rows != of.states.len() as u64
            || of.points.len() != of.rows_at.len()
            || of.rows_at.iter().any(|rows| rows.to_native() == 0)
        {
            return refuse("points with another number of rows");
        }
        if !of.points.is_sorted_by(|a, b| a.to_native() < b.to_native()) {
            return refuse("points out of order");
        }
        self.check_symbols(names.len())?;
        if of.states.iter().any(|state| Status::ALL.get(usize::from(state & STATUS_BITS)).is_none() || *state >> 5 != 0)
        {
            return refuse("a status that there is not");
        }
        let matches = self.count(Status::Matched);
        let reasoned = of.states.len() - matches - self.count(Status::NotMatched);
        self.check_reasons(reasoned)?;
        let (rank, values) = (of.rank_width.to_native(), of.value_width.to_native());
        let fits = |width: u32, all: &[f64_le]| u64::from(width).checked_mul(matches as u64) == Some(all.len() as u64);
        if !fits(rank, &of.rank) || !fits(values, &of.values) || (matches == 0 && (rank, values) != (0, 0)) {
            return refuse("another number of values than of matches");
        }
        let odd = |value: &f64_le| {
            let value = value.to_native();
            value.is_nan() && value.to_bits() != f64::NAN.to_bits()
        };
        if of.rank.iter().chain(of.values.iter()).any(odd) {
            return refuse("a NaN that is not the canonical one");
        }
        match self.archive_bytes() == bytes {
            true => Ok(()),
            false => refuse("bytes that belong to nothing"),
        }
    }

    fn check_symbols(&self, names: usize) -> Result<(), EnvelopeError> {
        let of = self.0;
        let is_full = of.rows_at.iter().all(|rows| rows.to_native() as usize == names);
        if of.symbols.is_empty() {
            return if is_full && (names == 0) == of.states.is_empty() {
                Ok(())
            } else {
                Err(content("rows without a symbol"))
            };
        }
        if is_full || of.symbols.len() != of.states.len() {
            return Err(content("symbols that are not those of the rows"));
        }
        let (mut used, mut rest) = (vec![false; names], of.symbols.as_slice());
        for rows in of.rows_at.iter() {
            // Their sum is the number of rows.
            let Some((here, others)) = rest.split_at_checked(rows.to_native() as usize) else { break };
            rest = others;
            if !here.is_sorted_by(|a, b| a.to_native() < b.to_native()) {
                return Err(content("rows out of order"));
            }
            for symbol in here {
                match used.get_mut(symbol.to_native() as usize) {
                    Some(used) => *used = true,
                    None => return Err(content("a row without a symbol")),
                }
            }
        }
        if used.contains(&false) { Err(content("a symbol without a row")) } else { Ok(()) }
    }

    fn check_reasons(&self, reasoned: usize) -> Result<(), EnvelopeError> {
        let of = self.0;
        let Some(mut reasons) = texts(&of.reasons, &of.reason_ends) else {
            return Err(content("reasons that cannot be told apart"));
        };
        if of.reason_of.len() != reasoned {
            return Err(content("a reason where none belongs, or none where one does"));
        }
        if reasons.iter().any(|reason| reason.is_empty() || reason.len() > REASON_BYTES_MAX) {
            return Err(content("a reason that is empty or too long"));
        }
        let mut next = 0;
        for at in of.reason_of.iter().map(|at| at.to_native() as usize) {
            if at > next || at >= reasons.len() {
                return Err(content("reasons out of order"));
            }
            next = next.max(at + 1);
        }
        let all = reasons.len();
        reasons.sort_unstable();
        reasons.dedup();
        match next == all && reasons.len() == all {
            true => Ok(()),
            false => Err(content("a reason twice, or one of no row")),
        }
    }

    /// Bytes of an archive with these columns: each begins where its numbers are aligned, the head is last.
    fn archive_bytes(&self) -> usize {
        let of = self.0;
        // Short texts lie in the head.
        let text = |text: &rkyv::string::ArchivedString| {
            if text.len() <= rkyv::string::repr::INLINE_CAPACITY { 0 } else { text.len() }
        };
        let columns = [
            (4, 4 * of.points.len()),
            (4, 4 * of.rows_at.len()),
            (1, text(&of.names)),
            (4, 4 * of.name_ends.len()),
            (4, 4 * of.symbols.len()),
            (1, of.states.len()),
            (1, text(&of.reasons)),
            (4, 4 * of.reason_ends.len()),
            (4, 4 * of.reason_of.len()),
            (8, 8 * of.rank.len()),
            (8, 8 * of.values.len()),
        ];
        // Empty columns are aligned too.
        let after = |end: usize, (align, bytes): (usize, usize)| end.next_multiple_of(align) + bytes;
        let head = align_of::<ArchivedSegmentColumnsV3>();
        columns.into_iter().fold(0, after).next_multiple_of(head) + size_of::<ArchivedSegmentColumnsV3>()
    }
}

/// The rows of columns, one after another.
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    of: &'a ArchivedSegmentColumnsV3,
    matches: usize,
    row: usize,
    /// Points that have begun.
    points: usize,
    point: u32,
    /// The first row of the point.
    begun: usize,
    /// Rows of the point that are still to come.
    left: u32,
    matched: usize,
    reasoned: usize,
}

impl<'a> Iterator for Rows<'a> {
    type Item = RowView<'a>;

    fn next(&mut self) -> Option<RowView<'a>> {
        let of = self.of;
        let row = self.row;
        let state = *of.states.get(row)?;
        while self.left == 0 {
            self.point = of.points.get(self.points)?.to_native();
            (self.begun, self.left) = (row, of.rows_at.get(self.points)?.to_native());
            self.points += 1;
        }
        let at = match of.symbols.get(row) {
            Some(symbol) => symbol.to_native() as usize,
            None => row - self.begun,
        };
        let status = *Status::ALL.get(usize::from(state & STATUS_BITS))?;
        let mut view = RowView {
            point: self.point,
            symbol: text(&of.names, &of.name_ends, at)?,
            status,
            edge: state & EDGE_BIT != 0,
            provisional: state & PROVISIONAL_BIT != 0,
            reason: "",
            numbers: Numbers::Lists(&[], &[]),
        };
        if has_reason(status) {
            let reason = of.reason_of.get(self.reasoned)?.to_native() as usize;
            view.reason = text(&of.reasons, &of.reason_ends, reason)?;
            self.reasoned += 1;
        } else if status == Status::Matched {
            view.numbers = Numbers::Columns { of, matches: self.matches, at: self.matched };
            self.matched += 1;
        }
        (self.row, self.left) = (row + 1, self.left - 1);
        Some(view)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.of.states.len() - self.row;
        (left, Some(left))
    }
}

/// A row that lies elsewhere: in columns, or as an object.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// As [`SymbolRow::point`].
    pub point: u32,
    /// As [`SymbolRow::symbol`].
    pub symbol: &'a str,
    /// As [`SymbolRow::status`].
    pub status: Status,
    /// As [`SymbolRow::edge`].
    pub edge: bool,
    /// As [`SymbolRow::provisional`].
    pub provisional: bool,
    /// As [`SymbolRow::reason`].
    pub reason: &'a str,
    numbers: Numbers<'a>,
}

/// The rank keys and the values of a row.
#[derive(Debug, Clone, Copy)]
enum Numbers<'a> {
    Lists(&'a [f64], &'a [f64]),
    Columns { of: &'a ArchivedSegmentColumnsV3, matches: usize, at: usize },
}

impl<'a> From<&'a SymbolRow> for RowView<'a> {
    fn from(row: &'a SymbolRow) -> Self {
        Self {
            point: row.point,
            symbol: &row.symbol,
            status: row.status,
            edge: row.edge,
            provisional: row.provisional,
            reason: &row.reason,
            numbers: Numbers::Lists(&row.rank, &row.values),
        }
    }
}

impl<'a> RowView<'a> {
    /// The row of a symbol that failed at a point.
    pub fn failed(point: u32, symbol: &'a str, reason: &'a str) -> Self {
        let (status, numbers) = (Status::Failed, Numbers::Lists(&[], &[]));
        Self { point, symbol, status, edge: false, provisional: false, reason, numbers }
    }

    /// Number of rank keys and of values.
    pub fn widths(&self) -> (usize, usize) {
        match self.numbers {
            Numbers::Lists(rank, values) => (rank.len(), values.len()),
            Numbers::Columns { of, .. } => (of.rank_width.to_native() as usize, of.value_width.to_native() as usize),
        }
    }

    /// A rank key; NaN if it is NA or there is none.
    pub fn rank(&self, key: usize) -> f64 {
        let found = match self.numbers {
            Numbers::Lists(rank, _) => rank.get(key).copied(),
            Numbers::Columns { of, matches, at } => of.rank.get(key * matches + at).map(|value| value.to_native()),
        };
        found.unwrap_or(f64::NAN)
    }

    /// A value; NaN if it is NA or there is none.
    pub fn value(&self, column: usize) -> f64 {
        let found = match self.numbers {
            Numbers::Lists(_, values) => values.get(column).copied(),
            Numbers::Columns { of, matches, at } => of.values.get(column * matches + at).map(|value| value.to_native()),
        };
        found.unwrap_or(f64::NAN)
    }

    /// The row as an object.
    pub fn to_row(&self) -> SymbolRow {
        let (rank, values) = self.widths();
        SymbolRow {
            point: self.point,
            symbol: self.symbol.to_owned(),
            status: self.status,
            edge: self.edge,
            provisional: self.provisional,
            reason: self.reason.to_owned(),
            rank: (0..rank).map(|key| self.rank(key)).collect(),
            values: (0..values).map(|column| self.value(column)).collect(),
        }
    }
}
