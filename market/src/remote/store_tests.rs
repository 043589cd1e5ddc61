//! Data roots in an object store, against directories.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::testing::MemoryObjects;
use super::*;
use crate::arrow_file::LoadedBars;
use crate::dataset::{Dataset, FetchedGroup, Reads};
use crate::error::MarketErrorKind;
use crate::import::{Appending, ImportOptions, import_files};
use crate::limits::TAILS_MERGED;
use crate::reference::Adjustment;
use crate::scrub::Scrubbed;
use crate::store::Store;
use crate::synth::{SynthOptions, synthesise};
use trawl_terms::Timeframe;

/// A data root in memory, and a store of a machine with a cache of its own.
fn machine(objects: &Arc<MemoryObjects>) -> (tempfile::TempDir, Store) {
    machine_with(objects, 1 << 30)
}

/// The same, with a cache of so many bytes.
fn machine_with(objects: &Arc<MemoryObjects>, bytes_max: u64) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheOptions::new(folder.path().to_owned(), bytes_max);
    let store = Store::in_objects(Arc::clone(objects) as Arc<dyn Objects>, &cache).unwrap();
    (folder, store)
}

/// The same data root, as it would be in a directory.
fn directory() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().to_owned());
    (folder, store)
}

fn options(rows: &str, folder: &Path) -> ImportOptions {
    let file = folder.join(format!("{}.csv", crate::manifest::sha256_hex(rows.as_bytes())));
    fs::write(&file, format!("date,symbol,close\n{rows}")).unwrap();
    ImportOptions {
        dataset: "d".to_owned(),
        files: vec![file],
        calendar: Some("24/7".to_owned()),
        appending: Appending::Always,
        ..ImportOptions::default()
    }
}

/// Bars of two symbols on these days of January 2024, and a row that is no bar.
fn rows(days: std::ops::Range<u32>) -> String {
    days.map(|day| format!("2024-01-{day:02},A,{day}\n2024-01-{day:02},B,{}\n2024-01-{day:02},A,x\n", 2 * day))
        .collect()
}

fn bars(store: &Store) -> String {
    let dataset = store.open("d").unwrap();
    assert!(dataset.verify().is_empty(), "{:?}", dataset.verify());
    format!("{:?} {:?}", dataset.load_group(0, &dataset.manifest.columns).unwrap(), dataset.times().unwrap())
}

/// Cached files of bars.
fn cached(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.join("files")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    found
}

#[test]
fn a_data_root_in_an_object_store_has_the_bars_and_ids_of_one_in_a_directory() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((_local, local), (_here, here), (_there, there)) = (directory(), machine(&objects), machine(&objects));
    // A first import, bars that are appended, bars that are revised, and a compaction; by either machine.
    for (store, days) in [(&here, 1..6), (&there, 6..8), (&here, 8..9)] {
        let options = options(&rows(days), inputs.path());
        let (made, expected) = (import_files(store, &options).unwrap(), import_files(&local, &options).unwrap());
        assert_eq!(made, expected);
        for other in [&here, &there] {
            assert_eq!(other.open("d").unwrap().manifest, local.open("d").unwrap().manifest);
            assert_eq!(bars(other), bars(&local));
        }
    }
    assert_eq!(there.compact("d", None).unwrap(), local.compact("d", None).unwrap());
    assert_eq!(bars(&here), bars(&local));
    let again = options(&rows(1..6), inputs.path());
    assert!(import_files(&here, &again).unwrap().unchanged);
    // What is listed, and older snapshots by their first digits.
    assert_eq!(here.list().unwrap().last(), local.list().unwrap().last());
    let oldest = objects.log().objects["d/heads/00000000000000000001"].clone();
    let oldest = String::from_utf8(oldest).unwrap();
    assert_eq!(here.open(&format!("d@{}", &oldest[..8])).unwrap().manifest.bars, 10);
    // Nothing of what was made is left on the machines.
    for store in [&here, &there] {
        let left = fs::read_dir(&store.root).unwrap().flatten();
        assert!(left.into_iter().all(|entry| entry.file_name() == "d"), "only locks");
    }
}

#[test]
fn of_two_writers_the_second_changes_nothing() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((_here, here), (_there, there)) = (machine(&objects), machine(&objects));
    import_files(&here, &options(&rows(1..3), inputs.path())).unwrap();
    // The other machine publishes between the end of our work and our head.
    let other = options(&rows(3..4), inputs.path());
    objects.log().before_head = Some(Box::new(move || drop(import_files(&there, &other).unwrap())));
    let error = import_files(&here, &options(&rows(4..5), inputs.path())).unwrap_err();
    assert!(matches!(error, MarketError::Busy { .. }), "{error}");
    assert_eq!(here.open("d").unwrap().manifest.bars, 6, "the bars of the first two");
    // Tried again, it comes after the other.
    assert_eq!(import_files(&here, &options(&rows(4..5), inputs.path())).unwrap().bars, 8);
    let heads = objects.log().objects.keys().filter(|path| path.starts_with("d/heads/")).count();
    assert_eq!(heads, 3);
}

/// Appends the bars of one day by this machine.
fn append(store: &Store, day: u32, inputs: &Path) {
    import_files(store, &options(&rows(day..day + 1), inputs)).unwrap();
}

#[test]
fn bars_that_another_machine_appends_while_a_compaction_publishes_stay() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((_here, here), (_there, there), (_local, local)) = (machine(&objects), machine(&objects), directory());
    for store in [&here, &local] {
        (1..3).for_each(|day| append(store, day, inputs.path()));
    }
    let (more, other) = (inputs.path().to_owned(), there.clone());
    objects.log().before_head = Some(Box::new(move || append(&other, 3, &more)));
    let report = here.compact("d", None).unwrap();
    assert_eq!((report.appended_files, report.appended_left, report.bars), (1, 1, 6));
    append(&local, 3, inputs.path());
    for store in [&here, &there] {
        assert_eq!(bars(store), bars(&local));
        assert_eq!(store.open("d").unwrap().manifest.snapshot, report.snapshot);
    }
    assert_eq!(there.compact("d", None).unwrap().snapshot, local.compact("d", None).unwrap().snapshot);
}

#[test]
fn files_that_another_machine_merges_while_they_are_compacted_are_compacted_as_merged() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((_here, here), (_there, there), (_local, local)) = (machine(&objects), machine(&objects), directory());
    // One before those that are appended; the last of these merges.
    let days = TAILS_MERGED as u32 + 1;
    let date = |day: u32| format!("2024-{:02}-{:02},A,{}\n", 1 + day / 28, 1 + day % 28, 1 + day);
    let append = |store: &Store, day: u32| drop(import_files(store, &options(&date(day), inputs.path())).unwrap());
    (0..days - 1).for_each(|day| append(&here, day));
    let mut attempts = 0;
    let report = here.compact_while("d", None, || {
        attempts += 1;
        if attempts == 1 {
            append(&there, days - 1);
            assert_eq!(there.open("d").unwrap().manifest.tails().len(), 1, "merged");
        }
    });
    let report = report.unwrap();
    (0..days).for_each(|day| append(&local, day));
    assert_eq!((attempts, report.appended_files, report.appended_left), (2, 1, 0));
    assert_eq!(report.snapshot, local.compact("d", None).unwrap().snapshot);
    for store in [&here, &there] {
        assert_eq!(bars(store), bars(&local));
    }
}

#[test]
fn indices_of_appended_bars_are_fetched_several_at_once_and_each_of_them_once() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let (_here, here) = machine(&objects);
    (1..22).for_each(|day| append(&here, day, inputs.path()));
    // The second one keeps nothing of what it fetches.
    for bytes_max in [1 << 30, 0] {
        let (_there, there) = machine_with(&objects, bytes_max);
        {
            let mut log = objects.log();
            log.fetched.clear();
            (log.slow, log.most_under_way) = (Duration::from_millis(50), 0);
        }
        assert_eq!(there.open("d").unwrap().manifest.tails().len(), 20);
        let mut log = objects.log();
        log.slow = Duration::ZERO;
        assert!((4..=8).contains(&log.most_under_way), "{} at once", log.most_under_way);
        let mut fetched = std::mem::take(&mut log.fetched);
        let count = fetched.len();
        fetched.sort();
        fetched.dedup();
        // The manifest, its base, and the indices.
        assert_eq!((fetched.len(), count), (22, 22), "{fetched:?}");
    }
}

#[test]
fn an_answer_that_was_lost_does_not_make_a_writer_lose() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let (_here, here) = machine(&objects);
    objects.log().lose_answers = true;
    assert_eq!(import_files(&here, &options(&rows(1..3), inputs.path())).unwrap().bars, 4);
    assert_eq!(here.open("d").unwrap().manifest.bars, 4);
}

#[test]
fn a_flipped_byte_in_a_cached_file_is_found_before_it_is_used() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let (folder, store) = machine(&objects);
    import_files(&store, &options(&rows(1..9), inputs.path())).unwrap();
    import_files(&store, &options(&rows(9..12), inputs.path())).unwrap();
    let expected = bars(&store);
    let files = cached(folder.path());
    for ending in ["arrow", "sums", "tail", "json"] {
        assert!(files.iter().any(|file| file.extension().is_some_and(|own| own == ending)), "{ending}: {files:?}");
    }
    for file in &files {
        for place in [2, 3] {
            let before = store_count(&objects);
            let facts = fs::metadata(file).unwrap();
            let at = facts.len() / 4 * place - 1;
            let mut opened = fs::File::options().read(true).write(true).open(file).unwrap();
            let mut byte = [0];
            opened.seek(SeekFrom::Start(at)).unwrap();
            opened.read_exact(&mut byte).unwrap();
            opened.seek(SeekFrom::Start(at)).unwrap();
            opened.write_all(&[byte[0] ^ 1]).unwrap();
            opened.set_modified(facts.modified().unwrap()).unwrap();
            drop(opened);
            assert_eq!(bars(&store), expected, "{} at {at}", file.display());
            assert!(store_count(&objects) <= before + 1, "fetched once");
            if file.extension().is_some_and(|own| own == "arrow") {
                let parts: Vec<_> = file.components().rev().take(3).collect();
                let path: PathBuf = parts.into_iter().rev().collect();
                let object = objects.log().objects[path.to_str().unwrap()].clone();
                assert_eq!(fs::read(file).unwrap(), object, "repaired: {}", file.display());
            }
        }
    }
}

#[test]
fn a_background_pass_reads_the_copies_of_this_machine_only_and_deletes_a_damaged_one() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let (folder, store) = machine(&objects);
    import_files(&store, &options(&rows(1..9), inputs.path())).unwrap();
    let expected = bars(&store);
    let pass = |store: &Store| {
        let (mut scrub, errors) = store.scrub("5");
        assert!(errors.is_empty(), "{errors:?}");
        let mut counts = (0, 0, Vec::new());
        while let Some(one) = scrub.next(|_| true) {
            match one {
                Scrubbed::Intact(_) => counts.0 += 1,
                Scrubbed::Gone => counts.1 += 1,
                Scrubbed::Damaged(error) => counts.2.push(error.to_string()),
                Scrubbed::Unreadable(error) => panic!("{error}"),
            }
        }
        counts
    };
    // A machine without copies fetches the manifest, and nothing else.
    let (_other, other) = machine(&objects);
    let (intact, gone, damaged) = pass(&other);
    assert!(intact == 0 && gone >= 2 && damaged.is_empty());
    let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    let arrow = |file: &&PathBuf| file.extension().is_some_and(|own| own == "arrow");
    let files: Vec<PathBuf> = cached(folder.path()).iter().filter(arrow).cloned().collect();
    let set_time = |file: &PathBuf| {
        fs::File::options().write(true).open(file).unwrap().set_modified(long_ago).unwrap();
    };
    files.iter().for_each(set_time);
    let fetched = store_count(&objects);
    assert_eq!(pass(&store), (files.len(), gone - files.len(), Vec::new()));
    assert!(files.iter().all(|file| fs::metadata(file).unwrap().modified().unwrap() == long_ago), "checking is no use");
    let mut content = fs::read(&files[0]).unwrap();
    content[9] ^= 1;
    fs::write(&files[0], content).unwrap();
    let (intact, _, damaged) = pass(&store);
    assert!(intact == files.len() - 1 && damaged.len() == 1 && damaged[0].contains("sha256"), "{damaged:?}");
    assert!(!files[0].exists() && store_count(&objects) == fetched, "nothing is fetched before it is needed");
    assert_eq!(bars(&store), expected);
    assert!(files[0].exists());
}

fn store_count(objects: &MemoryObjects) -> usize {
    objects.log().fetched.len()
}

#[test]
fn a_group_that_the_cache_cannot_keep_is_fetched_once_for_all_of_its_parts() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((_here, here), (_there, there)) = (machine(&objects), machine_with(&objects, 1));
    import_files(&here, &options(&rows(1..9), inputs.path())).unwrap();
    objects.log().fetched.clear();
    let dataset = there.open("d").unwrap();
    let bars = format!("/{}.arrow", dataset.manifest.file(0).unwrap().sha256);
    let fetched = || objects.log().fetched.iter().filter(|path| path.ends_with(&bars)).count();
    let part = |at: usize| {
        let names = ["close".to_owned()];
        assert_eq!(dataset.load_group_part(0, &names, &Adjustment::NONE, &[at]).unwrap().len(), 1);
    };
    let names = ["close".to_owned()];
    let reads = Reads { columns: &names, adjustment: &Adjustment::NONE, newest: None };
    assert_eq!(dataset.fetch_group(0, &reads).unwrap(), FetchedGroup::TooLarge);
    assert_eq!(here.open("d").unwrap().fetch_group(0, &reads).unwrap(), FetchedGroup::Here);
    objects.log().fetched.clear();
    let held = dataset.hold_group(0, &reads).unwrap();
    assert!(held.is_some());
    (0..2).for_each(part);
    assert_eq!(fetched(), 1);
    drop(held);
    (0..2).for_each(part);
    assert_eq!(fetched(), 3, "nothing holds it between the parts");
}

#[test]
fn of_a_large_file_the_parts_that_are_read_are_fetched_and_checked() {
    let objects = Arc::new(MemoryObjects::default());
    let ((_here, here), (_folder, local)) = (machine(&objects), directory());
    let (name, timeframe) = ("market".to_owned(), Timeframe::DAY);
    let synthetic = SynthOptions { name, symbols: 40, bars: 9_000, seed: 1, timeframe };
    for store in [&here, &local] {
        synthesise(store, &synthetic).unwrap();
    }
    let expected = local.open("market").unwrap();
    let sha256 = expected.manifest.file(0).unwrap().sha256.clone();
    let bytes = expected.manifest.file(0).unwrap().bytes;
    // A machine that fetches no file of bars whole if less is needed.
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        let options = CacheOptions { whole_bytes_max: 0, ..CacheOptions::new(folder.path().to_owned(), 1 << 30) };
        let store = Store::in_objects(Arc::clone(&objects) as Arc<dyn Objects>, &options).unwrap();
        (folder, store)
    };
    let fetched = || {
        let log = objects.log();
        let count = |suffix: &str| log.fetched.iter().filter(|path| path.ends_with(suffix)).count();
        let bytes: u64 = log.events.iter().map(|e| if let CacheEvent::Fetched(bytes) = e { *bytes } else { 0 }).sum();
        (count(&format!("{sha256}.arrow")), bytes)
    };
    let forget = || {
        objects.log().fetched.clear();
        objects.log().events.clear();
    };
    let none = Adjustment::NONE;
    let names = ["close".to_owned()];
    let newest = |dataset: &Dataset| {
        let bars = dataset.load_group_newest(0, &names, &none, 300).unwrap();
        bars.iter()
            .map(|b| (b.symbol.clone(), b.times[b.unread..].to_vec(), b.columns[0][b.unread..].to_vec()))
            .collect::<Vec<_>>()
    };
    let reads = |newest| Reads { columns: &names, adjustment: &none, newest };

    // The newest bars of a column: the times once, and no more than the chunks that have them.
    let (folder, store) = fresh();
    let dataset = store.open("market").unwrap();
    forget();
    assert!(!dataset.is_here(0, &reads(Some(300))) && dataset.groups_on_disk().is_empty());
    assert_eq!(newest(&dataset), newest(&expected));
    let (requests, taken) = fetched();
    assert!(requests == 2 && taken < bytes / 8, "{taken} of {bytes} bytes in {requests} files");
    assert!(dataset.is_here(0, &reads(Some(300))) && dataset.groups_on_disk() == [0]);
    assert!(!dataset.is_here(0, &reads(None)));
    assert_eq!(newest(&dataset), newest(&expected));
    assert_eq!(fetched().0, 2, "what is here is not fetched again");

    // Another process of this machine, and the same bars in parts of the group.
    let again = Store::in_objects(
        Arc::clone(&objects) as Arc<dyn Objects>,
        &CacheOptions { whole_bytes_max: 0, ..CacheOptions::new(folder.path().to_owned(), 1 << 30) },
    );
    let other = again.unwrap().open("market").unwrap();
    assert_eq!((newest(&other), fetched().0), (newest(&expected), 2));
    let part = |dataset: &Dataset| dataset.load_group_part(0, &names, &none, &[8, 9, 12, 13, 15]).unwrap();
    let columns =
        |bars: Vec<LoadedBars>| bars.iter().map(|b| (b.times.to_vec(), b.columns[0].to_vec())).collect::<Vec<_>>();
    assert_eq!(columns(part(&other)), columns(part(&expected)));
    let whole = fetched().1;
    assert!(whole < bytes / 2, "a column of six, whole");
    let rest: Vec<usize> = (16..40).collect();
    assert_eq!(
        columns(other.load_group_part(0, &names, &none, &rest).unwrap()),
        columns(expected.load_group_part(0, &names, &none, &rest).unwrap())
    );
    assert_eq!(fetched().1, whole, "all parts of a group are fetched at once");

    // One symbol alone.
    let symbol = expected.manifest.symbols[7].symbol.clone();
    let (_one, store) = fresh();
    let dataset = store.open("market").unwrap();
    forget();
    let one = dataset.load_symbol(&symbol, &names).unwrap();
    assert_eq!(one.columns[0].to_vec(), expected.load_symbol(&symbol, &names).unwrap().columns[0].to_vec());
    assert!(fetched().1 < bytes / 40, "{} of {bytes}", fetched().1);

    // A copy that was damaged, and a fetch that is: both are fetched again, and counted.
    let (folder, store) = fresh();
    let dataset = store.open("market").unwrap();
    objects.log().damage = 1;
    forget();
    assert_eq!(newest(&dataset), newest(&expected));
    assert_eq!(objects.counted(CacheEvent::Damaged), 1);
    let parts: Vec<PathBuf> =
        files_below(folder.path()).into_iter().filter(|path| path.to_string_lossy().contains(".parts/")).collect();
    assert_eq!(parts.len(), 2);
    for path in parts {
        let mut content = fs::read(&path).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        fs::write(&path, content).unwrap();
        forget();
        assert_eq!(newest(&dataset), newest(&expected));
        let (requests, taken) = fetched();
        assert!(objects.counted(CacheEvent::Damaged) == 2 && requests == 2 && taken < bytes / 8, "{requests} {taken}");
    }

    // Damage in the store itself is reported by the sha256 of the file.
    let path = format!("market/files/{sha256}.arrow");
    let intact = objects.log().objects[&path].clone();
    let mut damaged = intact.clone();
    for byte in damaged.iter_mut().skip(4096).step_by(10_000) {
        *byte ^= 1;
    }
    objects.log().objects.insert(path.clone(), damaged);
    let (_damaged, store) = fresh();
    let error = store.open("market").unwrap().load_group_newest(0, &names, &none, 300).unwrap_err();
    assert!(matches!(error, MarketError::Checksum { .. }), "{error}");
    objects.log().objects.insert(path, intact);

    // A file that is here as a whole is read, whatever is needed of it; and away is no damage.
    let (_whole, store) = fresh();
    let dataset = store.open("market").unwrap();
    dataset.load_group(0, &expected.manifest.columns).unwrap();
    forget();
    assert_eq!((newest(&dataset), fetched().0), (newest(&expected), 0));
    let (_away, store) = fresh();
    let dataset = store.open("market").unwrap();
    objects.log().fail = usize::MAX;
    let error = dataset.load_group_newest(0, &names, &none, 300).unwrap_err();
    assert_eq!(error.kind(), MarketErrorKind::Retryable, "{error}");
}

#[test]
fn a_store_that_is_away_is_no_damage() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((_here, here), (_there, there)) = (machine(&objects), machine(&objects));
    import_files(&here, &options(&rows(1..9), inputs.path())).unwrap();
    let dataset = there.open("d").unwrap();
    objects.log().fail = usize::MAX;
    for error in [there.open("d").unwrap_err(), dataset.load_group(0, &["close".to_owned()]).unwrap_err()] {
        assert!(matches!(error, MarketError::DataRoot { .. }), "{error}");
        assert_eq!(error.kind(), MarketErrorKind::Retryable);
        assert!(error.to_string().contains("s3://memory"), "{error}");
    }
    objects.log().fail = 0;
    assert_eq!(dataset.load_group(0, &["close".to_owned()]).unwrap().len(), 2);
}

#[test]
fn a_data_root_that_was_copied_from_a_directory_is_read_and_written() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let ((folder, local), (_here, here)) = (directory(), machine(&objects));
    import_files(&local, &options(&rows(1..9), inputs.path())).unwrap();
    for file in files_below(folder.path()) {
        let path = file.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
        objects.log().objects.insert(path, fs::read(&file).unwrap());
    }
    assert_eq!(bars(&here), bars(&local));
    let more = options(&rows(9..10), inputs.path());
    assert_eq!(import_files(&here, &more).unwrap(), import_files(&local, &more).unwrap());
    assert_eq!(bars(&here), bars(&local));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn names_that_are_not_there_are_refused() {
    let objects = Arc::new(MemoryObjects::default());
    let (_here, here) = machine(&objects);
    let (name, timeframe) = ("market".to_owned(), Timeframe::DAY);
    let synthetic = SynthOptions { name, symbols: 70, bars: 20, seed: 1, timeframe };
    let made = synthesise(&here, &synthetic).unwrap();
    assert_eq!(synthesise(&here, &synthetic).unwrap(), made, "again is no other");
    objects.log().objects.insert("logs/of/others".to_owned(), Vec::new());
    let names: Vec<String> = here.list().unwrap().into_iter().filter(|d| !d.bundled).map(|d| d.name).collect();
    assert_eq!(names, ["market"]);
    let error = here.open("markt").unwrap_err().to_string();
    assert!(error.contains("under s3://memory (did you mean 'market'?)"), "{error}");
    let unknown = format!("market@{}", "ab".repeat(32));
    assert!(matches!(here.open(&unknown), Err(MarketError::UnknownSnapshot { .. })));
    assert!(matches!(here.open("market@abababab"), Err(MarketError::UnknownSnapshot { .. })));
}

#[test]
fn old_heads_are_deleted_and_a_writer_from_long_ago_has_lost() {
    let (inputs, objects) = (tempfile::tempdir().unwrap(), Arc::new(MemoryObjects::default()));
    let (_here, here) = machine(&objects);
    let first = import_files(&here, &options(&rows(1..2), inputs.path())).unwrap().snapshot;
    let head = |number: u64| format!("d/heads/{number:020}");
    for number in 2..=300 {
        objects.log().objects.insert(head(number), format!("{first}\n").into_bytes());
    }
    import_files(&here, &options(&rows(2..3), inputs.path())).unwrap();
    let numbers = here.remote().unwrap().numbers("d").unwrap();
    assert_eq!((numbers.iter().min(), numbers.iter().max()), (Some(&45), Some(&301)));
    // Ours would be number 2, which was there and is deleted.
    let sink = here.sink("d", None).unwrap();
    let manifest = here.open(&format!("d@{first}")).unwrap().manifest;
    let before = Head { snapshot: "ab".repeat(32), number: 1 };
    assert!(matches!(sink.publish(&manifest, Some(&before)), Err(MarketError::Busy { .. })));
    assert!(!objects.log().objects.contains_key(&head(2)));
}
