//! What is true of every primitive, whoever runs it: the columns of the table [`Op::facts`](crate::graph::Op::facts), which
//! has a row for each [`Op`](crate::graph::Op) and no default. Planning, the CPU and CUDA lower programs by these facts and do not
//! decide them anew.
//!
//! Deliberately not here: the steps themselves (`kernels`), and how values are written in a kernel (`kernels/src/cuda/codegen/step_abi.rs`).

use crate::ast::CompareOp;
use crate::frame::Read;
use crate::op::{Binary, Bits, Unary};
use crate::scalar;
use trawl_terms::{Clock, Period};

/// Periods of warm-up of exponential and Wilder filters under a limited history. At 12 an RSI(14) of real stocks was off
/// by at most 0.002 points, at 5 by 0.83.
pub const WARM_UP_PERIODS: usize = 12;

/// Sums and means of at most so many bars are added up anew at every bar; longer ones are cut into blocks (ADR 2).
pub const SHORT_WINDOW_BARS: u32 = 4;

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpFacts {
    /// What makes its series.
    pub class: Class,
    /// Bars that the primitive needs before the current one, given its inputs are defined: 0 for element-wise ones, and
    /// for the averages of a trend classification, whose NA at the beginning are data of what is made of them.
    pub look_back: usize,
    /// The input that is read at the current bar only.
    pub now_only: Option<usize>,
    /// Bars before the current one that its step reads of its inputs; a recursive step keeps what it needs itself.
    pub reads_back: usize,
    /// How much of the past it depends on.
    pub memory: Memory,
    /// How it depends on the numbers of bars.
    pub blocks: Blocks,
    /// Estimated nanoseconds of one core per bar and symbol, for the cost model; measured once on the portable path.
    pub cost_ns: f64,
    /// Whether it is a moving average.
    pub is_average: bool,
}

/// What makes a primitive's series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Class {
    /// Nothing: the series is given.
    Leaf(Leaf),
    /// A function of the inputs' current values.
    Pointwise(Pointwise),
    /// A step that goes through bars.
    StepFacts(StepFacts),
}

/// Primitives without a step. In a program all but constants and lags are inputs, that is `Column`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Leaf {
    /// As [`Op::Column`](crate::graph::Op::Column).
    Column(u16),
    /// As [`Op::Constant`](crate::graph::Op::Constant).
    Constant(Bits),
    /// As [`Op::Label`](crate::graph::Op::Label).
    Label(u16),
    /// As [`Op::Attribute`](crate::graph::Op::Attribute).
    Attribute(u16),
    /// As [`Op::HistoryMask`](crate::graph::Op::HistoryMask).
    HistoryMask,
    /// As [`Op::Begins`](crate::graph::Op::Begins).
    Begins(Period),
    /// As [`Op::Clock`](crate::graph::Op::Clock).
    Clock(Clock),
    /// As [`Op::Cross`](crate::graph::Op::Cross).
    Cross(u16),
    /// As [`Op::Read`](crate::graph::Op::Read).
    Read(Read),
}

/// Functions of values, which are computed at once where the values are constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pointwise {
    /// Of one input.
    Unary(Unary),
    /// Of two inputs.
    Binary(Binary),
    /// A comparison of two inputs: 1, 0 or NA.
    Compare(CompareOp),
    /// Kleene and of two inputs.
    And,
    /// Kleene or of two inputs.
    Or,
    /// Kleene not of one input.
    Not,
    /// As [`Op::Select`](crate::graph::Op::Select), of three inputs.
    Select,
}

impl Pointwise {
    /// Its value; `None` when an input is missing.
    pub(crate) fn value(self, input: impl Fn(usize) -> Option<f64>) -> Option<f64> {
        Some(match self {
            Self::Unary(u) => scalar::unary(u, input(0)?),
            Self::Binary(b) => scalar::binary(b, input(0)?, input(1)?),
            Self::Compare(c) => scalar::compare(c, input(0)?, input(1)?),
            Self::And => scalar::and(input(0)?, input(1)?),
            Self::Or => scalar::or(input(0)?, input(1)?),
            Self::Not => scalar::not(input(0)?),
            Self::Select => scalar::select(input(0)?, input(1)?, input(2)?),
        })
    }

    fn cost_ns(self) -> f64 {
        match self {
            Self::Unary(u) => match u {
                Unary::Negate | Unary::Abs | Unary::Sqrt | Unary::Sign | Unary::Round | Unary::Ceil | Unary::Floor => {
                    0.3
                }
                Unary::Log
                | Unary::Exp
                | Unary::Ln
                | Unary::Log10
                | Unary::Sin
                | Unary::Cos
                | Unary::Tan
                | Unary::Asin
                | Unary::Acos
                | Unary::Atan
                | Unary::Sinh
                | Unary::Cosh
                | Unary::Tanh => 10.0,
            },
            Self::Binary(b) => match b {
                Binary::Power => 10.0,
                Binary::Divide
                | Binary::Quotient
                | Binary::Remainder
                | Binary::RatioOrZero
                | Binary::RatioOrZeroEpsilon => 0.5,
                Binary::Add
                | Binary::Subtract
                | Binary::Multiply
                | Binary::Maximum
                | Binary::Minimum
                | Binary::MaskUndefined
                | Binary::Coalesce
                | Binary::Near => 0.3,
            },
            Self::Compare(_) | Self::And | Self::Or | Self::Not | Self::Select => 0.3,
        }
    }
}

/// What planning must know of a step's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepFacts {
    /// How much of its values is exact.
    pub values: Values,
    /// How its values rise with prices.
    pub shift: Shift,
    /// Which earlier bars its values are made of.
    pub past: Past,
    /// Which comparisons it decides by.
    pub decides: Decides,
}

/// How much of a step's values is exact, for the `edge` flag (see `exact`, docs/adr/0009).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Whole numbers of at least 0.
    Whole,
    /// Whole numbers.
    WholeOfEitherSign,
    /// Stored as they are.
    ExactOfEitherSign,
    /// At least 0; rounded, but their zeros are right.
    Share,
    /// Those of this input.
    Of(usize),
    /// Sums of this input's.
    SumOf(usize),
    /// Sums of this input's with either sign.
    SumOfEitherSign(usize),
    /// Means of the first input: of whole numbers one rounded quotient (docs/adr/0002).
    Mean,
    /// Means of the first input, rounded on the way.
    Averaged,
    /// Rounded in any other way.
    Rounded,
}

/// By how much a step's values rise when every price rises by one, for charts (see `level`). Of inputs that do not rise, no
/// step's values do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// By as much as this input's.
    Of(usize),
    /// By so many times as much as the first input's.
    Times(u32),
    /// By one.
    One,
    /// Not at all: differences, places and conditions do not see the level of their inputs.
    None,
    /// That depends on the values.
    Unknown,
}

/// Which earlier bars' values a value is made of, and what a missing one among them does (see `catalogue/gap.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// Of each input those of [`OpFacts::look_back_into`] and the current one; NA while one of them is.
    Window,
    /// That of so many bars ago, alone.
    Shifted(u32),
    /// Of the first input the last so many; one may be enough (Kleene).
    Kleene(u32),
    /// All defined ones: NA where an input is, and then it goes on.
    Held,
    /// Those since the first input was last true.
    SinceTrue,
    /// All of them; NA counts as false.
    Ever,
    /// NA is data.
    Data,
    /// As many of the first input as the second says, between the two.
    Varying {
        /// The least number of bars.
        least: u32,
        /// The largest number of bars.
        most: u32,
    },
}

/// Which comparisons a step decides by, for the `edge` flag (see `edge_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// None that rounding could turn and that has not been flagged at its inputs.
    Nothing,
    /// Its two inputs, now and one bar ago.
    Crossing,
    /// The first input with what it was one bar ago.
    Change,
    /// A close with the band whose passing turns a super trend.
    Band,
}

/// What a step remembers. Steps that are not finite run from the first bar; all of them can be saved, gone on from, and kept
/// resident a bar at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The bars that it reads, and nothing older: any stretch of time can be computed alone.
    Finite,
    /// The whole history, but what lies further back than the look-back and `warm_up` bars counts for nothing.
    Fading {
        /// Bars before the look-back that still count.
        warm_up: usize,
        /// Numbers of the map by which the chunks of a long history are computed side by side (docs/adr/0019, `ChunkMap` of
        /// `kernels/cuda/chunked.cuh`); `None` where there is no such map, and time is gone through serially.
        chunk_words: Option<usize>,
    },
    /// The whole history: no warm-up is long enough.
    Unbounded {
        /// As in [`Self::Fading`].
        chunk_words: Option<usize>,
    },
}

/// How a step depends on the numbers of bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// It does the same at every bar.
    None,
    /// Its sums begin anew every so many bars: the bits depend on a bar's number modulo this (ADR 2).
    Sums(u32),
    /// It is cut into blocks of so many bars, but selecting does not round: the bits do not depend on them.
    Extremes(u32),
    /// Its values are numbers of bars.
    BarNumbers,
}

impl Blocks {
    /// Of a plain sum or mean over `p` bars.
    pub(crate) fn of_total(p: u32) -> Self {
        if p <= SHORT_WINDOW_BARS { Self::None } else { Self::Sums(p) }
    }

    /// Bars of the blocks that its bits depend on.
    pub fn rounding_bars(self) -> Option<u32> {
        match self {
            Self::Sums(p) => Some(p),
            Self::None | Self::Extremes(_) | Self::BarNumbers => None,
        }
    }

    /// After how many bars the step does the same again; `None` when it never does.
    pub fn repeats_after(self) -> Option<u32> {
        match self {
            Self::None => Some(1),
            Self::Sums(p) | Self::Extremes(p) => Some(p),
            Self::BarNumbers => None,
        }
    }
}

impl OpFacts {
    /// Whether the value depends on the whole history: such nodes run from the first bar.
    pub fn is_recursive(&self) -> bool {
        self.memory != Memory::Finite
    }

    /// Whether the value never forgets where the history began, so that no warm-up is long enough.
    pub fn is_unbounded(&self) -> bool {
        matches!(self.memory, Memory::Unbounded { .. })
    }

    /// [`Self::look_back`] into one input: of an input that is read at the current bar only, none.
    pub fn look_back_into(&self, input: usize) -> usize {
        if self.now_only == Some(input) { 0 } else { self.look_back }
    }

    /// Bars that a limited history must hold before the first one that is seen: the look-back, and for filters that forget
    /// slowly their warm-up.
    pub fn reach(&self) -> usize {
        match self.memory {
            Memory::Fading { warm_up, .. } => self.look_back + warm_up,
            Memory::Finite | Memory::Unbounded { .. } => self.look_back,
        }
    }

    /// Numbers of the map of a recursive step's chunks; `None` where it has none.
    pub fn chunk_words(&self) -> Option<usize> {
        match self.memory {
            Memory::Finite => None,
            Memory::Fading { chunk_words, .. } | Memory::Unbounded { chunk_words } => chunk_words,
        }
    }

    /// What it is, if no step makes it.
    pub fn leaf(&self) -> Option<Leaf> {
        match self.class {
            Class::Leaf(leaf) => Some(leaf),
            Class::Pointwise(_) | Class::StepFacts(_) => None,
        }
    }

    /// Whether its series is read in place in a program: nothing is run for inputs and constants.
    pub fn is_leaf(&self) -> bool {
        self.leaf().is_some()
    }

    /// A series that is given.
    pub(crate) fn given(leaf: Leaf, cost_ns: f64) -> Self {
        Self {
            class: Class::Leaf(leaf),
            look_back: 0,
            now_only: None,
            reads_back: 0,
            memory: Memory::Finite,
            blocks: Blocks::None,
            cost_ns,
            is_average: false,
        }
    }

    /// A function of current values.
    pub(crate) fn of_values(function: Pointwise) -> Self {
        Self { class: Class::Pointwise(function), ..Self::given(Leaf::HistoryMask, function.cost_ns()) }
    }

    /// A moving average.
    pub(crate) fn average(self) -> Self {
        Self { is_average: true, ..self }
    }

    /// Reads this input at the current bar only.
    pub(crate) fn now_only(self, input: usize) -> Self {
        Self { now_only: Some(input), ..self }
    }

    /// Reads so many bars back.
    pub(crate) fn reads_back(self, bars: usize) -> Self {
        Self { reads_back: bars, ..self }
    }
}

/// A step's row before [`Time::values`]: how it goes through time.
pub(crate) struct Time {
    look_back: usize,
    memory: Memory,
    blocks: Blocks,
    cost_ns: f64,
}

/// A window of `p` bars, the current one included.
pub(crate) fn window(p: u32, blocks: Blocks, cost_ns: f64) -> Time {
    finite(p as usize - 1, blocks, cost_ns)
}

/// What looks back so many bars and remembers nothing older.
pub(crate) fn finite(look_back: usize, blocks: Blocks, cost_ns: f64) -> Time {
    Time { look_back, memory: Memory::Finite, blocks, cost_ns }
}

/// What forgets where its history began.
pub(crate) fn fading(look_back: usize, warm_up: usize, chunk_words: Option<usize>, cost_ns: f64) -> Time {
    Time { look_back, memory: Memory::Fading { warm_up, chunk_words }, blocks: Blocks::None, cost_ns }
}

/// What never forgets.
pub(crate) fn unbounded(look_back: usize, chunk_words: Option<usize>, cost_ns: f64) -> Time {
    Time { look_back, memory: Memory::Unbounded { chunk_words }, blocks: Blocks::None, cost_ns }
}

impl Time {
    /// Its values are numbers of bars.
    pub fn tells_bar_numbers(self) -> Self {
        Self { blocks: Blocks::BarNumbers, ..self }
    }

    pub fn values(self, values: Values, shift: Shift, past: Past) -> OpFacts {
        self.decides(values, shift, past, Decides::Nothing)
    }

    pub fn decides(self, values: Values, shift: Shift, past: Past, decides: Decides) -> OpFacts {
        let Self { look_back, memory, blocks, cost_ns } = self;
        OpFacts {
            class: Class::StepFacts(StepFacts { values, shift, past, decides }),
            look_back,
            now_only: None,
            reads_back: if memory == Memory::Finite { look_back } else { 0 },
            memory,
            blocks,
            cost_ns,
            is_average: false,
        }
    }
}
