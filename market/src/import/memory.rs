//! How an import divides its memory.

use std::fs;

use crate::limits::{IMPORT_MEMORY_MIN, PIECE_BYTES};
use crate::reading::Pace;

/// Memory where the machine does not say how much it has.
const UNKNOWN_BYTES: u64 = 2 << 30;
/// Memory of the process besides rows: the program, calendars, tables.
const FIXED_BYTES: u64 = 64 << 20;
/// A piece of text takes this many times its bytes until its rows are kept: itself, its cells, its rows twice.
const PIECE_TIMES: u64 = 4;
/// Bytes of the shortest piece of text.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// The memory of an import, in bytes.
pub(crate) struct MemoryPlan {
    /// What rows, pieces and groups may take together.
    bytes: u64,
}

impl MemoryPlan {
    /// From the memory that the import may use; `None` takes half of what the machine has left.
    pub fn of(memory: Option<u64>) -> Self {
        let memory = memory.unwrap_or_else(|| (available().unwrap_or(2 * UNKNOWN_BYTES) / 2).max(IMPORT_MEMORY_MIN));
        Self { bytes: memory.saturating_sub(FIXED_BYTES).max(memory / 4) }
    }

    /// For rows that were read, from which on they go to a file. While those are written, as many again may be read.
    pub fn rows(&self) -> u64 {
        self.bytes / 10 * 3
    }

    /// For groups that are written.
    pub fn groups(&self) -> u64 {
        self.bytes / 10 * 5
    }

    /// How so many files are read side by side.
    pub fn pace(&self, readers: usize) -> Pace {
        let pieces = (2 * rayon::current_num_threads()).div_ceil(readers);
        let bytes = self.bytes / 5 / (PIECE_TIMES * (readers * pieces) as u64);
        Pace { pieces, bytes: bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES as u64) as usize }
    }
}

/// Memory that is free on this machine, or that a container leaves to it, whichever is less.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024);
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|limit| limit.trim().parse::<u64>().ok());
    Some(limit.map_or(free, |limit| limit.min(free)))
}
