//! Datasets of every format that was ever written open, with the same ids and the same bars. Their files are in `formats`, written by
//! the program that had the format last: `v1` and `v2` before bars could be appended.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::{load_all, names};
use trawl_market::{Appending, Dataset, ImportOptions, Store, format_time, import_files};

/// A copy of a dataset, which may be written to.
fn copy(name: &str) -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats").join(name), &root.path().join(name));
    let store = Store::new(root.path().to_owned());
    (root, store)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Closes of a symbol, without their halves.
const CLOSES: [f64; 10] = [13.0, 19.0, 18.0, 12.0, 15.0, 19.0, 17.0, 20.0, 19.0, 11.0];

fn check(dataset: &Dataset, bars: usize) {
    assert!(dataset.verify().is_empty());
    let all = load_all(dataset);
    assert_eq!(all.iter().map(|bars| &*bars.symbol).collect::<Vec<_>>(), ["AAA", "BBB", "C.C"]);
    assert!(all.iter().all(|one| one.times.len() == bars && one.columns[4][bars - 1] == 100.0 * bars as f64));
    let closes: Vec<f64> = CLOSES[..bars].iter().map(|close| close + 0.5).collect();
    assert_eq!(dataset.load_symbol("AAA", &names(&["close"])).unwrap().columns[0][..], closes);
    let times = dataset.times().unwrap();
    assert_eq!((times.len(), format_time(times[0])), (bars, "2024-01-02".to_owned()));
}

#[test]
fn version_1_opens() {
    let (_root, store) = copy("v1");
    let dataset = store.open("v1").unwrap();
    assert_eq!(dataset.manifest.version, 1);
    assert_eq!(dataset.manifest.snapshot, "aef19568aca59e3d7c172decd766f0f91a8db4616c695440ea2061e23395e6c2");
    check(&dataset, 10);
    assert!(store.compact("v1", None).unwrap().unchanged);
}

#[test]
fn version_2_opens_with_its_tables_and_calendar() {
    let (_root, store) = copy("v2");
    let dataset = store.open("v2").unwrap();
    assert_eq!(dataset.manifest.version, 2);
    assert_eq!(dataset.manifest.snapshot, "36bca46adc9c188b4c53d05fea80917cf5f1b7937585dd2e5d077f2a24284d3e");
    check(&dataset, 10);
    assert_eq!((dataset.manifest.calendar().name(), dataset.manifest.labels()), ("24/7", &names(&["sector"])[..]));
    assert_eq!((dataset.factors().unwrap().len(), dataset.symbol_table().unwrap().rows().len()), (2, 2));
}

/// Makes the dataset of `v3`: two symbols, then later bars of them and a third one, then later bars of all.
fn appended(store: &Store, source: &Dataset, scratch: &Path) {
    let all = load_all(source);
    for (number, (days, symbols)) in [(0..6, 2), (6..8, 3), (8..10, 3)].into_iter().enumerate() {
        let mut text = "date,symbol,open,high,low,close,volume\n".to_owned();
        for (at, bars) in all[..symbols].iter().enumerate() {
            // The third symbol begins with its first bar.
            for row in if at == 2 && number == 1 { 0..8 } else { days.clone() } {
                let cells: Vec<String> = bars.columns.iter().map(|column| column[row].to_string()).collect();
                text += &format!("{},{},{}\n", format_time(bars.times[row]), bars.symbol, cells.join(","));
            }
        }
        let file = scratch.join(format!("{number}.csv"));
        fs::write(&file, text).unwrap();
        let options = ImportOptions {
            dataset: "v3".to_owned(),
            files: vec![file],
            calendar: Some("24/7".to_owned()),
            appending: Appending::Always,
            ..ImportOptions::default()
        };
        import_files(store, &options).unwrap();
    }
}

/// Paths and contents of the files below a folder, without locks.
fn contents(folder: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = format!("{below}/{}", entry.file_name().into_string().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => contents(&entry.path(), &name, found),
            false if name.ends_with("lock") => {}
            false => drop(found.insert(name, fs::read(entry.path()).unwrap())),
        }
    }
}

#[test]
fn version_3_opens_with_its_appended_bars_and_is_compacted() {
    let (_root, store) = copy("v3");
    let dataset = store.open("v3").unwrap();
    let manifest = &dataset.manifest;
    assert_eq!((manifest.version, manifest.tails().len(), manifest.symbols.len()), (3, 2, 3));
    assert_eq!(manifest.snapshot, "c8a08861acf2f9d6979c5ac1e92a3a49a76fc42856acb950bfae1704e4ec17a2");
    check(&dataset, 10);
    let base = manifest.appended.as_ref().unwrap().base.clone();
    let base = store.open(&format!("v3@{base}")).unwrap();
    assert_eq!((base.manifest.version, base.manifest.symbols.len(), base.manifest.bars), (2, 2, 12));
    assert_eq!(
        store.compact("v3", None).unwrap().snapshot,
        "a2b08bad356b51826417d1c036ab85d3226e70860a096030bfd213213c5a416b"
    );
    let whole = store.open("v3").unwrap();
    assert_eq!((whole.manifest.version, whole.manifest.tails().len()), (2, 0));
    check(&whole, 10);
}

#[test]
fn version_3_is_written_as_it_was() {
    let (root, store) = copy("v2");
    // Where it stays, for whoever changes the format on purpose: a new version then, and a new folder.
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("formats");
    drop(fs::remove_dir_all(&made));
    appended(&Store::new(made.clone()), &store.open("v2").unwrap(), root.path());
    let (mut new, mut kept) = (BTreeMap::new(), BTreeMap::new());
    contents(&made.join("v3"), "", &mut new);
    contents(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/v3"), "", &mut kept);
    assert_eq!(new.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
    // Checksums have a version of their own. The kept ones are of the first, which is read.
    for (name, kept) in &mut kept {
        if name.ends_with(".sums") {
            let new = new.get_mut(name).unwrap();
            assert_eq!((&kept[..8], &new[..8]), (&b"TRAWLSM1"[..], &b"TRAWLSM2"[..]), "{name}");
            new.clone_from(kept);
        }
    }
    assert!(new == kept, "in {}", made.display());
}
