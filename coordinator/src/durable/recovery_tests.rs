use proptest::prelude::*;
use trawl_wire::record::ExecutionClass;

use super::super::records::{DocumentPlace, End, EndOutcome, Header, Level, Shards, Tombstone};
use super::*;

fn class(numerics: &str) -> ExecutionClass {
    let (engine, backend, precision) = ("e".to_owned(), "cpu".to_owned(), "f64".to_owned());
    ExecutionClass { engine, numerics: numerics.to_owned(), backend, precision }
}

fn recorded(segments: u32) -> Recorded {
    let header = Header {
        scan: "a-1".into(),
        generation: 0,
        owner: "o".into(),
        document: DocumentPlace::Inline("{}".into()),
        dataset: "d@0".into(),
        as_of_us: 0,
        adjustment: "none".into(),
        class: class("n1"),
        placed: true,
        backend: None,
        plan: "p".into(),
        segments,
        symbols: 9,
        shards: Shards::Automatic,
        priority: Level::Normal,
        submitted_us: 0,
        deadline_us: None,
        allow_partial: false,
        request: None,
        trace: None,
    };
    Recorded { scan: "a-1".into(), header: Some(header), ..Recorded::default() }
}

fn ready(segments: &[u32]) -> Situation {
    Situation::Ready { class: class("n1"), plan: "p".into(), segments: segments.to_vec() }
}

fn stored(stages: &[(u32, &[u32])]) -> BTreeMap<u32, BTreeSet<u32>> {
    stages.iter().map(|(stage, segments)| (*stage, segments.iter().copied().collect())).collect()
}

fn resume(stage: u32, missing: &[u32]) -> Decision {
    Decision::Resume { stage, missing: missing.to_vec() }
}

#[test]
fn a_scan_goes_on_where_it_was() {
    let decide = |s: &[(u32, &[u32])]| super::decide(&recorded(3), &stored(s), &ready(&[0, 2, 5]), 1);
    assert_eq!(decide(&[]), resume(0, &[0, 2, 5]));
    assert_eq!(decide(&[(0, &[2])]), resume(0, &[0, 5]));
    assert_eq!(decide(&[(0, &[0, 2, 5])]), resume(0, &[]));
    assert_eq!(decide(&[(0, &[0, 2, 5]), (1, &[5])]), resume(1, &[0, 2]));
    // An object of an earlier stage was lost: what later stages stored is kept for when it is their turn.
    assert_eq!(decide(&[(0, &[0, 2]), (1, &[0, 2, 5])]), resume(0, &[5]));
    assert_eq!(decide(&[(1, &[0, 2, 5])]), resume(0, &[0, 2, 5]));
}

#[test]
fn what_ended_or_is_being_deleted_is_left_alone() {
    let mut ended = recorded(1);
    ended.end = Some(End { generation: 0, outcome: EndOutcome::Cancelled, ended_us: 0 });
    let mut marked = recorded(1);
    marked.tombstone = Some(Tombstone { epoch: 1, marked_us: 0 });
    let orphan = Recorded { scan: "a-1".into(), ..Recorded::default() };
    for recorded in [ended, marked, orphan] {
        assert_eq!(decide(&recorded, &stored(&[]), &ready(&[0]), 1), Decision::Nothing);
    }
}

#[test]
fn another_class_or_plan_begins_anew_a_bounded_number_of_times() {
    let other = Situation::Ready { class: class("n2"), plan: "p".into(), segments: vec![0] };
    let all = stored(&[(0, &[0])]);
    let Decision::Restart { generation: 1, why } = decide(&recorded(1), &all, &other, 1) else { panic!("no restart") };
    assert!(why.contains("n1") && why.contains("n2"), "{why}");
    let replanned = Situation::Ready { class: class("n1"), plan: "q".into(), segments: vec![0] };
    assert!(matches!(decide(&recorded(1), &all, &replanned, 1), Decision::Restart { generation: 1, .. }));
    let mut old = recorded(1);
    old.header.as_mut().unwrap().generation = GENERATIONS_MAX - 1;
    assert!(matches!(decide(&old, &all, &other, 1), Decision::Fail(f) if f.kind == ErrorKind::Retryable));
}

#[test]
fn a_scan_past_its_deadline_fails_and_so_does_one_that_cannot_be_run() {
    let mut late = recorded(1);
    late.header.as_mut().unwrap().deadline_us = Some(10);
    assert_eq!(decide(&late, &stored(&[]), &ready(&[0]), 9), resume(0, &[0]));
    assert!(
        matches!(decide(&late, &stored(&[]), &ready(&[0]), 10), Decision::Fail(f) if f.kind == ErrorKind::DeadlineExceeded)
    );
    let gone = Failure::new(ErrorKind::Permanent, "no such snapshot");
    assert_eq!(decide(&recorded(1), &stored(&[]), &Situation::Refused(gone.clone()), 1), Decision::Fail(gone));
    let away = Failure::new(ErrorKind::Retryable, "disk");
    assert_eq!(decide(&recorded(1), &stored(&[]), &Situation::Refused(away.clone()), 1), Decision::Later(away));
    assert!(matches!(decide(&recorded(2), &stored(&[]), &ready(&[0]), 1), Decision::Fail(_)));
}

proptest! {
    /// However the crash fell: nothing that is stored runs again, nothing that is missing is forgotten, no stage is
    /// skipped.
    #[test]
    fn what_is_run_and_what_is_stored_are_the_whole_scan(
        segments in proptest::collection::btree_set(0u32..40, 1..20),
        kept in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 20), 0..4),
    ) {
        let segments: Vec<u32> = segments.into_iter().collect();
        let stages: BTreeMap<u32, BTreeSet<u32>> = (0u32..).zip(&kept).map(|(stage, kept)| {
            (stage, segments.iter().zip(kept).filter(|(_, k)| **k).map(|(s, _)| *s).collect())
        }).collect();
        let count = u32::try_from(segments.len()).unwrap();
        let Decision::Resume { stage, missing } = decide(&recorded(count), &stages, &ready(&segments), 1) else {
            return Err(TestCaseError::fail("no resume"));
        };
        let have = stages.get(&stage).cloned().unwrap_or_default();
        prop_assert!(missing.iter().all(|m| !have.contains(m)));
        prop_assert_eq!(missing.len() + have.len(), segments.len());
        for before in 0..stage {
            prop_assert_eq!(stages[&before].len(), segments.len());
        }
    }
}
