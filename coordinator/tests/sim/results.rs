//! The result store of a world: groups of segments, put if absent, named by epoch and number as the real ones are.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::Row;

/// Segments and their rows.
pub type Group = Vec<(u32, Vec<Row>)>;

#[derive(Debug, Default)]
pub struct Results {
    /// Groups by scan, then by epoch and number.
    scans: BTreeMap<String, BTreeMap<(i64, u32), Group>>,
}

impl Results {
    /// Puts a group; returns `false` if another group has its name, which one leader never uses twice.
    pub fn put(&mut self, scan: &str, name: (i64, u32), group: &Group) -> bool {
        self.scans.entry(scan.to_owned()).or_default().entry(name).or_insert_with(|| group.clone()) == group
    }

    /// Rows by segment; if stored several times, the last ones written by the latest leader.
    pub fn contents(&self, scan: &str) -> BTreeMap<u32, Vec<Row>> {
        self.scans.get(scan).into_iter().flat_map(|groups| groups.values().flatten().cloned()).collect()
    }

    pub fn stored(&self, scan: &str) -> BTreeSet<u32> {
        self.contents(scan).into_keys().collect()
    }
}
