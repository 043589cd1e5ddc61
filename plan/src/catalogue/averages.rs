//! Moving averages.

use super::*;

const GROUP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    declare("sma", GROUP)
        .summary("simple moving average")
        .formula("mean of the last timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(SMA, f.bars(0))),
    declare("ema", GROUP)
        .summary("exponential moving average")
        .formula("m + (x - m)*2/(timeperiod+1), seeded with the mean of the first timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(EMA, f.bars(0))),
    declare("wma", GROUP)
        .summary("linearly weighted moving average")
        .formula("sum of k*x over the window, k = 1 (oldest) .. timeperiod, divided by the sum of k")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(WMA, f.bars(0))),
    declare("kama", GROUP)
        .summary("Kaufman's adaptive moving average")
        .formula(
            "k + c*(x - k), c = (e*(2/3 - 2/31) + 2/31)^2, e = |change over timeperiod| / sum of |changes|; \
             starts from the value before its first bar",
        )
        .series(&[REAL])
        .params(&[period(30, 1)])
        .fused(&[Fused::Apart])
        .number(|f| f.x().average(KAMA, f.bars(0))),
    declare("dema", GROUP)
        .summary("double exponential moving average")
        .formula("2e - ema(e), e = ema(x)")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(DEMA, f.bars(0))),
    declare("tema", GROUP)
        .summary("triple exponential moving average")
        .formula("3e - 3*ema(e) + ema(ema(e)), e = ema(x)")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(TEMA, f.bars(0))),
    declare("trima", GROUP)
        .summary("triangular moving average")
        .formula("weights rise by one to the middle of the window and fall again")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(TRIMA, f.bars(0))),
    declare("t3", GROUP)
        .summary("Tillson's T3 moving average")
        .formula(
            "c1*e6 + c2*e5 + c3*e4 + c4*e3, en being n exponential means over each other; c1 = -v^3, c2 = \
             3(v^2 + v^3), c3 = -6v^2 - 3(v + v^3), c4 = 1 + 3v + 3v^2 + v^3, v = vfactor",
        )
        .series(&[REAL])
        .params(&[period(5, 1), param("vfactor", ParamType::Real { min: 0.0, max: 1.0 }, T3_FACTOR)])
        .fused(&[Fused::PlusScaled])
        .number(|f| f.x().t3(f.bars(0), f.real(1))),
    declare("hma", GROUP)
        .summary("Hull's moving average")
        .formula(
            "wma over sqrt(timeperiod) of 2*wma(timeperiod/2) - wma(timeperiod), both periods cut off to \
             whole numbers",
        )
        .series(&[REAL])
        .params(&[period(20, 1)])
        .number(|f| f.x().average(HMA, f.bars(0))),
    declare("zlema", GROUP)
        .summary("exponential moving average without lag")
        .formula("ema of 2x - x[(timeperiod-1)/2], the offset cut off to a whole number")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(ZLEMA, f.bars(0))),
    declare("rma", GROUP)
        .summary("Wilder's moving average")
        .formula("(m*(timeperiod-1) + x)/timeperiod, seeded with the mean of the first timeperiod values")
        .series(&[REAL])
        .params(&[period(30, 1)])
        .number(|f| f.x().average(RMA, f.bars(0))),
    declare("ma", GROUP)
        .summary("moving average of a chosen type")
        .formula("the average that matype names; default is sma")
        .series(&[REAL])
        .params(&[period(30, 1), average("matype")])
        .number(|f| f.x().average(f.bars(1), f.bars(0))),
    declare("mama", GROUP)
        .summary("Ehlers' adaptive moving average and the average that follows it")
        .formula(
            "mama = a*x + (1-a)*mama, a = fastlimit / degrees that the phase of the cycle fell by, between \
             slowlimit and fastlimit; fama = the same of mama with a/2",
        )
        .series(&[REAL])
        .params(&[
            param("fastlimit", ParamType::Real { min: 0.01, max: 0.99 }, MESA_FAST),
            param("slowlimit", ParamType::Real { min: 0.01, max: 0.99 }, MESA_SLOW),
        ])
        .outputs(&[output("mama", &[]), output("fama", &[])])
        .numbers(|f| [Mesa::Mama, Mesa::Fama].map(|result| f.x().mesa(f.real(0), f.real(1), result)).to_vec()),
    declare("mavp", GROUP)
        .summary("moving average with a period of each bar's own")
        .formula(
            "the average of matype over as many bars as periods says, cut off to a whole number and held \
             between minperiod and maxperiod; all start where maxperiod does",
        )
        .series(&[REAL, num("periods", None)])
        .params(&[bars("minperiod", 2, 1), bars("maxperiod", 30, 1), average("matype")])
        .at_most(&[("minperiod", "maxperiod")])
        .number(variable),
    declare("alma", GROUP)
        .summary("Arnaud Legoux moving average: weights like a bell over the window")
        .formula(
            "sum of w*x / sum of w, w = exp(-(i - offset*(timeperiod - 1))^2 / (2*(timeperiod/sigma)^2)), i = 0 for the oldest \
             value to timeperiod - 1 for this one",
        )
        .reference(Reference::Values("A. Legoux and D. Kouzis-Loukas, Arnaud Legoux Moving Average (2009)", "alma.csv"))
        .series(&[REAL])
        .params(&[
            Param {
                name: "timeperiod",
                kind: ParamType::Integer { min: 1, max: BELL_BARS_MAX },
                default: ParamDefault::Value(9.0),
            },
            param("offset", ParamType::Real { min: 0.0, max: 1.0 }, 0.85),
            param("sigma", ParamType::Real { min: 0.1, max: 100.0 }, 6.0),
        ])
        .fused(&[Fused::SumOver, Fused::PlusScaled])
        .number(bell),
];

/// The longest window with weights of its own: each value is a step.
const BELL_BARS_MAX: u32 = 100;

fn bell(f: &Formula) -> Num<'_> {
    let (x, p) = (f.x(), f.bars(0));
    let (middle, width) = (f.real(1) * f64::from(p - 1), f64::from(p) / f.real(2));
    let weight = |back: u32| {
        let off = f64::from(p - 1 - back) - middle;
        crate::elementary::exp(-(off * off) / (2.0 * (width * width)))
    };
    let x = x.where_finite(x);
    let weights: f64 = (0..p).rev().map(weight).sum();
    let weighted = (0..p).rev().map(|back| x.lag(back) * weight(back)).reduce(|sum, next| sum + next);
    weighted.unwrap_or(x) / weights
}

fn variable(f: &Formula) -> Num<'_> {
    let [x, periods] = f.series();
    let (least, most, kind) = (f.bars(0), f.bars(1), f.bars(2));
    let x = x.where_finite(periods);
    if kind == SMA {
        let begun = x.skip(most - 1);
        return f.step(Op::VariableMean { least, most }, &[x, periods]).where_finite(begun);
    }
    let look_back = average_look_back(kind, most);
    let before = f.size();
    let mut value = x.average(kind, most);
    for p in (least..most).rev() {
        // Nothing larger than this gets past the resolver.
        if f.size() - before > PLAN_NODES_MAX {
            break;
        }
        let shorter = periods.below(p + 1).decides();
        value = shorter.choose(x.average_after(kind, p, look_back), value);
    }
    value
}
