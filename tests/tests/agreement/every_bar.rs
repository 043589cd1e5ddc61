//! The scans of examples/ at every bar of their datasets: one shard, seven shards and the whole history at once give
//! the same answers, byte for byte.

use std::collections::BTreeMap;

use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::{
    CHUNK_BYTES_MAX, NoProgress, PreparedScan, ShardSpec, all_bars, answer_digest, prepare, prepare_opened,
};
use trawl_kernels::NoCancel;
use trawl_kernels::stages::Stages;
use trawl_market::{Store, TimeMicros};
use trawl_plan::ScanDocument;
use trawl_tests::executable::repository;
use trawl_wire::StepInputV1;

pub(super) fn digest(prepared: &PreparedScan, shards: u32) -> String {
    let source = prepared.source();
    let references = source.load_references().expect("references");
    let execute = |segment, step, input: &StepInputV1, stages: &mut Stages| {
        source.execute(segment, step, input, &references, &NoCancel, stages).map_err(|e| (e.kind(), e.to_string()))
    };
    let options = LocalOptions { shards: ShardSpec::Count(shards), threads: 2, ..LocalOptions::default() };
    let (answer, report) = local::run(prepared, options, execute, &NoProgress).expect("a run");
    assert!(report.is_complete());
    answer_digest(&answer)
}

fn check(name: &str) {
    let path = repository().join("examples").join(format!("{name}.toml"));
    let text = std::fs::read_to_string(path).expect("an example");
    // Every bar would have a history of its own.
    let document = ScanDocument { history: None, ..ScanDocument::from_toml(&text).expect("a document") };
    let store = Store::new("/nowhere".into());
    let prepared = prepare(&store, &document, None).expect("a scan");
    let mut whole: BTreeMap<TimeMicros, String> = BTreeMap::new();
    let mut matched = 0;
    let options = LocalOptions { threads: 2, ..LocalOptions::default() };
    all_bars(&prepared, options, None, CHUNK_BYTES_MAX / 4096, &NoCancel, |time, answer| {
        matched += answer.counts()[trawl_wire::Status::Matched as usize];
        whole.insert(time, answer_digest(&answer));
        Ok(())
    })
    .expect("every bar");
    assert!(matched > 0, "{name} finds something at some bar");
    assert_eq!(whole.len(), prepared.dataset.times().expect("times").len());
    // A sweep scans each bar once per combination, so it is tested on fewer bars.
    for (time, expected) in whole.iter().step_by(prepared.plan.points.len()) {
        let prepared = prepare_opened(prepared.dataset.clone(), &document, Some(*time)).expect("a scan");
        for shards in [1, 7] {
            assert_eq!(
                digest(&prepared, shards),
                *expected,
                "{name} at {} in {shards} shards",
                prepared.identity.as_of
            );
        }
    }
}

macro_rules! examples {
    ($($test:ident: $name:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            check($name);
        })+

        #[test]
        fn every_example_is_tested() {
            let mut named = vec![$($name),+];
            named.sort_unstable();
            let folder = std::fs::read_dir(repository().join("examples")).expect("examples/").flatten();
            let stem = |e: std::fs::DirEntry| e.path().file_stem().map(|s| s.to_string_lossy().into_owned());
            let mut found: Vec<String> = folder.filter_map(stem).collect();
            found.sort_unstable();
            assert_eq!(found, named);
        }
    };
}

examples! {
    atc_best: "atc-best",
    atc_long_short: "atc-long-short",
    atr_percent: "atr-percent",
    base_breakout: "base-breakout",
    breakout: "breakout",
    connors: "connors",
    engulfing: "engulfing",
    gap: "gap",
    gap_and_go: "gap-and-go",
    golden_cross: "golden-cross",
    macd_cross: "macd-cross",
    macd_timeframes: "macd-timeframes",
    minervini: "minervini",
    nr7: "nr7",
    oversold: "oversold",
    pair_spread: "pair-spread",
    rs_leaders: "rs-leaders",
    rsi_divergence: "rsi-divergence",
    sector_leaders: "sector-leaders",
    sector_reversion: "sector-reversion",
    squeeze: "squeeze",
    squeeze_fired: "squeeze-fired",
    streak: "streak",
    trend: "trend",
    uncorrelated: "uncorrelated",
    vwap_reclaim: "vwap-reclaim",
    weekly_filter: "weekly-filter",
}
