//! An import gives the same dataset, report and quarantine whatever memory and however many threads it has.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use common::{Place, options};
use proptest::prelude::*;
use trawl_market::{ImportOptions, ImportReport, MarketError, format_time, import_files};

/// Rows of a batch of text: longer files have several.
const BATCH: usize = trawl_market::limits::SOURCE_BATCH_ROWS;
const MINUTE: i64 = 60_000_000;
/// 2024-06-03 13:30 UTC, the start of a session in New York.
const START: i64 = 1_717_421_400_000_000;

/// A file of bars of several symbols.
#[derive(Debug, Clone)]
struct Text {
    rows: usize,
    symbols: usize,
    /// The first of them; what a file before it had may be others, or these in another order.
    first_symbol: usize,
    /// Without a column of symbols: its name is the only one.
    alone: bool,
    /// Rows of a symbol follow each other.
    by_symbol: bool,
    newest_first: bool,
    /// The first minute.
    from: i64,
    gzip: bool,
    further: bool,
    /// Every so many rows one is no bar, doubled, blank.
    bad: usize,
    doubled: usize,
    blank: usize,
}

fn text() -> impl Strategy<Value = Text> {
    let kinds = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
    let odd = (50usize..5_000, 50usize..5_000, 50usize..5_000);
    let symbols = (1usize..80, 0usize..80);
    (1..3 * BATCH, symbols, 0i64..2_000, kinds, odd).prop_map(|(rows, symbols, from, kinds, odd)| Text {
        rows,
        symbols: if kinds.4 { 1 } else { symbols.0 },
        first_symbol: symbols.1,
        alone: kinds.4,
        by_symbol: kinds.0,
        newest_first: kinds.1,
        from,
        gzip: kinds.2,
        further: kinds.3,
        bad: odd.0,
        doubled: odd.1,
        blank: odd.2,
    })
}

impl Text {
    fn content(&self, file: usize) -> Vec<u8> {
        let mut text = if self.alone { "time,close,volume" } else { "time,symbol,close,volume" }.to_owned();
        text.push_str(if self.further { ",eps\n" } else { "\n" });
        let each = self.rows.div_ceil(self.symbols);
        for row in 0..self.rows {
            let (symbol, at) = match self.by_symbol {
                true => (row / each, row % each),
                false => (row % self.symbols, row / self.symbols),
            };
            let at = if self.newest_first { each - 1 - at } else { at } as i64;
            let time = format_time(START + (self.from + at) * MINUTE);
            let close = match row % self.bad {
                0 => "?".to_owned(),
                odd => format!("{}.{odd}", 1 + (row * 7 + file) % 900),
            };
            let symbol = match self.alone {
                true => String::new(),
                false => format!(",S{}", (self.first_symbol + symbol) % 80),
            };
            let line = format!("{time}{symbol},{close},{row}{}", if self.further { ",0.5" } else { "" });
            let _ = writeln!(text, "{line}");
            if row % self.doubled == 1 {
                let _ = writeln!(text, "{line}");
            }
            if row % self.blank == 2 {
                text.push_str("  \r\n");
            }
        }
        if !self.gzip {
            return text.into_bytes();
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    }
}

/// Every file below the data root, except locks.
fn stored(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![place.store.root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.ends_with(".lock") => {}
                false => {
                    let name = path.strip_prefix(&place.store.root).unwrap().to_path_buf();
                    found.insert(name, fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

/// Imports the first half of the files, then the others; what was reported, and what is stored.
#[allow(clippy::type_complexity)]
fn imported(
    texts: &[Vec<u8>],
    memory: Option<u64>,
    threads: usize,
) -> (Vec<Result<ImportReport, String>>, BTreeMap<PathBuf, Vec<u8>>) {
    let place = Place::new();
    let write = |(at, text): (usize, &Vec<u8>)| place.write(&format!("F{at}.csv"), text);
    let files: Vec<PathBuf> = texts.iter().enumerate().map(write).collect();
    let folder = place.directory.path().display().to_string();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let reports = files.chunks(files.len().div_ceil(2)).map(|files| {
        let calendar = Some("24/7".to_owned());
        let how = ImportOptions { memory, calendar, timeframe: "1m".parse().ok(), ..options("d", files) };
        pool.install(|| import_files(&place.store, &how)).map_err(|e: MarketError| e.to_string().replace(&folder, ""))
    });
    (reports.collect(), stored(&place))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn memory_and_threads_change_nothing(texts in prop::collection::vec(text(), 1..8)) {
        let texts: Vec<Vec<u8>> = texts.iter().enumerate().map(|(at, text)| text.content(at)).collect();
        let wanted = imported(&texts, None, 1);
        for (memory, threads) in [(Some(1), 1), (Some(1), 4), (Some(4 << 20), 3), (None, 4)] {
            let found = imported(&texts, memory, threads);
            prop_assert_eq!(&found.0, &wanted.0, "memory {:?}, {} threads", memory, threads);
            prop_assert!(found.1 == wanted.1, "files differ: memory {memory:?}, {threads} threads");
        }
    }
}

#[test]
fn rows_that_do_not_fit_leave_nothing_behind() {
    let text = |rows| Text {
        rows,
        symbols: 50,
        first_symbol: 0,
        alone: false,
        by_symbol: false,
        newest_first: false,
        from: 0,
        gzip: false,
        further: true,
        bad: usize::MAX,
        doubled: usize::MAX,
        blank: usize::MAX,
    };
    let (reports, stored) = imported(&[text(40_000).content(0)], Some(1), 2);
    let report = reports[0].as_ref().unwrap();
    // The first row has no close, and the second comes twice.
    assert_eq!((report.rows_read, report.rows_kept), (40_001, 39_999));
    assert!(stored.keys().all(|path| path.starts_with("d")), "{:?}", stored.keys());
}

/// The dates of a file show only in its third batch that days come first.
#[test]
fn a_file_that_turns_out_to_be_day_first_is_read_again_from_its_start() {
    let mut text = "date,symbol,close\n".to_owned();
    for row in 0..3 * BATCH {
        let day = if row < 2 * BATCH + 5 { 1 + row % 12 } else { 13 };
        let _ = writeln!(text, "{day}/{}/{},S{},1", 1 + row / 12 % 12, 1700 + row / 144 % 300, row / (144 * 300));
    }
    for memory in [None, Some(1)] {
        let place = Place::new();
        let file = place.write("days.csv", &text);
        let how = ImportOptions { memory, calendar: Some("24/7".to_owned()), ..options("d", &[file]) };
        let report = import_files(&place.store, &how).unwrap();
        assert_eq!(report.rows_read, 3 * BATCH as u64);
        assert!(report.notes.iter().any(|note| note.contains("read day first")), "{:?}", report.notes);
        assert_eq!(format_time(report.first_time), "1700-01-01");
    }
}

#[test]
fn a_file_that_is_read_again_numbers_its_symbols_anew() {
    let other: String = (1..=3).map(|at| format!("1650-01-0{at},S{},{}\n", 3 - at, 4 - at)).collect();
    let other = format!("date,symbol,close\n{other}");
    let mut text = "date,symbol,close\n".to_owned();
    for row in 0..3 * BATCH {
        let day = if row < 2 * BATCH + 5 { 1 + row % 12 } else { 13 };
        let symbol = row % 3;
        let _ = writeln!(text, "{day}/{}/{},S{symbol},{}", 1 + row / 12 % 12, 1700 + row / 144 % 300, symbol + 1);
    }
    // After a file with the same symbols in another order, and before it, on one thread.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let stored = ["a.csv", "z.csv"].map(|name| {
        let place = Place::new();
        let files = [place.write(name, &other), place.write("days.csv", &text)];
        let how = ImportOptions { calendar: Some("24/7".to_owned()), ..options("d", &files) };
        let report = pool.install(|| import_files(&place.store, &how)).unwrap();
        assert!(report.notes.iter().any(|note| note.contains("read day first")), "{:?}", report.notes);
        stored(&place)
    });
    assert!(stored[0] == stored[1], "the order of files decides whose bars they are");
}
