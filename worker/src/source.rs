//! What plans may refer to in a dataset.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_market::{Dataset, MarketError, SymbolTable, TimeMicros, check_resampling};
use trawl_plan::{Directory, Schema, suggest};

/// Symbols and timeframes of an opened dataset, as of a time.
struct DatasetDirectory {
    dataset: Dataset,
    table: Arc<SymbolTable>,
    as_of: TimeMicros,
}

impl Directory for DatasetDirectory {
    fn symbol(&self, name: &str) -> Result<String, Option<String>> {
        let manifest = &self.dataset.manifest;
        let found = self.table.resolve(name, self.as_of).unwrap_or(name);
        if manifest.symbol(found).is_some() {
            return Ok(found.to_owned());
        }
        Err(suggest(name, manifest.symbols.iter().map(|s| s.symbol.as_str())).map(str::to_owned))
    }

    fn higher(&self, timeframe: &str) -> Result<String, String> {
        check_resampling(&self.dataset.manifest.timeframe, timeframe).map(|t| t.to_string())
    }
}

/// The dataset's columns, labels, symbols and timeframes, names of symbols as of a time.
///
/// # Errors
/// Those of the symbol table's file.
pub fn schema_of(dataset: &Dataset, as_of: TimeMicros) -> Result<Schema, MarketError> {
    let table = dataset.symbol_table()?;
    let values = |label: &String| (label.clone(), table.values(label));
    let labels: BTreeMap<String, Vec<String>> = table.labels().iter().map(values).collect();
    Ok(Schema {
        columns: dataset.manifest.columns.clone(),
        timeframe: Some(dataset.manifest.timeframe.clone()),
        labels,
        directory: Some(Arc::new(DatasetDirectory { dataset: dataset.clone(), table, as_of })),
    })
}
