//! A bound on the rows that are in memory, over all files of an import, which are read side by side.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::MarketError;

/// Counts the rows that are held; each batch is counted before the next one is read.
pub(crate) struct RowBudget {
    held: AtomicU64,
    /// How many rows exceeded the limit; 0 while none did.
    exceeded: AtomicU64,
    limit: u64,
}

impl RowBudget {
    pub fn new(limit: u64) -> Self {
        Self { held: AtomicU64::new(0), exceeded: AtomicU64::new(0), limit }
    }

    /// Counts rows that were read.
    ///
    /// # Errors
    /// [`MarketError::Limit`] when they are too many.
    pub fn take(&self, rows: u64) -> Result<(), MarketError> {
        let held = self.held.fetch_add(rows, Ordering::Relaxed) + rows;
        if held > self.limit {
            self.exceeded.store(held, Ordering::Relaxed);
        }
        self.check()
    }

    /// Rows that were dropped.
    pub fn give_back(&self, rows: u64) {
        self.held.fetch_sub(rows, Ordering::Relaxed);
    }

    /// # Errors
    /// [`MarketError::Limit`] if there ever were too many rows.
    pub fn check(&self) -> Result<(), MarketError> {
        match self.exceeded.load(Ordering::Relaxed) {
            0 => Ok(()),
            found => {
                let what = "rows of one import".to_owned();
                Err(MarketError::Limit { what, found, limit: self.limit })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Policy, ReadOptions, read_rows};
    use crate::sources::Content;

    #[test]
    fn rows_are_counted_over_all_files_before_they_are_kept() {
        let budget = RowBudget::new(3);
        let read = |name: &str, text: &str| {
            let options = ReadOptions::default();
            let content = Content::of_bytes(text.as_bytes().into(), name)?;
            read_rows(name, name, &content, &options, Policy::Quarantine, &budget).map(|rows| rows.facts.rows_read)
        };
        assert_eq!(read("A.csv", "date,close\n2024-06-18,1\n2024-06-20,2\n").unwrap(), 2);
        // Read twice, because its last date shows that days come first, and counted once.
        assert_eq!(read("B.csv", "date,close\n13/06/2024,1\n").unwrap(), 1);
        assert!(budget.check().is_ok());
        let error = read("C.csv", "date,close\n2024-06-18,1\n").unwrap_err().to_string();
        assert_eq!(error, "rows of one import: 4, at most 3 are supported");
        assert!(budget.check().is_err(), "whatever becomes of the file");
    }
}
