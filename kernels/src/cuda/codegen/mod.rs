//! From a program to the text of a kernel: which step of `kernels/cuda` each primitive is, which warp runs it, and the loops
//! around them. Pure: no driver, no compiler, no device.

pub(super) mod family;
pub(super) mod family_text;
pub(super) mod headers;
pub(super) mod lower;
pub(super) mod part_text;
pub(super) mod step_abi;
pub(super) mod steps;
pub(super) mod text;
pub(super) mod warp_partition;
