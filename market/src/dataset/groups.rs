//! What the manifest says of each group, found once: who loads a group again and again would look at each of its symbols each time.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::Dataset;
use crate::manifest::SymbolEntry;
use crate::sums::Run;

/// What is known of one group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Its symbols by name: their places among the snapshot's symbols.
    pub places: Vec<u32>,
    /// Bars of all its symbols.
    rows: u64,
    /// Bars of the symbol that has most.
    longest: u64,
    /// Whether a symbol has bars before 1970.
    pub before_1970: bool,
    /// The rows of its symbols in its file.
    runs: OnceLock<Vec<Run>>,
    names: OnceLock<Vec<Arc<str>>>,
    joined: OnceLock<JoinedNames>,
}

/// The names of a group's symbols, one after another.
#[derive(Debug, Default)]
pub struct JoinedNames {
    /// All names, by name.
    pub text: String,
    /// Where each ends in the text, in bytes.
    pub ends: Vec<u32>,
}

impl JoinedNames {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut joined = Self::default();
        for name in names {
            joined.text.push_str(name);
            joined.ends.push(u32::try_from(joined.text.len()).unwrap_or(u32::MAX));
        }
        joined
    }
}

/// All groups that have symbols.
pub(super) type Groups = OnceLock<BTreeMap<u32, Group>>;

impl Dataset {
    fn groups(&self) -> &BTreeMap<u32, Group> {
        self.tables.groups.get_or_init(|| {
            let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
            for (at, entry) in (0u32..).zip(&self.manifest.symbols) {
                let known = groups.entry(entry.group).or_default();
                known.places.push(at);
                known.rows = known.rows.saturating_add(entry.rows);
                known.longest = known.longest.max(entry.rows);
                known.before_1970 |= entry.first_time < 0;
            }
            groups
        })
    }

    /// What is known of a group; `None` if it has no symbols.
    pub(super) fn group(&self, group: u32) -> Option<&Group> {
        self.groups().get(&group)
    }

    /// The groups that have symbols, ascending, with the number of their bars.
    pub fn group_bars(&self) -> impl Iterator<Item = (u32, u64)> {
        self.groups().iter().map(|(group, known)| (*group, known.rows))
    }

    /// Number of symbols of a group, and of their bars.
    pub fn size_of(&self, group: u32) -> (usize, u64) {
        self.group(group).map_or((0, 0), |group| (group.places.len(), group.rows))
    }

    /// Bars of the symbol that has most.
    pub fn longest(&self) -> u64 {
        self.groups().values().map(|group| group.longest).max().unwrap_or(0)
    }

    /// The symbols of a group by name: their places among the snapshot's symbols.
    pub fn members(&self, group: u32) -> &[u32] {
        self.group(group).map_or(&[], |group| &group.places)
    }

    /// The entries of a group's symbols in the manifest, sorted by symbol.
    pub fn symbols_of(&self, group: u32) -> impl Iterator<Item = &SymbolEntry> {
        self.members(group).iter().filter_map(|place| self.manifest.symbols.get(*place as usize))
    }

    /// Bars of the symbol of a group that has most.
    pub fn longest_of(&self, group: u32) -> u64 {
        self.group(group).map_or(0, |group| group.longest)
    }

    /// The rows of a group's symbols in the group's file, by symbol: none of a symbol that was appended.
    pub(super) fn runs(&self, group: u32) -> &[Run] {
        let rows = |place: &u32| match self.tails() {
            Some(tails) => tails.base_rows.get(*place as usize).copied().unwrap_or(0),
            None => self.manifest.symbols.get(*place as usize).map_or(0, |entry| entry.rows),
        };
        self.group(group).map_or(&[], |group| group.runs.get_or_init(|| Run::of(group.places.iter().map(rows))))
    }

    /// The names of a group's symbols, to be compared at once; `None` if it has no symbols.
    pub fn joined_names(&self, group: u32) -> Option<&JoinedNames> {
        let joined = || JoinedNames::of(self.symbols_of(group).map(|entry| entry.symbol.as_str()));
        Some(self.group(group)?.joined.get_or_init(joined))
    }

    /// The names of a group's symbols.
    pub(super) fn names_of(&self, group: u32) -> &[Arc<str>] {
        let names = || self.symbols_of(group).map(|entry| entry.symbol.as_str().into()).collect();
        self.group(group).map_or(&[], |group| group.names.get_or_init(names))
    }
}
