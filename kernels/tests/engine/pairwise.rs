//! The factors that no answer depends on, in one array: how many devices, memory modes, streams, graphs, who gathers, bars brought
//! ahead, precision. Of every two factors every pair of values is tried; `just devices` tries everything.

use std::collections::BTreeSet;
use std::time::Duration;

use trawl_kernels::cuda::{Ahead, CHUNK_BARS, ExecutorOptions, GatherOptions, Gathers, MemoryMode};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::Program;

use crate::device::{bits, last_of, plan, waits};
use crate::fleet::devices;
use crate::fused::{inputs, lowered, market};
use crate::gather::nccl;
use crate::graphs;
use crate::parts::{PARTS, Shard, shard};

/// Values of each factor.
const COUNTS: [usize; 3] = [1, 2, 4];
const STREAMS: [usize; 3] = [1, 2, 4];
/// How many values each factor has: devices, modes, streams, graphs, gathering, prefetching, precision.
const LEVELS: [usize; 7] = [COUNTS.len(), MemoryMode::ALL.len(), STREAMS.len(), 2, 2, 2, Precision::ALL.len()];

/// One value of each factor, by index.
type Run = [usize; LEVELS.len()];

/// Two factors with a value of each.
type Pair = (usize, usize, usize, usize);

fn every_run() -> Vec<Run> {
    let extend = |runs: Vec<Vec<usize>>, levels: usize| -> Vec<Vec<usize>> {
        runs.into_iter().flat_map(|run| (0..levels).map(move |level| [run.as_slice(), &[level]].concat())).collect()
    };
    let all = LEVELS.into_iter().fold(vec![Vec::new()], extend);
    all.into_iter().map(|run| run.try_into().expect("a value of each")).collect()
}

fn pairs_of(run: &Run) -> impl Iterator<Item = Pair> + '_ {
    (0..run.len()).flat_map(move |a| (a + 1..run.len()).map(move |b| (a, run[a], b, run[b])))
}

/// Few runs that have every pair: each is the first of those that add the most.
fn pairwise() -> Vec<Run> {
    let all = every_run();
    let mut missing: BTreeSet<Pair> = all.iter().flat_map(pairs_of).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let adds = |run: &Run| pairs_of(run).filter(|pair| missing.contains(pair)).count();
        let most = all.iter().map(adds).max().expect("runs");
        let best = *all.iter().find(|run| adds(run) == most).expect("one of them");
        pairs_of(&best).for_each(|pair| {
            missing.remove(&pair);
        });
        chosen.push(best);
    }
    chosen
}

#[test]
fn the_array_has_every_pair_in_few_runs() {
    let runs = pairwise();
    let had: BTreeSet<Pair> = runs.iter().flat_map(pairs_of).collect();
    let with_later = |(a, levels): (usize, &usize)| levels * LEVELS[a + 1..].iter().sum::<usize>();
    let count: usize = LEVELS.iter().enumerate().map(with_later).sum();
    assert_eq!((had.len(), every_run().len()), (count, 432));
    assert!(runs.len() <= 14, "{}", runs.len());
}

/// What is computed in every run: parts of few bars, and histories in chunks, which are in `f64` always and whose kernels are launched as graphs.
struct Work<'a> {
    program: Program,
    shard: Shard,
    long: Program,
    symbols: Vec<SymbolInput<'a>>,
    /// Of the histories at the last bars, and at all.
    want: [Vec<u64>; 2],
}

impl Work<'_> {
    fn run(&self, number: usize, run: &Run) {
        let [count, mode, streams, graphs, gathering, prefetch, precision] = *run;
        let settings: Vec<String> =
            (0..COUNTS[count]).map(|device| format!("card=gh200 when=random seed={}", number * 7 + device)).collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let (mode, streams) = (MemoryMode::ALL[mode], STREAMS[streams]);
        let options = ExecutorOptions {
            memory_mode: Some(mode),
            streams,
            interactive_streams: streams,
            graphs: graphs == 1,
            prefetch: prefetch == 1,
            batch_bytes_max: Some(1 << 20),
            ..waits()
        };
        let bytes_min = if gathering == 1 { 0 } else { u64::MAX };
        let gather = GatherOptions { bytes_min, time_max: Duration::from_secs(20) };
        let devices = devices(&settings, &options).gathering(nccl(), gather);
        let (fleet, executable) = (devices.fleet(), Executable::new(&self.program, Precision::ALL[precision]));
        // The second time bars are where the first left them.
        for _ in 0..2 {
            let came = self.shard.run_on(&self.program, 0..PARTS, &|| 0, &mut |parts, report| {
                fleet.prefetch(&executable, parts, Ahead::NextCall, &NoCancel);
                fleet.evaluate_cross_section(&executable, parts, &NoCancel, report);
            });
            assert!(came.failed().is_empty(), "{run:?}: {:?}", came.failed());
            self.shard.agrees_in(&executable, &came);
        }
        assert_eq!(fleet.gathers(), Gathers { by_devices: 2 * gathering as u64, by_host: 0 }, "{run:?}");
        // Coherent bars are read where they are.
        let brings = prefetch == 1 && mode != MemoryMode::Coherent;
        assert_eq!(fleet.prefetches().brought_bytes > 0, brings, "{run:?}");
        for (from, want) in [last_of(&self.symbols), vec![0; self.symbols.len()]].iter().zip(&self.want) {
            for _ in 0..3 {
                let stages = &mut Stages::default();
                let got = fleet.evaluate_in_chunks(&lowered(&self.long), &self.symbols, from, None, &NoCancel, stages);
                assert!(bits(&got.expect("a healthy device")) == *want, "{run:?}");
            }
        }
        let launched: u64 = devices.each().iter().map(|device| device.counts().graph_launches).sum();
        // Several devices take turns, and a sequence is a graph from its second time on a device.
        assert!(graphs == 1 || launched == 0, "{run:?}");
        assert!(graphs == 0 || COUNTS[count] > 2 || launched > 0, "{run:?}");
    }
}

#[test]
fn no_bit_depends_on_devices_modes_streams_graphs_gathering_or_prefetching() {
    let bars = market(&[2_600, CHUNK_BARS, 1_900], 8);
    let long = graphs::plan();
    let symbols = inputs(&long, &bars, &[]);
    let want = graphs::one_by_one(&long, &symbols);
    let work = Work { program: plan(), shard: shard(), long: graphs::plan(), symbols, want };
    let whole = std::env::var_os("TRAWL_DEVICE_PAIRS").is_some_and(|wanted| wanted == "all");
    let runs = if whole { every_run() } else { pairwise() };
    println!("{} runs", runs.len());
    runs.iter().enumerate().for_each(|(number, run)| work.run(number, run));
}
