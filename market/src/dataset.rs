//! An opened snapshot: which bar an as-of means, and the bars of a group.
//!
//! Every byte is checked against the manifest's sha256 before it is believed.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use crate::arrow_file::{SymbolBars, decode};
use crate::error::{MarketError, nearest};
use crate::manifest::{Manifest, sha256_hex};
use crate::snapshot::{MemoryFiles, file_path};
use crate::time::TimeMicros;

/// Where a snapshot's files are.
#[derive(Debug, Clone)]
pub(crate) enum Files {
    /// The dataset's directory.
    Directory(PathBuf),
    /// Bundled with the program.
    Memory(Arc<MemoryFiles>),
}

/// An opened, pinned snapshot. Cheap to clone; may be used from many threads.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Table of contents.
    pub manifest: Arc<Manifest>,
    files: Files,
}

impl Dataset {
    pub(crate) fn new(manifest: Arc<Manifest>, files: Files) -> Self {
        Self { manifest, files }
    }

    /// Whether it comes with the program.
    pub fn is_bundled(&self) -> bool {
        matches!(self.files, Files::Memory(_))
    }

    /// The newest bar time in the dataset at or before `wanted` (the newest of all when `None`); `None` when there is
    /// no such bar.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for the file of times.
    pub fn resolve_as_of(&self, wanted: Option<TimeMicros>) -> Result<Option<TimeMicros>, MarketError> {
        match wanted {
            None => Ok(Some(self.manifest.last_time)),
            // The two ends need no file.
            Some(wanted) if wanted >= self.manifest.last_time => Ok(Some(self.manifest.last_time)),
            Some(wanted) if wanted < self.manifest.first_time => Ok(None),
            Some(wanted) => {
                let times = self.times()?;
                let after = times.partition_point(|&t| t <= wanted);
                Ok(after.checked_sub(1).and_then(|i| times.get(i).copied()))
            }
        }
    }

    /// The distinct bar times of all symbols, ascending.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`].
    pub fn times(&self) -> Result<Vec<TimeMicros>, MarketError> {
        let file = &self.manifest.times;
        let decoded = decode(&self.read(&file.sha256)?, &[]).map_err(|why| self.corrupt(&file.sha256, why))?;
        if decoded.times.len() as u64 != file.rows || !decoded.times.is_sorted_by(|a, b| a < b) {
            return Err(self.corrupt(&file.sha256, "its times are not those the manifest counts".to_owned()));
        }
        Ok(decoded.times)
    }

    /// The bars of one group, symbols sorted by name, only `columns` decoded; none for a group without symbols.
    ///
    /// # Errors
    /// [`MarketError::UnknownGroup`], [`MarketError::UnknownColumn`]; [`MarketError::Checksum`],
    /// [`MarketError::Corrupt`] or [`MarketError::Io`] for the group's file.
    pub fn load_group(&self, group: u32, columns: &[String]) -> Result<Vec<SymbolBars>, MarketError> {
        let manifest = &*self.manifest;
        if group >= manifest.groups {
            let dataset = manifest.name.clone();
            return Err(MarketError::UnknownGroup { dataset, group, groups: manifest.groups });
        }
        if let Some(unknown) = columns.iter().find(|c| !manifest.columns.contains(c)) {
            return Err(MarketError::UnknownColumn {
                dataset: manifest.name.clone(),
                column: unknown.clone(),
                available: manifest.columns.clone(),
                suggestion: nearest(unknown, manifest.columns.iter().map(String::as_str)),
            });
        }
        let Some(file) = manifest.file(group) else { return Ok(Vec::new()) };
        let decoded = decode(&self.read(&file.sha256)?, columns).map_err(|why| self.corrupt(&file.sha256, why))?;
        let rows = decoded.times.len();
        if rows as u64 != file.rows || decoded.columns.iter().any(|c| c.len() != rows) {
            return Err(self.corrupt(&file.sha256, format!("it has {rows} rows, not {}", file.rows)));
        }
        let mut bars = Vec::new();
        for entry in manifest.symbols.iter().filter(|s| s.group == group) {
            // Within `rows`, which is a usize: the manifest's ranges were checked to add up to it.
            let range = entry.row_start as usize..(entry.row_start + entry.rows) as usize;
            let times = decoded.times[range.clone()].to_vec();
            let ends = (times.first(), times.last());
            if ends != (Some(&entry.first_time), Some(&entry.last_time)) || !times.is_sorted_by(|a, b| a < b) {
                return Err(self.corrupt(&file.sha256, format!("the times of {} are not as listed", entry.symbol)));
            }
            let columns = decoded.columns.iter().map(|c| c[range.clone()].to_vec()).collect();
            bars.push(SymbolBars { symbol: entry.symbol.as_str().into(), times, columns });
        }
        Ok(bars)
    }

    /// The bars of one symbol; its whole group is read.
    ///
    /// # Errors
    /// [`MarketError::UnknownSymbol`] with the nearest one; those of [`Dataset::load_group`].
    pub fn load_symbol(&self, symbol: &str, columns: &[String]) -> Result<SymbolBars, MarketError> {
        let unknown = || MarketError::UnknownSymbol {
            dataset: self.manifest.name.clone(),
            symbol: symbol.to_owned(),
            suggestion: nearest(symbol, self.manifest.symbols.iter().map(|s| s.symbol.as_str())),
        };
        let entry = self.manifest.symbol(symbol).ok_or_else(unknown)?;
        let group = self.load_group(entry.group, columns)?;
        group.into_iter().find(|b| *b.symbol == *symbol).ok_or_else(unknown)
    }

    /// Reads every file and compares its checksum; the errors found, by group order.
    pub fn verify(&self) -> Vec<MarketError> {
        let digests = self.manifest.files.iter().map(|f| &f.sha256).chain([&self.manifest.times.sha256]);
        digests.filter_map(|sha256| self.read(sha256).err()).collect()
    }

    /// A file's bytes, checked.
    fn read(&self, sha256: &str) -> Result<Arc<Vec<u8>>, MarketError> {
        let relative = file_path(sha256);
        let file = format!("{}/{relative}", self.manifest.name);
        let bytes = match &self.files {
            Files::Directory(path) => Arc::new(fs::read(path.join(relative)).map_err(MarketError::io("read", &file))?),
            Files::Memory(files) => {
                let files = files.lock().unwrap_or_else(PoisonError::into_inner);
                // Built in, so already trusted.
                return files.get(sha256).cloned().ok_or_else(|| MarketError::Corrupt {
                    file,
                    why: "it is missing from the bundled dataset".to_owned(),
                });
            }
        };
        let found = sha256_hex(&bytes);
        if found != sha256 {
            return Err(MarketError::Checksum { file, expected: sha256.to_owned(), found });
        }
        Ok(bytes)
    }

    fn corrupt(&self, sha256: &str, why: String) -> MarketError {
        MarketError::Corrupt { file: format!("{}/{}", self.manifest.name, file_path(sha256)), why }
    }
}
