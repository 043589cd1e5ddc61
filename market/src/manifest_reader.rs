//! Reads manifests: the file of a snapshot, of its base, and what the indices of appended bars add to them. Each is checked against
//! the id by which it is asked for.

use std::fs;
use std::sync::Arc;

use crate::error::MarketError;
use crate::files::Files;
use crate::layout::{base_path, manifest_path, tail_index_path};
use crate::limits::{MANIFEST_BYTES_MAX, TAIL_INDEX_BYTES_MAX};
use crate::manifest::{MANIFEST_VERSION, Manifest, sha256_hex};
use crate::remote::content;
use crate::tail::{self, Tails};

/// A manifest, the appended bars if there are any, and the manifest's file.
type Opened = (Arc<Manifest>, Option<Tails>, Arc<fs::File>);

/// A snapshot's manifest with all of its symbols, its appended bars if it has any, and the manifest's file.
pub(crate) fn open_manifest(files: &Files, name: &str, snapshot: &str) -> Result<Opened, MarketError> {
    let (stored, file) = read_manifest(files, name, snapshot)?;
    if stored.appended.is_none() {
        return Ok((Arc::new(stored), None, file));
    }
    let (manifest, tails) = complete(files, stored, None)?;
    Ok((Arc::new(manifest), Some(tails), file))
}

/// Completes the manifest of a snapshot with appended bars; `base` is that to which they were appended, if it is known.
///
/// # Errors
/// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for the base and the indices.
pub(crate) fn complete(
    files: &Files,
    stored: Manifest,
    base: Option<Arc<Manifest>>,
) -> Result<(Manifest, Tails), MarketError> {
    let name = stored.name.clone();
    let id = stored.appended.as_ref().map(|appended| appended.base.clone()).unwrap_or_default();
    let base = match base.filter(|base| base.snapshot == id) {
        Some(base) => base,
        None => Arc::new(read_base(files, &name, &id)?),
    };
    let _fetched = fetch_indices(files, &stored)?;
    tail::open::open(stored, base, |relative, digest| {
        files.read_with(&name, relative, Some(digest), |file| {
            let shown = || format!("{name}/{relative}");
            let bytes = content(file).map_err(MarketError::io("read", shown()))?;
            let found = sha256_hex(&bytes);
            if found != digest {
                return Err(MarketError::Checksum { file: shown(), expected: digest.to_owned(), found });
            }
            Ok(bytes)
        })
    })
}

/// Brings the indices of appended bars to this machine, several at once: one after the other, each would take a round trip to the store.
fn fetch_indices(files: &Files, stored: &Manifest) -> Result<Vec<Arc<fs::File>>, MarketError> {
    let Files::Remote(remote) = files else { return Ok(Vec::new()) };
    let allowed = stored.tails().iter().filter(|file| file.index_bytes <= TAIL_INDEX_BYTES_MAX);
    let indices: Vec<_> = allowed.map(|file| (tail_index_path(&file.index), file.index.as_str())).collect();
    remote.fetch(&indices)
}

/// The manifest of a base, checked.
pub(crate) fn read_base(files: &Files, name: &str, snapshot: &str) -> Result<Manifest, MarketError> {
    match read_manifest_at(files, name, &base_path(snapshot), snapshot) {
        Err(error @ MarketError::DataRoot { .. }) => Err(error),
        // It is the same file while its snapshot exists.
        Err(error) => read_manifest(files, name, snapshot).map(|(manifest, _)| manifest).map_err(|other| match other {
            MarketError::Io { .. } | MarketError::Gone { .. } => error,
            other => other,
        }),
        Ok((manifest, _)) => Ok(manifest),
    }
}

/// A manifest as it is stored, checked, and its file.
pub(crate) fn read_manifest(
    files: &Files,
    name: &str,
    snapshot: &str,
) -> Result<(Manifest, Arc<fs::File>), MarketError> {
    read_manifest_at(files, name, &manifest_path(snapshot), snapshot)
}

fn read_manifest_at(
    files: &Files,
    name: &str,
    relative: &str,
    snapshot: &str,
) -> Result<(Manifest, Arc<fs::File>), MarketError> {
    files.read_with(name, relative, None, |opened| {
        Ok((decode_manifest(opened, name, relative, snapshot)?, Arc::clone(opened)))
    })
}

fn decode_manifest(opened: &fs::File, name: &str, relative: &str, snapshot: &str) -> Result<Manifest, MarketError> {
    let file = format!("{name}/{relative}");
    let size = opened.metadata().map_err(MarketError::io("read", &file))?.len();
    if size > MANIFEST_BYTES_MAX {
        return Err(MarketError::Limit { what: format!("bytes of {file}"), found: size, limit: MANIFEST_BYTES_MAX });
    }
    let bytes = content(opened).map_err(MarketError::io("read", &file))?;
    let corrupt = |why: String| MarketError::Corrupt { file: file.clone(), why };
    // A newer layout may not be readable, but its version is.
    #[derive(serde::Deserialize)]
    struct Version {
        version: u32,
    }
    let read: Result<Manifest, serde_json::Error> = serde_json::from_slice(&bytes);
    let version = match &read {
        Ok(manifest) => manifest.version,
        Err(_) => serde_json::from_slice::<Version>(&bytes).map_err(|e| corrupt(e.to_string()))?.version,
    };
    if !(1..=MANIFEST_VERSION).contains(&version) {
        let why =
            format!("its version is {version}, but this program reads 1 to {MANIFEST_VERSION}: a newer one wrote it");
        return Err(corrupt(why));
    }
    let mut manifest = read.map_err(|e| corrupt(e.to_string()))?;
    let found = manifest.content_id();
    if found != snapshot || manifest.snapshot != snapshot {
        return Err(MarketError::Checksum { file, expected: snapshot.to_owned(), found });
    }
    manifest.check().map_err(|why| MarketError::Corrupt { file, why })?;
    // The directory gives the dataset its name, so that it can be renamed.
    name.clone_into(&mut manifest.name);
    Ok(manifest)
}
