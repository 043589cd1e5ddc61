//! Generates the text of kernels from programs: maps each primitive to a step of `kernels/cuda` and to a warp, and
//! writes the loops around them. Pure: no driver, no compiler, no device.

pub(super) mod averages;
pub(super) mod family;
pub(super) mod family_text;
pub(super) mod fixed;
pub(super) mod headers;
pub(super) mod lower;
pub(super) mod number;
pub(super) mod one_bar;
pub(super) mod part_text;
pub(super) mod ring_slots;
pub(super) mod side_by_side;
pub(super) mod statement;
pub(super) mod step_abi;
pub(super) mod steps;
pub(super) mod text;
pub(super) mod warp_partition;
