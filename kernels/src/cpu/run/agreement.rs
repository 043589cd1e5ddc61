//! Tests of internals: every instruction set of this machine, and every way of cutting a program into tasks, give the
//! same bits.

use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Op};
use trawl_plan::{Program, Schema, compile_expressions};

use crate::cpu::lower::fuse::{fuse, separate};
use crate::cpu::lower::fused_op::FusedOp;
use crate::cpu::lower::schedule::Schedule;
use crate::cpu::primitives::count::Counted;
use crate::cpu::run::strips::{Source, Workspace};
use crate::cpu::run::tile::{Lanes, Tile};
use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::{Isa, LANES};
use crate::{NoCancel, SymbolInput};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// The symbol of nearly equal prices.
const MINUTE: usize = 7;

/// Every indicator, helper and condition over bars.
const EXPRESSIONS: &[&str] = &[
    "sma(close,20)",
    "sma(close,3)",
    "sma(volume,100)",
    "ema(close,20)",
    "wma(close,20)",
    "wma(close,2)",
    "kama(close,10)",
    "rsi(close,14)",
    "rsi(hl2,3)",
    "macd(close,12,26,9).line",
    "macd(close,12,26,9).signal",
    "macd(close,12,26,9).hist",
    "macd(close,3,6,4).signal",
    "bbands(close,20,2).upper",
    "bbands(close,20,2).middle",
    "bbands(close,20,2).lower",
    "atr(14)",
    "atr(1)",
    "stoch(14,3,3).k",
    "stoch(14,3,3).d",
    "stoch(5,3,3,slowk_matype='ema',slowd_matype='wma').d",
    "adx(14)",
    "adx(2)",
    "cci(20)",
    "cci(3)",
    "obv()",
    "vwap()",
    "mfi(14)",
    "donchian(20).upper",
    "donchian(20).middle",
    "donchian(20).lower",
    "roc(close,10)",
    "stddev(close,5)",
    "correl(close,open,9)",
    "cdlengulfing()",
    "highest(high,33)",
    "zscore(close,20)",
    "percentrank(close,9)",
    "round(close)",
    "sign(close - open)",
    "sqrt(close)",
    "log(close)",
    "pow(close,2)",
    "close % 3",
    "clamp(close,40,60)",
    "nz(close[3],7)",
    "iff(close > open, high, low)",
    "since(close > open)",
    "valuewhen(close > open, high)",
    "count(close > open, 9)",
    "count(close < open[1], 2)",
    "count(close <= sma(close,5), 33)",
    "count(close[40] >= open, 100)",
    "count(close == open, 250)",
    "count(close != low, 64)",
    "count(crosses_above(close, sma(close,5)), 64)",
    "count(crosses_below(sma(close,3), sma(close,9)), 200)",
    "count(close > open and close > low, 50)",
    "crosses_above(close, sma(close,5))",
    "crosses_below(close, sma(close,5))",
    "within(close > open, 4)",
    "streak(close >= low, 3)",
    "not (close != open)",
    "close == open or high <= low[1] and close < 50",
    "maximum(close, open[2])",
    "-abs(close - 50)",
    "close[40]",
    "atc().signal",
    "atc(hl2, 9, kama_len=20, robustness='wide', cutout=40, la=0.5, de=0.2, strategy_mode=true).trend",
    "atc(open, 5, hma_len=50, robustness='narrow').lsma",
    "atc(len=40).hma",
    "atc(len=40).kama_equity",
];

fn program(items: &[&str]) -> Program {
    let named: Vec<String> = items.iter().enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    compile_expressions(&named, "test", &schema).expect("legal").program().clone()
}

/// Ragged symbols on a cent grid. `dirt` bars of a thousand are missing, a few are infinite, and volume is often 0.
fn market(symbols: usize, dirt: u64) -> Vec<Vec<Vec<f64>>> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let symbol = |i: usize| {
        let mut columns = vec![Vec::new(); 5];
        let mut cents = 5_000;
        for _ in 0..400 - i * 23 {
            let flat = random(6) == 0;
            let open = cents;
            cents = if flat { cents } else { (cents + random(201)).saturating_sub(100).max(50) };
            let (up, down) = if flat { (0, 0) } else { (random(60), random(40)) };
            let volume = if random(9) == 0 { 0 } else { random(100_000) * 100 };
            let row = [open, open.max(cents) + up, open.min(cents) - down, cents, volume];
            for (column, value) in columns.iter_mut().zip(row) {
                let missing = if random(7) == 0 { f64::INFINITY } else { f64::NAN };
                column.push(if random(1000) < dirt { missing } else { value as f64 / 100.0 });
            }
            if i == MINUTE {
                // Prices whose differences are of the order of rounding errors.
                columns[..4]
                    .iter_mut()
                    .filter_map(|prices| prices.last_mut())
                    .for_each(|price| *price = 1e6 + *price * 1e-8);
            }
        }
        columns
    };
    (0..symbols).map(symbol).collect()
}

/// How the bars of a run are laid out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    Whole,
    StripByStrip,
}

/// The bits of every output at every visible bar, NaNs canonical.
fn bits<T: Real>(isa: Isa, program: &Program, schedule: &Schedule, market: &[Vec<Vec<f64>>]) -> Vec<u64> {
    bits_from::<T>((isa, Layout::Whole), program, schedule, market, 0)
}

/// As [`bits`], from bar `from` on.
fn bits_from<T: Real>(
    (isa, layout): (Isa, Layout),
    program: &Program,
    schedule: &Schedule,
    market: &[Vec<Vec<f64>>],
    from: usize,
) -> Vec<u64> {
    let at =
        |input: &trawl_plan::Input| COLUMNS.iter().position(|c| *input == trawl_plan::Input::Column((*c).to_owned()));
    let columns: Vec<usize> = program.inputs.iter().filter_map(at).collect();
    let symbol = |bars: &Vec<Vec<f64>>| bars[0].len();
    let inputs: Vec<SymbolInput<'_>> = market
        .iter()
        .map(|bars| SymbolInput {
            columns: columns.iter().map(|c| bars[*c].as_slice()).collect(),
            visible: symbol(bars),
        })
        .collect();
    let identity: Vec<usize> = (0..columns.len()).collect();
    let members: Vec<&SymbolInput<'_>> = inputs.iter().collect();
    let tile = Tile::<T>::load(&members, schedule.whole.inputs(from));
    let lanes = Lanes::of(&members, schedule.whole.inputs(from));
    let source = match layout {
        Layout::Whole => Source::Tile { tile: &tile, columns: &identity },
        Layout::StripByStrip => Source::Lanes(&lanes),
    };
    let mut bits = Vec::new();
    let mut workspace = Workspace::<T>::on(isa, schedule);
    let ran = workspace.run(source, from, &NoCancel, |w, rows| {
        for (lane, visible) in tile.visible.iter().enumerate() {
            for row in rows.start..rows.end.min(*visible) {
                let values = (0..program.outputs.len()).map(|output| w.value(source, output, lane, row));
                bits.extend(values.map(f64::to_bits));
            }
        }
    });
    assert_eq!(ran, Ok(()));
    bits
}

fn instruction_sets_agree<T: Real>() {
    let program = program(EXPRESSIONS);
    let schedule = Schedule::new(&program);
    for dirt in [0, 4] {
        let market = market(LANES - 1, dirt);
        let portable = bits::<T>(Isa::Portable, &program, &schedule, &market);
        for isa in Isa::all() {
            let got = bits::<T>(isa, &program, &schedule, &market);
            let differs = portable.iter().zip(&got).position(|(a, b)| a != b);
            let output = differs.map(|at| EXPRESSIONS[at % EXPRESSIONS.len()]);
            assert_eq!(output, None, "{isa:?} differs from the portable code");
        }
    }
}

#[test]
fn instruction_sets_agree_in_f64() {
    instruction_sets_agree::<f64>();
}

#[test]
fn instruction_sets_agree_in_f32() {
    instruction_sets_agree::<f32>();
}

fn layouts_agree<T: Real>() {
    let isa = Isa::detect();
    for items in EXPRESSIONS.chunks(1).chain([EXPRESSIONS]) {
        let program = program(items);
        let schedule = Schedule::new(&program);
        for dirt in [0, 4] {
            let market = market(LANES - 3, dirt);
            // Also beyond the end of all but one symbol, which has 400 bars.
            for from in [0, 1, 31, 32, 97, 250, 399] {
                let whole = bits_from::<T>((isa, Layout::Whole), &program, &schedule, &market, from);
                let strips = bits_from::<T>((isa, Layout::StripByStrip), &program, &schedule, &market, from);
                assert!(!whole.is_empty() && whole == strips, "{items:?} from bar {from} on, {dirt} of 1000 missing");
            }
        }
    }
}

#[test]
fn bars_laid_out_strip_by_strip_give_the_bits_of_whole_columns_in_f64() {
    layouts_agree::<f64>();
}

#[test]
fn bars_laid_out_strip_by_strip_give_the_bits_of_whole_columns_in_f32() {
    layouts_agree::<f32>();
}

/// One symbol is run by code of its own: alone, and as the last tile of a workspace whose rings still have the bars of others.
fn one_lane_agrees<T: Real>() {
    for items in EXPRESSIONS.chunks(1).chain([EXPRESSIONS]) {
        let program = program(items);
        let schedule = Schedule::new(&program);
        for dirt in [0, 4, 60] {
            let many = market(LANES, dirt);
            for (symbol, alone) in many.iter().enumerate().step_by(5) {
                for (layout, from) in [(Layout::Whole, 0), (Layout::StripByStrip, 0), (Layout::StripByStrip, 97)] {
                    let alone = std::slice::from_ref(alone);
                    if from >= alone[0][0].len() {
                        continue;
                    }
                    // The portable code never is that of one lane.
                    let expected = bits_from::<T>((Isa::Portable, layout), &program, &schedule, alone, from);
                    let got = bits_from::<T>((Isa::OneLane, layout), &program, &schedule, alone, from);
                    let differs = expected.iter().zip(&got).position(|(a, b)| a != b);
                    assert!(!expected.is_empty() && expected.len() == got.len(), "{items:?}");
                    let output = differs.map(|at| (items[at % items.len()], at / items.len()));
                    assert_eq!(output, None, "{layout:?} of symbol {symbol} from {from} on, {dirt} of 1000 missing");
                }
            }
        }
    }
}

#[test]
fn one_symbol_has_the_bits_of_many_in_f64() {
    one_lane_agrees::<f64>();
}

#[test]
fn one_symbol_has_the_bits_of_many_in_f32() {
    one_lane_agrees::<f32>();
}

#[test]
fn one_symbol_after_others_has_the_bits_of_it_alone() {
    let program = program(EXPRESSIONS);
    let executable = crate::Executable::new(&program, crate::Precision::F64);
    let at =
        |input: &trawl_plan::Input| COLUMNS.iter().position(|c| *input == trawl_plan::Input::Column((*c).to_owned()));
    let columns: Vec<usize> = program.inputs.iter().filter_map(at).collect();
    for dirt in [0, 4] {
        // The longest come last, so that one of them is alone.
        let market = market(LANES, dirt);
        let longest = market[0].clone();
        let inputs: Vec<SymbolInput<'_>> = market
            .iter()
            .chain([&longest])
            .map(|bars| SymbolInput {
                columns: columns.iter().map(|c| bars[*c].as_slice()).collect(),
                visible: bars[0].len(),
            })
            .collect();
        let all = executable.evaluate_from(&inputs, &vec![0; inputs.len()], &NoCancel).expect("not cancelled");
        for (symbol, (input, values)) in inputs.iter().zip(&all.nested()).enumerate() {
            let alone = executable.evaluate_from(std::slice::from_ref(input), &[0], &NoCancel).expect("not cancelled");
            for (output, (a, b)) in values.iter().zip(&alone.nested()[0]).enumerate() {
                let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<u64>>();
                assert_eq!(bits(a), bits(b), "{} of symbol {symbol}", EXPRESSIONS[output]);
            }
        }
    }
}

#[test]
fn groups_have_the_bits_of_their_primitives() {
    const TOGETHER: [&[&str]; 3] = [
        &["macd(close,12,26,9).line", "macd(close,12,26,9).signal", "macd(close,12,26,9).hist"],
        &["bbands(close,20,2).upper", "bbands(close,20,2).middle", "bbands(close,20,2).lower"],
        EXPRESSIONS,
    ];
    for items in EXPRESSIONS.chunks(1).chain(TOGETHER) {
        let program = program(items);
        for dirt in [0, 4, 60] {
            let market = market(LANES, dirt);
            let (grouped, apart) = (Schedule::new(&program), Schedule::of(&program, separate(&program)));
            let isa = Isa::detect();
            let (grouped, apart) =
                (bits::<f64>(isa, &program, &grouped, &market), bits::<f64>(isa, &program, &apart, &market));
            let differs = grouped.iter().zip(&apart).position(|(a, b)| a != b);
            assert_eq!(
                differs,
                None,
                "{items:?}: {:?}",
                differs.map(|at| (f64::from_bits(grouped[at]), f64::from_bits(apart[at])))
            );
        }
    }
}

#[test]
fn the_groups_of_the_catalogue_are_found() {
    let found = |items: &[&str]| {
        let program = program(items);
        fuse(&program).iter().map(|part| part.work.clone()).collect::<Vec<FusedOp>>()
    };
    let (typical, two) = (FusedOp::SumOver(3.0.into()), 2.0.into());
    assert_eq!(found(&["sma(close,20)"]), [FusedOp::Op(Op::Mean(20))]);
    assert_eq!(found(&["ema(close,20)"]), [FusedOp::Op(Op::Ema { p: 20, delay: 0 })]);
    assert_eq!(found(&["wma(close,20)"]), [FusedOp::Op(Op::WeightedMean(20))]);
    assert_eq!(found(&["rsi(close,14)"]), [FusedOp::Strength(14)]);
    let macd = FusedOp::Convergence { fast: 12, delay: 14, slow: 26, signal: 9 };
    let lines = ["macd(close,12,26,9).line", "macd(close,12,26,9).signal", "macd(close,12,26,9).hist"];
    assert_eq!(found(&lines), [macd]);
    let bands = ["bbands(close,20,2).upper", "bbands(close,20,2).middle", "bbands(close,20,2).lower"];
    let made = [FusedOp::Op(Op::Mean(20)), FusedOp::Op(Op::StdDev(20)), FusedOp::Bands { up: two, down: two }];
    assert_eq!(found(&bands), made);
    assert_eq!(found(&["atr(14)"]), [FusedOp::AverageRange(14)]);
    let (max, min, mean) = (FusedOp::Op(Op::Max(14)), FusedOp::Op(Op::Min(14)), FusedOp::Op(Op::Mean(3)));
    let gate = FusedOp::Op(Op::Binary(Binary::MaskUndefined));
    assert_eq!(found(&["stoch(14,3,3).k", "stoch(14,3,3).d"]), [min, max, FusedOp::Within, mean.clone(), mean, gate]);
    assert_eq!(found(&["adx(14)"]), [FusedOp::Directional(14)]);
    let standing = FusedOp::ZScore(0.015.into());
    let deviation = FusedOp::Op(Op::MeanAbsDev(20));
    assert_eq!(found(&["cci(20)"]), [typical.clone(), FusedOp::Op(Op::Mean(20)), deviation, standing]);
    assert_eq!(found(&["obv()"]), [FusedOp::Op(Op::OnBalance)]);
    assert_eq!(found(&["vwap()"]), [typical.clone(), FusedOp::Weighed]);
    assert_eq!(found(&["count(close > open, 9)"]), [FusedOp::Count { of: Counted::Compare(CompareOp::Greater), p: 9 }]);
    let means = [FusedOp::Op(Op::Mean(20)), FusedOp::Op(Op::Mean(50))];
    let crossings = FusedOp::Count { of: Counted::CrossesBelow, p: 100 };
    let found_counts = found(&["count(crosses_below(sma(close,20), sma(close,50)), 100)"]);
    assert_eq!(found_counts, [&means[..], &[crossings]].concat());
    let sum = |p| FusedOp::Op(Op::Sum(p));
    assert_eq!(found(&["mfi(14)"]), [typical, FusedOp::Flows, sum(14), sum(14), FusedOp::Share]);
    assert_eq!(found(&["kama(close,10)"]), [FusedOp::Apart, sum(10), FusedOp::Op(Op::Kaufman)]);
    let (max, min) = (FusedOp::Op(Op::Max(20)), FusedOp::Op(Op::Min(20)));
    let channel = ["donchian(20).upper", "donchian(20).middle", "donchian(20).lower"];
    assert_eq!(found(&channel), [max, min, FusedOp::PairOver(two)]);
}
