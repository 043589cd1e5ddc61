//! The CPU engine: one lane one symbol, so recurrences vectorise; strips of bars, so that what one step writes is
//! still in cache when the next one reads it; only the bars that the wanted values need are computed.

mod afresh;
#[cfg(test)]
mod agreement;
mod anchored;
mod carry;
mod composite;
mod cycle;
mod elementwise;
mod extremes;
mod fuse;
mod index;
mod joint;
mod lane;
mod lanes;
mod pack;
#[cfg(target_arch = "x86_64")]
mod pack_x86;
mod pick;
mod program;
mod ranked;
mod real;
mod recurrence;
mod regression;
mod resident;
mod resume;
mod running;
mod steps;
mod stops;
mod tasks;
mod tile;
mod trend;
mod widened;
mod window;
mod work;

pub(crate) use cycle::circle_table;
pub(crate) use lanes::LANES;
pub(crate) use program::{Workspace, workspace_bytes};
pub(crate) use real::Real;
pub(crate) use resident::{Lane, Layout as ResidentLayout, ResidentTile, Scratch};
pub(crate) use resume::{Course, Cut, carried};
pub(crate) use tasks::Schedule;
pub(crate) use tile::{PADDING, Tile};
pub(crate) use trend::growth_of;
