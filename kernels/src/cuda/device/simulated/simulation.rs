//! Configuration of a simulated device: its size, speed and faults.

use std::time::Duration;

use crate::cuda::device::arguments::Limits;

/// Configuration of a simulated device. Allocations and launches are counted from 1.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Maximum bytes of shared memory per block.
    pub shared_bytes: usize,
    /// Copy bandwidth in bytes per second, in each direction.
    pub copied_bytes_per_s: f64,
    /// Duration of every kernel.
    pub kernel: Duration,
    /// Whether time is real instead of virtual.
    pub real_time: bool,
    /// Whether released memory is kept for allocations of the same size until the device is trimmed.
    pub keeps_freed: bool,
    /// The allocation that fails for lack of memory.
    pub no_memory_at: Option<u64>,
    /// The launch that is slow, and its duration.
    pub slow_at: Option<(u64, Duration)>,
    /// The launch that writes to an illegal address.
    pub illegal_at: Option<u64>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            shared_bytes: Limits::default().shared_bytes,
            copied_bytes_per_s: 1e10,
            kernel: Duration::from_millis(1),
            real_time: false,
            keeps_freed: false,
            no_memory_at: None,
            slow_at: None,
            illegal_at: None,
        }
    }
}

impl Simulation {
    /// Parses a test's environment variable: `memory=BYTES kernel=MS no_memory_at=N slow_at=N:MS illegal_at=N`, any
    /// subset. Time is real.
    ///
    /// # Errors
    /// A sentence stating what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut simulation = Self { real_time: true, ..Self::default() };
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no whole number"));
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not NAME=VALUE"))?;
            match name {
                "memory" => simulation.memory_bytes = number(value)?,
                "kernel" => simulation.kernel = Duration::from_millis(number(value)?),
                "no_memory_at" => simulation.no_memory_at = Some(number(value)?),
                "illegal_at" => simulation.illegal_at = Some(number(value)?),
                "slow_at" => {
                    let (at, ms) = value.split_once(':').ok_or("slow_at is LAUNCH:MS")?;
                    simulation.slow_at = Some((number(at)?, Duration::from_millis(number(ms)?)));
                }
                _ => return Err(format!("'{name}' is not memory, kernel, no_memory_at, slow_at or illegal_at")),
            }
        }
        Ok(simulation)
    }
}
