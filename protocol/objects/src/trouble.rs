//! What an error of an object store means for the one who called it.

use std::error::Error as StdError;

use trawl_wire::error::text_of;

use crate::address::Provider;

/// Where a machine learns its role, at Amazon and Azure, and at Google: asked if there are no keys.
const METADATA_SERVICES: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// No space, or a quota is used up.
    Full,
    /// This process lacks a permission, or its credentials are not accepted.
    Denied,
    /// There is no such object, or no such bucket.
    Absent,
    /// There is such an object already.
    Exists,
    /// It does not answer, or not as it should: later it may.
    Unreachable,
}

/// An error, classified; its text has all causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong.
    pub kind: TroubleKind,
    /// The error and its causes on one line.
    pub cause: String,
}

impl Trouble {
    /// Classifies an error of an object store.
    pub fn of(error: &object_store::Error) -> Self {
        use object_store::Error;
        let mut cause = without_document(text_of(error));
        if METADATA_SERVICES.iter().any(|host| cause.contains(host)) {
            let provider = provider_of(&cause);
            let variables = provider.usual_variables();
            cause.push_str(&format!(
                " (no credentials are set, so the machine's role was asked for; {variables} set them)"
            ));
        }
        let kind = match (error, io_kind(error)) {
            (Error::NotFound { .. }, _) => TroubleKind::Absent,
            (Error::AlreadyExists { .. } | Error::Precondition { .. }, _) => TroubleKind::Exists,
            (_, Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)) => TroubleKind::Full,
            (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }, _)
            | (_, Some(std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)) => {
                TroubleKind::Denied
            }
            // Messages of stores when a bucket or its disks are full.
            _ if ["QuotaExceeded", "StorageFull", "507 Insufficient", "AccountLimitExceeded"]
                .iter()
                .any(|text| cause.contains(text)) =>
            {
                TroubleKind::Full
            }
            // Listings have no error of their own for a bucket that is not there and for a refusal: their text says so.
            _ if ["NoSuchBucket", "ContainerNotFound"].iter().any(|code| cause.contains(code)) => TroubleKind::Absent,
            _ if ["401 Unauthorized", "403 Forbidden"].iter().any(|status| cause.contains(status)) => {
                TroubleKind::Denied
            }
            _ => TroubleKind::Unreachable,
        };
        Self { kind, cause }
    }
}

/// Whose store it was, by the name that the error has for it.
fn provider_of(cause: &str) -> Provider {
    if cause.contains("GCS") {
        Provider::Google
    } else if cause.contains("MicrosoftAzure") {
        Provider::Azure
    } else {
        Provider::Amazon
    }
}

/// The text without the document that a store answers with, except the code in it.
fn without_document(text: String) -> String {
    let Some((before, document)) = text.split_once("<?xml").or_else(|| text.split_once("<Error>")) else { return text };
    let code = document.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let before = before.trim_end_matches([':', ' ', '\n']);
    code.map_or_else(|| before.to_owned(), |(code, _)| format!("{before}: {code}"))
}

/// The kind of the first I/O error among an error's causes.
fn io_kind(error: &(dyn StdError + 'static)) -> Option<std::io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: std::io::ErrorKind) -> object_store::Error {
        object_store::Error::Generic { store: "test", source: Box::new(std::io::Error::from(kind)) }
    }

    #[test]
    fn of_the_document_in_an_answer_the_code_is_kept() {
        let text =
            "404 Not Found: <?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>m</Message></Error>";
        let error = object_store::Error::Generic { store: "S3", source: text.into() };
        let Trouble { kind, cause } = Trouble::of(&error);
        assert!(cause.ends_with("404 Not Found: NoSuchBucket"), "{cause}");
        assert_eq!(kind, TroubleKind::Absent);
    }

    #[test]
    fn a_machine_without_a_role_is_asked_for_credentials_of_its_provider() {
        for (store, host, variable) in [
            ("S3", "169.254.169.254", "AWS_ACCESS_KEY_ID"),
            ("MicrosoftAzure", "169.254.169.254", "AZURE_STORAGE_ACCOUNT_NAME"),
            ("GCS", "metadata.google.internal", "GOOGLE_APPLICATION_CREDENTIALS"),
        ] {
            let source = format!("http://{host}/latest: connection refused").into();
            let cause = Trouble::of(&object_store::Error::Generic { store, source }).cause;
            assert!(cause.contains(variable) && cause.contains("machine's role"), "{cause}");
        }
    }

    #[test]
    fn a_full_store_a_refusal_and_an_absence_are_distinguished() {
        for kind in [std::io::ErrorKind::StorageFull, std::io::ErrorKind::QuotaExceeded] {
            assert_eq!(Trouble::of(&io(kind)).kind, TroubleKind::Full);
        }
        assert_eq!(Trouble::of(&io(std::io::ErrorKind::PermissionDenied)).kind, TroubleKind::Denied);
        assert_eq!(Trouble::of(&io(std::io::ErrorKind::ConnectionRefused)).kind, TroubleKind::Unreachable);
        for (text, kind) in [
            ("507 Insufficient Storage: <Code>XMinioStorageFull</Code>", TroubleKind::Full),
            ("404 Not Found: <Code>NoSuchBucket</Code>", TroubleKind::Absent),
            ("404 Not Found: <Code>ContainerNotFound</Code>", TroubleKind::Absent),
            ("403 Forbidden: <Code>InvalidAccessKeyId</Code>", TroubleKind::Denied),
            ("503 Service Unavailable: <Code>SlowDown</Code>", TroubleKind::Unreachable),
        ] {
            let error = object_store::Error::Generic { store: "S3", source: text.into() };
            assert_eq!(Trouble::of(&error).kind, kind, "{text}");
        }
    }
}
