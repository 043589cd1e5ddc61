//! Bars: import, datasets and snapshots, synthetic markets. Knows nothing of plans, scans or networks.
//!
//! Start at [`Store`]: it opens a [`Dataset`] by name, which tells what bar an as-of means and loads groups of bars.
//! [`import_files`] and [`synthesise`] make snapshots, [`inspect`] tells what is in one.

#![forbid(unsafe_code)]

mod arrow_file;
mod bundled;
mod csv_file;
mod csv_header;
mod csv_rows;
mod dataset;
mod error;
mod group;
mod import;
pub mod limits;
mod manifest;
mod name;
mod snapshot;
mod store;
mod time;

pub use arrow_file::SymbolBars;
pub use bundled::US5;
pub use csv_header::ImportFormat;
pub use dataset::Dataset;
pub use error::{MarketError, MarketErrorKind};
pub use group::{group_of, groups_for, stable_hash};
pub use manifest::{GroupFile, MANIFEST_VERSION, Manifest, SymbolEntry, TimesFile};
pub use name::{TimeUnit, Timeframe, check_dataset_name};
pub use store::{DatasetSummary, Store};
pub use time::{DateOrder, TimeMicros, format_time, parse_time, parse_time_in_order};
