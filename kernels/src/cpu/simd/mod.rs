//! Sixteen symbols side by side: the two number types, one row of values in the registers of each instruction set, and
//! how the state of a step is saved.
//!
//! These files refer to one another: a number type names its packs, a pack is a row of a number type, and both are
//! loaded and saved. The cycle is deliberate; everything above sees one vocabulary.

pub(super) mod float;
pub(super) mod pack;
#[cfg(target_arch = "x86_64")]
mod pack_x86;
mod spread;
pub(super) mod state_io;
pub(super) mod vector;
pub(super) mod widened;
