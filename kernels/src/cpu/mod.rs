//! The CPU engine: one lane one symbol, so recurrences vectorise; strips of bars, so that what one step writes is
//! still in cache when the next one reads it; only the bars that the wanted values need are computed.

mod afresh;
#[cfg(test)]
mod agreement;
mod composite;
mod elementwise;
mod extremes;
mod fuse;
mod lanes;
mod pack;
#[cfg(target_arch = "x86_64")]
mod pack_x86;
mod program;
mod real;
mod recurrence;
mod steps;
mod tasks;
mod tile;
mod widened;
mod window;

pub(crate) use lanes::LANES;
pub(crate) use program::{Workspace, column_begins, workspace_bytes};
pub(crate) use real::Real;
pub(crate) use tile::Tile;
