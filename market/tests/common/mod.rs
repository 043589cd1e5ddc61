//! Helpers for the tests of this crate: a store in a temporary directory and CSV files to import.

#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trawl_market::{Dataset, ImportOptions, ImportReport, MarketError, Store, SymbolBars, import_files};

pub struct Place {
    pub directory: TempDir,
    pub store: Store,
}

impl Place {
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Store::new(directory.path().join("data"));
        Self { directory, store }
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub fn import(&self, dataset: &str, files: &[PathBuf]) -> Result<ImportReport, MarketError> {
        import_files(&self.store, &options(dataset, files))
    }

    /// The only file of the dataset that holds bars of `group`.
    pub fn group_file(&self, dataset: &Dataset, group: u32) -> PathBuf {
        let sha256 = &dataset.manifest.file(group).unwrap().sha256;
        self.store.root.join(&dataset.manifest.name).join(format!("files/{sha256}.arrow"))
    }
}

pub fn options(dataset: &str, files: &[PathBuf]) -> ImportOptions {
    ImportOptions { dataset: dataset.to_owned(), files: files.to_vec(), ..ImportOptions::default() }
}

pub fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|c| (*c).to_owned()).collect()
}

/// All bars of a snapshot with all columns, by symbol.
pub fn load_all(dataset: &Dataset) -> Vec<SymbolBars> {
    let columns = &dataset.manifest.columns;
    let mut bars: Vec<SymbolBars> = (0..dataset.manifest.groups)
        .flat_map(|g| dataset.load_group(g, columns).unwrap())
        .map(SymbolBars::from)
        .collect();
    bars.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    bars
}

pub fn quarantine(store: &Store, report: &ImportReport) -> Vec<[String; 4]> {
    let path: &Path = report.quarantine_file.as_ref().unwrap().as_ref();
    let mut reader = csv::Reader::from_path(store.root.join(path)).unwrap();
    assert_eq!(reader.headers().unwrap(), &["file", "line", "reason", "row"][..]);
    reader.records().map(|r| std::array::from_fn(|i| r.as_ref().unwrap()[i].to_owned())).collect()
}
