//! The CPU engine: one symbol per lane, so recurrences vectorise; strips of bars, so that the output of a step is still
//! in cache when the next one reads it; only bars that the wanted values depend on are computed.
//!
//! Dependencies point down: `run` → `lower` → `primitives` → `simd`.

mod lower;
mod primitives;
mod run;
mod simd;

pub(crate) use lower::schedule::{Schedule, least_common_multiple};
pub(crate) use primitives::cycle::circle_table;
pub(crate) use primitives::trend::growth_of;
pub(crate) use run::resident::{Lane, ResidentLayout, ResidentTile, Scratch};
pub(crate) use run::resume::{Course, Cut, carried};
pub(crate) use run::strips::{Source, Workspace, workspace_bytes};
pub(crate) use run::tile::{Lanes, PADDING, Tile};
pub(crate) use simd::float::Real;
pub(crate) use simd::vector::LANES;
