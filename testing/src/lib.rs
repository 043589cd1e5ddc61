//! Stand-ins for tests: as strict as what they replace, and never part of the shipped executable.
//!
//! [`MemoryStore`] is the control store in memory, with etcd's limits and errors.

#![forbid(unsafe_code)]

mod memory_store;

pub use memory_store::{Backup, MEMORY_CALL_TIMEOUT, MemoryLimits, MemoryStore};
