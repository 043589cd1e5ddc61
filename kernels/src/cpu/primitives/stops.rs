//! Trailing stops that reverse with the price.

use trawl_plan::family::{self, Acceleration, SuperTrend};

use crate::cpu::primitives::scalar_step::ScalarStep;
use crate::cpu::simd::state_io::carried;

#[derive(Clone, Copy)]
struct Pace {
    start: f64,
    step: f64,
    most: f64,
}

impl Pace {
    /// As in TA-Lib, values above the maximum are lowered to it.
    fn of(a: Acceleration) -> Self {
        let most = a.most.value();
        Self { start: a.start.value().min(most), step: a.step.value().min(most), most }
    }
}

/// Wilder's parabolic stop. Inputs high, low. A stop above the price is computed upside down, with both signs changed,
/// so that one rule serves both directions.
pub(crate) struct Parabolic {
    start: f64,
    offset: f64,
    long: Pace,
    short: Pace,
    signed: bool,
}

impl Parabolic {
    pub fn new(p: family::Parabolic) -> Self {
        Self {
            start: p.start.value(),
            offset: p.offset.value(),
            long: Pace::of(p.long),
            short: Pace::of(p.short),
            signed: p.signed,
        }
    }

    fn pace(&self, long: bool) -> Pace {
        if long { self.long } else { self.short }
    }

    /// The state as of the first bar, computed once the second one is known: its bounds are those of the second bar.
    fn begin(&self, before: Bar, now: Bar) -> Trail {
        let (rise, fall) = (now.high - before.high, before.low - now.low);
        let falls = fall > 0.0 && fall > rise;
        let long = if self.start == 0.0 { !falls } else { self.start > 0.0 };
        let first = before.facing(long).low;
        let given = if long { self.start.abs() } else { -self.start.abs() };
        let stop = if self.start == 0.0 { first } else { given };
        Trail { long, stop, extreme: now.facing(long).high, pace: self.pace(long).start }
    }
}

#[derive(Clone, Copy, Default)]
struct Bar {
    high: f64,
    low: f64,
}

impl Bar {
    /// Unchanged when `long`, otherwise with signs changed.
    fn facing(self, long: bool) -> Self {
        if long { self } else { Self { high: -self.low, low: -self.high } }
    }
}

/// A stop for the next bar, facing its direction.
#[derive(Clone, Copy, Default)]
struct Trail {
    long: bool,
    stop: f64,
    extreme: f64,
    pace: f64,
}

#[derive(Clone)]
pub(crate) struct ParabolicState {
    before: Option<Bar>,
    trail: Option<Trail>,
}

carried!(Bar { high, low });
carried!(Trail { long, stop, extreme, pace });
carried!(ParabolicState { before, trail });

impl ScalarStep<2> for Parabolic {
    type State = ParabolicState;

    fn start(&self) -> ParabolicState {
        ParabolicState { before: None, trail: None }
    }

    fn next(&self, state: &mut ParabolicState, [high, low]: [f64; 2]) -> f64 {
        if !(high.is_finite() && low.is_finite()) {
            return f64::NAN;
        }
        let bar = Bar { high, low };
        let Some(before) = state.before.replace(bar) else {
            return f64::NAN;
        };
        let (trail, before) = match state.trail {
            Some(trail) => (trail, before),
            None => (self.begin(before, bar), bar),
        };
        let sign = |long: bool| if long { 1.0 } else { -1.0 };
        let (now, then) = (bar.facing(trail.long), before.facing(trail.long));
        if now.low > trail.stop {
            let mut next = trail;
            if now.high > next.extreme {
                next.extreme = now.high;
                let pace = self.pace(next.long);
                next.pace = (next.pace + pace.step).min(pace.most);
            }
            next.stop += next.pace * (next.extreme - next.stop);
            next.stop = next.stop.min(then.low).min(now.low);
            state.trail = Some(next);
            return if self.signed { trail.stop } else { sign(trail.long) * trail.stop };
        }
        // The price went through: the other direction begins at the extreme, not inside the last two bars.
        let long = !trail.long;
        let (now, then) = (bar.facing(long), before.facing(long));
        let mut stop = (-trail.extreme).min(then.low).min(now.low);
        stop -= sign(long) * stop * self.offset;
        let shown = if self.signed { stop } else { sign(long) * stop };
        let mut next = Trail { long, stop, extreme: now.high, pace: self.pace(long).start };
        next.stop += next.pace * (next.extreme - next.stop);
        next.stop = next.stop.min(then.low).min(now.low);
        state.trail = Some(next);
        shown
    }
}

/// Inputs: upper and lower band before trailing, close.
pub(crate) struct Super(pub SuperTrend);

#[derive(Clone)]
pub(crate) struct SuperState {
    upper: f64,
    lower: f64,
    /// NaN before the first bar.
    close: f64,
    up: bool,
}

carried!(SuperState { upper, lower, close, up });

impl ScalarStep<3> for Super {
    type State = SuperState;

    fn start(&self) -> SuperState {
        SuperState { upper: f64::NAN, lower: f64::NAN, close: f64::NAN, up: true }
    }

    fn next(&self, state: &mut SuperState, [upper, lower, close]: [f64; 3]) -> f64 {
        if !(upper.is_finite() && lower.is_finite() && close.is_finite()) {
            return f64::NAN;
        }
        let first = state.close.is_nan();
        if first || upper < state.upper || state.close > state.upper {
            state.upper = upper;
        }
        if first || lower > state.lower || state.close < state.lower {
            state.lower = lower;
        }
        if !first {
            state.up = if state.up { close >= state.lower } else { close > state.upper };
        }
        state.close = close;
        match self.0 {
            SuperTrend::Line if state.up => state.lower,
            SuperTrend::Line => state.upper,
            SuperTrend::Trend => f64::from(i8::from(state.up) * 2 - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use trawl_plan::family;

    use super::*;

    #[test]
    fn a_tie_of_the_first_movements_begins_long() {
        let pace = Acceleration { start: 0.02.into(), step: 0.02.into(), most: 0.2.into() };
        let (zero, signed) = (0.0.into(), false);
        let rule = Parabolic::new(family::Parabolic { start: zero, offset: zero, long: pace, short: pace, signed });
        // Long from 9, gone through at once: the stop turns to the high. Short from 10 it would turn to the low.
        let mut state = rule.start();
        assert!(rule.next(&mut state, [10.0, 9.0]).is_nan());
        assert_eq!(rule.next(&mut state, [11.0, 8.0]), 11.0);
        let mut state = rule.start();
        assert!(rule.next(&mut state, [10.0, 9.0]).is_nan());
        assert_eq!(rule.next(&mut state, [11.0, 7.5]), 7.5);
    }
}
