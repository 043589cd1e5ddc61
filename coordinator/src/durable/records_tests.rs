use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header {
        scan: "5b0c-1".into(),
        generation: 0,
        owner: "user:ana".into(),
        document: DocumentPlace::Inline(r#"{"condition":"close > open"}"#.into()),
        dataset: format!("us5@{}", "ab".repeat(32)),
        as_of_us: 1_700_000_000_000_000,
        adjustment: "split@2026-11-20".into(),
        class: ExecutionClass {
            engine: "trawl/0.1.0".into(),
            numerics: "n6".into(),
            backend: "cpu".into(),
            precision: "f64".into(),
        },
        placed: true,
        backend: None,
        plan: "cd".repeat(32),
        segments: 3,
        symbols: 150,
        shards: Shards::Count(4),
        priority: Level::High,
        submitted_us: 1_764_000_000_000_000,
        deadline_us: Some(1_764_000_060_000_000),
        allow_partial: true,
        request: Some(RequestMark { slot: "0a".repeat(32), digest: "0b".repeat(32) }),
        trace: Some(TraceRecord { traceparent: "00-x-y-01".into(), tracestate: String::new() }),
    }
}

/// Asserts that this build writes exactly this text and reads it back. The text must not change within a version.
fn golden<R: Record + PartialEq + std::fmt::Debug>(record: &R, json: &str) {
    let written: serde_json::Value = serde_json::from_slice(&record.to_bytes("s-1").unwrap()).unwrap();
    let expected: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(written, expected);
    assert_eq!(R::from_bytes("s-1", json.as_bytes()).unwrap(), *record);
    // A later program adds fields.
    let mut more = expected;
    more["later"] = serde_json::json!({"a": [1]});
    assert_eq!(R::from_bytes("s-1", more.to_string().as_bytes()).unwrap(), *record);
    more["version"] = 2.into();
    let refused = R::from_bytes("s-1", more.to_string().as_bytes()).unwrap_err();
    assert!(matches!(refused, RecordError::Version { found: 2, .. }), "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains(R::WHAT) && message.contains("s-1") && message.contains("a newer one wrote it"),
        "{message}"
    );
}

#[test]
fn a_header_is_written_and_read_as_ever() {
    let json = r#"{"version":1,"scan":"5b0c-1","generation":0,"owner":"user:ana",
        "document":{"inline":"{\"condition\":\"close > open\"}"},
        "dataset":"us5@abababababababababababababababababababababababababababababababab",
        "as_of_us":1700000000000000,"adjustment":"split@2026-11-20",
        "class":{"engine":"trawl/0.1.0","numerics":"n6","backend":"cpu","precision":"f64"},
        "plan":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
        "segments":3,"symbols":150,"shards":{"count":4},"priority":"high",
        "submitted_us":1764000000000000,"deadline_us":1764000060000000,"allow_partial":true,
        "request":{"slot":"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
                   "digest":"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"},
        "trace":{"traceparent":"00-x-y-01"}}"#;
    golden(&header(), json);
}

#[test]
fn a_header_without_what_may_be_left_out_is_read() {
    let json = r#"{"version":1,"scan":"a-1","generation":2,"owner":"local",
        "document":{"object":{"sha256":"ff","bytes":70000}},"dataset":"d@00","as_of_us":1,"adjustment":"none",
        "class":{"engine":"e","numerics":"n","backend":"cpu","precision":"f32"},"plan":"p","segments":1,"symbols":2,
        "submitted_us":5}"#;
    let header = Header::from_bytes("a-1", json.as_bytes()).unwrap();
    assert_eq!(header.document, DocumentPlace::Object { sha256: "ff".into(), bytes: 70_000 });
    assert_eq!((header.shards, header.priority, header.allow_partial), (Shards::Automatic, Level::Normal, false));
    assert_eq!((header.deadline_us, &header.request, &header.trace), (None, &None, &None));
}

#[test]
fn progress_end_tombstone_and_request_are_written_and_read_as_ever() {
    golden(
        &Progress::new(1, 2, &BTreeSet::from([0, 3, 9])),
        r#"{"version":1,"generation":1,"stage":2,"stored":3,"bitmap":"0902"}"#,
    );
    golden(&Progress::new(0, 0, &BTreeSet::new()), r#"{"version":1,"generation":0,"stage":0,"stored":0}"#);
    let complete = EndOutcome::Complete { answer_digest: "ee".into(), failed_symbols: 2, disputed: false };
    golden(
        &End { generation: 0, outcome: complete, ended_us: 7 },
        r#"{"version":1,"generation":0,"outcome":{"complete":{"answer_digest":"ee","failed_symbols":2,"disputed":false}},
            "ended_us":7}"#,
    );
    let failed = EndOutcome::from(Failure::new(ErrorKind::OutOfMemory, "why"));
    golden(
        &End { generation: 0, outcome: failed, ended_us: 7 },
        r#"{"version":1,"generation":0,"outcome":{"failed":{"kind":"out_of_memory","message":"why"}},"ended_us":7}"#,
    );
    golden(
        &End { generation: 0, outcome: EndOutcome::from(Failure::new(ErrorKind::Cancelled, "x")), ended_us: 7 },
        r#"{"version":1,"generation":0,"outcome":"cancelled","ended_us":7}"#,
    );
    let closed = Closed {
        header: Header::from_bytes(
            "a-1",
            br#"{"version":1,"scan":"a-1","generation":2,"owner":"local",
            "document":{"inline":"{}"},"dataset":"d@00","as_of_us":1,"adjustment":"none","class":{"engine":"e",
            "numerics":"n","backend":"cpu","precision":"f32"},"plan":"p","segments":1,"symbols":2,"submitted_us":5}"#,
        )
        .unwrap(),
        end: End { generation: 2, outcome: EndOutcome::Cancelled, ended_us: 7 },
    };
    golden(
        &closed,
        r#"{"version":1,"header":{"scan":"a-1","generation":2,"owner":"local","document":{"inline":"{}"},
            "dataset":"d@00","as_of_us":1,"adjustment":"none","class":{"engine":"e","numerics":"n","backend":"cpu",
            "precision":"f32"},"plan":"p","segments":1,"symbols":2,"shards":"automatic","priority":"normal",
            "submitted_us":5,"allow_partial":false},"end":{"generation":2,"outcome":"cancelled","ended_us":7}}"#,
    );
    golden(&Tombstone { epoch: 5, marked_us: 6 }, r#"{"version":1,"epoch":5,"marked_us":6}"#);
    golden(&RequestRecord { scan: "a-1".into(), digest: "0b".into() }, r#"{"version":1,"scan":"a-1","digest":"0b"}"#);
}

#[test]
fn a_large_document_is_an_object_and_a_large_header_is_refused() {
    let small = "x".repeat(INLINE_DOCUMENT_BYTES_MAX);
    assert_eq!(DocumentPlace::of(&small), DocumentPlace::Inline(small.clone()));
    let DocumentPlace::Object { bytes, sha256 } = DocumentPlace::of(&format!("{small}x")) else { panic!("inline") };
    assert_eq!((bytes as usize, sha256.len()), (INLINE_DOCUMENT_BYTES_MAX + 1, 64));
    let header = Header { owner: "o".repeat(HEADER_BYTES_MAX), ..header() };
    let refused = header.to_bytes("5b0c-1").unwrap_err();
    assert!(matches!(refused, RecordError::TooLarge { limit: HEADER_BYTES_MAX, .. }), "{refused}");
}

#[test]
fn a_mark_tells_owners_keys_and_requests_apart() {
    let mark = RequestMark::new("ana", "k1", &[b"doc", b"5"]);
    assert_eq!(mark, RequestMark::new("ana", "k1", &[b"doc", b"5"]));
    for other in [RequestMark::new("bob", "k1", &[b"doc", b"5"]), RequestMark::new("ana", "k2", &[b"doc", b"5"])] {
        assert_ne!(mark.slot, other.slot);
    }
    assert_ne!(RequestMark::new("an", "ak1", &[]).slot, RequestMark::new("ana", "k1", &[]).slot);
    assert_ne!(mark.digest, RequestMark::new("ana", "k1", &[b"do", b"c5"]).digest);
}

#[test]
fn keys_come_back_as_scan_and_part() {
    let keys = Keys::new("c");
    for part in KeyKind::ALL {
        assert_eq!(keys.parse(&keys.part("a-1", part)), Some(("a-1", part)));
    }
    assert_eq!(keys.parse_ended(&keys.ended("a-1")), Some("a-1"));
    for other in ["c/ended/..", "c/ended/", "c/ended/a/b", "c/scans/a-1/header"] {
        assert_eq!(keys.parse_ended(other), None, "{other}");
    }
    for other in ["c/scans/a-1/other", "c/scans/a-1", "d/scans/a-1/header", "c/scans/../header", "c/scans//header"] {
        assert_eq!(keys.parse(other), None, "{other}");
    }
}

#[test]
fn a_bitmap_that_would_be_too_long_is_left_out() {
    let progress = Progress::new(0, 0, &BTreeSet::from([PROGRESS_SEGMENTS_MAX]));
    assert_eq!((progress.stored, progress.bitmap.as_str()), (1, ""));
    let largest = Progress::new(0, 0, &BTreeSet::from([PROGRESS_SEGMENTS_MAX - 1]));
    assert!(largest.to_bytes("a-1").unwrap().len() < 64 * 1024);
}

proptest! {
    #[test]
    fn a_bitmap_gives_its_segments_back(segments in proptest::collection::btree_set(0u32..2000, 0..100)) {
        let progress = Progress::new(0, 0, &segments);
        prop_assert_eq!(progress.segments(), segments.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), bitmap in "\\PC{0,10}") {
        let _ = Header::from_bytes("a-1", &bytes);
        let progress = Progress { bitmap, ..Progress::default() };
        let _ = progress.segments();
    }
}
