//! Changes over a number of bars.

use super::*;

const GROUP: &str = "Momentum indicators";

const LAG: &[Param] = &[period(10, 1)];

pub(super) const LIST: &[Function] = &[
    Function::new("mom", GROUP)
        .summary("momentum")
        .formula("x - x[timeperiod]")
        .series(&[REAL])
        .params(LAG)
        .number(|f| f.x().change(f.bars(0))),
    Function::new("roc", GROUP)
        .summary("rate of change in percent")
        .formula("100*(x/x[timeperiod] - 1); 0 where x[timeperiod] is 0")
        .series(&[REAL])
        .params(LAG)
        .scaling(Scaling::PURE)
        .number(|f| 100.0 * f.x().rate_of_change(f.bars(0))),
    Function::new("rocp", GROUP)
        .summary("rate of change as a share")
        .formula("(x - x[timeperiod])/x[timeperiod]; 0 where x[timeperiod] is 0")
        .series(&[REAL])
        .params(LAG)
        .scaling(Scaling::PURE)
        .number(|f| f.x().rate_of_change(f.bars(0))),
    Function::new("rocr", GROUP)
        .summary("rate of change as a ratio")
        .formula("x/x[timeperiod]; 0 where x[timeperiod] is 0")
        .series(&[REAL])
        .params(LAG)
        .scaling(Scaling::PURE)
        .number(|f| ratio(f.x(), f.bars(0))),
    Function::new("rocr100", GROUP)
        .summary("rate of change as a ratio in percent")
        .formula("100*x/x[timeperiod]; 0 where x[timeperiod] is 0")
        .series(&[REAL])
        .params(LAG)
        .scaling(Scaling::PURE)
        .number(|f| 100.0 * ratio(f.x(), f.bars(0))),
    Function::new("trix", GROUP)
        .summary("change of a triple exponential average in percent")
        .formula("100*(e/e[1] - 1), e the exponential mean of the exponential mean of the exponential mean")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .scaling(Scaling::PURE)
        .sums_signed()
        .number(|f| {
            let p = f.bars(0);
            100.0 * f.x().ema(p).ema(p).ema(p).rate_of_change(1)
        }),
    Function::new("coppock", GROUP)
        .summary("Coppock curve")
        .formula("wma over wmaperiod of roc(roc1period) + roc(roc2period)")
        .series(&[REAL])
        .params(&[bars("wmaperiod", 10, 1), bars("roc1period", 11, 1), bars("roc2period", 14, 1)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::PlusScaled])
        .number(|f| {
            let [first, second] = [1, 2].map(|i| 100.0 * f.x().rate_of_change(f.bars(i)));
            (first + second).wma(f.bars(0))
        }),
    Function::new("tsi", GROUP)
        .summary("true strength index, -100 to 100")
        .formula(
            "100*m/a; m the exponential mean over secondperiod of that over firstperiod of the changes, a the \
             same of their magnitudes; 0 where a is 0",
        )
        .series(&[REAL])
        .params(&[bars("firstperiod", 25, 2), bars("secondperiod", 13, 2)])
        .scaling(Scaling::PURE)
        .sums_signed()
        .fused(&[Fused::Apart])
        .number(|f| {
            let change = f.x().change(1);
            let [m, a] = [change, change.abs()].map(|part| part.ema(f.bars(0)).ema(f.bars(1)));
            100.0 * m.ratio_or_zero(a)
        }),
    Function::new("cmo", GROUP)
        .summary("Chande's momentum oscillator, smoothed by Wilder's mean, -100 to 100")
        .formula(
            "100*(g - l)/(g + l), g and l being Wilder's means of the gains and of the losses; 0 when both \
             are 0",
        )
        .series(&[REAL])
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .number(|f| balance(f.x().change(1).rises_and_falls().map(|part| part.wilder(f.bars(0))))),
    Function::new("cmou", GROUP)
        .summary("Chande's momentum oscillator, unsmoothed, -100 to 100")
        .formula(
            "100*(g - l)/(g + l), g and l being the sums of the gains and of the losses of timeperiod bars; 0 \
             when both are 0",
        )
        .series(&[REAL])
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .number(|f| balance(f.x().change(1).rises_and_falls().map(|part| part.sum(f.bars(0))))),
    Function::new("er", GROUP)
        .summary("Kaufman's efficiency ratio, 0 to 1")
        .formula("|x - x[timeperiod]| / sum of |x - x[1]| over timeperiod; 1 where nothing moves")
        .series(&[REAL])
        .params(&[period(10, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Apart])
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            let path = x.path(p);
            // Rounding may not lift it above 1.
            let ratio = x.change(p).abs().ratio_or_zero(path).minimum(1.0);
            path.equals(0.0).choose(1.0, ratio)
        }),
    Function::new("vhf", GROUP)
        .summary("vertical horizontal filter")
        .formula(
            "(highest - lowest value of timeperiod bars) / sum of |x - x[1]| over timeperiod; 0 where nothing \
             moves",
        )
        .series(&[REAL])
        .params(&[period(28, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Apart])
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            (x.highest(p) - x.lowest(p)).ratio_or_zero(x.path(p))
        }),
];

/// x/x[bars]; 0 where x[bars] is 0.
fn ratio(x: Num<'_>, bars: u32) -> Num<'_> {
    let before = x.lag(bars);
    // A share of an infinity is no 0.
    x.ratio_or_zero(before).where_finite(x - before)
}

/// 100*(a - b)/(a + b).
fn balance<'f>([a, b]: [Num<'f>; 2]) -> Num<'f> {
    100.0 * (a - b).ratio_or_zero(a + b)
}
