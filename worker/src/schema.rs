//! What plans may refer to in a dataset.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use trawl_market::{Dataset, MarketError, TimeMicros, Timeframe, check_resampling};
use trawl_plan::{Directory, ScanDocument, Schema, compile_scan, suggest};

/// Symbols and timeframes of an opened dataset, as of a time.
struct DatasetDirectory {
    dataset: Dataset,
    as_of: TimeMicros,
    /// All names that were looked up.
    asked: Asked,
}

/// Symbol names that a document refers to.
type Asked = Arc<Mutex<BTreeSet<String>>>;

impl Directory for DatasetDirectory {
    fn symbol(&self, name: &str) -> Result<String, Option<String>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        let manifest = &self.dataset.manifest;
        // A table that cannot be read was reported with the schema's labels.
        let table = self.dataset.symbol_table().ok();
        let found = table.as_ref().and_then(|table| table.resolve(name, self.as_of)).unwrap_or(name);
        if manifest.symbol(found).is_some() {
            return Ok(found.to_owned());
        }
        Err(suggest(name, manifest.symbols.iter().map(|s| s.symbol.as_str())).map(str::to_owned))
    }

    fn higher(&self, timeframe: &str) -> Result<Timeframe, String> {
        check_resampling(self.dataset.manifest.timeframe, timeframe)
    }
}

/// The schema of a dataset: columns, labels, symbols and timeframes, with symbol names as of a time.
///
/// # Errors
/// Those of the symbol table's file.
pub fn schema_of(dataset: &Dataset, as_of: TimeMicros) -> Result<Schema, MarketError> {
    schema_with(dataset, as_of, Asked::default())
}

/// The alphabetically first name in a document that refers to several symbols in a span of times (inclusive), with
/// these symbols: a ticker that was reassigned.
///
/// # Errors
/// Those of the symbol table's file.
pub fn changing_name(
    dataset: &Dataset,
    document: &ScanDocument,
    (from, until): (TimeMicros, TimeMicros),
) -> Result<Option<(String, Vec<String>)>, MarketError> {
    let asked = Asked::default();
    // Compiled only to collect the names that it looks up; its mistakes have been reported already.
    let _ = compile_scan(document, &schema_with(dataset, until, Arc::clone(&asked))?);
    let table = dataset.symbol_table()?;
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let mut several = asked.iter().map(|name| (name, table.meanings(name, (from, until))));
    let found = several.find(|(_, meanings)| meanings.len() > 1);
    Ok(found.map(|(name, meanings)| (name.clone(), meanings.into_iter().map(str::to_owned).collect())))
}

fn schema_with(dataset: &Dataset, as_of: TimeMicros, asked: Asked) -> Result<Schema, MarketError> {
    let table = dataset.labels()?;
    let values = |label: &String| (label.clone(), table.values(label).to_vec());
    let labels: BTreeMap<String, Vec<String>> = table.labels().iter().map(values).collect();
    let attributes = dataset.attributes()?.kinds().clone();
    Ok(Schema {
        columns: dataset.manifest.columns.clone(),
        timeframe: Some(dataset.manifest.timeframe),
        labels,
        attributes,
        directory: Some(Arc::new(DatasetDirectory { dataset: dataset.clone(), as_of, asked })),
    })
}
