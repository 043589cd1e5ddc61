//! Stochastics: the place of a value in the range of a window.

use super::*;

const GROUP: &str = "Momentum indicators";

pub(super) const LIST: &[Function] = &[
    Function::new("stoch", GROUP)
        .summary("slow stochastic, 0 to 100")
        .formula(
            "slowk = average of 100*(close - lowest low)/(highest high - lowest low) over fastk_period, 0 \
             where the range is below 1e-14 of its ends' magnitudes; slowd = average of slowk; both start \
             together",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[
            bars("fastk_period", 5, 1),
            bars("slowk_period", 3, 1),
            average("slowk_matype"),
            bars("slowd_period", 3, 1),
            average("slowd_matype"),
        ])
        .outputs(&[output("slowk", &["k"]), output("slowd", &["d"])])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Within])
        .numbers(|f| {
            let [k, d] = slow(f);
            vec![k.where_finite(d), d]
        }),
    Function::new("stochf", GROUP)
        .summary("fast stochastic, 0 to 100")
        .formula(
            "fastk = 100*(close - lowest low)/(highest high - lowest low) over fastk_period, 0 where the \
             range is below 1e-14 of its ends' magnitudes; fastd = average of fastk; both start together",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[bars("fastk_period", 5, 1), bars("fastd_period", 3, 1), average("fastd_matype")])
        .outputs(&[output("fastk", &["k"]), output("fastd", &["d"])])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Within])
        .numbers(|f| {
            let [high, low, close] = f.series();
            let k = place(high, low, close, f.bars(0));
            let d = k.average(f.bars(2), f.bars(1));
            vec![k.where_finite(d), d]
        }),
    Function::new("stochrsi", GROUP)
        .summary("fast stochastic of the relative strength index, 0 to 100")
        .formula("stochf of rsi(timeperiod) in the places of high, low and close")
        .series(&[REAL])
        .params(&[period(14, 2), bars("fastk_period", 5, 1), bars("fastd_period", 3, 1), average("fastd_matype")])
        .outputs(&[output("fastk", &["k"]), output("fastd", &["d"])])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Within, Fused::Strength])
        .numbers(|f| {
            let index = f.x().relative_strength(f.bars(0));
            let k = place(index, index, index, f.bars(1));
            let d = k.average(f.bars(3), f.bars(2));
            vec![k.where_finite(d), d]
        }),
    Function::new("kdj", GROUP)
        .summary("slow stochastic with a third line")
        .formula("k = average of stochf's fastk; d = average of k; j = 3k - 2d; all three start together")
        .series(&[HIGH, LOW, CLOSE])
        .params(&[
            bars("fastk_period", 9, 1),
            bars("slowk_period", 3, 1),
            average_or("slowk_matype", RMA),
            bars("slowd_period", 3, 1),
            average_or("slowd_matype", RMA),
        ])
        .outputs(&[output("k", &["slowk"]), output("d", &["slowd"]), output("j", &[])])
        .scaling(Scaling::PURE)
        .fused(&[Fused::MinusScaled, Fused::Within])
        .numbers(|f| {
            let [k, d] = slow(f);
            let k = k.where_finite(d);
            vec![k, d, 3.0 * k - 2.0 * d]
        }),
    Function::new("willr", GROUP)
        .summary("Williams' %R, -100 to 0")
        .formula(
            "-100*(highest high - close)/(highest high - lowest low); 0 where the range is below 1e-14 of its \
             ends' magnitudes",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let (highest, lowest) = (high.highest(p), low.lowest(p));
            share_of_range(close - highest, highest, lowest)
        }),
    Function::new("smi", GROUP)
        .summary("Blau's stochastic momentum index")
        .formula(
            "smi = 200*m/r; m the exponential mean over fastperiod of that over slowperiod of close - \
             (highest high + lowest low)/2, r the same of highest high - lowest low, both over timeperiod; 0 \
             where r is 0; smisignal = exponential mean of smi; both start together",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[
            bars("timeperiod", 13, 2),
            bars("fastperiod", 2, 2),
            bars("slowperiod", 25, 2),
            bars("signalperiod", 9, 2),
        ])
        .outputs(&[output("smi", &["line"]), output("smisignal", &["signal"])])
        .scaling(Scaling::PURE)
        .sums_signed()
        .fused(&[Fused::MinusScaled])
        .numbers(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let (highest, lowest) = (high.highest(p), low.lowest(p));
            let apart = close - 0.5 * (highest + lowest);
            // Both means hold at the same bars.
            let range = (highest - lowest).where_finite(apart);
            let [m, r] = [apart, range].map(|part| part.ema(f.bars(2)).ema(f.bars(1)));
            let index = 100.0 * m.ratio_or_zero(0.5 * r);
            let signal = index.ema(f.bars(3));
            vec![index.where_finite(signal), signal]
        }),
];

/// 100*(close - lowest low)/(highest high - lowest low) of `p` bars.
fn place<'f>(high: Num<'f>, low: Num<'f>, close: Num<'f>, p: u32) -> Num<'f> {
    let (highest, lowest) = (high.highest(p), low.lowest(p));
    share_of_range(close - lowest, highest, lowest)
}

/// 100*`part` over the range; 0 where the range is no more than the rounding of its ends, as TA-Lib has it.
fn share_of_range<'f>(part: Num<'f>, highest: Num<'f>, lowest: Num<'f>) -> Num<'f> {
    let range = highest - lowest;
    100.0 * part.ratio_or_zero(range.beyond_rounding(highest, lowest).choose(range, 0.0))
}

/// The slow stochastic's two lines.
fn slow(f: &Formula) -> [Num<'_>; 2] {
    let [high, low, close] = f.series();
    let k = place(high, low, close, f.bars(0)).average(f.bars(2), f.bars(1));
    [k, k.average(f.bars(4), f.bars(3))]
}
