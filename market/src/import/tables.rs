//! The parts of an import besides bars: splits and dividends, names and labels, and up to when the bars are complete.

use std::path::Path;

use super::ImportOptions;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::manifest::TableFile;
use crate::reference::{
    Attributes, FactorRow, Listing, check_attributes, check_labels, encode_attributes, encode_factors, encode_listing,
    merge_factors, parse_attributes, parse_factors, parse_listing,
};
use crate::snapshot::{Sink, store_table};
use crate::sources::read_file;

/// Tables of one import, parsed and checked.
pub(super) struct NewTables {
    pub factors: Option<Vec<FactorRow>>,
    pub listing: Option<Listing>,
    pub attributes: Option<Attributes>,
}

pub(super) fn read_tables(options: &ImportOptions) -> Result<NewTables, MarketError> {
    let read = |path: &Path| {
        let shown = path.display().to_string();
        read_file(path, &shown).map(|content| (shown, content))
    };
    let mut tables = NewTables { factors: None, listing: None, attributes: None };
    if let Some(path) = &options.factors {
        let (shown, content) = read(path)?;
        tables.factors = Some(parse_factors(&shown, &content)?);
    }
    if let Some(path) = &options.symbols {
        let (shown, content) = read(path)?;
        let listing = parse_listing(&shown, &content)?;
        check_labels(&listing.labels, &[]).map_err(|why| MarketError::Refused(format!("{shown}: {why}")))?;
        tables.listing = Some(listing);
    }
    if let Some(path) = &options.attributes {
        let (shown, content) = read(path)?;
        tables.attributes = Some(parse_attributes(&shown, &content)?);
    }
    Ok(tables)
}

/// Tables of a snapshot, stored.
pub(super) struct StoredTables {
    pub factors: Option<TableFile>,
    pub symbol_table: Option<TableFile>,
    pub attributes: Option<TableFile>,
}

/// Stores new tables, and keeps those of the dataset that were not imported again.
pub(super) fn store_tables(
    sink: &Sink,
    existing: Option<&Dataset>,
    new: NewTables,
    columns: &[String],
) -> Result<StoredTables, MarketError> {
    let NewTables { factors, listing, attributes } = new;
    let old = existing.map(|d| &*d.manifest);
    let factors = match factors {
        None => old.and_then(|m| m.factors.clone()),
        Some(new) => {
            let known = existing.map_or_else(|| Ok(Vec::new()), Dataset::factors)?;
            let rows = merge_factors(known, new)?;
            match rows.len() {
                0 => None,
                count => Some(store_table(sink, encode_factors(&rows)?, count, Vec::new())?),
            }
        }
    };
    let labels = listing.as_ref().map_or_else(|| old.map_or(&[][..], |m| m.labels()), |l| &l.labels);
    check_labels(labels, columns).map_err(MarketError::Refused)?;
    let labels = labels.to_vec();
    let attributes = match attributes {
        None => old.and_then(|m| m.attributes.clone()),
        Some(new) => {
            let mut all = existing.map_or_else(|| Ok(Attributes::default()), Dataset::read_attributes)?;
            all.merge(new)?;
            Some(store_table(sink, encode_attributes(&all)?, all.rows.len(), all.stored_names())?)
        }
    };
    let stored = attributes.as_ref().map_or(&[][..], |table| &table.labels);
    check_attributes(stored, columns, &labels).map_err(MarketError::Refused)?;
    let symbol_table = match listing {
        None => old.and_then(|m| m.symbol_table.clone()),
        Some(listing) if listing.rows.is_empty() => None,
        Some(listing) => {
            let bytes = encode_listing(&listing)?;
            Some(store_table(sink, bytes, listing.rows.len(), listing.labels)?)
        }
    };
    Ok(StoredTables { factors, symbol_table, attributes })
}

/// Notes about rows of the tables that have no effect.
pub(super) fn notes(dataset: &Dataset) -> Result<Vec<String>, MarketError> {
    let manifest = &*dataset.manifest;
    let mut notes = Vec::new();
    if manifest.tables().next().is_none() {
        return Ok(notes);
    }
    let table = dataset.symbol_table()?;
    let factors = dataset.factors()?;
    let has_bars = |symbol: &str| manifest.symbol(symbol).is_some();
    let lost = factors.iter().filter(|f| !table.resolve(&f.symbol, f.date).is_some_and(has_bars)).count();
    if lost > 0 {
        notes.push(format!("{lost} of {} splits and dividends refer to symbols without bars", factors.len()));
    }
    let attributes = dataset.read_attributes()?;
    let strange =
        attributes.rows.keys().filter(|(name, date)| !table.resolve(name, *date).is_some_and(has_bars)).count();
    if strange > 0 {
        notes.push(format!("{strange} of {} rows of attributes refer to symbols without bars", attributes.rows.len()));
    }
    let unused = table.rows().iter().filter(|r| !has_bars(&r.symbol)).count();
    if unused > 0 {
        notes
            .push(format!("{unused} of {} rows of the symbol table refer to symbols without bars", table.rows().len()));
    }
    Ok(notes)
}
