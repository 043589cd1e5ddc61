//! Running a kernel's text or program without a device: what a simulated device calls.

use std::fmt::Debug;

use crate::cuda::codegen::lower::Lowered;
use crate::cuda::device::arguments::Launch;

/// Memory that a kernel reads and writes.
pub struct Bound<'a> {
    /// Columns of the kernel.
    pub columns: Vec<&'a [f64]>,
    pub out: &'a mut [f64],
    pub scratch: &'a mut [f64],
    pub table: &'a [f64],
    pub first_row: &'a [i64],
    pub visible: &'a [i32],
    pub tail: &'a [i32],
}

/// Runs kernels of a simulated device.
pub trait Launcher: Send + Sync + Debug {
    /// # Errors
    /// A sentence.
    fn run(&self, lowered: &Lowered, launch: &Launch, memory: Bound<'_>) -> Result<(), String>;
}
