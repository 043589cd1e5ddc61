//! This machine's copies of the files of a dataset in an object store.

use std::fs;
use std::sync::Arc;

use super::Dataset;
use crate::error::MarketError;
use crate::files::Files;
use crate::snapshot::{file_path, sums_path};

/// Keeps the file of a group open (see [`Dataset::hold_group`]).
#[derive(Debug)]
pub struct HeldGroup {
    _file: Arc<fs::File>,
}

impl Dataset {
    /// Whether files come from an object store, through a cache on this machine.
    pub fn is_in_objects(&self) -> bool {
        matches!(self.files, Files::Remote(_))
    }

    /// Whether the file of a group is on this machine.
    pub fn is_here(&self, group: u32) -> bool {
        match (&self.files, self.manifest.file(group)) {
            (Files::Remote(remote), Some(file)) => remote.is_here(&file_path(&file.sha256)),
            _ => true,
        }
    }

    /// The groups whose files an object store has, and this machine as well, ascending; none of a directory. Looks at every file.
    pub fn groups_on_disk(&self) -> Vec<u32> {
        if !self.is_in_objects() {
            return Vec::new();
        }
        self.manifest.files.iter().map(|file| file.group).filter(|group| self.is_here(*group)).collect()
    }

    /// Whether the file of a group could be kept on this machine: a file larger than the whole cache is fetched for each use.
    pub fn can_keep(&self, group: u32) -> bool {
        match (&self.files, self.manifest.file(group)) {
            (Files::Remote(remote), Some(file)) => remote.can_keep(file.bytes),
            _ => true,
        }
    }

    /// Opens the file of a group that comes from an object store, for a group that is read in parts: as long as the result lives, its
    /// file is fetched at most once, also where the cache cannot keep it. `None` where there is nothing to hold.
    ///
    /// # Errors
    /// [`MarketError::DataRoot`]: reading would fail as well. What else is wrong is reported by what reads it.
    pub fn hold_group(&self, group: u32) -> Result<Option<HeldGroup>, MarketError> {
        let Some(file) = self.manifest.file(group).filter(|_| self.is_in_objects()) else { return Ok(None) };
        let opened = self.opened(&file_path(&file.sha256), &file.sha256)?;
        Ok(opened.map(|file| HeldGroup { _file: file }))
    }

    /// Brings the file of a group and its checksums to this machine, if they come from an object store. False if the cache has no
    /// room for them.
    ///
    /// # Errors
    /// [`MarketError::Io`], [`MarketError::DataRoot`], [`MarketError::Checksum`].
    pub fn fetch_group(&self, group: u32) -> Result<bool, MarketError> {
        let Some(file) = self.manifest.file(group).filter(|_| !self.is_here(group)) else { return Ok(true) };
        self.files.open(&self.manifest.name, &file_path(&file.sha256), Some(&file.sha256))?;
        // A dataset may have none.
        match self.files.open(&self.manifest.name, &sums_path(&file.sha256), None) {
            Err(error @ MarketError::DataRoot { .. }) => Err(error),
            _ => Ok(self.is_here(group)),
        }
    }
}
