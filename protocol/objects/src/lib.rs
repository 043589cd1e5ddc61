//! Object stores by address: how `s3://BUCKET/PREFIX` is opened, over which connections, and what its errors mean. Results of
//! scans and datasets are kept in them.
//!
//! What is stored, and under which names, is decided by those who use this.

#![forbid(unsafe_code)]

mod address;
mod http;
mod s3;
mod trouble;

pub use address::{Address, AddressError};
pub use http::{BODY_BYTES_MAX, time_limit};
pub use s3::{open_bucket, open_bucket_as};
pub use trouble::{Trouble, TroubleKind};
