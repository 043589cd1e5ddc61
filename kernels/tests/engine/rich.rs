//! The oracle's definitions of the recurrences with much state: whole series of the defined bars, indexed by bar, as the
//! books write them.

use trawl_plan::family::{Acceleration, Cycle, Mesa, Parabolic, SuperTrend};

/// Applies `f` to the bars where every input is defined, one list an input; NA elsewhere.
pub fn over_defined(inputs: &[&[f64]], bars: usize, f: impl FnOnce(&[Vec<f64>]) -> Vec<f64>) -> Vec<f64> {
    let kept: Vec<usize> = (0..bars).filter(|t| inputs.iter().all(|x| x[*t].is_finite())).collect();
    let lists: Vec<Vec<f64>> = inputs.iter().map(|x| kept.iter().map(|t| x[*t]).collect()).collect();
    let mut out = vec![f64::NAN; bars];
    for (t, value) in kept.iter().zip(f(&lists)) {
        out[*t] = value;
    }
    out
}

/// Every series of the transform, 0 before `first`.
struct Transform {
    smooth: Vec<f64>,
    in_phase: Vec<f64>,
    quadrature: Vec<f64>,
    period: Vec<f64>,
}

/// Four-bar weighted means, with the rounding of TA-Lib's running sum: it decides where prices stand still.
fn smooth(x: &[f64]) -> Vec<f64> {
    let (mut sum, mut weighted) = (0.0, 0.0);
    let mut out = vec![0.0; x.len()];
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

fn transform(x: &[f64], first: usize) -> Transform {
    let n = x.len();
    let mut smooth = smooth(x);
    smooth[..first.min(n)].fill(0.0);
    let zeros = || vec![0.0; n];
    let (mut detrended, mut in_phase, mut quadrature) = (zeros(), zeros(), zeros());
    let (mut i2, mut q2, mut re, mut im, mut period) = (zeros(), zeros(), zeros(), zeros(), zeros());
    let at = |s: &[f64], t: usize, back: usize| if t >= back { s[t - back] } else { 0.0 };
    let hilbert = |s: &[f64], t: usize, gain: f64| {
        (0.0962 * s[t] - 0.0962 * at(s, t, 6) - 0.5769 * at(s, t, 4) + 0.5769 * at(s, t, 2)) * gain
    };
    for t in first..n {
        let before = at(&period, t, 1);
        let gain = 0.075 * before + 0.54;
        detrended[t] = hilbert(&smooth, t, gain);
        quadrature[t] = hilbert(&detrended, t, gain);
        in_phase[t] = at(&detrended, t, 3);
        let (ji, jq) = (hilbert(&in_phase, t, gain), hilbert(&quadrature, t, gain));
        let (i_before, q_before) = (at(&i2, t, 1), at(&q2, t, 1));
        i2[t] = 0.2 * (in_phase[t] - jq) + 0.8 * i_before;
        q2[t] = 0.2 * (quadrature[t] + ji) + 0.8 * q_before;
        re[t] = 0.2 * (i2[t] * i_before + q2[t] * q_before) + 0.8 * at(&re, t, 1);
        im[t] = 0.2 * (i2[t] * q_before - q2[t] * i_before) + 0.8 * at(&im, t, 1);
        let raw = match (im[t], re[t]) {
            (i, r) if i == 0.0 || r == 0.0 => before,
            (i, r) => 360.0 / (libm::atan(i / r) * (45.0 / libm::atan(1.0))),
        };
        // No further than so much from the period before, whatever that is.
        let risen = if raw > 1.5 * before { 1.5 * before } else { raw };
        let held = if risen < 0.67 * before { 0.67 * before } else { risen }.clamp(6.0, 50.0);
        period[t] = 0.2 * held + 0.8 * before;
    }
    Transform { smooth, in_phase, quadrature, period }
}

pub fn cycle(result: Cycle, x: &[f64]) -> Vec<f64> {
    let early = matches!(result, Cycle::Period | Cycle::InPhase | Cycle::Quadrature);
    let (first, look_back) = if early { (12, 32) } else { (37, 63) };
    let all = transform(x, first);
    let n = x.len();
    let degree = 45.0 / libm::atan(1.0);
    let mut period = vec![0.0; n];
    for t in first..n {
        period[t] = 0.33 * all.period[t] + 0.67 * period[t - 1];
    }
    let bars: Vec<usize> = period.iter().map(|p| (p + 0.5) as usize).collect();
    let back = |s: &[f64], t: usize, bars: usize| -> Vec<f64> { (0..bars).map(|i| s[t - i]).collect() };
    let mut phase = vec![0.0; n];
    let mut mean = vec![0.0; n];
    let mut line = vec![0.0; n];
    for t in first..n {
        let window = back(&all.smooth, t, bars[t].min(t + 1));
        let angle = |i: usize| (i as f64 * (libm::atan(1.0) * 8.0)) / bars[t] as f64;
        let real: f64 = window.iter().enumerate().fold(0.0, |s, (i, x)| s + libm::sin(angle(i)) * x);
        let imaginary: f64 = window.iter().enumerate().fold(0.0, |s, (i, x)| s + libm::cos(angle(i)) * x);
        let quarter = if real == 0.0 { 0.0 } else { 90f64.copysign(real) };
        let turned = if imaginary == 0.0 { phase[t - 1] + quarter } else { libm::atan(real / imaginary) * degree };
        let turned = turned + 90.0 + 360.0 / period[t] + if imaginary < 0.0 { 180.0 } else { 0.0 };
        phase[t] = if turned > 315.0 { turned - 360.0 } else { turned };
        let prices = back(x, t, bars[t].min(t + 1));
        mean[t] = prices.iter().fold(0.0, |s, x| s + x) / prices.len().max(1) as f64;
        line[t] = (4.0 * mean[t] + 3.0 * mean[t - 1] + 2.0 * mean[t - 2] + mean[t - 3]) / 10.0;
    }
    let sine = |t: usize, ahead: f64| if t < first { 0.0 } else { libm::sin((phase[t] + ahead) * (1.0 / degree)) };
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
                return 0.0;
            }
            let (now, then) = (sine(t, 0.0) - sine(t, 45.0), sine(t - 1, 0.0) - sine(t - 1, 45.0));
            let crosses = (now > 0.0 && then <= 0.0) || (now < 0.0 && then >= 0.0);
            if crosses {
                crossed = Some(t);
            }
            let days = (t + 1 - crossed.unwrap_or(first)) as f64;
            let rate = (phase[t] - phase[t - 1]) * period[t] / 360.0;
            let cycles = crosses || days < 0.5 * period[t] || (rate > 0.67 && rate < 1.5);
            let far = line[t] != 0.0 && ((all.smooth[t] - line[t]) / line[t]).abs() >= 0.015;
            f64::from(u8::from(far || !cycles))
        }
    });
    values.enumerate().map(|(t, value)| if t < look_back { f64::NAN } else { value }).collect()
}

pub fn mesa(fast: f64, slow: f64, result: Mesa, x: &[f64]) -> Vec<f64> {
    let all = transform(x, 12);
    let phase = |t: usize| match all.in_phase[t] {
        0.0 => 0.0,
        i => libm::atan(all.quadrature[t] / i) * (45.0 / libm::atan(1.0)),
    };
    let (mut mama, mut fama) = (0.0, 0.0);
    (0..x.len())
        .map(|t| {
            if t < 12 {
                return f64::NAN;
            }
            let fall = phase(t - 1) - phase(t);
            let a = if fall > 1.0 { f64::max(fast / fall, slow) } else { fast };
            mama = a * x[t] + (1.0 - a) * mama;
            fama = a * 0.5 * mama + (1.0 - a * 0.5) * fama;
            match result {
                _ if t < 32 => f64::NAN,
                Mesa::Mama => mama,
                Mesa::Fama => fama,
            }
        })
        .collect()
}

/// Wilder's rules, long and short written out.
pub fn parabolic(p: Parabolic, high: &[f64], low: &[f64]) -> Vec<f64> {
    let mut out = vec![f64::NAN; high.len()];
    if high.len() < 2 {
        return out;
    }
    let limits = |a: Acceleration| {
        let most = a.most.value();
        (f64::min(a.start.value(), most), f64::min(a.step.value(), most), most)
    };
    let down = low[0] - low[1];
    let mut long = match p.start.value() {
        0.0 => !(down > 0.0 && down > high[1] - high[0]),
        start => start > 0.0,
    };
    let mut stop = match (p.start.value(), long) {
        (0.0, true) => low[0],
        (0.0, false) => high[0],
        (start, _) => start.abs(),
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
            stop += p.offset.value() * if long { -stop } else { stop };
            extreme = if long { high[t] } else { low[t] };
            af = limits(if long { p.long } else { p.short }).0;
            out[t] = stop;
        } else {
            out[t] = stop;
            if (long && high[t] > extreme) || (!long && low[t] < extreme) {
                extreme = if long { high[t] } else { low[t] };
                let (_, step, most) = limits(if long { p.long } else { p.short });
                af = f64::min(af + step, most);
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

pub fn super_trend(result: SuperTrend, upper: &[f64], lower: &[f64], close: &[f64]) -> Vec<f64> {
    let mut out = Vec::new();
    let (mut top, mut bottom, mut trend) = (Vec::new(), Vec::new(), Vec::new());
    for t in 0..close.len() {
        if t == 0 {
            (top, bottom, trend) = (vec![upper[0]], vec![lower[0]], vec![1.0]);
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

pub fn heikin_ashi(open: &[f64], close: &[f64], mean: &[f64]) -> Vec<f64> {
    let mut out: Vec<f64> = Vec::new();
    for t in 0..open.len() {
        out.push(if t == 0 { 0.5 * (open[0] + close[0]) } else { 0.5 * (out[t - 1] + mean[t - 1]) });
    }
    out
}
