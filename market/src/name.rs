//! Valid names: of datasets, references to snapshots, symbols, columns, timeframes.
//!
//! Every name that becomes part of a path is checked here, so a path can never leave the data root.

use crate::error::MarketError;
use crate::limits::{COLUMN_NAME_BYTES_MAX, DATASET_NAME_BYTES_MAX, SNAPSHOT_PREFIX_MIN, SYMBOL_BYTES_MAX};

/// Hex digits of a sha256.
pub(crate) const HEX_DIGITS: usize = 64;

pub(crate) fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Refuses all but `[a-z0-9][a-z0-9_-]{0,63}`.
///
/// # Errors
/// [`MarketError::BadName`], with a message of its own for paths and URLs.
pub fn check_dataset_name(name: &str) -> Result<(), MarketError> {
    let tail = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
    let first = name.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if first && name.len() <= DATASET_NAME_BYTES_MAX && name.bytes().all(tail) {
        return Ok(());
    }
    let path_like = name.contains(['/', '\\', ':']) || name.contains("..");
    let expected = if path_like {
        "datasets are named, paths and URLs are not accepted".to_owned()
    } else {
        format!("expected 1 to {DATASET_NAME_BYTES_MAX} of a-z, 0-9, '_' and '-', beginning with a letter or digit")
    };
    Err(MarketError::BadName { text: shortened(name), what: "dataset name", expected })
}

/// Splits `NAME` or `NAME@PREFIX` and checks both.
pub(crate) fn split_reference(reference: &str) -> Result<(&str, Option<&str>), MarketError> {
    let (name, prefix) = match reference.split_once('@') {
        Some((name, prefix)) => (name, Some(prefix)),
        None => (reference, None),
    };
    check_dataset_name(name)?;
    if let Some(prefix) = prefix
        && !((SNAPSHOT_PREFIX_MIN..=HEX_DIGITS).contains(&prefix.len()) && prefix.bytes().all(is_lower_hex))
    {
        return Err(MarketError::BadName {
            text: shortened(prefix),
            what: "snapshot id",
            expected: format!("expected {SNAPSHOT_PREFIX_MIN} to {HEX_DIGITS} digits of 0-9 and a-f"),
        });
    }
    Ok((name, prefix))
}

fn is_lower_hex(c: u8) -> bool {
    c.is_ascii_digit() || (b'a'..=b'f').contains(&c)
}

/// Whether a text is a whole sha256 in lower-case hex, and therefore valid as a file's name.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == HEX_DIGITS && text.bytes().all(is_lower_hex)
}

/// Whether a text is a valid symbol: 1 to 64 bytes, no control characters, no white space at its ends.
pub(crate) fn is_symbol(text: &str) -> bool {
    let is_plain = || text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_clean = || text.trim() == text && !text.chars().any(char::is_control);
    // Most are plain, and a market's are checked each time that it is opened.
    !text.is_empty() && text.len() <= SYMBOL_BYTES_MAX && (is_plain() || is_clean())
}

/// Whether a text is a valid column name as it is: lower snake case, not a name with another meaning.
pub(crate) fn is_column(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|c| c.is_ascii_lowercase());
    let rest = text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    first && rest && text.len() <= COLUMN_NAME_BYTES_MAX && text != "symbol" && text != "time"
}

/// Normalises `Adj Close` to `adj_close`; `None` when nothing is left that could name a column.
pub(crate) fn column_name(header: &str) -> Option<String> {
    let mut name = String::new();
    for c in header.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            _ => {}
        }
    }
    name.truncate(name.trim_end_matches('_').len());
    is_column(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_urls_and_odd_names_are_not_datasets() {
        for bad in
            ["", "..", "../us5", "a/b", "/etc", "c:\\x", "https://x", "US5", "-a", "a b", "a\0", "é", &"a".repeat(65)]
        {
            assert!(check_dataset_name(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "us5", "0-1_x", &"a".repeat(64)] {
            assert!(check_dataset_name(good).is_ok(), "{good:?}");
        }
        let message = check_dataset_name("../../etc/passwd").unwrap_err().to_string();
        assert!(message.contains("paths and URLs are not accepted"), "{message}");
    }

    #[test]
    fn a_snapshot_prefix_is_eight_to_sixty_four_lower_hex_digits() {
        assert!(split_reference("us5@0123abcd").is_ok());
        for bad in ["us5@", "us5@0123abc", "us5@0123ABCD", "us5@../../../x", "us5@0123abcd@x"] {
            assert!(split_reference(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_symbol_has_no_control_characters_and_no_white_space_at_its_ends() {
        for good in ["A", "BRK.B", "BRK B", "ñ", "0700.HK", "A\u{2009}B", &"x".repeat(64), &"é".repeat(32)] {
            assert!(is_symbol(good), "{good:?}");
        }
        for bad in ["", " ", " A", "A ", "A\tB", "A\u{7f}", "\u{85}", "A\u{2009}", &"x".repeat(65), &"é".repeat(33)] {
            assert!(!is_symbol(bad), "{bad:?}");
        }
    }

    #[test]
    fn headers_become_lower_snake_case() {
        assert_eq!(column_name("Adj Close").as_deref(), Some("adj_close"));
        assert_eq!(column_name("<OPEN>").as_deref(), Some("open"));
        assert_eq!(column_name(" Volume (USD) ").as_deref(), Some("volume_usd"));
        assert_eq!(column_name(""), None);
        assert_eq!(column_name("52w"), None);
        assert_eq!(column_name("Symbol"), None);
    }
}
