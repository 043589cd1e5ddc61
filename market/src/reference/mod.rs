//! Reference data of symbols besides their bars: names and labels over time, splits and dividends.
//!
//! Both tables are CSV files of a snapshot, named by content like the files of bars, so they are part of its id and
//! other tools can read them. Bars are never changed here: prices stay raw, and are adjusted when they are loaded.

mod adjust;
mod attributes;
mod csv_table;
mod factors;
mod listing;

pub use adjust::{Adjustment, AdjustmentMode};
pub(crate) use adjust::{adjust, known_events, known_from};
pub use attributes::AttributeTable;
pub(crate) use attributes::{
    Attributes, attribute_name, check_attributes, decode_attributes, encode_attributes, parse_attributes,
};
pub(crate) use csv_table::CsvTable;
pub use factors::FactorRow;
pub(crate) use factors::{FactorTable, decode_factors, encode_factors, merge_factors, parse_factors};
pub(crate) use listing::{Listing, check_labels, decode_listing, encode_listing, parse_listing};
pub use listing::{ListingRow, SymbolTable};

/// Normalises the spelling of share classes: `BRK-B`, `BRK/B` and `BRK B` become `BRK.B`.
pub(crate) fn alike(name: &str) -> String {
    name.trim().replace(['-', '/', ' '], ".")
}
