//! A bucket by its address: Amazon's S3 or a compatible store, Google's Cloud Storage, or a container of Azure's Blob Storage.
//!
//! Endpoint and credentials come from an environment, by the names that the provider's own tools use (`AWS_REGION`,
//! `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, ...), or from the machine's role. The store must support conditional
//! puts, as the three providers' own do.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::address::{AddressError, BucketAddress, Provider};
use crate::http::RustlsHttp;

/// Tries of one request inside the object store; the caller retries with longer waits.
const REQUEST_RETRIES_MAX: usize = 2;
/// Longest that the tries of one request may take together.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Variables that say where a store is and who asks it.
#[derive(Clone)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// The variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::with_prefix("")
    }

    /// The variables of this process whose names begin with `prefix`, named by what follows it.
    #[must_use]
    pub fn with_prefix(prefix: &str) -> Self {
        let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.to_str()?.strip_prefix(prefix)?.to_owned(), value.into_string().ok()?))
        };
        Self::of(std::env::vars_os().filter_map(variable))
    }

    /// These variables. One without a value is as good as none.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Whether a variable is one of this provider's.
    #[must_use]
    pub fn names(&self, provider: Provider) -> bool {
        self.0.iter().any(|(name, _)| name.starts_with(provider.variables_prefix()))
    }

    /// The provider's variables that its options have names for.
    fn options<K: FromStr>(&self, provider: Provider) -> impl Iterator<Item = (K, &str)> {
        let of_provider = self.0.iter().filter(move |(name, _)| name.starts_with(provider.variables_prefix()));
        of_provider.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.as_str())))
    }
}

/// A prefix as it is: keys may have percent signs, and other characters that would be encoded.
fn prefix_path(prefix: &str) -> Path {
    let prefix = prefix.trim_matches('/');
    Path::parse(prefix).unwrap_or_else(|_| Path::from(prefix))
}

/// Opens a bucket, with a prefix or without. No request is made yet.
///
/// # Errors
/// [`AddressError`]: an inconsistent environment.
pub fn open_bucket(address: &BucketAddress, environment: &Environment) -> Result<Arc<dyn ObjectStore>, AddressError> {
    let refuse = |expected: String| AddressError { address: address.to_string(), expected };
    let provider = address.provider();
    let http = RustlsHttp::new(provider).map_err(refuse)?;
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: REQUEST_RETRIES_MAX,
        retry_timeout: RETRY_TIMEOUT,
    };
    let name = address.bucket();
    let opened = match provider {
        Provider::Amazon => {
            let options = environment.options(provider);
            let store = options.fold(AmazonS3Builder::new(), |store, (key, value)| store.with_config(key, value));
            let store = store.with_bucket_name(name).with_http_connector(http).with_retry(retry);
            store.build().map(|store| beneath(store, address.prefix()))
        }
        Provider::Google => {
            // Its builder allows plain text anywhere, which is asked for here as of the others.
            let start = GoogleCloudStorageBuilder::new();
            let start = start.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "false");
            let store = environment.options(provider).fold(start, |store, (key, value)| store.with_config(key, value));
            let store = store.with_bucket_name(name).with_http_connector(http).with_retry(retry);
            store.build().map(|store| beneath(store, address.prefix()))
        }
        Provider::Azure => {
            let options = environment.options(provider);
            let store = options.fold(MicrosoftAzureBuilder::new(), |store, (key, value)| store.with_config(key, value));
            let store = store.with_container_name(name).with_http_connector(http).with_retry(retry);
            store.build().map(|store| beneath(store, address.prefix()))
        }
    };
    opened.map_err(|error| refuse(format!("the environment does not fit: {error}")))
}

/// A store's objects whose keys begin with a prefix.
fn beneath(store: impl ObjectStore, prefix: &str) -> Arc<dyn ObjectStore> {
    let prefix = prefix_path(prefix);
    if prefix.as_ref().is_empty() { Arc::new(store) } else { Arc::new(PrefixStore::new(store, prefix)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    fn open(address: &str, variables: &[(&str, &str)]) -> Result<Arc<dyn ObjectStore>, AddressError> {
        let Ok(Address::Bucket(address)) = Address::parse(address) else { panic!("{address} is no bucket") };
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        open_bucket(&address, &Environment::of(variables))
    }

    #[test]
    fn a_prefix_is_taken_as_it_is() {
        assert_eq!(prefix_path("/a%20b/c~d/").as_ref(), "a%20b/c~d");
        assert_eq!(prefix_path("").as_ref(), "");
        assert_eq!(prefix_path("a//b").as_ref(), "a/b");
    }

    #[test]
    fn each_provider_is_opened_by_its_own_variables() {
        assert!(open("s3://b/p", &[("AWS_REGION", "eu-west-1"), ("OTHER", "x")]).is_ok());
        let account = ("AZURE_STORAGE_ACCOUNT_NAME", "bars");
        assert!(open("az://b/p", &[account, ("AZURE_STORAGE_ACCOUNT_KEY", "aGk=")]).is_ok());
        assert!(
            open("gs://b/p", &[("GOOGLE_BASE_URL", "http://127.0.0.1:1"), ("GOOGLE_SKIP_SIGNATURE", "true")]).is_ok()
        );
        // An empty value is none.
        let error = open("az://b/p", &[("AZURE_STORAGE_ACCOUNT_NAME", "")]).unwrap_err().to_string();
        assert!(error.contains("az://b/p") && error.contains("Account must be specified"), "{error}");
        let error = open("gs://b/p", &[("GOOGLE_SERVICE_ACCOUNT", "/nonexistent.json")]).unwrap_err().to_string();
        assert!(error.contains("/nonexistent.json"), "{error}");
    }

    #[test]
    fn secrets_of_an_environment_are_not_shown() {
        let secret = [("AZURE_STORAGE_ACCOUNT_NAME", "bars"), ("AZURE_STORAGE_ACCOUNT_KEY", "hunter2=")];
        let shown = match open("az://b", &secret) {
            Ok(store) => format!("{store:?}"),
            Err(error) => error.to_string(),
        };
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
