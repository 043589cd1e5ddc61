//! Arrays of numbers as NumPy's files (`.npy`, version 1.0), written while their first axis grows.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use super::atomic_file::StagedFile;

/// What a file begins with: the format's name and version.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// Bytes before the values: room for any number of samples. A multiple of 64, as the format wants it.
const HEADER_BYTES: usize = 192;

/// Types of values, little-endian.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// One byte, 0 or 1.
    Bool,
    /// Four bytes.
    F32,
    /// Eight bytes.
    F64,
}

impl Type {
    fn code(self) -> &'static str {
        match self {
            Self::Bool => "|b1",
            Self::F32 => "<f4",
            Self::F64 => "<f8",
        }
    }
}

/// An array `[samples, ...]` in row-major order.
pub struct NpyFile {
    file: StagedFile,
    kind: Type,
    /// Lengths of the other axes.
    rest: Vec<usize>,
}

impl NpyFile {
    /// Starts a file.
    ///
    /// # Errors
    /// A place that cannot be written; errors of the disk.
    pub fn create(path: &Path, kind: Type, rest: &[usize]) -> anyhow::Result<Self> {
        let mut file = StagedFile::create(path)?;
        file.write_all(&[0; HEADER_BYTES])?;
        Ok(Self { file, kind, rest: rest.to_vec() })
    }

    /// Appends values that are encoded already.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn push(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.file.write_all(bytes)?)
    }

    /// Writes the header, now that the number of samples is known, and renames the file into place.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn finish(mut self, samples: u64) -> anyhow::Result<()> {
        self.file.rewrite_start(&header(self.kind, samples, &self.rest))?;
        self.file.keep()?;
        Ok(())
    }
}

fn header(kind: Type, samples: u64, rest: &[usize]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({samples},", kind.code());
    for length in rest {
        let _ = write!(text, " {length},");
    }
    text.push_str("), }");
    let room = HEADER_BYTES - MAGIC.len() - size_of::<u16>();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((room as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes.resize(HEADER_BYTES - 1, b' ');
    bytes.push(b'\n');
    bytes
}
