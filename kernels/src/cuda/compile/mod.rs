//! From text to code: NVIDIA's libraries and where they are, the compiler, the cache of what was compiled, and whether this
//! machine has a device that can run it.

pub(super) mod cache;
pub(super) mod device_probe;
pub(super) mod library;
pub(super) mod nvrtc;
