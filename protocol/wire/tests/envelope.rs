//! The envelope rejects everything that is not exactly what was sent.

use proptest::prelude::*;
use prost::Message as _;
use trawl_wire::envelope::{
    decode, decode_input, encode, encode_input, encode_v1, schema_fingerprint, schema_fingerprint_v1,
};
use trawl_wire::{
    CrossTable, CrossTimes, CrossValues, EnvelopeError, SegmentOutput, SegmentResultV1, SegmentResultV2, Status,
    StepInputV1, SymbolRow, SymbolRowV1, pb, segment_digest,
};

fn row(symbol: &str, status: Status, values: &[f64]) -> SymbolRow {
    let decided = matches!(status, Status::Matched | Status::NotMatched);
    SymbolRow {
        point: 0,
        edge: values.len() > 1,
        provisional: false,
        symbol: symbol.to_owned(),
        status,
        reason: if decided { String::new() } else { "no bar since 2012-05-17".to_owned() },
        rank: values.iter().take(1).copied().collect(),
        values: values.to_vec(),
    }
}

fn sample() -> SegmentResultV2 {
    SegmentResultV2 {
        segment: 7,
        output: SegmentOutput::Rows(vec![
            row("AAPL", Status::Matched, &[1.5, f64::NAN]),
            row("GOOG", Status::Stale, &[]),
            row("IBM", Status::NotMatched, &[]),
        ]),
    }
}

/// Compares results by digest, since NaN differs from itself.
fn same(a: &SegmentResultV2, b: &SegmentResultV2) -> bool {
    segment_digest(a) == segment_digest(b)
}

#[test]
fn a_result_comes_back_as_it_was_sent() {
    let of = |output| SegmentResultV2 { segment: u32::MAX, output };
    let times = vec![-5, 0, 7];
    let needs = SegmentOutput::Times(vec![CrossTimes { cross: 3, times: times.clone() }]);
    let given = SegmentOutput::Values(vec![CrossValues { cross: 0, times, values: vec![1.0; 6] }]);
    for result in [sample(), of(SegmentOutput::Rows(Vec::new())), of(needs), of(given)] {
        assert!(same(&decode(&encode(&result).unwrap()).unwrap(), &result));
    }
}

/// The sample in the first version, which has no flags.
fn sample_v1() -> SegmentResultV1 {
    let SegmentOutput::Rows(rows) = sample().output else { unreachable!("it has rows") };
    let old = |row: SymbolRow| SymbolRowV1 {
        symbol: row.symbol,
        status: row.status,
        reason: row.reason,
        rank: row.rank,
        values: row.values,
    };
    SegmentResultV1 { segment: 7, rows: rows.into_iter().map(old).collect() }
}

fn input() -> StepInputV1 {
    let times = vec![-5, 0, 7];
    let keys = vec!["AAPL".to_owned(), "IBM".to_owned()];
    StepInputV1 {
        wanted: vec![CrossTimes { cross: 3, times: times.clone() }],
        tables: vec![CrossTable { cross: 1, times, keys, values: vec![1.0, f64::NAN, 3.0, 4.0, 5.0, 6.0] }],
    }
}

/// An archive of every type that crosses the wire. A change here breaks every running cluster: add another version
/// beside it instead.
#[test]
fn the_bytes_on_the_wire_are_the_ones_that_were_agreed_on() {
    let of = |output| SegmentResultV2 { segment: 7, output };
    let times = vec![-5, 0, 7];
    let needs = of(SegmentOutput::Times(vec![CrossTimes { cross: 3, times: times.clone() }]));
    let given = of(SegmentOutput::Values(vec![CrossValues { cross: 0, times, values: vec![1.0; 6] }]));
    let archives = [
        (encode_v1(&sample_v1()).unwrap(), include_str!("segment_result_v1.hex")),
        (encode(&sample()).unwrap(), include_str!("segment_result_v2.hex")),
        (encode(&needs).unwrap(), include_str!("segment_result_v2_times.hex")),
        (encode(&given).unwrap(), include_str!("segment_result_v2_values.hex")),
        (encode_input(&input()).unwrap(), include_str!("step_input_v1.hex")),
    ];
    for (envelope, golden) in archives {
        assert_eq!(hex::encode(envelope.encode_to_vec()), golden.trim());
    }
    assert_eq!(format!("{:016x}", schema_fingerprint_v1()), "61871c8ddb7c09f5");
    assert_eq!(format!("{:016x}", schema_fingerprint()), "5e8b39879e3071c8");
    assert_eq!(
        hex::encode(segment_digest(&sample())),
        "8cb79fea891eb7f4c8ded9c4d42dbfea2156eef6b875ab89d84cdb201e3f194d"
    );
}

#[test]
fn archives_that_were_written_before_are_read() {
    let read = |hex: &str| {
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        decode(&pb::Envelope::decode(&bytes[..]).unwrap()).unwrap()
    };
    assert!(same(&read(include_str!("segment_result_v2.hex").trim()), &sample()));
    let old = read(include_str!("segment_result_v1.hex").trim());
    let mut expected = sample();
    if let SegmentOutput::Rows(rows) = &mut expected.output {
        rows.iter_mut().for_each(|row| row.edge = false);
    }
    assert!(same(&old, &expected), "{old:?}");
    // The content of one version is not accepted as the other.
    let mut mixed = encode_v1(&sample_v1()).unwrap();
    mixed.version = 2;
    assert!(matches!(decode(&mixed), Err(EnvelopeError::Schema { .. })));
}

#[test]
fn each_field_is_checked_by_itself() {
    let good = encode(&sample()).unwrap();
    let damaged = |damage: fn(&mut pb::Envelope)| {
        let mut envelope = good.clone();
        damage(&mut envelope);
        decode(&envelope).unwrap_err()
    };
    assert!(matches!(damaged(|e| e.version = 1), EnvelopeError::Schema { .. }));
    assert!(matches!(damaged(|e| e.version = 9), EnvelopeError::Version { found: 9, .. }));
    assert!(matches!(damaged(|e| e.schema ^= 1), EnvelopeError::Schema { .. }));
    assert!(matches!(damaged(|e| e.length += 1), EnvelopeError::Length { .. }));
    assert!(matches!(damaged(|e| change(e, |p| p.push(0))), EnvelopeError::Length { .. }));
    assert!(matches!(damaged(|e| change(e, |p| p.truncate(9))), EnvelopeError::Length { .. }));
    assert!(matches!(damaged(|e| e.checksum ^= 1), EnvelopeError::Checksum { .. }));
    assert!(matches!(damaged(|e| change(e, |p| p[3] ^= 1)), EnvelopeError::Checksum { .. }));
    assert!(matches!(decode(&pb::Envelope::default()), Err(EnvelopeError::Version { found: 0, .. })));
}

fn change(envelope: &mut pb::Envelope, change: impl FnOnce(&mut Vec<u8>)) {
    let mut payload = envelope.payload.to_vec();
    change(&mut payload);
    envelope.payload = payload.into();
}

/// An envelope whose header fits its payload, whatever the payload is.
fn sealed(payload: Vec<u8>) -> pb::Envelope {
    let mut envelope = encode(&sample()).unwrap();
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
fn a_result_that_cannot_be_is_refused_where_it_is_written_and_where_it_is_read() {
    let with = |change: fn(&mut Vec<SymbolRow>)| {
        let mut bad = sample();
        if let SegmentOutput::Rows(rows) = &mut bad.output {
            change(rows);
        }
        bad
    };
    let twice = with(|rows| rows[1].symbol = "AAPL".to_owned());
    let unexplained = with(|rows| rows[1].reason.clear());
    let ragged = with(|rows| rows[2] = row("IBM", Status::Matched, &[1.0]));
    let stray = with(|rows| rows[2].values = vec![1.0]);
    let other = |output| SegmentResultV2 { segment: 1, output };
    let backwards = other(SegmentOutput::Times(vec![CrossTimes { cross: 0, times: vec![2, 1] }]));
    let short = other(SegmentOutput::Values(vec![CrossValues { cross: 0, times: vec![1, 2], values: vec![0.0] }]));
    for bad in [twice, unexplained, ragged, stray, backwards, short] {
        assert!(matches!(encode(&bad), Err(EnvelopeError::Content(_))), "{bad:?}");
        let payload = rkyv::to_bytes::<rkyv::rancor::Error>(&bad).unwrap().into_vec();
        assert!(matches!(decode(&sealed(payload)), Err(EnvelopeError::Content(_))), "{bad:?}");
    }
}

#[test]
fn what_a_step_is_given_comes_back_and_a_table_of_another_shape_is_refused() {
    let table = CrossTable {
        cross: 1,
        times: vec![1, 2],
        keys: vec!["A".to_owned(), "B".to_owned()],
        values: vec![1.0, 2.0, 3.0, 4.0],
    };
    let input = StepInputV1 { wanted: vec![CrossTimes { cross: 0, times: vec![5] }], tables: vec![table.clone()] };
    let back = decode_input(&encode_input(&input).unwrap()).unwrap();
    assert_eq!(back, input);
    assert_eq!(back.tables[0].of("B"), Some(&[3.0, 4.0][..]));
    assert_eq!(back.tables[0].of("C"), None);
    let bad = StepInputV1 { tables: vec![CrossTable { values: vec![1.0], ..table }], ..StepInputV1::default() };
    assert!(matches!(encode_input(&bad), Err(EnvelopeError::Content(_))));
    assert!(matches!(decode(&encode_input(&input).unwrap()), Err(EnvelopeError::Version { .. })));
}

proptest! {
    /// Any single byte changed to any other value, anywhere in the message: never accepted as another result.
    #[test]
    fn a_flipped_byte_is_noticed(mask in 1u8..) {
        let bytes = encode(&sample()).unwrap().encode_to_vec();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= mask;
            if let Ok(envelope) = pb::Envelope::decode(damaged.as_slice()) {
                prop_assert!(decode(&envelope).is_err(), "byte {at} xor {mask:02x} was accepted");
            }
        }
    }

    /// A valid checksum around a damaged archive: bytecheck rejects it, or it decodes to a well-formed result; never a
    /// panic.
    #[test]
    fn a_damaged_archive_under_a_valid_checksum_never_panics(at in 0usize..4096, mask in 1u8..) {
        let mut payload = encode(&sample()).unwrap().payload.to_vec();
        let at = at % payload.len();
        payload[at] ^= mask;
        let _ = decode(&sealed(payload));
    }

    #[test]
    fn garbage_never_panics(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&sealed(payload.clone()));
        if let Ok(envelope) = pb::Envelope::decode(payload.as_slice()) {
            prop_assert!(decode(&envelope).is_err());
        }
    }

    #[test]
    fn a_truncated_message_is_noticed(cut in 0usize..4096) {
        let bytes = encode(&sample()).unwrap().encode_to_vec();
        let cut = cut % bytes.len();
        if let Ok(envelope) = pb::Envelope::decode(&bytes[..cut]) {
            prop_assert!(decode(&envelope).is_err());
        }
    }
}
