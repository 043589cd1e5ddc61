//! Double-double numbers against identities and constants known to 32 digits.

use trawl_plan::graph::{Binary, Unary};

use crate::double::Double;
use crate::number::Number;

/// The exponential squares its value six times: some 64 roundings of 2^-105.
const TOLERANCE: f64 = 1e-29;

fn unary(op: Unary, x: f64) -> Double {
    Double::unary(op, Double::of(x))
}

/// |a - b| relative to b or 1.
fn apart(a: Double, b: Double) -> f64 {
    ((a - b).abs() / b.abs().max(Double::of(1.0))).value()
}

#[test]
fn constants_have_all_their_digits() {
    let constants = [
        (unary(Unary::Exp, 1.0), std::f64::consts::E, 1.445_646_891_729_250_2e-16),
        (unary(Unary::Atan, 1.0) * 4.0, std::f64::consts::PI, 1.224_646_799_147_353_2e-16),
        (unary(Unary::Asin, 1.0) * 2.0, std::f64::consts::PI, 1.224_646_799_147_353_2e-16),
        (unary(Unary::Sqrt, 2.0), std::f64::consts::SQRT_2, -9.667_293_313_452_913e-17),
        (unary(Unary::Ln, 2.0), std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17),
    ];
    for (got, high, low) in constants {
        assert!(apart(got, Double::of(high) + low) < TOLERANCE, "{got:?}, not {high:e} {low:e}");
    }
}

#[test]
fn functions_and_their_inverses_cancel() {
    for i in 1..400 {
        let x = Double::of(f64::from(i)) / 37.0;
        let back = |f: Unary, g: Unary, x: Double| apart(Double::unary(f, Double::unary(g, x)), x);
        let small = x / 11.0;
        let found = [
            back(Unary::Ln, Unary::Exp, x),
            back(Unary::Exp, Unary::Ln, x),
            back(Unary::Tan, Unary::Atan, x),
            back(Unary::Sin, Unary::Asin, small),
            back(Unary::Cos, Unary::Acos, small),
            apart(x.sqrt() * x.sqrt(), x),
            apart(Double::binary(Binary::Quotient, x, small) * small, x),
            apart(x.sin() * x.sin() + x.cos() * x.cos(), Double::of(1.0)),
            apart(Double::unary(Unary::Tanh, x) * Double::unary(Unary::Cosh, x), Double::unary(Unary::Sinh, x)),
        ];
        assert!(found.iter().all(|e| *e < TOLERANCE), "{x:?}: {found:?}");
    }
}

#[test]
fn what_f64_loses_is_kept() {
    let big = Double::of(1e17);
    assert!((big + 1.0) - big == 1.0);
    assert!(big + 1.0 > big);
    let third = Double::of(1.0) / 3.0;
    assert!(apart(third * 3.0, Double::of(1.0)) < 1e-31);
    assert!(Double::sum(&[1e16, 1.0, -1e16].map(Double::of)) == 1.0);
    assert!(Double::unary(Unary::Round, Double::of(2.5) + 1e-20) == 3.0);
    assert!(Double::unary(Unary::Round, Double::of(2.5)) == 2.0);
    assert!(Double::unary(Unary::Floor, Double::of(3.0) - 1e-20) == 2.0);
    assert!(Double::unary(Unary::Ceil, Double::of(3.0) + 1e-20) == 4.0);
}
