//! The step primitives: what each computes is defined at [`Op`], once for every back end. "Defined" means finite: an infinity
//! that reaches a window, a recurrence, a cross-section or a comparison counts as NA there.

#![warn(clippy::wildcard_enum_match_arm)]

use crate::ast::CompareOp;
use crate::family::{Anchor, Cycle, Mesa, Parabolic, SuperTrend, Trend};
use crate::frame::Read;
use crate::op_facts::{
    Blocks, Class, Decides, Leaf, OpFacts, Past, Pointwise, Shift, Values, WARM_UP_PERIODS, fading, finite, unbounded,
    window,
};
use trawl_terms::{Clock, Period};

/// An `f64` by its bits, so that plans can be compared and hashed. Zero has one sign, NaN one payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bits(u64);

impl std::fmt::Debug for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value().fmt(f)
    }
}

impl From<f64> for Bits {
    fn from(value: f64) -> Self {
        let canonical = if value.is_nan() { f64::NAN } else { value + 0.0 };
        Self(canonical.to_bits())
    }
}

impl Bits {
    /// The value.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Element-wise functions of one value. NA in, NA out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    /// -x.
    Negate,
    /// |x|.
    Abs,
    /// Square root, IEEE: NaN below 0.
    Sqrt,
    /// NA for 0 and below (the helper `log`).
    Log,
    /// e^x.
    Exp,
    /// -1, 0 or 1.
    Sign,
    /// Half to even.
    Round,
    /// The least whole number that is not below x.
    Ceil,
    /// The largest whole number that is not above x.
    Floor,
    /// TA-Lib's `ln`, IEEE: -infinity for 0.
    Ln,
    /// IEEE, as [`Self::Ln`].
    Log10,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Tangent of radians.
    Tan,
    /// NA outside -1..1.
    Asin,
    /// NA outside -1..1.
    Acos,
    /// Arc tangent in radians.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Hyperbolic tangent.
    Tanh,
}

/// Element-wise functions of two values. NA in, NA out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b.
    Add,
    /// a - b.
    Subtract,
    /// a * b.
    Multiply,
    /// NA when the divisor is 0.
    Divide,
    /// IEEE: an infinity when the divisor alone is 0.
    Quotient,
    /// Floored remainder, the divisor's sign; NA when the divisor is 0.
    Remainder,
    /// The larger one.
    Maximum,
    /// The smaller one.
    Minimum,
    /// NA where the power is undefined.
    Power,
    /// TA-Lib's quotient: 0 when the divisor is exactly 0 and the dividend finite.
    RatioOrZero,
    /// TA-Lib's quotient: 0 when |divisor| < 1e-14 and the dividend finite.
    RatioOrZeroEpsilon,
    /// The first value where the second is defined (finite), else NA: aligns outputs that TA-Lib starts together, and
    /// makes the parts of an indicator skip the same bars.
    MaskUndefined,
    /// The first value unless it is NA, then the second.
    Coalesce,
    /// 1 where |a - b| <= 1e-9 * max(1, |a|, |b|), else 0; NA when a side is NA or infinite.
    Near,
}

/// Step primitives. `p` is a number of bars; windows include the current bar.
///
/// Windows: NA until `p` consecutive defined values stand in the window. Recurrences: start at the first defined
/// value; at an undefined one they emit NA, hold their state and resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// In a plan: column `plan.columns[i]` of the bar. In a program: its input i.
    Column(u16),
    /// The same value at every bar.
    Constant(Bits),
    /// Test `plan.labels[i]` of the symbol at the bar's time.
    Label(u16),
    /// Attribute `plan.attributes[i]` of the symbol at the bar's time: a number, or a date in days since 1970-01-01.
    Attribute(u16),
    /// 1 on the bars of the scan's `history`, NA before them.
    HistoryMask,
    /// 1 on the first bar of each period, 0 on the others.
    Begins(Period),
    /// What the calendar says of the bar's time.
    Clock(Clock),
    /// What cross-section `plan.crosses[i]` gives the frame's subject at the bar's time.
    Cross(u16),
    /// A series of another frame.
    Read(Read),
    /// A function of one input.
    Unary(Unary),
    /// A function of two inputs.
    Binary(Binary),
    /// NA when a side is NA or infinite.
    Compare(CompareOp),
    /// Kleene.
    And,
    /// Kleene.
    Or,
    /// Kleene.
    Not,
    /// Inputs condition, a, b: `a` where true, `b` where false, NA where NA.
    Select,
    /// The value `p` own bars earlier, NA before the first bar.
    Lag(u32),
    /// NA for the first `p` defined values, then the input.
    Skip(u32),

    /// Window sum.
    Sum(u32),
    /// Window mean.
    Mean(u32),
    /// Linearly weighted mean, weight `p` on the current bar.
    WeightedMean(u32),
    /// Window maximum.
    Max(u32),
    /// Window minimum.
    Min(u32),
    /// Population standard deviation.
    StdDev(u32),
    /// Inputs x, m: mean of |x_j - m_t| over the window.
    MeanAbsDev(u32),
    /// 100 * share of the `p` values before the current one that are below it.
    PercentRank(u32),
    /// The window's `rank`-th value in ascending order, 1 = smallest.
    OrderStatistic {
        /// Bars of the window.
        p: u32,
        /// From 1 to `p`.
        rank: u32,
    },
    /// Bars since the window's maximum; of equal ones the latest counts.
    BarsSinceMax(u32),
    /// Bars since the window's minimum; of equal ones the latest counts.
    BarsSinceMin(u32),
    /// Slope a bar of the least-squares line through the window.
    Slope(u32),
    /// Inputs x, y: slope of the least-squares line of y over x of the window; 0 where x does not vary.
    Beta(u32),
    /// Inputs x, y: Pearson's correlation of the window; TA-Lib's 0 where a variance vanishes.
    Correlation(u32),

    /// Exponential mean, factor 2/(p+1), seeded with the mean of `p` values after skipping `delay` defined ones.
    Ema {
        /// Period in bars.
        p: u32,
        /// Defined values before the first that enters the seed.
        delay: u32,
    },
    /// Exponential mean as [`Self::Ema`] with a factor of its own.
    EmaBy {
        /// Values whose mean is the seed.
        p: u32,
        /// Defined values before the first that enters the seed.
        delay: u32,
        /// Share of the current value.
        factor: Bits,
    },
    /// Wilder's mean: seeded with the mean of `p` values, then (m*(p-1) + x)/p.
    Wilder(u32),
    /// Wilder's sum: the sum of `p-1` values, then s - s/p + x from the p-th value on.
    WilderSum(u32),
    /// [`Self::WilderSum`] one value earlier: from the sum of `p-1` values on.
    WilderTotal(u32),
    /// Inputs num, den: Wilder's mean of 100*num/den; where den is 0 the seed adds 0 and later the state holds.
    WilderRatio(u32),
    /// Inputs x, x one bar ago, x p bars ago, sum of |changes| over p: Kaufman's adaptive mean as TA-Lib has it.
    Kaufman,
    /// The dominant cycle by Ehlers' Hilbert transform, as TA-Lib has it: bars before the first count as 0.
    Hilbert(Cycle),
    /// Ehlers' adaptive mean: factor `fast` over the degrees that the phase fell by, between `slow` and `fast`; starts
    /// from 0 after 12 values.
    Mesa {
        /// The largest factor.
        fast: Bits,
        /// The least factor.
        slow: Bits,
        /// Which of the two means.
        result: Mesa,
    },
    /// Inputs high, low: Wilder's parabolic stop. It starts at the first bar's end in the direction of the second bar's
    /// larger directional movement.
    Parabolic(Parabolic),
    /// Inputs upper band, lower band, close: each band only moves towards the price until a close passes it; the trend
    /// is up at first and turns when a close passes its band.
    SuperTrend(SuperTrend),
    /// Inputs open, close, mean price of the bar: the open of Heikin-Ashi candles.
    HeikinAshi,
    /// Inputs x, periods: mean of as many values as the current bar's period says, cut off to a whole number and held
    /// between the two.
    VariableMean {
        /// The least number of bars.
        least: u32,
        /// The largest number of bars.
        most: u32,
    },
    /// Running sum of the defined values.
    Cumulative,
    /// Inputs begin, key, x, w: sum of x*w over sum of w since the anchor, which is sought anew from each bar where begin is
    /// 1; with `previous` since the anchor that was found in the period before. NA where the weights add up to 0.
    AnchoredMean {
        /// Where in a period it begins.
        anchor: Anchor,
        /// Whether the anchor is that of the period before.
        previous: bool,
    },
    /// Running product of the defined values.
    Product,
    /// The defined value before the current one, at the first that one itself; NA where the input is undefined.
    Previous,
    /// Bar number of the window's maximum as TA-Lib finds it: a new value that is at least the maximum takes its place;
    /// when the maximum has left the window, the first of the largest does. An undefined value begins it anew.
    MaxIndex(u32),
    /// Mirrored.
    MinIndex(u32),
    /// Inputs close, volume: on-balance volume, starting with the first bar's volume.
    OnBalance,

    /// Inputs x, and for the families that count bars the bar's number from 1 on: an average as Adaptive Trend
    /// Classification has it. NA is data: what each family makes of it is documented at the kernels. A window is NA while an NA
    /// is in it; `Ema` and `Dema` carry their last value; `Kama` begins anew behind it.
    TrendMean {
        /// Which average.
        family: Trend,
        /// Its length in bars.
        len: u32,
    },
    /// Inputs x, x one bar ago, the bar's number n from 1 on: (x/before - 1) * e^(rate*(max(n - 1, 1) - cutout)), without
    /// the factor before `cutout`. IEEE: an infinity where only the bar before is 0.
    GrownReturn {
        /// Growth per bar, the exponent's factor.
        rate: Bits,
        /// Number of the bar from which returns grow.
        cutout: u32,
    },
    /// Inputs x, return, the bar's number from 1 on, averages of x in order: each average's last crossing (1 above, -1
    /// below, 0 before the first), weighed by the equity of following it from 1 on, in hundredths, half to even. NA on
    /// the first `cutout` bars. An equity is what it was, times `decay`, times 1 + the last bar's sign * the return; no
    /// return counts as 0; at least 0.25.
    FamilySignal {
        /// Factor of the equity per bar.
        decay: Bits,
        /// Bars at the beginning without a signal.
        cutout: u32,
    },
    /// Inputs signal, return, the bar's number from 1 on: the equity of following the signal from `start` on.
    SignalEquity {
        /// Equity at the first bar that has one.
        start: Bits,
        /// Factor of the equity per bar.
        decay: Bits,
        /// Bars at the beginning without an equity.
        cutout: u32,
    },
    /// Inputs six signals, then six equities: the mean of the votes (1 above `long`, -1 below `short`, else 0) weighed by
    /// the equities; 0 where that is not finite.
    TrendVote {
        /// A signal above it votes 1.
        long: Bits,
        /// A signal below it votes -1.
        short: Bits,
    },

    /// Inputs a, b: a > b now and a <= b one bar ago; NA when one of the four is NA or infinite.
    CrossesAbove,
    /// Mirrored.
    CrossesBelow,
    /// Kleene or over the last `p` bars; bars before the first are NA.
    Within(u32),
    /// Kleene and over the last `p` bars; bars before the first are NA.
    Streak(u32),
    /// Bars since the input was last true; NA if never, or if an NA comes first.
    Since,
    /// Inputs c, x: x at the bar where c was last true; NA if never, or if an NA of c comes first.
    ValueWhen,
    /// Inputs c, x: the largest defined x from the bar where c was last true on; NA before there is one, if c never was true, or
    /// if an NA of c comes first.
    MaxSince,
    /// Mirrored.
    MinSince,
    /// 1 from the first true on, before it 0; NA counts as false.
    Ever,
    /// Inputs c, e: whether e was true on a bar from the last true c on (from the first bar if never); NA counts as
    /// false.
    EverSince,
}

/// Primitives that were renamed in the code: the name now, and the one that fingerprints and `--explain` keep.
const LASTING_NAMES: [(&str, &str); 10] = [
    ("barssincemax", "sincemax"),
    ("barssincemin", "sincemin"),
    ("coalesce", "orelse"),
    ("ema", "exponential"),
    ("emaby", "exponentialby"),
    ("historymask", "window"),
    ("maskundefined", "gate"),
    ("meanabsdev", "meandeviation"),
    ("orderstatistic", "ranked"),
    ("stddev", "deviation"),
];

/// `text`, which begins with a primitive's name in lower case, with the name that fingerprints keep.
fn lasting(text: String) -> String {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    match LASTING_NAMES.iter().find(|(now, _)| *now == &text[..end]) {
        Some((_, before)) => format!("{before}{}", &text[end..]),
        None => text,
    }
}

impl Op {
    /// Name and parameters, canonical: part of the fingerprint and of `--explain`.
    pub fn canonical(&self) -> String {
        match self.facts().class {
            Class::Leaf(Leaf::Read(read)) => format!("read {read:?}").to_lowercase(),
            Class::Leaf(Leaf::Constant(bits)) => format!("constant({:?})", bits.value()),
            Class::Pointwise(Pointwise::Unary(u)) => format!("{u:?}").to_lowercase(),
            Class::Pointwise(Pointwise::Binary(b)) => lasting(format!("{b:?}").to_lowercase()),
            Class::Pointwise(Pointwise::Compare(c)) => c.symbol().to_owned(),
            // Named as they are written in the code.
            Class::Leaf(_) | Class::Pointwise(_) | Class::StepFacts(_) => lasting(format!("{self:?}").to_lowercase()),
        }
    }

    /// What is true of the primitive: the one place where that is decided. A new primitive does not compile without its row.
    pub fn facts(&self) -> OpFacts {
        use Past::{Data, Held, Kleene, Shifted, SinceTrue, Varying, Window};
        use Shift::Unknown;
        use Values::{Averaged, Rounded, Whole};
        let filter = |p: u32| WARM_UP_PERIODS * p as usize;
        match *self {
            Self::Column(i) => OpFacts::given(Leaf::Column(i), 0.0),
            Self::Constant(bits) => OpFacts::given(Leaf::Constant(bits), 0.0),
            Self::Label(i) => OpFacts::given(Leaf::Label(i), 0.0),
            Self::Attribute(i) => OpFacts::given(Leaf::Attribute(i), 0.0),
            Self::HistoryMask => OpFacts::given(Leaf::HistoryMask, 0.0),
            Self::Begins(period) => OpFacts::given(Leaf::Begins(period), 0.0),
            Self::Clock(clock) => OpFacts::given(Leaf::Clock(clock), 0.0),
            Self::Cross(i) => OpFacts::given(Leaf::Cross(i), 0.0),
            Self::Read(read) => OpFacts::given(Leaf::Read(read), 2.0),

            Self::Unary(u) => OpFacts::of_values(Pointwise::Unary(u)),
            Self::Binary(b) => OpFacts::of_values(Pointwise::Binary(b)),
            Self::Compare(c) => OpFacts::of_values(Pointwise::Compare(c)),
            Self::And => OpFacts::of_values(Pointwise::And),
            Self::Or => OpFacts::of_values(Pointwise::Or),
            Self::Not => OpFacts::of_values(Pointwise::Not),
            Self::Select => OpFacts::of_values(Pointwise::Select),

            Self::Lag(p) => finite(p as usize, Blocks::None, 0.3).values(Values::Of(0), Shift::Of(0), Shifted(p)),
            Self::Skip(p) => fading(p as usize, 0, Some(1), 3.0).values(Values::Of(0), Shift::Of(0), Held),

            Self::Sum(p) => window(p, Blocks::of_total(p), 1.0).values(Values::SumOf(0), Shift::Times(p), Window),
            Self::Mean(p) => window(p, Blocks::of_total(p), 1.0).values(Values::Mean, Shift::Of(0), Window).average(),
            Self::WeightedMean(p) => window(p, Blocks::Sums(p), 2.0).values(Rounded, Shift::Of(0), Window).average(),
            Self::Max(p) | Self::Min(p) => {
                window(p, Blocks::Extremes(p), 1.0).values(Values::Of(0), Shift::Of(0), Window)
            }
            Self::StdDev(p) => window(p, Blocks::Sums(p), 1.5).values(Rounded, Shift::None, Window),
            Self::MeanAbsDev(p) => {
                let cost_ns = 0.3 + 0.07 * f64::from(p);
                window(p, Blocks::None, cost_ns).values(Rounded, Shift::None, Window).now_only(1)
            }
            Self::PercentRank(p) => {
                let cost_ns = 0.3 + 0.05 * f64::from(p);
                // A share of counts, times 100: rounded twice.
                finite(p as usize, Blocks::None, cost_ns).values(Values::Share, Shift::None, Window)
            }
            Self::OrderStatistic { p, .. } => {
                let cost_ns = 10.0 + 0.02 * f64::from(p);
                window(p, Blocks::None, cost_ns).values(Values::Of(0), Shift::Of(0), Window)
            }
            Self::BarsSinceMax(p) | Self::BarsSinceMin(p) => {
                window(p, Blocks::Extremes(p), 2.0).values(Whole, Shift::None, Window)
            }
            Self::Slope(p) => window(p, Blocks::Sums(p), 1.5).values(Rounded, Shift::None, Window),
            Self::Beta(p) | Self::Correlation(p) => {
                window(p, Blocks::Sums(p), 2.5).values(Rounded, Shift::None, Window)
            }

            Self::Ema { p, delay } => {
                fading((p + delay) as usize - 1, filter(p), Some(6), 0.8).values(Averaged, Shift::Of(0), Held).average()
            }
            Self::EmaBy { p, delay, factor } => {
                // Of the period that has this factor.
                let warm_up = (WARM_UP_PERIODS as f64 * 2.0 / factor.value()).ceil() as usize;
                let time = fading((p + delay) as usize - 1, warm_up, Some(6), 0.8);
                time.values(Averaged, Shift::Of(0), Held).average()
            }
            Self::Wilder(p) => {
                fading(p as usize - 1, filter(p), Some(6), 0.8).values(Averaged, Shift::Of(0), Held).average()
            }
            Self::WilderSum(p) => fading(p as usize - 1, filter(p), Some(4), 0.8).values(Averaged, Unknown, Held),
            Self::WilderTotal(p) => {
                fading((p as usize).saturating_sub(2), filter(p), Some(4), 3.0).values(Averaged, Unknown, Held)
            }
            Self::WilderRatio(p) => fading(p as usize - 1, filter(p), Some(6), 0.8).values(Rounded, Unknown, Held),
            Self::Kaufman => unbounded(0, Some(5), 0.8).values(Rounded, Shift::Of(0), Held).average(),
            Self::Hilbert(cycle) => {
                let cost_ns = match cycle {
                    Cycle::Period | Cycle::InPhase | Cycle::Quadrature => 90.0,
                    Cycle::Trendline => 190.0,
                    Cycle::Phase | Cycle::Sine | Cycle::LeadSine | Cycle::TrendMode => 280.0,
                };
                let values = if cycle == Cycle::TrendMode { Whole } else { Rounded };
                unbounded(if cycle.is_early() { 32 } else { 63 }, None, cost_ns).values(values, Unknown, Held)
            }
            Self::Mesa { .. } => unbounded(32, None, 90.0).values(Rounded, Shift::Of(0), Held).average(),
            Self::Parabolic(_) => unbounded(1, None, 30.0).values(Rounded, Unknown, Held),
            Self::SuperTrend(result) => {
                let values = if result == SuperTrend::Trend { Values::WholeOfEitherSign } else { Rounded };
                unbounded(0, None, 20.0).decides(values, Unknown, Held, Decides::Band)
            }
            Self::HeikinAshi => unbounded(0, Some(5), 6.0).values(Rounded, Shift::One, Held),
            Self::VariableMean { least, most } => {
                let cost_ns = 3.0 + 1.25 * (f64::from(least) + f64::from(most));
                let past = Varying { least, most };
                window(most, Blocks::None, cost_ns).values(Rounded, Shift::Of(0), past).now_only(1).average()
            }
            Self::Cumulative => unbounded(0, Some(3), 0.3).values(Values::SumOf(0), Unknown, Held),
            Self::AnchoredMean { anchor, previous } => {
                let chunk_words = (anchor == Anchor::Start && !previous).then_some(9);
                unbounded(0, chunk_words, 4.0).values(Rounded, Shift::Of(2), Held)
            }
            Self::Product => unbounded(0, None, 3.0).values(Rounded, Unknown, Held),
            Self::Previous => fading(0, 0, Some(1), 3.0).values(Values::Of(0), Shift::Of(0), Held),
            Self::MaxIndex(p) | Self::MinIndex(p) => {
                let time = unbounded(p as usize - 1, None, 2.0 + 0.05 * f64::from(p)).tells_bar_numbers();
                time.values(Whole, Shift::None, Window).reads_back(p as usize - 1)
            }
            // The running sum of volumes with either sign.
            Self::OnBalance => {
                unbounded(0, Some(5), 0.3).decides(Values::SumOfEitherSign(1), Unknown, Held, Decides::Change)
            }

            Self::TrendMean { family, len } => {
                let cost_ns = match family {
                    Trend::Ema | Trend::Dema => 0.5,
                    Trend::Hma | Trend::Wma | Trend::Lsma | Trend::Kama => 1.0 + 0.01 * f64::from(len),
                };
                let time = match family {
                    Trend::Ema | Trend::Dema | Trend::Kama => unbounded(0, None, cost_ns),
                    Trend::Hma | Trend::Wma | Trend::Lsma => finite(0, Blocks::None, cost_ns),
                };
                time.values(Rounded, Shift::Of(0), Data).average().reads_back(family.reads_back(len))
            }
            Self::GrownReturn { .. } => finite(0, Blocks::None, 1.0).values(Rounded, Unknown, Data),
            // Hundredths.
            Self::FamilySignal { .. } => unbounded(0, None, 5.0).values(Values::ExactOfEitherSign, Unknown, Data),
            Self::SignalEquity { .. } => unbounded(0, None, 1.0).values(Rounded, Unknown, Data),
            Self::TrendVote { .. } => finite(0, Blocks::None, 1.0).values(Rounded, Unknown, Data),

            Self::CrossesAbove | Self::CrossesBelow => {
                finite(1, Blocks::None, 0.3).decides(Whole, Unknown, Window, Decides::Crossing)
            }
            Self::Within(p) | Self::Streak(p) => window(p, Blocks::None, 0.3).values(Whole, Unknown, Kleene(p)),
            Self::Since => unbounded(0, Some(2), 0.3).values(Whole, Unknown, SinceTrue),
            Self::ValueWhen => unbounded(0, Some(2), 0.3).values(Values::Of(1), Shift::Of(1), SinceTrue),
            Self::MaxSince | Self::MinSince => {
                unbounded(0, Some(3), 0.4).values(Values::Of(1), Shift::Of(1), SinceTrue)
            }
            Self::Ever => fading(0, 0, Some(1), 0.3).values(Whole, Unknown, Past::Ever),
            Self::EverSince => fading(0, 0, Some(2), 0.3).values(Whole, Unknown, Past::Ever),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_primitives_keep_their_names_in_fingerprints() {
        let names = [
            (Op::Ema { p: 9, delay: 0 }, "exponential { p: 9, delay: 0 }"),
            (Op::OrderStatistic { p: 5, rank: 2 }, "ranked { p: 5, rank: 2 }"),
            (Op::StdDev(20), "deviation(20)"),
            (Op::MeanAbsDev(20), "meandeviation(20)"),
            (Op::BarsSinceMax(3), "sincemax(3)"),
            (Op::BarsSinceMin(3), "sincemin(3)"),
            (Op::HistoryMask, "window"),
            (Op::Binary(Binary::MaskUndefined), "gate"),
            (Op::Binary(Binary::Coalesce), "orelse"),
            (Op::Mean(20), "mean(20)"),
        ];
        for (op, text) in names {
            assert_eq!(op.canonical(), text);
        }
        assert_eq!(lasting("emaby { p: 9 }".to_owned()), "exponentialby { p: 9 }");
    }
}
