//! The symbols of a file, numbered in the order of their first rows; before them may come those of an earlier file.

use std::collections::HashMap;
use std::sync::Arc;

/// Ids of symbols.
#[derive(Debug, Default)]
pub(crate) struct SymbolIds {
    known: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl SymbolIds {
    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// By id.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The symbols by id.
    pub fn into_names(self) -> Vec<Arc<str>> {
        self.names
    }

    /// The id of a symbol that has one.
    #[inline]
    pub fn find(&self, symbol: &str) -> Option<u32> {
        self.known.get(symbol).copied()
    }

    /// The id of a symbol, a new one for a new symbol.
    pub fn id(&mut self, symbol: &Arc<str>) -> u32 {
        if let Some(known) = self.known.get(symbol) {
            return *known;
        }
        // An import has fewer rows with different symbols than 2^32: each takes more than a byte of memory.
        let id = self.names.len() as u32;
        self.known.insert(Arc::clone(symbol), id);
        self.names.push(Arc::clone(symbol));
        id
    }
}
