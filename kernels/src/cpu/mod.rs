//! The CPU engine: one lane one symbol, so recurrences vectorise; strips of bars, so that what one step writes is
//! still in cache when the next one reads it; only the bars that the wanted values need are computed.

mod afresh;
mod anchored;
mod cycle;
mod elementwise;
mod exact;
mod index;
mod lane;
mod lanes;
mod pick;
mod program;
mod ranked;
mod recurrence;
mod regression;
mod running;
mod steps;
mod stops;
mod tile;
mod window;

pub(crate) use lanes::LANES;
pub(crate) use program::{Workspace, workspace_bytes};
pub(crate) use tile::Tile;
