//! Appended bars: the same bars as in a dataset that is written whole, whatever was appended, in whichever order, after whichever
//! damage; and the snapshot of the whole dataset once they are compacted.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Place, load_all, names, options};
use proptest::prelude::*;
use trawl_market::{
    Adjustment, AdjustmentMode, Appending, AsOf, ColumnCache, Dataset, ImportOptions, ImportReport, InspectOptions,
    LoadedBars, MarketError, Reads, Timeframe, import_files, inspect,
};

/// A bar: symbol, day after 2024-01-01, close.
type Bar = (usize, u32, u32);

fn symbol(number: usize) -> String {
    // Names that share beginnings, also of characters of two bytes.
    format!("{}{number}", ["S", "Sé", "Sè", "T.A"][number % 4])
}

fn csv(bars: &[Bar]) -> String {
    let mut bars = bars.to_vec();
    bars.sort_unstable();
    let mut text = "date,symbol,open,high,low,close,volume,extra\n".to_owned();
    for (number, day, close) in bars {
        let date = chrono_like(day);
        // A column that some bars lack.
        let extra = if day % 3 == 0 { String::new() } else { day.to_string() };
        text += &format!("{date},{},{close},{},{},{close},{},{extra}\n", symbol(number), close + 1, close - 1, day + 1);
    }
    text
}

/// A date of 24/7's calendar: months of 28 days.
fn chrono_like(day: u32) -> String {
    format!("{}-{:02}-{:02}", 2000 + day / 336, 1 + day / 28 % 12, 1 + day % 28)
}

fn import(place: &Place, dataset: &str, bars: &[Bar], appending: Appending) -> ImportReport {
    let file = place.write(&format!("{dataset}.csv"), csv(bars));
    let more = ImportOptions {
        timeframe: Some(Timeframe::DAY),
        calendar: Some("24/7".to_owned()),
        appending,
        ..options(dataset, &[file])
    };
    import_files(&place.store, &more).unwrap()
}

fn open(place: &Place, dataset: &str) -> Dataset {
    place.store.open(dataset).unwrap()
}

/// Equal in everything but how they are stored.
fn assert_same(appended: &Dataset, whole: &Dataset) {
    assert_eq!(appended.manifest.symbols, whole.manifest.symbols);
    assert_eq!(appended.times().unwrap(), whole.times().unwrap());
    assert_eq!(appended.manifest.distinct_times(), whole.manifest.distinct_times());
    let (a, b) = (load_all(appended), load_all(whole));
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
    let columns = names(&["volume", "extra", "close"]);
    for bars in &b {
        let one = |dataset: &Dataset| format!("{:?}", dataset.load_symbol(&bars.symbol, &columns).unwrap());
        assert_eq!(one(appended), one(whole));
    }
    let kept = appended.clone().keeping_columns(names(&["close"]), 1 << 20);
    for group in 0..whole.manifest.groups {
        for _ in 0..2 {
            assert_eq!(
                format!("{:?}", kept.load_group(group, &columns).unwrap()),
                format!("{:?}", whole.load_group(group, &columns).unwrap())
            );
        }
    }
    let cache = Arc::new(ColumnCache::new(1 << 24));
    let shared = [appended, whole, appended].map(|dataset| dataset.clone().sharing_columns(&cache));
    for group in 0..whole.manifest.groups {
        let expected = whole.load_group(group, &columns).unwrap();
        for shared in &shared {
            assert_eq!(format!("{:?}", shared.load_group(group, &columns).unwrap()), format!("{expected:?}"));
            // Of the group that is in memory now.
            for bars in &expected {
                let one = shared.load_symbol(&bars.symbol, &columns).unwrap();
                assert_eq!(format!("{one:?}"), format!("{bars:?}"));
            }
        }
    }
    assert!(appended.verify().is_empty());
    let (mut a, mut b) = (seen(appended), seen(whole));
    for seen in [&mut a, &mut b] {
        (seen.dataset, seen.snapshot, seen.bytes) = Default::default();
        (seen.files, seen.appended_files, seen.appended_bars) = Default::default();
        seen.checks.as_mut().unwrap().files = 0;
    }
    assert_eq!(a, b);
}

fn seen(dataset: &Dataset) -> trawl_market::Inspection {
    inspect(dataset, InspectOptions { verify: true, ..InspectOptions::default() }).unwrap()
}

/// Reports of two datasets that got the same bars.
fn assert_same_report(a: &ImportReport, b: &ImportReport) {
    let counts = |r: &ImportReport| {
        (r.rows_added, r.rows_unchanged, r.rows_revised, r.symbols, r.bars, r.first_time, r.last_time, r.unchanged)
    };
    assert_eq!(counts(a), counts(b));
    assert_eq!((a.jumps, &a.jumps_listed), (b.jumps, &b.jumps_listed));
    assert_eq!((a.complete_to, &a.calendar, &a.columns, &a.notes), (b.complete_to, &b.calendar, &b.columns, &b.notes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Imports of any bars: later ones, known ones, revised ones, ones in between, new symbols.
    #[test]
    fn any_imports_give_the_bars_of_a_dataset_that_is_written_whole(
        imports in prop::collection::vec(
            (prop::collection::btree_set((0usize..150, 0u32..4), 1..60), 0u32..6, 0u32..40),
            2..9,
        )
    ) {
        let place = Place::new();
        let mut start = 0;
        for (bars, step, odd) in imports {
            start += step;
            // A close that follows from symbol and day is known when it comes again; the others are revised.
            let close = |s: usize, day: u32| 10 + (s as u32 + day) % 5 + if odd == 0 { 40 } else { 0 };
            let bars: Vec<Bar> = bars.into_iter().map(|(s, day)| (s, start + day, close(s, start + day))).collect();
            let whole = import(&place, "whole", &bars, Appending::Never);
            let appended = import(&place, "appended", &bars, Appending::Always);
            assert_same_report(&appended, &whole);
            assert_same(&open(&place, "appended"), &open(&place, "whole"));
        }
        let report = place.store.compact("appended", None).unwrap();
        assert_eq!(report.snapshot, open(&place, "whole").manifest.snapshot);
        assert_same(&open(&place, "appended"), &open(&place, "whole"));
    }
}

/// Bars of so many symbols on each of these days.
fn days(symbols: usize, days: std::ops::Range<u32>) -> Vec<Bar> {
    days.flat_map(|day| (0..symbols).map(move |s| (s, day, 20 + (s as u32 + day) % 7))).collect()
}

fn tails(dataset: &Dataset) -> usize {
    dataset.manifest.tails().len()
}

#[test]
fn later_bars_are_appended_and_a_file_of_the_whole_history_adds_only_these() {
    let place = Place::new();
    import(&place, "d", &days(130, 0..20), Appending::Always);
    let base = open(&place, "d");
    assert_eq!((tails(&base), base.manifest.version), (0, 2), "a new dataset is written whole");
    let report = import(&place, "d", &days(140, 0..22), Appending::Always);
    // Ten symbols are new.
    assert_eq!((report.rows_added, report.rows_unchanged, report.files_written), (130 * 2 + 10 * 22, 130 * 20, 1));
    let dataset = open(&place, "d");
    assert_eq!((tails(&dataset), dataset.manifest.version), (1, 3));
    assert_eq!(dataset.manifest.files, base.manifest.files);
    assert_eq!(dataset.manifest.tails()[0].rows, 130 * 2 + 10 * 22);
    let again = import(&place, "d", &days(140, 0..22), Appending::Always);
    assert!(again.unchanged && again.snapshot == report.snapshot);
    // The old one opens as it was.
    assert_eq!(open(&place, &format!("d@{}", base.manifest.snapshot)).manifest, base.manifest);
    // As-of.
    let at = |dataset: &Dataset, as_of: &str| {
        let as_of = AsOf::parse(as_of).unwrap();
        dataset.resolve_as_of(&as_of, false, i64::MAX / 2).unwrap().map(|found| found.bar)
    };
    import(&place, "whole", &days(140, 0..22), Appending::Never);
    for as_of in ["now", "2000-01-21", "2000-01-22", "2000-01-10"] {
        assert_eq!(at(&dataset, as_of), at(&open(&place, "whole"), as_of), "{as_of}");
    }
}

/// What was read of bars.
fn read_part(bars: &[LoadedBars]) -> Vec<String> {
    let read = |LoadedBars { symbol, times, columns, unread, .. }: &LoadedBars| {
        let columns: Vec<&[f64]> = columns.iter().map(|column| &column[*unread..]).collect();
        format!("{symbol} {} {unread} {:?} {columns:?}", times.len(), &times[*unread..])
    };
    bars.iter().map(read).collect()
}

#[test]
fn snapshots_share_the_bars_in_memory_and_appended_ones_are_laid_behind_them() {
    let place = Place::new();
    import(&place, "d", &days(3, 0..9_000), Appending::Always);
    let columns = names(&["close", "volume"]);
    let load = |dataset: &Dataset, newest: u64| {
        dataset.load_group_newest(0, &columns, &Adjustment::NONE, newest).map_err(|error| error.to_string())
    };
    let reads = |columns, newest| Reads { columns, adjustment: &Adjustment::NONE, newest };
    let resident = |dataset: &Dataset, newest| dataset.is_resident(0, &reads(&columns, Some(newest)));
    let [whole, part] = [64 << 20, 64 << 20].map(|bytes| Arc::new(ColumnCache::new(bytes)));
    let base = open(&place, "d");
    load(&base.clone().sharing_columns(&whole), 20_000).unwrap();
    // From the second chunk of 4,096 bars on.
    load(&base.clone().sharing_columns(&part), 2_000).unwrap();
    assert!(part.bytes() < whole.bytes() && !resident(&base, 1));
    import(&place, "d", &days(3, 9_000..9_003), Appending::Always);
    let plain = open(&place, "d");
    assert_eq!(tails(&plain), 1);
    let wanted = [1, 2_000, 5_000, 20_000];
    let expected = wanted.map(|newest| load(&plain, newest).unwrap());
    // What is in memory needs no file.
    fs::remove_file(place.store.root.join(format!("d/files/{}.arrow", base.manifest.files[0].sha256))).unwrap();
    assert!(load(&plain, 1).is_err());
    let symbol = &expected[3][0].symbol;
    let one = |cache| plain.clone().sharing_columns(cache).load_symbol(symbol, &columns);
    assert_eq!(format!("{:?}", one(&whole).unwrap()), format!("{:?}", expected[3][0]));
    assert!(one(&part).is_err(), "its first bars are not in memory");
    let (whole, part) = (plain.clone().sharing_columns(&whole), plain.clone().sharing_columns(&part));
    for (newest, expected) in wanted.into_iter().zip(&expected) {
        for _ in 0..2 {
            assert!(resident(&whole, newest));
            assert_eq!(read_part(&load(&whole, newest).unwrap()), read_part(expected), "{newest}");
        }
    }
    assert_eq!(wanted.map(|newest| resident(&part, newest)), [false, true, false, false]);
    assert_eq!(read_part(&load(&part, 2_000).unwrap()), read_part(&expected[1]));
    assert!(load(&part, 5_000).is_err());
    // Other columns were never read.
    assert!(!whole.is_resident(0, &reads(&names(&["open"]), None)));
}

#[test]
fn revised_bars_and_new_columns_write_the_groups_whole() {
    let place = Place::new();
    for (name, appending) in [("d", Appending::Always), ("whole", Appending::Never)] {
        import(&place, name, &days(70, 0..5), appending);
        import(&place, name, &days(70, 5..6), appending);
        import(&place, name, &[(3, 5, 99)], appending);
    }
    let dataset = open(&place, "d");
    assert_eq!((tails(&dataset), &dataset.manifest.snapshot), (0, &open(&place, "whole").manifest.snapshot));
    import(&place, "d", &days(70, 6..7), Appending::Always);
    let file = place.write("more.csv", "date,symbol,close,turnover\n2000-01-08,S0,20,5\n2000-01-09,S0,20,5\n");
    import_files(&place.store, &ImportOptions { appending: Appending::Always, ..options("d", &[file]) }).unwrap();
    let dataset = open(&place, "d");
    assert!(tails(&dataset) == 0 && dataset.manifest.columns.contains(&"turnover".to_owned()));
    assert_eq!(dataset.manifest.bars, 70 * 7 + 2);
}

#[test]
fn many_appends_leave_few_files_and_the_same_bars() {
    let place = Place::new();
    import(&place, "d", &days(70, 0..3), Appending::Always);
    let mut most = 0;
    for day in 3..75 {
        let report = import(&place, "d", &days(70, day..day + 1), Appending::Always);
        most = most.max(tails(&open(&place, "d")));
        assert!(report.files_written <= 2);
    }
    assert!((31..=33).contains(&most), "{most} files at once");
    import(&place, "whole", &days(70, 0..75), Appending::Never);
    assert_same(&open(&place, "d"), &open(&place, "whole"));
    let report = place.store.compact("d", None).unwrap();
    assert!(!report.unchanged && report.appended_files > 0 && report.appended_left == 0);
    assert_eq!(report.snapshot, open(&place, "whole").manifest.snapshot);
    assert!(place.store.compact("d", None).unwrap().unchanged);
}

#[test]
fn a_large_dataset_is_appended_to_and_a_small_one_written_whole() {
    let place = Place::new();
    let auto = |name: &str, bars: &[Bar]| import(&place, name, bars, Appending::Auto);
    auto("small", &days(70, 0..10));
    auto("small", &days(70, 10..11));
    assert_eq!(tails(&open(&place, "small")), 0);
    auto("large", &days(200, 0..150));
    let folder = place.store.root.join("large");
    let before = bytes_below(&folder);
    auto("large", &days(200, 150..151));
    let dataset = open(&place, "large");
    assert_eq!(tails(&dataset), 1);
    let own = 200 * 7 * 8;
    let written = bytes_below(&folder) - before - dataset_manifest_bytes(&folder, &dataset);
    assert!(written < 3 * own, "{written} bytes for {own}");
    // Half as much again is written whole.
    auto("large", &days(200, 151..226));
    assert_eq!(tails(&open(&place, "large")), 0);
}

fn dataset_manifest_bytes(folder: &Path, dataset: &Dataset) -> u64 {
    let base = &dataset.manifest.appended.as_ref().unwrap().base;
    // A second name of the base's manifest is counted as if it were a copy.
    fs::metadata(folder.join(format!("bases/{base}.json"))).unwrap().len()
}

fn bytes_below(folder: &Path) -> u64 {
    files_below(folder).iter().map(|file| fs::metadata(file).unwrap().len()).sum()
}

fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_below(&entry.path())),
            false => drop(found.insert(entry.path())),
        }
    }
    found
}

#[test]
fn no_flipped_byte_of_appended_bars_or_their_index_enters_an_answer() {
    let place = Place::new();
    import(&place, "d", &days(5, 0..3), Appending::Always);
    import(&place, "d", &days(6, 3..5), Appending::Always);
    let dataset = open(&place, "d");
    let read = names(&["close", "volume"]);
    let intact = format!("{:?}", dataset.load_group(0, &read).unwrap());
    let tail = dataset.manifest.tails()[0].clone();
    let bars = place.store.root.join(format!("d/files/{}.arrow", tail.sha256));
    let whole = fs::read(&bars).unwrap();
    let (mut found, mut unread) = (0, 0);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&bars, &damaged).unwrap();
        // Opened anew: an open snapshot keeps what it has read of small files.
        {
            let opened = open(&place, "d");
            match opened.load_group(0, &read) {
                Err(MarketError::Checksum { expected, .. }) => {
                    assert_eq!(expected, tail.sha256);
                    found += 1;
                }
                Ok(bars) => {
                    assert_eq!(format!("{bars:?}"), intact, "byte {at} entered the bars");
                    unread += 1;
                }
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
        assert_eq!(dataset.verify().len(), 1, "byte {at}");
    }
    // Times and two columns of 12 bars.
    assert!(found >= 3 * 8 * 12 && unread > 0, "{found} found, {unread} not read");
    fs::write(&bars, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(open(&place, "d").load_group(0, &read), Err(MarketError::Checksum { .. })));
    fs::remove_file(&bars).unwrap();
    let gone = open(&place, "d");
    assert!(gone.load_group(0, &read).is_err() && gone.load_symbol("S0", &read).is_err());
    assert_eq!(format!("{:?}", dataset.load_group(0, &read).unwrap()), intact, "what was read is kept");
    assert!(dataset.load_group(0, &names(&["open"])).is_err(), "the open was never read");
    fs::write(&bars, &whole).unwrap();
    let index = place.store.root.join(format!("d/files/{}.tail", tail.index));
    let whole = fs::read(&index).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&index, &damaged).unwrap();
        assert!(matches!(place.store.open("d"), Err(MarketError::Checksum { .. })), "byte {at}");
    }
    fs::remove_file(&index).unwrap();
    assert!(place.store.open("d").is_err());
    assert_eq!(dataset.verify().len(), 1, "the open snapshot reports it");
}

#[test]
fn a_manifest_whose_appended_bars_do_not_fit_is_refused() {
    let place = Place::new();
    import(&place, "d", &days(5, 0..3), Appending::Always);
    import(&place, "d", &days(5, 3..5), Appending::Always);
    import(&place, "d", &days(5, 5..6), Appending::Always);
    let good = (*open(&place, "d").manifest).clone();
    let folder = place.store.root.join("d/snapshots");
    let try_open = |change: &dyn Fn(&mut trawl_market::Manifest)| {
        let mut manifest = good.clone();
        (manifest.files, manifest.symbols) = (Vec::new(), Vec::new());
        change(&mut manifest);
        manifest.snapshot = manifest.content_id();
        let path = folder.join(format!("{}.json", manifest.snapshot));
        fs::write(path, serde_json::to_vec(&manifest).unwrap()).unwrap();
        place.store.open(&format!("d@{}", manifest.snapshot)).map(|_| ())
    };
    assert!(try_open(&|_| ()).is_ok());
    type Change = Box<dyn Fn(&mut trawl_market::Appended)>;
    let changes: [Change; 6] = [
        Box::new(|appended| appended.tails.reverse()),
        Box::new(|appended| appended.tails.push(appended.tails[1].clone())),
        Box::new(|appended| drop(appended.tails.pop())),
        Box::new(|appended| appended.tails.clear()),
        Box::new(|appended| appended.tails[0].sha256 = "../../secret".to_owned()),
        Box::new(|appended| appended.base = "../../secret".to_owned()),
    ];
    for (at, change) in changes.iter().enumerate() {
        let error = try_open(&|manifest| change(manifest.appended.as_mut().unwrap())).unwrap_err();
        assert!(matches!(error, MarketError::Corrupt { .. }), "change {at}: {error}");
    }
    let error = try_open(&|manifest| manifest.columns.swap(0, 1)).unwrap_err();
    assert!(matches!(error, MarketError::Corrupt { .. }), "{error}");
    // The wrong number of distinct times is noticed when they are read.
    let mut manifest = good.clone();
    (manifest.files, manifest.symbols) = (Vec::new(), Vec::new());
    manifest.appended.as_mut().unwrap().times += 1;
    manifest.snapshot = manifest.content_id();
    fs::write(folder.join(format!("{}.json", manifest.snapshot)), serde_json::to_vec(&manifest).unwrap()).unwrap();
    assert!(open(&place, &format!("d@{}", manifest.snapshot)).times().is_err());
}

#[test]
fn appended_bars_that_are_not_later_than_those_before_are_refused_though_all_totals_are_right() {
    let place = Place::new();
    import(&place, "d", &days(5, 0..3), Appending::Always);
    // The last bar of all is in the first file: its place changes none of the totals.
    import(&place, "d", &[(0, 3, 20), (1, 9, 20)], Appending::Always);
    import(&place, "d", &[(0, 4, 20), (2, 5, 20)], Appending::Always);
    let mut manifest = (*open(&place, "d").manifest).clone();
    (manifest.files, manifest.symbols) = (Vec::new(), Vec::new());
    manifest.appended.as_mut().unwrap().tails.reverse();
    manifest.snapshot = manifest.content_id();
    let path = place.store.root.join(format!("d/snapshots/{}.json", manifest.snapshot));
    fs::write(path, serde_json::to_vec(&manifest).unwrap()).unwrap();
    let error = place.store.open(&format!("d@{}", manifest.snapshot)).unwrap_err();
    assert!(error.to_string().contains("not later than those before"), "{error}");
}

#[test]
fn a_crash_at_any_point_of_an_append_leaves_the_old_snapshot_whole_and_the_next_one_succeeds() {
    let place = Place::new();
    import(&place, "d", &days(70, 0..5), Appending::Always);
    import(&place, "d", &days(70, 5..6), Appending::Always);
    let folder = place.store.root.join("d");
    let before = files_below(&folder);
    let old = open(&place, "d");
    let head = fs::read(folder.join("HEAD")).unwrap();
    let new = import(&place, "d", &days(71, 6..7), Appending::Always).snapshot;
    let mut added: Vec<(PathBuf, Vec<u8>)> =
        files_below(&folder).difference(&before).map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert_eq!(added.len(), 3, "bars, their index, and the manifest");
    // In the order in which they were written: the bars, the index, the manifest.
    added.sort_by_key(|(path, _)| {
        ["arrow", "tail", "json"].map(|e| path.extension().is_some_and(|x| x == e)).iter().position(|is| *is)
    });
    for written in 0..=added.len() {
        for torn in [false, true] {
            added.iter().for_each(|(path, _)| drop(fs::remove_file(path)));
            for (path, bytes) in &added[..written] {
                fs::write(path, bytes).unwrap();
            }
            if torn {
                fs::write(folder.join("files/.tmpXYZ"), b"half").unwrap();
            }
            fs::write(folder.join("HEAD"), &head).unwrap();
            let found = open(&place, "d");
            assert_eq!(found.manifest.snapshot, old.manifest.snapshot, "{written} files were written");
            assert!(found.verify().is_empty());
            drop(found);
            assert_eq!(import(&place, "d", &days(71, 6..7), Appending::Always).snapshot, new);
            assert!(open(&place, "d").verify().is_empty());
        }
    }
    drop(old);
    place.store.prune("d", 1, 0).unwrap();
    assert!(!folder.join("files/.tmpXYZ").exists() && open(&place, "d").verify().is_empty());
}

#[test]
fn removing_snapshots_keeps_the_base_and_the_appended_bars_that_others_need() {
    let place = Place::new();
    let folder = place.store.root.join("d");
    let ids: Vec<String> =
        (0..4).map(|day| import(&place, "d", &days(70, day * 2..day * 2 + 2), Appending::Always).snapshot).collect();
    let count = |folder: &Path, ending: &str| {
        files_below(folder).iter().filter(|file| file.extension().is_some_and(|e| e == ending)).count()
    };
    // The base goes, its manifest and files stay.
    place.store.pin(&format!("d@{}", ids[2]), "scan-1", 1_000).unwrap();
    let report = place.store.remove(&format!("d@{}", ids[0]), 0).unwrap();
    assert_eq!(report.files, 0);
    assert!(place.store.open(&format!("d@{}", ids[0])).is_err());
    let reading = open(&place, &format!("d@{}", ids[1]));
    let report = place.store.prune("d", 1, 500).unwrap();
    assert_eq!((report.removed.len(), report.kept_in_use.len()), (0, 2), "one is pinned and one is read");
    assert!(reading.verify().is_empty() && open(&place, "d").verify().is_empty());
    drop(reading);
    let compacted = place.store.compact("d", None).unwrap();
    assert_eq!(compacted.appended_files, 3);
    // Pinned: readable as before, with the old base.
    let pinned = open(&place, &format!("d@{}", ids[2]));
    assert!(pinned.verify().is_empty() && tails(&pinned) == 2);
    drop(pinned);
    let report = place.store.prune("d", 1, 500).unwrap();
    assert_eq!(report.kept_in_use.len(), 1);
    assert_eq!((count(&folder.join("files"), "tail"), count(&folder, "json")), (2, 3));
    assert!(open(&place, &format!("d@{}", ids[2])).verify().is_empty());
    place.store.prune("d", 1, 2_000).unwrap();
    let left = open(&place, "d");
    assert_eq!((count(&folder.join("files"), "tail"), count(&folder, "json")), (0, 1));
    assert_eq!(count(&folder.join("files"), "arrow"), left.manifest.files.len() + 1);
    assert!(left.verify().is_empty() && left.manifest.bars == 70 * 8);
}

#[test]
fn tables_calendar_and_adjustments_apply_to_appended_bars() {
    let place = Place::new();
    let factors = place.write("factors.csv", "symbol,date,split,dividend\nS0,2000-01-04,2,0\nS0,2000-01-06,3,0.5\n");
    for (name, appending) in [("d", Appending::Always), ("whole", Appending::Never)] {
        import(&place, name, &days(70, 0..4), appending);
        import(&place, name, &days(70, 4..8), appending);
        let more = ImportOptions { factors: Some(factors.clone()), appending, ..options(name, &[]) };
        import_files(&place.store, &more).unwrap();
    }
    let (appended, whole) = (open(&place, "d"), open(&place, "whole"));
    assert_eq!((tails(&appended), appended.manifest.factors.is_some()), (1, true));
    assert_same(&appended, &whole);
    let columns = names(&["close", "volume"]);
    let as_of = appended.manifest.last_time;
    for mode in [AdjustmentMode::Split, AdjustmentMode::SplitAndDividend] {
        for at_last in [false, true] {
            let adjustment = Adjustment { mode, as_of, by_date: false, at_last };
            let group = appended.manifest.symbol("S0").unwrap().group;
            let span = (whole.manifest.first_time, as_of);
            let bars = |dataset: &Dataset| {
                let bars = dataset.load_group_adjusted(group, &columns, &adjustment).unwrap();
                let vintages =
                    dataset.load_group_vintages((group, 0..usize::MAX), &columns, &adjustment, span).unwrap();
                format!("{bars:?} {vintages:?}")
            };
            assert_eq!(bars(&appended), bars(&whole));
        }
    }
    assert_eq!(place.store.compact("d", None).unwrap().snapshot, whole.manifest.snapshot);
}

#[test]
fn the_same_appends_give_the_same_snapshot_under_any_name() {
    let place = Place::new();
    let id = |name: &str| {
        import(&place, name, &days(70, 0..4), Appending::Always);
        import(&place, name, &days(72, 4..5), Appending::Always).snapshot
    };
    let first = id("one");
    assert_eq!(first, id("two"));
    // Another way to append the same bars is another snapshot, as long as they are not compacted.
    import(&place, "three", &days(70, 0..4), Appending::Always);
    import(&place, "three", &days(30, 4..5), Appending::Always);
    assert_ne!(import(&place, "three", &days(72, 4..5), Appending::Always).snapshot, first);
    assert_eq!(
        place.store.compact("one", None).unwrap().snapshot,
        place.store.compact("three", None).unwrap().snapshot
    );
}

/// Of histories of more than two chunks, the newest bars are what they are in the whole; a chunk that holds none of them is
/// not read, so that damage there is not noticed.
#[test]
fn the_newest_bars_are_read_alone_and_are_those_of_the_whole() {
    const CHUNK: usize = trawl_market::CHUNK_ROWS as usize;
    let place = Place::new();
    let bars = |days: std::ops::Range<u32>| -> Vec<Bar> {
        let of = |day: u32| (0..3).filter(move |s| day >= 500 * s).map(move |s| (s as usize, day, 10 + (day + s) % 7));
        days.flat_map(of).collect()
    };
    import(&place, "d", &bars(0..9_000), Appending::Always);
    import(&place, "d", &bars(9_000..9_003), Appending::Always);
    let (dataset, columns) = (open(&place, "d"), names(&["volume", "close", "extra"]));
    assert_eq!(tails(&dataset), 1);
    for group in 0..dataset.manifest.groups {
        let whole = dataset.load_group(group, &columns).unwrap();
        for newest in [1, 2, 3, 4, 5, 800, CHUNK, CHUNK + 9, 8_400, 8_999, 9_000, 20_000] {
            let read = dataset.load_group_newest(group, &columns, &Adjustment::NONE, newest as u64).unwrap();
            assert_eq!(read.len(), whole.len());
            for (read, whole) in read.iter().zip(&whole) {
                let (unread, rows) = (read.unread, whole.times.len());
                assert_eq!((&read.symbol, read.times.len(), whole.unread), (&whole.symbol, rows, 0));
                // All of the group's file may be left out where the appended bars suffice.
                assert!(
                    unread + newest.min(rows) <= rows && (unread % CHUNK == 0 || unread == rows - 3),
                    "{unread} of {rows}"
                );
                assert!(rows - unread < newest + CHUNK || unread == 0, "{unread} of {rows} for {newest}");
                assert_eq!(read.times[unread..], whole.times[unread..]);
                for (read, whole) in read.columns.iter().zip(&whole.columns) {
                    let bits = |values: &[f64]| values[unread..].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!((read.len(), bits(read)), (rows, bits(whole)));
                }
            }
        }
    }
}
