//! Least-squares lines.

use std::ops::Range;

use super::lanes::{LANES, Out, Row, Step, View};
use super::window::{tail_bars, window_start};

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

/// Slope of the line through the window. A window is what is left of the block of `p` bars before (`tail`, one entry an
/// offset) and the block so far (`head`). Values are taken relative to the block's first, which is in the window: what
/// is summed is no larger than the window's range, so nothing cancels whatever the price, and an undefined value makes
/// exactly the windows undefined that hold it.
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

/// Inputs x, y: slope of the line of y over x. Looked at whole at every bar, values less the current ones: nothing
/// cancels, and an x that does not vary is exactly 0.
pub(crate) struct Beta {
    pub p: usize,
}

impl Step for Beta {
    #[inline(always)]
    fn run(&mut self, inputs: &[View<'_>], out: &mut Out<'_>, rows: Range<usize>) {
        let p = self.p;
        for t in rows {
            if t + 1 < p {
                out.set(t, Row::NA);
                continue;
            }
            let window = t + 1 - p..t + 1;
            let (x_now, y_now) = (inputs[0].row(t), inputs[1].row(t));
            let (mut mean_x, mut mean_y) = (Row::ZERO, Row::ZERO);
            for j in window.clone() {
                let (x, y) = (inputs[0].row(j), inputs[1].row(j));
                for lane in 0..LANES {
                    mean_x.0[lane] += x.0[lane] - x_now.0[lane];
                    mean_y.0[lane] += y.0[lane] - y_now.0[lane];
                }
            }
            let (mean_x, mean_y) = (mean_x.map(|_, s| s / p as f64), mean_y.map(|_, s| s / p as f64));
            let (mut xx, mut xy) = (Row::ZERO, Row::ZERO);
            for j in window {
                let (x, y) = (inputs[0].row(j), inputs[1].row(j));
                for lane in 0..LANES {
                    let dx = (x.0[lane] - x_now.0[lane]) - mean_x.0[lane];
                    let dy = (y.0[lane] - y_now.0[lane]) - mean_y.0[lane];
                    xx.0[lane] += dx * dx;
                    xy.0[lane] += dx * dy;
                }
            }
            out.set(
                t,
                xy.map(|lane, xy| {
                    // An NA or infinity in the window has made both sums NaN.
                    let flat = xx.0[lane] == 0.0 && !xy.is_nan();
                    let slope = xy / xx.0[lane];
                    if flat { 0.0 } else { slope }
                }),
            );
        }
    }
}
