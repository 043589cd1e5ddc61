//! Deletes the files of an object store that no snapshot names any more.
//!
//! Only what is older than a grace period by the store's clock, and was named by no snapshot that was removed within it: whoever opened
//! that snapshot before may still be reading. Safety does not depend on it. Whatever is deleted is announced, then a head is made, and
//! then the snapshots are looked at again: a writer whose manifest is not among them comes after that head, and sees the announcement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::announced::micros;
use super::heads::head_path;
use super::objects::Deadline;
use super::removal::{NOTES, Note, Remover};
use super::{ListedObject, at_once};
use crate::error::MarketError;
use crate::layout::{BASES, FILES, HEAD, VENDOR_RECORD};
use crate::quarantine::QUARANTINE;
use crate::removal_report::{Pending, RemovalReport};
use crate::time::TimeMicros;

/// Files that are announced, and deleted, at once.
const SWEPT_AT_ONCE_MAX: usize = if cfg!(test) { 8 } else { 10_000 };

/// What a removed snapshot named, and the time up to which it stays.
type DatedNote = (TimeMicros, Note);

/// Whether a file of a dataset is needed.
struct Needed {
    snapshots: BTreeSet<String>,
    named: BTreeSet<String>,
}

impl Needed {
    fn needs(&self, file: &str) -> bool {
        match file.split_once('/') {
            // Rows that are no bars belong to one snapshot.
            Some((QUARANTINE, own)) => own.strip_suffix(".csv").is_some_and(|id| self.snapshots.contains(id)),
            _ => self.named.contains(file),
        }
    }
}

/// An object that no snapshot needs.
struct Unused {
    file: String,
    bytes: u64,
    /// When it may be deleted.
    from: TimeMicros,
}

impl Remover<'_> {
    /// Deletes what is old enough at `now`, the time by the store's clock, and reports the rest.
    pub(super) fn sweep(&self, now: TimeMicros, report: &mut RemovalReport) -> Result<(), MarketError> {
        let (notes, old_notes) = self.notes(now)?;
        let mut needed = Needed { snapshots: BTreeSet::new(), named: BTreeSet::new() };
        let unused = self.unused(&notes, &mut needed)?;
        report.snapshots = needed.snapshots.len();
        let (old, young): (Vec<Unused>, Vec<Unused>) = unused.into_iter().partition(|unused| unused.from <= now);
        if let Some(last) = young.iter().map(|unused| unused.from).max() {
            let bytes = young.iter().map(|unused| unused.bytes).sum();
            report.pending = Some(Pending::new(young.len() as u64, bytes, last));
        }
        for part in old.chunks(SWEPT_AT_ONCE_MAX) {
            let announced = self.root.announce(self.name, &part.iter().map(|unused| unused.file.clone()).collect())?;
            let deleted = self.barrier().and_then(|()| self.look_at(&mut needed)).and_then(|()| {
                let part: Vec<&Unused> = part.iter().filter(|unused| !needed.needs(&unused.file)).collect();
                let files: Vec<String> = part.iter().map(|unused| unused.file.clone()).collect();
                announced.delete(&files).map(|()| part)
            });
            announced.end();
            let deleted = deleted?;
            report.files += deleted.len() as u64;
            report.bytes += deleted.iter().map(|unused| unused.bytes).sum::<u64>();
        }
        // Their names are never used again.
        at_once(&old_notes, |note| self.root.delete(self.name, note, Deadline::of_a_call()))?;
        self.sweep_heads()
    }

    /// Makes a head, or finds that another process has made one. Who publishes from now on began, or begins again, after it.
    fn barrier(&self) -> Result<(), MarketError> {
        let newest = self.root.newest(self.name)?;
        self.root.claim(self.name, &newest, newest.content()).map(drop)
    }

    /// Adds the snapshots that are there now.
    fn look_at(&self, needed: &mut Needed) -> Result<(), MarketError> {
        let ids = self.root.snapshots(self.name)?;
        let new: Vec<String> = ids.into_iter().filter(|id| !needed.snapshots.contains(id)).collect();
        let named = Mutex::new(BTreeSet::new());
        at_once(&new, |id| {
            let own = self.named_by(id)?.unwrap_or_default();
            named.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
            Ok(())
        })?;
        needed.named.extend(named.into_inner().unwrap_or_else(PoisonError::into_inner));
        needed.snapshots.extend(new);
        Ok(())
    }

    /// What removed snapshots named, each with the time up to which it stays, and the notes that have expired at `now`.
    fn notes(&self, now: TimeMicros) -> Result<(Vec<DatedNote>, Vec<String>), MarketError> {
        let (mut notes, mut old) = (Vec::new(), Vec::new());
        for ListedObject { name, modified, .. } in self.root.list(&format!("{}/{NOTES}", self.name))?.objects {
            // Those of this removal are later than `now`, by as much as the store's clock counts: without a grace they hold nothing.
            let from = if self.grace.is_zero() { now } else { self.from(modified) };
            let relative = format!("{NOTES}/{name}");
            if from <= now {
                old.push(relative);
                continue;
            }
            let Some(content) = self.root.read(self.name, &relative)? else { continue };
            notes.push((from, serde_json::from_slice(&content).unwrap_or(Note { files: None })));
        }
        Ok((notes, old))
    }

    /// The files that no snapshot needs.
    fn unused(&self, notes: &[DatedNote], needed: &mut Needed) -> Result<Vec<Unused>, MarketError> {
        let mut listed = Vec::new();
        for folder in [FILES, BASES, QUARANTINE] {
            let objects = self.root.list(&format!("{}/{folder}", self.name))?.objects;
            listed.extend(objects.into_iter().map(|object| (format!("{folder}/{}", object.name), object)));
        }
        self.look_at(needed)?;
        let (mut of_all, mut kept) = (TimeMicros::MIN, BTreeMap::new());
        for (from, note) in notes {
            match &note.files {
                Some(files) => {
                    for file in files {
                        let known = kept.entry(file.as_str()).or_insert(*from);
                        *known = (*known).max(*from);
                    }
                }
                None => of_all = of_all.max(*from),
            }
        }
        let unused = listed.into_iter().filter(|(file, _)| !needed.needs(file)).map(|(file, object)| {
            let noted = kept.get(file.as_str()).copied().unwrap_or(TimeMicros::MIN);
            let from = self.from(object.modified).max(noted).max(of_all);
            Unused { file, bytes: object.bytes, from }
        });
        Ok(unused.collect())
    }

    /// When something may be deleted.
    fn from(&self, modified: TimeMicros) -> TimeMicros {
        modified.saturating_add(micros(self.grace))
    }

    /// Of a dataset that was removed only the last head stays: its number must not be used again.
    fn sweep_heads(&self) -> Result<(), MarketError> {
        let newest = self.root.newest(self.name)?;
        if newest.snapshot.is_some() || newest.number == 0 {
            return Ok(());
        }
        let mut old: Vec<u64> = self.root.numbers(self.name)?;
        old.retain(|number| *number < newest.number);
        let mut old: Vec<String> = old.into_iter().map(head_path).collect();
        let others = self.root.list(self.name)?.objects.into_iter().map(|object| object.name);
        old.extend(others.filter(|name| [HEAD, VENDOR_RECORD].contains(&name.as_str())));
        at_once(&old, |head| self.root.delete(self.name, head, Deadline::of_a_call()))
    }
}
