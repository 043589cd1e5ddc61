//! What every command is given: where datasets are stored.

use std::path::PathBuf;

use trawl_market::Store;

/// Settings shared by all commands.
#[derive(Debug, Clone)]
pub struct Context {
    /// Directory that holds datasets.
    pub data_root: PathBuf,
}

impl Context {
    /// From `--data-root` (or `TRAWL_DATA_ROOT`), else the platform's place for a user's data.
    pub fn new(data_root: Option<PathBuf>) -> Self {
        let data_root = data_root.filter(|p| !p.as_os_str().is_empty());
        Self { data_root: data_root.unwrap_or_else(default_data_root) }
    }

    /// The datasets under the data root, and the bundled ones.
    pub fn store(&self) -> Store {
        Store::new(self.data_root.clone())
    }
}

/// `$XDG_DATA_HOME/trawl`, else `~/.local/share/trawl`, else `./trawl-data` where there is no home.
fn default_data_root() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(data) = absolute("XDG_DATA_HOME") {
        return data.join("trawl");
    }
    match absolute("HOME") {
        Some(home) => home.join(".local").join("share").join("trawl"),
        None => PathBuf::from("trawl-data"),
    }
}
