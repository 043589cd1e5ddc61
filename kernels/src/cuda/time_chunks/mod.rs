//! Long histories cut into chunks that run in parallel: how they are cut, and the text of their kernels
//! (docs/adr/0019).

pub(super) mod codegen;
pub(super) mod plan;
