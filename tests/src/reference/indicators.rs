//! Every function over one symbol's bars, by its definition: windows from scratch, recurrences step by step.
//!
//! A value is `None` where it is NA. Windows, recurrences, comparisons and cumulative functions take an infinity for NA.
//! Rounding noise for the sensitivity analysis of [`crate::reference::evaluate`] comes in through [`Noise`].

/// A value at one bar; NA is `None`.
pub type Value = Option<f64>;

/// The difference between an exact result and a double: none, or relative noise of about 1e-12.
pub trait Noise {
    /// `x`, perhaps slightly changed.
    fn round(&self, x: f64) -> f64;

    /// Whether a covariance is that of sums instead of distances from means: exactly 0 where whole numbers have none.
    fn by_sums(&self) -> bool;
}

/// What TA-Lib regards as rounding, relative to the compared values.
const EPSILON: f64 = 1e-14;

/// A NaN is NA.
pub fn known(x: f64) -> Value {
    (!x.is_nan()).then_some(x)
}

/// An infinity is NA too.
pub fn finite(value: Value) -> Value {
    value.filter(|x| x.is_finite())
}

/// The last `n` values up to bar `t`, if all of them are defined.
fn window(x: &[Value], t: usize, n: usize) -> Option<Vec<f64>> {
    let first = (t + 1).checked_sub(n)?;
    x[first..=t].iter().map(|v| finite(*v)).collect()
}

fn flat(window: &[f64]) -> bool {
    window.iter().all(|x| *x == window[0])
}

/// The mean of some values, rounded once; of equal ones their value.
pub fn mean(window: &[f64]) -> f64 {
    if flat(window) {
        return window[0];
    }
    // The sum with the error of its additions (Neumaier), and the quotient with the remainder, so that it is rounded
    // once.
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for x in window {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    let n = window.len() as f64;
    let quotient = sum / n;
    quotient + ((-quotient).mul_add(n, sum) + lost) / n
}

/// Population deviation, exactly 0 for equal values.
fn deviation(window: &[f64]) -> f64 {
    let middle = mean(window);
    (window.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / window.len() as f64).sqrt()
}

/// One value for each bar.
fn each(bars: usize, value: impl FnMut(usize) -> Value) -> Vec<Value> {
    (0..bars).map(value).collect()
}

fn over_windows(x: &[Value], n: usize, value: impl Fn(&[f64]) -> Value) -> Vec<Value> {
    each(x.len(), |t| window(x, t, n).and_then(|w| value(&w)))
}

/// A recurrence: emits NA and holds its state where the input is NA. The first `skip` values are skipped, the next `n`
/// are averaged for the first result.
fn recurrence(x: &[Value], skip: usize, n: usize, next: impl Fn(f64, f64) -> f64) -> Vec<Value> {
    let mut seed: Vec<f64> = Vec::new();
    let mut seen = 0;
    let mut state = None;
    each(x.len(), |t| {
        let now = finite(x[t])?;
        seen += 1;
        if seen <= skip {
            return None;
        }
        state = match state {
            Some(before) => Some(next(before, now)),
            None => {
                seed.push(now);
                (seed.len() == n).then(|| mean(&seed))
            }
        };
        state
    })
}

fn ema(x: &[Value], skip: usize, n: usize) -> Vec<Value> {
    let factor = 2.0 / (n as f64 + 1.0);
    recurrence(x, skip, n, |before, now| before + (now - before) * factor)
}

fn wilder(x: &[Value], n: usize) -> Vec<Value> {
    recurrence(x, 0, n, |before, now| (before * (n as f64 - 1.0) + now) / n as f64)
}

/// Wilder's sum: the first n-1 values are added; from the n-th on 1/n of the sum is subtracted first.
fn wilder_sum(x: &[Value], n: usize) -> Vec<Value> {
    let (mut seen, mut sum) = (0, 0.0);
    each(x.len(), |t| {
        let now = finite(x[t])?;
        seen += 1;
        sum = if seen < n { sum + now } else { sum - sum / n as f64 + now };
        (seen >= n).then_some(sum)
    })
}

fn kama(x: &[Value], n: usize) -> Vec<Value> {
    let mut state = None;
    each(x.len(), |t| {
        // n changes, each between two bars.
        let w = window(x, t, n + 1)?;
        let noise: f64 = w.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        let change = (w[n] - w[0]).abs();
        let efficiency = if noise == 0.0 { 1.0 } else { (change / noise).min(1.0) };
        let constant = (efficiency * (2.0 / 3.0 - 2.0 / 31.0) + 2.0 / 31.0).powi(2);
        let before = state.unwrap_or(w[n - 1]);
        state = Some(before + constant * (w[n] - before));
        state
    })
}

fn average(kind: &str, x: &[Value], n: usize) -> Vec<Value> {
    match kind {
        // TA-Lib: one bar is not smoothed.
        _ if n == 1 => x.to_vec(),
        "ema" => ema(x, 0, n),
        "wma" => over_windows(x, n, |w| {
            let weighted: f64 = w.iter().enumerate().map(|(k, x)| (k + 1) as f64 * x).sum();
            Some(weighted / (n * (n + 1) / 2) as f64)
        }),
        "kama" => kama(x, n),
        _ => over_windows(x, n, |w| Some(mean(w))),
    }
}

/// `f` of the values at one bar, where all are known.
fn pointwise<const N: usize>(x: [&[Value]; N], f: impl Fn([f64; N]) -> Value) -> Vec<Value> {
    each(x[0].len(), |t| {
        let mut values = [0.0; N];
        for (value, series) in values.iter_mut().zip(x) {
            *value = series[t]?;
        }
        f(values).and_then(known)
    })
}

/// The value one bar earlier.
fn before(x: &[Value], t: usize) -> Value {
    x[t.checked_sub(1)?]
}

fn typical(x: &[Vec<Value>]) -> Vec<Value> {
    pointwise([&x[0], &x[1], &x[2]], |[high, low, close]| Some((high + low + close) / 3.0))
}

fn true_range(high: &[Value], low: &[Value], close: &[Value]) -> Vec<Value> {
    each(high.len(), |t| {
        let (high, low, close) = (finite(high[t])?, finite(low[t])?, finite(before(close, t))?);
        Some((high - low).max((high - close).abs()).max((low - close).abs()))
    })
}

fn rsi(x: &[Value], n: usize) -> Vec<Value> {
    let change = each(x.len(), |t| Some(finite(x[t])? - finite(before(x, t))?));
    let gain = wilder(&pointwise([&change], |[c]| Some(c.max(0.0))), n);
    let loss = wilder(&pointwise([&change], |[c]| Some((-c).max(0.0))), n);
    pointwise([&gain, &loss], |[g, l]| Some(if g + l == 0.0 { 0.0 } else { 100.0 * g / (g + l) }))
}

fn macd(x: &[Value], fast: usize, slow: usize, signal: usize, field: &str) -> Vec<Value> {
    let (fast, slow) = (fast.min(slow), fast.max(slow));
    let line = pointwise([&ema(x, slow - fast, fast), &ema(x, 0, slow)], |[f, s]| Some(f - s));
    let signal = ema(&line, 0, signal);
    match field {
        "line" | "macd" => pointwise([&line, &signal], |[line, _]| Some(line)),
        "signal" | "macdsignal" => signal,
        _ => pointwise([&line, &signal], |[line, signal]| Some(line - signal)),
    }
}

fn stoch(x: &[Vec<Value>], params: &[usize], averages: &[&str], field: &str) -> Vec<Value> {
    let fast = each(x[0].len(), |t| {
        let highest = window(&x[0], t, params[0])?.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let lowest = window(&x[1], t, params[0])?.into_iter().fold(f64::INFINITY, f64::min);
        // Only this bar is read: not a window, so an infinity is allowed. A flat range makes 0 of finite values alone.
        let close = x[2][t]?;
        let range = highest - lowest;
        let flat = range <= EPSILON * (highest.abs() + lowest.abs()) && close.is_finite();
        Some(if flat { 0.0 } else { (close - lowest) / (range / 100.0) })
    });
    let k = average(averages[0], &fast, params[1]);
    let d = average(averages[1], &k, params[2]);
    if field == "d" || field == "slowd" { d } else { pointwise([&k, &d], |[k, _]| Some(k)) }
}

fn adx(x: &[Vec<Value>], n: usize) -> Vec<Value> {
    let (high, low) = (&x[0], &x[1]);
    let range = true_range(high, low, &x[2]);
    // Directional movements and true range are taken at the same bars.
    let moves: Vec<Option<(f64, f64, f64)>> = (0..high.len())
        .map(|t| {
            let up = finite(high[t])? - finite(before(high, t))?;
            let down = finite(before(low, t))? - finite(low[t])?;
            let plus = if up > 0.0 && up > down { up } else { 0.0 };
            let minus = if down > 0.0 && down > up { down } else { 0.0 };
            Some((plus, minus, range[t]?))
        })
        .collect();
    let part = |f: fn((f64, f64, f64)) -> f64| {
        let values: Vec<Value> = moves.iter().map(|m| m.map(f)).collect();
        wilder_sum(&values, n)
    };
    let (plus, minus, range) = (part(|m| m.0), part(|m| m.1), part(|m| m.2));
    let (mut seen, mut state) = (0, 0.0);
    each(high.len(), |t| {
        let (plus, minus, range) = (plus[t]?, minus[t]?, range[t]?);
        let (plus, minus) = if range == 0.0 { (0.0, 0.0) } else { (100.0 * plus / range, 100.0 * minus / range) };
        let index = (plus + minus != 0.0).then(|| 100.0 * (minus - plus).abs() / (plus + minus));
        seen += 1;
        match index {
            Some(index) if seen <= n => state += index,
            Some(index) => state = (state * (n as f64 - 1.0) + index) / n as f64,
            None => {}
        }
        if seen == n {
            state /= n as f64;
        }
        (seen >= n).then_some(state)
    })
}

fn mfi(x: &[Vec<Value>], n: usize) -> Vec<Value> {
    let price = typical(x);
    let flows: Vec<Option<(f64, f64)>> = (0..price.len())
        .map(|t| {
            let (now, then) = (finite(price[t])?, finite(before(&price, t))?);
            let flow = finite(Some(now * finite(x[3][t])?))?;
            // Prices no further apart are equal to TA-Lib.
            let least = EPSILON * (now.abs() + then.abs());
            Some((if now - then > least { flow } else { 0.0 }, if then - now > least { flow } else { 0.0 }))
        })
        .collect();
    each(price.len(), |t| {
        let first = (t + 1).checked_sub(n)?;
        let w: Option<Vec<(f64, f64)>> = flows[first..=t].iter().copied().collect();
        let w = w?;
        let (positive, negative) = (w.iter().map(|f| f.0).sum::<f64>(), w.iter().map(|f| f.1).sum::<f64>());
        let total = positive + negative;
        Some(if total == 0.0 { 0.0 } else { 100.0 * positive / total })
    })
}

fn on_balance(close: &[Value], volume: &[Value]) -> Vec<Value> {
    let (mut total, mut last) = (0.0, None);
    each(close.len(), |t| {
        let (close, volume) = (finite(close[t])?, finite(volume[t])?);
        total += match last {
            Some(last) if close < last => -volume,
            Some(last) if close == last => 0.0,
            _ => volume,
        };
        last = Some(close);
        Some(total)
    })
}

fn engulfing(prices: &[Vec<Value>]) -> Vec<Value> {
    let (open, close) = (&prices[0], &prices[3]);
    each(open.len(), |t| {
        // TA-Lib looks back two bars though it reads only one of them; no price of the three may be missing.
        for price in prices {
            window(price, t, 3)?;
        }
        let (open, close, was_open, was_close) = (open[t]?, close[t]?, before(open, t)?, before(close, t)?);
        let (white, was_white) = (close >= open, was_close >= was_open);
        let encloses = |top: f64, bottom: f64, was_top: f64, was_bottom: f64| {
            (top >= was_top && bottom < was_bottom) || (top > was_top && bottom <= was_bottom)
        };
        let strength = if open == was_close || close == was_open { 80.0 } else { 100.0 };
        Some(if white && !was_white && encloses(close, open, was_open, was_close) {
            strength
        } else if !white && was_white && encloses(open, close, was_close, was_open) {
            -strength
        } else {
            0.0
        })
    })
}

fn correl(x: &[Value], y: &[Value], n: usize, by_sums: bool) -> Vec<Value> {
    each(x.len(), |t| {
        let (x, y) = (window(x, t, n)?, window(y, t, n)?);
        if by_sums && !flat(&x) && !flat(&y) {
            let (x, y): (Vec<f64>, Vec<f64>) = (0..n).map(|i| (x[i] - x[0], y[i] - y[0])).unzip();
            let sum = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
            let about =
                |a: &[f64], b: &[f64]| n as f64 * sum(&|i| a[i] * b[i]) - a.iter().sum::<f64>() * b.iter().sum::<f64>();
            return Some(about(&x, &y) / (about(&x, &x) * about(&y, &y)).sqrt());
        }
        let (mx, my) = (mean(&x), mean(&y));
        let sum = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
        let (xx, yy) = (sum(&|i| (x[i] - mx).powi(2)), sum(&|i| (y[i] - my).powi(2)));
        let xy = sum(&|i| (x[i] - mx) * (y[i] - my));
        Some(if flat(&x) || flat(&y) { 0.0 } else { xy / (xx * yy).sqrt() })
    })
}

fn crosses(a: &[Value], b: &[Value]) -> Vec<Value> {
    each(a.len(), |t| {
        let (a, b, was_a, was_b) = (finite(a[t])?, finite(b[t])?, finite(before(a, t))?, finite(before(b, t))?);
        Some(f64::from(u8::from(a > b && was_a <= was_b)))
    })
}

/// Kleene's `and` over the last n bars; a bar before the first is NA.
fn all_of(c: &[Value], t: usize, n: usize) -> Value {
    let last: Vec<Value> = (0..n).map(|back| t.checked_sub(back).and_then(|at| c[at])).collect();
    if last.contains(&Some(0.0)) {
        Some(0.0)
    } else if last.contains(&None) {
        None
    } else {
        Some(1.0)
    }
}

/// How many bars ago `c` was last true; NA if never, or if an NA comes first.
fn bars_since(c: &[Value], t: usize) -> Option<usize> {
    let back = (0..=t).find(|back| c[t - back] != Some(0.0))?;
    c[t - back].map(|_| back)
}

/// Half to even.
fn round(x: f64) -> f64 {
    let below = x.floor();
    match x - below {
        rest if rest < 0.5 => below,
        rest if rest > 0.5 => below + 1.0,
        _ if (below / 2.0).fract() == 0.0 => below,
        _ => below + 1.0,
    }
}

/// `pow` where it is defined.
fn power(a: f64, b: f64) -> Value {
    if (a == 0.0 && b < 0.0) || (a < 0.0 && a.is_finite() && b.is_finite() && b.fract() != 0.0) {
        return None;
    }
    known(a.powf(b))
}

/// One output of a function: `x` its series in the order of its signature, `params` in order, `averages` the names of
/// its moving averages.
///
/// # Panics
/// On a function that the reference does not have.
pub fn function(
    name: &str,
    x: &[Vec<Value>],
    params: &[f64],
    averages: &[&str],
    field: &str,
    noise: &dyn Noise,
) -> Vec<Value> {
    let bars = x[0].len();
    // What is summed or subtracted inside is disturbed too; functions that decide on equal inputs get them as they are.
    let smooth = [
        "sma",
        "ema",
        "wma",
        "kama",
        "rsi",
        "macd",
        "bbands",
        "atr",
        "adx",
        "stoch",
        "cci",
        "stddev",
        "zscore",
        "alma",
        "chandelier",
        "squeeze",
    ];
    let disturbed: Vec<Vec<Value>>;
    let x = if smooth.contains(&name) || name == "correl" {
        let each = |series: &Vec<Value>| series.iter().map(|v| v.map(|v| noise.round(v))).collect();
        disturbed = x.iter().map(each).collect();
        &disturbed
    } else {
        x
    };
    let counts: Vec<usize> = params.iter().map(|p| *p as usize).collect();
    let n = counts.first().copied().unwrap_or(0);
    let noisy = |series: Vec<Value>| series.into_iter().map(|v| v.map(|v| noise.round(v))).collect();
    let one = |f: fn(f64) -> Value| pointwise([&x[0]], |[x]| f(x));
    let result = match name {
        "sma" | "ema" | "wma" | "kama" => average(name, &x[0], n),
        "rsi" => rsi(&x[0], n),
        "macd" => macd(&x[0], counts[0], counts[1], counts[2], field),
        "bbands" => {
            let middle = average(averages[0], &x[0], n);
            let spread = over_windows(&x[0], n, |w| Some(deviation(w)));
            let side = match field {
                "upper" | "upperband" => params[1],
                "lower" | "lowerband" => -params[2],
                _ => 0.0,
            };
            pointwise([&middle, &spread], |[middle, spread]| Some(middle + side * spread))
        }
        "atr" => wilder(&true_range(&x[0], &x[1], &x[2]), n),
        "adx" => adx(x, n),
        "stoch" => stoch(x, &counts, averages, field),
        "cci" => over_windows(&typical(x), n, |w| {
            let above = noise.round(w[n - 1]) - noise.round(mean(w));
            // Whether a flat window's deviation is 0 or one rounding error depends on how its mean is summed.
            let w: Vec<f64> = w.iter().map(|x| noise.round(*x)).collect();
            if flat(&w) {
                return Some(0.0);
            }
            let middle = mean(&w);
            let apart = w.iter().map(|x| (x - middle).abs()).sum::<f64>() / n as f64;
            Some(if apart <= EPSILON * middle.abs() { 0.0 } else { above / (0.015 * apart) })
        }),
        "mfi" => mfi(x, n),
        "roc" => each(bars, |t| {
            let (now, then) = (finite(x[0][t])?, finite(x[0][t.checked_sub(n)?])?);
            known(if then == 0.0 { 0.0 } else { 100.0 * (noise.round(now / then) - 1.0) })
        }),
        "stddev" => over_windows(&x[0], n, |w| Some(params[1] * deviation(w))),
        "alma" => {
            let (middle, width) = (params[1] * (n as f64 - 1.0), n as f64 / params[2]);
            let weights: Vec<f64> = (0..n).map(|i| (-((i as f64 - middle) / width).powi(2) / 2.0).exp()).collect();
            let weight: f64 = weights.iter().sum();
            over_windows(&x[0], n, |w| Some(w.iter().zip(&weights).map(|(x, weight)| x * weight).sum::<f64>() / weight))
        }
        "median" => over_windows(&x[0], n, |w| {
            let mut sorted = w.to_vec();
            sorted.sort_by(f64::total_cmp);
            Some(mean(&sorted[(n - 1) / 2..=n / 2]))
        }),
        "max" | "highest" => return over_windows(&x[0], n, |w| Some(w.iter().copied().fold(w[0], f64::max))),
        "min" | "lowest" => return over_windows(&x[0], n, |w| Some(w.iter().copied().fold(w[0], f64::min))),
        "donchian" => {
            let upper = over_windows(&x[0], n, |w| Some(w.iter().copied().fold(w[0], f64::max)));
            let lower = over_windows(&x[1], n, |w| Some(w.iter().copied().fold(w[0], f64::min)));
            match field {
                "upper" | "upperband" => upper,
                "lower" | "lowerband" => lower,
                _ => pointwise([&upper, &lower], |[upper, lower]| Some((upper + lower) / 2.0)),
            }
        }
        "ichimoku" => {
            let middle = |n: usize| {
                let upper = over_windows(&x[0], n, |w| Some(w.iter().copied().fold(w[0], f64::max)));
                let lower = over_windows(&x[1], n, |w| Some(w.iter().copied().fold(w[0], f64::min)));
                pointwise([&upper, &lower], |[upper, lower]| Some((upper + lower) / 2.0))
            };
            let (conversion, base, span) = (middle(counts[0]), middle(counts[1]), middle(counts[2]));
            let lead = pointwise([&conversion, &base], |[conversion, base]| Some((conversion + base) / 2.0));
            // What was drawn ahead to this bar.
            let drawn = |x: &[Value]| each(bars, |t| x[(t + 1).checked_sub(counts[3])?]);
            match field {
                "conversion" | "tenkan" => conversion,
                "base" | "kijun" => base,
                "lead_a" => lead,
                "lead_b" => span,
                "span_a" | "senkou_a" => drawn(&lead),
                _ => drawn(&span),
            }
        }
        "chandelier" => {
            let range = wilder(&true_range(&x[0], &x[1], &x[2]), n);
            let short = field == "short";
            let extreme = over_windows(&x[usize::from(short)], n, |w| {
                Some(w.iter().copied().fold(w[0], if short { f64::min } else { f64::max }))
            });
            let side = if short { params[1] } else { -params[1] };
            pointwise([&extreme, &range], |[extreme, range]| Some(extreme + side * range))
        }
        "crsi" => {
            // Bars in a row at which it was above the bar before, or below it.
            let streak = |broken: fn(f64, f64) -> bool| {
                let ends = each(bars, |t| {
                    let (now, then) = (finite(x[0][t])?, finite(before(&x[0], t).or(x[0][t]))?);
                    Some(f64::from(u8::from(broken(now, then))))
                });
                each(bars, |t| bars_since(&ends, t).map(|back| back as f64))
            };
            let (up, down) = (streak(|now, then| now <= then), streak(|now, then| now >= then));
            let signed = pointwise([&up, &down], |[up, down]| Some(up - down));
            let change = each(bars, |t| {
                let (now, then) = (finite(x[0][t])?, finite(before(&x[0], t))?);
                // As in `roc`: which of two changes is the greater may be decided by rounding.
                known(if then == 0.0 { 0.0 } else { 100.0 * (noise.round(now / then) - 1.0) })
            });
            let rank = each(bars, |t| {
                let w = window(&change, t, counts[2] + 1)?;
                let (earlier, now) = (&w[..counts[2]], w[counts[2]]);
                Some(earlier.iter().filter(|v| **v < now).count() as f64 / counts[2] as f64 * 100.0)
            });
            let noisy_price: Vec<Value> = x[0].iter().map(|v| v.map(|v| noise.round(v))).collect();
            let strengths = [&rsi(&noisy_price, n)[..], &rsi(&signed, counts[1]), &rank];
            pointwise(strengths, |[price, streak, rank]| Some((price + streak + rank) / 3.0))
        }
        "squeeze" if field != "momentum" => {
            let range = over_windows(&true_range(&x[0], &x[1], &x[2]), n, |w| Some(mean(w)));
            let spread = over_windows(&x[2], n, |w| Some(deviation(w)));
            let on = pointwise([&spread, &range], |[spread, range]| {
                let (band, channel) = (finite(Some(params[1] * spread))?, finite(Some(params[2] * range))?);
                Some(f64::from(u8::from(noise.round(band) < noise.round(channel))))
            });
            if field == "on" {
                return on;
            }
            let off = |t: usize| on[t].map(|on| 1.0 - on);
            return each(bars, |t| match [before(&on, t), off(t)] {
                [Some(0.0), _] | [_, Some(0.0)] => Some(0.0),
                [Some(_), Some(_)] => Some(1.0),
                _ => None,
            });
        }
        "squeeze" => {
            let upper = over_windows(&x[0], n, |w| Some(w.iter().copied().fold(w[0], f64::max)));
            let lower = over_windows(&x[1], n, |w| Some(w.iter().copied().fold(w[0], f64::min)));
            let mean_close = over_windows(&x[2], n, |w| Some(mean(w)));
            let above = pointwise([&x[2], &upper, &lower, &mean_close], |[close, upper, lower, mean]| {
                Some(noise.round(close - ((upper + lower) / 2.0 + mean) / 2.0))
            });
            over_windows(&above, n, |w| {
                let (center, about) = ((n as f64 - 1.0) / 2.0, mean(w));
                let apart = |i: usize| i as f64 - center;
                let slope = w.iter().enumerate().map(|(i, x)| apart(i) * (x - about)).sum::<f64>()
                    / (0..n).map(|i| apart(i).powi(2)).sum::<f64>();
                Some(about + slope * center)
            })
        }
        "obv" => on_balance(&x[0], &x[1]),
        "vwap" => {
            let price = typical(x);
            let (mut worth, mut traded) = (0.0, 0.0);
            each(bars, |t| {
                let (price, volume) = (finite(price[t])?, finite(x[3][t])?);
                worth += price * volume;
                traded += volume;
                // TA-Lib: 0 until something is traded.
                Some(if traded == 0.0 { 0.0 } else { worth / traded })
            })
        }
        "cdlengulfing" => return engulfing(x),
        "crosses_above" => return crosses(&x[0], &x[1]),
        "crosses_below" => return crosses(&x[1], &x[0]),
        "within" => {
            let not: Vec<Value> = x[0].iter().map(|c| c.map(|c| 1.0 - c)).collect();
            return each(bars, |t| all_of(&not, t, n).map(|c| 1.0 - c));
        }
        "streak" => return each(bars, |t| all_of(&x[0], t, n)),
        "count" => return over_windows(&x[0], n, |w| Some(w.iter().sum())),
        "since" => return each(bars, |t| bars_since(&x[0], t).map(|back| back as f64)),
        "valuewhen" => {
            return each(bars, |t| {
                let mut at = t - bars_since(&x[0], t)?;
                for _ in 1..n {
                    at = at.checked_sub(1)?;
                    at -= bars_since(&x[0], at)?;
                }
                x[1][at]
            });
        }
        "highest_since" | "lowest_since" => {
            return each(bars, |t| {
                let since = t - bars_since(&x[1], t)?;
                let defined = x[0][since..=t].iter().filter_map(|x| finite(*x));
                if name == "highest_since" { defined.reduce(f64::max) } else { defined.reduce(f64::min) }
            });
        }
        "iff" => {
            return each(bars, |t| match x[0][t]? {
                1.0 => x[1][t],
                _ => x[2][t],
            });
        }
        "nz" => return each(bars, |t| x[0][t].or(Some(params[0]))),
        "zscore" => over_windows(&x[0], n, |w| {
            let deviation = deviation(w);
            // As the mean of differences, which is 0 exactly where the value is the mean.
            let last = w[n - 1];
            let above = (noise.round(last) - last) + (last - mean(w));
            (deviation != 0.0).then(|| above / deviation)
        }),
        "percentrank" => {
            return each(bars, |t| {
                let w = window(&x[0], t, n + 1)?;
                let below = w[..n].iter().filter(|v| **v < w[n]).count();
                Some(below as f64 / n as f64 * 100.0)
            });
        }
        "correl" => correl(&x[0], &x[1], n, noise.by_sums()),
        "abs" => return one(|x| Some(x.abs())),
        "sqrt" => one(|x| (x >= 0.0).then(|| x.sqrt())),
        "log" => one(|x| (x > 0.0).then(|| x.ln())),
        "exp" => one(|x| Some(x.exp())),
        "sign" => {
            return one(|x| {
                Some(if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    0.0
                })
            });
        }
        "round" => return one(|x| Some(if x.is_finite() { round(x) } else { x })),
        "maximum" => return pointwise([&x[0], &x[1]], |[a, b]| Some(a.max(b))),
        "minimum" => return pointwise([&x[0], &x[1]], |[a, b]| Some(a.min(b))),
        "pow" => pointwise([&x[0], &x[1]], |[a, b]| power(a, b)),
        "clamp" => return pointwise([&x[0], &x[1], &x[2]], |[x, low, high]| Some(x.max(low).min(high))),
        other => unreachable!("the reference has no function {other}"),
    };
    noisy(result)
}

/// `a op b` for the operators of arithmetic; NA where undefined.
pub fn arithmetic(op: super::expression::Arithmetic, a: Value, b: Value) -> Value {
    use super::expression::Arithmetic::{Add, Divide, Multiply, Remainder, Subtract};
    let (a, b) = (a?, b?);
    known(match op {
        Add => a + b,
        Subtract => a - b,
        Multiply => a * b,
        Divide | Remainder if b == 0.0 => f64::NAN,
        Divide => a / b,
        Remainder => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
    })
}
