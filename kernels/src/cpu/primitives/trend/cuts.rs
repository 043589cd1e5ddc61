//! Results have the same bits however time is cut: strips, single bars, and restarts in the middle.

use trawl_plan::graph::Op;
use trawl_plan::{Schema, compile_expressions};

use super::Tables;
use crate::cpu::lower::fuse::fuse;
use crate::cpu::lower::fused_op::FusedOp;
use crate::cpu::lower::steps::step_for;
use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{Isa, LANES, Out, Row, View};

const BARS: usize = 260;

/// Lanes with flat stretches, gaps and a jump.
fn market() -> Vec<Row> {
    let value = |t: usize, lane: usize| match (t * 7 + lane * 13) % 97 {
        5 if lane.is_multiple_of(3) => f64::NAN,
        _ if lane == 4 && t > 120 => 9_000.0 + (t % 3) as f64,
        _ if lane == 5 && (60..140).contains(&t) => 57.31,
        _ => 50.0 + ((t * t * 31 + lane * 17) % 701) as f64 / 100.0,
    };
    (0..BARS).map(|t| Row(std::array::from_fn(|lane| value(t, lane)))).collect()
}

/// Outputs of `work` whose strips are cut at `cuts`; with `anew`, each strip gets a new step.
fn run(work: &FusedOp, inputs: &[Vec<Row>], outputs: usize, cuts: &[usize], anew: bool) -> Vec<Vec<[u64; LANES]>> {
    let views: Vec<View<'_>> = inputs.iter().map(|rows| View::column((rows, 0))).collect();
    let mut tables = Tables::default();
    let mut step = step_for::<f64>(work, inputs.len(), BARS, &mut tables).expect("a step");
    let mut rings = vec![vec![Row::NA; f64::STRIP_BARS]; outputs];
    let mut series = vec![Vec::new(); outputs];
    for pair in cuts.windows(2) {
        if anew {
            step = step_for::<f64>(work, inputs.len(), BARS, &mut tables).expect("a step");
        }
        let mut outs: Vec<Out<'_>> = rings.iter_mut().map(|ring| Out::new(ring)).collect();
        step.strip(Isa::detect(), &views, &mut outs, pair[0]..pair[1]);
        for (series, ring) in series.iter_mut().zip(&rings) {
            // NaNs are canonical at a program's outputs.
            let bits = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
            series.extend((pair[0]..pair[1]).map(|t| ring[t % f64::STRIP_BARS].0.map(bits)));
        }
    }
    series
}

#[test]
fn the_bits_do_not_depend_on_how_time_is_cut() {
    let call = "atc(close, 12, kama_len=30, hma_len=40, cutout=50, robustness='wide')";
    let schema = Schema::of_columns(vec!["close".to_owned()]);
    let items = [format!("{call}.signal"), format!("{call}.ema_equity as e")];
    let plan = compile_expressions(&items, "test", &schema).expect("legal");
    let strips: Vec<usize> = (0..BARS).step_by(f64::STRIP_BARS).chain([BARS]).collect();
    let single: Vec<usize> = (0..=BARS).collect();
    // No run crosses the end of a strip, which is the end of a ring.
    let mut uneven: Vec<usize> = (0..BARS).step_by(5).map(|t| t + t % 2 * 3).chain(strips.iter().copied()).collect();
    uneven.retain(|t| *t <= BARS);
    uneven.sort_unstable();
    uneven.dedup();
    let numbers: Vec<Row> = (0..BARS).map(|t| Row::splat((t + 1) as f64)).collect();
    let mut passes = 0;
    for part in fuse(plan.program()) {
        let inputs: Vec<Vec<Row>> = if let FusedOp::TrendMeans(_) = part.work {
            vec![market(), numbers.clone()]
        } else if let FusedOp::Op(Op::FamilySignal { .. } | Op::SignalEquity { .. }) = part.work {
            let change = |t: usize| market()[t].map(|lane, x| x / market()[t.saturating_sub(1)].0[lane] - 1.0);
            let returns: Vec<Row> = (0..BARS).map(change).collect();
            let average: Vec<Row> = market().into_iter().rev().collect();
            let price =
                if matches!(part.work, FusedOp::Op(Op::SignalEquity { .. })) { returns.clone() } else { market() };
            let averages = vec![average; part.inputs.len() - 3];
            [vec![price, returns, numbers.clone()], averages].concat()
        } else {
            continue;
        };
        passes += 1;
        let whole = run(&part.work, &inputs, part.outputs.len(), &strips, false);
        assert_eq!(run(&part.work, &inputs, part.outputs.len(), &single, false), whole, "{:?}", part.work);
        assert_eq!(run(&part.work, &inputs, part.outputs.len(), &uneven, false), whole, "{:?}", part.work);
        if !part.work.is_recursive() {
            assert_eq!(run(&part.work, &inputs, part.outputs.len(), &uneven, true), whole, "{:?}", part.work);
        }
    }
    assert!(passes > 3 + 6, "{passes} steps were cut");
}
