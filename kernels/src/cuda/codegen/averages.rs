//! The averages that a family's signal computes itself, as data of a step.

use trawl_plan::family::Trend;

use crate::cuda::codegen::ring_slots::RingSlots;

/// Which parameters of a plan are constants in the text of its kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Constants {
    /// None: plans of one shape share their kernels, and other periods compile nothing.
    #[default]
    None,
    /// The lengths of families of averages: several times as fast, for these lengths only.
    Lengths,
}

/// The averages of a family over one series, in order of summation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Averages {
    pub family: Trend,
    pub lens: Vec<u32>,
}

/// How the averages of a family are generated.
#[derive(Debug, Clone)]
pub(crate) struct Means {
    /// The type of their state.
    pub name: String,
    pub registers: usize,
    /// Bars before the current one that they read; `None` if they take only the current value.
    pub past: Option<usize>,
    pub ints: Vec<i32>,
    pub doubles: Vec<f64>,
    pub ring: Option<RingSlots>,
    /// Per average, in order of summation: its index by length.
    pub places: Vec<usize>,
    /// Approximate number of arithmetic operations per bar.
    pub load: usize,
    /// Whether the lengths are constants of the text.
    pub constant: bool,
}
