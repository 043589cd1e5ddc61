//! Addresses of directories and buckets. Credentials are refused in them, so that an address may appear in messages.

use std::path::PathBuf;

/// An address without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A directory of this machine, or one that is mounted.
    Directory(PathBuf),
    /// What follows `s3://`: the bucket, and the prefix if there is one.
    Bucket(String),
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
const FORMS: &str = "expected a directory, file:///DIRECTORY or s3://BUCKET/PREFIX";

impl Address {
    /// A directory, `file:///DIRECTORY` or `s3://BUCKET/PREFIX`.
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
        match scheme {
            "file" if rest.starts_with('/') => Ok(Self::Directory(rest.into())),
            "file" => refuse(text, "expected three slashes, as in file:///var/lib/trawl"),
            // The address may contain a secret, so it is not repeated.
            _ if rest.contains(['@', '?', '#']) => refuse(
                &format!("{scheme}://..."),
                "credentials and options do not belong into the address; they are taken from the environment \
                 (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL)",
            ),
            "s3" if rest.split('/').next().is_none_or(str::is_empty) => {
                refuse(text, "expected s3://BUCKET or s3://BUCKET/PREFIX")
            }
            "s3" => Ok(Self::Bucket(rest.to_owned())),
            _ => refuse(text, FORMS),
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
        assert_eq!(Address::parse("s3://bucket/some/prefix/"), Ok(Address::Bucket("bucket/some/prefix/".to_owned())));
        for bad in ["", "file://data", "s3://", "s3:///prefix", "gs://bucket", "http://host/x"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_may_be_a_credential_is_refused_and_not_repeated() {
        for bad in ["s3://key:hunter2@bucket", "s3://bucket/x?secret=hunter2", "s3://bucket#hunter2", "gs://hunter2@b"]
        {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("hunter2") && error.contains("AWS_ACCESS_KEY_ID"), "{error}");
        }
    }
}
