//! Cache of compiled kernels, in memory and in a folder: a text is compiled once for an architecture, a compiler and an
//! engine.
//!
//! Code read from the folder is executed, so the folder must be owned by this user and inaccessible to others. Files
//! are written atomically; one with a wrong checksum counts as absent and is rewritten.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use twox_hash::XxHash3_128;

/// Magic bytes of a file.
const MAGIC: &[u8; 8] = b"trawlcub";

/// Maximum bytes of cached code.
const CUBIN_BYTES_MAX: usize = 64 << 20;

/// What a compiled kernel depends on: the cache key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// [`crate::cuda::Kernel::fingerprint`].
    pub fingerprint: u128,
    /// Compute capability, such as 90.
    pub architecture: u32,
    /// Version of the run-time compiler.
    pub compiler: (i32, i32),
}

impl Key {
    fn file_name(&self) -> String {
        let Self { fingerprint, architecture, compiler: (major, minor) } = self;
        format!("{fingerprint:032x}-sm{architecture}-nvrtc{major}.{minor}-trawl{}.cubin", env!("CARGO_PKG_VERSION"))
    }
}

/// Why a folder was rejected.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It could not be created or inspected.
    #[error("the folder for compiled kernels, '{}', cannot be used", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// It belongs to another user.
    #[error("the folder for compiled kernels, '{}', belongs to another user: code from it would be run", path.display())]
    Owner {
        /// The folder.
        path: PathBuf,
    },
    /// Other users may read or write it.
    #[error("the folder for compiled kernels, '{}', is open to other users (mode {mode:o}, wanted 700)", path.display())]
    Mode {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// A cache of compiled kernels.
#[derive(Debug, Default)]
pub struct Cache {
    known: Mutex<HashMap<Key, Arc<[u8]>>>,
    folder: Option<PathBuf>,
}

impl Cache {
    /// A cache in memory only.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// A cache in memory and in `folder`, which is created if necessary.
    ///
    /// # Errors
    /// [`CacheError`]: the folder is not exclusively owned by this user.
    pub fn in_folder(folder: &Path) -> Result<Self, CacheError> {
        let io = |source| CacheError::Io { path: folder.to_path_buf(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        let found = std::fs::metadata(folder).map_err(io)?;
        // Create a file to learn this process's user id.
        let probe = folder.join(format!("owner.{}.tmp", std::process::id()));
        let ours = std::fs::File::create(&probe).and_then(|file| file.metadata()).map(|m| m.uid());
        let _ = std::fs::remove_file(&probe);
        if ours.map_err(io)? != found.uid() {
            return Err(CacheError::Owner { path: folder.to_path_buf() });
        }
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(CacheError::Mode { path: folder.to_path_buf(), mode });
        }
        Ok(Self { known: Mutex::default(), folder: Some(folder.to_path_buf()) })
    }

    /// The code of `key`, if it is cached.
    pub fn known(&self, key: Key) -> Option<Arc<[u8]>> {
        self.code(key, || Err(())).ok()
    }

    /// The code of `key`, compiled with `compile` if it is not cached. Errors of the folder only cost time.
    ///
    /// # Errors
    /// Those of `compile`.
    pub fn code<E>(&self, key: Key, compile: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Arc<[u8]>, E> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(code) = known {
            return Ok(code);
        }
        let file = self.folder.as_ref().map(|folder| folder.join(key.file_name()));
        let kept = file.as_ref().and_then(|file| read(file));
        let code: Arc<[u8]> = match kept {
            Some(code) => code.into(),
            None => {
                let code = compile()?;
                if let Some(file) = &file {
                    let _ = write(file, &code);
                }
                code.into()
            }
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&code));
        Ok(code)
    }
}

fn checksum(code: &[u8]) -> [u8; 16] {
    XxHash3_128::oneshot(code).to_le_bytes()
}

/// The code of a file, if it exists and is intact.
fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = (MAGIC.len() + 16 + CUBIN_BYTES_MAX) as u64;
    std::fs::File::open(file).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    let (head, code) = bytes.split_at_checked(MAGIC.len() + 16)?;
    let whole = head.starts_with(MAGIC) && head[MAGIC.len()..] == checksum(code);
    whole.then(|| code.to_vec())
}

/// Writes to a temporary name first, so that readers see a complete file or none.
fn write(file: &Path, code: &[u8]) -> std::io::Result<()> {
    let fresh = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = std::fs::File::create(&fresh).and_then(|mut out| {
        out.write_all(MAGIC)?;
        out.write_all(&checksum(code))?;
        out.write_all(code)?;
        out.sync_all()
    });
    let done = written.and_then(|()| std::fs::rename(&fresh, file));
    if done.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { fingerprint: 7, architecture: 90, compiler: (13, 0) };

    /// A path that does not exist yet.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("trawl-cache-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn never() -> Result<Vec<u8>, String> {
        Err("compiled again".to_owned())
    }

    #[test]
    fn what_was_compiled_once_is_not_compiled_again_by_a_later_process() {
        let folder = folder("again");
        let cache = Cache::in_folder(&folder).expect("a folder of ours");
        assert_eq!(&*cache.code(KEY, || Ok::<_, String>(vec![1, 2, 3])).expect("compiled"), [1, 2, 3]);
        assert_eq!(&*cache.code(KEY, never).expect("in memory"), [1, 2, 3]);
        let later = Cache::in_folder(&folder).expect("a folder of ours");
        assert_eq!(&*later.code(KEY, never).expect("in the folder"), [1, 2, 3]);
        for other in [Key { architecture: 100, ..KEY }, Key { compiler: (12, 9), ..KEY }, Key { fingerprint: 8, ..KEY }]
        {
            assert!(later.code(other, never).is_err(), "{other:?}");
        }
        assert_eq!(std::fs::metadata(&folder).expect("there").permissions().mode() & 0o777, 0o700);
        std::fs::remove_dir_all(folder).expect("it was ours");
    }

    #[test]
    fn a_damaged_file_is_made_anew() {
        let folder = folder("damaged");
        let fill = |code: Vec<u8>| {
            let cache = Cache::in_folder(&folder).expect("a folder of ours");
            cache.code(KEY, || Ok::<_, String>(code)).expect("compiled")
        };
        fill(vec![5; 1000]);
        let file = folder.join(KEY.file_name());
        let whole = std::fs::read(&file).expect("a file");
        let mut flipped = whole.clone();
        flipped[500] ^= 1;
        for damaged in [&whole[..700], &[], &flipped, b"something else, and longer than a head"] {
            std::fs::write(&file, damaged).expect("written");
            assert_eq!(&*fill(vec![6; 1000]), [6; 1000]);
            std::fs::remove_file(&file).expect("it was written anew");
        }
        std::fs::remove_dir_all(folder).expect("it was ours");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = folder("open");
        std::fs::create_dir(&folder).expect("made");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).expect("ours");
        assert!(matches!(Cache::in_folder(&folder), Err(CacheError::Mode { mode: 0o770, .. })));
        std::fs::remove_dir_all(folder).expect("it was ours");
    }
}
