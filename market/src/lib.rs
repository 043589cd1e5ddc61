//! Bars: import, datasets and snapshots, synthetic markets. Knows nothing of plans, scans or networks.
//!
//! Start at [`Store`]: it opens a [`Dataset`] by name, which resolves an as-of to a bar and loads groups of bars.
//! [`import_files`] and [`synthesise`] create snapshots, [`inspect`] describes one.

#![forbid(unsafe_code)]

mod arrow_file;
mod as_of;
mod bars_writer;
mod bundled;
mod bundled_names;
mod calendar;
mod column_cache;
mod column_parts;
mod compact;
mod cursor;
mod dataset;
mod demo;
mod draws;
mod error;
mod files;
mod group;
mod group_reader;
mod group_writer;
mod import;
mod inspect;
mod jumps;
mod layout;
pub mod limits;
mod manifest;
mod manifest_reader;
mod memory;
mod merge;
mod name;
mod pin_files;
mod pins;
mod quality;
mod quarantine;
mod read_at;
mod reading;
mod reference;
mod remote;
mod removal;
mod removal_report;
mod resample;
mod scrub;
mod series;
mod snapshot;
mod sources;
mod store;
mod sums;
mod synth;
mod tail;
mod time;
mod unfinished;
mod vendor_record;
mod vintages;
mod words;
mod zone;

pub use arrow_file::{LoadedBars, SymbolBars};
pub use as_of::{AsOf, AsOfMistake, ResolvedAsOf};
pub use bundled_names::{DEMO, DEMO_1M, US5, is_bundled};
pub use calendar::{CALENDARS, Calendar, Session};
pub use column_cache::ColumnCache;
pub use compact::CompactReport;
pub use dataset::{Dataset, FetchedGroup, HeldGroup, Reads};
pub use error::{MarketError, MarketErrorKind};
pub use group::{group_of, groups_for, stable_hash};
pub use import::{
    Appending, FileLayout, ImportOptions, ImportPreview, ImportReport, PreviewBar, SkippedFile, check_importable,
    check_times_without_zone, import_files, preview_files,
};
pub use inspect::{BarSample, Checks, ColumnSummary, InspectOptions, Inspection, SymbolInspection, inspect};
pub use jumps::Jump;
pub use manifest::{Appended, GroupFile, MANIFEST_VERSION, Manifest, SymbolEntry, TableFile, TailFile, TimesFile};
pub use memory::{MemoryMarket, memory_dataset};
pub use name::check_dataset_name;
pub use pins::PIN_HOLDER_BYTES_MAX;
pub use quality::{DayCoverage, Gap, NEIGHBOURS, Quality, ShortSession, Stale};
pub use reading::{
    FILE_ENDINGS, FileSeries, GZIP_ENDING, ImportFormat, ReadOptions, SymbolPattern, SymbolSeries, Tickers, read_series,
};
pub use reference::{Adjustment, AdjustmentMode, AttributeTable, FactorRow, ListingRow, SymbolTable};
pub use remote::{CacheEvent, CacheOptions, Deadline, ListedFolder, ListedObject, Objects, ObjectsError};
pub use removal_report::{GRACE_DEFAULT, GRACE_MAX, InUse, Pending, RemovalReport};
pub use resample::{HigherBars, aggregate, check_resampling, higher_bars};
pub use scrub::{Scrub, Scrubbed};
pub use series::{Series, Value};
pub use sources::Arrivals;
pub use store::{DatasetSummary, Store};
pub use sums::{CHUNK_ROWS, largest_magnitude};
pub use synth::{SynthOptions, SynthReport, synthesise};
pub use time::{DateOrder, TimeMicros, format_label, format_time, now, parse_time, parse_time_in_order};
pub use trawl_terms::{Period, Timeframe};
pub use vintages::Vintage;
pub use zone::Zone;
