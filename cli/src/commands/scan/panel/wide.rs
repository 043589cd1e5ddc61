//! A panel as one table for each column: a row for each time, a column for each symbol.
//!
//! A file holds one column, so that it is one frame of one type with the symbols' names, as vectorbt takes it; `pandas` finds in the
//! metadata that the time is the index. A symbol without a row at a time is null there; in `matched` it is false.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Metadata, Schema};
use trawl_coordinator::features::{FeatureChunk, FeaturePanel};
use trawl_plan::ColumnKind;
use trawl_wire::Status;

use super::super::all_bars::Target;
use super::time_type;
use crate::failure::UserMistake;
use trawl_front::document::STANDARD_STREAM;
use trawl_front::output::batches::BatchFile;
use trawl_front::output::columnar::{metadata, select_array, select_type};
use trawl_front::output::{About, Format};

/// Which of a chunk's values a file has.
enum Values {
    Feature(usize, ColumnKind),
    Matched,
    Forward(usize),
}

/// The file of one column.
struct Frame {
    schema: Arc<Schema>,
    file: BatchFile<Target>,
    values: Values,
}

/// The files being written.
pub struct Wide {
    frames: Vec<Frame>,
    paths: Vec<PathBuf>,
}

impl Wide {
    /// Starts a file for each column.
    pub fn begin(path: &Path, format: Format, panel: &FeaturePanel<'_>, about: &About<'_>) -> anyhow::Result<Self> {
        if path == Path::new(STANDARD_STREAM) {
            let help = "give --output a file name: each column becomes a file beside it";
            return Err(UserMistake::with_help("--wide writes several files", help).into());
        }
        let features = panel.features().iter().zip(panel.kinds()).enumerate();
        let mut columns: Vec<(String, Values)> =
            features.map(|(at, (name, kind))| (name.clone(), Values::Feature(at, kind))).collect();
        columns.push(("matched".to_owned(), Values::Matched));
        columns.extend(panel.labels().into_iter().enumerate().map(|(at, name)| (name, Values::Forward(at))));
        let symbols = panel.symbols();
        let mut paths: Vec<PathBuf> = Vec::new();
        let mut frames = Vec::new();
        for (name, values) in columns {
            let path = path_of(path, &name);
            if paths.contains(&path) {
                let help = "name its column with 'as', in letters and digits";
                let message = format!("two columns would be written to '{}'", path.display());
                return Err(UserMistake::with_help(message, help).into());
            }
            let kind = match &values {
                Values::Feature(_, kind) => select_type(kind),
                Values::Matched => DataType::Boolean,
                Values::Forward(_) => DataType::Float64,
            };
            let time = Field::new("time", time_type(), false);
            let fields = symbols.iter().map(|symbol| Field::new(symbol, kind.clone(), true));
            let mut pairs = metadata(about);
            pairs.push(("trawl.column".to_owned(), name));
            pairs.push(("pandas".to_owned(), pandas()));
            let fields: Vec<Field> = std::iter::once(time).chain(fields).collect();
            let schema = Arc::new(Schema::new(fields).with_metadata(Metadata::from_iter(pairs)));
            let file = BatchFile::begin(format, &schema, panel.is_dated(), Target::of(&path)?)?;
            paths.push(path);
            frames.push(Frame { schema, file, values });
        }
        Ok(Self { frames, paths })
    }

    /// Where they are.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Appends the times of a chunk.
    pub fn push(&mut self, chunk: &FeatureChunk) -> anyhow::Result<()> {
        for frame in &mut self.frames {
            let times = TimestampMicrosecondArray::from(chunk.times[chunk.own.clone()].to_vec());
            let mut columns: Vec<ArrayRef> = vec![Arc::new(times.with_timezone("UTC"))];
            for symbol in 0..chunk.symbols.len() {
                let cells = chunk.own.clone().map(|time| time * chunk.symbols.len() + symbol);
                let value = |values: &[f64], cell| if chunk.is_row(cell) { values[cell] } else { f64::NAN };
                columns.push(match &frame.values {
                    Values::Feature(at, kind) => select_array(kind, cells.map(|c| value(&chunk.features[*at], c))),
                    Values::Forward(at) => {
                        select_array(&ColumnKind::Number, cells.map(|c| value(&chunk.forward[*at], c)))
                    }
                    Values::Matched => {
                        let matched = cells.map(|cell| Some(chunk.status[cell] == Status::Matched));
                        Arc::new(matched.collect::<BooleanArray>())
                    }
                });
            }
            frame.file.push(&RecordBatch::try_new(Arc::clone(&frame.schema), columns)?)?;
        }
        Ok(())
    }

    /// Finishes the files.
    pub fn finish(self) -> anyhow::Result<()> {
        self.frames.into_iter().try_for_each(|frame| frame.file.finish()?.keep())
    }
}

/// `frame.parquet` -> `frame.COLUMN.parquet`.
fn path_of(path: &Path, column: &str) -> PathBuf {
    let plain = |c: char| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = column.chars().map(plain).collect();
    path.with_extension(format!("{name}.{}", path.extension().unwrap_or_default().to_string_lossy()))
}

/// What pandas reads from the metadata: the time is the index.
fn pandas() -> String {
    let time = serde_json::json!({
        "name": "time", "field_name": "time", "pandas_type": "datetimetz", "numpy_type": "datetime64[us]",
        "metadata": {"timezone": "UTC"},
    });
    serde_json::json!({
        "index_columns": ["time"], "column_indexes": [], "columns": [time],
        "creator": {"library": "trawl", "version": env!("CARGO_PKG_VERSION")},
    })
    .to_string()
}
