//! Adapter for rare steps that run in `f64` whatever the precision.

use std::ops::Range;

use crate::cpu::simd::float::Real;
use crate::cpu::simd::state_io::Carrier;
use crate::cpu::simd::vector::{AnyStep, Isa, Out, Row, RowOf, Step, View};

/// Maximum number of input series of such a step.
const INPUTS_MAX: usize = 4;

/// An `f64` step with `f32` inputs and outputs.
pub(crate) struct Widened {
    step: Box<dyn AnyStep>,
    /// Number of rows before the current one that the step reads.
    back: usize,
    /// Rings of the widened inputs, allocated at the first strip, when their number is known.
    inputs: [Vec<Row>; INPUTS_MAX],
    ring: usize,
    output: Vec<Row>,
    next: usize,
}

fn ring_rows(back: usize, bars: usize) -> usize {
    (back.min(bars) + <f32 as Real>::STRIP_BARS).next_power_of_two()
}

/// Bytes of the widened series of a step.
pub(crate) fn widened_bytes(inputs: usize, back: usize, bars: usize) -> usize {
    (inputs * ring_rows(back, bars) + <f32 as Real>::STRIP_BARS) * size_of::<Row>()
}

impl Widened {
    /// Wraps `step`, which reads `back` rows back, over at most `bars` bars.
    pub fn new(step: Box<dyn AnyStep>, back: usize, bars: usize) -> Self {
        let ring = ring_rows(back, bars);
        let output = vec![Row::NA; <f32 as Real>::STRIP_BARS];
        Self { step, back, inputs: std::array::from_fn(|_| Vec::new()), ring, output, next: usize::MAX }
    }
}

impl Step<f32> for Widened {
    fn run(&mut self, inputs: &[View<'_, f32>], out: &mut Out<'_, f32>, rows: Range<usize>) {
        self.strip_on(Isa::Portable, inputs, std::slice::from_mut(out), rows);
    }

    fn carry(&mut self, lane: usize, carrier: &mut Carrier<'_>) {
        self.step.carry_lane(lane, carrier);
    }

    fn strip_on(&mut self, isa: Isa, inputs: &[View<'_, f32>], outs: &mut [Out<'_, f32>], rows: Range<usize>) {
        let [out] = outs else { return };
        let first = if rows.start == self.next { rows.start } else { rows.start.saturating_sub(self.back) };
        self.next = rows.end;
        for (ring, input) in self.inputs.iter_mut().zip(inputs) {
            ring.resize(self.ring, Row::NA);
            let mask = self.ring - 1;
            for t in first..rows.end {
                ring[t & mask] = Row(input.row(t).0.map(f64::from));
            }
        }
        let views = self.inputs.each_ref().map(|ring| View::ring(ring));
        let mut wide = [Out::new(&mut self.output)];
        self.step.strip(isa, &views[..inputs.len()], &mut wide, rows.clone());
        for t in rows {
            out.set(t, RowOf(self.output[t & (<f32 as Real>::STRIP_BARS - 1)].0.map(|x| x as f32)));
        }
    }
}
