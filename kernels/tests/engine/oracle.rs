//! The oracle: each primitive by its definition, one symbol, one bar at a time, windows summed from scratch. It shares no
//! code with the engine but the functions of single values (`trawl_plan::scalar`).

use trawl_plan::graph::Op;
use trawl_plan::scalar::{self, TALIB_EPSILON};

/// One primitive over whole series.
pub fn primitive(op: Op, inputs: &[&[f64]], bars: usize) -> Vec<f64> {
    let at = |input: usize, t: usize| inputs[input][t];
    let each = |f: &dyn Fn(usize) -> f64| (0..bars).map(f).collect::<Vec<f64>>();
    let x = inputs[0];
    match op {
        Op::Column(_) | Op::Constant(_) | Op::Label(_) | Op::Window | Op::Cross(_) | Op::Read(_) => Vec::new(),
        Op::PercentRank(p) => window(x, p, |w| {
            let others = w[..w.len() - 1].iter().filter(|v| **v <= w[w.len() - 1]).count();
            100.0 * others as f64 / f64::from(p - 1)
        }),
        Op::Correlation(p) => each(&|t| correlation(x, inputs[1], t, p as usize)),
        Op::ValueWhen => {
            let mut held = f64::NAN;
            each_mut(bars, |t| {
                held = if x[t] == 1.0 {
                    at(1, t)
                } else if x[t].is_nan() {
                    f64::NAN
                } else {
                    held
                };
                held
            })
        }
        Op::Ever => each(&|t| f64::from(u8::from(x[..=t].contains(&1.0)))),
        Op::EverSince => each(&|t| {
            let from = (0..=t).rev().find(|j| x[*j] == 1.0).unwrap_or(0);
            f64::from(u8::from(inputs[1][from..=t].contains(&1.0)))
        }),
        Op::Unary(u) => each(&|t| scalar::unary(u, x[t])),
        Op::Binary(b) => each(&|t| scalar::binary(b, x[t], at(1, t))),
        Op::Compare(c) => each(&|t| scalar::compare(c, x[t], at(1, t))),
        Op::And => each(&|t| scalar::and(x[t], at(1, t))),
        Op::Or => each(&|t| scalar::or(x[t], at(1, t))),
        Op::Not => each(&|t| scalar::not(x[t])),
        Op::Select => each(&|t| scalar::select(x[t], at(1, t), at(2, t))),
        Op::Lag(p) => each(&|t| {
            if t >= p as usize { x[t - p as usize] } else { f64::NAN }
        }),
        Op::Sum(p) => sums(x, p, exact_sum),
        Op::Mean(p) => sums(x, p, |w| exact_sum(w) / f64::from(p)),
        Op::WeightedMean(p) => sums(x, p, |w| {
            let weighted: Vec<f64> = w.iter().enumerate().map(|(k, x)| (k + 1) as f64 * x).collect();
            exact_sum(&weighted) / (f64::from(p) * (f64::from(p) + 1.0) / 2.0)
        }),
        Op::Max(p) => window(x, p, |w| w.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        Op::Min(p) => window(x, p, |w| w.iter().copied().fold(f64::INFINITY, f64::min)),
        Op::Deviation(p) => sums(x, p, |w| {
            let variance = variance(w);
            if variance < TALIB_EPSILON { 0.0 } else { variance.sqrt() }
        }),
        Op::Spread(p) => sums(x, p, |w| variance(w).sqrt()),
        Op::MeanDeviation(p) => {
            let p = p as usize;
            each(&|t| match defined_window(x, t, p, f64::MAX) {
                Some(w) => w.iter().map(|x| (x - at(1, t)).abs()).sum::<f64>() / p as f64,
                None => f64::NAN,
            })
        }
        Op::Exponential { p, delay } => smoothed(x, p, delay, |m, x| (x - m) * (2.0 / (f64::from(p) + 1.0)) + m),
        Op::Wilder(p) => smoothed(x, p, 0, |m, x| (m * (f64::from(p) - 1.0) + x) / f64::from(p)),
        Op::WilderSum(p) => {
            let (mut n, mut s) = (0, 0.0);
            over_defined(inputs, bars, |t| {
                n += 1;
                s = if n < p { s + x[t] } else { s - s / f64::from(p) + x[t] };
                (n >= p).then_some(s)
            })
        }
        Op::WilderRatio(p) => {
            let (mut n, mut m) = (0, 0.0);
            over_defined(inputs, bars, |t| {
                n += 1;
                let zero = at(1, t).abs() < TALIB_EPSILON;
                let ratio = 100.0 * (x[t] / at(1, t));
                if n <= p {
                    m += if zero { 0.0 } else { ratio };
                    if n == p {
                        m /= f64::from(p);
                    }
                } else if !zero {
                    m = (m * (f64::from(p) - 1.0) + ratio) / f64::from(p);
                }
                (n >= p).then_some(m)
            })
        }
        Op::Kaufman => {
            let mut m = None;
            over_defined(inputs, bars, |t| {
                let (change, noise) = (x[t] - at(2, t), at(3, t));
                let efficiency = if noise <= change || noise < TALIB_EPSILON { 1.0 } else { (change / noise).abs() };
                let c = (efficiency * (2.0 / 3.0 - 2.0 / 31.0) + 2.0 / 31.0).powi(2);
                let before = m.unwrap_or(at(1, t));
                m = Some(c * (x[t] - before) + before);
                m
            })
        }
        Op::Cumulative => {
            let mut seen = Vec::new();
            over_defined(inputs, bars, |t| {
                seen.push(x[t]);
                Some(exact_sum(&seen))
            })
        }
        Op::OnBalance => {
            let (mut total, mut before) = (0.0, None);
            over_defined(inputs, bars, |t| {
                total += match before {
                    Some(b) if x[t] < b => -at(1, t),
                    Some(b) if x[t] == b => 0.0,
                    _ => at(1, t),
                };
                before = Some(x[t]);
                Some(total)
            })
        }
        Op::CrossesAbove => each(&|t| crosses(x, inputs[1], t)),
        Op::CrossesBelow => each(&|t| crosses(inputs[1], x, t)),
        Op::Within(p) => each(&|t| last(x, t, p).into_iter().fold(0.0, scalar::or)),
        Op::Streak(p) => each(&|t| last(x, t, p).into_iter().fold(1.0, scalar::and)),
        Op::Since => each(&|t| {
            for back in 0..=t {
                match x[t - back] {
                    1.0 => return back as f64,
                    c if c.is_nan() => return f64::NAN,
                    _ => {}
                }
            }
            f64::NAN
        }),
    }
}

/// The window of `p` bars that ends at `t`, when it is whole and defined.
fn defined_window(x: &[f64], t: usize, p: usize, most: f64) -> Option<&[f64]> {
    let w = x.get((t + 1).checked_sub(p)?..=t)?;
    w.iter().all(|x| x.abs() <= most).then_some(w)
}

fn window(x: &[f64], p: u32, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    (0..x.len()).map(|t| defined_window(x, t, p as usize, f64::MAX).map_or(f64::NAN, &f)).collect()
}

/// What overflows is NA.
fn sums(x: &[f64], p: u32, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    window(x, p, |w| Some(f(w)).filter(|y| y.is_finite()).unwrap_or(f64::NAN))
}

fn variance(w: &[f64]) -> f64 {
    let mean = exact_sum(w) / w.len() as f64;
    w.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / w.len() as f64
}

/// The last `p` values, NA for bars before the first.
fn last(x: &[f64], t: usize, p: u32) -> Vec<f64> {
    (0..p as usize).map(|back| if back <= t { x[t - back] } else { f64::NAN }).collect()
}

fn crosses(a: &[f64], b: &[f64], t: usize) -> f64 {
    if t == 0 || ![a[t], b[t], a[t - 1], b[t - 1]].iter().all(|x| x.is_finite()) {
        return f64::NAN;
    }
    f64::from(u8::from(a[t] > b[t] && a[t - 1] <= b[t - 1]))
}

/// Calls `f` at the bars where every input is defined, in order; NA elsewhere.
fn over_defined(inputs: &[&[f64]], bars: usize, mut f: impl FnMut(usize) -> Option<f64>) -> Vec<f64> {
    (0..bars)
        .map(|t| if inputs.iter().all(|x| x[t].is_finite()) { f(t).unwrap_or(f64::NAN) } else { f64::NAN })
        .collect()
}

fn smoothed(x: &[f64], p: u32, delay: u32, next: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut seed = Vec::new();
    let mut n = 0;
    let mut mean = 0.0;
    over_defined(&[x], x.len(), |t| {
        n += 1;
        if n <= delay {
            return None;
        }
        if n <= delay + p {
            seed.push(x[t]);
            mean = seed.iter().sum::<f64>() / f64::from(p);
            return (n == delay + p).then_some(mean);
        }
        mean = next(mean, x[t]);
        Some(mean)
    })
}

/// The sum rounded once: partials that do not overlap (Shewchuk).
fn exact_sum(values: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for &value in values {
        let mut x = value;
        let mut kept = Vec::new();
        for &y in &partials {
            let (big, small) = if x.abs() < y.abs() { (y, x) } else { (x, y) };
            let sum = big + small;
            let error = small - (sum - big);
            if error != 0.0 {
                kept.push(error);
            }
            x = sum;
        }
        kept.push(x);
        partials = kept;
    }
    partials.iter().sum()
}

fn each_mut(bars: usize, f: impl FnMut(usize) -> f64) -> Vec<f64> {
    (0..bars).map(f).collect()
}

/// By the textbook: covariance over the deviations.
fn correlation(x: &[f64], y: &[f64], t: usize, p: usize) -> f64 {
    let (Some(x), Some(y)) = (defined_window(x, t, p, f64::MAX), defined_window(y, t, p, f64::MAX)) else {
        return f64::NAN;
    };
    let n = p as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let moment = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum::<f64>()
    };
    let spread = moment(x, mx, x, mx) * moment(y, my, y, my);
    if spread < TALIB_EPSILON { 0.0 } else { moment(x, mx, y, my) / spread.sqrt() }
}
