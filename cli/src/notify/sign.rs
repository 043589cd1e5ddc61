//! The secret, the signature, and the key by which a receiver recognises a repeated notification.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::failure::UserMistake;
use crate::failure::io_reason;

/// The variable with the secret when no file is named.
const SECRET_VARIABLE: &str = "TRAWL_NOTIFY_SECRET";
/// Least bytes of a secret: a shorter one could be guessed from one signature.
const SECRET_BYTES_MIN: usize = 16;
/// Most bytes of a secret; a longer file is probably the wrong file.
const SECRET_BYTES_MAX: usize = 4096;
/// Separates these keys from other uses of the hash.
const KEY_DOMAIN: &str = "trawl notify 2";

/// The secret that sender and receiver share. It is never shown.
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// From `file`, else from the environment.
    ///
    /// # Errors
    /// A [`UserMistake`]: there is none, it cannot be read, it is too short or too long.
    pub fn find(file: Option<&Path>) -> Result<Self, UserMistake> {
        let (bytes, place) = match file {
            Some(path) => (read(path)?, format!("in '{}'", path.display())),
            None => {
                let Some(value) = std::env::var_os(SECRET_VARIABLE).filter(|value| !value.is_empty()) else {
                    return Err(UserMistake::with_help(
                        "--notify needs a secret to sign with",
                        format!(
                            "set {SECRET_VARIABLE} or give --notify-secret-file FILE; \
                             'openssl rand -hex 32' makes one, and the receiver needs the same"
                        ),
                    ));
                };
                (value.into_encoded_bytes(), format!("in {SECRET_VARIABLE}"))
            }
        };
        Self::checked(bytes, &place)
    }

    fn checked(mut bytes: Vec<u8>, place: &str) -> Result<Self, UserMistake> {
        // An editor or echo adds a line end, which is not part of the secret.
        while bytes.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            bytes.pop();
        }
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        let size = if bytes.len() < SECRET_BYTES_MIN { "short" } else { "long" };
        Err(UserMistake::with_help(
            format!("the secret {place} is too {size}: {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes are expected"),
            "'openssl rand -hex 32' makes a good one",
        ))
    }

    /// `v1=` and the HMAC-SHA256 over timestamp, a full stop and the body, in hex.
    pub fn sign(&self, timestamp: &str, body: &[u8]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("HMAC takes keys of any length")
        };
        mac.update(timestamp.as_bytes());
        mac.update(b".");
        mac.update(body);
        format!("v1={}", hex::encode(mac.finalize().into_bytes()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UserMistake> {
    let refused = |why: String| {
        UserMistake::with_help(
            format!("--notify-secret-file: cannot read '{}': {why}", path.display()),
            "name a file that holds the secret and nothing else",
        )
    };
    let file = std::fs::File::open(path).map_err(|e| refused(io_reason(&e)))?;
    let mut bytes = Vec::new();
    // Room for a line end, and for one more byte to notice a file that is too long.
    file.take(SECRET_BYTES_MAX as u64 + 3).read_to_end(&mut bytes).map_err(|e| refused(io_reason(&e)))?;
    Ok(bytes)
}

/// The same for the same answer of the same document posted to the same URL, in this run or another; 64 hex digits.
pub fn idempotency_key(answer_digest: &str, url: &str, scan: &str) -> String {
    hex::encode(Sha256::digest(format!("{KEY_DOMAIN}\n{answer_digest}\n{url}\n{scan}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_one_that_other_programs_compute() {
        let secret = Secret(b"0123456789abcdef".to_vec());
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            secret.sign("1700000000", b"{}"),
            "v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e"
        );
        assert_ne!(secret.sign("1700000001", b"{}"), secret.sign("1700000000", b"{}"));
    }

    #[test]
    fn the_key_is_that_of_answer_url_and_document() {
        let key = idempotency_key("d", "http://h/", "{}");
        assert_eq!(key, idempotency_key("d", "http://h/", "{}"));
        assert_ne!(key, idempotency_key("e", "http://h/", "{}"));
        assert_ne!(key, idempotency_key("d", "http://h/?x", "{}"));
        assert_ne!(key, idempotency_key("d", "http://h/", "{\"name\":\"n\"}"));
        assert_eq!(key.len(), 64);
    }

    #[test]
    fn a_secret_is_trimmed_must_not_be_guessable_and_is_never_shown() {
        let long = vec![b'x'; SECRET_BYTES_MIN];
        let with_end = [&long[..], b"\r\n"].concat();
        let secret = Secret::checked(with_end, "here").unwrap();
        assert_eq!(secret.0, long);
        assert_eq!(format!("{secret:?}"), "Secret");
        for bad in [vec![], b"short\n".to_vec(), vec![b'x'; SECRET_BYTES_MAX + 1]] {
            let message = Secret::checked(bad, "here").unwrap_err().to_string();
            assert!(message.contains("16 to 4096") && !message.contains("short\n"), "{message}");
        }
    }
}
