//! How far prices move.

use super::*;

const GROUP: &str = "Volatility indicators";

pub(super) const LIST: &[Function] = &[
    Function::new("adr", GROUP)
        .summary("average range of the bars")
        .formula("sma of high - low")
        .series(&[HIGH, LOW])
        .params(&[period(14, 1)])
        .number(|f| {
            let [high, low] = f.series();
            (high - low).mean(f.bars(0))
        }),
    Function::new("cvi", GROUP)
        .summary("Chaikin's volatility")
        .formula("100*(e/e[rocperiod] - 1), e = ema of high - low; 0 where e[rocperiod] is 0")
        .series(&[HIGH, LOW])
        .params(&[period(10, 2), bars("rocperiod", 10, 1)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let [high, low] = f.series();
            let e = (high - low).ema(f.bars(0));
            let before = e.lag(f.bars(1));
            100.0 * (e - before).ratio_or_zero(before)
        }),
    Function::new("massi", GROUP)
        .summary("mass index")
        .formula(
            "sum over slowperiod of ema(r)/ema(ema(r)), r = high - low, both over fastperiod; 1 where the \
             divisor is 0",
        )
        .series(&[HIGH, LOW])
        .params(&[bars("fastperiod", 9, 2), bars("slowperiod", 25, 2)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let ([high, low], p) = (f.series(), f.bars(0));
            let once = (high - low).ema(p);
            let twice = once.ema(p);
            twice.equals(0.0).choose(1.0, once / twice).sum(f.bars(1))
        }),
    Function::new("natr", GROUP)
        .summary("average true range in percent of the close")
        .formula("100*atr/close; 0 where the close is 0; the true range itself when timeperiod is 1")
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(14, 1)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::AverageRange])
        .number(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let range = true_range(high, low, close);
            if p == 1 {
                return range;
            }
            // A quotient by an infinity would be defined.
            100.0 * range.wilder(p).ratio_or_zero(close).where_finite(close)
        }),
    Function::new("rvi", GROUP)
        .summary("relative volatility index, 0 to 100")
        .formula(
            "100*u/(u + d), u and d being Wilder's means of the deviation over stddevperiod on bars that rose \
             and on bars that fell; 50 where both are 0",
        )
        .series(&[REAL])
        .params(&[period(14, 1), bars("stddevperiod", 10, 2)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            let (deviation, before) = (x.deviation(f.bars(1)), x.lag(1));
            let [u, d] = [x.above(before), before.above(x)]
                .map(|moved| moved.decides().choose(deviation, 0.0).where_finite(deviation).wilder(p));
            (u + d).equals(0.0).choose(50.0, 100.0 * (u / (u + d)))
        }),
    Function::new("trange", GROUP)
        .summary("true range")
        .formula("max(high - low, |high - close[1]|, |low - close[1]|)")
        .series(&[HIGH, LOW, CLOSE])
        .fused(&[Fused::TrueRange])
        .number(|f| {
            let [high, low, close] = f.series();
            true_range(high, low, close)
        }),
];
