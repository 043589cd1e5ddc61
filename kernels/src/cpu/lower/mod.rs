//! Lowers programs to tasks: which nodes run as one group, in which order, over which rows, and where their series are
//! kept.

pub(super) mod fuse;
pub(super) mod fused_op;
pub(super) mod schedule;
pub(super) mod steps;
