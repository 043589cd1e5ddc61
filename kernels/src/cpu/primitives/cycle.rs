//! Ehlers' dominant cycle by the Hilbert transform, and the adaptive mean that follows its phase. Definitions: J.
//! Ehlers, Rocket Science for Traders (2001), in TA-Lib's version. Sums are taken in TA-Lib's order, the running one of
//! the smoother included: over constant prices the period consists of rounding errors, which must be the same ones.

use std::f64::consts::{FRAC_PI_4, TAU};
use std::sync::LazyLock;

use trawl_plan::elementary;
use trawl_plan::family::{Cycle, Mesa};

use crate::cpu::primitives::scalar_step::ScalarStep;
use crate::cpu::simd::state_io::{Carrier, Carry, carried};

/// Weights of the transform's inner and outer pair of bars.
const INNER: f64 = 0.5769;
const OUTER: f64 = 0.0962;

/// Bars before the first transform.
const EARLY_WARM_UP: u32 = 12;
const LATE_WARM_UP: u32 = 37;

/// Bars before the first output.
const EARLY_LOOK_BACK: u32 = 32;
const LATE_LOOK_BACK: u32 = 63;

/// The longest period.
const PERIOD_MAX: usize = 50;

const DEGREES: f64 = 45.0 / FRAC_PI_4;
const RADIANS: f64 = 1.0 / DEGREES;

/// Sine and cosine of the `i`-th of `n` equal parts of a circle, for all n up to [`PERIOD_MAX`]. Their sums over a
/// circle are rounding errors, which decide the phase of a constant price, so the entries are exact to the last bit.
static CIRCLES: LazyLock<Vec<Vec<(f64, f64)>>> = LazyLock::new(|| {
    let angle = |i: usize, n: usize| i as f64 * TAU / n as f64;
    let both = |angle| (elementary::sin(angle), elementary::cos(angle));
    let circle = |n| (0..n).map(|i| both(angle(i, n))).collect();
    (0..=PERIOD_MAX).map(circle).collect()
});

/// Sine and cosine of the i-th of n parts at 2*(n*[`PERIOD_MAX`] + i), in the layout that the GPU reads.
pub(crate) fn circle_table() -> Vec<f64> {
    let mut table = vec![0.0; 2 * (PERIOD_MAX + 1) * PERIOD_MAX];
    for (n, circle) in CIRCLES.iter().enumerate() {
        for (i, (sin, cos)) in circle.iter().enumerate() {
            let at = 2 * (n * PERIOD_MAX + i);
            (table[at], table[at + 1]) = (*sin, *cos);
        }
    }
    table
}

/// The last `N` values, 0 before the first.
#[derive(Clone)]
struct Past<const N: usize>([f64; N]);

impl<const N: usize> Carry for Past<N> {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        self.0.iter_mut().for_each(|x| x.carry(carrier));
    }
}

impl<const N: usize> Past<N> {
    const NONE: Self = Self([0.0; N]);

    fn push(&mut self, x: f64) {
        self.0.copy_within(0..N - 1, 1);
        self.0[0] = x;
    }

    /// The value pushed `bars` pushes ago, the newest being 1.
    fn back(&self, bars: usize) -> f64 {
        self.0[bars - 1]
    }

    /// The Hilbert transform of a series `delay` bars late, whose value is now `now`.
    fn transform(&self, now: f64, delay: usize, gain: f64) -> f64 {
        let outer = OUTER * now - OUTER * self.back(delay + 6);
        (outer - INNER * self.back(delay + 4) + INNER * self.back(delay + 2)) * gain
    }
}

/// The weighted mean of four bars as a running sum.
#[derive(Clone)]
struct Smoother {
    seen: u32,
    /// Sum and weighted sum of the bars, already reduced by what the next bar's weights remove.
    sum: f64,
    weighted: f64,
    leaving: f64,
    past: Past<3>,
}

carried!(Smoother { seen, sum, weighted, leaving, past });

impl Smoother {
    const NEW: Self = Self { seen: 0, sum: 0.0, weighted: 0.0, leaving: 0.0, past: Past::NONE };

    /// Takes the next bar; the mean is one from the fourth bar on.
    fn next(&mut self, x: f64) -> f64 {
        self.sum += x;
        if self.seen < 3 {
            self.seen += 1;
            self.weighted += x * f64::from(self.seen);
            self.past.push(x);
            return 0.0;
        }
        self.sum -= self.leaving;
        self.weighted += x * 4.0;
        let mean = self.weighted * 0.1;
        self.leaving = self.past.back(3);
        self.weighted -= self.sum;
        self.past.push(x);
        mean
    }
}

/// The transforms and the period.
#[derive(Clone)]
struct Transforms {
    /// Bars remaining before the first transform.
    warm_up: u32,
    smoother: Smoother,
    smooth: Past<6>,
    detrended: Past<9>,
    quadratures: Past<6>,
    i2: f64,
    q2: f64,
    re: f64,
    im: f64,
    period: f64,
}

carried!(Transforms { warm_up, smoother, smooth, detrended, quadratures, i2, q2, re, im, period });

/// One bar's transforms.
struct Phasor {
    smooth: f64,
    in_phase: f64,
    quadrature: f64,
}

impl Transforms {
    fn new(warm_up: u32) -> Self {
        Self {
            warm_up,
            smoother: Smoother::NEW,
            smooth: Past::NONE,
            detrended: Past::NONE,
            quadratures: Past::NONE,
            i2: 0.0,
            q2: 0.0,
            re: 0.0,
            im: 0.0,
            period: 0.0,
        }
    }

    fn next(&mut self, x: f64) -> Option<Phasor> {
        let smooth = self.smoother.next(x);
        if self.warm_up > 0 {
            self.warm_up -= 1;
            return None;
        }
        let gain = 0.075 * self.period + 0.54;
        let detrended = self.smooth.transform(smooth, 0, gain);
        let quadrature = self.detrended.transform(detrended, 0, gain);
        let in_phase = self.detrended.back(3);
        let ahead_i = self.detrended.transform(in_phase, 3, gain);
        let ahead_q = self.quadratures.transform(quadrature, 0, gain);
        self.smooth.push(smooth);
        self.detrended.push(detrended);
        self.quadratures.push(quadrature);
        let q2 = 0.2 * (quadrature + ahead_i) + 0.8 * self.q2;
        let i2 = 0.2 * (in_phase - ahead_q) + 0.8 * self.i2;
        self.re = 0.2 * (i2 * self.i2 + q2 * self.q2) + 0.8 * self.re;
        self.im = 0.2 * (i2 * self.q2 - q2 * self.i2) + 0.8 * self.im;
        (self.q2, self.i2) = (q2, i2);
        self.period = self.next_period();
        Some(Phasor { smooth, in_phase, quadrature })
    }

    fn next_period(&self) -> f64 {
        let before = self.period;
        let mut period = before;
        if self.im != 0.0 && self.re != 0.0 {
            period = 360.0 / (elementary::atan(self.im / self.re) * DEGREES);
        }
        if period > 1.5 * before {
            period = 1.5 * before;
        }
        if period < 0.67 * before {
            period = 0.67 * before;
        }
        0.2 * period.clamp(6.0, PERIOD_MAX as f64) + 0.8 * before
    }
}

/// The dominant cycle; see [`Cycle`] for its results.
pub(crate) struct Hilbert(pub Cycle);

#[derive(Clone)]
pub(crate) struct HilbertState {
    seen: u32,
    transforms: Transforms,
    prices: Past<PERIOD_MAX>,
    smooth: Past<PERIOD_MAX>,
    period: f64,
    phase: f64,
    /// Sine and lead sine.
    sines: (f64, f64),
    /// The last three means of the price over a period.
    means: Past<3>,
    bars_in_trend: f64,
}

carried!(HilbertState { seen, transforms, prices, smooth, period, phase, sines, means, bars_in_trend });

impl HilbertState {
    /// Whole bars of the period.
    fn bars(&self) -> usize {
        ((self.period + 0.5) as usize).min(PERIOD_MAX)
    }

    fn next_phase(&self) -> f64 {
        let (mut real, mut imaginary) = (0.0, 0.0);
        for ((sin, cos), price) in CIRCLES[self.bars()].iter().zip(&self.smooth.0) {
            real += sin * price;
            imaginary += cos * price;
        }
        let mut phase = self.phase;
        if imaginary.abs() > 0.0 {
            phase = elementary::atan(real / imaginary) * DEGREES;
        } else if real < 0.0 {
            phase -= 90.0;
        } else if real > 0.0 {
            phase += 90.0;
        }
        phase += 90.0;
        // The smoother is one bar late.
        phase += 360.0 / self.period;
        if imaginary < 0.0 {
            phase += 180.0;
        }
        if phase > 315.0 { phase - 360.0 } else { phase }
    }

    fn next_trendline(&mut self) -> f64 {
        let bars = self.bars();
        let sum = self.prices.0[..bars].iter().fold(0.0, |sum, x| sum + x);
        let mean = if bars > 0 { sum / bars as f64 } else { sum };
        let line = (4.0 * mean + 3.0 * self.means.back(1) + 2.0 * self.means.back(2) + self.means.back(3)) / 10.0;
        self.means.push(mean);
        line
    }

    /// The trend mode (1 or 0) from the changes of this bar.
    fn trend_mode(&mut self, phase_before: f64, sines_before: (f64, f64), smooth: f64, line: f64) -> f64 {
        let ((sine, lead), (sine_before, lead_before)) = (self.sines, sines_before);
        let up = sine > lead && sine_before <= lead_before;
        let down = sine < lead && sine_before >= lead_before;
        let mut cycles = up || down;
        if cycles {
            self.bars_in_trend = 0.0;
        }
        self.bars_in_trend += 1.0;
        cycles |= self.bars_in_trend < 0.5 * self.period;
        let turn = self.phase - phase_before;
        cycles |= self.period != 0.0 && turn > 0.67 * 360.0 / self.period && turn < 1.5 * 360.0 / self.period;
        let far = line != 0.0 && ((smooth - line) / line).abs() >= 0.015;
        f64::from(u8::from(far || !cycles))
    }
}

impl ScalarStep<1> for Hilbert {
    type State = HilbertState;

    fn start(&self) -> HilbertState {
        let warm_up = if self.0.is_early() { EARLY_WARM_UP } else { LATE_WARM_UP };
        HilbertState {
            seen: 0,
            transforms: Transforms::new(warm_up),
            prices: Past::NONE,
            smooth: Past::NONE,
            period: 0.0,
            phase: 0.0,
            sines: (0.0, 0.0),
            means: Past::NONE,
            bars_in_trend: 0.0,
        }
    }

    fn next(&self, state: &mut HilbertState, [x]: [f64; 1]) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        state.seen = state.seen.saturating_add(1);
        state.prices.push(x);
        let Some(Phasor { smooth, in_phase, quadrature }) = state.transforms.next(x) else {
            return f64::NAN;
        };
        state.smooth.push(smooth);
        state.period = 0.33 * state.transforms.period + 0.67 * state.period;
        let value = match self.0 {
            Cycle::Period => state.period,
            Cycle::InPhase => in_phase,
            Cycle::Quadrature => quadrature,
            Cycle::Trendline => state.next_trendline(),
            Cycle::Phase | Cycle::Sine | Cycle::LeadSine | Cycle::TrendMode => {
                let (phase_before, sines_before) = (state.phase, state.sines);
                state.phase = state.next_phase();
                let sine = |ahead: f64| elementary::sin((state.phase + ahead) * RADIANS);
                match self.0 {
                    Cycle::Phase => state.phase,
                    Cycle::Sine => sine(0.0),
                    Cycle::LeadSine => sine(45.0),
                    _ => {
                        state.sines = (sine(0.0), sine(45.0));
                        let line = state.next_trendline();
                        state.trend_mode(phase_before, sines_before, smooth, line)
                    }
                }
            }
        };
        let look_back = if self.0.is_early() { EARLY_LOOK_BACK } else { LATE_LOOK_BACK };
        if state.seen > look_back { value } else { f64::NAN }
    }
}

/// The adaptive mean whose factor is `fast` over the phase's change in degrees, at least `slow`.
pub(crate) struct Adaptive {
    pub fast: f64,
    pub slow: f64,
    pub result: Mesa,
}

#[derive(Clone)]
pub(crate) struct AdaptiveState {
    seen: u32,
    transforms: Transforms,
    phase: f64,
    mama: f64,
    fama: f64,
}

carried!(AdaptiveState { seen, transforms, phase, mama, fama });

impl ScalarStep<1> for Adaptive {
    type State = AdaptiveState;

    fn start(&self) -> AdaptiveState {
        AdaptiveState { seen: 0, transforms: Transforms::new(EARLY_WARM_UP), phase: 0.0, mama: 0.0, fama: 0.0 }
    }

    fn next(&self, state: &mut AdaptiveState, [x]: [f64; 1]) -> f64 {
        if !x.is_finite() {
            return f64::NAN;
        }
        state.seen = state.seen.saturating_add(1);
        let Some(Phasor { in_phase, quadrature, .. }) = state.transforms.next(x) else {
            return f64::NAN;
        };
        let phase = if in_phase == 0.0 { 0.0 } else { elementary::atan(quadrature / in_phase) * DEGREES };
        let change = state.phase - phase;
        state.phase = phase;
        let factor = if change > 1.0 { (self.fast / change).max(self.slow) } else { self.fast };
        state.mama = factor * x + (1.0 - factor) * state.mama;
        let half = factor * 0.5;
        state.fama = half * state.mama + (1.0 - half) * state.fama;
        let value = match self.result {
            Mesa::Mama => state.mama,
            Mesa::Fama => state.fama,
        };
        if state.seen > EARLY_LOOK_BACK { value } else { f64::NAN }
    }
}
