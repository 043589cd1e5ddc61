//! Removals from an object store: alone, beside each other, beside writers and pins, with a crash or a lost answer at every call.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::announced::REMOVALS;
use super::removal::NOTES;
use super::steps::{Machine, interleaved};
use super::testing::MemoryObjects;
use super::*;
use crate::error::MarketErrorKind;
use crate::import::{Appending, ImportOptions, ImportReport, import_files};
use crate::removal_report::{GRACE_DEFAULT, RemovalReport};
use crate::store::Store;

const HOUR: TimeMicros = 3600 * 1_000_000;

/// Pairs that are tried of each two things.
const PAIRS_MAX: usize = 32;

/// A call that no test reaches.
const NEVER: usize = usize::MAX;

/// Imports one symbol's closes, beginning in January 2024; what is there is replaced.
fn import(store: &Store, closes: &[u32], appending: Appending) -> Result<ImportReport, MarketError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bars.csv");
    let rows = closes.iter().enumerate().map(|(day, close)| format!("2024-01-{:02},A,{close}\n", day + 1));
    // And a row that is no bar.
    fs::write(&file, format!("date,symbol,close\n{}2024-01-01,A,x\n", rows.collect::<String>())).unwrap();
    let options = ImportOptions {
        dataset: "d".to_owned(),
        files: vec![file],
        calendar: Some("24/7".to_owned()),
        appending,
        ..ImportOptions::default()
    };
    import_files(store, &options)
}

fn written(store: &Store, closes: &[u32]) -> Result<ImportReport, MarketError> {
    import(store, closes, Appending::Never)
}

/// A dataset with three snapshots, and bars appended to the last one; with their ids.
fn dataset() -> (Arc<MemoryObjects>, Vec<String>) {
    let objects = Arc::new(MemoryObjects::default());
    let mut ids = Vec::new();
    let machine = Machine::new(&objects);
    for closes in [&[1, 2][..], &[1, 3], &[1, 4]] {
        ids.push(written(&machine.store, closes).unwrap().snapshot);
        objects.log().clock += HOUR;
    }
    ids.push(import(&machine.store, &[1, 4, 5], Appending::Always).unwrap().snapshot);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 4);
    objects.log().clock += HOUR;
    (objects, ids)
}

/// The same objects, of which each test makes something else.
fn copy(of: &MemoryObjects) -> Arc<MemoryObjects> {
    let copy = MemoryObjects::default();
    let log = of.log();
    {
        let mut own = copy.log();
        (own.objects, own.modified, own.clock) = (log.objects.clone(), log.modified.clone(), log.clock);
    }
    Arc::new(copy)
}

/// What is in a folder of the dataset.
fn folder(objects: &MemoryObjects, folder: &str) -> Vec<String> {
    let prefix = format!("d/{folder}/");
    objects.log().objects.keys().filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned)).collect()
}

/// The newest snapshot, as a machine sees it that has nothing in its cache: it has to be whole.
#[track_caller]
fn newest(objects: &Arc<MemoryObjects>) -> Option<String> {
    let machine = Machine::new(objects);
    match machine.store.open("d") {
        Ok(dataset) => {
            assert!(dataset.verify().is_empty(), "{:?}", dataset.verify());
            Some(dataset.manifest.snapshot.clone())
        }
        Err(MarketError::UnknownDataset { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Removes at once what no snapshot needs.
fn at_once_store(store: &Store) -> Store {
    store.clone().deleting_after(Duration::ZERO)
}

fn prune(store: &Store) -> Result<RemovalReport, MarketError> {
    at_once_store(store).prune("d", 1, 0)
}

/// Whatever happened before: after a day a removal leaves one snapshot, its files and nothing else, and a writer works.
#[track_caller]
fn settles(objects: &Arc<MemoryObjects>) {
    let before = newest(objects);
    objects.log().clock += 25 * HOUR;
    let machine = Machine::new(objects);
    match before {
        Some(_) => drop(prune(&machine.store).unwrap()),
        // Nothing may be left of it.
        None => drop(at_once_store(&machine.store).remove("d", 0)),
    }
    assert_eq!(newest(objects), before);
    assert_eq!(folder(objects, REMOVALS), [""; 0]);
    // The notes of this removal itself are a second old by now.
    objects.log().clock += HOUR;
    let _ = before.as_ref().map(|_| prune(&machine.store).unwrap());
    assert_eq!(folder(objects, NOTES), [""; 0]);
    assert_eq!(folder(objects, "snapshots").len(), usize::from(before.is_some()));
    if before.is_none() {
        assert!(objects.log().objects.keys().all(|path| path.starts_with("d/heads/")), "{:?}", objects.log());
    }
    let made = written(&machine.store, &[7, 7, 7]).unwrap().snapshot;
    assert_eq!(newest(objects), Some(made));
}

#[test]
fn pruned_snapshots_are_gone_at_once_and_their_files_after_the_grace() {
    let (objects, ids) = dataset();
    let machine = Machine::new(&objects);
    let before = folder(&objects, "files");
    let reader = Machine::new(&objects).store.open(&format!("d@{}", ids[0])).unwrap();
    let report = machine.store.prune("d", 2, 0).unwrap();
    assert_eq!(report.removed, [ids[1].clone(), ids[0].clone()]);
    assert_eq!((report.files, report.snapshots, report.whole), (0, 2, false));
    let pending = report.pending.unwrap();
    assert!(pending.files > 2 && pending.bytes > 0, "{pending:?}");
    assert_eq!(pending.until, "1970-01-02T04:00:00Z");
    assert_eq!(folder(&objects, "files"), before);
    let fresh = Machine::new(&objects);
    for store in [&machine.store, &fresh.store] {
        let error = store.open(&format!("d@{}", ids[0])).unwrap_err();
        assert!(matches!(error, MarketError::UnknownSnapshot { .. }), "{error}");
    }
    // Whoever had it open reads on until then.
    assert!(reader.verify().is_empty());
    objects.log().clock += 23 * HOUR;
    assert_eq!(machine.store.prune("d", 2, 0).unwrap().pending, Some(pending.clone()));
    objects.log().clock += HOUR + 1_000_000;
    let report = machine.store.prune("d", 2, 0).unwrap();
    assert_eq!((report.files, report.bytes, report.pending), (pending.files, pending.bytes, None));
    assert!(folder(&objects, NOTES).is_empty() && folder(&objects, REMOVALS).is_empty());
    for id in &ids[2..] {
        assert!(fresh.store.open(&format!("d@{id}")).unwrap().verify().is_empty());
    }
    // Afterwards it ends with an error that says why, not with other bars.
    let machine = Machine::new(&objects);
    objects.log().objects.retain(|path, _| !path.ends_with(".arrow"));
    let error = machine.store.open("d").unwrap().load_group(0, &["close".to_owned()]).unwrap_err();
    assert!(matches!(error, MarketError::Gone { .. }) && error.kind() == MarketErrorKind::Permanent, "{error}");
    assert!(error.to_string().contains("was deleted by 'trawl data rm'"), "{error}");
}

#[test]
fn without_a_grace_everything_goes_at_once_also_where_the_stores_clock_counts_finely() {
    let (objects, _) = dataset();
    objects.log().tick = 1_000;
    let store = &Machine::new(&objects).store;
    let report = prune(store).unwrap();
    assert!(report.files > 2 && report.pending.is_none(), "{report:?}");
    let report = at_once_store(store).remove("d", 0).unwrap();
    assert!(report.whole && report.files > 2 && report.pending.is_none(), "{report:?}");
    assert!(objects.log().objects.keys().all(|path| path.starts_with("d/heads/")), "{:?}", objects.log());
}

#[test]
fn after_the_newest_is_removed_the_one_before_it_is_the_newest() {
    let (objects, ids) = dataset();
    let machine = Machine::new(&objects);
    // What a writer has left that lost was never the newest; its files may be incomplete.
    let lost = written(&Machine::new(&objects).dying(NEVER).store, &[9, 9]).unwrap().snapshot;
    let last = *machine.store.remote().unwrap().numbers("d").unwrap().iter().max().unwrap();
    objects.log().objects.remove(&format!("d/{}", heads::head_path(last)));
    assert_eq!(newest(&objects), Some(ids[3].clone()));
    let report = machine.store.remove(&format!("d@{}", &ids[3][..12]), 0).unwrap();
    assert_eq!((report.removed, report.snapshots), (vec![ids[3].clone()], 4));
    assert_eq!(newest(&objects), Some(ids[2].clone()));
    for id in [&lost, &ids[0], &ids[1]] {
        machine.store.remove(&format!("d@{id}"), 0).unwrap();
        assert_eq!(newest(&objects), Some(ids[2].clone()));
    }
    let error = machine.store.remove(&format!("d@{}", ids[2]), 0).unwrap_err().to_string();
    assert!(error.contains("only snapshot") && error.contains("trawl data rm d"), "{error}");
    let unknown = machine.store.remove(&format!("d@{lost}"), 0).unwrap_err();
    assert!(matches!(unknown, MarketError::UnknownSnapshot { .. }), "{unknown}");
    settles(&objects);
}

#[test]
fn a_removed_dataset_is_gone_and_can_be_made_again() {
    let (objects, ids) = dataset();
    let machine = Machine::new(&objects);
    let report = machine.store.remove("d", 0).unwrap();
    assert!(report.whole && report.removed.len() == 4 && report.files == 0 && report.snapshots == 0);
    assert!(report.pending.is_some());
    assert_eq!(newest(&objects), None);
    assert!(machine.store.list().unwrap().iter().all(|dataset| dataset.bundled));
    assert!(matches!(machine.store.prune("d", 1, 0), Err(MarketError::UnknownDataset { .. })));
    // The same bars again: nothing of what is pending is deleted then.
    let again = copy(&objects);
    let store = &Machine::new(&again).store;
    assert_eq!(written(store, &[1, 2]).unwrap().snapshot, ids[0]);
    again.log().clock += 25 * HOUR;
    assert!(store.prune("d", 1, 0).unwrap().files > 0);
    assert_eq!(newest(&again), Some(ids[0].clone()));
    settles(&again);
    // Or the rest of it goes, but for the number of its last head.
    objects.log().clock += 25 * HOUR;
    let report = machine.store.remove("d", 0).unwrap();
    assert!(report.files > 5 && report.pending.is_none() && report.removed.is_empty(), "{report:?}");
    machine.store.remove("d", 0).unwrap_err();
    let left: Vec<String> = objects.log().objects.keys().cloned().collect();
    assert!(matches!(&left[..], [head] if head.starts_with("d/heads/")), "{left:?}");
    settles(&objects);
}

#[test]
fn what_a_scan_pins_is_kept_and_reported_with_its_holder() {
    let (objects, ids) = dataset();
    let (here, there) = (Machine::new(&objects), Machine::new(&objects));
    let pinned = format!("d@{}", ids[0]);
    here.store.pin(&pinned, "leader-7", 2_000_000).unwrap();
    let report = there.store.prune("d", 1, 1_000_000).unwrap();
    assert_eq!(report.removed, [ids[2].clone(), ids[1].clone()]);
    let [kept] = &report.kept_in_use[..] else { panic!("{report:?}") };
    assert!(kept.why.contains("until 1970-01-01T00:00:02Z") && kept.why.contains("leader-7"), "{}", kept.why);
    let before = objects.log().objects.clone();
    for reference in ["d", pinned.as_str()] {
        let error = there.store.remove(reference, 1_000_000).unwrap_err().to_string();
        assert!(error.contains("nothing was deleted") && error.contains("leader-7"), "{error}");
    }
    assert_eq!(objects.log().objects, before);
    assert_eq!(here.store.pinned("d", 0).unwrap().len(), 1);
    assert_eq!(here.store.drop_old_pins("d", 3_000_000).unwrap(), 1);
    assert_eq!(there.store.prune("d", 1, 1_000_000).unwrap().removed, [ids[0].clone()]);
    assert!(matches!(here.store.pin(&pinned, "leader-7", 9), Err(MarketError::UnknownSnapshot { .. })));
    assert_eq!(folder(&objects, "pins"), [""; 0]);
    // One that cannot be read holds.
    objects.log().objects.insert(format!("d/pins/{}.x", ids[3]), b"rubbish".to_vec());
    assert!(there.store.remove("d", 0).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn files_are_kept_while_a_manifest_cannot_be_read_or_a_note_or_an_announcement() {
    let (objects, ids) = dataset();
    let damaged = format!("d/snapshots/{}.json", ids[1]);
    objects.log().objects.insert(damaged, b"{".to_vec());
    let before = folder(&objects, "files");
    let machine = Machine::new(&objects);
    assert!(matches!(at_once_store(&machine.store).prune("d", 3, 0), Err(MarketError::Corrupt { .. })));
    assert_eq!(folder(&objects, "files"), before);
    // The damaged one itself can go; what it named is not known.
    machine.store.remove(&format!("d@{}", ids[1]), 0).unwrap();
    objects.log().clock += 23 * HOUR;
    assert_eq!(machine.store.prune("d", 1, 0).unwrap().files, 0);
    // Nobody knows what this removal is about to delete.
    objects.log().objects.insert(format!("d/{REMOVALS}/x.json"), b"{".to_vec());
    objects.log().modified.insert(format!("d/{REMOVALS}/x.json"), 27 * HOUR);
    let error = written(&machine.store, &[1, 6]).unwrap_err();
    assert!(matches!(error, MarketError::Removing { .. }) && error.kind() == MarketErrorKind::Retryable, "{error}");
    assert!(error.to_string().contains("trawl data prune d"), "{error}");
    settles(&objects);
}

#[test]
fn names_that_are_not_there_are_refused_and_nothing_is_written() {
    let (objects, _) = dataset();
    let machine = Machine::new(&objects);
    let before = objects.log().objects.clone();
    for (name, expected) in [("us5", "is bundled"), ("e", "no dataset 'e'"), ("../d", "not a dataset name")] {
        for error in [machine.store.remove(name, 0).unwrap_err(), machine.store.prune(name, 1, 0).unwrap_err()] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
    for reference in ["d@0123456789ab".to_owned(), format!("d@{}", "ab".repeat(32))] {
        assert!(matches!(machine.store.remove(&reference, 0), Err(MarketError::UnknownSnapshot { .. })));
    }
    assert_eq!(objects.log().objects, before);
    assert_eq!(machine.store.grace, GRACE_DEFAULT);
}

/// A removal that the tests let run beside others.
type Removal = fn(&Store, &[String]) -> Result<RemovalReport, MarketError>;

/// All but the newest snapshot, the newest one, the dataset; each deletes files at once.
const REMOVED_BESIDE: [Removal; 3] = [
    |store, _| prune(store),
    |store, ids| at_once_store(store).remove(&format!("d@{}", ids[3]), 0),
    |store, _| at_once_store(store).remove("d", 0),
];

/// A writer beside removals; returns its snapshot.
type Writing = fn(&Store) -> Result<String, MarketError>;

/// What a writer does beside them: the bars of the first snapshot again, which has the names that are deleted; bars that are appended;
/// a compaction.
const WRITTEN_BESIDE: [Writing; 3] = [
    |store| written(store, &[1, 2, 5]).and_then(|_| written(store, &[1, 2])).map(|report| report.snapshot),
    |store| import(store, &[1, 4, 5, 6], Appending::Always).map(|report| report.snapshot),
    |store| store.compact("d", None).map(|report| report.snapshot),
];

/// Pairs of places where two machines are stopped: a part of them, spread evenly, or all with `TRAWL_ALL_STEPS=1`.
fn each_pair(a_calls: usize, b_calls: usize, check: impl Fn(usize, usize) + Sync) {
    let all = std::env::var_os("TRAWL_ALL_STEPS").is_some();
    let step = if all { 1 } else { (a_calls * (b_calls + 1)).div_ceil(PAIRS_MAX) };
    let pairs = (1..=a_calls).flat_map(|a| (1..=b_calls).chain([NEVER]).map(move |b| (a, b)));
    // By whole rows a step would meet the same columns again and again.
    let pairs: Vec<_> = pairs.enumerate().filter(|(at, _)| (at + at / (b_calls + 1)).is_multiple_of(step)).collect();
    at_once(&pairs, |(_, (a, b))| {
        check(*a, *b);
        Ok(())
    })
    .unwrap();
}

/// The number of calls that something makes on these objects.
fn calls<T>(objects: &Arc<MemoryObjects>, work: impl FnOnce(&Store) -> Result<T, MarketError>) -> usize {
    let machine = Machine::new(&copy(objects));
    assert!(work(&machine.store).is_ok());
    machine.calls()
}

/// Whether something failed because of what ran beside it, and says so.
fn is_contention(error: &MarketError) -> bool {
    match error {
        MarketError::Refused(why) => why.contains("written anew while it was compacted"),
        error => matches!(
            error,
            MarketError::Busy { .. }
                | MarketError::Removing { .. }
                | MarketError::UnknownDataset { .. }
                | MarketError::Gone { .. }
        ),
    }
}

/// Each of `writes` beside each of `removals`, one stopped before each of its calls while the other runs up to each of its own.
fn beside(writes: usize, removals: usize) {
    let (objects, ids) = dataset();
    let (write, remove) = (WRITTEN_BESIDE[writes], REMOVED_BESIDE[removals]);
    let (a_calls, b_calls) = (calls(&objects, write), calls(&objects, |store| remove(store, &ids)));
    each_pair(a_calls, b_calls, |a_stops, b_stops| {
        let objects = copy(&objects);
        let (a, b) = (Machine::new(&objects).stopping(a_stops), Machine::new(&objects).stopping(b_stops));
        let (made, removed) = interleaved((&a, write), (&b, |store| remove(store, &ids)));
        let case = format!("{a_stops} of {a_calls}, {b_stops} of {b_calls}: {made:?}, {removed:?}");
        let found = newest(&objects);
        match (&made, &removed) {
            (Ok(made), _) if removals == 0 => assert_eq!(found.as_ref(), Some(made), "{case}"),
            (_, Ok(_)) if removals == 1 => assert_ne!(found.as_ref(), Some(&ids[3]), "{case}"),
            _ => {}
        }
        assert!(found.is_some() || removals == 2, "{case}");
        assert!(made.as_ref().err().is_none_or(is_contention), "{case}");
        assert!(removed.as_ref().err().is_none_or(is_contention), "{case}");
        if (a_stops + b_stops.min(b_calls)) % 7 == 0 {
            settles(&objects);
        }
    });
}

#[test]
fn bars_of_a_pruned_snapshot_are_imported_again_beside_the_removal_of_their_files() {
    beside(0, 0);
}

#[test]
fn bars_are_imported_beside_the_removal_of_the_newest_snapshot_or_the_dataset() {
    beside(0, 1);
    beside(0, 2);
}

#[test]
fn bars_are_appended_and_compacted_beside_removals() {
    for removals in 0..REMOVED_BESIDE.len() {
        beside(1, removals);
        beside(2, removals);
    }
}

#[test]
fn of_two_removals_beside_each_other_neither_breaks_the_newest_snapshot() {
    let (objects, ids) = dataset();
    let one = |at: usize| {
        let reference = format!("d@{}", ids[at]);
        move |store: &Store| at_once_store(store).remove(&reference, 0)
    };
    let (a_calls, b_calls) = (calls(&objects, one(3)), calls(&objects, one(2)));
    each_pair(a_calls, b_calls, |a_stops, b_stops| {
        let objects = copy(&objects);
        let (a, b) = (Machine::new(&objects).stopping(a_stops), Machine::new(&objects).stopping(b_stops));
        let (newest_gone, other_gone) = interleaved((&a, one(3)), (&b, one(2)));
        let case = format!("{a_stops} of {a_calls}, {b_stops} of {b_calls}: {newest_gone:?}, {other_gone:?}");
        let found = newest(&objects).expect(&case);
        assert!(newest_gone.is_err() || found != ids[3], "{case}");
        assert!(other_gone.is_err() || found != ids[2], "{case}");
        assert!(newest_gone.is_ok() || other_gone.is_ok(), "{case}");
    });
}

#[test]
fn a_pin_is_seen_by_a_removal_or_sees_it() {
    let (objects, ids) = dataset();
    let reference = format!("d@{}", ids[0]);
    let pin = |store: &Store| store.pin(&reference, "leader-1", TimeMicros::MAX - 1);
    let (a_calls, b_calls) = (calls(&objects, pin), calls(&objects, prune));
    each_pair(a_calls, b_calls, |a_stops, b_stops| {
        let objects = copy(&objects);
        let (a, b) = (Machine::new(&objects).stopping(a_stops), Machine::new(&objects).stopping(b_stops));
        let (pinned, pruned) = interleaved((&a, pin), (&b, prune));
        let case = format!("{a_stops} of {a_calls}, {b_stops} of {b_calls}: {pinned:?}, {pruned:?}");
        let there = Machine::new(&objects).store.open(&reference);
        match pinned {
            Ok(()) => assert!(there.expect(&case).verify().is_empty(), "{case}"),
            Err(error) => assert!(matches!(error, MarketError::UnknownSnapshot { .. }), "{case}"),
        }
        assert!(pruned.is_ok(), "{case}");
    });
}

#[test]
fn a_removal_that_is_killed_or_loses_an_answer_at_any_call_leaves_a_whole_dataset() {
    let (objects, ids) = dataset();
    for (removals, remove) in REMOVED_BESIDE.iter().enumerate() {
        for call in 1..=calls(&objects, |store| remove(store, &ids)) {
            for loses in [false, true] {
                let objects = copy(&objects);
                let machine = Machine::new(&objects);
                let machine = if loses { machine.losing(call) } else { machine.dying(call) };
                let _ = remove(&machine.store, &ids);
                assert!(newest(&objects).is_some() || removals == 2, "{call}");
                // Another one at once, which may not break it either, and may complete it.
                let other = Machine::new(&objects);
                let again = remove(&other.store, &ids);
                let done =
                    |error: &MarketError| is_contention(error) || matches!(error, MarketError::UnknownSnapshot { .. });
                assert!(again.as_ref().err().is_none_or(done), "{call}: {again:?}");
                // New bars are imported at once, whatever was left; a file that is announced has to wait.
                let made = written(&other.store, &[8, 8]);
                assert!(
                    made.as_ref().err().is_none_or(|error| matches!(error, MarketError::Removing { .. })),
                    "{made:?}"
                );
                settles(&objects);
            }
        }
    }
}

#[test]
fn a_writer_that_is_killed_or_loses_an_answer_at_any_call_leaves_a_dataset_that_is_pruned() {
    let (objects, _) = dataset();
    for write in WRITTEN_BESIDE {
        for call in 1..=calls(&objects, write) {
            for loses in [false, true] {
                let objects = copy(&objects);
                let machine = Machine::new(&objects);
                let machine = if loses { machine.losing(call) } else { machine.dying(call) };
                let _ = write(&machine.store);
                let before = newest(&objects);
                prune(&Machine::new(&objects).store).unwrap();
                assert_eq!(newest(&objects), before);
                settles(&objects);
            }
        }
    }
}

#[test]
fn a_removal_that_slept_deletes_nothing_any_more() {
    let (objects, _) = dataset();
    let machine = Machine::new(&objects);
    assert!(Deadline::after(Duration::ZERO).has_passed() && !Deadline::after(Duration::from_secs(60)).has_passed());
    let error = objects.delete("d/files", Deadline::after(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, ObjectsError::Store(_)));
    // Its announcement was taken for one that a crash left, and was withdrawn: it looks before it begins.
    let paths = BTreeSet::from(["snapshots/x.json".to_owned()]);
    let root = machine.store.remote().unwrap();
    let slept = root.announce("d", &paths).unwrap();
    objects.log().clock += 25 * HOUR;
    machine.store.prune("d", 2, 0).unwrap();
    assert_eq!(folder(&objects, REMOVALS), [""; 0]);
    assert!(slept.look_around(Duration::ZERO).unwrap_err().to_string().contains("run it again"));
    // A younger one is left alone.
    let other = root.announce("d", &paths).unwrap();
    prune(&machine.store).unwrap();
    assert_eq!(folder(&objects, REMOVALS).len(), 1);
    other.end();
}

#[test]
fn a_writer_from_long_ago_has_lost() {
    let (objects, ids) = dataset();
    // It has read the newest head, and is stopped before it makes the next one.
    let write = |store: &Store| written(store, &[1, 2]);
    for stops in 1..=calls(&objects, write) {
        let objects = copy(&objects);
        let (writer, others) = (Machine::new(&objects).stopping(stops), Machine::new(&objects));
        let (made, _) = interleaved(
            (&writer, write),
            (&others, |store: &Store| {
                for _ in 0..3 {
                    store.prune("d", 1, 0)?;
                }
                let last = store.remote().unwrap().numbers("d")?.into_iter().max().unwrap_or(0);
                let mut log = objects.log();
                log.objects.retain(|path, _| !path.starts_with("d/heads/"));
                for number in last + 100..last + 400 {
                    log.objects.insert(format!("d/{}", heads::head_path(number)), format!("{}\n", ids[3]).into_bytes());
                }
                Ok(())
            }),
        );
        let found = newest(&objects).unwrap();
        assert!(made.map_or(found == ids[3], |made| made.snapshot == found), "{stops}");
    }
}
