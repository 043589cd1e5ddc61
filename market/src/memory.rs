//! Datasets in memory: the bundled ones, and markets that a test or an embedding program creates.
//!
//! They pass the same checks and have the same kind of snapshot id as stored ones; only their files are kept in memory
//! alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::arrow_file::SymbolBars;
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::files::{Files, MemoryFiles};
use crate::group::{group_of, groups_for};
use crate::limits::GROUPS_MAX;
use trawl_terms::Timeframe;

use crate::group_writer::store_group;
use crate::name::{check_dataset_name, is_column, is_symbol};
use crate::reference::{
    FactorRow, Listing, ListingRow, check_attributes, check_labels, encode_attributes, encode_factors, encode_listing,
    merge_factors, parse_attributes,
};
use crate::snapshot::{Heading, Sink, assemble, store_table, unite};
use crate::time::TimeMicros;

/// A market to be held in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryMarket {
    /// Name of the dataset.
    pub name: String,
    /// Length of a bar, such as `1d`.
    pub timeframe: Timeframe,
    /// `XNYS`, `24/7` or `weekdays`.
    pub calendar: String,
    /// Generated, not a real market.
    pub synthetic: bool,
    /// Numeric columns, lower case.
    pub columns: Vec<String>,
    /// Symbols in any order, without duplicates; times strictly ascending; a vector per column. Symbols without bars
    /// are left out.
    pub bars: Vec<SymbolBars>,
    /// Names and labels, in any order.
    pub symbols: Vec<ListingRow>,
    /// Splits and dividends, in any order.
    pub factors: Vec<FactorRow>,
    /// Attributes of symbols, as a table in CSV that a user would write: `symbol,date,cap,earnings`. None when it is empty.
    pub attributes: String,
    /// Number of groups; `None` for one per 64 symbols.
    pub groups: Option<u32>,
    /// The instant up to which the bars are complete; `None` for the end of the last.
    pub complete_to: Option<TimeMicros>,
}

/// Creates a dataset in memory. The same market has the same snapshot id.
///
/// # Errors
/// [`MarketError::BadName`]; [`MarketError::Refused`] that says what is wrong with the bars or tables;
/// [`MarketError::Limit`].
pub fn memory_dataset(market: MemoryMarket) -> Result<Dataset, MarketError> {
    build("memory", market)
}

/// The same with a description of where the bars come from.
pub(crate) fn build(origin: &str, mut market: MemoryMarket) -> Result<Dataset, MarketError> {
    check_dataset_name(&market.name)?;
    let timeframe = market.timeframe;
    let calendar = Calendar::named(&market.calendar)?;
    market.bars.retain(|b| !b.times.is_empty());
    market.bars.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    check_bars(&market)?;
    let groups = market.groups.unwrap_or_else(|| groups_for(market.bars.len()));
    if !(1..=GROUPS_MAX).contains(&groups) {
        let (found, limit) = (u64::from(groups), u64::from(GROUPS_MAX));
        return Err(MarketError::Limit { what: "groups of a dataset".to_owned(), found, limit });
    }
    let listing =
        Listing::new(market.symbols).map_err(|(i, why)| MarketError::Refused(format!("symbol row {i}: {why}")))?;
    check_labels(&listing.labels, &market.columns).map_err(MarketError::Refused)?;
    for row in &market.factors {
        row.check().map_err(|why| MarketError::Refused(format!("factors of '{}': {why}", row.symbol)))?;
    }
    let factors = merge_factors(Vec::new(), market.factors)?;

    let sink = Sink::Memory(MemoryFiles::default());
    let mut members: Vec<Vec<SymbolBars>> = vec![Vec::new(); groups as usize];
    for bars in market.bars {
        members[group_of(&bars.symbol, groups) as usize].push(bars);
    }
    let (mut stored, mut times) = (Vec::new(), Vec::new());
    for (group, members) in (0u32..).zip(members).filter(|(_, m)| !m.is_empty()) {
        let one = store_group(&sink, group, &market.columns, &members)?;
        times = unite(times, &one.times);
        stored.push((one.file, one.symbols));
    }
    let factors = match factors.len() {
        0 => None,
        rows => Some(store_table(&sink, encode_factors(&factors)?, rows, Vec::new())?),
    };
    let attributes = match market.attributes.is_empty() {
        true => None,
        false => {
            let read = parse_attributes("attributes", market.attributes.as_bytes())?;
            check_attributes(&read.stored_names(), &market.columns, &listing.labels).map_err(MarketError::Refused)?;
            Some(store_table(&sink, encode_attributes(&read)?, read.rows.len(), read.stored_names())?)
        }
    };
    let symbol_table = match listing.rows.len() {
        0 => None,
        rows => Some(store_table(&sink, encode_listing(&listing)?, rows, listing.labels)?),
    };
    let heading = Heading {
        name: market.name,
        timeframe,
        synthetic: market.synthetic,
        origin: origin.to_owned(),
        groups,
        columns: market.columns,
        calendar,
        complete_to: market.complete_to,
        factors,
        symbol_table,
        attributes,
    };
    let manifest = assemble(&sink, heading, stored, times)?;
    match sink {
        Sink::Memory(files) => Ok(Dataset::new(Arc::new(manifest), Files::Memory(Arc::new(files)))),
        Sink::Directory { .. } => Err(MarketError::Refused("a dataset in memory has no directory".to_owned())),
    }
}

fn check_bars(market: &MemoryMarket) -> Result<(), MarketError> {
    let refused = |what: &str| Err(MarketError::Refused(format!("dataset '{}': {what}", market.name)));
    if market.bars.is_empty() {
        return refused("it has no bars");
    }
    if let Some(column) = market.columns.iter().find(|c| !is_column(c)) {
        return refused(&format!("'{column}' is not a valid column name"));
    }
    let mut seen = BTreeSet::new();
    for b in &market.bars {
        if !is_symbol(&b.symbol) || !seen.insert(&b.symbol) {
            return refused(&format!("symbol '{}' is invalid, or appears twice", b.symbol));
        }
        if b.columns.len() != market.columns.len() || b.columns.iter().any(|c| c.len() != b.times.len()) {
            return refused(&format!("the columns of '{}' do not have one value per bar", b.symbol));
        }
        if !b.times.is_sorted_by(|x, y| x < y) {
            return refused(&format!("the times of '{}' do not ascend", b.symbol));
        }
    }
    Ok(())
}
