//! A panel as one table: a row for each symbol and bar.

use std::path::Path;

use trawl_coordinator::features::{FeatureChunk, FeaturePanel};

use super::super::all_bars::Target;
use trawl_front::output::batches::BatchFile;
use trawl_front::output::panel_table::PanelTable;
use trawl_front::output::{About, Format};

/// The file being written.
pub struct Tidy {
    table: PanelTable,
    file: BatchFile<Target>,
}

impl Tidy {
    /// Starts the file; it says which rows match unless only those are rows.
    pub fn begin(
        path: &Path,
        format: Format,
        (panel, matches_only): (&FeaturePanel<'_>, bool),
        about: &About<'_>,
    ) -> anyhow::Result<Self> {
        let table = PanelTable::new(panel, matches_only, about);
        let file = BatchFile::begin(format, table.schema(), panel.is_dated(), Target::of(path)?)?;
        Ok(Self { table, file })
    }

    /// Appends the rows of a chunk.
    pub fn push(&mut self, chunk: &FeatureChunk) -> anyhow::Result<()> {
        for rows in self.table.batches(chunk) {
            self.file.push(&rows?)?;
        }
        Ok(())
    }

    /// Finishes the file.
    pub fn finish(self) -> anyhow::Result<()> {
        self.file.finish()?.keep()
    }
}
