//! Every bound of this crate, by name. Exceeding a limit is an error that names it, never a silent truncation.

/// Bytes of a dataset's name.
pub const DATASET_NAME_BYTES_MAX: usize = 64;
/// Bytes of a symbol.
pub const SYMBOL_BYTES_MAX: usize = 64;
/// Bytes of a column's name.
pub const COLUMN_NAME_BYTES_MAX: usize = 64;
/// Columns of a CSV file, and numeric columns of a snapshot.
pub const COLUMNS_MAX: usize = 64;
/// Symbols of a snapshot.
pub const SYMBOLS_MAX: usize = 200_000;
/// Approximate number of symbols per group when a dataset is created.
pub const SYMBOLS_PER_GROUP: usize = 64;
/// Groups of a snapshot.
pub const GROUPS_MAX: u32 = 65_536;
/// Bytes of a group's file in an object store that is always fetched whole; of a larger one a scan that needs at most half of it
/// fetches the parts of columns that it needs.
pub const WHOLE_FILE_BYTES_MAX: u64 = 16 << 20;
/// Files of one import.
pub const IMPORT_FILES_MAX: usize = 100_000;
/// Bytes of an import's standard input, pipe or file of an archive that are held in memory while it is read; more are kept in a file in the data root.
pub const HELD_BYTES_MAX: u64 = 64 << 20;
/// Decompressed bytes of an input that is held in memory while it is read: text in UTF-16, a Parquet or Arrow file that is compressed or does not come from
/// a file, standard input that is no import's; and of a file of which every row is kept.
pub const HELD_FILE_BYTES_MAX: u64 = 2 << 30;
/// Decompressed bytes of one file of text, which is read piece by piece.
pub const TEXT_FILE_BYTES_MAX: u64 = 1 << 44;
/// Bytes of so many lines as a batch of a source has rows.
pub const TEXT_BATCH_BYTES_MAX: u64 = 2 << 30;
/// Bytes of one line of a CSV file; a longer one is quarantined.
pub const CSV_LINE_BYTES_MAX: usize = 1 << 20;
/// Cells of a line of a table that has columns of several symbols.
pub const WIDE_CELLS_MAX: usize = 65_536;
/// Lines before a header that are skipped.
pub const PREAMBLE_LINES_MAX: usize = 10;
/// Bytes of text that one thread splits and reads at a time, at least one batch.
pub const PIECE_BYTES: usize = 4 << 20;
/// Rows of one batch of a source.
pub const SOURCE_BATCH_ROWS: usize = 8_192;
/// Different distances between bars that are counted to infer the timeframe.
pub const SPACINGS_MAX: usize = 10_000;
/// Bars that are checked to decide which calendar or zone fits better.
pub const FIT_BARS_MAX: usize = 20_000;
/// Bars that a preview lists.
pub const PREVIEW_BARS_MAX: usize = 3;
/// Rows in quarantine that a preview lists.
pub const PREVIEW_BAD_ROWS_MAX: usize = 10;
/// Bytes of a bad row that the quarantine file keeps.
pub const QUARANTINED_ROW_BYTES_MAX: usize = 4 << 10;
/// Rows that are checked to decide whether a further column contains numbers or text.
pub const CLASSIFY_ROWS: usize = 1_000;
/// Least memory that an import is given, in bytes.
pub const IMPORT_MEMORY_MIN: u64 = 256 << 20;
/// Rows of one import.
pub const IMPORT_ROWS_MAX: u64 = 1 << 36;
/// Rows of a file that is computed on, all of which are held in memory.
pub const SERIES_ROWS_MAX: u64 = 200_000_000;
/// Jumps that a report lists; all are counted.
pub const JUMPS_LISTED_MAX: usize = 100;
/// Gaps, symbols and dates that a report of quality lists, each; all are counted.
pub const QUALITY_LISTED_MAX: usize = 100;
/// A symbol without a bar on so many sessions at the end of a dataset is stale.
pub const STALE_SESSIONS: u64 = 5;
/// A close over this many times the previous one, or under its reciprocal, is reported as a jump.
pub const JUMP_FACTOR: f64 = 3.0;
/// Split ratios that a jump of the close is compared with, new and old shares, and their reverse.
pub const SPLIT_RATIOS: [(u32, u32); 12] =
    [(2, 1), (5, 2), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (10, 1), (15, 1), (20, 1), (25, 1)];
/// How far a close may be from the previous one, adjusted for the split, and still look like a split.
pub const SPLIT_TOLERANCE: f64 = 0.04;
/// Rows of one Arrow record batch.
pub const BATCH_ROWS_MAX: usize = 1 << 20;
/// Bytes of checksums of bars that an open snapshot keeps in memory.
pub const SUMS_KEPT_BYTES_MAX: u64 = 64 << 20;
/// Files of appended bars of one level that are merged to one of the next level: a reader sees less than so many of each
/// level, and a bar is written once for each level, of which there are the logarithm of the appends to this base.
pub const TAILS_MERGED: usize = 32;
/// Files of appended bars of one snapshot, from which on an import writes the groups whole: eight levels, which is far more appends
/// than a dataset sees.
pub const TAILS_MAX: usize = 256;
/// Bytes of groups below which an import writes them again, instead of appending: so much is written as fast as anything.
pub const REWRITTEN_BYTES_MAX: u64 = 1 << 20;
/// An import writes the groups that it changes again if they take at most so many times the bytes of the bars that are new.
pub const REWRITTEN_FACTOR_MAX: u64 = 4;
/// Bytes of a column of a file of appended bars that is read as a whole, when the first group asks for it.
pub const TAIL_COLUMN_HELD_BYTES_MAX: u64 = 512 << 10;
/// Bytes of such columns that an open snapshot keeps in memory.
pub const TAILS_HELD_BYTES_MAX: u64 = 16 << 20;
/// Bytes of an index of appended bars that is read.
pub const TAIL_INDEX_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a manifest that is read.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 30;
/// Least number of hex digits in a snapshot's prefix.
pub const SNAPSHOT_PREFIX_MIN: usize = 8;
/// Rows of a symbol table.
pub const LISTING_ROWS_MAX: usize = 1_000_000;
/// Labels of a symbol table.
pub const LABELS_MAX: usize = 32;
/// Bytes of a label's value.
pub const LABEL_BYTES_MAX: usize = 128;
/// Rows of a factor table.
pub const FACTOR_ROWS_MAX: usize = 5_000_000;
/// Rows of an attribute table.
pub const ATTRIBUTE_ROWS_MAX: usize = 1_000_000;
/// Attributes of symbols.
pub const ATTRIBUTES_MAX: usize = 64;
/// Largest ratio of new to old shares of a split, and of old to new ones.
pub const SPLIT_RATIO_MAX: f64 = 1e6;
/// Bars per symbol of a synthetic market.
pub const SYNTH_BARS_MAX: u32 = 2_000_000;
/// Bars of a synthetic market.
pub const SYNTH_ROWS_MAX: u64 = 2_000_000_000;
/// Bars of a synthetic market in one group, which is built in memory.
pub const SYNTH_GROUP_ROWS_MAX: u64 = 64_000_000;
