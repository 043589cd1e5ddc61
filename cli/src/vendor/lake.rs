//! Lakes: files of bars in folders `KEY=VALUE`, in a directory or a bucket. What a key means is decided by `trawl_market`.

use std::io;
use std::path::{Path, PathBuf};

use trawl_market::{FILE_ENDINGS, GZIP_ENDING};

use super::inbox::at_once;
use super::place::{Found, Place};
use crate::failure::{UserMistake, io_reason};

/// Folders above the files.
const DEPTH_MAX: usize = 8;

/// Whether a file is one of bars, by its name. Spark and its like write others beside them, which begin with a dot or a line.
pub fn is_bars(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let stem = lower.strip_suffix(GZIP_ENDING).unwrap_or(&lower);
    !name.starts_with(['.', '_']) && FILE_ENDINGS.iter().any(|ending| stem.ends_with(ending))
}

/// Whether a folder, by its name, is one of a lake: `KEY=VALUE`. Those of writers that are not done (`_temporary`) are not.
fn is_partition(name: &str) -> bool {
    !name.starts_with(['.', '_']) && name.contains('=')
}

/// The files of bars of an address and of folders `KEY=VALUE` in it, by path.
///
/// # Errors
/// [`UserMistake`] for an address that is none, or has no file of bars; a bucket that fails.
pub fn files_of(address: &str) -> anyhow::Result<(Place, Vec<Found>)> {
    let place = Place::parse(address)?;
    let (mut found, mut level) = (Vec::new(), vec![String::new()]);
    for _ in 0..=DEPTH_MAX {
        let listed = at_once(&level, |folder| place.list(folder))?;
        level.clear();
        for (folders, files) in listed {
            found.extend(files.into_iter().filter(|file| is_bars(file.name())));
            let is_inside = |path: &String| is_partition(path.rsplit('/').next().unwrap_or(path));
            level.extend(folders.into_iter().filter(is_inside));
        }
    }
    if found.is_empty() {
        let message = format!("{} contains no file of bars ({})", place.shown(""), FILE_ENDINGS.join(", "));
        let help = "name the prefix that contains them: folders below it are not searched, except those of a lake, such as symbol=AAPL";
        return Err(UserMistake::with_help(message, help).into());
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((place, found))
}

/// Adds the files of bars of a directory, also of folders `KEY=VALUE` in it.
///
/// # Errors
/// [`UserMistake`] for a directory that cannot be listed.
pub fn files_in(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), UserMistake> {
    let mut waiting = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        let unreadable =
            |error: io::Error| UserMistake::plain(format!("cannot list '{}': {}", folder.display(), io_reason(&error)));
        let entries = folder.read_dir().and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(unreadable)?;
        for path in entries.into_iter().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if is_bars(name) && path.is_file() {
                files.push(path);
            } else if depth < DEPTH_MAX && is_partition(name) && path.is_dir() {
                waiting.push((path, depth + 1));
            }
        }
    }
    Ok(())
}
