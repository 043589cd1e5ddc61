//! A line that is a JSON object: its keys are names of columns, its values are cells.
//!
//! Numbers keep their digits: a cell has the text that the file has, which whoever needs a number reads exactly.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::quarantine::Reason;

/// The keys of a line, in its order; `None` where it is no object.
pub(super) fn keys(line: &str) -> Option<Vec<String>> {
    struct Keys;
    impl<'l> Visitor<'l> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut keys = Vec::new();
            while let Some((key, IgnoredAny)) = map.next_entry()? {
                keys.push(key);
            }
            Ok(keys)
        }
    }
    let mut json = serde_json::Deserializer::from_str(line);
    let keys = json.deserialize_map(Keys).ok()?;
    json.end().ok().map(|()| keys)
}

/// The values of a line as cells, in the order of `keys`. A text is a cell without its quotes, `null` and a key that is
/// not there are empty cells, anything else is a cell as it is written.
///
/// # Errors
/// Why the line is no row of these columns.
pub(super) fn cells<'l>(line: &'l str, keys: &[String], cells: &mut Vec<Cow<'l, str>>) -> Result<(), Reason> {
    cells.resize(keys.len(), Cow::Borrowed(""));
    let mut row = Row { keys, seen: vec![false; keys.len()], cells, reason: Reason::NotAnObject };
    let mut json = serde_json::Deserializer::from_str(line);
    match json.deserialize_map(&mut row).and_then(|()| json.end()) {
        Ok(()) => Ok(()),
        Err(_) => Err(row.reason),
    }
}

struct Row<'k, 'c, 'l> {
    keys: &'k [String],
    seen: Vec<bool>,
    cells: &'c mut Vec<Cow<'l, str>>,
    /// What is wrong where reading fails.
    reason: Reason,
}

impl<'l> Visitor<'l> for &mut Row<'_, '_, 'l> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<(), A::Error> {
        let mut likely = 0;
        while let Some(found) = map.next_key_seed(Key { keys: self.keys, likely })? {
            let refused = match found {
                None => Some(Reason::UnknownKey),
                Some(at) if self.seen[at] => Some(Reason::RepeatedKey),
                Some(_) => None,
            };
            let (Some(at), None) = (found, refused) else {
                self.reason = refused.unwrap_or(self.reason);
                return Err(A::Error::custom("refused"));
            };
            (self.seen[at], likely) = (true, at + 1);
            self.cells[at] = cell(map.next_value::<&'l RawValue>()?.get()).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Finds the column of a key, without copying it. Most lines have the keys in the same order.
struct Key<'k> {
    keys: &'k [String],
    likely: usize,
}

impl<'l> DeserializeSeed<'l> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(match self.keys.get(self.likely) {
            Some(likely) if likely == key => Some(self.likely),
            _ => self.keys.iter().position(|known| known == key),
        })
    }
}

fn cell(value: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Ok(match inner {
        None if value == "null" => Cow::Borrowed(""),
        None => Cow::Borrowed(value),
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        Some(_) => Cow::Owned(serde_json::from_str(value)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'l>(line: &'l str, keys: &[&str]) -> Result<Vec<Cow<'l, str>>, Reason> {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        let mut found = Vec::new();
        cells(line, &keys, &mut found).map(|()| found)
    }

    #[test]
    fn values_become_cells_of_their_keys() {
        let line =
            r#" {"t":1704153600000, "close" : 101.10, "v": null, "name": "a\u0022b", "open":-1e3,"x":[1,{"t":2}]} "#;
        let found = row(line, &["open", "t", "close", "v", "name", "x", "absent"]).unwrap();
        assert_eq!(found, ["-1e3", "1704153600000", "101.10", "", "a\"b", "[1,{\"t\":2}]", ""]);
        assert_eq!(keys(line).unwrap(), ["t", "close", "v", "name", "open", "x"]);
    }

    #[test]
    fn what_is_no_row_says_why() {
        let cases = [
            (r#"{"a":1"#, Reason::NotAnObject),
            (r#"{"a":1} x"#, Reason::NotAnObject),
            (r#"{"a":1,}"#, Reason::NotAnObject),
            (r#"{"a":"\x"}"#, Reason::NotAnObject),
            (r#"[1]"#, Reason::NotAnObject),
            ("a,b", Reason::NotAnObject),
            (r#"{"a":1,"c":2}"#, Reason::UnknownKey),
            (r#"{"a":1,"a":1}"#, Reason::RepeatedKey),
        ];
        for (line, reason) in cases {
            assert_eq!(row(line, &["a", "b"]).unwrap_err(), reason, "{line}");
        }
        assert!(keys("[1]").is_none() && keys(r#"{"a":1} x"#).is_none());
    }
}
