//! The oracle's definitions of Adaptive Trend Classification's steps, by the text: windows summed bar by bar around the
//! current value, recurrences over whole series.

use trawl_plan::family::Trend;

use super::number::Number;

/// `x` where it is finite, else NA.
fn known<N: Number>(x: N) -> N {
    if x.is_finite() { x } else { N::NAN }
}

/// The values of the `len` bars that end at `t`, the current one first; `None` unless all are there.
fn window<N: Number>(x: &[N], t: usize, len: usize) -> Option<Vec<N>> {
    let w = x.get((t + 1).checked_sub(len)?..=t)?;
    w.iter().all(|x| x.is_finite()).then(|| w.iter().rev().copied().collect())
}

/// Sum of weight(age) * value over `divisor`, whose weights add up to it.
fn weighted<N: Number>(x: &[N], t: usize, len: usize, divisor: f64, weight: impl Fn(f64) -> f64) -> N {
    let Some(w) = window(x, t, len) else { return N::NAN };
    let apart: Vec<N> = w.iter().enumerate().map(|(age, v)| (*v - w[0]) * weight(age as f64)).collect();
    known(N::sum(&apart) / divisor + w[0])
}

fn linear<N: Number>(x: &[N], t: usize, len: usize) -> N {
    let p = len as f64;
    weighted(x, t, len, p * (p + 1.0) / 2.0, |age| p - age)
}

/// Averages of `x` whose bars are numbered `number`.
pub fn mean<N: Number>(family: Trend, len: usize, x: &[N], number: Option<&[N]>) -> Vec<N> {
    let x: Vec<N> = x.iter().map(|x| known(*x)).collect();
    let (bars, p) = (x.len(), len as f64);
    let at = |t: usize| number.map_or(f64::NAN, |n| n[t].value());
    match family {
        Trend::Wma => (0..bars).map(|t| linear(&x, t, len)).collect(),
        Trend::Lsma if len == 1 => vec![N::NAN; bars],
        Trend::Lsma => {
            (0..bars).map(|t| weighted(&x, t, len, p * (p + 1.0), |age| 4.0 * p - 2.0 - 6.0 * age)).collect()
        }
        Trend::Hma => {
            let half = if len < 2 { 10 } else { len / 2 };
            let raw: Vec<N> = (0..bars).map(|t| linear(&x, t, half) * 2.0 - linear(&x, t, len)).collect();
            (0..bars).map(|t| linear(&raw, t, (p.sqrt()).floor() as usize)).collect()
        }
        Trend::Ema => {
            let mut seeded = Vec::with_capacity(bars);
            for t in 0..bars {
                let seen: Vec<N> = x[..=t].iter().filter(|x| x.is_finite()).copied().collect();
                seeded.push(match at(t) {
                    n if n == p && seen.is_empty() => N::NAN,
                    n if n == p => {
                        let apart: Vec<N> = seen.iter().map(|v| *v - seen[0]).collect();
                        N::sum(&apart) / seen.len() as f64 + seen[0]
                    }
                    n if n > p => x[t],
                    _ => N::NAN,
                });
            }
            carried(&seeded, p)
        }
        Trend::Dema => {
            let first = mean(Trend::Ema, len, &x, number);
            let second = carried(&first, p);
            first.iter().zip(second).map(|(a, b)| *a * 2.0 - b).collect()
        }
        Trend::Kama => {
            let mut mean = N::NAN;
            (0..bars)
                .map(|t| {
                    let n = at(t);
                    if n == 1.0 {
                        mean = x[t];
                    } else if n > p {
                        mean = adapted(&x, t, len, mean);
                    }
                    mean
                })
                .collect()
        }
    }
}

fn adapted<N: Number>(x: &[N], t: usize, len: usize, mean: N) -> N {
    let Some(w) = window(x, t, len + 1) else { return N::NAN };
    let noise = w.windows(2).fold(N::ZERO, |sum, pair| sum + (pair[0] - pair[1]).abs());
    let ratio = if noise == 0.0 { N::ZERO } else { (w[0] - w[len]).abs() / noise };
    let root = ratio * (0.666 - 0.064) + N::of(0.064);
    let from = if mean.is_nan() { w[0] } else { mean };
    from + root * root * (w[0] - from)
}

/// An exponential average that a missing bar does not move.
fn carried<N: Number>(z: &[N], p: f64) -> Vec<N> {
    let factor = 2.0 / (p + 1.0);
    let (mut mean, mut weight) = (N::NAN, 1.0);
    let bar = |z: &N| {
        if mean.is_nan() {
            (mean, weight) = (*z, 1.0);
        } else {
            weight *= 1.0 - factor;
            if z.is_finite() {
                if mean.value() != z.value() {
                    mean = (mean * weight + *z * factor) / (weight + factor);
                }
                weight = 1.0;
            }
        }
        mean
    };
    z.iter().map(bar).collect()
}

/// Price change since the previous bar, times its growth factor.
pub fn grown_return<N: Number>(rate: f64, cutout: f64, inputs: &[&[N]]) -> Vec<N> {
    let bar = |t: usize| {
        let i = (inputs[2][t].value() - 1.0).max(1.0);
        let growth = if i >= cutout { grown(rate * (i - cutout)) } else { 1.0 };
        let unnumbered = inputs[2][t].is_nan();
        if unnumbered { N::NAN } else { (known(inputs[0][t]) / known(inputs[1][t]) - N::of(1.0)) * growth }
    };
    (0..inputs[0].len()).map(bar).collect()
}

fn grown(x: f64) -> f64 {
    x.exp().min(f64::MAX)
}

/// The equity of following `signal`.
pub fn equity<N: Number>(start: f64, decay: f64, cutout: f64, signal: &[N], returns: &[N], number: &[N]) -> Vec<N> {
    let mut equity = N::NAN;
    let bar = |t: usize| {
        let counts = number[t].value() > cutout;
        let sign = if t == 0 { f64::NAN } else { signal[t - 1].value() };
        let none = sign.is_nan() || sign == 0.0 || returns[t].is_nan();
        let gain = if none { N::ZERO } else { returns[t] * sign.signum() };
        let next = if equity.is_nan() { N::of(start) } else { equity * decay * (N::of(1.0) + gain) };
        let floored = if next.value() < 0.25 { N::of(0.25) } else { next };
        equity = if counts { floored } else { N::NAN };
        equity
    };
    (0..signal.len()).map(bar).collect()
}

/// The signal of a family. Inputs price, returns, number, averages.
pub fn family<N: Number>(decay: f64, cutout: f64, inputs: &[&[N]]) -> Vec<N> {
    let bars = inputs[0].len();
    let price: Vec<N> = inputs[0].iter().map(|x| known(*x)).collect();
    let (mut votes, mut total) = (vec![N::ZERO; bars], vec![N::ZERO; bars]);
    for average in &inputs[3..] {
        let mut state = N::ZERO;
        let mut signal = Vec::with_capacity(bars);
        for t in 0..bars {
            if t > 0 && price[t] > average[t] && price[t - 1] <= average[t - 1] {
                state = N::of(1.0);
            } else if t > 0 && price[t] < average[t] && price[t - 1] >= average[t - 1] {
                state = N::of(-1.0);
            }
            signal.push(state);
        }
        let equity = equity(1.0, decay, cutout, &signal, inputs[1], inputs[2]);
        for t in 0..bars {
            votes[t] += signal[t] * equity[t].value();
            total[t] += equity[t];
        }
    }
    (0..bars).map(|t| N::of(((votes[t].value() / total[t].value()) * 100.0).round_ties_even() / 100.0)).collect()
}

/// The classification. Inputs six signals, six equities.
pub fn vote<N: Number>(long: f64, short: f64, inputs: &[&[N]]) -> Vec<N> {
    let bar = |t: usize| {
        let (mut votes, mut total) = (0.0, 0.0);
        for k in 0..6 {
            let (signal, equity) = (inputs[k][t].value(), inputs[k + 6][t].value());
            votes += f64::from(i8::from(signal > long) - i8::from(signal < short)) * equity;
            total += equity;
        }
        let mean: f64 = votes / total;
        N::of(if mean.is_finite() { mean } else { 0.0 })
    };
    (0..inputs[0].len()).map(bar).collect()
}
