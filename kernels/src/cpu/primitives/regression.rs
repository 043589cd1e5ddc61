//! Least-squares lines.

use std::ops::Range;

use crate::cpu::primitives::rolling_sums::{tail_bars, window_start};
use crate::cpu::simd::state_io::carries_nothing;
use crate::cpu::simd::vector::{LANES, Out, Row, Step, View};

/// Sums of d and of k*d, where d is a value less the block's first one and k its bar less the block's first bar.
#[derive(Clone, Copy)]
struct Moments {
    plain: Row,
    weighted: Row,
}

impl Moments {
    const NONE: Self = Self { plain: Row::ZERO, weighted: Row::ZERO };

    #[inline(always)]
    fn see(&mut self, x: &Row, anchor: &Row, k: f64) {
        for lane in 0..LANES {
            let d = x.0[lane] - anchor.0[lane];
            self.plain.0[lane] += d;
            self.weighted.0[lane] += k * d;
        }
    }
}

/// Slope of the line through the window. A window consists of the remainder of the previous block of `p` bars (`tail`,
/// one entry per offset) and the block so far (`head`). Values are relative to the block's first, which is in the
/// window: terms are bounded by the window's range, which avoids cancellation at any price level, and an undefined
/// value makes exactly those windows undefined that contain it.
pub(crate) struct Slope {
    p: usize,
    tail: Vec<Moments>,
    head: Moments,
    next: usize,
}

impl Slope {
    pub fn new(p: u32, bars: usize) -> Self {
        let p = p as usize;
        Self { p, tail: vec![Moments::NONE; tail_bars(p, bars)], head: Moments::NONE, next: usize::MAX }
    }
}

impl Step for Slope {
    carries_nothing!();

    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let (input, p) = (&inputs[0], self.p);
        let fresh = rows.start != self.next;
        self.next = rows.end;
        // Sum of the squared distances of p bars from their middle.
        let n = p as f64;
        let spread = n * (n * n - 1.0) / 12.0;
        for t in rows.clone() {
            let offset = t % p;
            let block = t - offset;
            let anchor = input.row(block);
            if offset == 0 || (fresh && t == rows.start) {
                let mut moments = Moments::NONE;
                for j in (window_start(t, p)..block).rev() {
                    moments.see(&input.row(j), &anchor, j as f64 - block as f64);
                    self.tail[j % p] = moments;
                }
                self.head = Moments::NONE;
                for j in block..t {
                    self.head.see(&input.row(j), &anchor, (j - block) as f64);
                }
            }
            self.head.see(&input.row(t), &anchor, offset as f64);
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let tail = if offset + 1 == p { Moments::NONE } else { self.tail[offset + 1] };
            let middle = offset as f64 - (n - 1.0) / 2.0;
            let slope = self.head.plain.map(|lane, plain| {
                let (plain, weighted) =
                    (plain + tail.plain.0[lane], self.head.weighted.0[lane] + tail.weighted.0[lane]);
                let slope = (weighted - middle * plain) / spread;
                if slope.is_finite() { slope } else { f64::NAN }
            });
            out.set(t, slope);
        }
    }
}
