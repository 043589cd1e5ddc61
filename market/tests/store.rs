//! The store: damage is noticed, names cannot escape the data root, synthetic markets are the same everywhere.

mod common;
#[path = "common/facts.rs"]
mod facts;

use std::fs;

use common::{Place, load_all, names};
use trawl_market::{
    Dataset, ImportOptions, InspectOptions, MarketError, MarketErrorKind, SynthOptions, Timeframe, import_files,
    inspect, synthesise,
};

fn synth(name: &str, symbols: u32, bars: u32) -> SynthOptions {
    SynthOptions { name: name.to_owned(), symbols, bars, seed: 9, timeframe: Timeframe::DAY }
}

#[test]
fn a_damaged_group_is_reported_with_both_checksums_and_the_others_are_not() {
    let place = Place::new();
    synthesise(&place.store, &synth("market", 200, 30)).unwrap();
    let dataset = place.store.open("market").unwrap();
    let path = place.group_file(&dataset, 2);
    let whole = fs::read(&path).unwrap();
    for sums in [true, false] {
        if !sums {
            fs::remove_file(path.with_extension("sums")).unwrap();
        }
        // Without checksums of columns, damage anywhere in the file; with them, in what is read: the close.
        let places = if sums { vec![at_of(&dataset, &whole, 2)] } else { vec![0, whole.len() / 2, whole.len() - 1] };
        for at in places {
            flip(&path, &whole, at);
            // Opened anew: an open dataset knows the checksums of what it has read.
            match place.store.open("market").unwrap().load_group(2, &names(&["close"])) {
                Err(MarketError::Checksum { file, expected, found }) => {
                    assert!(file.starts_with("market/files/"), "{file}");
                    assert_eq!(expected, dataset.manifest.file(2).unwrap().sha256);
                    assert_ne!(expected, found);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(dataset.load_group(1, &names(&["close"])).is_ok());
    assert_eq!(dataset.verify().len(), 1);
    let seen = inspect(&dataset, InspectOptions { verify: true, ..InspectOptions::default() }).unwrap();
    assert_eq!(seen.checks.unwrap().problems.len(), 1);
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(dataset.load_group(2, &[]), Err(MarketError::Checksum { .. })));
    fs::remove_file(&path).unwrap();
    let error = dataset.load_group(2, &[]).unwrap_err();
    assert_eq!(error.kind(), MarketErrorKind::Permanent, "{error}");
    // Generating the same market again repairs it.
    synthesise(&place.store, &synth("market", 200, 30)).unwrap();
    assert!(dataset.verify().is_empty());
}

/// A byte of the close of a group's first symbol.
fn at_of(dataset: &Dataset, whole: &[u8], group: u32) -> usize {
    let close = dataset.load_group(group, &names(&["close"])).unwrap()[0].columns[0][0].to_le_bytes();
    let next = dataset.load_group(group, &names(&["close"])).unwrap()[0].columns[0][1].to_le_bytes();
    let both = [close, next].concat();
    whole.windows(16).position(|bytes| *bytes == both[..]).unwrap()
}

/// Flips a bit of a file in place: its size, its inode and the time of its last change stay.
fn flip(path: &std::path::Path, whole: &[u8], at: usize) {
    use std::io::{Seek as _, Write as _};
    let mut file = fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all(whole).unwrap();
    file.seek(std::io::SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[whole[at] ^ 4]).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn no_flipped_byte_enters_bars_with_and_without_checksums_in_the_same_process_and_in_a_new_one() {
    let place = Place::new();
    synthesise(&place.store, &synth("market", 3, 40)).unwrap();
    let dataset = place.store.open("market").unwrap();
    let (path, read) = (place.group_file(&dataset, 0), names(&["close", "open"]));
    let intact = dataset.load_group(0, &read).unwrap();
    let whole = fs::read(&path).unwrap();
    let sums = path.with_extension("sums");
    let stored = fs::read(&sums).unwrap();
    let (mut found, mut unread) = (0, 0);
    for at in 0..whole.len() {
        flip(&path, &whole, at);
        for opened in [&dataset, &place.store.open("market").unwrap()] {
            match opened.load_group(0, &read) {
                Err(MarketError::Checksum { .. }) => found += 1,
                Ok(bars) => {
                    assert_eq!(bars, intact, "byte {at} entered the bars");
                    unread += 1;
                }
                Err(other) => panic!("byte {at}: {other}"),
            }
            assert!(
                opened.load_symbol(&intact[1].symbol, &read).is_err()
                    || opened.load_symbol(&intact[1].symbol, &read).unwrap() == intact[1]
            );
        }
        assert_eq!(dataset.verify().len(), 1, "the sha256 notices byte {at}");
    }
    // Three of the seven columns are read: times, open and close.
    assert!(found >= 2 * 3 * 8 * 3 * 40 / 2 && unread > 0, "{found} found, {unread} not read");
    // A damaged or missing file of checksums costs time, and nothing else.
    fs::write(&path, &whole).unwrap();
    for at in 0..stored.len() {
        flip(&sums, &stored, at);
        assert_eq!(place.store.open("market").unwrap().load_group(0, &read).unwrap(), intact);
    }
    for cut in [0, 7, stored.len() / 2, stored.len() - 1] {
        fs::write(&sums, &stored[..cut]).unwrap();
        assert_eq!(place.store.open("market").unwrap().load_group(0, &read).unwrap(), intact);
    }
    // And a dataset that has none is given them when it is verified.
    fs::remove_file(&sums).unwrap();
    assert_eq!(place.store.open("market").unwrap().load_group(0, &read).unwrap(), intact);
    assert!(!sums.exists(), "reading writes nothing");
    assert!(dataset.verify().is_empty());
    assert_eq!(fs::read(&sums).unwrap(), stored);
}

#[test]
fn kept_columns_are_read_once_and_no_more_than_the_bound_are_kept() {
    let place = Place::new();
    synthesise(&place.store, &synth("market", 100, 300)).unwrap();
    let dataset = place.store.open("market").unwrap();
    let (group, close) = (dataset.manifest.files[0].group, names(&["close"]));
    let kept = dataset.clone().keeping_columns(close.clone(), 1 << 20);
    let little = dataset.clone().keeping_columns(close.clone(), 1 << 10);
    let bars = kept.load_group(group, &close).unwrap();
    assert_eq!(little.load_group(group, &close).unwrap(), bars);
    fs::remove_file(place.group_file(&dataset, group)).unwrap();
    assert_eq!(kept.clone().load_group(group, &close).unwrap(), bars, "clones share what is kept");
    assert_eq!(kept.load_group(group, &[]).unwrap()[3].times, bars[3].times);
    assert!(kept.load_group(group, &names(&["close", "open"])).is_err(), "the open was never read");
    assert!(little.load_group(group, &close).is_err() && dataset.load_group(group, &close).is_err());
}

#[test]
fn a_manifest_that_was_changed_is_refused() {
    let place = Place::new();
    let report = synthesise(&place.store, &synth("market", 3, 10)).unwrap();
    let path = place.store.root.join(format!("market/snapshots/{}.json", report.snapshot));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"synthetic\": true", "\"synthetic\": false")).unwrap();
    assert!(matches!(place.store.open("market"), Err(MarketError::Checksum { .. })));
    for garbage in ["", "{", "null", "[]", &text[..text.len() / 2]] {
        fs::write(&path, garbage).unwrap();
        assert!(matches!(place.store.open("market"), Err(MarketError::Corrupt { .. })), "{garbage}");
    }
    let listed = place.store.list().unwrap();
    assert_eq!(listed.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["us5", "demo", "demo-1m", "market"]);
    assert!(listed[0].bundled && listed[0].problem.is_none() && listed[3].problem.is_some());
    fs::write(&path, text).unwrap();
    let head = place.store.root.join("market/HEAD");
    for garbage in ["", "../../../etc/passwd\n", "0123\n"] {
        fs::write(&head, garbage).unwrap();
        assert!(matches!(place.store.open("market"), Err(MarketError::Corrupt { .. })), "{garbage}");
    }
    assert!(place.store.open(&format!("market@{}", report.snapshot)).is_ok(), "a pinned snapshot needs no HEAD");
    std::fs::remove_file(&head).unwrap();
    let message = place.store.open("market").unwrap_err().to_string();
    assert!(
        message.contains("market/HEAD") && message.contains(&format!("market@{}", &report.snapshot[..12])),
        "{message}"
    );
}

#[test]
fn an_import_that_was_killed_before_it_named_its_snapshot_is_gone_on_with() {
    let place = Place::new();
    let file = |name: &str, days: std::ops::Range<u32>| {
        let rows: String = days.map(|day| format!("A,2024-01-{day:02},1,1,1,1\n")).collect();
        let path = place.store.root.with_file_name(name);
        fs::write(&path, format!("symbol,date,open,high,low,close\n{rows}")).unwrap();
        path
    };
    let import = |files: Vec<std::path::PathBuf>| {
        let options = ImportOptions {
            dataset: "d".to_owned(),
            files,
            calendar: Some("24/7".to_owned()),
            ..ImportOptions::default()
        };
        import_files(&place.store, &options)
    };
    let (first, second) = (file("first.csv", 1..9), file("second.csv", 9..12));
    let made = import(vec![first.clone()]).unwrap();
    let head = place.store.root.join("d/HEAD");
    // The same import again names the snapshot that is there.
    fs::remove_file(&head).unwrap();
    assert!(place.store.open("d").is_err());
    let again = import(vec![first.clone()]).unwrap();
    assert_eq!((&again.snapshot, again.unchanged), (&made.snapshot, true));
    assert_eq!(place.store.open("d").unwrap().manifest.snapshot, made.snapshot);
    // Another one keeps its bars.
    fs::remove_file(&head).unwrap();
    let more = import(vec![second.clone()]).unwrap();
    assert_eq!((more.bars, place.store.open("d").unwrap().manifest.bars), (11, 11));
    // Of several snapshots nothing says which is the newest: none is taken, and nothing is written.
    fs::remove_file(&head).unwrap();
    let refused = import(vec![second]).unwrap_err().to_string();
    assert!(refused.contains("d/HEAD") && !head.exists(), "{refused}");
}

#[test]
fn a_manifest_cannot_point_outside_the_dataset() {
    let place = Place::new();
    let report = synthesise(&place.store, &synth("market", 3, 10)).unwrap();
    let mut manifest = (*place.store.open("market").unwrap().manifest).clone();
    manifest.files[0].sha256 = "../../secret".to_owned();
    manifest.snapshot = manifest.content_id();
    let snapshots = place.store.root.join("market/snapshots");
    fs::write(snapshots.join(format!("{}.json", manifest.snapshot)), serde_json::to_vec(&manifest).unwrap()).unwrap();
    let error = place.store.open(&format!("market@{}", manifest.snapshot)).unwrap_err();
    assert!(matches!(error, MarketError::Corrupt { .. }), "{error}");
    assert!(place.store.open(&format!("market@{}", &report.snapshot[..8])).is_ok());
}

#[test]
fn a_name_that_is_nearly_right_is_suggested() {
    let place = Place::new();
    synthesise(&place.store, &synth("nasdaq-daily", 1, 1)).unwrap();
    let error = place.store.open("nasdaq-dayly").unwrap_err();
    assert!(error.to_string().ends_with("(did you mean 'nasdaq-daily'?)"), "{error}");
    let error = place.store.open("zzz").unwrap_err().to_string();
    assert!(!error.contains("did you mean"), "{error}");
}

#[test]
fn a_synthetic_market_is_labelled_and_never_overwritten_or_mixed() {
    let place = Place::new();
    let report = synthesise(&place.store, &synth("market", 130, 40)).unwrap();
    let dataset = place.store.open("market").unwrap();
    assert!(dataset.manifest.synthetic && dataset.manifest.origin.contains("seed=9"));
    assert_eq!((report.symbols, report.groups, report.bars), (130, 3, dataset.manifest.bars));
    assert_eq!(synthesise(&place.store, &synth("market", 130, 40)).unwrap(), report);
    let error = synthesise(&place.store, &synth("market", 131, 40)).unwrap_err().to_string();
    assert!(error.contains("choose another name"), "{error}");
    let file = place.write("X.csv", "date,close\n2013-01-01,1\n");
    let error = place.import("market", std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(error.contains("is synthetic"), "{error}");
    place.import("real", &[file]).unwrap();
    assert!(synthesise(&place.store, &synth("real", 1, 1)).is_err());
    for bad in
        [synth("us5", 1, 1), synth("a/b", 1, 1), synth("x", 0, 1), synth("x", 1, 0), synth("x", u32::MAX, u32::MAX)]
    {
        assert_eq!(synthesise(&place.store, &bad).unwrap_err().kind(), MarketErrorKind::Invalid, "{bad:?}");
    }
    for timeframe in ["7h", "9999w"] {
        let bad = SynthOptions { timeframe: timeframe.parse().unwrap(), ..synth("x", 1, 1000) };
        assert_eq!(synthesise(&place.store, &bad).unwrap_err().kind(), MarketErrorKind::Invalid, "{timeframe}");
    }
}

#[test]
fn a_symbol_has_the_same_bars_however_many_symbols_there_are() {
    let place = Place::new();
    synthesise(&place.store, &synth("few", 70, 60)).unwrap();
    synthesise(&place.store, &synth("many", 300, 60)).unwrap();
    let (few, many) = (load_all(&place.store.open("few").unwrap()), load_all(&place.store.open("many").unwrap()));
    assert_eq!((few.len(), many.len()), (70, 300));
    assert_eq!(few[..], many[..70]);
    let other = SynthOptions { seed: 10, ..synth("other", 70, 60) };
    synthesise(&place.store, &other).unwrap();
    assert_ne!(few, load_all(&place.store.open("other").unwrap()));
}

#[test]
fn the_snapshot_of_a_seed_is_pinned() {
    let place = Place::new();
    let report = synthesise(&place.store, &synth("market", 130, 40)).unwrap();
    // Another id means that the generator, the grouping or the layout changed: existing datasets stay as they are.
    assert_eq!(report.snapshot, "de70dcd9fcfe5a99fa4bc84ceaf018c351c2099f186aec9c2bb54062ad7669bd");
}

#[test]
fn a_dataset_can_be_read_from_many_threads() {
    let place = Place::new();
    synthesise(&place.store, &synth("market", 500, 20)).unwrap();
    let dataset = place.store.open("market").unwrap();
    let columns = names(&["high", "low"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let symbols: usize = (0..8).map(|g| dataset.load_group(g, &columns).unwrap().len()).sum();
                assert_eq!(symbols, 500);
            });
        }
    });
}

#[test]
fn a_symbol_is_described() {
    let place = Place::new();
    let file = place.write("X.csv", "date,close,eps\n2013-01-01,1,\n2013-01-02,9,2\n2013-01-04,8,1\n");
    let other = place.write("Y.csv", "date,close\n2013-01-03,1\n2013-01-07,1\n");
    place.import("two", &[file, other]).unwrap();
    let dataset = place.store.open("two").unwrap();
    let seen =
        inspect(&dataset, InspectOptions { symbol: Some("X"), verify: true, ..InspectOptions::default() }).unwrap();
    assert_eq!((seen.symbols, seen.bars, seen.times, seen.symbols_ended), (2, 5, 5, 1));
    let checks = seen.checks.unwrap();
    assert!(checks.problems.is_empty() && checks.jumps == 1 && checks.files == 2);
    let x = seen.symbol.unwrap();
    assert_eq!((x.entry.rows, x.bars_missing, x.jumps, x.sample.len()), (3, 1, 1, 3));
    assert_eq!((x.columns[1].missing, x.columns[1].smallest, x.columns[1].greatest), (1, Some(1.0), Some(2.0)));
    assert_eq!(x.sample[0].values, [Some(1.0), None]);
    assert!(inspect(&dataset, InspectOptions { symbol: Some("Z"), ..InspectOptions::default() }).is_err());
}
