//! Adaptive Trend Classification written directly from its definition: one symbol, one average, one bar at a time,
//! every window summed again. `trawl bench atc` compares with it, and the kernels' tests check the engine against it;
//! it shares no code with the engine.

/// Parameters of a classification.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// Base lengths: EMA, HMA, WMA, DEMA, LSMA, KAMA.
    pub lens: [usize; 6],
    /// Equity that each family's signal starts from, in the order of `lens`.
    pub weights: [f64; 6],
    /// How far the other lengths of a family are from its base.
    pub offsets: [usize; 4],
    /// In thousandths.
    pub la: f64,
    /// In percent.
    pub de: f64,
    /// Bars at the beginning without a vote.
    pub cutout: usize,
    /// A signal above it votes 1.
    pub long: f64,
    /// A signal below it votes -1.
    pub short: f64,
    /// Whether each bar has the signal of the bar before it.
    pub strategy_mode: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            lens: [28; 6],
            weights: [1.0; 6],
            offsets: [1, 2, 4, 6],
            la: 0.02,
            de: 0.03,
            cutout: 0,
            long: 0.1,
            short: -0.1,
            strategy_mode: false,
        }
    }
}

/// One value per bar each.
#[derive(Debug, Clone)]
pub struct Classification {
    /// The mean of the families' votes, weighed by their equities.
    pub signal: Vec<f64>,
    /// Layer 1, by family.
    pub families: Vec<Vec<f64>>,
    /// Layer 2, by family.
    pub equities: Vec<Vec<f64>>,
    /// The first bar with a decision that depends on the order of additions: a price as close to an average, or a
    /// signal as close to half a hundredth, as rounding errors are large.
    pub first_near: Option<usize>,
    /// How many such decisions there were.
    pub near: usize,
}

/// Relative distance within which rounding could decide.
const NEAR: f64 = 1e-12;
/// The same of a signal, in hundredths.
const NEAR_HALF: f64 = 1e-9;

/// Why there is no classification.
///
/// # Errors
/// Too few bars for the averages or the cutout.
pub fn classify(price: &[f64], src: &[f64], p: &Parameters) -> Result<Classification, &'static str> {
    let bars = price.len();
    let most = p.offsets[3];
    if bars <= p.cutout {
        return Err("no bar after the cutout");
    }
    if p.lens[..5].iter().any(|len| bars < len + most) {
        return Err("fewer bars than an average needs");
    }
    let returns = returns(price, p);
    let mut made =
        Classification { signal: Vec::new(), families: Vec::new(), equities: Vec::new(), first_near: None, near: 0 };
    for (family, base) in p.lens.iter().enumerate() {
        let up = p.offsets.iter().map(|o| base + o);
        let down = p.offsets.iter().map(|o| base - o);
        let (mut votes, mut total) = (vec![0.0; bars], vec![0.0; bars]);
        for len in std::iter::once(*base).chain(up).chain(down) {
            let average = average(family, src, len);
            made.count_near(family, price, src, &average, len);
            let crossing = crossing(price, &average);
            let equity = equity(1.0, &crossing, &returns, p);
            for t in 0..bars {
                votes[t] += crossing[t] * equity[t];
                total[t] += equity[t];
            }
        }
        let mut signal = Vec::with_capacity(bars);
        for t in 0..bars {
            let hundredths = 100.0 * (votes[t] / total[t]);
            if (hundredths.abs().fract() - 0.5).abs() < NEAR_HALF {
                made.near(t);
            }
            signal.push(hundredths.round_ties_even() / 100.0);
        }
        made.equities.push(equity(p.weights[family], &signal, &returns, p));
        made.families.push(signal);
    }
    for t in 0..bars {
        let (mut votes, mut total) = (0.0, 0.0);
        for (signal, equity) in made.families.iter().zip(&made.equities) {
            let cut = if t < p.cutout { 0.0 } else { cut(signal[t], p) };
            votes += cut * equity[t];
            total += equity[t];
        }
        let mean: f64 = votes / total;
        made.signal.push(if mean.is_finite() { mean } else { 0.0 });
    }
    if p.strategy_mode {
        made.signal.insert(0, 0.0);
        made.signal.pop();
    }
    Ok(made)
}

fn cut(signal: f64, p: &Parameters) -> f64 {
    if signal > p.long {
        1.0
    } else if signal < p.short {
        -1.0
    } else {
        0.0
    }
}

impl Classification {
    fn near(&mut self, t: usize) {
        self.near += 1;
        self.first_near = Some(self.first_near.map_or(t, |first| first.min(t)));
    }

    fn count_near(&mut self, family: usize, price: &[f64], src: &[f64], average: &[f64], len: usize) {
        for t in 0..price.len() {
            let apart = (price[t] - average[t]).abs();
            if apart <= NEAR * price[t].abs() {
                // EMA and DEMA are computed in one fixed order; in a flat window every order gives the same value.
                let reach =
                    len.max(if family == 1 && len == 1 { 10 } else { 0 }) + if family == 1 { len.isqrt() } else { 0 };
                let window = src[(t + 1).saturating_sub(reach)..=t].iter();
                let flat = family != 5 && window.clone().all(|x| *x == src[t]);
                if !(apart == 0.0 && (family == 0 || family == 3 || flat)) {
                    self.near(t);
                }
            }
        }
    }
}

fn average(family: usize, x: &[f64], len: usize) -> Vec<f64> {
    match family {
        0 => exponential(&seeded(x, len), len),
        1 => hull(x, len),
        2 => weighted(x, len),
        3 => {
            let first = exponential(&seeded(x, len), len);
            let second = exponential(&first, len);
            first.iter().zip(second).map(|(a, b)| 2.0 * a - b).collect()
        }
        4 => line(x, len),
        _ => kaufman(x, len),
    }
}

/// NA before the `len`-th bar, at that bar the mean of the values up to it, and the series after it.
fn seeded(x: &[f64], len: usize) -> Vec<f64> {
    let mut z = vec![f64::NAN; x.len()];
    let seen: Vec<f64> = x.iter().take(len).copied().filter(|x| !x.is_nan()).collect();
    let from = (len - 1).min(x.len());
    z[from..].copy_from_slice(&x[from..]);
    if let Some(first) = z.get_mut(len - 1) {
        *first = match seen.first() {
            Some(from) => from + seen.iter().map(|x| x - from).sum::<f64>() / seen.len() as f64,
            None => f64::NAN,
        };
    }
    z
}

fn exponential(z: &[f64], len: usize) -> Vec<f64> {
    let alpha = 2.0 / (len as f64 + 1.0);
    let (mut m, mut w) = (f64::NAN, 1.0);
    let mut out = Vec::with_capacity(z.len());
    for z in z {
        if m.is_nan() {
            (m, w) = (*z, 1.0);
        } else {
            w *= 1.0 - alpha;
            if !z.is_nan() {
                if m != *z {
                    m = (w * m + alpha * z) / (w + alpha);
                }
                w = 1.0;
            }
        }
        out.push(m);
    }
    out
}

/// The current value and the mean of the differences from it, weighted by age.
fn around(x: &[f64], len: usize, divisor: f64, weight: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut out = vec![f64::NAN; x.len()];
    for t in len - 1..x.len() {
        let apart = (1..len).map(|age| weight(age as f64) * (x[t - age] - x[t]));
        out[t] = x[t] + apart.sum::<f64>() / divisor;
    }
    out
}

fn weighted(x: &[f64], len: usize) -> Vec<f64> {
    let p = len as f64;
    around(x, len, p * (p + 1.0) / 2.0, |age| p - age)
}

fn hull(x: &[f64], len: usize) -> Vec<f64> {
    let half = if len == 1 { 10 } else { len / 2 };
    let raw: Vec<f64> = weighted(x, half).iter().zip(weighted(x, len)).map(|(h, w)| 2.0 * h - w).collect();
    weighted(&raw, len.isqrt())
}

fn line(x: &[f64], len: usize) -> Vec<f64> {
    if len == 1 {
        return vec![f64::NAN; x.len()];
    }
    let p = len as f64;
    around(x, len, p * (p + 1.0), |age| 4.0 * p - 2.0 - 6.0 * age)
}

fn kaufman(x: &[f64], len: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(x.len());
    let mut k = x[0];
    for t in 0..x.len() {
        if t >= len {
            let noise: f64 = (t + 1 - len..=t).map(|j| (x[j] - x[j - 1]).abs()).sum();
            let ratio = if noise == 0.0 { 0.0 } else { (x[t] - x[t - len]).abs() / noise };
            let sc = (ratio * (0.666 - 0.064) + 0.064).powi(2);
            let q = if k.is_nan() { x[t] } else { k };
            k = q + sc * (x[t] - q);
        }
        out.push(k);
    }
    out
}

fn crossing(price: &[f64], average: &[f64]) -> Vec<f64> {
    let mut s = 0.0;
    let mut out = vec![s];
    for t in 1..price.len() {
        if price[t] > average[t] && price[t - 1] <= average[t - 1] {
            s = 1.0;
        } else if price[t] < average[t] && price[t - 1] >= average[t - 1] {
            s = -1.0;
        }
        out.push(s);
    }
    out
}

fn returns(price: &[f64], p: &Parameters) -> Vec<f64> {
    let mut out = vec![f64::NAN];
    for t in 1..price.len() {
        let growth = if t >= p.cutout { (p.la / 1000.0 * (t - p.cutout) as f64).exp().min(f64::MAX) } else { 1.0 };
        out.push((price[t] / price[t - 1] - 1.0) * growth);
    }
    out
}

fn equity(start: f64, signal: &[f64], returns: &[f64], p: &Parameters) -> Vec<f64> {
    let decay = 1.0 - p.de / 100.0;
    let mut e = f64::NAN;
    let mut out = vec![f64::NAN; p.cutout.min(signal.len())];
    for t in p.cutout..signal.len() {
        let before = if t == 0 { f64::NAN } else { signal[t - 1] };
        let none = before.is_nan() || returns[t].is_nan() || before == 0.0;
        let a = if none { 0.0 } else { returns[t] * before.signum() };
        e = if e.is_nan() { start } else { e * decay * (1.0 + a) };
        if e < 0.25 {
            e = 0.25;
        }
        out.push(e);
    }
    out
}
