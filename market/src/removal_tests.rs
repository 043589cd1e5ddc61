use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::dataset::Dataset;
use crate::import::{ImportOptions, import_files};
use crate::snapshot::{Sink, file_path};

/// A dataset `d` with so many snapshots, each with one more symbol than the one before; their ids, the newest last.
fn store(snapshots: usize) -> (tempfile::TempDir, Store, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path().join("data"));
    let ids = (0..snapshots).map(|i| {
        let file = root.path().join(format!("S{i}.csv"));
        fs::write(&file, "Date,Open,High,Low,Close,Volume\n2020-01-02,1,2,1,2,5\n2020-01-03,2,3,2,3,5\n").unwrap();
        let options = ImportOptions { dataset: "d".to_owned(), files: vec![file.clone()], ..ImportOptions::default() };
        let id = import_files(&store, &options).unwrap().snapshot;
        // The clock of the file system may be coarse.
        let manifest = fs::File::options().write(true).open(directory(&store).join(manifest_path(&id))).unwrap();
        manifest.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + i as u64)).unwrap();
        id
    });
    let ids = ids.collect();
    (root, store, ids)
}

fn directory(store: &Store) -> PathBuf {
    store.directory("d")
}

fn files(store: &Store) -> BTreeSet<String> {
    let entries = fs::read_dir(directory(store).join("files")).unwrap().flatten();
    entries.map(|e| format!("files/{}", e.file_name().into_string().unwrap())).collect()
}

fn is_whole(dataset: &Dataset) -> bool {
    dataset.verify().is_empty()
}

#[test]
fn pruning_keeps_the_newest_snapshots_and_the_files_that_they_share() {
    let (_root, store, ids) = store(4);
    let before = files(&store);
    let report = store.prune("d", 2, 0).unwrap();
    assert_eq!(report.removed, [ids[1].clone(), ids[0].clone()]);
    assert_eq!((report.snapshots, report.kept_in_use.len(), report.whole), (2, 0, false));
    let after = files(&store);
    assert_eq!(report.files as usize, before.len() - after.len());
    assert!(report.files > 0 && report.bytes > 0 && after.is_subset(&before));
    for id in &ids[2..] {
        let dataset = store.open(&format!("d@{id}")).unwrap();
        assert!(is_whole(&dataset), "{id}");
        // The file of the times is the same in all of them.
        assert!(after.contains(&file_path(&dataset.manifest.times.sha256)));
    }
    assert_eq!(store.open("d").unwrap().manifest.snapshot, ids[3]);
    assert!(matches!(store.open(&format!("d@{}", ids[0])), Err(MarketError::UnknownSnapshot { .. })));
    // HEAD's is the newest whenever it was written, and one is always kept.
    let other = store.open(&format!("d@{}", ids[2])).unwrap();
    let sink = Sink::in_directory(directory(&store), "d".to_owned(), None);
    sink.publish(&other.manifest, None).unwrap();
    drop(other);
    assert_eq!(store.prune("d", 0, 0).unwrap().removed, [ids[3].clone()]);
    assert!(is_whole(&store.open("d").unwrap()));
}

#[test]
fn a_snapshot_that_a_scan_pins_or_a_process_reads_is_kept_and_reported() {
    let (_root, store, ids) = store(3);
    let pinned = format!("d@{}", ids[0]);
    store.pin(&pinned, "scan-1", 2_000_000).unwrap();
    let open = store.open(&format!("d@{}", ids[1])).unwrap();
    let report = store.prune("d", 1, 1_000_000).unwrap();
    assert!(report.removed.is_empty() && report.files == 0);
    let why: Vec<&str> = report.kept_in_use.iter().map(|used| used.why.as_str()).collect();
    assert!(why[0].contains("is reading it") && why[1].contains("pins it until 1970-01-01T00:00:02Z"), "{why:?}");
    for reference in ["d", pinned.as_str()] {
        let error = store.remove(reference, 1_000_000).unwrap_err().to_string();
        assert!(error.contains("nothing was deleted") && error.contains("a scan of a cluster pins it"), "{error}");
    }
    assert!(is_whole(&open));
    // The clone can still read.
    let clone = open.clone();
    drop(open);
    assert_eq!(store.prune("d", 1, 3_000_000).unwrap().removed, [ids[0].clone()]);
    drop(clone);
    assert_eq!(store.prune("d", 1, 3_000_000).unwrap().removed, [ids[1].clone()]);
    // A pin written after the manifest is gone: pinning reports an error.
    assert!(matches!(store.pin(&pinned, "scan-1", 9_000_000), Err(MarketError::UnknownSnapshot { .. })));
}

#[test]
fn removing_the_newest_snapshot_brings_back_the_one_before() {
    let (_root, store, ids) = store(2);
    let report = store.remove(&format!("d@{}", &ids[1][..12]), 0).unwrap();
    assert_eq!((&report.removed[..], report.snapshots), (&ids[1..], 1));
    let left = store.open("d").unwrap();
    assert!(left.manifest.snapshot == ids[0] && is_whole(&left));
    drop(left);
    let error = store.remove(&format!("d@{}", ids[0]), 0).unwrap_err().to_string();
    assert!(error.contains("only snapshot") && error.contains("trawl data rm d"), "{error}");
    assert!(matches!(store.remove("d@0123456789ab", 0), Err(MarketError::UnknownSnapshot { .. })));
}

#[test]
fn a_removed_dataset_is_gone_with_all_its_files() {
    let (_root, store, ids) = store(2);
    let left = store.root.join(format!("{GOING_DATASET}old-1"));
    fs::create_dir_all(left.join("files")).unwrap();
    let report = store.remove("d", 0).unwrap();
    assert!(report.whole && report.removed.len() == ids.len() && report.files > 4 && report.bytes > 0);
    assert!(!directory(&store).exists() && !left.exists());
    assert!(matches!(store.open("d"), Err(MarketError::UnknownDataset { .. })));
    for (name, expected) in [("us5", "is bundled"), ("d", "no dataset 'd'"), ("../d", "not a dataset name")] {
        let error = store.remove(name, 0).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(store.prune(name, 1, 0).is_err());
    }
    assert!(!directory(&store).exists(), "asking makes nothing");
}

#[test]
fn what_a_crash_left_is_deleted_by_the_next_removal() {
    let (_root, store, ids) = store(3);
    let manifest = |id: &str| directory(&store).join(manifest_path(id));
    let going = |id: &str| directory(&store).join(manifest_path(id) + GOING);
    for id in &ids[..2] {
        fs::rename(manifest(id), going(id)).unwrap();
    }
    fs::write(directory(&store).join("pins-of-none"), b"").unwrap();
    fs::create_dir_all(directory(&store).join("pins")).unwrap();
    fs::write(directory(&store).join(format!("pins/{}.scan", ids[0])), b"5000000\n").unwrap();
    fs::write(directory(&store).join("files/.tmp123"), b"half").unwrap();
    let report = store.prune("d", 3, 1_000_000).unwrap();
    assert!(manifest(&ids[0]).is_file() && !going(&ids[0]).exists(), "the pinned one is back");
    assert!(!manifest(&ids[1]).exists() && !going(&ids[1]).exists());
    assert!(report.files >= 2 && !files(&store).contains("files/.tmp123"));
    assert!([&ids[0], &ids[2]].into_iter().all(|id| is_whole(&store.open(&format!("d@{id}")).unwrap())));
}

#[test]
fn imports_and_compactions_delete_what_killed_processes_left() {
    let (root, store, _) = store(1);
    let left = [FILES, BASES].map(|folder| directory(&store).join(folder).join(".tmp123"));
    let leave = || {
        for file in &left {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, b"half").unwrap();
        }
    };
    let is_there = || left.iter().filter(|file| file.exists()).count();
    let import = || {
        let files = vec![root.path().join("S0.csv")];
        import_files(&store, &ImportOptions { dataset: "d".to_owned(), files, ..ImportOptions::default() }).unwrap()
    };
    leave();
    import();
    assert_eq!(is_there(), 0);
    leave();
    store.compact("d", None).unwrap();
    assert_eq!(is_there(), 0);
    // Those of a process that runs are kept.
    leave();
    let compaction = CompactionLock::take(&directory(&store), "d").unwrap();
    import();
    assert_eq!(is_there(), 2);
    drop(compaction);
    let import = WriteLock::take(&directory(&store), "d").unwrap();
    store.compact("d", None).unwrap();
    assert_eq!(is_there(), 2);
    drop(import);
    assert!(is_whole(&store.open("d").unwrap()));
}

#[test]
fn files_are_kept_while_a_manifest_cannot_be_read() {
    let (_root, store, ids) = store(3);
    fs::write(directory(&store).join(manifest_path(&ids[1])), b"{").unwrap();
    let before = files(&store);
    assert!(matches!(store.prune("d", 2, 0), Err(MarketError::Corrupt { .. })));
    assert_eq!(files(&store), before);
    // The damaged one itself can go.
    store.remove(&format!("d@{}", ids[1]), 0).unwrap();
    assert!(is_whole(&store.open("d").unwrap()));
}

#[test]
fn removals_exclude_imports() {
    let (_root, store, _) = store(2);
    let _import = WriteLock::take(&directory(&store), "d").unwrap();
    assert!(matches!(store.prune("d", 1, 0), Err(MarketError::Busy { .. })));
    assert!(matches!(store.remove("d", 0), Err(MarketError::Busy { .. })));
}
