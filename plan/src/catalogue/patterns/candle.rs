//! The words that patterns are written in: bars, their parts, and TA-Lib's candle settings.

use super::super::expression::{Num, Truth};
use super::super::formula::Formula;
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
#[derive(Clone, Copy)]
pub(crate) struct Candles<'c> {
    f: &'c Formula,
    /// Open, high, low, close.
    prices: [Num<'c>; 4],
}

/// The node of the pattern `decide`, which covers the current bar and `look_back` bars before it.
pub(crate) fn shape(f: &Formula, look_back: u32, decide: for<'c> fn(&'c Candles<'c>) -> Num<'c>) -> NodeId {
    let candles = Candles { f, prices: f.series() };
    // Logic alone could decide without a price that is missing.
    decide(&candles).where_defined(candles.covered(look_back)).id
}

impl<'c> Candles<'c> {
    /// The last `N` bars, the oldest first.
    pub fn bars<const N: usize>(&'c self) -> [Bar<'c>; N] {
        std::array::from_fn(|i| self.at((N - 1 - i) as u32))
    }

    /// The bar `ago` bars before the current one.
    pub fn at(&'c self, ago: u32) -> Bar<'c> {
        Bar { candles: self, ago }
    }

    /// The parameter.
    pub fn penetration(&self) -> f64 {
        self.f.params().first().copied().unwrap_or(0.0)
    }

    /// `value` where `condition`, else 0.
    pub fn mark(&self, condition: Truth<'c>, value: f64) -> Num<'c> {
        condition.choose(value, 0.0)
    }

    /// 100 where `up`, else -100 where `down`, else 0.
    pub fn signal(&self, up: Truth<'c>, down: Truth<'c>) -> Num<'c> {
        up.choose(100.0, self.mark(down, -100.0))
    }

    /// As [`Self::signal`], 80 instead of 100 where `weak`.
    pub fn graded(&self, up: Truth<'c>, down: Truth<'c>, weak: Truth<'c>) -> Num<'c> {
        let bullish = weak.choose(80.0, 100.0);
        let bearish = weak.choose(-80.0, -100.0);
        up.choose(bullish, down.choose(bearish, 0.0))
    }

    pub fn constant(&self, value: f64) -> Num<'c> {
        self.f.constant(value)
    }

    /// What `of` says holds for each of `bars`.
    pub fn every(&self, bars: &[Bar<'c>], of: impl Fn(Bar<'c>) -> Truth<'c>) -> Truth<'c> {
        self.f.all(bars.iter().map(|bar| of(*bar)))
    }

    /// What `of(before, bar)` says holds for each of `bars` but the first.
    pub fn each_next(&self, bars: &[Bar<'c>], of: impl Fn(Bar<'c>, Bar<'c>) -> Truth<'c>) -> Truth<'c> {
        self.f.all(bars.windows(2).map(|pair| of(pair[0], pair[1])))
    }

    /// 100 where `condition` and `bar` is white, -100 where it is black.
    pub fn coloured(&self, condition: Truth<'c>, bar: Bar<'c>) -> Num<'c> {
        self.signal(condition & bar.white(), condition)
    }

    /// True where the last `look_back + 1` bars have all their prices, else NA.
    fn covered(&self, look_back: u32) -> Truth<'c> {
        let [open, high, low, close] = self.prices;
        let whole = open.where_finite(high).where_finite(low).where_finite(close);
        whole.equals(whole).streak(look_back + 1)
    }

    /// `factor` times the mean extent of the last bars, the current one included; with period 0 of the current bar.
    fn threshold(&'c self, Setting { extent, period, factor }: Setting) -> Num<'c> {
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

/// `x` as it was `bars` bars ago; the current bar needs no step.
fn ago(x: Num<'_>, bars: u32) -> Num<'_> {
    if bars == 0 { x } else { x.lag(bars) }
}

/// One bar of a pattern.
#[derive(Clone, Copy)]
pub(crate) struct Bar<'c> {
    candles: &'c Candles<'c>,
    ago: u32,
}

impl<'c> Bar<'c> {
    fn price(self, i: usize) -> Num<'c> {
        ago(self.candles.prices[i], self.ago)
    }

    /// What is judged of the current bar, of this one: patterns share it whatever bar they ask it of.
    fn number(self, of: impl Fn(Self) -> Num<'c>) -> Num<'c> {
        ago(of(self.candles.at(0)), self.ago)
    }

    fn judged(self, of: impl Fn(Self) -> Truth<'c>) -> Truth<'c> {
        let now = of(self.candles.at(0));
        if self.ago == 0 { now } else { now.lag(self.ago) }
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
        ago(self.candles.threshold(setting), self.ago + own)
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
