//! What every command is given: where datasets are stored.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trawl_market::{CacheOptions, Store};
use trawl_worker::data_root::{DISK_CACHE_BYTES_DEFAULT, DataRootError, open, open_checked};

use crate::failure::UserMistake;

/// Options that every command has.
#[derive(Debug, clap::Args)]
pub struct DataArgs {
    /// Where datasets are: a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX [default:
    /// $XDG_DATA_HOME/trawl or ~/.local/share/trawl]
    #[arg(long, global = true, env = "TRAWL_DATA_ROOT", hide_env = true, value_name = "DIR|URL")]
    pub data_root: Option<PathBuf>,

    /// Directory of this machine for files of a data root in a bucket; processes may share it [default: $XDG_CACHE_HOME/trawl or
    /// ~/.cache/trawl]
    #[arg(long, global = true, env = "TRAWL_DATA_CACHE", hide_env = true, value_name = "DIR")]
    pub data_cache: Option<PathBuf>,

    /// Bytes that these files may take, of all processes that share the directory
    #[arg(long, global = true, env = "TRAWL_DATA_CACHE_BYTES", hide_env = true, value_name = "BYTES",
        default_value_t = DISK_CACHE_BYTES_DEFAULT)]
    pub data_cache_bytes: u64,
}

/// Settings shared by all commands.
#[derive(Debug, Clone)]
pub struct Context {
    /// Directory or address of the datasets, as given.
    pub data_root: PathBuf,
    /// Whether it was given.
    given: bool,
    cache: CacheOptions,
}

impl Context {
    /// From the options (or their variables), else the platform's places for a user's data and caches.
    pub fn new(args: DataArgs) -> Self {
        let stated = |path: Option<PathBuf>| path.filter(|p| !p.as_os_str().is_empty());
        let data_root = stated(args.data_root);
        let folder =
            stated(args.data_cache).unwrap_or_else(|| user_folder("XDG_CACHE_HOME", &[".cache"], "trawl-cache"));
        Self {
            given: data_root.is_some(),
            data_root: data_root.unwrap_or_else(|| user_folder("XDG_DATA_HOME", &[".local", "share"], "trawl-data")),
            cache: CacheOptions::new(folder, args.data_cache_bytes),
        }
    }

    /// The datasets under the data root, and the bundled ones.
    ///
    /// # Errors
    /// [`UserMistake`] for an address that is none; the cache cannot be used.
    pub fn store(&self) -> anyhow::Result<Store> {
        open(&self.data_root, &self.cache).map_err(of_data_root)
    }

    /// The same with a cache in another folder.
    ///
    /// # Errors
    /// Those of [`Context::store`].
    pub fn store_with_cache(&self, folder: &Path) -> anyhow::Result<Store> {
        let cache = CacheOptions { folder: folder.to_owned(), ..self.cache.clone() };
        open(&self.data_root, &cache).map_err(of_data_root)
    }

    /// The same, where a directory that was named has to exist, and a bucket to answer: a list of what is there says nothing about a
    /// data root that is not there. The usual data root need not exist. Blocks.
    ///
    /// # Errors
    /// Those of [`Context::store_of_server`].
    pub fn store_to_list(&self) -> anyhow::Result<Store> {
        match self.given {
            true => open_checked(&self.data_root, &self.cache).map_err(of_data_root),
            false => self.store(),
        }
    }

    /// The same for a server, checked: a directory that was named has to exist, a bucket to answer. Blocks.
    ///
    /// # Errors
    /// Those of [`Context::store`]; [`UserMistake`] for a data root that does not exist or refuses this process; a bucket that does
    /// not answer.
    pub fn store_of_server(&self) -> anyhow::Result<Store> {
        self.make_usual();
        open_checked(&self.data_root, &self.cache).map_err(of_data_root)
    }

    /// Makes the usual data root where none was named: nobody has to make a folder before the bundled datasets can be scanned.
    pub fn make_usual(&self) {
        if !self.given {
            // Whoever uses it says what is wrong with it.
            let _ = std::fs::create_dir_all(&self.data_root);
        }
    }

    /// The variables that give another process of ours this cache.
    pub fn cache_variables(&self) -> [(&'static str, OsString); 2] {
        let bytes = self.cache.bytes_max.to_string();
        [("TRAWL_DATA_CACHE", self.cache.folder.clone().into()), ("TRAWL_DATA_CACHE_BYTES", bytes.into())]
    }

    /// The folder of this machine for copies of files of buckets.
    pub fn cache_folder(&self) -> &Path {
        &self.cache.folder
    }

    /// The address of a folder of the data root.
    pub fn below(&self, folder: &str) -> String {
        self.data_root.join(folder).display().to_string()
    }
}

fn of_data_root(error: DataRootError) -> anyhow::Error {
    let help = match &error {
        DataRootError::Address(_) => "give --data-root, or TRAWL_DATA_ROOT, in one of these forms",
        DataRootError::Directory { .. } => "make it, mount it, or name another with --data-root or TRAWL_DATA_ROOT",
        DataRootError::Bucket { .. } => {
            "check its name, the credentials, and where the store is (AWS_ENDPOINT_URL, AWS_REGION; GOOGLE_BASE_URL; \
             AZURE_STORAGE_ENDPOINT): this process has to list and read there"
        }
        DataRootError::Away { .. } => {
            return anyhow::Error::from(error).context(
                "cannot start: check AWS_ENDPOINT_URL (GOOGLE_BASE_URL, AZURE_STORAGE_ENDPOINT) and the network, or wait until the store is back",
            );
        }
        DataRootError::Cache(_) => return anyhow::Error::from(error).context("cannot use --data-cache"),
    };
    UserMistake::with_help(error.to_string(), help).into()
}

/// `$XDG_CACHE_HOME/trawl/NAME`, else `~/.cache/trawl/NAME`.
pub fn cache_folder(name: &str) -> Option<PathBuf> {
    let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    caches.map(|caches| caches.join("trawl").join(name))
}

/// The folder `trawl` in the one that a variable names, else in one of the user's home, else `here`.
fn user_folder(variable: &str, in_home: &[&str], here: &str) -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(folder) = absolute(variable) {
        return folder.join("trawl");
    }
    match absolute("HOME") {
        Some(home) => in_home.iter().fold(home, |folder, name| folder.join(name)).join("trawl"),
        None => PathBuf::from(here),
    }
}
