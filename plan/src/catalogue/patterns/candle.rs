//! The words that patterns are written in: bars, their parts, and TA-Lib's candle settings.

use super::Formula;
use super::expression::{Num, Steps, Truth};
use crate::graph::NodeId;

/// What a [`Setting`] measures of a bar.
#[derive(Clone, Copy)]
enum Extent {
    Body,
    HighLow,
    /// Both shadows; the threshold is for one of them.
    Shadows,
}

/// A threshold relative to the bars before: `factor` times the mean extent of the `period` bars before the one that is
/// judged, or with period 0 times the extent of that bar itself. The values are TA-Lib's defaults.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    extent: Extent,
    period: u32,
    factor: f64,
}

const fn setting(extent: Extent, period: u32, factor: f64) -> Setting {
    Setting { extent, period, factor }
}

const BODY_LONG: Setting = setting(Extent::Body, 10, 1.0);
const BODY_SHORT: Setting = setting(Extent::Body, 10, 1.0);
const BODY_DOJI: Setting = setting(Extent::HighLow, 10, 0.1);
const SHADOW_LONG: Setting = setting(Extent::Body, 0, 1.0);
const SHADOW_VERY_LONG: Setting = setting(Extent::Body, 0, 2.0);
const SHADOW_SHORT: Setting = setting(Extent::Shadows, 10, 1.0);
const SHADOW_VERY_SHORT: Setting = setting(Extent::HighLow, 10, 0.1);
const NEAR: Setting = setting(Extent::HighLow, 5, 0.2);
const FAR: Setting = setting(Extent::HighLow, 5, 0.6);
const EQUAL: Setting = setting(Extent::HighLow, 5, 0.05);

/// The bars that a pattern is about.
pub(super) struct Candles {
    steps: Steps,
    /// Open, high, low, close.
    prices: [NodeId; 4],
    params: Vec<f64>,
}

/// The nodes of the pattern `decide`, which covers the current bar and `look_back` bars before it.
pub(super) fn shape(
    f: &mut Formula<'_>,
    look_back: u32,
    decide: impl for<'c> FnOnce(&'c Candles) -> Num<'c>,
) -> Vec<NodeId> {
    let prices = std::array::from_fn(|i| f.series(i));
    let candles = Candles { steps: Steps::over(f.graph), prices, params: f.params.clone() };
    // Logic alone could decide without a price that is missing.
    let signal = decide(&candles).where_defined(candles.covered(look_back)).id();
    candles.steps.give_back(f.graph);
    vec![signal]
}

impl Candles {
    /// The last `N` bars, the oldest first.
    pub fn bars<const N: usize>(&self) -> [Bar<'_>; N] {
        std::array::from_fn(|i| self.at((N - 1 - i) as u32))
    }

    /// The bar `ago` bars before the current one.
    pub fn at(&self, ago: u32) -> Bar<'_> {
        Bar { candles: self, ago }
    }

    /// The parameter.
    pub fn penetration(&self) -> f64 {
        self.params.first().copied().unwrap_or(0.0)
    }

    /// `value` where `condition`, else 0.
    pub fn mark<'c>(&'c self, condition: Truth<'c>, value: f64) -> Num<'c> {
        condition.choose(self.constant(value), self.constant(0.0))
    }

    /// 100 where `up`, else -100 where `down`, else 0.
    pub fn signal<'c>(&'c self, up: Truth<'c>, down: Truth<'c>) -> Num<'c> {
        up.choose(self.constant(100.0), self.mark(down, -100.0))
    }

    /// As [`Self::signal`], 80 instead of 100 where `weak`.
    pub fn graded<'c>(&'c self, up: Truth<'c>, down: Truth<'c>, weak: Truth<'c>) -> Num<'c> {
        let bullish = weak.choose(self.constant(80.0), self.constant(100.0));
        let bearish = weak.choose(self.constant(-80.0), self.constant(-100.0));
        up.choose(bullish, down.choose(bearish, self.constant(0.0)))
    }

    pub fn constant(&self, value: f64) -> Num<'_> {
        self.steps.constant(value)
    }

    /// What `of` says holds for each of `bars`.
    pub fn every<'c>(&'c self, bars: &[Bar<'c>], of: impl Fn(Bar<'c>) -> Truth<'c>) -> Truth<'c> {
        self.steps.all(bars.iter().map(|bar| of(*bar)))
    }

    /// What `of(before, bar)` says holds for each of `bars` but the first.
    pub fn each_next<'c>(&'c self, bars: &[Bar<'c>], of: impl Fn(Bar<'c>, Bar<'c>) -> Truth<'c>) -> Truth<'c> {
        self.steps.all(bars.windows(2).map(|pair| of(pair[0], pair[1])))
    }

    /// 100 where `condition` and `bar` is white, -100 where it is black.
    pub fn coloured<'c>(&'c self, condition: Truth<'c>, bar: Bar<'c>) -> Num<'c> {
        self.signal(condition & bar.white(), condition)
    }

    /// True where the last `look_back + 1` bars have all their prices, else NA.
    fn covered(&self, look_back: u32) -> Truth<'_> {
        let [open, high, low, close] = self.prices.map(|id| self.steps.num(id));
        let whole = open.where_finite(high).where_finite(low).where_finite(close);
        whole.equals(whole).streak(look_back + 1)
    }

    /// `factor` times the mean extent of the last bars, the current one included; with period 0 of the current bar.
    fn threshold(&self, Setting { extent, period, factor }: Setting) -> Num<'_> {
        let now = self.at(0);
        let extent_of_bar = match extent {
            Extent::Body => now.body(),
            Extent::HighLow => now.range(),
            Extent::Shadows => now.upper() + now.lower(),
        };
        let mean = match period {
            0 => extent_of_bar,
            p => extent_of_bar.mean(p),
        };
        // TA-Lib's order of operations: ties fall the same way.
        let threshold = if factor == 1.0 { mean } else { mean * factor };
        match extent {
            Extent::Shadows => threshold * 0.5,
            _ => threshold,
        }
    }
}

/// One bar of a pattern.
#[derive(Clone, Copy)]
pub(super) struct Bar<'c> {
    candles: &'c Candles,
    ago: u32,
}

impl<'c> Bar<'c> {
    fn price(self, i: usize) -> Num<'c> {
        self.candles.steps.num(self.candles.prices[i]).lag(self.ago)
    }

    /// What is judged of the current bar, of this one: patterns share it whatever bar they ask it of.
    fn number(self, of: impl Fn(Self) -> Num<'c>) -> Num<'c> {
        of(self.candles.at(0)).lag(self.ago)
    }

    fn judged(self, of: impl Fn(Self) -> Truth<'c>) -> Truth<'c> {
        of(self.candles.at(0)).lag(self.ago)
    }

    pub fn open(self) -> Num<'c> {
        self.price(0)
    }

    pub fn high(self) -> Num<'c> {
        self.price(1)
    }

    pub fn low(self) -> Num<'c> {
        self.price(2)
    }

    pub fn close(self) -> Num<'c> {
        self.price(3)
    }

    /// Upper end of the body.
    pub fn top(self) -> Num<'c> {
        self.number(|b| b.close().maximum(b.open()))
    }

    /// Lower end of the body.
    pub fn bottom(self) -> Num<'c> {
        self.number(|b| b.close().minimum(b.open()))
    }

    /// Length of the body.
    pub fn body(self) -> Num<'c> {
        self.number(|b| (b.close() - b.open()).abs())
    }

    /// Length of the upper shadow.
    pub fn upper(self) -> Num<'c> {
        self.number(|b| b.high() - b.top())
    }

    /// Length of the lower shadow.
    pub fn lower(self) -> Num<'c> {
        self.number(|b| b.bottom() - b.low())
    }

    /// From low to high.
    pub fn range(self) -> Num<'c> {
        self.number(|b| b.high() - b.low())
    }

    /// Closes at its open or above.
    pub fn white(self) -> Truth<'c> {
        self.judged(|b| b.close().at_least(b.open()))
    }

    /// Closes below its open.
    pub fn black(self) -> Truth<'c> {
        !self.white()
    }

    pub fn same_colour(self, other: Self) -> Truth<'c> {
        self.white().equals(other.white())
    }

    pub fn other_colour(self, other: Self) -> Truth<'c> {
        !self.same_colour(other)
    }

    fn average(self, setting: Setting) -> Num<'c> {
        let own = u32::from(setting.period > 0);
        self.candles.threshold(setting).lag(self.ago + own)
    }

    /// A distance that counts as near, as seen from this bar.
    pub fn near(self) -> Num<'c> {
        self.average(NEAR)
    }

    /// A distance that counts as far.
    pub fn far(self) -> Num<'c> {
        self.average(FAR)
    }

    /// A distance that counts as none.
    pub fn equal(self) -> Num<'c> {
        self.average(EQUAL)
    }

    /// Body above the mean.
    pub fn long(self) -> Truth<'c> {
        self.judged(|b| b.body().above(b.average(BODY_LONG)))
    }

    /// Body below the mean.
    pub fn short(self) -> Truth<'c> {
        self.judged(|b| b.body().below(b.average(BODY_SHORT)))
    }

    /// Body at most the mean.
    pub fn small(self) -> Truth<'c> {
        self.judged(|b| b.body().at_most(b.average(BODY_SHORT)))
    }

    /// Body as good as none.
    pub fn doji(self) -> Truth<'c> {
        self.judged(|b| b.body().at_most(b.doji_body()))
    }

    /// The longest body of a doji.
    pub fn doji_body(self) -> Num<'c> {
        self.average(BODY_DOJI)
    }

    /// Body shorter than the other's by more than what counts as far there.
    pub fn far_smaller(self, other: Self) -> Truth<'c> {
        self.body().below(other.body() - other.far())
    }

    /// Upper shadow as good as none.
    pub fn no_upper(self) -> Truth<'c> {
        self.judged(|b| b.upper().below(b.average(SHADOW_VERY_SHORT)))
    }

    /// Lower shadow as good as none.
    pub fn no_lower(self) -> Truth<'c> {
        self.judged(|b| b.lower().below(b.average(SHADOW_VERY_SHORT)))
    }

    /// Upper shadow that counts.
    pub fn some_upper(self) -> Truth<'c> {
        self.judged(|b| b.upper().above(b.average(SHADOW_VERY_SHORT)))
    }

    /// Lower shadow that counts.
    pub fn some_lower(self) -> Truth<'c> {
        self.judged(|b| b.lower().above(b.average(SHADOW_VERY_SHORT)))
    }

    /// Upper shadow below the mean shadow.
    pub fn short_upper(self) -> Truth<'c> {
        self.judged(|b| b.upper().below(b.average(SHADOW_SHORT)))
    }

    /// Lower shadow below the mean shadow.
    pub fn short_lower(self) -> Truth<'c> {
        self.judged(|b| b.lower().below(b.average(SHADOW_SHORT)))
    }

    /// Upper shadow above the mean shadow.
    pub fn more_upper(self) -> Truth<'c> {
        self.judged(|b| b.upper().above(b.average(SHADOW_SHORT)))
    }

    /// Upper shadow longer than the body.
    pub fn long_upper(self) -> Truth<'c> {
        self.judged(|b| b.upper().above(b.average(SHADOW_LONG)))
    }

    /// Lower shadow longer than the body.
    pub fn long_lower(self) -> Truth<'c> {
        self.judged(|b| b.lower().above(b.average(SHADOW_LONG)))
    }

    /// Upper shadow longer than twice the body.
    pub fn very_long_upper(self) -> Truth<'c> {
        self.judged(|b| b.upper().above(b.average(SHADOW_VERY_LONG)))
    }

    /// Lower shadow longer than twice the body.
    pub fn very_long_lower(self) -> Truth<'c> {
        self.judged(|b| b.lower().above(b.average(SHADOW_VERY_LONG)))
    }

    /// The body lies above the other's, with a gap between.
    pub fn body_above(self, other: Self) -> Truth<'c> {
        self.bottom().above(other.top())
    }

    /// The body lies below the other's, with a gap between.
    pub fn body_below(self, other: Self) -> Truth<'c> {
        self.top().below(other.bottom())
    }

    /// The bar lies above the other with its shadows, with a gap between.
    pub fn wholly_above(self, other: Self) -> Truth<'c> {
        self.low().above(other.high())
    }

    /// The bar lies below the other with its shadows, with a gap between.
    pub fn wholly_below(self, other: Self) -> Truth<'c> {
        self.high().below(other.low())
    }

    /// High and low are both above the other's.
    pub fn higher(self, other: Self) -> Truth<'c> {
        self.high().above(other.high()) & self.low().above(other.low())
    }

    /// High and low are both below the other's.
    pub fn lower_than(self, other: Self) -> Truth<'c> {
        self.high().below(other.high()) & self.low().below(other.low())
    }

    /// High and low lie between the other's.
    pub fn inside(self, other: Self) -> Truth<'c> {
        self.high().below(other.high()) & self.low().above(other.low())
    }
}
