//! The oracle: each primitive by its definition, one symbol, one bar at a time, windows summed from scratch. It shares no
//! code with the engine but the functions of single values (`trawl_plan::scalar`).

use trawl_plan::family::Anchor;
use trawl_plan::graph::Op;
use trawl_plan::scalar;

use crate::rich;

/// One primitive over whole series.
pub fn primitive(op: Op, inputs: &[&[f64]], bars: usize) -> Vec<f64> {
    let at = |input: usize, t: usize| inputs[input][t];
    let each = |f: &dyn Fn(usize) -> f64| (0..bars).map(f).collect::<Vec<f64>>();
    let x = inputs[0];
    match op {
        Op::Column(_) | Op::Constant(_) | Op::Label(_) | Op::Window | Op::Begins(_) | Op::Cross(_) | Op::Read(_) => {
            Vec::new()
        }
        Op::PercentRank(p) => window(x, p + 1, |w| {
            let (now, before) = w.split_last().expect("more than one value");
            before.iter().filter(|v| *v < now).count() as f64 / f64::from(p) * 100.0
        }),
        Op::Ranked { p, rank } => window(x, p, |w| {
            let mut sorted = w.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[rank as usize - 1]
        }),
        Op::SinceMax(p) => window(x, p, |w| since(w, |a, b| a > b)),
        Op::SinceMin(p) => window(x, p, |w| since(w, |a, b| a < b)),
        Op::MaxIndex(p) => extreme_index(x, p as usize, |a, b| a > b),
        Op::MinIndex(p) => extreme_index(x, p as usize, |a, b| a < b),
        Op::Slope(p) => window(x, p, |w| {
            let middle = (f64::from(p) - 1.0) / 2.0;
            let product = |(k, x): (usize, &f64)| (k as f64 - middle) * (x - w[0]);
            let products: Vec<f64> = w.iter().enumerate().map(product).collect();
            exact_sum(&products) / (0..p).map(|k| (f64::from(k) - middle).powi(2)).sum::<f64>()
        }),
        Op::Beta(p) => each(&|t| beta(x, inputs[1], t, p as usize)),
        Op::ExponentialBy { p, delay, factor } => smoothed(x, p, delay, |m, x| (x - m) * factor.value() + m),
        Op::WilderTotal(p) => {
            let (mut n, mut s) = (0, 0.0);
            over_defined(inputs, bars, |t| {
                n += 1;
                s = if n < p { s + x[t] } else { s - s / f64::from(p) + x[t] };
                (n + 1 >= p).then_some(s)
            })
        }
        Op::Product => {
            let mut product = 1.0;
            over_defined(inputs, bars, |t| {
                product *= x[t];
                Some(product)
            })
        }
        Op::Previous => each(&|t| {
            let before = x[..t].iter().rev().find(|x| x.is_finite());
            if x[t].is_finite() { before.copied().unwrap_or(x[t]) } else { f64::NAN }
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
        Op::Skip(p) => each(&|t| {
            let seen = x[..=t].iter().filter(|x| x.is_finite()).count();
            if seen > p as usize || !x[t].is_finite() { x[t] } else { f64::NAN }
        }),
        Op::Sum(p) => sums(x, p, exact_sum),
        Op::Mean(p) => sums(x, p, |w| exact_sum(w) / f64::from(p)),
        Op::WeightedMean(p) => sums(x, p, |w| {
            let weighted: Vec<f64> = w.iter().enumerate().map(|(k, x)| (k + 1) as f64 * x).collect();
            exact_sum(&weighted) / (f64::from(p) * (f64::from(p) + 1.0) / 2.0)
        }),
        Op::Max(p) => window(x, p, |w| w.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        Op::Min(p) => window(x, p, |w| w.iter().copied().fold(f64::INFINITY, f64::min)),
        Op::Deviation(p) => sums(x, p, |w| variance(w).sqrt()),
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
                let zero = at(1, t) == 0.0;
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
                let efficiency = if noise <= change || noise == 0.0 { 1.0 } else { (change / noise).abs() };
                let c = (efficiency * (2.0 / 3.0 - 2.0 / 31.0) + 2.0 / 31.0).powi(2);
                let before = m.unwrap_or(at(1, t));
                m = Some(c * (x[t] - before) + before);
                m
            })
        }
        Op::Hilbert(result) => rich::over_defined(inputs, bars, |x| rich::cycle(result, &x[0])),
        Op::Mesa { fast, slow, result } => {
            rich::over_defined(inputs, bars, |x| rich::mesa(fast.value(), slow.value(), result, &x[0]))
        }
        Op::Parabolic(p) => rich::over_defined(inputs, bars, |x| rich::parabolic(p, &x[0], &x[1])),
        Op::SuperTrend(result) => rich::over_defined(inputs, bars, |x| rich::super_trend(result, &x[0], &x[1], &x[2])),
        Op::HeikinAshi => rich::over_defined(inputs, bars, |x| rich::heikin_ashi(&x[0], &x[1], &x[2])),
        Op::VariableMean { least, most } => each(&|t| {
            let p = at(1, t).trunc().max(f64::from(least)).min(f64::from(most));
            let w = if at(1, t).is_finite() { defined_window(x, t, p as usize, f64::MAX) } else { None };
            w.map_or(f64::NAN, |w| exact_sum(w) / p)
        }),
        Op::Cumulative => {
            let mut seen = Vec::new();
            over_defined(inputs, bars, |t| {
                seen.push(x[t]);
                Some(exact_sum(&seen))
            })
        }
        Op::AnchoredMean { anchor, previous } => anchored_mean(anchor, previous, inputs, bars),
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

/// Bars since the value that no later one reaches and no earlier one exceeds.
fn since(w: &[f64], beyond: impl Fn(f64, f64) -> bool) -> f64 {
    let extreme = w.iter().copied().reduce(|a, b| if beyond(b, a) { b } else { a });
    w.iter().rev().position(|x| Some(*x) == extreme).map_or(f64::NAN, |back| back as f64)
}

/// As TA-Lib looks for it: among the window's bars when the one held has left it, else at the new bar alone.
fn extreme_index(x: &[f64], p: usize, beyond: impl Fn(f64, f64) -> bool) -> Vec<f64> {
    let mut held = None;
    (0..x.len())
        .map(|t| {
            if defined_window(x, t, p, f64::MAX).is_none() {
                held = None;
                return f64::NAN;
            }
            let first = t + 1 - p;
            let found = match held {
                Some(at) if at >= first => {
                    if beyond(x[at], x[t]) {
                        at
                    } else {
                        t
                    }
                }
                _ => (first..=t).reduce(|at, j| if beyond(x[j], x[at]) { j } else { at }).expect("a whole window"),
            };
            held = Some(found);
            found as f64
        })
        .collect()
}

/// The window's variances and covariance, times its length: of the differences to the first values, which are exact for
/// near numbers.
fn joint(x: &[f64], y: &[f64], t: usize, p: usize) -> Option<[f64; 3]> {
    let (x, y) = (defined_window(x, t, p, f64::MAX)?, defined_window(y, t, p, f64::MAX)?);
    let (x, y): (Vec<f64>, Vec<f64>) = (x.iter().map(|v| v - x[0]).collect(), y.iter().map(|v| v - y[0]).collect());
    let (mx, my) = (exact_sum(&x) / p as f64, exact_sum(&y) / p as f64);
    let moment = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum::<f64>()
    };
    Some([moment(&x, mx, &x, mx), moment(&y, my, &y, my), moment(&x, mx, &y, my)])
}

/// By the textbook: covariance over the deviations.
fn correlation(x: &[f64], y: &[f64], t: usize, p: usize) -> f64 {
    joint(x, y, t, p).map_or(
        f64::NAN,
        |[xx, yy, xy]| {
            if xx == 0.0 || yy == 0.0 { 0.0 } else { xy / (xx.sqrt() * yy.sqrt()) }
        },
    )
}

/// Covariance over variance.
fn beta(x: &[f64], y: &[f64], t: usize, p: usize) -> f64 {
    joint(x, y, t, p).map_or(f64::NAN, |[xx, _, xy]| if xx == 0.0 { 0.0 } else { xy / xx })
}

/// By definition: the bars that are there are gathered into periods, an anchor is looked for in each.
fn anchored_mean(anchor: Anchor, previous: bool, inputs: &[&[f64]], bars: usize) -> Vec<f64> {
    let there: Vec<usize> = (0..bars).filter(|t| inputs[1..].iter().all(|s| s[*t].is_finite())).collect();
    let period = |t: usize| (1..=t).filter(|j| inputs[0][*j] == 1.0).count();
    // The first bar of `of` up to `now` whose key no other bar of the period up to `now` surpasses.
    let anchor_of = |of: usize, now: usize| -> Option<usize> {
        let mine: Vec<usize> = there.iter().copied().filter(|t| period(*t) == of && *t <= now).collect();
        let key = |t: &usize| inputs[1][*t];
        match anchor {
            Anchor::Start => mine.first().copied(),
            Anchor::Highest => {
                let most = mine.iter().map(key).fold(f64::NEG_INFINITY, f64::max);
                mine.into_iter().find(|t| inputs[1][*t] == most)
            }
            Anchor::Lowest => {
                let least = mine.iter().map(key).fold(f64::INFINITY, f64::min);
                mine.into_iter().find(|t| inputs[1][*t] == least)
            }
        }
    };
    let value = |t: usize| {
        if !there.contains(&t) {
            return f64::NAN;
        }
        let of = if previous {
            // The latest period before this one that has a bar.
            there.iter().map(|j| period(*j)).filter(|p| *p < period(t)).max()
        } else {
            Some(period(t))
        };
        let Some(from) = of.and_then(|of| anchor_of(of, t)) else { return f64::NAN };
        let since: Vec<usize> = there.iter().copied().filter(|j| (from..=t).contains(j)).collect();
        let weights = exact_sum(&since.iter().map(|j| inputs[3][*j]).collect::<Vec<f64>>());
        let weighted = exact_sum(&since.iter().map(|j| inputs[2][*j] * inputs[3][*j]).collect::<Vec<f64>>());
        if weights == 0.0 { f64::NAN } else { weighted / weights }
    };
    (0..bars).map(value).collect()
}
