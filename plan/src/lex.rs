//! Text to tokens. ASCII syntax; strings may hold any UTF-8.

use std::ops::Range;

/// A token and its byte range.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub span: Range<usize>,
}

/// The kinds of token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    Number(f64),
    Text(String),
    Name(String),
    /// An operator or punctuation, as written.
    Mark(&'static str),
    End,
}

impl TokenKind {
    /// What is wrong with its being here.
    pub fn unexpected(&self) -> String {
        match self {
            Self::End => "the text ends too early".to_owned(),
            other => format!("{} is not expected here", other.describe()),
        }
    }

    /// How a message names it.
    pub fn describe(&self) -> String {
        match self {
            Self::Number(n) => format!("the number {n}"),
            Self::Text(_) => "a string".to_owned(),
            Self::Name(n) => format!("'{n}'"),
            Self::Mark(m) => format!("'{m}'"),
            Self::End => "the end of the text".to_owned(),
        }
    }
}

/// What the lexer could not read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LexError {
    pub message: String,
    pub span: Range<usize>,
    pub help: Option<String>,
}

/// Longest first, so that `<=` is not read as `<` `=`.
const MARKS: [&str; 20] =
    ["<=", ">=", "==", "!=", "<", ">", "=", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",", ".", "&&", "||"];

pub(crate) fn lex(text: &str) -> Result<Vec<Token>, LexError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        if byte.is_ascii_whitespace() {
            at += 1;
        } else if byte == b'#' {
            while at < bytes.len() && bytes[at] != b'\n' {
                at += 1;
            }
        } else if byte.is_ascii_digit() || (byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)) {
            at = number_end(bytes, at);
            let value = text[start..at].replace('_', "").parse::<f64>().ok().filter(|v| v.is_finite());
            let joined = bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
            match value {
                Some(value) if !joined => tokens.push(Token { kind: TokenKind::Number(value), span: start..at }),
                _ => {
                    while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'.') {
                        at += 1;
                    }
                    return Err(LexError {
                        message: format!("'{}' is not a number", &text[start..at]),
                        span: start..at,
                        help: Some("write numbers as 20, 0.5 or 2e6; names begin with a letter".to_owned()),
                    });
                }
            }
        } else if byte.is_ascii_alphabetic() || byte == b'_' {
            while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
                at += 1;
            }
            tokens.push(Token { kind: TokenKind::Name(text[start..at].to_owned()), span: start..at });
        } else if byte == b'\'' {
            let Some((string, end)) = string_at(text, at + 1) else {
                return Err(LexError {
                    message: "this string has no closing quote".to_owned(),
                    span: start..text.len(),
                    help: Some(
                        "strings stand between single quotes: 'SPY'; a quote in one is doubled: 'O''Reilly'".to_owned(),
                    ),
                });
            };
            tokens.push(Token { kind: TokenKind::Text(string), span: start..end });
            at = end;
        } else if let Some(mark) = MARKS.iter().find(|m| text[at..].starts_with(**m)) {
            at += mark.len();
            if matches!(*mark, "&&" | "||") {
                let word = if *mark == "&&" { "and" } else { "or" };
                return Err(LexError {
                    message: format!("'{mark}' is not an operator here"),
                    span: start..at,
                    help: Some(format!("write '{word}'")),
                });
            }
            tokens.push(Token { kind: TokenKind::Mark(mark), span: start..at });
        } else {
            let c = text[at..].chars().next().unwrap_or('?');
            let shown = if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            let help = match c {
                '"' => Some("strings stand between single quotes: 'SPY'".to_owned()),
                '!' => Some("write 'not'".to_owned()),
                '&' => Some("write 'and'".to_owned()),
                '|' => Some("write 'or'".to_owned()),
                ':' if is_time(text, at) => Some("a time of day is a string: time_of_day >= '10:30'".to_owned()),
                '?' | ':' => Some("write iff(c, a, b) for c ? a : b".to_owned()),
                '^' => Some("powers are written pow(x, y)".to_owned()),
                '≤' => Some("write '<='".to_owned()),
                '≥' => Some("write '>='".to_owned()),
                '≠' => Some("write '!='".to_owned()),
                '−' | '–' => Some("write '-'".to_owned()),
                '×' | '·' => Some("write '*'".to_owned()),
                '÷' => Some("write '/'".to_owned()),
                '‘' | '’' | '“' | '”' => Some("strings stand between straight single quotes: 'SPY'".to_owned()),
                _ => Some(
                    "there are names, numbers, 'strings', # comments and + - * / % < <= > >= == != ( ) [ ] , ."
                        .to_owned(),
                ),
            };
            return Err(LexError {
                message: format!("the character '{shown}' has no meaning here"),
                span: start..start + c.len_utf8(),
                help,
            });
        }
    }
    tokens.push(Token { kind: TokenKind::End, span: text.len()..text.len() });
    Ok(tokens)
}

/// Whether there is a colon between the digits of a time of day, as in `10:30`.
fn is_time(text: &str, at: usize) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    digit(at.checked_sub(1).and_then(|before| bytes.get(before)))
        && digit(bytes.get(at + 1))
        && digit(bytes.get(at + 2))
}

/// The string that begins behind a quote at `at`, and the end of its closing quote. A doubled quote is one of the string.
fn string_at(text: &str, mut at: usize) -> Option<(String, usize)> {
    let mut string = String::new();
    loop {
        let length = text[at..].find('\'')?;
        string.push_str(&text[at..at + length]);
        at += length + 1;
        if !text[at..].starts_with('\'') {
            return Some((string, at));
        }
        string.push('\'');
        at += 1;
    }
}

/// A text as a string of the language.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Digits with `_`, a fraction, an exponent.
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'_') {
            at += 1;
        }
        at
    };
    at = digits(at);
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let mut next = at + 1;
        if matches!(bytes.get(next), Some(b'+' | b'-')) {
            next += 1;
        }
        if bytes.get(next).is_some_and(u8::is_ascii_digit) {
            at = digits(next);
        }
    }
    at
}
