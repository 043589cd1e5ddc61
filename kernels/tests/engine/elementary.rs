//! The elementary functions of the kernels' text have the bits of the CPU's, on the emulator; and the constants of both
//! equal their generator's output.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use trawl_kernels::SymbolInput;
use trawl_kernels::cuda::{Limits, Market, Sequence, Wanted};
use trawl_plan::elementary::{acos, asin, atan, cos, cosh, exp, ln, log10, pow, sin, sinh, tan, tanh};

use crate::compile::python;
use crate::emulator::Emulator;
use crate::fused::{number_in, program};

/// Points of each function, if `TRAWL_ELEMENTARY_POINTS` says no other number.
const POINTS: usize = 10_000;

fn number_of_points() -> usize {
    number_in("TRAWL_ELEMENTARY_POINTS").map_or(POINTS, |points| points as usize)
}

type Unary = fn(f64) -> f64;

const FUNCTIONS: [(&str, Unary); 12] = [
    ("exp", exp),
    ("ln", ln),
    ("log10", log10),
    ("sin", sin),
    ("cos", cos),
    ("tan", tan),
    ("asin", asin),
    ("acos", acos),
    ("atan", atan),
    ("sinh", sinh),
    ("cosh", cosh),
    ("tanh", tanh),
];

/// Arguments at which functions need care.
const EDGES: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    0.999_999_999_999_999_9,
    1.000_000_000_000_000_2,
    std::f64::consts::FRAC_1_SQRT_2,
    std::f64::consts::FRAC_PI_2,
    std::f64::consts::PI,
    709.782_712_893_384,
    709.8,
    -708.4,
    -745.133_219_101_941_1,
    -745.2,
    710.475_860_073_943_9,
    1e-8,
    1e22,
    9_007_199_254_740_993.0,
];

/// Any bits; from -1 to 1; from -1,000 to 1,000; next to 1; next to multiples of a quarter of a turn; the edges first.
fn points(seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 29
    };
    let drawn = |i: usize| {
        let bits = random();
        let unit = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        match i % 5 {
            0 => f64::from_bits(bits),
            1 => unit,
            2 => 1000.0 * unit,
            3 => 1.0 + unit * 2f64.powi(-((bits & 31) as i32)),
            _ => f64::from_bits(((bits >> 40) as f64 * std::f64::consts::FRAC_PI_2).to_bits() + (bits & 3)),
        }
    };
    EDGES.into_iter().chain((0..).map(drawn)).take(number_of_points()).collect()
}

/// Values of a program of one output at every bar of one symbol, by its kernel on the emulator.
fn emulated(item: &str, columns: &[Vec<f64>]) -> Vec<f64> {
    let program = program(&[item.to_owned()]);
    let plan = Sequence::fused(&program).expect("every primitive");
    let symbol = SymbolInput { columns: columns.iter().map(Vec::as_slice).collect(), visible: columns[0].len() };
    assert_eq!(program.inputs.len(), columns.len(), "{item}");
    let market = Market::new(columns.len(), std::slice::from_ref(&symbol));
    let kernels: BTreeMap<String, String> = plan.kernels();
    let out = plan.run(&Emulator::new(&kernels), &market, Wanted::All, Limits::default()).expect("it runs");
    (0..columns[0].len()).map(|t| out[0][market.place(Wanted::All, 0, 0, t)]).collect()
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn elementary_functions_of_kernels_have_the_bits_of_the_cpu() {
    for (seed, (name, function)) in FUNCTIONS.into_iter().enumerate() {
        let points = points(seed as u64 + 1);
        let got = emulated(&format!("{name}(close)"), std::slice::from_ref(&points));
        for (x, got) in points.into_iter().zip(got) {
            let want = function(x);
            assert!(same(got, want), "{name}({x:e}) is {want:e} on the CPU and {got:e} on the emulator");
        }
    }
}

#[test]
fn powers_of_kernels_have_the_bits_of_the_cpu() {
    // Each edge with each, then bases and exponents whose powers are mostly finite.
    let pairs = EDGES.iter().flat_map(|x| EDGES.iter().map(|y| (*x, *y)));
    let drawn = points(21).into_iter().zip(points(22)).enumerate().map(|(i, (x, y))| match i % 3 {
        0 => (x, y),
        1 => (x.abs(), y % 700.0 / ln(x.abs())),
        _ => (x, (y % 30.0).round()),
    });
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.chain(drawn).take(number_of_points()).unzip();
    let got = emulated("pow(close,open)", &[x.clone(), y.clone()]);
    for ((x, y), got) in x.into_iter().zip(y).zip(got) {
        // Undefined powers of the language are NA before `pow` is evaluated.
        let undefined = x.is_nan() || y.is_nan() || (x == 0.0 && y < 0.0);
        let want = if undefined { f64::NAN } else { pow(x, y) };
        assert!(same(got, want), "{x:e}^{y:e} is {want:e} on the CPU and {got:e} on the emulator");
    }
}

#[test]
fn the_generator_writes_the_committed_constants() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/make_elementary.py");
    let done = Command::new(python()).arg(script).arg("--check").output().expect("Python runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
