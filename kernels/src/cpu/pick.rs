//! Steps that choose among values.

use super::lane::Recurrence;

/// NA for the first so many defined values, then the input.
pub(crate) struct Skip(pub u32);

impl Recurrence<1> for Skip {
    /// Values still to skip.
    type State = u32;

    fn start(&self) -> u32 {
        self.0
    }

    fn next(&self, left: &mut u32, [x]: [f64; 1]) -> f64 {
        if *left == 0 || !x.is_finite() {
            return x;
        }
        *left -= 1;
        f64::NAN
    }
}
