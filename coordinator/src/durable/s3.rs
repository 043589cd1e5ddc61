//! `s3://BUCKET/PREFIX`.

use super::results::ResultStore;
use super::store_error::StoreError;

/// Opens a bucket, with a prefix or without.
///
/// # Errors
/// [`StoreError::Address`].
pub(crate) fn open(rest: &str) -> Result<ResultStore, StoreError> {
    let expected = "this build keeps results in directories only: give a directory or file:///DIRECTORY".to_owned();
    Err(StoreError::Address { address: format!("s3://{rest}"), expected })
}
