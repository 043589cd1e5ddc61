//! Addresses of directories and buckets. Credentials are refused in them, so that an address may appear in messages.

use std::fmt;
use std::path::PathBuf;

/// An address without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A directory of this machine, or one that is mounted.
    Directory(PathBuf),
    /// A bucket of an object store, with a prefix or without.
    Bucket(BucketAddress),
}

/// Whose object store a bucket is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Amazon's S3, and stores that are compatible with it: `s3://BUCKET/PREFIX`.
    Amazon,
    /// Google's Cloud Storage: `gs://BUCKET/PREFIX`.
    Google,
    /// Azure's Blob Storage: `az://CONTAINER/PREFIX`.
    Azure,
}

/// A bucket and the prefix of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketAddress {
    provider: Provider,
    /// What follows `://`.
    path: String,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{address}' cannot be used: {expected}")]
pub struct AddressError {
    /// The address as given, without what may be a credential.
    pub address: String,
    /// What is expected instead.
    pub expected: String,
}

/// The forms of an address.
const FORMS: &str =
    "expected a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX";

impl Provider {
    const ALL: [Self; 3] = [Self::Amazon, Self::Google, Self::Azure];

    /// What an address begins with, before `://`.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Amazon => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// What the names of its variables begin with.
    #[must_use]
    pub fn variables_prefix(self) -> &'static str {
        match self {
            Self::Amazon => "AWS_",
            Self::Google => "GOOGLE_",
            Self::Azure => "AZURE_",
        }
    }

    /// The variables that its users set most.
    pub(crate) fn usual_variables(self) -> &'static str {
        match self {
            Self::Amazon => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL",
            Self::Google => "GOOGLE_APPLICATION_CREDENTIALS",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
        }
    }

    /// The variable that allows plain text to other machines.
    pub(crate) fn plain_text_variable(self) -> &'static str {
        match self {
            Self::Amazon => "AWS_ALLOW_HTTP=true",
            Self::Google => "GOOGLE_ALLOW_HTTP=true",
            Self::Azure => "AZURE_ALLOW_HTTP=true",
        }
    }

    /// How an address is written.
    fn form(self) -> &'static str {
        match self {
            Self::Amazon => "expected s3://BUCKET or s3://BUCKET/PREFIX",
            Self::Google => "expected gs://BUCKET or gs://BUCKET/PREFIX",
            Self::Azure => "expected az://CONTAINER or az://CONTAINER/PREFIX",
        }
    }
}

impl BucketAddress {
    /// Whose store it is.
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The bucket, or Azure's container.
    #[must_use]
    pub fn bucket(&self) -> &str {
        self.path.split_once('/').map_or(self.path.as_str(), |(bucket, _)| bucket)
    }

    /// The prefix as it was given; empty where there is none.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.path.split_once('/').map_or("", |(_, prefix)| prefix)
    }
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.provider.scheme(), self.path)
    }
}

impl Address {
    /// A directory, `file:///DIRECTORY`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
    ///
    /// # Errors
    /// [`AddressError`] for other schemes, for relative `file://` addresses, and for credentials or options in the address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let refuse = |shown: &str, expected: &str| {
            Err(AddressError { address: shown.to_owned(), expected: expected.to_owned() })
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() { refuse("", FORMS) } else { Ok(Self::Directory(text.into())) };
        };
        let provider = Provider::ALL.into_iter().find(|provider| provider.scheme() == scheme);
        match (scheme, provider) {
            ("file", _) if rest.starts_with('/') => Ok(Self::Directory(rest.into())),
            ("file", _) => refuse(text, "expected three slashes, as in file:///var/lib/trawl"),
            // The address may contain a secret, so it is not repeated.
            _ if rest.contains(['@', '?', '#']) => {
                let variables = provider.unwrap_or(Provider::Amazon).usual_variables();
                let expected =
                    "credentials and options do not belong into the address; they are taken from the environment";
                refuse(&format!("{scheme}://..."), &format!("{expected} ({variables})"))
            }
            (_, Some(provider)) if rest.split('/').next().is_none_or(str::is_empty) => refuse(text, provider.form()),
            (_, Some(provider)) => Ok(Self::Bucket(BucketAddress { provider, path: rest.to_owned() })),
            (_, None) => refuse(text, FORMS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_buckets_are_addresses_and_nothing_else() {
        assert_eq!(Address::parse("data"), Ok(Address::Directory("data".into())));
        assert_eq!(Address::parse("file:///srv/data"), Ok(Address::Directory("/srv/data".into())));
        for (text, provider, bucket, prefix) in [
            ("s3://bucket/some/prefix/", Provider::Amazon, "bucket", "some/prefix/"),
            ("gs://bucket", Provider::Google, "bucket", ""),
            ("az://container/x", Provider::Azure, "container", "x"),
        ] {
            let Ok(Address::Bucket(address)) = Address::parse(text) else { panic!("{text} is no bucket") };
            assert_eq!((address.provider(), address.bucket(), address.prefix()), (provider, bucket, prefix));
            assert_eq!(address.to_string(), text);
        }
        for bad in
            ["", "file://data", "s3://", "s3:///prefix", "gs://", "az:///prefix", "abfs://bucket", "http://host/x"]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_may_be_a_credential_is_refused_and_not_repeated() {
        for (bad, variable) in [
            ("s3://key:hunter2@bucket", "AWS_ACCESS_KEY_ID"),
            ("s3://bucket/x?secret=hunter2", "AWS_ACCESS_KEY_ID"),
            ("s3://bucket#hunter2", "AWS_ACCESS_KEY_ID"),
            ("gs://hunter2@b", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("az://b?sig=hunter2", "AZURE_STORAGE_ACCOUNT_KEY"),
            ("abfs://hunter2@b", "AWS_ACCESS_KEY_ID"),
        ] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("hunter2") && error.contains(variable), "{error}");
        }
    }
}
