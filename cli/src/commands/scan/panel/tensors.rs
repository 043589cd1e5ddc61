//! A panel as NumPy arrays: `features.npy` `[sample, window, feature]`, `mask.npy` of the same shape, `labels.npy` `[sample, horizon]`,
//! and `index.csv` with the time and symbol of each sample.
//!
//! The last bar of a window is the sample's own. Windows run over the times of the dataset, so that those of all symbols are aligned;
//! where a symbol has no value the mask is false and the feature 0.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use trawl_coordinator::features::{FeatureChunk, FeaturePanel, Windows};
use trawl_market::format_label;

use super::super::all_bars::Target;
use crate::failure::{UserMistake, io_reason};
use trawl_front::output::About;
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::output::npy::{NpyFile, Type};

/// The files being written.
pub struct Tensors {
    windows: Windows,
    features: NpyFile,
    mask: NpyFile,
    labels: NpyFile,
    index: ::csv::Writer<Target>,
    samples: u64,
    /// Whether bars have a date alone.
    dated: bool,
    folder: PathBuf,
    /// What is written about the arrays at the end, without their lengths.
    about: serde_json::Value,
}

impl Tensors {
    /// Starts the files in `folder`, which is made if it does not exist.
    pub fn begin(folder: &Path, window: usize, panel: &FeaturePanel<'_>, about: &About<'_>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| {
            UserMistake::plain(format!("cannot make the folder '{}': {}", folder.display(), io_reason(&error)))
        })?;
        let shape = [window, panel.features().len()];
        let labels = panel.labels();
        let file = |name: &str, kind, shape: &[usize]| NpyFile::create(&folder.join(name), kind, shape);
        let mut index = ::csv::Writer::from_writer(Target::of(&folder.join("index.csv"))?);
        let parts = panel.parts().all.iter().map(|part| part.name.as_str());
        index.write_record(["time", "symbol"].into_iter().chain(parts))?;
        Ok(Self {
            windows: Windows::new(window),
            features: file("features.npy", Type::F32, &shape)?,
            mask: file("mask.npy", Type::Bool, &shape)?,
            labels: file("labels.npy", Type::F64, &[labels.len()])?,
            index,
            samples: 0,
            dated: panel.is_dated(),
            folder: folder.to_owned(),
            about: serde_json::json!({
                "features": panel.features(), "window": window, "labels": labels, "about": about,
            }),
        })
    }

    /// Appends the samples of a chunk.
    pub fn push(&mut self, chunk: &FeatureChunk) -> anyhow::Result<()> {
        let Self { windows, features, mask, labels, index, samples, dated, .. } = self;
        let (mut values, mut known) = (Vec::new(), Vec::new());
        windows.push(chunk, |cell, sample| -> anyhow::Result<()> {
            values.clear();
            known.clear();
            for value in sample {
                // Half of the digits, as models compute; a value without bits in f32 is none.
                let short = *value as f32;
                known.push(u8::from(short.is_finite()));
                values.extend(if short.is_finite() { short } else { 0.0 }.to_le_bytes());
            }
            features.push(&values)?;
            mask.push(&known)?;
            for column in &chunk.forward {
                labels.push(&column[cell].to_le_bytes())?;
            }
            let width = chunk.symbols.len();
            index.write_field(format_label(chunk.times[cell / width], *dated))?;
            index.write_field(&chunk.symbols[cell % width])?;
            for uses in &chunk.uses {
                index.write_field(uses[cell].name())?;
            }
            index.write_record(None::<&[u8]>)?;
            *samples += 1;
            Ok(())
        })
    }

    /// Finishes the files.
    pub fn finish(self) -> anyhow::Result<()> {
        self.features.finish(self.samples)?;
        self.mask.finish(self.samples)?;
        self.labels.finish(self.samples)?;
        self.index.into_inner().map_err(|error| anyhow::anyhow!("{}", error.error()))?.keep()?;
        let mut file = StagedFile::create(&self.folder.join("tensors.json"))?;
        let mut about = self.about;
        about["samples"] = self.samples.into();
        serde_json::to_writer_pretty(&mut file, &about)?;
        writeln!(file)?;
        file.keep()?;
        Ok(())
    }
}
