//! Users' tokens: 256 random bits each, of which a server stores the SHA-256.
//!
//! A file of lines `NAME ROLES SHA256HEX [KEY=VALUE...]`; `#` begins a comment. A name may appear on several lines, so that a user can
//! have an old and a new token during a rotation. A token itself is never shown, logged or written by a server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::allowance::Allowance;
use crate::files::{self, FileError, Watched};
use crate::rights::{Right, parse_rights, rights_text};
use trawl_wire::record::checked_name;

/// Prefix of a token, by which scanners for leaked secrets recognise it.
const PREFIX: &str = "trawl_";
/// Bytes of randomness in a token.
const RANDOM_BYTES: usize = 32;
/// Maximum lines of a token file.
const TOKENS_MAX: usize = 4096;

/// A user's secret. Never displayed.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A new token from the operating system's randomness.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn fresh() -> Result<Self, String> {
        let mut bytes = [0; RANDOM_BYTES];
        SysRng.try_fill_bytes(&mut bytes).map_err(|error| error.to_string())?;
        Ok(Self(format!("{PREFIX}{}", hex::encode(bytes))))
    }

    /// Parses a token; `None` if the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let shaped = digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|b| b.is_ascii_hexdigit());
        shaped.then(|| Self(text.to_owned()))
    }

    /// Reads a token from a file that contains nothing else.
    ///
    /// # Errors
    /// The file cannot be read, or does not contain a token. Never includes the content.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let bytes = files::read(path)?;
        std::str::from_utf8(&bytes).ok().and_then(|text| Self::parse(text.trim())).ok_or_else(|| {
            FileError::new(path, "it holds no token", "write the one line that 'trawl tokens new' printed into it")
        })
    }

    /// The token itself: to be sent, or displayed once when it is created.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The digest that a server stores.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The line for a token file.
    pub fn line(&self, name: &str, rights: &[Right], allowance: &Allowance) -> String {
        format!("{name} {} {}{}", rights_text(rights), hex::encode(self.digest()), allowance.words(rights))
    }
}

/// A user's name, rights and allowance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// See [`checked_name`].
    pub name: String,
    /// Sorted.
    pub rights: Vec<Right>,
    /// What the user may take.
    pub allowance: Allowance,
}

/// The table of users and token digests.
#[derive(Debug, Default)]
pub struct TokenTable {
    entries: Vec<([u8; 32], User)>,
}

impl TokenTable {
    /// Loads the table from a file, which is read again when it changes.
    ///
    /// # Errors
    /// Which line is wrong, and why.
    pub fn load(path: PathBuf) -> Result<Arc<Watched<Self>>, FileError> {
        let place = path.clone();
        let watched = Watched::load("tokens", vec![path], move |bytes| {
            let bytes = bytes.first().map_or(&[][..], Vec::as_slice);
            Self::parse(bytes).map_err(|what| {
                FileError::new(
                    &place,
                    what,
                    "a line is NAME ROLES SHA256HEX [KEY=VALUE...], as 'trawl tokens new' prints it",
                )
            })
        })?;
        Ok(Arc::new(watched))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())?;
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            // Do not include the line itself: it may contain a token.
            let entry = Self::entry(line).map_err(|what| format!("line {}: {what}", number + 1))?;
            entries.push(entry);
            if entries.len() > TOKENS_MAX {
                return Err(format!("it has more than {TOKENS_MAX} tokens"));
            }
        }
        Ok(Self { entries })
    }

    fn entry(line: &str) -> Result<([u8; 32], User), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, rights, digest, ref more @ ..] = words[..] else {
            return Err(format!("three words or more are expected, there are {}", words.len()));
        };
        let name = checked_name(name).map_err(|what| format!("the name: {what}"))?;
        let rights = parse_rights(rights)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(digest, &mut bytes)
            .map_err(|_| "the third word is not a SHA-256 of 64 hex digits".to_owned())?;
        let allowance = Allowance::parse(more, &rights)?;
        Ok((bytes, User { name, rights, allowance }))
    }

    /// The user of a token. All entries are compared, each in constant time, so that timing reveals nothing.
    pub fn user_of(&self, token: &Token) -> Option<&User> {
        let digest = token.digest();
        let mut found = None;
        for (kept, user) in &self.entries {
            if bool::from(kept.ct_eq(&digest)) {
                found = Some(user);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_digest_alone_and_is_never_shown() {
        let (alice, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
        assert_ne!(alice.secret(), other.secret());
        assert_eq!(alice.secret().len(), PREFIX.len() + 64);
        let line = alice.line("alice", &[Right::Submit, Right::Read], &Allowance::default());
        assert!(line.starts_with("alice submit,read ") && !line.contains(alice.secret()), "{line}");
        let table = TokenTable::parse(format!("# users\n\n{line} # since May\n").as_bytes()).unwrap();
        let user = table.user_of(&Token::parse(alice.secret()).unwrap()).unwrap();
        assert_eq!((user.name.as_str(), &user.rights[..]), ("alice", &[Right::Submit, Right::Read][..]));
        assert!(table.user_of(&other).is_none());
        assert_eq!(format!("{alice:?}"), "Token");
        assert!(!format!("{table:?}").contains(alice.secret()));
    }

    #[test]
    fn the_digest_is_the_one_that_other_programs_compute() {
        let token = Token::parse(&format!("trawl_{}", "0".repeat(64))).unwrap();
        // printf 'trawl_%064d' 0 | sha256sum
        let wanted = "c5e75fb325670d868797626a7d52673858eafc6d02ff2e8dac9f7d3ec92458e5";
        assert_eq!(token.line("a", &[Right::Read], &Allowance::default()), format!("a read {wanted}"));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_reported_without_showing_it() {
        let good = Token::fresh().unwrap();
        let secret = good.secret();
        for (line, expected) in [
            (format!("alice submit {secret}"), "not a SHA-256"),
            (secret.to_owned(), "three words"),
            (format!("alice submit {} priority=top", "0".repeat(64)), "priority: one of low, normal, high"),
            (format!("alice root {}", "0".repeat(64)), "'root' is no role"),
            (format!("al/ice submit {}", "0".repeat(64)), "the name"),
        ] {
            let error = TokenTable::parse(format!("\n{line}").as_bytes()).unwrap_err();
            assert!(error.contains("line 2") && error.contains(expected) && !error.contains(secret), "{error}");
        }
        assert!(TokenTable::parse(&[0xff]).is_err());
        for bad in ["", "trawl_", "trawl_zz", &secret[1..], &format!("{secret}0")] {
            assert!(Token::parse(bad).is_none(), "{bad}");
        }
    }
}
