//! The names of a dataset's files, and how a file gets its name: it is written under a temporary one, synced and renamed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::error::MarketError;
use crate::manifest::Manifest;

pub(crate) const HEAD: &str = "HEAD";
/// What an importer of a vendor's files noted; belongs to no snapshot.
pub(crate) const VENDOR_RECORD: &str = "vendor.json";
/// Folder of the content-addressed files.
pub(crate) const FILES: &str = "files";
/// Folder of the manifests to which bars were appended.
pub(crate) const BASES: &str = "bases";

/// Path of a content-addressed file, relative to the dataset.
pub(crate) fn file_path(sha256: &str) -> String {
    format!("{FILES}/{sha256}.arrow")
}

/// Path of the checksums of a file of bars, relative to the dataset.
pub(crate) fn sums_path(sha256: &str) -> String {
    format!("{FILES}/{sha256}.sums")
}

/// Folder of the parts of columns of a file of bars, relative to the dataset: in caches alone.
pub(crate) fn parts_path(sha256: &str) -> String {
    format!("{FILES}/{sha256}.parts")
}

/// Path of the index of a file of appended bars, relative to the dataset.
pub(crate) fn tail_index_path(sha256: &str) -> String {
    format!("{FILES}/{sha256}.tail")
}

/// Path of the manifest to which bars were appended, relative to the dataset. It stays when its snapshot is deleted.
pub(crate) fn base_path(snapshot: &str) -> String {
    format!("{BASES}/{snapshot}.json")
}

/// Path of a table of reference data, relative to the dataset.
pub(crate) fn table_path(sha256: &str) -> String {
    format!("{FILES}/{sha256}.csv")
}

/// Path of a manifest, relative to the dataset.
pub(crate) fn manifest_path(snapshot: &str) -> String {
    format!("snapshots/{snapshot}.json")
}

impl Manifest {
    /// The files that it names, as it is stored or completed, relative to the dataset.
    pub(crate) fn file_paths(&self) -> BTreeSet<String> {
        let bars = self.files.iter().map(|f| &f.sha256).chain([&self.times.sha256]);
        let mut named: BTreeSet<String> = bars.map(|sha256| file_path(sha256)).collect();
        named.extend(self.files.iter().map(|f| sums_path(&f.sha256)));
        named.extend(self.tails().iter().flat_map(|t| [file_path(&t.sha256), tail_index_path(&t.index)]));
        named.extend(self.tables().map(|t| table_path(&t.sha256)));
        named
    }
}

/// Writes `dataset/relative` as a whole or not at all.
pub(crate) fn write_atomically(dataset: &Path, relative: &str, bytes: &[u8], name: &str) -> Result<(), MarketError> {
    let shown = format!("{name}/{relative}");
    let path = dataset.join(relative);
    let directory = path.parent().unwrap_or(dataset);
    fs::create_dir_all(directory).map_err(MarketError::io("create the directory of", &shown))?;
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(MarketError::io("write", &shown))?;
    file.write_all(bytes).map_err(MarketError::io("write", &shown))?;
    persist(file, &path).map_err(MarketError::io("write", &shown))
}

/// Gives a file that was written its name, once it is on the disk.
pub(crate) fn persist(file: tempfile::NamedTempFile, path: &Path) -> std::io::Result<()> {
    make_readable(file.as_file())?;
    file.as_file().sync_data()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Makes a file readable by others: temporary files are private to their user, but servers under another user read
/// datasets.
pub(crate) fn make_readable(file: &fs::File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    let _ = file;
    Ok(())
}
