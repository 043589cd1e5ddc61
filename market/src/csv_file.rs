//! Getting at the bytes of an input file: plain or gzip (told by its first bytes, not by its name), within limits.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::error::MarketError;
use crate::limits::CSV_FILE_BYTES_MAX;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The decompressed bytes of a file; `file` names it in messages.
pub(crate) fn decompress(file: &str, bytes: &[u8]) -> Result<Vec<u8>, MarketError> {
    if bytes.starts_with(&GZIP_MAGIC) {
        return read_limited(file, MultiGzDecoder::new(bytes), "decompress");
    }
    Ok(bytes.to_vec())
}

/// Reads a file, decompressed.
pub(crate) fn read_file(path: &Path, file: &str) -> Result<Vec<u8>, MarketError> {
    let mut open = File::open(path).map_err(MarketError::input("read", file))?;
    if open.metadata().map_err(MarketError::input("read", file))?.is_dir() {
        let expected = "the path of a CSV file".to_owned();
        return Err(MarketError::BadCsv { file: file.to_owned(), why: "it is a directory".to_owned(), expected });
    }
    let mut start = Vec::with_capacity(GZIP_MAGIC.len());
    open.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start).map_err(MarketError::input("read", file))?;
    let whole = start.as_slice().chain(open);
    if start == GZIP_MAGIC {
        read_limited(file, MultiGzDecoder::new(whole), "decompress")
    } else {
        read_limited(file, whole, "read")
    }
}

fn read_limited(file: &str, reader: impl Read, action: &'static str) -> Result<Vec<u8>, MarketError> {
    let mut bytes = Vec::new();
    reader.take(CSV_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(MarketError::input(action, file))?;
    if bytes.len() as u64 > CSV_FILE_BYTES_MAX {
        let what = format!("decompressed bytes of {file}");
        return Err(MarketError::Limit { what, found: bytes.len() as u64, limit: CSV_FILE_BYTES_MAX });
    }
    Ok(bytes)
}

/// The symbol that a file's name says: `AAPL` of `AAPL.csv.gz`.
pub(crate) fn stem(file_name: &str) -> &str {
    let strip = |name: &'_ str, suffix: &str| {
        let cut = name.len().checked_sub(suffix.len())?;
        let tail = name.get(cut..)?;
        tail.eq_ignore_ascii_case(suffix).then_some(cut)
    };
    let mut name = file_name;
    for suffix in [".gz", ".csv", ".txt"] {
        if let Some(cut) = strip(name, suffix) {
            name = &name[..cut];
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_the_name_without_its_endings() {
        for (name, expected) in
            [("AAPL.csv", "AAPL"), ("BRK.B.CSV.GZ", "BRK.B"), ("x", "x"), (".csv", ""), ("é.gz", "é")]
        {
            assert_eq!(stem(name), expected);
        }
    }
}
