//! The oracle's definitions of the recurrences with much state: whole series of the defined bars, indexed by bar, as in
//! the literature.

use trawl_plan::family::{Acceleration, Cycle, Mesa, Parabolic, SuperTrend};

use super::number::Number;

/// Applies `f` to the bars where every input is defined, one list an input; NA elsewhere.
pub fn over_defined<N: Number>(inputs: &[&[N]], bars: usize, f: impl FnOnce(&[Vec<N>]) -> Vec<N>) -> Vec<N> {
    let kept: Vec<usize> = (0..bars).filter(|t| inputs.iter().all(|x| x[*t].is_finite())).collect();
    let lists: Vec<Vec<N>> = inputs.iter().map(|x| kept.iter().map(|t| x[*t]).collect()).collect();
    let mut out = vec![N::NAN; bars];
    for (t, value) in kept.iter().zip(f(&lists)) {
        out[*t] = value;
    }
    out
}

/// Every series of the transform, 0 before `first`.
struct Transform<N> {
    smooth: Vec<N>,
    in_phase: Vec<N>,
    quadrature: Vec<N>,
    period: Vec<N>,
}

/// Four-bar weighted means, with the rounding of TA-Lib's running sum: it matters where prices are constant.
fn smooth<N: Number>(x: &[N]) -> Vec<N> {
    let (mut sum, mut weighted) = (N::ZERO, N::ZERO);
    let mut out = vec![N::ZERO; x.len()];
    for t in 0..x.len() {
        sum += x[t];
        if t >= 4 {
            sum -= x[t - 4];
        }
        weighted += x[t] * [1.0, 2.0, 3.0, 4.0][t.min(3)];
        if t >= 3 {
            out[t] = weighted * 0.1;
            weighted -= sum;
        }
    }
    out
}

fn transform<N: Number>(x: &[N], first: usize) -> Transform<N> {
    let n = x.len();
    let mut smooth = smooth(x);
    smooth[..first.min(n)].fill(N::ZERO);
    let zeros = || vec![N::ZERO; n];
    let (mut detrended, mut in_phase, mut quadrature) = (zeros(), zeros(), zeros());
    let (mut i2, mut q2, mut re, mut im, mut period) = (zeros(), zeros(), zeros(), zeros(), zeros());
    let at = |s: &[N], t: usize, back: usize| if t >= back { s[t - back] } else { N::ZERO };
    let hilbert = |s: &[N], t: usize, gain: N| {
        (s[t] * 0.0962 - at(s, t, 6) * 0.0962 - at(s, t, 4) * 0.5769 + at(s, t, 2) * 0.5769) * gain
    };
    let degree = degree::<N>();
    for t in first..n {
        let before = at(&period, t, 1);
        let gain = before * 0.075 + 0.54;
        detrended[t] = hilbert(&smooth, t, gain);
        quadrature[t] = hilbert(&detrended, t, gain);
        in_phase[t] = at(&detrended, t, 3);
        let (ji, jq) = (hilbert(&in_phase, t, gain), hilbert(&quadrature, t, gain));
        let (i_before, q_before) = (at(&i2, t, 1), at(&q2, t, 1));
        i2[t] = (in_phase[t] - jq) * 0.2 + i_before * 0.8;
        q2[t] = (quadrature[t] + ji) * 0.2 + q_before * 0.8;
        re[t] = (i2[t] * i_before + q2[t] * q_before) * 0.2 + at(&re, t, 1) * 0.8;
        im[t] = (i2[t] * q_before - q2[t] * i_before) * 0.2 + at(&im, t, 1) * 0.8;
        let raw = match (im[t], re[t]) {
            (i, r) if i == 0.0 || r == 0.0 => before,
            (i, r) => N::of(360.0) / ((i / r).atan() * degree),
        };
        let held = raw.min(before * 1.5).max(before * 0.67).max(N::of(6.0)).min(N::of(50.0));
        period[t] = held * 0.2 + before * 0.8;
    }
    Transform { smooth, in_phase, quadrature, period }
}

/// Degrees of one radian.
fn degree<N: Number>() -> N {
    N::of(45.0) / N::of(1.0).atan()
}

pub fn cycle<N: Number>(result: Cycle, x: &[N]) -> Vec<N> {
    let early = matches!(result, Cycle::Period | Cycle::InPhase | Cycle::Quadrature);
    let (first, look_back) = if early { (12, 32) } else { (37, 63) };
    let all = transform(x, first);
    let n = x.len();
    let degree = degree::<N>();
    let mut period = vec![N::ZERO; n];
    for t in first..n {
        period[t] = all.period[t] * 0.33 + period[t - 1] * 0.67;
    }
    let bars: Vec<usize> = period.iter().map(|p| (*p + 0.5).value() as usize).collect();
    let back = |s: &[N], t: usize, bars: usize| -> Vec<N> { (0..bars).map(|i| s[t - i]).collect() };
    let mut phase = vec![N::ZERO; n];
    let mut mean = vec![N::ZERO; n];
    let mut line = vec![N::ZERO; n];
    for t in first..n {
        let window = back(&all.smooth, t, bars[t].min(t + 1));
        let angle = |i: usize| N::of(1.0).atan() * 8.0 * i as f64 / bars[t] as f64;
        let real = window.iter().enumerate().fold(N::ZERO, |s, (i, x)| s + angle(i).sin() * *x);
        let imaginary = window.iter().enumerate().fold(N::ZERO, |s, (i, x)| s + angle(i).cos() * *x);
        let quarter = if real == 0.0 { 0.0 } else { 90f64.copysign(real.value()) };
        let turned = if imaginary == 0.0 { phase[t - 1] + quarter } else { (real / imaginary).atan() * degree };
        let turned = turned + 90.0 + N::of(360.0) / period[t] + if imaginary < 0.0 { 180.0 } else { 0.0 };
        phase[t] = if turned > 315.0 { turned - 360.0 } else { turned };
        let prices = back(x, t, bars[t].min(t + 1));
        mean[t] = prices.iter().fold(N::ZERO, |s, x| s + *x) / prices.len().max(1) as f64;
        line[t] = (mean[t] * 4.0 + mean[t - 1] * 3.0 + mean[t - 2] * 2.0 + mean[t - 3]) / 10.0;
    }
    let radians = N::of(1.0) / degree;
    let sine = |t: usize, ahead: f64| if t < first { N::ZERO } else { ((phase[t] + ahead) * radians).sin() };
    let mut crossed = None;
    let values = (0..n).map(|t| match result {
        Cycle::Period => period[t],
        Cycle::InPhase => all.in_phase[t],
        Cycle::Quadrature => all.quadrature[t],
        Cycle::Phase => phase[t],
        Cycle::Sine => sine(t, 0.0),
        Cycle::LeadSine => sine(t, 45.0),
        Cycle::Trendline => line[t],
        Cycle::TrendMode => {
            if t < first {
                return N::ZERO;
            }
            let (now, then) = (sine(t, 0.0) - sine(t, 45.0), sine(t - 1, 0.0) - sine(t - 1, 45.0));
            let crosses = (now > 0.0 && then <= 0.0) || (now < 0.0 && then >= 0.0);
            if crosses {
                crossed = Some(t);
            }
            let days = (t + 1 - crossed.unwrap_or(first)) as f64;
            let rate = (phase[t] - phase[t - 1]) * period[t] / 360.0;
            let cycles = crosses || period[t] * 0.5 > days || (rate > 0.67 && rate < 1.5);
            let far = line[t] != 0.0 && ((all.smooth[t] - line[t]) / line[t]).abs() >= 0.015;
            N::truth(far || !cycles)
        }
    });
    values.enumerate().map(|(t, value)| if t < look_back { N::NAN } else { value }).collect()
}

pub fn mesa<N: Number>(fast: f64, slow: f64, result: Mesa, x: &[N]) -> Vec<N> {
    let all = transform(x, 12);
    let degree = degree::<N>();
    let phase = |t: usize| {
        let i = all.in_phase[t];
        if i == 0.0 { N::ZERO } else { (all.quadrature[t] / i).atan() * degree }
    };
    let (mut mama, mut fama) = (N::ZERO, N::ZERO);
    (0..x.len())
        .map(|t| {
            if t < 12 {
                return N::NAN;
            }
            let fall = phase(t - 1) - phase(t);
            let a = if fall > 1.0 { (N::of(fast) / fall).max(N::of(slow)) } else { N::of(fast) };
            mama = a * x[t] + (N::of(1.0) - a) * mama;
            fama = a * 0.5 * mama + (N::of(1.0) - a * 0.5) * fama;
            match result {
                _ if t < 32 => N::NAN,
                Mesa::Mama => mama,
                Mesa::Fama => fama,
            }
        })
        .collect()
}

/// Wilder's rules, long and short written out.
pub fn parabolic<N: Number>(p: Parabolic, high: &[N], low: &[N]) -> Vec<N> {
    let mut out = vec![N::NAN; high.len()];
    if high.len() < 2 {
        return out;
    }
    let limits = |a: Acceleration| {
        let [start, step, most] = [a.start, a.step, a.most].map(|x| N::of(x.value()));
        (start.min(most), step.min(most), most)
    };
    let down = low[0] - low[1];
    let mut long = match p.start.value() {
        0.0 => !(down > 0.0 && down > high[1] - high[0]),
        start => start > 0.0,
    };
    let mut stop = match (p.start.value(), long) {
        (0.0, true) => low[0],
        (0.0, false) => high[0],
        (start, _) => N::of(start.abs()),
    };
    let mut extreme = if long { high[1] } else { low[1] };
    let mut af = limits(if long { p.long } else { p.short }).0;
    for t in 1..high.len() {
        let before = if t == 1 { 1 } else { t - 1 };
        let (top, bottom) = (high[t].max(high[before]), low[t].min(low[before]));
        let through = if long { low[t] <= stop } else { high[t] >= stop };
        if through {
            long = !long;
            stop = if long { extreme.min(bottom) } else { extreme.max(top) };
            stop += (if long { -stop } else { stop }) * p.offset.value();
            extreme = if long { high[t] } else { low[t] };
            af = limits(if long { p.long } else { p.short }).0;
            out[t] = stop;
        } else {
            out[t] = stop;
            if (long && high[t] > extreme) || (!long && low[t] < extreme) {
                extreme = if long { high[t] } else { low[t] };
                let (_, step, most) = limits(if long { p.long } else { p.short });
                af = (af + step).min(most);
            }
        }
        if p.signed && !long {
            out[t] = -out[t];
        }
        stop += af * (extreme - stop);
        stop = if long { stop.min(bottom) } else { stop.max(top) };
    }
    out
}

pub fn super_trend<N: Number>(result: SuperTrend, upper: &[N], lower: &[N], close: &[N]) -> Vec<N> {
    let mut out = Vec::new();
    let (mut top, mut bottom, mut trend) = (Vec::new(), Vec::new(), Vec::new());
    for t in 0..close.len() {
        if t == 0 {
            (top, bottom, trend) = (vec![upper[0]], vec![lower[0]], vec![N::of(1.0)]);
        } else {
            let free_top = upper[t] < top[t - 1] || close[t - 1] > top[t - 1];
            let free_bottom = lower[t] > bottom[t - 1] || close[t - 1] < bottom[t - 1];
            top.push(if free_top { upper[t] } else { top[t - 1] });
            bottom.push(if free_bottom { lower[t] } else { bottom[t - 1] });
            let turns = if trend[t - 1] > 0.0 { close[t] < bottom[t] } else { close[t] > top[t] };
            trend.push(if turns { -trend[t - 1] } else { trend[t - 1] });
        }
        out.push(match result {
            SuperTrend::Trend => trend[t],
            SuperTrend::Line if trend[t] > 0.0 => bottom[t],
            SuperTrend::Line => top[t],
        });
    }
    out
}

pub fn heikin_ashi<N: Number>(open: &[N], close: &[N], mean: &[N]) -> Vec<N> {
    let mut out: Vec<N> = Vec::new();
    for t in 0..open.len() {
        out.push(if t == 0 { (open[0] + close[0]) * 0.5 } else { (out[t - 1] + mean[t - 1]) * 0.5 });
    }
    out
}
