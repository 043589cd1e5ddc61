//! A step over the newest bars gives the bits of the same step over whole histories.

use std::sync::Arc;

use trawl_kernels::stages::Stages;
use trawl_kernels::{Engine, NoCancel, Precision};
use trawl_market::{Adjustment, Dataset, Store, SynthOptions, synthesise};
use trawl_plan::catalogue::{functions, sample};
use trawl_plan::{History, Plan, ScanDocument, Schema, Stage, compile_scan};
use trawl_wire::{CrossTable, CrossTimes, SegmentOutput, StepInputV1};

use crate::ExecutablePlan;
use crate::execute::{ScanSource, ScanStep, StepKind};
use crate::schema::schema_of;

/// Minutes: two chunks and a part of one.
const BARS: u32 = 9_000;

/// Made values of every cross-section, at the as-of: what a step may be given.
pub(crate) fn made_input(source: &ScanSource, stage: &Stage) -> StepInputV1 {
    let symbols: Vec<String> = source.dataset.manifest.symbols.iter().map(|s| s.symbol.clone()).collect();
    let table = |cross: u16| CrossTable {
        cross,
        times: vec![source.as_of],
        values: (0..symbols.len()).map(|at| at as f64 / symbols.len() as f64).collect(),
        keys: symbols.clone(),
    };
    let wanted = |(cross, ..): &(u16, usize, usize)| CrossTimes { cross: *cross, times: vec![source.as_of] };
    StepInputV1 {
        wanted: stage.crosses.iter().map(wanted).collect(),
        tables: (0..source.plan().crosses.len() as u16).map(table).collect(),
    }
}

pub(crate) struct Market {
    pub folder: tempfile::TempDir,
    pub dataset: Dataset,
    pub adjustment: Adjustment,
}

fn market() -> Market {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().to_owned());
    let timeframe = "1m".parse().unwrap();
    synthesise(&store, &SynthOptions { name: "m".to_owned(), symbols: 4, bars: BARS, seed: 3, timeframe }).unwrap();
    let dataset = store.open("m").unwrap();
    Market { folder, dataset, adjustment: Adjustment::NONE }
}

impl Market {
    fn schema(&self) -> Schema {
        schema_of(&self.dataset, self.dataset.manifest.last_time).unwrap()
    }

    pub fn source(&self, document: &ScanDocument) -> ScanSource {
        let schema = self.schema();
        self.source_of(compile_scan(document, &schema).unwrap_or_else(|error| panic!("{document:?}: {error:?}")))
    }

    fn source_of(&self, plan: Plan) -> ScanSource {
        ScanSource {
            executable: ExecutablePlan::new(Arc::new(plan), Precision::F64),
            dataset: self.dataset.clone(),
            as_of: self.dataset.manifest.last_time,
            adjustment: self.adjustment,
            engine: Engine::Cpu,
            checkpoints: None,
            every_value: false,
            features: None,
        }
    }

    /// Runs every step both ways, and compares; how many newest bars each step read of the first group.
    pub fn compare(&self, document: &ScanDocument) -> Vec<Option<u64>> {
        let source = self.source(document);
        let references = source.load_references().unwrap();
        let mut read = Vec::new();
        for (number, stage) in source.plan().stages().iter().enumerate() {
            let input = made_input(&source, stage);
            let step = ScanStep { stage: number, kind: StepKind::Values };
            for segment in 0..self.dataset.manifest.groups {
                let mut stages = Stages::default();
                let ours = source.execute(segment, step, &input, &references, &NoCancel, &mut stages).unwrap();
                let bars = source.load_segment(segment).unwrap();
                let whole = source.evaluate(segment, step, &input, &bars, &references, &NoCancel, &mut stages).unwrap();
                let [ours, whole] = [ours, whole].map(|result| bits(&result.into_v2().unwrap().output));
                assert_eq!(ours, whole, "{document:?}, step {step:?}");
            }
            read.push(source.newest_bars_read(0, step, &input));
        }
        read
    }
}

/// Values to the bit, and everything else as text.
fn bits(output: &SegmentOutput) -> (String, Vec<u64>) {
    match output {
        SegmentOutput::Rows(rows) => {
            let values = rows.iter().flat_map(|row| row.rank.iter().chain(&row.values)).map(|v| v.to_bits());
            let all =
                |row: &trawl_wire::SymbolRow| format!("{} {:?} {} {}", row.symbol, row.status, row.edge, row.reason);
            (rows.iter().map(all).collect(), values.collect())
        }
        SegmentOutput::Values(values) => {
            (String::new(), values.iter().flat_map(|v| &v.values).map(|v| v.to_bits()).collect())
        }
        SegmentOutput::Times(times) => (format!("{times:?}"), Vec::new()),
    }
}

pub(crate) fn selecting(select: Vec<String>) -> ScanDocument {
    ScanDocument { condition: "true".to_owned(), select, ..ScanDocument::default() }
}

#[test]
fn every_function_has_the_bits_of_whole_histories() {
    let market = market();
    let (mut ends, mut wholes) = (0, 0);
    for function in functions() {
        for history in [None, Some(History { bars: 700, origin: false }), Some(History { bars: 5_000, origin: true })] {
            let document = ScanDocument { history, ..selecting(sample(function)) };
            if history.is_some() && compile_scan(&document, &market.schema()).is_err() {
                // It depends on where the history begins.
                continue;
            }
            let read = market.compare(&document);
            match read.iter().all(Option::is_some) {
                true => ends += 1,
                false => wholes += 1,
            }
        }
    }
    assert!(ends > functions().count() && wholes > 20, "the ends of histories for {ends}, all of them for {wholes}");
}

#[test]
fn what_is_read_follows_from_the_windows() {
    let market = market();
    let of = |text: &str| market.compare(&selecting(vec![format!("{text} as x")]));
    assert_eq!(of("sma(close, 200)"), [Some(4_096)]);
    assert_eq!(of("close[4000]"), [Some(4_096)]);
    assert_eq!(of("close[4096]"), [Some(8_192)]);
    assert_eq!(of("sma(close, 3000)[2000]"), [Some(8_192)]);
    assert_eq!(of("close[8999]"), [None], "as long as the longest");
    assert_eq!(of("ema(close, 9)"), [Some(4_096)], "it forgets");
    assert_eq!(of("ema(close, 200)"), [None], "in more than half of the bars");
    assert_eq!(of("kama(close, 10)"), [None], "nothing says when it forgets");
    assert_eq!(of("xs_pct(ema(close, 9))"), [None, Some(4_096)], "one step of two");
    assert_eq!(of("obv()"), [None]);
    assert_eq!(of("avwap('session')"), [None], "periods begin anywhere");
    assert_eq!(of("tf('15m', sma(close, 9))"), [None], "higher bars are made of all");
    assert_eq!(of("xs_pct(roc(close, 63))"), [Some(4_096), Some(4_096)]);
    assert_eq!(of("ref('SYN00001', sma(close, 50)) + close[9]"), [Some(4_096)]);
    let limited = ScanDocument {
        history: Some(History { bars: 900, origin: false }),
        ..selecting(vec!["rsi(close, 14)".to_owned()])
    };
    assert_eq!(market.compare(&limited), [Some(4_096)], "a limited history bounds recursive steps");
}

#[test]
fn an_earlier_as_of_reads_whole_histories() {
    let market = market();
    let mut source = market.source(&selecting(vec!["sma(close, 20)".to_owned()]));
    let step = ScanStep { stage: 0, kind: StepKind::Values };
    assert!(source.newest_bars_read(0, step, &StepInputV1::default()).is_some());
    source.as_of -= 60_000_000;
    assert_eq!(source.newest_bars_read(0, step, &StepInputV1::default()), None);
}

#[test]
fn a_step_that_needs_an_unread_bar_fails() {
    let market = market();
    let source = market.source(&selecting(vec!["sma(close, 5000)".to_owned()]));
    let step = ScanStep { stage: 0, kind: StepKind::Values };
    let (input, references) = (StepInputV1::default(), source.load_references().unwrap());
    let bars = source.load_segment_newest(0, Some(4_096)).unwrap();
    assert!(bars.iter().any(|bars| bars.unread > 0));
    let run = source.evaluate(0, step, &input, &bars, &references, &NoCancel, &mut Stages::default());
    let error = run.unwrap_err().to_string();
    assert!(error.contains("were not loaded"), "{error}");
}
