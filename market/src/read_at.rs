//! Reading from places of files, which others may read at the same time.

use std::fs;
use std::io;
use std::ops::Range;

use zerocopy::IntoBytes as _;

use crate::arrow_file::ColumnPlace;
use crate::series::Value;

/// Why the checked columns could not be had; the whole file has to be read.
#[derive(Debug)]
pub(crate) struct Unchecked;

impl From<io::Error> for Unchecked {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// Reads a range of rows in the byte order of the file.
pub(crate) fn read_rows<T: Value>(
    file: &fs::File,
    place: &ColumnPlace,
    rows: Range<u64>,
    to: &mut [T],
) -> Result<(), Unchecked> {
    let mut rest = to.as_mut_bytes();
    for range in place.bytes_of(rows) {
        let (part, behind) = rest.split_at_mut_checked((range.end - range.start) as usize).ok_or(Unchecked)?;
        read_at(file, part, range.start)?;
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(Unchecked) }
}

/// Fills a buffer from an offset of a file.
#[cfg(unix)]
pub(crate) fn read_at(file: &fs::File, to: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, offset)
}

/// Fills a buffer from an offset of a file, which nobody else reads meanwhile.
#[cfg(not(unix))]
pub(crate) fn read_at(mut file: &fs::File, to: &mut [u8], offset: u64) -> io::Result<()> {
    use std::io::{Read as _, Seek as _};
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(to)
}
