//! Weighted means since an anchor, which is set again in each period.

use trawl_plan::family::Anchor;

use crate::cpu::primitives::scalar_step::ScalarStep;
use crate::cpu::simd::state_io::carried;

/// Inputs begin, key, x, w; see `Op::AnchoredMean`.
pub(crate) struct AnchoredMean {
    pub anchor: Anchor,
    pub previous: bool,
}

/// Adds `x` to the unevaluated sum `hi + lo` without losing what rounds away (Knuth's two-sum).
fn add(hi: &mut f64, lo: &mut f64, x: f64) {
    let sum = *hi + x;
    let part = sum - *hi;
    *lo += (*hi - (sum - part)) + (x - part);
    *hi = sum;
}

/// Sums since an anchor, compensated.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    weighted: (f64, f64),
    weights: (f64, f64),
}

impl Sums {
    fn add(&mut self, x: f64, w: f64) {
        add(&mut self.weighted.0, &mut self.weighted.1, x * w);
        add(&mut self.weights.0, &mut self.weights.1, w);
    }

    fn mean(&self) -> f64 {
        let weights = self.weights.0 + self.weights.1;
        if weights == 0.0 { f64::NAN } else { (self.weighted.0 + self.weighted.1) / weights }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// A period has begun, and no bar of it was present so far.
    begun: bool,
    /// The key of the current anchor.
    key: f64,
    present: Sums,
    /// Sums since the anchor of the previous period; `None` in the first period.
    before: Option<Sums>,
    /// Whether an anchor has been set.
    anchored: bool,
}

carried!(Sums { weighted, weights });
carried!(State { begun, key, present, before, anchored });

impl ScalarStep<4> for AnchoredMean {
    type State = State;

    fn start(&self) -> State {
        State { begun: true, key: 0.0, present: Sums::default(), before: None, anchored: false }
    }

    fn next(&self, state: &mut State, [begin, key, x, w]: [f64; 4]) -> f64 {
        // Also on a missing bar: the next bar then begins the period.
        state.begun |= begin == 1.0;
        if !(key.is_finite() && x.is_finite() && w.is_finite()) {
            return f64::NAN;
        }
        if state.begun && state.anchored {
            state.before = Some(state.present);
        }
        let more = match self.anchor {
            Anchor::Start => false,
            Anchor::Highest => key > state.key,
            Anchor::Lowest => key < state.key,
        };
        if state.begun || more {
            (state.present, state.key) = (Sums::default(), key);
        }
        (state.begun, state.anchored) = (false, true);
        state.present.add(x, w);
        if let Some(before) = &mut state.before {
            before.add(x, w);
        }
        match (self.previous, &state.before) {
            (false, _) => state.present.mean(),
            (true, Some(before)) => before.mean(),
            (true, None) => f64::NAN,
        }
    }
}
