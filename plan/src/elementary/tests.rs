//! Values of mpmath (tests/golden/elementary.csv), identities, and what lies at the ends of the functions' domains.

use super::{acos, asin, atan, cos, cosh, exp, ln, log10, pow, sin, sinh, tan, tanh};

const GOLDEN: &str = include_str!("../../../tests/golden/elementary.csv");

/// Error that docs/accuracy.md promises, in units of the last place.
const ERROR_ULP_MAX: f64 = 0.51;

fn value(function: &str, x: f64, y: f64) -> f64 {
    match function {
        "exp" => exp(x),
        "ln" => ln(x),
        "log10" => log10(x),
        "pow" => pow(x, y),
        "sin" => sin(x),
        "cos" => cos(x),
        "tan" => tan(x),
        "asin" => asin(x),
        "acos" => acos(x),
        "atan" => atan(x),
        "sinh" => sinh(x),
        "cosh" => cosh(x),
        "tanh" => tanh(x),
        _ => panic!("no function is called '{function}'"),
    }
}

#[test]
fn every_golden_value_is_within_the_promised_error() {
    let (mut wrong, mut rows) = (Vec::new(), 0);
    for line in GOLDEN.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let bits = |i: usize| u64::from_str_radix(cells[i], 16).expect("hexadecimal");
        let (x, y, near) = (f64::from_bits(bits(1)), f64::from_bits(bits(2)), f64::from_bits(bits(3)));
        let more: f64 = cells[4].parse().expect("a number");
        let got = value(cells[0], x, y);
        // NaN, infinities and zeros are what they are; other values differ by last places.
        let special = !near.is_finite() || near == 0.0;
        let right = if special {
            got.to_bits() == near.to_bits() || (got.is_nan() && near.is_nan())
        } else {
            let apart = got.to_bits().wrapping_sub(near.to_bits()) as i64;
            // Away from 0 is up in the bits, whatever the sign is.
            let beyond = more * near.signum();
            apart.abs() <= 1 && (apart as f64 - beyond).abs() <= ERROR_ULP_MAX
        };
        if !right {
            wrong.push(format!("{}({x:e}, {y:e}) is {near:e}, not {got:e}", cells[0]));
        }
        rows += 1;
    }
    assert!(rows > 2_000, "{rows} golden values");
    assert!(wrong.is_empty(), "{} of {rows}: {wrong:#?}", wrong.len());
}

#[test]
fn whole_powers_and_logarithms_are_exact() {
    for base in 2..=100u32 {
        for exponent in 0..=9u32 {
            let power = u64::from(base).pow(exponent);
            if power < 1 << 53 {
                assert_eq!(pow(f64::from(base), f64::from(exponent)), power as f64, "{base}^{exponent}");
                assert_eq!(pow(-f64::from(base), f64::from(exponent)).abs(), power as f64, "-{base}^{exponent}");
            }
        }
    }
    for exponent in 0..=22i32 {
        let ten = 10f64.powi(exponent);
        assert_eq!(log10(ten), f64::from(exponent));
        assert_eq!(pow(10.0, f64::from(exponent)), ten);
    }
    for exponent in -1074..=1023i32 {
        let below_normal = (exponent < -1022).then(|| f64::from_bits(1 << (exponent + 1074)));
        assert_eq!(pow(2.0, f64::from(exponent)), below_normal.unwrap_or(2f64.powi(exponent)), "2^{exponent}");
    }
    assert_eq!([exp(0.0), ln(1.0), cos(0.0), cosh(0.0), acos(1.0)], [1.0, 0.0, 1.0, 1.0, 0.0]);
}

/// Numbers of all sizes and both signs, the same ones each time.
fn numbers() -> impl Iterator<Item = f64> {
    let mut state = 7u64;
    (0..200_000).map(move |i| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = state ^ state >> 29;
        if i % 2 == 0 { f64::from_bits(bits) } else { (bits >> 11) as f64 / (1u64 << 50) as f64 - 4.0 }
    })
}

#[test]
fn odd_functions_are_odd_and_even_ones_even() {
    let odd = [sin, tan, asin, atan, sinh, tanh];
    for x in numbers().filter(|x| !x.is_nan()) {
        for function in odd {
            assert!(function(-x) == -function(x) || function(x).is_nan(), "{x:e}");
        }
        assert!(cos(-x) == cos(x) || x.is_infinite(), "{x:e}");
        assert_eq!(cosh(-x), cosh(x), "{x:e}");
    }
}

#[test]
fn values_stay_within_their_bounds() {
    for x in numbers().filter(|x| x.is_finite()) {
        assert!(sin(x).abs() <= 1.0 && cos(x).abs() <= 1.0 && tanh(x).abs() <= 1.0 && cosh(x) >= 1.0, "{x:e}");
        assert!((sin(x) * sin(x) + cos(x) * cos(x) - 1.0).abs() < 4e-16, "{x:e}");
        assert!(atan(x).abs() <= std::f64::consts::FRAC_PI_2, "{x:e}");
    }
}

/// A function and the ends of an interval on which it grows.
type Growing = (fn(f64) -> f64, f64, f64);

#[test]
fn growing_functions_grow_across_the_steps_of_their_tables() {
    let growing: [Growing; 7] = [
        (exp, -3.0, 3.0),
        (ln, 0.3, 5.0),
        (log10, 0.3, 5.0),
        (asin, -1.0, 1.0),
        (atan, -3.0, 3.0),
        (sinh, -3.0, 3.0),
        (tanh, -3.0, 3.0),
    ];
    for (function, from, to) in growing {
        let values = (0..=300_000).map(|i| function(from + (to - from) * f64::from(i) / 300_000.0));
        assert!(values.is_sorted());
    }
}

/// From a computation with 60 decimal places.
#[test]
fn sines_near_their_zeros_have_all_their_digits() {
    use std::f64::consts::{PI, TAU};
    assert_eq!((sin(1.0), cos(1.0)), (0.841_470_984_807_896_5, 0.540_302_305_868_139_8));
    assert_eq!(sin(11.0 * TAU / 19.0), -0.475_947_393_037_073_06);
    assert_eq!((sin(PI), cos(PI)), (1.224_646_799_147_353_2e-16, -1.0));
}
