//! A segment that is run part by part gives what it gives when all of its symbols are loaded together.

use std::sync::Arc;

use trawl_kernels::stages::Stages;
use trawl_kernels::{Engine, NoCancel, Precision};
use trawl_market::{Adjustment, Dataset, Store, SynthOptions, synthesise};
use trawl_plan::{ScanDocument, compile_scan};
use trawl_wire::{SegmentOutput, SegmentResultV2};

use crate::ExecutablePlan;
use crate::execute::newest::tests::made_input;
use crate::execute::{References, ScanSource, ScanStep, StepKind};
use crate::schema::schema_of;

/// Two parts of sixteen and one of eight.
const SYMBOLS: u32 = 40;
/// More bytes than this are read in parts: with one, always.
const BYTE: u64 = 1;

fn market(folder: &tempfile::TempDir) -> Dataset {
    let store = Store::new(folder.path().to_owned());
    let timeframe = "1d".parse().unwrap();
    synthesise(&store, &SynthOptions { name: "m".to_owned(), symbols: SYMBOLS, bars: 300, seed: 5, timeframe })
        .unwrap();
    store.open("m").unwrap()
}

fn source(dataset: &Dataset, document: &str) -> ScanSource {
    let schema = schema_of(dataset, dataset.manifest.last_time).unwrap();
    let document = ScanDocument::from_toml(document).unwrap();
    let plan = compile_scan(&document, &schema).unwrap_or_else(|error| panic!("{document:?}: {error:?}"));
    ScanSource {
        executable: ExecutablePlan::new(Arc::new(plan), Precision::F64),
        dataset: dataset.clone(),
        as_of: dataset.manifest.last_time,
        adjustment: Adjustment::NONE,
        engine: Engine::Cpu,
        checkpoints: None,
        every_value: false,
        features: None,
    }
}

/// Runs every step of a scan both ways, and compares; the results.
fn compare(source: &ScanSource) -> Vec<SegmentResultV2> {
    let (mut stages, references) = (Stages::default(), References::new());
    let mut results = Vec::new();
    for (number, stage) in source.plan().stages().iter().enumerate() {
        let input = made_input(source, stage);
        let step = ScanStep { stage: number, kind: StepKind::Values };
        let parts = source.parts_of(0, step, BYTE).unwrap();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
        assert!(!parts.concat().is_sorted(), "by length, not as they are stored");
        let rows: Vec<u64> = source.dataset.symbols_of(0).map(|entry| entry.rows).collect();
        let lengths =
            |part: &Vec<usize>| (part.iter().map(|at| rows[*at]).min(), part.iter().map(|at| rows[*at]).max());
        assert!(parts.windows(2).all(|two| lengths(&two[0]).1 <= lengths(&two[1]).0));
        let ours = source.execute_parts((0, parts), step, &input, &references, &NoCancel, &mut stages).unwrap();
        let bars = source.load_segment(0).unwrap();
        let whole = source.evaluate(0, step, &input, &bars, &references, &NoCancel, &mut stages).unwrap();
        assert_eq!(ours.digest(), whole.digest());
        results.push(ours.into_v2().unwrap());
    }
    results
}

#[test]
fn parts_of_a_segment_give_its_rows_and_its_values_for_cross_sections() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = market(&folder);
    assert_eq!(dataset.manifest.groups, 1);
    let rows = |document: &str| match &compare(&source(&dataset, document)).pop().unwrap().output {
        SegmentOutput::Rows(rows) => rows.len(),
        other => panic!("{other:?}"),
    };
    let plain = "where = 'rsi(close, 14) < 50'\nrank = 'roc(close, 5)'\nselect = ['sma(close, 20) as mean']\n";
    assert_eq!(rows(plain), 40);
    assert_eq!(
        rows("where = \"tf('1w', sma(close, 5)) < close\"\nselect = [\"tf('1w', rsi(close, 3)) as weekly\"]\n"),
        40
    );
    assert_eq!(
        rows("where = 'close > sma(close, n)'\n[sweep]\nn = [5, 10, 20]\n"),
        120,
        "by combination, then by symbol"
    );
    assert_eq!(rows("where = 'xs_pct(roc(close, 20)) > 0.5'\n"), 40);
}

#[test]
fn small_segments_and_those_that_share_something_are_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = market(&folder);
    let step = ScanStep { stage: 0, kind: StepKind::Values };
    let plain = source(&dataset, "where = 'close > open'\n");
    assert_eq!(plain.parts_of(0, step, super::PART_BYTES), None);
    // Times and two columns of about 300 bars: less than 8 KiB a symbol.
    assert_eq!(plain.parts_of(0, step, 32 * 8192).unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [32, 8]);
    assert_eq!(plain.parts_of(0, ScanStep { kind: StepKind::Times, ..step }, BYTE), None);
    let other = dataset.manifest.symbols[3].symbol.clone();
    let refers = source(&dataset, &format!("where = \"close > ref('{other}', close)\"\n"));
    assert_eq!(refers.parts_of(0, step, BYTE), None);
    let kept = ScanSource { dataset: dataset.keeping_columns(["close".to_owned()], 1 << 20), ..plain };
    assert_eq!(kept.parts_of(0, step, BYTE), None);
}
