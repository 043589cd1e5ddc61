//! What a plan may refer to: the dataset's columns, labels, symbols and timeframes, as far as planning needs them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use trawl_terms::{AttributeKind, Timeframe};

/// Looks up what a schema does not list.
pub trait Directory: Send + Sync {
    /// The dataset's symbol that a user means by `name`.
    ///
    /// # Errors
    /// The nearest name when there is one.
    fn symbol(&self, name: &str) -> Result<String, Option<String>>;

    /// The timeframe of this text, in its canonical form (`1h` for `60m`), whose bars can be built from the dataset's.
    ///
    /// # Errors
    /// A sentence that says why not.
    fn higher(&self, timeframe: &str) -> Result<Timeframe, String>;
}

/// What a plan may refer to.
#[derive(Clone, Default)]
pub struct Schema {
    /// Numeric columns in lower case, time excluded, in the dataset's order.
    pub columns: Vec<String>,
    /// Of the dataset; `None` for a bare CSV.
    pub timeframe: Option<Timeframe>,
    /// Labels of the symbol table with their values, sorted.
    pub labels: BTreeMap<String, Vec<String>>,
    /// Attributes of symbols, with what their values are.
    pub attributes: BTreeMap<String, AttributeKind>,
    /// Symbols and timeframes; `None` where there is one symbol without a name, as in a bare CSV.
    pub directory: Option<Arc<dyn Directory>>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("columns", &self.columns)
            .field("timeframe", &self.timeframe)
            .field("labels", &self.labels)
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

impl Schema {
    /// Of columns alone.
    pub fn of_columns(columns: Vec<String>) -> Self {
        Self { columns, ..Self::default() }
    }
}
