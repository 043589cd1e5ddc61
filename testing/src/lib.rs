//! Stand-ins for tests: as strict as what they replace, and never part of the shipped executable.
//!
//! [`MemoryStore`] is the control store in memory, with etcd's limits and errors; [`sample_answer`] has a row of each status;
//! [`Pty`] is a terminal.

#![forbid(unsafe_code)]

mod memory_store;
mod pty;
mod sample;

pub use memory_store::{Backup, MEMORY_CALL_TIMEOUT, MemoryLimits, MemoryStore};
pub use pty::{Pty, Screen};
pub use sample::sample_answer;
