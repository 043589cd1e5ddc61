//! Running a kernel without a device: what tests of texts and codes pass to [`Sequence::run`](crate::cuda::Sequence::run).

use std::fmt::Debug;

use crate::cuda::codegen::lower::Lowered;
use crate::cuda::device::arguments::Launch;

/// Memory that a kernel reads and writes. Numbers are `f64` whatever the kernel's are: a launcher rounds what a kernel of
/// `f32` reads, and widens what it writes.
pub struct Bound<'a> {
    /// Columns of the kernel.
    pub columns: Vec<&'a [f64]>,
    /// Outputs, one after the other, in the layout of [`Market::place`](crate::cuda::Market::place).
    pub out: &'a mut [f64],
    /// Rings that do not fit into shared memory.
    pub scratch: &'a mut [f64],
    /// As [`Launch::table`].
    pub table: &'a [f64],
    /// As [`Market::first_row`](crate::cuda::Market::first_row).
    pub first_row: &'a [i64],
    /// As [`Market::visible`](crate::cuda::Market::visible).
    pub visible: &'a [i32],
    /// As [`Launch::tail`].
    pub tail: &'a [i32],
}

/// Runs kernels in the host's memory.
pub trait Launcher: Send + Sync + Debug {
    /// # Errors
    /// A sentence.
    fn run(&self, lowered: &Lowered, launch: &Launch, memory: Bound<'_>) -> Result<(), String>;
}
