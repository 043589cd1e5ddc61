//! The form of a primitive in a kernel: its step of `kernels/cuda`, and which of its parameters are arguments. The only
//! place that defines what the GPU runs: an [`Op`] without a form is rejected when a plan is lowered.
//!
//! All steps have the same calling convention: inputs, the bar's number if requested, integers, floating-point numbers,
//! table, rings. A step's state, if any, begins with `start(bar, first integer)`.

#![warn(clippy::wildcard_enum_match_arm)]

use trawl_plan::ast::CompareOp;
use trawl_plan::family::{Acceleration, Anchor, Cycle, Mesa, Parabolic, SuperTrend, Trend, hull_half};
use trawl_plan::graph::{Binary, Bits, Op, SHORT_WINDOW_BARS, Unary};

use crate::Precision;
use crate::cuda::codegen::averages::{Averages, Constants, Means};
use crate::cuda::codegen::number::whole_divisor;
use crate::cuda::codegen::ring_slots::RingSlots;

/// Longest period of a dominant cycle: the length of the rings used to find it.
const CYCLE_BARS: usize = 50;

/// Maximum averages of a family: one bit each.
const FAMILY_MAX: usize = 32;

/// A table computed by the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    /// Sine and cosine of the parts of circles.
    Circles,
    /// Growth factors of returns, by bar.
    Growth { rate: Bits, cutout: u32 },
    /// The bars of each lane, if lanes are chunks.
    Lanes,
}

/// How a step takes its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// The current values.
    Values,
    /// The first input with this many bars before the current one; the others at the current bar.
    Past(usize),
    /// The inputs from this one on as one array.
    Array(usize),
}

/// How a step splits around a division: `operands` returns the operands, `with_quotient` continues with the quotient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Division {
    /// Of its state, by any number.
    OfState,
    /// Of its state, which is a mean: also `with_quotient_begun`, of a mean that there is, and `is_begun`, whether there was one at
    /// all bars since; `begin` gives lanes without bars one.
    OfMean,
    /// Of a type that bears its functions, by any number.
    OfValues(&'static str),
    /// Of `DividedByWhole`, by a whole number that the host knows: it has a `quotient` of its own.
    ByWhole,
}

#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// The type of its state, if it has one, otherwise its function.
    pub name: String,
    pub has_state: bool,
    /// Number of 32-bit registers of its state.
    pub registers: usize,
    pub takes: Takes,
    pub wants_bar: bool,
    pub ints: Vec<i32>,
    pub doubles: Vec<f64>,
    pub table: Option<Table>,
    pub rings: Vec<RingSlots>,
    /// Number of bars before the first wanted one that it must process when it starts in the middle of a history.
    pub back: usize,
    /// Averages that it computes first, and takes as an array.
    pub means: Option<Means>,
    /// Whether it has a branch-free `next_settled` for bars past its seed; `is_settled` tests that from its integers.
    pub settles: bool,
    /// How it splits around a division, if it does.
    pub divides: Option<Division>,
    /// Whether it keeps where it is in a block of its period, its first integer.
    pub keeps_block: bool,
    /// Whether it begins blocks of that period; at other bars `next_inside` suffices.
    pub blocks: bool,
    /// Whether it also has `next_begins`, for several bars at once of which one begins a block.
    pub begins_together: bool,
    /// Whether it has a function of two bars side by side, too: with an "s" behind its name.
    pub pairs: bool,
    /// Whether its numbers are `f64` whatever the kernel's are, as on the CPU: its rings and its parameters too.
    pub wide: bool,
    /// Whether its result is a condition: of comparisons a `Truth`, which takes no number.
    pub is_condition: bool,
}

impl Form {
    fn function(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            has_state: false,
            registers: 0,
            takes: Takes::Values,
            wants_bar: false,
            ints: Vec::new(),
            doubles: Vec::new(),
            table: None,
            rings: Vec::new(),
            back: 0,
            means: None,
            settles: false,
            divides: None,
            keeps_block: false,
            blocks: false,
            begins_together: false,
            pairs: false,
            wide: false,
            is_condition: false,
        }
    }

    fn condition(name: &str) -> Self {
        Self { is_condition: true, ..Self::function(name) }
    }

    fn state(name: impl Into<String>, registers: usize) -> Self {
        Self { has_state: true, registers, ..Self::function(name) }
    }

    /// A window that is cut into blocks of its period: it is complete one period after the first block begin that it
    /// processed.
    fn window(name: impl Into<String>, registers: usize, p: u32, rings: usize) -> Self {
        let slots = RingSlots::UpTo(p as usize);
        let form = Self::state(name, registers).ints([p]).rings(vec![slots; rings]);
        Self { keeps_block: true, ..form.back(2 * (p as usize).saturating_sub(1)) }
    }

    /// A function of the last `p` bars of its first input, this one included.
    fn past(name: impl Into<String>, p: u32, before: usize) -> Self {
        Self { takes: Takes::Past(before), ..Self::function(name).ints([p]).back(before) }
    }

    fn ints(mut self, ints: impl IntoIterator<Item = u32>) -> Self {
        self.ints.extend(ints.into_iter().map(|x| i32::try_from(x).unwrap_or(i32::MAX)));
        self
    }

    fn doubles(mut self, doubles: impl IntoIterator<Item = f64>) -> Self {
        self.doubles.extend(doubles);
        self
    }

    fn in_blocks(self) -> Self {
        Self { blocks: true, ..self }
    }

    fn dividing(self) -> Self {
        Self { divides: Some(Division::OfState), ..self }
    }

    /// Whether it computes averages whose lengths are constants of the text.
    pub fn has_constant_lengths(&self) -> bool {
        self.means.as_ref().is_some_and(|means| means.constant)
    }

    /// A step that the CPU computes in `f64` in both precisions.
    fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// Number of 32-bit registers of its state in a kernel over numbers of this type. Of states of `f32` about half: what
    /// they have besides numbers is little.
    pub fn registers_in(&self, precision: Precision) -> usize {
        match precision {
            Precision::F32 if !self.wide => self.registers.div_ceil(2),
            Precision::F64 | Precision::F32 => self.registers,
        }
    }

    fn settling(self) -> Self {
        Self { settles: true, ..self }
    }

    fn rings(self, rings: Vec<RingSlots>) -> Self {
        Self { rings, ..self }
    }

    fn back(self, back: usize) -> Self {
        Self { back, ..self }
    }

    fn table(self, table: Table) -> Self {
        Self { table: Some(table), ..self }
    }

    fn takes(self, takes: Takes) -> Self {
        Self { takes, ..self }
    }

    fn at_bar(self) -> Self {
        Self { wants_bar: true, ..self }
    }

    /// The form of a division by a constant, if that is a whole number.
    pub fn division_by(by: f64, precision: Precision) -> Option<Self> {
        let form = Self::function("divided_by_whole").doubles(whole_divisor(by, precision)?);
        Some(Self { divides: Some(Division::ByWhole), ..form })
    }

    /// The form of a family's signal that computes its averages itself.
    pub fn family(op: Op, averages: &Averages, constants: Constants, precision: Precision) -> Option<Self> {
        let means = averages.means(constants, precision);
        let form = Self::of(op, 3 + averages.lens.len())?;
        let takes = means.past.map_or(Takes::Values, Takes::Past);
        Some(Self { registers: form.registers + means.registers, takes, means: Some(means), ..form })
    }

    /// The form of `op` with `inputs` inputs; `None` if the GPU does not support it.
    pub fn of(op: Op, inputs: usize) -> Option<Self> {
        let share = |p: u32| 1.0 / f64::from(p);
        Some(match op {
            Op::Unary(u) => Self::function(unary(u)),
            Op::Binary(b) => Self { divides: split(b).map(Division::OfValues), ..Self::function(binary(b)) },
            Op::Compare(c) => Self::condition(compare(c)),
            Op::And => Self::condition("step_and"),
            Op::Or => Self::condition("step_or"),
            Op::Not => Self::condition("step_not"),
            Op::Select => Self::function("step_select"),
            Op::Lag(1) => Self::state("LagOne", 2).back(1),
            Op::Lag(bars) => Self::past("lag", bars, bars as usize),
            Op::Skip(p) => Self::state("Skip", 1).ints([p]),

            Op::Sum(p) | Op::Mean(p) => {
                let mean = matches!(op, Op::Mean(_));
                let (long, short) = if mean {
                    ("WindowTotal<true>", "WindowShort<true>")
                } else {
                    ("WindowTotal<false>", "WindowShort<false>")
                };
                let few = || Self::state(short, 6).ints([p]).back(p as usize - 1);
                let many = || Self { begins_together: true, ..Self::window(long, 5, p, 1).in_blocks() };
                let form = if p <= SHORT_WINDOW_BARS { few() } else { many() };
                form.doubles([share(p)])
            }
            Op::WeightedMean(p) => {
                let p = f64::from(p);
                Self::window("WindowWeighted", 7, p as u32, 1).in_blocks().doubles([2.0 / (p * (p + 1.0))])
            }
            Op::StdDev(p) => {
                Self::window("WindowDeviation", 7, p, 2).in_blocks().doubles([1.0 / (f64::from(p) * f64::from(p))])
            }
            Op::Max(p) => Self::window("WindowExtreme<false>", 3, p, 1).in_blocks(),
            Op::Min(p) => Self::window("WindowExtreme<true>", 3, p, 1).in_blocks(),
            Op::BarsSinceMax(p) => Self::window("WindowSince", 5, p, 2).doubles([1.0]).at_bar().wide(),
            Op::BarsSinceMin(p) => Self::window("WindowSince", 5, p, 2).doubles([-1.0]).at_bar().wide(),
            Op::Slope(p) => Self::window("WindowSlope", 7, p, 2).at_bar().wide(),
            Op::Beta(p) => Self::window("WindowJoint<true>", 15, p, 5).wide(),
            Op::Correlation(p) => Self::window("WindowJoint<false>", 15, p, 5).wide(),
            Op::MeanAbsDev(p) => {
                let form = Self::past("mean_deviation", p, p as usize - 1).doubles([share(p)]);
                Self { pairs: true, ..form }
            }
            Op::PercentRank(p) => Self::past("percent_rank", p, p as usize),
            Op::VariableMean { least, most } => {
                Self::past("variable_mean", least, most as usize - 1).ints([most]).wide()
            }
            Op::OrderStatistic { p, rank } => {
                let slots = RingSlots::UpTo(p as usize);
                let form = Self::state("WindowRanked", 2).ints([p, rank]).rings(vec![slots; 2]);
                form.back(p as usize - 1)
            }
            Op::Within(p) => fold(p, 1.0),
            Op::Streak(p) => fold(p, 0.0),
            Op::MaxIndex(p) | Op::MinIndex(p) => {
                let sign = if matches!(op, Op::MaxIndex(_)) { 1.0 } else { -1.0 };
                let form = Self::state("ExtremeIndex", 4).ints([p]).doubles([sign]);
                form.takes(Takes::Past(p as usize - 1))
            }

            Op::Ema { p, delay } => smoothed(p, delay, 2.0 / (f64::from(p) + 1.0)),
            Op::EmaBy { p, delay, factor } => smoothed(p, delay, factor.value()),
            Op::Wilder(p) => smoothed(p, 0, share(p)),
            Op::WilderSum(p) => Self::state("WilderSum", 4).ints([p]).doubles([share(p)]).settling(),
            Op::WilderTotal(p) => {
                let share = whole_divisor(f64::from(p), Precision::F64)?;
                Self::state("WilderTotal", 3).ints([p]).doubles(share).settling().wide()
            }
            Op::WilderRatio(p) => Self::state("WilderRatio", 4).ints([p]).doubles([share(p)]).settling().dividing(),
            Op::Kaufman => Self { divides: Some(Division::OfMean), ..Self::state("Kaufman", 2) },
            Op::Cumulative => Self::state("Cumulative", 4),
            Op::Product => Self::state("Product", 2).wide(),
            Op::Previous => Self::state("Previous", 2),
            Op::OnBalance => Self::state("OnBalance", 4),
            Op::HeikinAshi => Self::state("HeikinAshi", 2).wide(),
            Op::AnchoredMean { anchor, previous } => {
                let anchor = match anchor {
                    Anchor::Start => "ANCHOR_START",
                    Anchor::Highest => "ANCHOR_HIGHEST",
                    Anchor::Lowest => "ANCHOR_LOWEST",
                };
                Self::state(format!("AnchoredMean<{anchor}, {previous}>"), if previous { 21 } else { 13 }).wide()
            }
            Op::Parabolic(constants) => parabolic(constants),
            Op::SuperTrend(result) => Self::state(format!("SuperTrend<{}>", result == SuperTrend::Trend), 7).wide(),
            Op::Hilbert(result) => hilbert(result),
            Op::Mesa { fast, slow, result } => {
                let form = Self::state(format!("Mesa<{}>", result == Mesa::Fama), 82);
                form.doubles([fast.value(), slow.value()]).wide()
            }

            Op::CrossesAbove => Self::state("CrossesAbove", 4).back(1),
            Op::CrossesBelow => Self::state("CrossesBelow", 4).back(1),
            Op::Since => Self::state("Since", 2).wide(),
            Op::ValueWhen => Self::state("ValueWhen", 2),
            Op::MaxSince => Self::state("ExtremeSince<true>", 4),
            Op::MinSince => Self::state("ExtremeSince<false>", 4),
            Op::Ever => Self::state("Ever", 2),
            Op::EverSince => Self::state("EverSince", 2),

            Op::TrendMean { family, len } => trend_mean(family, len),
            Op::GrownReturn { rate, cutout } => {
                // The launch replaces this number by the table's length.
                Self::function("grown_return").ints([0]).table(Table::Growth { rate, cutout })
            }
            Op::FamilySignal { decay, cutout } => {
                // All inputs but price, return and bar number are averages.
                let averages = inputs.checked_sub(3).filter(|n| (1..=FAMILY_MAX).contains(n))?;
                let form = Self::state(format!("FamilySignal<{averages}>"), 4 + 2 * averages);
                form.takes(Takes::Array(3)).ints([cutout]).doubles([decay.value()])
            }
            Op::SignalEquity { start, decay, cutout } => {
                Self::state("SignalEquity", 4).ints([cutout]).doubles([start.value(), decay.value()])
            }
            Op::TrendVote { long, short } => {
                Self::function("trend_vote").takes(Takes::Array(0)).doubles([long.value(), short.value()])
            }

            // Reads of another frame or another symbol are inputs of a program, and so are all leaves.
            Op::Column(_)
            | Op::Constant(_)
            | Op::Label(_)
            | Op::HistoryMask
            | Op::Begins(_)
            | Op::Clock(_)
            | Op::Attribute(_)
            | Op::Cross(_)
            | Op::Read(_) => return None,
        })
    }
}

fn smoothed(p: u32, delay: u32, factor: f64) -> Form {
    Form::state("Smoothed", 6).ints([p, delay]).doubles([factor, 1.0 / f64::from(p)]).settling()
}

/// Whether a condition holds at one of the last `p` bars, or at all of them.
fn fold(p: u32, wanted: f64) -> Form {
    Form::state("WindowFold", 4).ints([p]).doubles([wanted]).at_bar().back(p as usize - 1).wide()
}

fn parabolic(constants: Parabolic) -> Form {
    // As in TA-Lib, values above the maximum are lowered to it.
    let pace = |a: Acceleration| {
        let most = a.most.value();
        [a.start.value().min(most), a.step.value().min(most), most]
    };
    let alike = if constants.long == constants.short { "true" } else { "false" };
    let form = Form::state(format!("Parabolic<{alike}>"), 12).ints([u32::from(constants.signed)]);
    form.doubles([constants.start.value(), constants.offset.value()])
        .doubles(pace(constants.long))
        .doubles(pace(constants.short))
        .settling()
        .wide()
}

fn hilbert(result: Cycle) -> Form {
    let name = match result {
        Cycle::Period => "CYCLE_PERIOD",
        Cycle::InPhase => "CYCLE_IN_PHASE",
        Cycle::Quadrature => "CYCLE_QUADRATURE",
        Cycle::Phase => "CYCLE_PHASE",
        Cycle::Sine => "CYCLE_SINE",
        Cycle::LeadSine => "CYCLE_LEAD_SINE",
        Cycle::Trendline => "CYCLE_TRENDLINE",
        Cycle::TrendMode => "CYCLE_TREND_MODE",
    };
    let slots = if result.is_early() { 0 } else { CYCLE_BARS };
    let form = Form::state(format!("Hilbert<{name}>"), if result.is_early() { 80 } else { 96 });
    form.table(Table::Circles).rings(vec![RingSlots::Exactly(slots); 2]).wide()
}

fn trend_mean(family: Trend, len: u32) -> Form {
    let bars = len as usize;
    match family {
        Trend::Wma => Form::past("trend_wma", len, bars.saturating_sub(1)),
        Trend::Lsma => Form::past("trend_lsma", len, bars.saturating_sub(1)),
        Trend::Hma => {
            let half = hull_half(len);
            let smooth = len.isqrt();
            let before = len.max(half) as usize - 1;
            let form = Form::state("TrendHull", 1).ints([half, len, smooth]).takes(Takes::Past(before));
            form.rings(vec![RingSlots::UpTo(smooth as usize)]).back(before + smooth as usize - 1)
        }
        Trend::Ema | Trend::Dema => {
            let form = Form::state(format!("TrendExponential<{}>", family == Trend::Dema), 12);
            form.ints([len]).doubles([2.0 / (f64::from(len) + 1.0)])
        }
        Trend::Kama => Form::state("TrendKaufman", 2).ints([len]).takes(Takes::Past(bars)),
    }
}

fn unary(op: Unary) -> &'static str {
    match op {
        Unary::Negate => "step_negate",
        Unary::Abs => "step_abs",
        Unary::Sqrt => "step_sqrt",
        Unary::Log => "step_log",
        Unary::Exp => "step_exp",
        Unary::Sign => "step_sign",
        Unary::Round => "step_round",
        Unary::Ceil => "step_ceil",
        Unary::Floor => "step_floor",
        Unary::Ln => "step_ln",
        Unary::Log10 => "step_log10",
        Unary::Sin => "step_sin",
        Unary::Cos => "step_cos",
        Unary::Tan => "step_tan",
        Unary::Asin => "step_asin",
        Unary::Acos => "step_acos",
        Unary::Atan => "step_atan",
        Unary::Sinh => "step_sinh",
        Unary::Cosh => "step_cosh",
        Unary::Tanh => "step_tanh",
    }
}

fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "step_add",
        Binary::Subtract => "step_subtract",
        Binary::Multiply => "step_multiply",
        Binary::Divide => "step_divide",
        Binary::Quotient => "step_quotient",
        Binary::Remainder => "step_remainder",
        Binary::Maximum => "step_maximum",
        Binary::Minimum => "step_minimum",
        Binary::Power => "step_power",
        Binary::RatioOrZero => "step_ratioorzero",
        Binary::RatioOrZeroEpsilon => "step_ratioorzeroepsilon",
        Binary::MaskUndefined => "step_gate",
        Binary::Coalesce => "step_orelse",
        Binary::Near => "step_near",
    }
}

/// The type with both halves of an operation that divides.
fn split(op: Binary) -> Option<&'static str> {
    match op {
        Binary::Divide => Some("SplitQuotient<ByNonzero>"),
        Binary::Quotient => Some("SplitQuotient<ByAny>"),
        Binary::RatioOrZero => Some("SplitQuotient<ByNonzeroOrZero>"),
        Binary::RatioOrZeroEpsilon => Some("SplitQuotient<ByMoreThanEpsilonOrZero>"),
        Binary::Add
        | Binary::Subtract
        | Binary::Multiply
        | Binary::Remainder
        | Binary::Maximum
        | Binary::Minimum
        | Binary::Power
        | Binary::MaskUndefined
        | Binary::Coalesce
        | Binary::Near => None,
    }
}

fn compare(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Less => "step_less",
        CompareOp::LessEqual => "step_lessequal",
        CompareOp::Greater => "step_greater",
        CompareOp::GreaterEqual => "step_greaterequal",
        CompareOp::Equal => "step_equal",
        CompareOp::NotEqual => "step_notequal",
    }
}
