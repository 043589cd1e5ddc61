//! Rows as columns: what is written is what is read, the same rows are the same bytes, and nothing else is accepted.

use proptest::prelude::*;
use prost::Message as _;
use rkyv::rancor;
use trawl_wire::columns::SegmentColumnsV3;
use trawl_wire::envelope::{SEGMENT_COLUMNS_V3, decode, encode, encode_columns, read, read_checked, seal_columns};
use trawl_wire::{
    Columns, CrossTimes, EnvelopeError, RowView, SegmentOutput, SegmentResult, SegmentResultV2, Status, SymbolRow, pb,
    segment_digest,
};

fn row(point: u32, symbol: &str, status: Status, reason: &str, numbers: &[f64]) -> SymbolRow {
    SymbolRow {
        point,
        symbol: symbol.to_owned(),
        status,
        edge: numbers.len() > 2,
        provisional: reason.len() > 10,
        reason: reason.to_owned(),
        rank: numbers.iter().take(1).copied().collect(),
        values: numbers.iter().skip(1).copied().collect(),
    }
}

/// Every status, repeated reasons, NA, infinities, the sign of zero, names beyond ASCII.
fn sample() -> Vec<SymbolRow> {
    vec![
        row(0, "AAPL", Status::Matched, "", &[1.5, f64::NAN, -0.0]),
        row(0, "FB", Status::Unknown, "too short: 3 bars, 20 needed", &[]),
        row(0, "GOOG", Status::Stale, "no bar since 2012-05-17", &[]),
        row(0, "IBM", Status::NotMatched, "", &[]),
        row(0, "MSFT", Status::Matched, "", &[f64::NEG_INFINITY, 2.0, 3.0]),
        row(0, "ORCL", Status::Outside, "universe is false", &[]),
        row(0, "SAP", Status::Failed, "checksum", &[]),
        row(0, "ÅÄÖ", Status::Stale, "no bar since 2012-05-17", &[]),
    ]
}

/// Rows of a sweep that keeps the best points of each symbol: neither every point nor every symbol at a point.
fn best() -> Vec<SymbolRow> {
    vec![
        row(1, "A", Status::Matched, "", &[1.0, 2.0]),
        row(1, "C", Status::NotMatched, "", &[]),
        row(7, "A", Status::NotMatched, "", &[]),
        row(7, "B", Status::Matched, "", &[3.0, 4.0]),
        row(u32::MAX, "C", Status::Failed, "why", &[]),
    ]
}

fn bits(rows: &[SymbolRow]) -> Vec<String> {
    let bits = |numbers: &[f64]| numbers.iter().map(|n| format!("{:x}", n.to_bits())).collect::<Vec<_>>();
    rows.iter().map(|row| format!("{row:?} {:?} {:?}", bits(&row.rank), bits(&row.values))).collect()
}

fn result(rows: Vec<SymbolRow>) -> SegmentResultV2 {
    SegmentResultV2 { segment: 7, output: SegmentOutput::Rows(rows) }
}

/// An envelope whose head fits its payload, whatever the payload is.
fn sealed(payload: Vec<u8>) -> pb::Envelope {
    let mut envelope = encode_columns(result(sample())).unwrap();
    envelope.length = payload.len() as u64;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&envelope.version.to_le_bytes());
    hasher.update(&envelope.schema.to_le_bytes());
    hasher.update(&envelope.length.to_le_bytes());
    hasher.update(&payload);
    envelope.checksum = hasher.finalize();
    envelope.payload = payload.into();
    envelope
}

#[test]
fn rows_come_back_as_they_were_in_whichever_form_they_are_read() {
    for rows in [sample(), best(), Vec::new(), sample()[1..3].to_vec()] {
        let envelope = encode_columns(result(rows.clone())).unwrap();
        assert_eq!(envelope.version, SEGMENT_COLUMNS_V3);
        let SegmentOutput::Rows(back) = decode(&envelope).unwrap().output else { panic!("rows") };
        assert_eq!(bits(&back), bits(&rows));
        let SegmentResult::Rows(columns) = read(&envelope).unwrap() else { panic!("columns") };
        let view = columns.view().unwrap();
        assert_eq!((columns.segment(), view.len(), view.is_empty()), (7, rows.len(), rows.is_empty()));
        let widths: Vec<_> = view.rows().map(|row| row.widths()).collect();
        let expected: Vec<_> = rows.iter().map(|row| RowView::from(row).widths()).collect();
        assert_eq!(widths, expected);
        for status in Status::ALL {
            assert_eq!(view.count(status), rows.iter().filter(|row| row.status == status).count());
        }
    }
}

#[test]
fn rows_and_columns_are_the_same_columns() {
    let of_rows = read(&encode(&result(sample())).unwrap()).unwrap();
    let of_columns = read(&encode_columns(result(sample())).unwrap()).unwrap();
    assert_eq!(of_rows.digest(), of_columns.digest());
    let times = SegmentOutput::Times(vec![CrossTimes { cross: 0, times: vec![1] }]);
    let step = SegmentResultV2 { segment: 1, output: times };
    let read_step = read(&encode_columns(step.clone()).unwrap()).unwrap();
    assert_eq!(read_step.digest(), segment_digest(&step));
}

/// Stored results and running clusters depend on these bytes: add another version beside them instead of changing them.
#[test]
fn the_bytes_are_the_ones_that_were_agreed_on() {
    let envelope = encode_columns(result(sample())).unwrap();
    assert_eq!(hex::encode(envelope.encode_to_vec()), include_str!("segment_columns_v3.hex").trim());
    let digest = "6382b0b044c69e0d0d29adbbf4305bd197467e794c6175d2ed77a2290c24b3bf";
    assert_eq!(hex::encode(read(&envelope).unwrap().digest()), digest);
}

#[test]
fn every_field_changes_the_digest_and_a_nan_does_not() {
    let digest = |rows: &[SymbolRow]| Columns::of_rows(7, rows).unwrap().digest();
    let changes: [fn(&mut [SymbolRow]); 8] = [
        |rows| rows[0].symbol = "AAPM".to_owned(),
        |rows| rows.iter_mut().for_each(|row| row.point = 1),
        |rows| rows[3].edge = true,
        |rows| rows[3].provisional = true,
        |rows| rows[1].reason.push('x'),
        |rows| rows[1].status = Status::Outside,
        |rows| rows[0].rank[0] = 1.25,
        |rows| rows[0].values[1] = 0.0,
    ];
    let mut digests = vec![digest(&sample()), Columns::of_rows(8, &sample()).unwrap().digest()];
    for change in changes {
        let mut rows = sample();
        change(&mut rows);
        digests.push(digest(&rows));
    }
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
    let mut other = sample();
    other[0].values[0] = f64::from_bits(f64::NAN.to_bits() | 1);
    assert_eq!(digest(&other), digest(&sample()));
}

#[test]
fn a_digest_that_is_not_the_results_is_refused_in_either_form() {
    for envelope in [encode(&result(sample())).unwrap(), encode_columns(result(sample())).unwrap()] {
        let mut digest = match envelope.version {
            SEGMENT_COLUMNS_V3 => read(&envelope).unwrap().digest(),
            _ => segment_digest(&result(sample())),
        };
        read_checked(&envelope, &digest).unwrap();
        digest[31] ^= 1;
        assert_eq!(read_checked(&envelope, &digest).unwrap_err(), EnvelopeError::Digest);
        assert_eq!(read_checked(&envelope, &[]).unwrap_err(), EnvelopeError::Digest);
    }
}

/// Archives that are well-formed and of no result, or of one in another form: each is refused with what is wrong with it.
#[test]
fn forged_columns_are_refused() {
    let good = || {
        let envelope = encode_columns(result(sample())).unwrap();
        let mut aligned: rkyv::util::AlignedVec = rkyv::util::AlignedVec::new();
        aligned.extend_from_slice(&envelope.payload);
        rkyv::from_bytes::<SegmentColumnsV3, rancor::Error>(&aligned).unwrap()
    };
    let forge = |change: &dyn Fn(&mut SegmentColumnsV3)| {
        let mut columns = good();
        change(&mut columns);
        let payload = rkyv::to_bytes::<rancor::Error>(&columns).unwrap().into_vec();
        read(&sealed(payload))
    };
    forge(&|_| ()).expect("unchanged it is read");
    type Change = fn(&mut SegmentColumnsV3);
    let forgeries: [(&str, Change); 24] = [
        ("names", |c| c.name_ends[1] += 1),
        ("names", |c| c.names.push('x')),
        ("names", |c| c.name_ends[7] -= 1),
        ("names", |c| c.name_ends[0] = u32::MAX),
        ("names out of order", |c| c.names = c.names.replace("FB", "ZZ")),
        ("names out of order", |c| c.names = c.names.replace("IBM", "\u{0}BM")),
        ("rows", |c| c.rows_at[0] -= 1),
        ("rows", |c| c.rows_at[0] = u32::MAX),
        ("rows", |c| c.rows_at.push(0)),
        ("rows", |c| c.points.push(4)),
        ("symbols", |c| c.symbols = (0..8).collect()),
        ("symbols", |c| c.symbols = vec![0]),
        ("status", |c| c.states[0] = 6),
        ("status", |c| c.states[0] |= 0b10_0000),
        ("reason", |c| c.states[3] = Status::Failed as u8),
        ("reason", |c| c.reason_of[0] = 1),
        ("reason", |c| c.reason_of[0] = 99),
        ("reason", |c| c.reason_of[3] = 0),
        ("reason", |c| c.reasons.clear()),
        ("values", |c| c.states[3] = Status::Matched as u8),
        ("values", |c| c.rank_width = 2),
        ("values", |c| c.value_width = u32::MAX),
        ("values", |c| _ = c.values.pop()),
        ("NaN", |c| c.values[0] = f64::from_bits(f64::NAN.to_bits() | 1)),
    ];
    for (number, (what, change)) in forgeries.into_iter().enumerate() {
        let error = forge(&change).expect_err(&format!("{number} {what}"));
        assert!(matches!(&error, EnvelopeError::Content(why) if why.contains(what)), "{number} {what}: {error}");
    }
    // Of the best points: the symbols are listed.
    let forge = |change: Change| {
        let mut aligned: rkyv::util::AlignedVec = rkyv::util::AlignedVec::new();
        aligned.extend_from_slice(&encode_columns(result(best())).unwrap().payload);
        let mut columns = rkyv::from_bytes::<SegmentColumnsV3, rancor::Error>(&aligned).unwrap();
        change(&mut columns);
        read(&sealed(rkyv::to_bytes::<rancor::Error>(&columns).unwrap().into_vec()))
    };
    forge(|_| ()).expect("unchanged it is read");
    let forgeries: [(&str, Change); 5] = [
        ("points out of order", |c| c.points.swap(0, 1)),
        ("rows out of order", |c| c.symbols.swap(0, 1)),
        ("a row without a symbol", |c| c.symbols[4] = 3),
        ("a symbol without a row", |c| c.symbols[3] = 2),
        ("rows without a symbol", |c| c.symbols.clear()),
    ];
    for (what, change) in forgeries {
        let error = forge(change).expect_err(what);
        assert!(matches!(&error, EnvelopeError::Content(why) if why.contains(what)), "{what}: {error}");
    }
    // More bytes than the columns have, before the head, which is last.
    let payload = encode_columns(result(sample())).unwrap().payload;
    let error = read(&sealed([&[0; 16][..], &payload[..]].concat())).expect_err("longer");
    assert!(matches!(&error, EnvelopeError::Content(why) if why.contains("belong to nothing")), "{error}");
}

fn any_rows() -> impl Strategy<Value = Vec<SymbolRow>> {
    let number = prop_oneof![Just(f64::NAN), any::<f64>(), Just(-0.0)];
    let one = (0u8..6, any::<bool>(), any::<bool>(), 0u8..4, proptest::collection::vec(number, 3));
    let rows = proptest::collection::btree_map((0u32..4, "[A-Z]{1,9}"), one, 0..60);
    rows.prop_map(|rows| {
        rows.into_iter()
            .map(|((point, symbol), (status, edge, provisional, reason, numbers))| {
                let status = Status::ALL[usize::from(status)];
                let decided = matches!(status, Status::Matched | Status::NotMatched);
                let reason = if decided { String::new() } else { format!("reason {reason}") };
                let (mut rank, mut values) = (Vec::new(), Vec::new());
                if status == Status::Matched {
                    rank.extend(&numbers[..1]);
                    values.extend(&numbers[1..]);
                }
                SymbolRow { point, symbol, status, edge, provisional, reason, rank, values }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn any_rows_come_back_and_have_one_form(rows in any_rows()) {
        let columns = Columns::of_rows(3, &rows).unwrap();
        // It passes its own checks, the one of its length too.
        let read = read(&seal_columns(&columns).unwrap()).unwrap();
        prop_assert_eq!(read.digest(), columns.digest());
        let back = columns.to_rows().unwrap();
        prop_assert_eq!(Columns::of_rows(3, &back).unwrap().digest(), columns.digest());
        let of = |rows: Vec<SymbolRow>| segment_digest(&SegmentResultV2 { segment: 3, output: SegmentOutput::Rows(rows) });
        prop_assert_eq!(of(back), of(rows));
    }

    /// A valid checksum around damaged columns: refused, or the columns of other rows that pass all checks; never a panic, and
    /// never two archives of the same rows.
    #[test]
    fn damaged_columns_under_a_valid_checksum_never_panic(rows in any_rows(), at in any::<usize>(), mask in 1u8..) {
        let mut payload = encode_columns(result(rows.clone())).unwrap().payload.to_vec();
        let at = at % payload.len();
        payload[at] ^= mask;
        if let Ok(SegmentResult::Rows(columns)) = read(&sealed(payload)) {
            prop_assert_eq!(columns.view().unwrap().rows().count(), columns.view().unwrap().len());
        }
    }

    #[test]
    fn truncated_columns_are_refused(rows in any_rows(), cut in any::<usize>()) {
        let payload = encode_columns(result(rows)).unwrap().payload;
        let cut = cut % payload.len();
        prop_assert!(read(&sealed(payload[..cut].to_vec())).is_err());
        prop_assert!(read(&sealed(payload[cut + 1..].to_vec())).is_err());
    }

    #[test]
    fn garbage_is_no_columns(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&sealed(payload));
    }
}
