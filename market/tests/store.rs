//! The store: damage is noticed, names cannot escape the data root, synthetic markets are the same everywhere.

mod common;
#[path = "common/facts.rs"]
mod facts;

use std::fs;

use common::{Place, load_all, names};
use trawl_market::{InspectOptions, MarketError, MarketErrorKind, SynthOptions, inspect, synthesise};

fn synth(name: &str, symbols: u32, bars: u32) -> SynthOptions {
    SynthOptions { name: name.to_owned(), symbols, bars, seed: 9, timeframe: "1d".to_owned() }
}

#[test]
fn a_damaged_group_is_reported_with_both_checksums_and_the_others_are_not() {
    let place = Place::new();
    synthesise(&place.store, &synth("market", 200, 30)).unwrap();
    let dataset = place.store.open("market").unwrap();
    let path = place.group_file(&dataset, 2);
    let whole = fs::read(&path).unwrap();
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        match dataset.load_group(2, &names(&["close"])) {
            Err(MarketError::Checksum { file, expected, found }) => {
                assert!(file.starts_with("market/files/"), "{file}");
                assert_eq!(expected, dataset.manifest.file(2).unwrap().sha256);
                assert_ne!(expected, found);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(dataset.load_group(1, &names(&["close"])).is_ok());
    assert_eq!(dataset.verify().len(), 1);
    let seen = inspect(&dataset, InspectOptions { symbol: None, verify: true }).unwrap();
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
    for timeframe in ["", "1y", "7h", "9999w"] {
        let bad = SynthOptions { timeframe: timeframe.to_owned(), ..synth("x", 1, 1000) };
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
    let seen = inspect(&dataset, InspectOptions { symbol: Some("X"), verify: true }).unwrap();
    assert_eq!((seen.symbols, seen.bars, seen.times, seen.symbols_ended), (2, 5, 5, 1));
    let checks = seen.checks.unwrap();
    assert!(checks.problems.is_empty() && checks.jumps == 1 && checks.files == 2);
    let x = seen.symbol.unwrap();
    assert_eq!((x.entry.rows, x.bars_missing, x.jumps, x.sample.len()), (3, 1, 1, 3));
    assert_eq!((x.columns[1].missing, x.columns[1].smallest, x.columns[1].greatest), (1, Some(1.0), Some(2.0)));
    assert_eq!(x.sample[0].values, [Some(1.0), None]);
    assert!(inspect(&dataset, InspectOptions { symbol: Some("Z"), verify: false }).is_err());
}
