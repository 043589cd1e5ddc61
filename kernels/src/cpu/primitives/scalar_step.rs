//! Recurrences written for one symbol at a time, for states that do not fit rows of lanes.

use std::ops::Range;

use crate::cpu::simd::state_io::{Carrier, Carry};
use crate::cpu::simd::vector::{LANES, Out, Row, Step, View};

/// A recurrence over one symbol. Reads `N` series at the current bar only; every run begins at the symbol's first bar.
pub(crate) trait ScalarStep<const N: usize>: Send {
    /// The state after a bar.
    type State: Clone + Send + Carry;

    /// The state before the first bar.
    fn start(&self) -> Self::State;

    /// The value of the next bar, NaN for NA. A bar on which an input is not finite counts as missing: implementations
    /// return NA and keep their state.
    fn next(&self, state: &mut Self::State, inputs: [f64; N]) -> f64;
}

/// A [`ScalarStep`] over every lane.
pub(crate) struct PerLane<R: ScalarStep<N>, const N: usize> {
    rule: R,
    states: [R::State; LANES],
}

impl<R: ScalarStep<N>, const N: usize> PerLane<R, N> {
    pub fn new(rule: R) -> Self {
        let states = std::array::from_fn(|_| rule.start());
        Self { rule, states }
    }
}

impl<R: ScalarStep<N>, const N: usize> Step for PerLane<R, N> {
    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.states[lane].carry(carrier);
    }

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        for t in rows {
            let bar: [Row; N] = std::array::from_fn(|i| inputs[i].row(t));
            out.set(t, Row::NA.map(|lane, _| self.rule.next(&mut self.states[lane], bar.map(|row| row.0[lane]))));
        }
    }

    fn first_lane(&mut self, inputs: &[View<'_>], outs: &mut [Out<'_>], rows: Range<usize>) {
        let [out] = outs else { return };
        for t in rows {
            let bar = std::array::from_fn(|i| inputs[i].at(t).0[0]);
            out.from(t)[0].0[0] = self.rule.next(&mut self.states[0], bar);
        }
    }
}
