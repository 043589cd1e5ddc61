//! Families of averages that a trend classification's kernels compute in one step: which are recognised, what depends
//! on the shape, and equality of all bits with the CPU at the edges of lengths and histories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use trawl_kernels::cuda::{Constants, Limits, Market, Sequence, Wanted};
use trawl_kernels::{Executable, NoCancel, Precision};
use trawl_plan::Program;
use trawl_plan::family::Trend;
use trawl_plan::graph::{Graph, Kind, NodeId, Op};
use trawl_plan::{Input, Schema, compile_expressions};

use crate::emulator::{Emulator, Order};
use crate::fused::{check, inputs, market, program, ragged};

const ORDERS: [Order; 3] = [Order::Random, Order::Reverse, Order::Forward];

const FAMILIES: [Trend; 6] = [Trend::Ema, Trend::Hma, Trend::Wma, Trend::Dema, Trend::Lsma, Trend::Kama];

/// Names of the default classification's averages in kernels of single primitives.
const APART: [&str; 5] = ["trend_wma(", "trend_lsma(", "TrendHull", "TrendExponential<", "TrendKaufman"];

/// All outputs that depend on averages.
fn outputs(call: &str) -> Vec<String> {
    let fields = ["signal", "trend", "ema", "hma", "wma", "dema", "lsma", "kama", "equity", "win_rate"];
    let equities = ["ema", "hma", "wma", "dema", "lsma", "kama"].map(|family| format!("{call}.{family}_equity"));
    fields.iter().map(|field| format!("{call}.{field}")).chain(equities).collect()
}

fn fused(program: &Program) -> Sequence {
    fused_in(program, Constants::None, Precision::F64)
}

/// With lengths as constants.
fn constant(program: &Program) -> Sequence {
    fused_in(program, Constants::Lengths, Precision::F64)
}

fn fused_in(program: &Program, constants: Constants, precision: Precision) -> Sequence {
    Sequence::fused_in(program, constants, precision).expect("every primitive")
}

fn texts(sequence: &Sequence) -> String {
    sequence.kernels().into_values().collect()
}

/// Different lines of a text that contain `what`: a bar is written once for each loop that advances it.
fn lines(text: &str, what: &str) -> usize {
    text.lines().map(str::trim).filter(|line| line.contains(what)).collect::<BTreeSet<_>>().len()
}

/// Asserts that plans have the CPU's bits over `bars`, each in one thread order; every second one with little shared
/// memory.
fn held(plans: &[(String, Program, Sequence)], bars: &[Vec<Vec<f64>>]) -> usize {
    let kernels: BTreeMap<String, String> = plans.iter().flat_map(|(.., plan)| plan.kernels()).collect();
    let mut device = Emulator::new(&kernels);
    let (mut wrong, mut values) = (Vec::new(), 0);
    for (i, (label, program, plan)) in plans.iter().enumerate() {
        device.order = ORDERS[i % 3];
        // Some of the rings fit into shared memory, or none.
        let limits = [
            Limits::default(),
            Limits { shared_bytes: 80 * 1024, ..Limits::default() },
            Limits { shared_bytes: 0, ..Limits::default() },
        ][i % 3];
        let comparison = check(&device, program, plan, bars, limits);
        values += comparison.values;
        wrong.extend(comparison.differs.iter().map(|d| format!("{label}: {d:?}")));
    }
    assert!(wrong.is_empty(), "{} series differ: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert!(values > 0);
    values
}

/// A classification's signal beside its averages, which are plotted.
fn plotted(call: &str) -> Program {
    let program = program(&[format!("{call}.signal")]);
    let all = (0..program.nodes().len() as u32).map(NodeId);
    let averages = all.filter(|id| matches!(program.nodes()[id.index()].op, Op::TrendMean { .. }));
    let outputs: Vec<NodeId> = program.outputs.iter().copied().chain(averages).collect();
    program.with_outputs(outputs)
}

/// Signals of families of any lengths, by hand: close, the return over a bar and the bar's number are columns.
fn by_hand(families: &[(Trend, &[u32])]) -> Program {
    let mut graph = Graph::default();
    let column = |graph: &mut Graph, at: u16| graph.add(Op::Column(at), &[], Kind::Num);
    let (close, open) = (column(&mut graph, 0), column(&mut graph, 1));
    // The running sum of ones is the bar's number.
    let one = graph.num(1.0);
    let number = graph.add(Op::Cumulative, &[one], Kind::Num);
    let before = graph.add(Op::Lag(1), &[close], Kind::Num);
    let returns = graph.add(Op::GrownReturn { rate: 0.01.into(), cutout: 3 }, &[close, before, number], Kind::Num);
    let outputs = families.iter().map(|(family, lens)| {
        let mut inputs = vec![close, returns, number];
        for len in *lens {
            let read: &[NodeId] = if family.counts_bars() { &[open, number] } else { &[open] };
            inputs.push(graph.add(Op::TrendMean { family: *family, len: *len }, read, Kind::Num));
        }
        graph.add(Op::FamilySignal { decay: 0.997.into(), cutout: 3 }, &inputs, Kind::Num)
    });
    let outputs: Vec<NodeId> = outputs.collect();
    Program::over(vec![Input::Column("close".to_owned()), Input::Column("open".to_owned())], graph, outputs)
}

#[test]
fn the_nine_averages_of_a_family_are_one_step_around_one_ring() {
    let plan = fused(&program(&outputs("atc()")));
    assert_eq!(plan.calls.len(), 1, "one kernel");
    let text = texts(&plan);
    for apart in APART {
        assert!(!text.contains(apart), "{apart} is in\n{text}");
    }
    for means in ["WeightedMeans<9>", "LineMeans<9>", "HullMeans<9>", "KaufmanMeans<9>", "ExponentialMeans<9, "] {
        assert!(text.contains(means), "{means} is not in\n{text}");
    }
    // The four families with look-back share the ring that one part fills.
    assert_eq!(lines(&text, "push_twice"), 1, "{text}");
    assert_eq!(lines(&text, ".follow("), 4, "{text}");
    // Lengths ascend on the walk, and are summed in the order of the definition: L, L + o1 ... L - o4.
    let order = |at: usize| [4, 5, 6, 7, 8, 3, 2, 1, 0].map(|place| format!("n{at}[{place}]")).join(", ");
    assert_eq!((0..64).filter(|at| text.contains(&format!("{{{}}};", order(*at)))).count(), 6, "{text}");
}

#[test]
fn other_lengths_compile_nothing() {
    let kernels = |call: &str| fused(&program(&outputs(call))).kernels();
    let usual = kernels("atc()");
    for call in [
        "atc(close, 40)",
        "atc(close, 200, robustness='wide', la=0.5, de=0.1, cutout=70)",
        "atc(close, 9, ema_len=100, hma_len=31, kama_len=7, kama_w=3)",
        "atc(close, 8, robustness='wide')",
    ] {
        assert!(kernels(call) == usual, "{call}");
    }
    assert!(kernels("atc(high, 28)") != usual);
}

#[test]
fn lengths_are_constants_of_the_text_where_that_is_asked_for() {
    let usual = program(&outputs("atc()"));
    let text = texts(&constant(&usual));
    let lens = "22, 24, 26, 27, 28, 29, 30, 32, 34";
    for family in ["FixedWeightedMeans", "FixedLineMeans", "FixedKaufmanMeans"] {
        assert!(text.contains(&format!("{family}<Lengths<{lens}>>")), "{family} is not in\n{text}");
    }
    let halves = "11, 12, 13, 13, 14, 14, 15, 16, 17, 4, 4, 5, 5, 5, 5, 5, 5, 5";
    assert!(text.contains(&format!("FixedHullMeans<Lengths<{lens}, {halves}>>")), "{text}");
    assert!(texts(&constant(&program(&outputs("atc(close, 40)")))) != text);
    // Settings other than lengths remain arguments.
    assert!(texts(&constant(&program(&outputs("atc(close, 28, la=0.5, de=0.1, cutout=70)")))) == text);
    // Without constant lengths the kernels are those of the shape.
    for call in ["ema(close, 9)", "atc(close, 200).hma", "atc().ema"] {
        let program = program(&[call.to_owned()]);
        assert_eq!(constant(&program).kernels(), fused(&program).kernels(), "{call}");
    }
}

#[test]
fn averages_that_are_plotted_too_stay_beside_the_families() {
    let plan = fused(&plotted("atc(close, 9)"));
    let text = texts(&plan);
    for apart in APART.iter().chain(&["WeightedMeans<9>", "HullMeans<9>"]) {
        assert!(text.contains(apart), "{apart} is not in\n{text}");
    }
}

#[test]
fn averages_that_many_signals_read_are_made_once() {
    let sweep = |settings: usize| {
        let items: Vec<String> = (0..settings).map(|i| format!("atc(close, 20, de=0.0{}).ema", i + 1)).collect();
        texts(&fused(&program(&items)))
    };
    assert!(sweep(4).contains("ExponentialMeans<9"));
    let many = sweep(5);
    assert!(!many.contains("ExponentialMeans<9") && many.contains("TrendExponential<"));
}

#[test]
fn families_have_the_bits_of_the_cpu_at_the_edges_of_their_lengths() {
    let calls = [
        // Lengths around those of histories: from 1 on, halves after wholes, longer than any history.
        "atc()",
        "atc(close, 8, robustness='wide')",
        "atc(close, 5, robustness='narrow', cutout=40)",
        "atc(close, 7, la=5, de=25, strategy_mode=true)",
        "atc(close, 240)",
        "atc(close, 17, ema_len=16, hma_len=32, dema_len=33, lsma_len=31, kama_len=100)",
        // No walk may leave the rings, which are no longer than the histories: no value would show it.
        "atc(close, 1000, ema_len=16, dema_len=33)",
        // An input that is another column, or a computed series.
        "atc(volume, 12)",
        "atc((high + low) / 2, 15, robustness='narrow')",
    ];
    let mut plans: Vec<(String, Program, Sequence)> = Vec::new();
    for call in calls {
        let program = program(&outputs(call));
        plans.push((call.to_owned(), program.clone(), fused(&program)));
        plans.push((format!("{call} of constants"), program.clone(), constant(&program)));
    }
    let plot = plotted("atc(close, 9, robustness='wide')");
    plans.push(("plotted".to_owned(), plot.clone(), fused(&plot)));
    plans.push(("plotted in f32".to_owned(), plot.clone(), fused_in(&plot, Constants::None, Precision::F32)));
    // All of one shape.
    for call in &calls[..5] {
        let program = program(&outputs(call));
        let plan = fused_in(&program, Constants::None, Precision::F32);
        plans.push((format!("{call} in f32"), program, plan));
    }
    let values = held(&plans, &market(&ragged(), 11));
    println!("{} plans, {values} values: bit for bit", plans.len());
}

#[test]
fn families_of_any_lengths_have_the_bits_of_the_cpu() {
    let lens: [&[u32]; 8] = [
        &[1],
        &[2, 1],
        &[7, 7, 7, 7],
        &[1, 1, 2, 3, 5, 8, 13, 21, 34],
        &[34, 21, 13, 8, 5, 3, 2, 1],
        &[16, 15, 17, 31, 33, 32, 16],
        &[400, 3, 250, 40],
        &[19, 4, 19, 5, 4, 6, 90, 2, 61],
    ];
    let mut plans: Vec<(String, Program, Sequence)> = Vec::new();
    for lens in lens {
        let program = by_hand(&FAMILIES.map(|family| (family, lens)));
        plans.push((format!("{lens:?}"), program.clone(), fused(&program)));
        plans.push((format!("{lens:?} of constants"), program.clone(), constant(&program)));
        plans.push((format!("{lens:?} apart"), program.clone(), Sequence::apart(&program).expect("every primitive")));
        let short = Sequence::apart_in(&program, Precision::F32).expect("every primitive");
        plans.push((format!("{lens:?} apart in f32"), program.clone(), short));
    }
    let values = held(&plans, &market(&ragged(), 5));
    println!("{} plans, {values} values: bit for bit", plans.len());
}

/// Series whose differences are denormal in a precision, zeros of both signs, prices that are constant for longer than a
/// window, huge ones.
fn odd_market(precision: Precision) -> Vec<Vec<Vec<f64>>> {
    let [least, denormal, tiny, huge] = match precision {
        Precision::F64 => [5e-324, 1e-310, 1e-211, 1e307],
        Precision::F32 => [1.5e-45, 1e-40, 1e-25, 2e37],
    };
    let symbols: [&dyn Fn(usize) -> f64; 8] = [
        &|t| (t * t % 7) as f64 * least,
        &|t| if t % 3 == 0 { -0.0 } else { 0.0 },
        &|t| if t < 90 { 57.31 } else { 57.3 + (t % 2) as f64 / 100.0 },
        &|t| ((t * 31 % 11) as f64 - 3.0) * denormal,
        &|t| tiny * (1.0 + (t * 13 % 17) as f64),
        &|t| (17.0 - (t * 7 % 13) as f64) * huge,
        &|t| {
            if t % 50 == 49 {
                f64::NAN
            } else if t % 70 == 60 {
                f64::INFINITY
            } else {
                (t * 17 % 23) as f64
            }
        },
        &|t| if t < 60 { f64::NAN } else { 100.0 + (t * 29 % 31) as f64 / 8.0 },
    ];
    let column = |value: &dyn Fn(usize) -> f64, shift: usize| (0..230).map(|t| value(t + shift)).collect::<Vec<f64>>();
    symbols.iter().map(|value| (0..5).map(|shift| column(*value, shift)).collect()).collect()
}

#[test]
fn families_have_the_bits_of_the_cpu_over_odd_numbers() {
    let calls = ["atc()", "atc(open, 9)", "atc(close, 12, robustness='wide', la=500, de=0)"];
    let plans = |call: &&str| {
        let program = program(&outputs(call));
        [fused(&program), constant(&program)].map(|plan| ((*call).to_owned(), program.clone(), plan))
    };
    held(&calls.iter().flat_map(plans).collect::<Vec<_>>(), &odd_market(Precision::F64));
    let plans = |call: &&str| {
        let program = program(&outputs(call));
        let of = |constants| ((*call).to_owned(), program.clone(), fused_in(&program, constants, Precision::F32));
        [Constants::None, Constants::Lengths].map(of)
    };
    held(&calls[..1].iter().flat_map(plans).collect::<Vec<_>>(), &odd_market(Precision::F32));
}

/// Lengths of families whose averages are compared: halves of some come after others, some are longer than a tile.
const LOOKED_AT: [&[u32]; 2] = [&[1, 2, 3, 5, 8, 13, 21, 34, 55], &[22, 24, 26, 27, 28, 29, 30, 32, 34]];

#[test]
fn the_averages_themselves_have_the_bits_of_the_cpu() {
    let begins: Vec<f64> = Vec::new();
    let of_both = |lens: &&'static [u32]| {
        let lens = *lens;
        let both = [Constants::None, Constants::Lengths];
        both.into_iter().flat_map(move |c| Precision::ALL.map(|precision| (lens, c, precision)))
    };
    for (lens, constants, precision) in LOOKED_AT.iter().flat_map(of_both) {
        let families = by_hand(&FAMILIES.map(|family| (family, lens)));
        let sequence = fused_in(&families, constants, precision);
        // Signals reveal little of averages: replace them by one of the averages at each bar.
        let observed = |(name, text): (String, String)| {
            let text: Vec<String> = text
                .lines()
                .map(|line| match line.split_once("const real v").and_then(|(_, rest)| rest.split_once(" = s")) {
                    Some((at, call)) if text.contains(&format!("real n{at}[9];")) && call.contains(", a") => {
                        format!("{line}\nconst_cast<real&>(v{at}) = n{at}[t % 9];")
                    }
                    _ => line.to_owned(),
                })
                .collect();
            (name, text.join("\n") + "\n")
        };
        let kernels: BTreeMap<String, String> = sequence.kernels().into_iter().map(observed).collect();
        assert_eq!(kernels.values().map(|text| lines(text, "const_cast")).sum::<usize>(), FAMILIES.len());
        let device = Emulator::new(&kernels);
        let nodes = (0..families.nodes().len() as u32).map(NodeId);
        let means: Vec<NodeId> =
            nodes.filter(|id| matches!(families.nodes()[id.index()].op, Op::TrendMean { .. })).collect();
        let averages = Executable::new(&families.with_outputs(means), precision);
        for bars in [market(&ragged(), 21), odd_market(precision)] {
            let symbols = inputs(&families, &bars, &begins);
            let market = Market::new(families.inputs.len(), &symbols);
            let got = sequence.run(&device, &market, Wanted::All, Limits::default()).expect("it runs");
            for (number, symbol) in symbols.iter().enumerate() {
                let want = averages.evaluate_from(std::slice::from_ref(symbol), &[0], &NoCancel);
                let want = want.expect("not cancelled");
                for (bar, family) in (0..symbol.visible).flat_map(|bar| (0..FAMILIES.len()).map(move |f| (bar, f))) {
                    let want = want.series(0, family * 9 + bar % 9)[bar];
                    let got = got[family][market.place(Wanted::All, 0, number, bar)];
                    let of = (FAMILIES[family], lens[bar % 9]);
                    let label = format!("{of:?} in {precision:?}, symbol {number} bar {bar}");
                    assert!(want.to_bits() == got.to_bits(), "{label}: CPU {want:?}, GPU {got:?}");
                }
            }
        }
    }
}

#[test]
fn golden_classifications_have_the_bits_of_the_cpu() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/atc");
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).expect("the manifest");
    let cases: Vec<serde_json::Value> = serde_json::from_str(&manifest).expect("a list of cases");
    let schema = Schema::of_columns(["open", "close"].map(str::to_owned).to_vec());
    let mut plans: Vec<(String, Program, Sequence, Vec<Vec<f64>>)> = Vec::new();
    for case in cases.iter().filter(|case| case["expect"] != "error") {
        let name = case["case"].as_str().expect("a name");
        let table = crate::golden::read(&format!("../atc/{name}.csv.gz"));
        let series = |column: &str| -> Option<Vec<f64>> {
            Some(table.get(column)?.iter().map(|x| x.unwrap_or(f64::NAN)).collect())
        };
        let price = series("price").expect("a price");
        // The source of averages is in another column if it is not the price.
        let src = series("src");
        let mut arguments = vec![if src.is_some() { "open" } else { "close" }.to_owned()];
        let p = &case["params"];
        let number = |golden: &str, ours: &str| format!("{ours}={}", p[golden]);
        for family in ["ema", "hma", "wma", "dema", "lsma", "kama"] {
            let golden = if family == "hma" { "hull" } else { family };
            arguments.push(number(&format!("{golden}_len"), &format!("{family}_len")));
            arguments.push(number(&format!("{family}_w"), &format!("{family}_w")));
        }
        let names = [("La", "la"), ("De", "de"), ("long_threshold", "long"), ("short_threshold", "short")];
        arguments.extend(names.map(|(golden, ours)| number(golden, ours)));
        arguments.push(number("cutout", "cutout"));
        arguments.push(format!("robustness='{}'", p["robustness"].as_str().expect("a word")));
        arguments.push(number("strategy_mode", "strategy_mode"));
        let items = outputs(&format!("atc({})", arguments.join(", ")));
        let named: Vec<String> = items.iter().enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
        let plan = compile_expressions(&named, "golden", &schema).unwrap_or_else(|d| panic!("{name}: {}", d[0]));
        let open = src.unwrap_or_else(|| price.clone());
        let unread = vec![0.0; price.len()];
        let columns = vec![open, unread.clone(), unread.clone(), price, unread];
        let program = plan.program().clone();
        let plan = fused(&program);
        plans.push((name.to_owned(), program, plan, columns));
    }
    assert!(plans.len() > 20, "{} cases", plans.len());
    let kernels: BTreeMap<String, String> = plans.iter().flat_map(|(_, _, plan, _)| plan.kernels()).collect();
    assert!(kernels.len() <= 4, "{} shapes: with a column of their own, and a bar late", kernels.len());
    let mut device = Emulator::new(&kernels);
    let mut values = 0;
    for (i, (name, program, plan, columns)) in plans.into_iter().enumerate() {
        device.order = ORDERS[i % 3];
        let comparison = check(&device, &program, &plan, &[columns], Limits::default());
        assert!(comparison.differs.is_empty(), "{name}: {:?}", comparison.differs.first());
        values += comparison.values;
    }
    println!("{values} values of golden classifications: bit for bit");
}
