//! Momentum and volatility.

use super::oscillators::{MACD, with_signal};
use super::*;

const MOMENTUM: &str = "Momentum indicators";
const VOLATILITY: &str = "Volatility indicators";

pub(super) const LIST: &[Function] = &[
    declare("rsi", MOMENTUM)
        .summary("relative strength index, 0 to 100")
        .formula("100*g/(g + l), g and l being Wilder's means of the gains and of the losses; 0 when both are 0")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Strength])
        .number(|f| f.x().relative_strength(f.bars(0))),
    declare("macd", MOMENTUM)
        .summary("moving average convergence/divergence")
        .formula(
            "macd = ema(fast) - ema(slow), both seeded at the slow one's first bar; macdsignal = ema(macd, \
             signal); macdhist = macd - macdsignal; all three start together",
        )
        .series(&[REAL])
        .params(&[bars("fastperiod", 12, 2), bars("slowperiod", 26, 2), bars("signalperiod", 9, 1)])
        .outputs(MACD)
        .fused(&[Fused::Convergence])
        .numbers(|f| {
            let (x, fast, slow) = (f.x(), f.bars(0).min(f.bars(1)), f.bars(0).max(f.bars(1)));
            let line = x.step(Op::Ema { p: fast, delay: slow - fast }) - x.ema(slow);
            // A step even over one bar: the fused group has it.
            let signal = line.step(Op::Ema { p: f.bars(2), delay: 0 });
            with_signal(line, signal)
        }),
    declare("cci", MOMENTUM)
        .summary("commodity channel index")
        .formula(
            "(t - sma(t))/(0.015 * mean of |t - sma(t)|), t = (high + low + close)/3; 0 where the deviation \
             is below 1e-14 of the mean",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::SumOver, Fused::ZScore])
        .number(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let t = typical(high, low, close);
            let mean = t.mean(p);
            let deviation = t.mean_deviation(p, mean);
            let index = (t - mean).ratio_or_zero(0.015 * deviation);
            // What is left of a flat window's deviation is rounding.
            deviation.above(TALIB_EPSILON * mean.abs()).choose(index, 0.0)
        }),
    declare("mfi", MOMENTUM)
        .summary("money flow index, 0 to 100: an RSI weighted by volume")
        .formula(
            "100*p/(p + n), p and n being the sums of t*volume on bars where t = (high + low + close)/3 rose \
             or fell by more than 2e-14 of it; 0 where both are 0",
        )
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::SumOver, Fused::Flows, Fused::Share])
        .number(|f| {
            let ([high, low, close, volume], p) = (f.series(), f.bars(0));
            let t = typical(high, low, close);
            let (before, flow) = (t.lag(1), t * volume);
            let [positive, negative] = [t - before, before - t].map(|moved| {
                let part = moved.beyond_rounding(t, before).choose(flow, 0.0);
                // A bar without volume is NA even where the price did not move.
                part.where_finite(flow).sum(p)
            });
            100.0 * positive.ratio_or_zero(positive + negative)
        }),
    declare("atr", VOLATILITY)
        .summary("average true range")
        .formula("Wilder's mean of max(high - low, |high - close[1]|, |low - close[1]|)")
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(14, 1)])
        .fused(&[Fused::AverageRange])
        .number(|f| {
            let [high, low, close] = f.series();
            true_range(high, low, close).wilder(f.bars(0))
        }),
];
