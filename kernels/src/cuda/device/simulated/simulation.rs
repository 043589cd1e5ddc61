//! What a simulated device is told to be: its size, its speed, and what goes wrong on it.

use std::time::Duration;

use crate::cuda::device::arguments::Limits;

/// What a simulated device is, and what goes wrong on it. Allocations and launches are counted from 1.
#[derive(Debug, Clone)]
pub struct Simulation {
    pub memory_bytes: u64,
    pub shared_bytes: usize,
    /// Bytes that are copied in a second, each way.
    pub copied_bytes_per_s: f64,
    /// Of every kernel.
    pub kernel: Duration,
    /// Time goes by for real.
    pub real_time: bool,
    /// Memory that is given back is kept for allocations of the same size until the device is trimmed.
    pub keeps_freed: bool,
    /// The allocation that finds no memory.
    pub no_memory_at: Option<u64>,
    /// The launch that takes so long.
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
    /// Reads what a test's environment says: `memory=BYTES kernel=MS no_memory_at=N slow_at=N:MS illegal_at=N`, any of
    /// them. Time is real.
    ///
    /// # Errors
    /// A sentence that says what is expected.
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
