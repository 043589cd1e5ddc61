//! Statistics of a window.

use super::{Formula, Function, ONE, Param, ParamDefault, ParamType, REAL, REAL_RANGE, TALIB, num, period};
use crate::graph::{NodeId, Op, Unary};

const GROUP: &str = "Statistic functions";

macro_rules! line {
    ($name:literal, $aliases:expr, $summary:literal, $formula:literal, $build:expr) => {
        Function {
            name: $name,
            aliases: $aliases,
            group: GROUP,
            summary: $summary,
            formula: $formula,
            reference: TALIB,
            series: &[REAL],
            params: &[period(14, 2)],
            outputs: ONE,
            build: $build,
        }
    };
}

pub(super) const LIST: &[Function] = &[
    Function {
        name: "stddev",
        aliases: &[],
        group: GROUP,
        summary: "standard deviation of a window",
        formula: "nbdev * population standard deviation",
        reference: TALIB,
        series: &[REAL],
        params: &[period(5, 2), Param { name: "nbdev", kind: REAL_RANGE, default: ParamDefault::Value(1.0) }],
        outputs: ONE,
        build: |f| {
            let deviation = f.step(Op::Deviation(f.bars(0)), f.series(0));
            vec![f.scale(deviation, f.real(1))]
        },
    },
    Function {
        name: "var",
        aliases: &[],
        group: GROUP,
        summary: "variance of a window",
        formula: "population variance; nbdev changes nothing, as in TA-Lib",
        reference: TALIB,
        series: &[REAL],
        params: &[period(5, 1), Param { name: "nbdev", kind: REAL_RANGE, default: ParamDefault::Value(1.0) }],
        outputs: ONE,
        build: |f| {
            let deviation = f.step(Op::Deviation(f.bars(0)), f.series(0));
            vec![f.multiply(deviation, deviation)]
        },
    },
    Function {
        name: "correl",
        aliases: &[],
        group: GROUP,
        summary: "Pearson's correlation of two series over a window",
        formula: "covariance / (deviation * deviation); 0 where one of them does not vary",
        reference: TALIB,
        series: &[num("real0", None), num("real1", None)],
        params: &[period(30, 1)],
        outputs: ONE,
        build: |f| vec![f.step_of(Op::Correlation(f.bars(0)), &[f.series(0), f.series(1)])],
    },
    Function {
        name: "beta",
        aliases: &[],
        group: GROUP,
        summary: "slope of real1's returns over real0's",
        formula: "covariance of the returns x/x[1] - 1 of the last timeperiod bars / variance of real0's; 0 where that is 0; a return on 0 is 0",
        reference: TALIB,
        series: &[num("real0", None), num("real1", None)],
        params: &[period(5, 1)],
        outputs: ONE,
        build: |f| {
            let (x, y) = (f.series(0), f.series(1));
            let (x, y) = (f.change(x, 1), f.change(y, 1));
            vec![f.step_of(Op::Beta(f.bars(0)), &[x, y])]
        },
    },
    line!(
        "linearreg",
        &["linreg"],
        "end of the least-squares line through a window",
        "mean + slope*(timeperiod-1)/2",
        |f| along(f, |p| (p - 1.0) / 2.0)
    ),
    line!(
        "linearreg_slope",
        &["slope"],
        "slope a bar of the least-squares line through a window",
        "sum of (k - mean k)*(x - mean x) / sum of (k - mean k)^2, k = 1 .. timeperiod",
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            vec![f.step(Op::Slope(p), x)]
        }
    ),
    line!(
        "linearreg_angle",
        &[],
        "slope of the least-squares line through a window in degrees",
        "atan(slope)*180/pi",
        |f| {
            let slope = f.step(Op::Slope(f.bars(0)), f.series(0));
            let angle = f.unary(Unary::Atan, slope);
            vec![f.scale(angle, 180.0 / std::f64::consts::PI)]
        }
    ),
    line!(
        "linearreg_intercept",
        &[],
        "start of the least-squares line through a window",
        "mean - slope*(timeperiod-1)/2",
        |f| along(f, |p| (1.0 - p) / 2.0)
    ),
    line!(
        "tsf",
        &[],
        "time series forecast: the least-squares line through a window, one bar ahead",
        "mean + slope*(timeperiod+1)/2",
        |f| along(f, |p| (p + 1.0) / 2.0)
    ),
    Function {
        name: "percentile",
        aliases: &[],
        group: GROUP,
        summary: "value that the given percent of a window do not exceed",
        formula: "the window's n-th smallest value, n = timeperiod*percentile/100 rounded up, at least 1",
        reference: TALIB,
        series: &[REAL],
        params: &[
            period(30, 2),
            Param {
                name: "percentile",
                kind: ParamType::Real { min: 0.0, max: 100.0 },
                default: ParamDefault::Value(50.0),
            },
        ],
        outputs: ONE,
        build: |f| {
            let (x, p) = (f.series(0), f.bars(0));
            // Multiplied first, so that round percentages of round periods stay whole.
            let rank = (f.real(1) * f64::from(p) / 100.0).ceil();
            vec![f.step(Op::Ranked { p, rank: (rank as u32).clamp(1, p) }, x)]
        },
    },
    Function {
        name: "percentrank",
        aliases: &[],
        group: GROUP,
        summary: "share of the last values that the current one exceeds, in percent",
        formula: "100 * (how many of the timeperiod values before this one are below it) / timeperiod",
        reference: TALIB,
        series: &[REAL],
        params: &[period(100, 2)],
        outputs: ONE,
        build: |f| {
            let (x, p) = (f.series(0), f.bars(0));
            vec![f.step(Op::PercentRank(p), x)]
        },
    },
];

/// The least-squares line `ahead(p)` bars from the window's middle.
fn along(f: &mut Formula<'_>, ahead: fn(f64) -> f64) -> Vec<NodeId> {
    let (x, p) = (f.series(0), f.bars(0));
    vec![f.regression(x, p, ahead(f64::from(p)))]
}

impl Formula<'_> {
    /// The least-squares line through the last `p` values, `ahead` bars after their middle.
    pub fn regression(&mut self, x: NodeId, p: u32, ahead: f64) -> NodeId {
        let mean = self.step(Op::Mean(p), x);
        let slope = self.step(Op::Slope(p), x);
        let rise = self.scale(slope, ahead);
        self.add(mean, rise)
    }
}
