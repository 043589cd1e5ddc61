//! The oracle: each primitive by its definition, one symbol, one bar at a time, windows summed from scratch. It shares
//! no code with the engine but the functions of single values (`trawl_plan::scalar`). Over `f64` it defines the
//! engine's values, over `Double` their distance from the exact value.

#![warn(clippy::wildcard_enum_match_arm)]

use trawl_plan::family::Anchor;
use trawl_plan::graph::Op;
use trawl_plan::scalar;

use super::number::Number;
use super::rich;
use super::trend;

/// One primitive over whole series.
pub fn primitive<N: Number>(op: Op, inputs: &[&[N]], bars: usize) -> Vec<N> {
    let at = |input: usize, t: usize| inputs[input][t];
    let each = |f: &dyn Fn(usize) -> N| (0..bars).map(f).collect::<Vec<N>>();
    let x = inputs[0];
    match op {
        Op::Column(_)
        | Op::Constant(_)
        | Op::Label(_)
        | Op::HistoryMask
        | Op::Begins(_)
        | Op::Clock(_)
        | Op::Attribute(_)
        | Op::Cross(_)
        | Op::Read(_) => Vec::new(),
        Op::PercentRank(p) => window(x, p + 1, |w| {
            let (now, before) = w.split_last().expect("more than one value");
            N::of(before.iter().filter(|v| *v < now).count() as f64) / f64::from(p) * 100.0
        }),
        Op::OrderStatistic { p, rank } => window(x, p, |w| {
            let mut sorted = w.to_vec();
            sorted.sort_by(|a, b| a.partial_cmp(b).expect("defined values"));
            sorted[rank as usize - 1]
        }),
        Op::BarsSinceMax(p) => window(x, p, |w| since(w, |a, b| a > b)),
        Op::BarsSinceMin(p) => window(x, p, |w| since(w, |a, b| a < b)),
        Op::MaxIndex(p) => extreme_index(x, p as usize, |a, b| a > b),
        Op::MinIndex(p) => extreme_index(x, p as usize, |a, b| a < b),
        Op::Slope(p) => window(x, p, |w| {
            let middle = (f64::from(p) - 1.0) / 2.0;
            let product = |(k, x): (usize, &N)| (*x - w[0]) * (k as f64 - middle);
            let products: Vec<N> = w.iter().enumerate().map(product).collect();
            N::sum(&products) / (0..p).map(|k| (f64::from(k) - middle).powi(2)).sum::<f64>()
        }),
        Op::Beta(p) => each(&|t| beta(x, inputs[1], t, p as usize)),
        Op::EmaBy { p, delay, factor } => smoothed(x, p, delay, |m, x| (x - m) * factor.value() + m),
        Op::WilderTotal(p) => {
            let (mut n, mut s) = (0, N::ZERO);
            over_defined(inputs, bars, |t| {
                n += 1;
                s = if n < p { s + x[t] } else { s - s / f64::from(p) + x[t] };
                (n + 1 >= p).then_some(s)
            })
        }
        Op::Product => {
            let mut product = N::of(1.0);
            over_defined(inputs, bars, |t| {
                product *= x[t];
                Some(product)
            })
        }
        Op::Previous => each(&|t| {
            let before = x[..t].iter().rev().find(|x| x.is_finite());
            if x[t].is_finite() { before.copied().unwrap_or(x[t]) } else { N::NAN }
        }),
        Op::Correlation(p) => each(&|t| correlation(x, inputs[1], t, p as usize)),
        Op::ValueWhen => {
            let mut held = N::NAN;
            each_mut(bars, |t| {
                held = if x[t] == 1.0 {
                    at(1, t)
                } else if x[t].is_nan() {
                    N::NAN
                } else {
                    held
                };
                held
            })
        }
        Op::MaxSince | Op::MinSince => each(&|t| {
            // Back to the last true, or to an NA that comes first.
            let Some(from) = (0..=t).rev().find(|j| x[*j] == 1.0 || x[*j].is_nan()) else { return N::NAN };
            if x[from].is_nan() {
                return N::NAN;
            }
            let sign = if op == Op::MaxSince { 1.0 } else { -1.0 };
            let defined = inputs[1][from..=t].iter().copied().filter(|x| x.is_finite());
            defined.reduce(|a, b| if b.value() * sign > a.value() * sign { b } else { a }).unwrap_or(N::NAN)
        }),
        Op::Ever => each(&|t| N::truth(x[..=t].iter().any(|x| *x == 1.0))),
        Op::EverSince => each(&|t| {
            let from = (0..=t).rev().find(|j| x[*j] == 1.0).unwrap_or(0);
            N::truth(inputs[1][from..=t].iter().any(|x| *x == 1.0))
        }),
        Op::Unary(u) => each(&|t| N::unary(u, x[t])),
        Op::Binary(b) => each(&|t| N::binary(b, x[t], at(1, t))),
        Op::Compare(c) => each(&|t| N::compare(c, x[t], at(1, t))),
        Op::And => each(&|t| and(x[t], at(1, t))),
        Op::Or => each(&|t| or(x[t], at(1, t))),
        Op::Not => each(&|t| N::of(scalar::not(x[t].value()))),
        Op::Select => each(&|t| match x[t].value() {
            1.0 => at(1, t),
            0.0 => at(2, t),
            _ => N::NAN,
        }),
        Op::Lag(p) => each(&|t| {
            if t >= p as usize { x[t - p as usize] } else { N::NAN }
        }),
        Op::Skip(p) => each(&|t| {
            let seen = x[..=t].iter().filter(|x| x.is_finite()).count();
            if seen > p as usize || !x[t].is_finite() { x[t] } else { N::NAN }
        }),
        Op::Sum(p) => sums(x, p, N::sum),
        Op::Mean(p) => sums(x, p, |w| N::sum(w) / f64::from(p)),
        Op::WeightedMean(p) => sums(x, p, |w| {
            let weighted: Vec<N> = w.iter().enumerate().map(|(k, x)| *x * (k + 1) as f64).collect();
            N::sum(&weighted) / (f64::from(p) * (f64::from(p) + 1.0) / 2.0)
        }),
        Op::Max(p) => window(x, p, |w| w.iter().copied().fold(N::of(f64::NEG_INFINITY), N::max)),
        Op::Min(p) => window(x, p, |w| w.iter().copied().fold(N::of(f64::INFINITY), N::min)),
        Op::StdDev(p) => sums(x, p, |w| {
            let mean = N::sum(w) / f64::from(p);
            let squares = w.iter().map(|x| (*x - mean) * (*x - mean));
            (total(squares) / f64::from(p)).sqrt()
        }),
        Op::MeanAbsDev(p) => {
            let p = p as usize;
            each(&|t| match defined_window(x, t, p, f64::MAX) {
                Some(w) => total(w.iter().map(|x| (*x - at(1, t)).abs())) / p as f64,
                None => N::NAN,
            })
        }
        Op::Ema { p, delay } => smoothed(x, p, delay, |m, x| (x - m) * (N::of(2.0) / (f64::from(p) + 1.0)) + m),
        Op::Wilder(p) => smoothed(x, p, 0, |m, x| (m * (f64::from(p) - 1.0) + x) / f64::from(p)),
        Op::WilderSum(p) => {
            let (mut n, mut s) = (0, N::ZERO);
            over_defined(inputs, bars, |t| {
                n += 1;
                s = if n < p { s + x[t] } else { s - s / f64::from(p) + x[t] };
                (n >= p).then_some(s)
            })
        }
        Op::WilderRatio(p) => {
            let (mut n, mut m) = (0, N::ZERO);
            over_defined(inputs, bars, |t| {
                n += 1;
                let zero = at(1, t) == 0.0;
                let ratio = (x[t] / at(1, t)) * 100.0;
                if n <= p {
                    m += if zero { N::ZERO } else { ratio };
                    if n == p {
                        m = m / f64::from(p);
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
                let whole = noise <= change || noise == 0.0;
                let efficiency = if whole { N::of(1.0) } else { (change / noise).abs() };
                let (fast, slow) = (N::of(2.0) / 3.0, N::of(2.0) / 31.0);
                let c = efficiency * (fast - slow) + slow;
                let c = c * c;
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
            let p = at(1, t).value().trunc().max(f64::from(least)).min(f64::from(most));
            let w = if at(1, t).is_finite() { defined_window(x, t, p as usize, f64::MAX) } else { None };
            w.map_or(N::NAN, |w| N::sum(w) / p)
        }),
        Op::Cumulative => {
            let mut seen = Vec::new();
            over_defined(inputs, bars, |t| {
                seen.push(x[t]);
                Some(N::sum(&seen))
            })
        }
        Op::AnchoredMean { anchor, previous } => anchored_mean(anchor, previous, inputs, bars),
        Op::OnBalance => {
            let (mut total, mut before) = (N::ZERO, None);
            over_defined(inputs, bars, |t| {
                total += match before {
                    Some(b) if x[t] < b => -at(1, t),
                    Some(b) if x[t] == b => N::ZERO,
                    _ => at(1, t),
                };
                before = Some(x[t]);
                Some(total)
            })
        }
        Op::TrendMean { family, len } => trend::mean(family, len as usize, x, inputs.get(1).copied()),
        Op::GrownReturn { rate, cutout } => trend::grown_return(rate.value(), f64::from(cutout), inputs),
        Op::FamilySignal { decay, cutout } => trend::family(decay.value(), f64::from(cutout), inputs),
        Op::SignalEquity { start, decay, cutout } => {
            trend::equity(start.value(), decay.value(), f64::from(cutout), x, inputs[1], inputs[2])
        }
        Op::TrendVote { long, short } => trend::vote(long.value(), short.value(), inputs),
        Op::CrossesAbove => each(&|t| crosses(x, inputs[1], t)),
        Op::CrossesBelow => each(&|t| crosses(inputs[1], x, t)),
        Op::Within(p) => each(&|t| last(x, t, p).into_iter().fold(N::ZERO, or)),
        Op::Streak(p) => each(&|t| last(x, t, p).into_iter().fold(N::of(1.0), and)),
        Op::Since => each(&|t| {
            for back in 0..=t {
                match x[t - back].value() {
                    1.0 => return N::of(back as f64),
                    c if c.is_nan() => return N::NAN,
                    _ => {}
                }
            }
            N::NAN
        }),
    }
}

/// The window of `p` bars that ends at `t`, when it is whole and defined.
fn defined_window<N: Number>(x: &[N], t: usize, p: usize, most: f64) -> Option<&[N]> {
    let w = x.get((t + 1).checked_sub(p)?..=t)?;
    w.iter().all(|x| x.value().abs() <= most).then_some(w)
}

fn window<N: Number>(x: &[N], p: u32, f: impl Fn(&[N]) -> N) -> Vec<N> {
    (0..x.len()).map(|t| defined_window(x, t, p as usize, f64::MAX).map_or(N::NAN, &f)).collect()
}

/// Sums that overflow are NA.
fn sums<N: Number>(x: &[N], p: u32, f: impl Fn(&[N]) -> N) -> Vec<N> {
    window(x, p, |w| Some(f(w)).filter(|y| y.is_finite()).unwrap_or(N::NAN))
}

/// The last `p` values, NA for bars before the first.
fn last<N: Number>(x: &[N], t: usize, p: u32) -> Vec<N> {
    (0..p as usize).map(|back| if back <= t { x[t - back] } else { N::NAN }).collect()
}

fn crosses<N: Number>(a: &[N], b: &[N], t: usize) -> N {
    if t == 0 || ![a[t], b[t], a[t - 1], b[t - 1]].iter().all(|x| x.is_finite()) {
        return N::NAN;
    }
    N::truth(a[t] > b[t] && a[t - 1] <= b[t - 1])
}

/// Calls `f` at the bars where every input is defined, in order; NA elsewhere.
fn over_defined<N: Number>(inputs: &[&[N]], bars: usize, mut f: impl FnMut(usize) -> Option<N>) -> Vec<N> {
    (0..bars).map(|t| if inputs.iter().all(|x| x[t].is_finite()) { f(t).unwrap_or(N::NAN) } else { N::NAN }).collect()
}

fn smoothed<N: Number>(x: &[N], p: u32, delay: u32, next: impl Fn(N, N) -> N) -> Vec<N> {
    let mut seed = Vec::new();
    let mut n = 0;
    let mut mean = N::ZERO;
    over_defined(&[x], x.len(), |t| {
        n += 1;
        if n <= delay {
            return None;
        }
        if n <= delay + p {
            seed.push(x[t]);
            mean = total(seed.iter().copied()) / f64::from(p);
            return (n == delay + p).then_some(mean);
        }
        mean = next(mean, x[t]);
        Some(mean)
    })
}

fn total<N: Number>(values: impl Iterator<Item = N>) -> N {
    values.fold(N::ZERO, |sum, x| sum + x)
}

fn and<N: Number>(a: N, b: N) -> N {
    N::of(scalar::and(a.value(), b.value()))
}

fn or<N: Number>(a: N, b: N) -> N {
    N::of(scalar::or(a.value(), b.value()))
}

fn each_mut<N: Number>(bars: usize, f: impl FnMut(usize) -> N) -> Vec<N> {
    (0..bars).map(f).collect()
}

/// Bars since the value that no later one reaches and no earlier one exceeds.
fn since<N: Number>(w: &[N], beyond: impl Fn(N, N) -> bool) -> N {
    let extreme = w.iter().copied().reduce(|a, b| if beyond(b, a) { b } else { a });
    w.iter().rev().position(|x| Some(*x) == extreme).map_or(N::NAN, |back| N::of(back as f64))
}

/// As TA-Lib looks for it: among the window's bars when the one held has left it, else at the new bar alone.
fn extreme_index<N: Number>(x: &[N], p: usize, beyond: impl Fn(N, N) -> bool) -> Vec<N> {
    let mut held = None;
    (0..x.len())
        .map(|t| {
            if defined_window(x, t, p, f64::MAX).is_none() {
                held = None;
                return N::NAN;
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
            N::of(found as f64)
        })
        .collect()
}

/// The window's variances and covariance, times its length: of the differences to the first values, which are exact for
/// near numbers.
fn joint<N: Number>(x: &[N], y: &[N], t: usize, p: usize) -> Option<[N; 3]> {
    let (x, y) = (defined_window(x, t, p, f64::MAX)?, defined_window(y, t, p, f64::MAX)?);
    let (x, y): (Vec<N>, Vec<N>) = (x.iter().map(|v| *v - x[0]).collect(), y.iter().map(|v| *v - y[0]).collect());
    let (mx, my) = (N::sum(&x) / p as f64, N::sum(&y) / p as f64);
    let moment = |a: &[N], ma: N, b: &[N], mb: N| -> N { total(a.iter().zip(b).map(|(a, b)| (*a - ma) * (*b - mb))) };
    Some([moment(&x, mx, &x, mx), moment(&y, my, &y, my), moment(&x, mx, &y, my)])
}

/// By the textbook: covariance over the deviations.
fn correlation<N: Number>(x: &[N], y: &[N], t: usize, p: usize) -> N {
    joint(x, y, t, p).map_or(
        N::NAN,
        |[xx, yy, xy]| {
            if xx == 0.0 || yy == 0.0 { N::ZERO } else { xy / (xx.sqrt() * yy.sqrt()) }
        },
    )
}

/// Covariance over variance.
fn beta<N: Number>(x: &[N], y: &[N], t: usize, p: usize) -> N {
    joint(x, y, t, p).map_or(N::NAN, |[xx, _, xy]| if xx == 0.0 { N::ZERO } else { xy / xx })
}

/// By definition: the bars that are there are gathered into periods, an anchor is looked for in each.
fn anchored_mean<N: Number>(anchor: Anchor, previous: bool, inputs: &[&[N]], bars: usize) -> Vec<N> {
    let there: Vec<usize> = (0..bars).filter(|t| inputs[1..].iter().all(|s| s[*t].is_finite())).collect();
    let period = |t: usize| (1..=t).filter(|j| inputs[0][*j] == 1.0).count();
    // The first bar of `of` up to `now` whose key no other bar of the period up to `now` surpasses.
    let anchor_of = |of: usize, now: usize| -> Option<usize> {
        let mine: Vec<usize> = there.iter().copied().filter(|t| period(*t) == of && *t <= now).collect();
        let key = |t: &usize| inputs[1][*t];
        match anchor {
            Anchor::Start => mine.first().copied(),
            Anchor::Highest => {
                let most = mine.iter().map(key).fold(N::of(f64::NEG_INFINITY), N::max);
                mine.into_iter().find(|t| inputs[1][*t] == most)
            }
            Anchor::Lowest => {
                let least = mine.iter().map(key).fold(N::of(f64::INFINITY), N::min);
                mine.into_iter().find(|t| inputs[1][*t] == least)
            }
        }
    };
    let value = |t: usize| {
        if !there.contains(&t) {
            return N::NAN;
        }
        let of = if previous {
            // The latest period before this one that has a bar.
            there.iter().map(|j| period(*j)).filter(|p| *p < period(t)).max()
        } else {
            Some(period(t))
        };
        let Some(from) = of.and_then(|of| anchor_of(of, t)) else { return N::NAN };
        let since: Vec<usize> = there.iter().copied().filter(|j| (from..=t).contains(j)).collect();
        let weights = N::sum(&since.iter().map(|j| inputs[3][*j]).collect::<Vec<N>>());
        let weighted = N::sum(&since.iter().map(|j| inputs[2][*j] * inputs[3][*j]).collect::<Vec<N>>());
        if weights == 0.0 { N::NAN } else { weighted / weights }
    };
    (0..bars).map(value).collect()
}
