//! Files that processes which are gone were writing, in the directory of a dataset: imports and compactions delete them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::snapshot::{BASES, CompactionLock, FILES, WriteLock};

/// Prefix of the name of a file that is being written.
const STAGED: &str = ".tmp";

/// Deletes files that processes which are gone had not finished. Nothing is done while a compaction runs, whose files look the same; the
/// caller has the lock of imports. What cannot be deleted is left for the next import.
pub(crate) fn sweep_unfinished(directory: &Path, name: &str) {
    let unfinished = unfinished(directory);
    // The lock is taken only where there is something to delete: a compaction that begins meanwhile would be refused.
    if !unfinished.is_empty()
        && let Ok(_no_compaction) = CompactionLock::take(directory, name)
    {
        delete_unfinished(unfinished);
    }
}

/// The same for a compaction, which has its own lock.
pub(crate) fn sweep_unfinished_of_imports(directory: &Path, name: &str) {
    let unfinished = unfinished(directory);
    if !unfinished.is_empty()
        && let Ok(_no_import) = WriteLock::take(directory, name)
    {
        delete_unfinished(unfinished);
    }
}

fn unfinished(directory: &Path) -> Vec<PathBuf> {
    let entries = [FILES, BASES].into_iter().filter_map(|folder| fs::read_dir(directory.join(folder)).ok());
    let found = entries.flat_map(|entries| entries.flatten());
    found.filter(|entry| entry.file_name().to_string_lossy().starts_with(STAGED)).map(|entry| entry.path()).collect()
}

/// With both locks, none of these has a writer.
fn delete_unfinished(files: Vec<PathBuf>) {
    for file in files {
        let _ = fs::remove_file(file);
    }
}
