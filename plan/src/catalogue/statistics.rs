//! Statistics of a window.

use super::*;

const GROUP: &str = "Statistic functions";

pub(super) const LIST: &[Function] = &[
    declare("stddev", GROUP)
        .summary("standard deviation of a window")
        .formula("nbdev * population standard deviation")
        .series(&[REAL])
        .params(&[period(5, 2), param("nbdev", REAL_RANGE, 1.0)])
        .number(|f| f.real(1) * f.x().deviation(f.bars(0))),
    declare("var", GROUP)
        .summary("variance of a window")
        .formula("population variance; nbdev changes nothing, as in TA-Lib")
        .series(&[REAL])
        .params(&[period(5, 1), param("nbdev", REAL_RANGE, 1.0)])
        .scaling(Scaling::Powers { prices: 2.0, volumes: 0.0 })
        .number(|f| f.x().deviation(f.bars(0)).square()),
    declare("correl", GROUP)
        .summary("Pearson's correlation of two series over a window")
        .formula("covariance / (deviation * deviation); 0 where one of them does not vary")
        .series(&[num("real0", None), num("real1", None)])
        .params(&[period(30, 1)])
        .scaling(Scaling::PURE)
        .number(|f| f.step(Op::Correlation(f.bars(0)), &f.series::<2>())),
    declare("beta", GROUP)
        .summary("slope of real1's returns over real0's")
        .formula(
            "covariance of the returns x/x[1] - 1 of the last timeperiod bars / variance of real0's; 0 where \
             that is 0; a return on 0 is 0",
        )
        .series(&[num("real0", None), num("real1", None)])
        .params(&[period(5, 1)])
        .scaling(Scaling::PURE)
        .number(|f| f.step(Op::Beta(f.bars(0)), &f.series::<2>().map(|x| x.rate_of_change(1)))),
    declare("linearreg", GROUP)
        .aliases(&["linreg"])
        .summary("end of the least-squares line through a window")
        .formula("mean + slope*(timeperiod-1)/2")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .fused(&[Fused::PlusScaled])
        .number(|f| along(f, |p| (p - 1.0) / 2.0)),
    declare("linearreg_slope", GROUP)
        .aliases(&["slope"])
        .summary("slope a bar of the least-squares line through a window")
        .formula("sum of (k - mean k)*(x - mean x) / sum of (k - mean k)^2, k = 1 .. timeperiod")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .number(|f| f.x().slope(f.bars(0))),
    declare("linearreg_angle", GROUP)
        .summary("slope of the least-squares line through a window in degrees")
        .formula("atan(slope)*180/pi")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .scaling(Scaling::Lawless("the angle of a slope in price a bar"))
        .number(|f| f.x().slope(f.bars(0)).unary(Unary::Atan) * (180.0 / std::f64::consts::PI)),
    declare("linearreg_intercept", GROUP)
        .summary("start of the least-squares line through a window")
        .formula("mean - slope*(timeperiod-1)/2")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .fused(&[Fused::PlusScaled])
        .number(|f| along(f, |p| (1.0 - p) / 2.0)),
    declare("tsf", GROUP)
        .summary("time series forecast: the least-squares line through a window, one bar ahead")
        .formula("mean + slope*(timeperiod+1)/2")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .fused(&[Fused::PlusScaled])
        .number(|f| along(f, |p| (p + 1.0) / 2.0)),
    declare("percentile", GROUP)
        .summary("value that the given percent of a window do not exceed")
        .formula("the window's n-th smallest value, n = timeperiod*percentile/100 rounded up, at least 1")
        .series(&[REAL])
        .params(&[period(30, 2), param("percentile", ParamType::Real { min: 0.0, max: 100.0 }, 50.0)])
        .number(|f| {
            let p = f.bars(0);
            // Multiplied first, so that round percentages of round periods stay whole.
            let rank = (f.real(1) * f64::from(p) / 100.0).ceil();
            f.x().step(Op::OrderStatistic { p, rank: (rank as u32).clamp(1, p) })
        }),
    declare("median", GROUP)
        .summary("middle value of a window")
        .formula("the window's middle value; of an even number the mean of the two in the middle")
        .reference(Reference::Language)
        .series(&[REAL])
        .params(&[period(30, 1)])
        .fused(&[Fused::PairOver])
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            let ranked = |rank: u32| x.step(Op::OrderStatistic { p, rank });
            if p % 2 == 1 { ranked(p / 2 + 1) } else { (ranked(p / 2) + ranked(p / 2 + 1)) / 2.0 }
        }),
    declare("percentrank", GROUP)
        .summary("share of the last values that the current one exceeds, in percent")
        .formula("100 * (how many of the timeperiod values before this one are below it) / timeperiod")
        .series(&[REAL])
        .params(&[period(100, 2)])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::PercentRank(f.bars(0)))),
];

/// The least-squares line `ahead(p)` bars from the window's middle.
fn along(f: &Formula, ahead: fn(f64) -> f64) -> Num<'_> {
    f.x().regression(f.bars(0), ahead(f64::from(f.bars(0))))
}
