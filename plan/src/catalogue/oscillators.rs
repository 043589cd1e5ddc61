//! Oscillators: differences of averages and of prices within a bar.

use super::*;

const MOMENTUM: &str = "Momentum indicators";

const RANGE: &[SeriesArg] = &[HIGH, LOW];
const BODY: &[SeriesArg] = &[OPEN, CLOSE];
const PRICE: &[SeriesArg] = &[REAL];
const TWO_AVERAGES: &[Param] = &[bars("fastperiod", 12, 2), bars("slowperiod", 26, 2), average_or("matype", EMA)];

pub(super) const LIST: &[Function] = &[
    declare("ao", MOMENTUM)
        .summary("awesome oscillator")
        .formula("sma(fastperiod) - sma(slowperiod) of (high + low)/2")
        .series(RANGE)
        .params(&[bars("fastperiod", 5, 2), bars("slowperiod", 34, 2)])
        .fused(&[Fused::PairOver])
        .number(awesome),
    declare("ac", MOMENTUM)
        .summary("accelerator oscillator")
        .formula("ao - sma(ao, signalperiod)")
        .series(RANGE)
        .params(&[bars("fastperiod", 5, 2), bars("slowperiod", 34, 2), bars("signalperiod", 5, 2)])
        .fused(&[Fused::PairOver])
        .number(|f| {
            let oscillator = awesome(f);
            oscillator - oscillator.mean(f.bars(2))
        }),
    declare("apo", MOMENTUM)
        .summary("absolute price oscillator")
        .formula("average(shorter period) - average(longer period)")
        .series(PRICE)
        .params(TWO_AVERAGES)
        .number(|f| {
            let [fast, slow] = averages(f);
            fast - slow
        }),
    declare("ppo", MOMENTUM)
        .summary("percentage price oscillator")
        .formula(
            "100*(average(shorter period) - average(longer period))/average(longer period); 0 where that is \
             below 1e-14",
        )
        .series(PRICE)
        .params(TWO_AVERAGES)
        .scaling(Scaling::PURE)
        .scales_from(-6, "as TA-Lib, 0 for a ratio whose divisor is below 1e-14")
        .number(percentage),
    declare("pvo", "Volume indicators")
        .summary("percentage volume oscillator")
        .formula(
            "100*(average(shorter period) - average(longer period))/average(longer period) of the volume; 0 \
             where that is below 1e-14",
        )
        .series(&[VOLUME])
        .params(TWO_AVERAGES)
        .scaling(Scaling::PURE)
        .scales_from(-6, "as TA-Lib, 0 for a ratio whose divisor is below 1e-14")
        .number(percentage),
    declare("macdext", MOMENTUM)
        .summary("moving average convergence/divergence with averages of choice")
        .formula(
            "macd = average(shorter period) - average(longer period), each over the values it needs for the \
             first common bar; macdsignal = average of macd; macdhist = macd - macdsignal; all three start \
             together",
        )
        .series(PRICE)
        .params(&[
            bars("fastperiod", 12, 2),
            average("fastmatype"),
            bars("slowperiod", 26, 2),
            average("slowmatype"),
            bars("signalperiod", 9, 1),
            average("signalmatype"),
        ])
        .outputs(MACD)
        .numbers(|f| {
            let x = f.x();
            let (mut fast, mut slow) = ((f.bars(1), f.bars(0)), (f.bars(3), f.bars(2)));
            if slow.1 < fast.1 {
                (fast, slow) = (slow, fast);
            }
            let [a, b] = [fast, slow].map(|(kind, p)| average_look_back(kind, p));
            let [fast, slow] = [fast, slow].map(|(kind, p)| x.average_after(kind, p, a.max(b)));
            let line = fast - slow;
            with_signal(line, line.average(f.bars(5), f.bars(4)))
        }),
    declare("macdfix", MOMENTUM)
        .summary("moving average convergence/divergence of 12 and 26 bars")
        .formula("as macd(12, 26), with factors 0.15 and 0.075")
        .series(PRICE)
        .params(&[bars("signalperiod", 9, 1)])
        .outputs(MACD)
        .numbers(|f| {
            let x = f.x();
            let fast = x.step(Op::EmaBy { p: 12, delay: 14, factor: 0.15.into() });
            let slow = x.step(Op::EmaBy { p: 26, delay: 0, factor: 0.075.into() });
            let line = fast - slow;
            with_signal(line, line.ema(f.bars(0)))
        }),
    declare("crsi", MOMENTUM)
        .summary("Connors RSI, 0 to 100")
        .formula(
            "(rsi(x, timeperiod) + rsi(s, streakperiod) + percentrank(x/x[1] - 1, rankperiod))/3; s is how many bars in a row x has \
             risen, or fallen as a negative number; 0 where it did not move",
        )
        .reference(Reference::Values("L. Connors and C. Alvarez, An Introduction to ConnorsRSI (2012)", "crsi.csv"))
        .series(PRICE)
        .params(&[period(3, 2), bars("streakperiod", 2, 2), bars("rankperiod", 100, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::SumOver, Fused::Strength])
        .number(|f| {
            let x = f.x();
            let before = x.lag(1).or_else(x);
            let [up, down] = [x.at_most(before), x.at_least(before)]
                .map(|other| other.decides().as_number().step(Op::Since));
            let rank = x.rate_of_change(1).step(Op::PercentRank(f.bars(2)));
            (x.relative_strength(f.bars(0)) + (up - down).relative_strength(f.bars(1)) + rank) / 3.0
        }),
    declare("squeeze", MOMENTUM)
        .summary("volatility squeeze: Bollinger bands inside the Keltner channel, and the momentum behind it")
        .formula(
            "on: nbdev * population deviation < multiplier * sma of the true range, all over timeperiod; fired: on[1] and not on; \
             momentum = linearreg of close - ((highest high + lowest low)/2 + sma(close))/2",
        )
        .reference(Reference::Values("J. Carter, Mastering the Trade (2005), TTM Squeeze", "squeeze.csv"))
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(20, 2), param("nbdev", NON_NEGATIVE, 2.0), param("multiplier", NON_NEGATIVE, 1.5)])
        .outputs(&[output("on", &[]).truth(), output("fired", &[]).truth(), output("momentum", &[])])
        .fused(&[Fused::TrueRange, Fused::PairOver, Fused::PlusScaled])
        .numbers(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let mean = close.mean(p);
            let on = (f.real(1) * close.deviation(p)).below(f.real(2) * true_range(high, low, close).mean(p)).decides();
            let middle = (high.highest(p) + low.lowest(p)) / 2.0;
            let momentum = (close - (middle + mean) / 2.0).regression(p, (f64::from(p) - 1.0) / 2.0);
            vec![on.as_number(), (on.lag(1) & !on).as_number(), momentum]
        }),
    declare("dpo", MOMENTUM)
        .summary("detrended price oscillator")
        .formula("x[timeperiod/2 + 1] - sma(timeperiod), the half cut off to a whole number")
        .series(PRICE)
        .params(&[period(20, 2)])
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            x.lag(p / 2 + 1) - x.mean(p)
        }),
    declare("eri", MOMENTUM)
        .summary("Elder ray: bull and bear power")
        .formula("bullpower = high - ema(close); bearpower = low - ema(close)")
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(13, 1)])
        .outputs(&[output("bullpower", &["bull"]), output("bearpower", &["bear"])])
        .numbers(|f| {
            let [high, low, close] = f.series();
            let mean = close.ema(f.bars(0));
            vec![high - mean, low - mean]
        }),
    declare("fosc", MOMENTUM)
        .summary("forecast oscillator in percent")
        .formula("100*(x - tsf[1])/x; 0 where x is 0")
        .series(PRICE)
        .params(&[period(5, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::PlusScaled])
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            let forecast = x.regression(p, (f64::from(p) + 1.0) / 2.0).lag(1);
            100.0 * (x - forecast).ratio_or_zero(x)
        }),
    declare("qstick", MOMENTUM)
        .summary("mean of the bodies")
        .formula("sma of close - open")
        .series(BODY)
        .params(&[period(10, 1)])
        .number(|f| {
            let [open, close] = f.series();
            (close - open).mean(f.bars(0))
        }),
    declare("imi", MOMENTUM)
        .summary("intraday momentum index, 0 to 100")
        .formula(
            "100*g/(g + l), g and l being the sums of close - open where it is positive and of open - close \
             where that is; 50 where both are 0",
        )
        .series(BODY)
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Share])
        .number(|f| {
            let [open, close] = f.series();
            let [g, l] = (close - open).rises_and_falls().map(|part| part.sum(f.bars(0)));
            (g + l).equals(0.0).choose(50.0, 100.0 * g.ratio_or_zero(g + l))
        }),
    declare("bop", MOMENTUM)
        .summary("balance of power, -1 to 1")
        .formula("(close - open)/(high - low); 0 where high is not above low")
        .series(&[OPEN, HIGH, LOW, CLOSE])
        .scaling(Scaling::PURE)
        .number(|f| {
            let [open, high, low, close] = f.series();
            let (body, range) = (close - open, high - low);
            range.above(0.0).choose(body.ratio_or_zero(range), 0.0).where_finite(body)
        }),
    declare("ultosc", MOMENTUM)
        .summary("ultimate oscillator, 0 to 100")
        .formula(
            "100*(4a + 2b + c)/7; a, b, c for the shortest, middle and longest period: sum of close - \
             min(low, close[1]) / sum of the true range; 0 where that is 0",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[bars("timeperiod1", 7, 1), bars("timeperiod2", 14, 1), bars("timeperiod3", 28, 1)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::TrueRange, Fused::SumOver])
        .number(|f| {
            let [high, low, close] = f.series();
            let pressure = close - low.minimum(close.lag(1));
            let range = true_range(high, low, close);
            let mut periods = [0, 1, 2].map(|i| f.bars(i));
            periods.sort_unstable();
            let [a, b, c] = periods.map(|p| pressure.sum(p).ratio_or_zero(range.sum(p)));
            100.0 * ((4.0 * a + 2.0 * b + c) / 7.0)
        }),
];

pub(super) const MACD: &[OutputDecl] =
    &[output("macd", &["line"]), output("macdsignal", &["signal"]), output("macdhist", &["hist"])];

/// The three lines of a convergence/divergence, which start together.
pub(super) fn with_signal<'f>(line: Num<'f>, signal: Num<'f>) -> Vec<Num<'f>> {
    vec![line.where_finite(signal), signal, line - signal]
}

fn awesome(f: &Formula) -> Num<'_> {
    let [high, low] = f.series();
    let middle = (high + low) / 2.0;
    middle.mean(f.bars(0)) - middle.mean(f.bars(1))
}

/// The averages over the shorter and over the longer period.
fn averages(f: &Formula) -> [Num<'_>; 2] {
    let mut periods = [f.bars(0), f.bars(1)];
    periods.sort_unstable();
    periods.map(|p| f.x().average(f.bars(2), p))
}

fn percentage(f: &Formula) -> Num<'_> {
    let [fast, slow] = averages(f);
    100.0 * (fast - slow).ratio_or_zero_epsilon(slow)
}
