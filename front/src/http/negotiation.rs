//! The format of a reply: `?format=`, or else the header `Accept`.

use axum::http::{HeaderMap, StatusCode, header};

use super::problem::{Kind, Problem};

/// Longest `Accept` that is read.
const ACCEPT_BYTES_MAX: usize = 1024;

/// A format in which something is given.
pub trait Offered: Copy {
    /// For `?format=`.
    fn name(self) -> &'static str;

    /// Its media type.
    fn media_type(self) -> &'static str;
}

/// The format that a request asks for; the first of those that there are for a client that accepts anything.
///
/// # Errors
/// An unknown name; 406 if `Accept` admits none.
pub fn chosen<T: Offered>(offered: &[T], format: Option<&str>, headers: &HeaderMap) -> Result<T, Problem> {
    let words = |word: fn(T) -> &'static str| offered.iter().map(|one| word(*one)).collect::<Vec<_>>().join(", ");
    if let Some(name) = format {
        let found = offered.iter().copied().find(|one| one.name() == name);
        return found
            .ok_or_else(|| Problem::new(Kind::Invalid, format!("format: one of {} is expected", words(T::name))));
    }
    let mut best: Option<(f32, T)> = None;
    let mut asked = false;
    for value in headers.get_all(header::ACCEPT) {
        let Some(text) = value.to_str().ok().filter(|text| text.len() <= ACCEPT_BYTES_MAX) else {
            return Err(Problem::malformed("the header Accept cannot be read"));
        };
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            asked = true;
            let mut parts = entry.split(';').map(str::trim);
            let range = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            let admits = |one: &T| {
                let media = one.media_type();
                range == "*/*" || range == media || range.strip_suffix('*').is_some_and(|kind| media.starts_with(kind))
            };
            if let Some(one) = offered.iter().copied().find(admits)
                && weight > best.as_ref().map_or(0.0, |(weight, _)| *weight)
            {
                best = Some((weight, one));
            }
        }
    }
    match (best, offered.first()) {
        (Some((_, one)), _) => Ok(one),
        (None, Some(first)) if !asked => Ok(*first),
        (None, _) => Err(Problem::new(Kind::Invalid, "this is not given in what the header Accept admits")
            .with_status(StatusCode::NOT_ACCEPTABLE)
            .help(format!("there are {}; or ?format= with {}", words(T::media_type), words(T::name)))),
    }
}
