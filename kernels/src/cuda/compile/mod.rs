//! Compiles kernel text: locating NVIDIA's libraries, the compiler, the cache of compiled kernels, and detection of a
//! usable device.

pub(super) mod cache;
pub(super) mod device_name;
pub(super) mod device_probe;
pub(super) mod library;
pub(super) mod nvrtc;
