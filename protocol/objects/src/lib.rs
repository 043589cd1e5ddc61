//! Object stores by address: how `s3://`, `gs://` and `az://` are opened, over which connections, and what their errors mean. Results of
//! scans and datasets are kept in them.
//!
//! What is stored, and under which names, is decided by those who use this.

#![forbid(unsafe_code)]

mod address;
mod bucket;
mod http;
mod trouble;

pub use address::{Address, AddressError, BucketAddress, Provider};
pub use bucket::{Environment, open_bucket};
pub use http::{BODY_BYTES_MAX, time_limit};
pub use trouble::{Trouble, TroubleKind};
