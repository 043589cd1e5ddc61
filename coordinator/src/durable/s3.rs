//! `s3://BUCKET/PREFIX`: Amazon's object store, or one that speaks like it.
//!
//! Where it is and who we are comes from the environment, by the names that Amazon's own tools use (`AWS_REGION`,
//! `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...), or from the machine's role. The store must know conditional puts (`If-None-Match`).

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::http::RustlsHttp;
use super::results::ResultStore;
use super::store_error::StoreError;

/// Tries of one request inside the object store; whoever calls it tries again with longer waits.
const REQUEST_RETRIES_MAX: usize = 2;
/// Longest that the tries of one request may take together.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens a bucket, with a prefix or without. Nothing is asked of it yet.
///
/// # Errors
/// [`StoreError::Address`]: no bucket, or an environment that does not fit.
pub(crate) fn open(rest: &str) -> Result<ResultStore, StoreError> {
    let shown = format!("s3://{rest}");
    let refuse = |expected: String| StoreError::Address { address: shown.clone(), expected };
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
    let bucket = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_http_connector(http)
        .with_retry(retry)
        .build()
        .map_err(|error| refuse(format!("the environment does not fit: {error}")))?;
    let prefix = prefix.trim_matches('/');
    let objects: Arc<dyn ObjectStore> =
        if prefix.is_empty() { Arc::new(bucket) } else { Arc::new(PrefixStore::new(bucket, prefix)) };
    Ok(ResultStore::over(objects, &shown))
}

#[cfg(test)]
mod tests {
    use super::super::group::GroupName;
    use super::super::results::Named;
    use super::super::testing::stored;
    use super::*;

    #[test]
    fn a_bucket_is_needed_and_an_address_is_shown_as_it_was_given() {
        assert!(matches!(open(""), Err(StoreError::Address { .. })));
        assert!(matches!(open("/prefix"), Err(StoreError::Address { .. })));
        let store = open("bucket/some/prefix/").unwrap();
        assert_eq!((store.shown(), store.is_local()), ("s3://bucket/some/prefix/", false));
    }

    /// `TRAWL_S3_TEST` names the bucket, the other variables are Amazon's; see docs/durability.md.
    #[tokio::test]
    #[ignore = "needs a bucket: set TRAWL_S3_TEST=s3://BUCKET/PREFIX and AWS_ENDPOINT_URL, and run with --run-ignored all"]
    async fn a_bucket_keeps_what_a_directory_keeps() {
        let address = std::env::var("TRAWL_S3_TEST").expect("TRAWL_S3_TEST=s3://BUCKET/PREFIX");
        let store = ResultStore::open(&address).unwrap();
        store.probe("test").await.unwrap();
        store.delete_scan("s3-1").await.unwrap();
        let name = GroupName { stage: 0, epoch: 5, number: 1 };
        for _ in 0..2 {
            store.put_group("s3-1", 0, name, &[stored(1, 100_000)]).await.unwrap();
        }
        let error = store.put_group("s3-1", 0, name, &[stored(2, 10)]).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        assert_eq!(store.put_named("s3-1", Named::Summary(0), b"one").await.unwrap(), None);
        assert_eq!(store.put_named("s3-1", Named::Summary(0), b"two").await.unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(store.named("s3-1", Named::Document).await.unwrap(), None);
        let contents = store.contents("s3-1", 0).await.unwrap();
        assert_eq!(contents.stages[&0].segments[&1], stored(1, 100_000).outcome);
        assert_eq!(store.scans().await.unwrap()["s3-1"].objects, 2);
        assert_eq!(store.delete_scan("s3-1").await.unwrap(), 2);
        assert!(!store.scans().await.unwrap().contains_key("s3-1"));
    }
}
