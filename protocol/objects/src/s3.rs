//! `s3://BUCKET/PREFIX`: Amazon's object store, or a compatible one.
//!
//! Endpoint and credentials come from the environment, by the names that Amazon's own tools use (`AWS_REGION`,
//! `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...), or from the machine's role. The store must support conditional puts
//! (`If-None-Match`).

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::address::AddressError;
use crate::http::RustlsHttp;

/// Tries of one request inside the object store; the caller retries with longer waits.
const REQUEST_RETRIES_MAX: usize = 2;
/// Longest that the tries of one request may take together.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// A prefix as it is: keys may have percent signs, and other characters that would be encoded.
fn prefix_path(prefix: &str) -> Path {
    let prefix = prefix.trim_matches('/');
    Path::parse(prefix).unwrap_or_else(|_| Path::from(prefix))
}

/// Opens a bucket, with a prefix or without. No request is made yet.
///
/// # Errors
/// [`AddressError`]: no bucket, or an inconsistent environment.
pub fn open_bucket(rest: &str) -> Result<Arc<dyn ObjectStore>, AddressError> {
    open_bucket_as(rest, AmazonS3Builder::from_env())
}

/// The same with an environment that is not this process's.
///
/// # Errors
/// As [`open_bucket`].
pub fn open_bucket_as(rest: &str, environment: AmazonS3Builder) -> Result<Arc<dyn ObjectStore>, AddressError> {
    let shown = format!("s3://{rest}");
    let refuse = |expected: String| AddressError { address: shown.clone(), expected };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(refuse("expected s3://BUCKET or s3://BUCKET/PREFIX".to_owned()));
    }
    let http = RustlsHttp::new().map_err(refuse)?;
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: REQUEST_RETRIES_MAX,
        retry_timeout: RETRY_TIMEOUT,
    };
    let bucket = environment
        .with_bucket_name(bucket)
        .with_http_connector(http)
        .with_retry(retry)
        .build()
        .map_err(|error| refuse(format!("the environment does not fit: {error}")))?;
    let prefix = prefix_path(prefix);
    let objects: Arc<dyn ObjectStore> =
        if prefix.as_ref().is_empty() { Arc::new(bucket) } else { Arc::new(PrefixStore::new(bucket, prefix)) };
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_as_it_is() {
        assert_eq!(prefix_path("/a%20b/c~d/").as_ref(), "a%20b/c~d");
        assert_eq!(prefix_path("").as_ref(), "");
        assert_eq!(prefix_path("a//b").as_ref(), "a/b");
    }
}
