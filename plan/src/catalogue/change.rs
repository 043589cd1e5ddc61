//! Changes over a number of bars.

use super::{Formula, Function, ONE, Param, REAL, TALIB, bars, period};
use crate::ast::CompareOp;
use crate::graph::{Binary, NodeId, Op, Unary};

const GROUP: &str = "Momentum indicators";

macro_rules! change {
    ($name:literal, $summary:literal, $formula:literal, $params:expr, $build:expr) => {
        Function {
            name: $name,
            aliases: &[],
            group: GROUP,
            summary: $summary,
            formula: $formula,
            reference: TALIB,
            series: &[REAL],
            params: $params,
            outputs: ONE,
            build: $build,
        }
    };
}

const LAG: &[Param] = &[period(10, 1)];

pub(super) const LIST: &[Function] = &[
    change!("mom", "momentum", "x - x[timeperiod]", LAG, |f| {
        let x = f.series(0);
        let before = f.lag(x, f.bars(0));
        vec![f.subtract(x, before)]
    }),
    change!("roc", "rate of change in percent", "100*(x/x[timeperiod] - 1); 0 where x[timeperiod] is 0", LAG, |f| {
        let (x, p) = (f.series(0), f.bars(0));
        vec![f.rate_of_change(x, p)]
    }),
    change!(
        "rocp",
        "rate of change as a share",
        "(x - x[timeperiod])/x[timeperiod]; 0 where x[timeperiod] is 0",
        LAG,
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            vec![f.change(x, p)]
        }
    ),
    change!("rocr", "rate of change as a ratio", "x/x[timeperiod]; 0 where x[timeperiod] is 0", LAG, |f| ratio(f, 1.0)),
    change!(
        "rocr100",
        "rate of change as a ratio in percent",
        "100*x/x[timeperiod]; 0 where x[timeperiod] is 0",
        LAG,
        |f| ratio(f, 100.0)
    ),
    change!(
        "trix",
        "change of a triple exponential average in percent",
        "100*(e/e[1] - 1), e the exponential mean of the exponential mean of the exponential mean",
        &[period(30, 1)],
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let once = f.exponential(x, p);
            let twice = f.exponential(once, p);
            let thrice = f.exponential(twice, p);
            let change = f.change(thrice, 1);
            vec![f.scale(change, 100.0)]
        }
    ),
    change!(
        "coppock",
        "Coppock curve",
        "wma over wmaperiod of roc(roc1period) + roc(roc2period)",
        &[bars("wmaperiod", 10, 1), bars("roc1period", 11, 1), bars("roc2period", 14, 1)],
        |f| {
            let x = f.series(0);
            let first = f.rate_of_change(x, f.bars(1));
            let second = f.rate_of_change(x, f.bars(2));
            let sum = f.add(first, second);
            let weighted = f.average(2.0, sum, f.bars(0));
            vec![weighted]
        }
    ),
    change!(
        "tsi",
        "true strength index, -100 to 100",
        "100*m/a; m the exponential mean over secondperiod of that over firstperiod of the changes, a the same of their magnitudes; 0 where a is 0",
        &[bars("firstperiod", 25, 2), bars("secondperiod", 13, 2)],
        |f| {
            let x = f.series(0);
            let before = f.lag(x, 1);
            let change = f.subtract(x, before);
            let size = f.absolute(change);
            let [change, size] = [change, size].map(|part| {
                let once = f.exponential(part, f.bars(0));
                f.exponential(once, f.bars(1))
            });
            let ratio = f.binary(Binary::RatioOrZero, change, size);
            vec![f.scale(ratio, 100.0)]
        }
    ),
    change!(
        "cmo",
        "Chande's momentum oscillator, smoothed by Wilder's mean, -100 to 100",
        "100*(g - l)/(g + l), g and l being Wilder's means of the gains and of the losses; 0 when both are 0",
        &[period(14, 2)],
        |f| {
            let p = f.bars(0);
            let parts = gains_and_losses(f).map(|part| f.step(Op::Wilder(p), part));
            vec![balance(f, parts)]
        }
    ),
    change!(
        "cmou",
        "Chande's momentum oscillator, unsmoothed, -100 to 100",
        "100*(g - l)/(g + l), g and l being the sums of the gains and of the losses of timeperiod bars; 0 when both are 0",
        &[period(14, 2)],
        |f| {
            let p = f.bars(0);
            let parts = gains_and_losses(f).map(|part| f.step(Op::Sum(p), part));
            vec![balance(f, parts)]
        }
    ),
    change!(
        "er",
        "Kaufman's efficiency ratio, 0 to 1",
        "|x - x[timeperiod]| / sum of |x - x[1]| over timeperiod; 1 where nothing moves",
        &[period(10, 2)],
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let path = path(f, x, p);
            let far = f.lag(x, p);
            let change = f.subtract(x, far);
            let change = f.absolute(change);
            let ratio = f.binary(Binary::RatioOrZero, change, path);
            // Rounding may not lift it above 1.
            let (zero, one) = (f.constant(0.0), f.constant(1.0));
            let ratio = f.minimum(ratio, one);
            let still = f.compare_unflagged(CompareOp::Equal, path, zero);
            vec![f.select(still, one, ratio)]
        }
    ),
    change!(
        "vhf",
        "vertical horizontal filter",
        "(highest - lowest value of timeperiod bars) / sum of |x - x[1]| over timeperiod; 0 where nothing moves",
        &[period(28, 2)],
        |f| {
            let (x, p) = (f.series(0), f.bars(0));
            let highest = f.step(Op::Max(p), x);
            let lowest = f.step(Op::Min(p), x);
            let range = f.subtract(highest, lowest);
            let path = path(f, x, p);
            vec![f.binary(Binary::RatioOrZero, range, path)]
        }
    ),
];

impl Formula<'_> {
    /// (x - x[bars])/x[bars]; 0 where x[bars] is 0.
    pub fn change(&mut self, x: NodeId, bars: u32) -> NodeId {
        let before = self.lag(x, bars);
        let change = self.subtract(x, before);
        let ratio = self.binary(Binary::RatioOrZero, change, before);
        // An infinity over 0 is no 0.
        self.gate(ratio, change)
    }

    /// A change where it is positive, else 0, and its opposite where that is positive, else 0; both are defined on the
    /// same bars.
    pub fn rises_and_falls(&mut self, change: NodeId) -> [NodeId; 2] {
        let change = self.gate(change, change);
        let zero = self.constant(0.0);
        let rise = self.maximum(change, zero);
        let fall = self.unary(Unary::Negate, change);
        [rise, self.maximum(fall, zero)]
    }

    /// 100*(x/x[bars] - 1); 0 where x[bars] is 0.
    pub fn rate_of_change(&mut self, x: NodeId, bars: u32) -> NodeId {
        let change = self.change(x, bars);
        self.scale(change, 100.0)
    }
}

fn ratio(f: &mut Formula<'_>, factor: f64) -> Vec<NodeId> {
    let x = f.series(0);
    let before = f.lag(x, f.bars(0));
    let ratio = f.binary(Binary::RatioOrZero, x, before);
    // A share of an infinity is no 0.
    let apart = f.subtract(x, before);
    let ratio = f.gate(ratio, apart);
    vec![if factor == 1.0 { ratio } else { f.scale(ratio, factor) }]
}

/// The changes where they are positive, else 0, and the same of the opposite changes; both skip the same bars.
fn gains_and_losses(f: &mut Formula<'_>) -> [NodeId; 2] {
    let x = f.series(0);
    let before = f.lag(x, 1);
    let change = f.subtract(x, before);
    f.rises_and_falls(change)
}

/// 100*(a - b)/(a + b).
fn balance(f: &mut Formula<'_>, [a, b]: [NodeId; 2]) -> NodeId {
    let apart = f.subtract(a, b);
    let total = f.add(a, b);
    let ratio = f.binary(Binary::RatioOrZero, apart, total);
    f.scale(ratio, 100.0)
}

/// Window sum of |x - x[1]|.
fn path(f: &mut Formula<'_>, x: NodeId, p: u32) -> NodeId {
    let before = f.lag(x, 1);
    let change = f.subtract(x, before);
    let change = f.absolute(change);
    f.step(Op::Sum(p), change)
}
