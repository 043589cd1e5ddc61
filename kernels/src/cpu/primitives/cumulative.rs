//! Running results with one or two numbers of state.

use crate::cpu::primitives::scalar_step::ScalarStep;

/// Running product of the defined values.
pub(crate) struct Product;

impl ScalarStep<1> for Product {
    type State = f64;

    fn start(&self) -> f64 {
        1.0
    }

    fn next(&self, product: &mut f64, [x]: [f64; 1]) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        *product *= x;
        *product
    }
}

/// The previous defined value; at the first one, that value itself.
pub(crate) struct Previous;

impl ScalarStep<1> for Previous {
    /// NaN before the first.
    type State = f64;

    fn start(&self) -> f64 {
        f64::NAN
    }

    fn next(&self, before: &mut f64, [x]: [f64; 1]) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        let held = std::mem::replace(before, x);
        if held.is_nan() { x } else { held }
    }
}

/// Wilder's sum from the sum of `p-1` values on.
pub(crate) struct WilderTotal(pub u32);

impl ScalarStep<1> for WilderTotal {
    /// Defined values seen, and the sum.
    type State = (u32, f64);

    fn start(&self) -> (u32, f64) {
        (0, 0.0)
    }

    fn next(&self, (seen, sum): &mut (u32, f64), [x]: [f64; 1]) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        *seen = seen.saturating_add(1);
        *sum = if *seen < self.0 { *sum + x } else { *sum - *sum / f64::from(self.0) + x };
        if seen.saturating_add(1) >= self.0 { *sum } else { f64::NAN }
    }
}
