use std::path::Path;

use trawl_kernels::NoCancel;
use trawl_kernels::stages::Stages;
use trawl_market::{Store, SynthOptions, Timeframe, synthesise};
use trawl_plan::{History, ScanDocument};
use trawl_wire::SegmentResult;

use super::*;
use crate::prepare::prepare;

/// The digest of every segment's rows, and how many passes were made for times. `leave_out`: those that can be, of a recorded scan or of
/// another.
fn run(prepared: &PreparedScan, leave_out: Option<bool>) -> (Vec<[u8; 32]>, usize) {
    let mut passes = Passes::new(prepared).unwrap();
    if let Some(recorded) = leave_out {
        passes.leave_out_times(recorded).unwrap();
    }
    let (source, mut for_times) = (prepared.source(), 0);
    let references = source.load_references().unwrap();
    loop {
        let (step, input) = (passes.step(), passes.input(&prepared.segments));
        for_times += usize::from(step.kind == StepKind::Times);
        let one = |segment: &u32| {
            let mut stages = Stages::default();
            source.execute(*segment, step, &input, &references, &NoCancel, &mut stages).unwrap()
        };
        let results = prepared.segments.iter().map(one);
        if passes.is_last() {
            return (results.map(|result| result.digest()).collect(), for_times);
        }
        let results = results.map(|result| match result {
            SegmentResult::Step(result) => result,
            SegmentResult::Rows(_) => panic!("rows"),
        });
        passes.advance(results.collect(), &[], false).unwrap();
    }
}

/// Symbols of it are listed late, halted and delisted.
fn market(data: &Path) -> Store {
    let store = Store::new(data.to_owned());
    let (name, timeframe) = ("market".to_owned(), Timeframe::DAY);
    synthesise(&store, &SynthOptions { name, symbols: 200, bars: 120, seed: 3, timeframe }).unwrap();
    store
}

fn document(condition: &str) -> ScanDocument {
    ScanDocument {
        dataset: Some("market".to_owned()),
        condition: condition.to_owned(),
        select: vec!["xs_pct(roc(close, 5)) as c".to_owned()],
        ..ScanDocument::default()
    }
}

const CONDITIONS: [&str; 8] = [
    "xs_rank(roc(close, 20)) <= 10",
    "within(xs_pct(close) > 0.5, 3)",
    "sma(xs_pct(close), 20) > 0.4",
    "ema(xs_demean(roc(close, 1)), 5) > 0",
    "xs_rank(sma(xs_pct(roc(close, 2)), 3)) <= 20",
    "tf('1w', xs_rank(close)) <= 20",
    "tf('1w', sma(xs_pct(close), 3)) > 0.4",
    "xs_rank(tf('1w', roc(close, 1)) - ref('SYN00000', roc(close, 5))) <= 20",
];

#[test]
fn a_market_with_gaps_needs_no_pass_for_times_and_its_answers_are_the_same() {
    let data = tempfile::tempdir().unwrap();
    let store = market(data.path());
    for condition in CONDITIONS {
        for history in [None, Some(History { bars: 30, origin: true })] {
            for max_age in [None, Some("5d".to_owned())] {
                let document = ScanDocument { history, max_age: max_age.clone(), ..document(condition) };
                let prepared = prepare(&store, &document, None).unwrap();
                let (expected, passes) = run(&prepared, None);
                assert!(passes > 0, "{condition}");
                assert_eq!(run(&prepared, Some(false)), (expected.clone(), 0), "{condition} {history:?} {max_age:?}");
                assert_eq!(run(&prepared, Some(true)).0, expected, "{condition} {history:?} {max_age:?}");
            }
        }
    }
    // A recorded scan leaves out what is certain.
    let prepared = prepare(&store, &document(CONDITIONS[0]), None).unwrap();
    assert_eq!(run(&prepared, Some(true)).1, 0);
    let prepared = prepare(&store, &document(CONDITIONS[2]), None).unwrap();
    assert_eq!(run(&prepared, Some(true)).1, 1);
}

#[test]
fn values_for_nobody_are_not_computed_where_a_pass_costs_less() {
    assert!(worth_it(0, 0, usize::MAX) && worth_it(VALUES_FOR_NOBODY_MAX, 1, 1));
    assert!(!worth_it(VALUES_FOR_NOBODY_MAX / 100 + 1, 100, 100));
    assert!(worth_it(100, 800, 1_000_000) && !worth_it(101, 800, 1_000_000));
    assert!(!worth_it(usize::MAX, 1, 2));
}

#[test]
fn values_of_other_times_are_none_of_the_step() {
    let wanted = [CrossTimes { cross: 0, times: vec![1, 2] }, CrossTimes { cross: 1, times: Vec::new() }];
    let step = |values| SegmentResult::Step(SegmentResultV2 { segment: 3, output: SegmentOutput::Values(values) });
    let given = |times: Vec<i64>| step(vec![CrossValues { cross: 0, values: vec![0.0; times.len()], times }]);
    assert_eq!(PreparedScan::check_times(&wanted, &given(vec![1, 2])), Ok(()));
    for other in [vec![1], vec![1, 3], Vec::new()] {
        let error = PreparedScan::check_times(&wanted, &given(other)).unwrap_err();
        assert!(error.contains("segment 3 has other times of cross-section 0"), "{error}");
    }
    assert!(PreparedScan::check_times(&wanted, &step(Vec::new())).is_err());
}

#[test]
fn chunks_hold_every_time_once_and_stay_within_the_limit() {
    let symbols = GATHER_BYTES_MAX / VALUE_BYTES / 10;
    let wanted = vec![
        CrossTimes { cross: 0, times: (0..25).collect() },
        CrossTimes { cross: 1, times: Vec::new() },
        CrossTimes { cross: 2, times: (0..5).collect() },
    ];
    let cut = chunks(&wanted, symbols);
    assert!(cut.iter().all(|c| c.iter().map(|w| w.times.len()).sum::<usize>() <= 10), "{cut:?}");
    for want in &wanted {
        let all: Vec<i64> =
            cut.iter().flatten().filter(|c| c.cross == want.cross).flat_map(|c| c.times.clone()).collect();
        assert_eq!(all, want.times);
    }
    assert_eq!(chunks(&[], 1).len(), 1);
}
