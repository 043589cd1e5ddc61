//! The target of a notification: a URL without credentials, and a form of it that may be shown.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, parse_pem};

use crate::failure::UserMistake;
use crate::failure::io_reason;

/// Bytes of a URL.
const URL_BYTES_MAX: usize = 2048;
/// Bytes of a scheme that a message shows.
const SCHEME_BYTES_MAX: usize = 32;
/// Bytes of a file with certificates.
const CERTIFICATES_BYTES_MAX: u64 = 1 << 20;

/// A URL to post to.
#[derive(Clone)]
pub struct Target {
    uri: Uri,
    whole: String,
    shown: String,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Target {
    /// Checks a URL.
    ///
    /// # Errors
    /// A [`UserMistake`] that repeats nothing of the URL that may be secret.
    pub fn parse(text: &str) -> Result<Self, UserMistake> {
        const EXPECTED: &str = "give an http or https URL, such as https://example.org/hooks/trawl";
        let refused = |why: String| UserMistake::with_help(format!("--notify: {why}"), EXPECTED);
        if text.len() > URL_BYTES_MAX {
            return Err(refused(format!("the URL is {} bytes long; the limit is {URL_BYTES_MAX}", text.len())));
        }
        // Checked before the rest, because not every URL of another scheme can be parsed.
        let scheme = text.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
        match scheme.map(str::to_lowercase).as_deref() {
            Some("http" | "https") => {}
            Some(other) => return Err(refused(format!("the scheme '{other}' is not supported"))),
            None => return Err(refused("the URL has no scheme".to_owned())),
        }
        let uri: Uri = text.parse().map_err(|_| refused("this is not a URL".to_owned()))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(UserMistake::with_help(
                "--notify: the URL holds credentials, which end up in process lists and shell histories",
                "leave out the part before '@'; the receiver verifies the sender by the signature",
            ));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(refused("the URL has no host".to_owned()));
        }
        if authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']') && port.parse::<u16>().is_err()) {
            return Err(refused("the port is not a number up to 65535".to_owned()));
        }
        let scheme = uri.scheme_str().unwrap_or_default();
        let shown = format!("{scheme}://{authority}{}", uri.path());
        Ok(Self { uri, whole: text.to_owned(), shown })
    }

    /// Where it posts to.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// As the user gave it, with its query. Not to be shown.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// Scheme, host and path.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

/// Whether a text is a valid URL scheme.
fn is_scheme(word: &str) -> bool {
    let mut letters = word.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && word.len() <= SCHEME_BYTES_MAX
        && letters.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// The certificates of a PEM file.
///
/// # Errors
/// A [`UserMistake`]: a file that cannot be read, or contains none.
pub fn authorities(path: &Path) -> Result<Vec<Certificate<'static>>, UserMistake> {
    let refused = |why: &str| {
        UserMistake::with_help(
            format!("--notify-ca-file: cannot use '{}': {why}", path.display()),
            "give a PEM file that holds '-----BEGIN CERTIFICATE-----'",
        )
    };
    let file = std::fs::File::open(path).map_err(|e| refused(&io_reason(&e)))?;
    let mut bytes = Vec::new();
    file.take(CERTIFICATES_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| refused(&io_reason(&e)))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(refused("it is not a PEM file")),
        }
    }
    if found.is_empty() { Err(refused("it contains no certificate")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_posted_to_and_never_shown() {
        let target = Target::parse("https://example.org:8443/hooks/7?token=s3cret").unwrap();
        assert_eq!(target.shown(), "https://example.org:8443/hooks/7");
        assert!(target.uri().to_string().ends_with("?token=s3cret"));
        assert!(!format!("{target:?}").contains("s3cret"));
        assert_eq!(Target::parse("HTTPS://h").unwrap().shown(), "https://h/");
        assert_eq!(Target::parse("http://[::1]:9/x").unwrap().shown(), "http://[::1]:9/x");
        assert_eq!(Target::parse("http://[::1]/x").unwrap().shown(), "http://[::1]/x");
    }

    #[test]
    fn a_url_that_cannot_be_posted_to_is_refused_without_repeating_it() {
        for (url, word) in [
            ("ftp://h/s3cret", "scheme 'ftp'"),
            ("file:///s3cret", "scheme 'file'"),
            ("h/s3cret", "no scheme"),
            ("s3cret", "no scheme"),
            ("s3cret word://h", "no scheme"),
            ("http://user:s3cret@h/", "credentials"),
            ("http://s3cret@h/", "credentials"),
            ("http:///s3cret", "not a URL"),
            ("http://h:99999/s3cret", "port"),
            ("http://h\n/s3cret", "not a URL"),
            ("", "no scheme"),
            (&format!("http://h/{}", "s3cret".repeat(1000)), "bytes long"),
        ] {
            let mistake = Target::parse(url).unwrap_err().to_string();
            assert!(mistake.contains(word) && !mistake.contains("s3cret"), "{url}: {mistake}");
        }
    }
}
