//! Spellings of tickers, and the intervals of rows of a table of symbols.

use trawl_market::{ListingRow, TimeMicros};

/// Share classes are spelled `BRK.B`, `BRK-B` and `BRK/B`.
pub fn alike(name: &str) -> String {
    name.trim().replace(['-', '/', ' '], ".")
}

/// A row's ticker.
pub fn ticker(row: &ListingRow) -> &str {
    row.ticker.as_deref().unwrap_or(&row.symbol)
}

/// A row's first instant.
pub fn start(row: &ListingRow) -> TimeMicros {
    row.from.unwrap_or(TimeMicros::MIN)
}

/// The first instant after a row.
pub fn end(row: &ListingRow) -> TimeMicros {
    row.to.unwrap_or(TimeMicros::MAX)
}
