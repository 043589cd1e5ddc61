//! Takes snapshots of an object store out of sight.
//!
//! A removal announces the manifests that it will delete, then looks at pins and heads, and makes a head: the snapshot before, if the
//! newest one is removed; [`REMOVED`] for a whole dataset; else the same snapshot again. A writer that did not see the announcement then
//! finds its head taken. What the snapshot names is noted in an object `NAME/removed/ID.TOKEN.json`, by whose age its files are deleted
//! later (`sweep`), and at last the manifest is deleted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::announced::{Announced, Found};
use super::heads::{Newest, REMOVED};
use super::publish::is_optional;
use super::{RemoteDataset, RemoteRoot, at_once};
use crate::error::MarketError;
use crate::files::Files;
use crate::layout::{HEAD, base_path, manifest_path};
use crate::manifest_reader::{read_base, read_manifest};
use crate::pin_files::{PINS, PinFound, latest};
use crate::quarantine::quarantine_path;
use crate::removal_report::{InUse, RemovalReport, only_one, pinned_until, refusal};
use crate::time::TimeMicros;

/// Folder of the notes of what removed snapshots named.
pub(super) const NOTES: &str = "removed";
/// How often a removal begins again, because others changed the dataset meanwhile.
const REMOVAL_TRIES_MAX: u32 = 8;

/// What is to be removed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What<'a> {
    /// The dataset.
    Whole,
    /// One snapshot, by its id.
    One(&'a str),
    /// All snapshots but so many, and those in use.
    AllBut(usize),
}

/// What a removed snapshot named.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Note {
    /// `None` where its manifest could not be read.
    pub files: Option<BTreeSet<String>>,
}

/// A removal from one dataset.
#[derive(Debug)]
pub(crate) struct Remover<'a> {
    pub root: &'a Arc<RemoteRoot>,
    pub name: &'a str,
    /// The time by this machine's clock, for pins.
    pub now: TimeMicros,
    /// How long files stay after the last snapshot that names them has been removed, by the store's clock.
    pub grace: Duration,
}

impl Remover<'_> {
    /// Removes snapshots, and deletes what earlier removals left.
    ///
    /// # Errors
    /// [`MarketError::Refused`] for a snapshot in use and for the only one; [`MarketError::UnknownSnapshot`]; [`MarketError::Busy`]
    /// where others change the dataset again and again; [`MarketError::DataRoot`]; those of reading manifests that stay.
    pub fn remove(&self, what: What<'_>) -> Result<RemovalReport, MarketError> {
        for _ in 0..REMOVAL_TRIES_MAX {
            let mut report = RemovalReport {
                dataset: self.name.to_owned(),
                whole: matches!(what, What::Whole),
                ..RemovalReport::default()
            };
            let mut going = self.going(what)?;
            self.keep_pinned(what, &mut going, &mut report)?;
            let announced = self.root.announce(self.name, &manifests(&going))?;
            let done = self.hide(&announced, what, going, &mut report);
            announced.end();
            if let Some(now) = done? {
                self.sweep(now, &mut report)?;
                return Ok(report);
            }
        }
        Err(MarketError::Busy { dataset: self.name.to_owned() })
    }

    /// Whether there is anything of the dataset besides its heads.
    pub fn has_rest(&self) -> Result<bool, MarketError> {
        let listed = self.root.list(self.name)?;
        let rest = |folder: &String| folder != super::HEADS && folder != PINS;
        Ok(listed.folders.iter().any(rest) || listed.objects.iter().any(|object| object.name == HEAD))
    }

    /// The snapshots that are to be removed.
    fn going(&self, what: What<'_>) -> Result<Vec<String>, MarketError> {
        let all = self.root.dated_snapshots(self.name)?;
        Ok(match what {
            What::Whole => {
                let mut ids: BTreeSet<String> = all.into_iter().map(|(id, _)| id).collect();
                // Also where its manifest was lost.
                ids.extend(self.root.newest(self.name)?.snapshot);
                ids.into_iter().collect()
            }
            What::One(id) if !all.iter().any(|(other, _)| other == id) => {
                return Err(MarketError::UnknownSnapshot { dataset: self.name.to_owned(), prefix: id.to_owned() });
            }
            What::One(id) if all.len() == 1 => return Err(only_one(self.name, id)),
            What::One(id) => vec![id.to_owned()],
            What::AllBut(keep) => self.newest_first(keep, all)?.into_iter().skip(keep.max(1)).collect(),
        })
    }

    /// These snapshots, the newest first: the last `count` by their heads, which are in the order in which they were the newest; the
    /// others by when their manifests were put.
    fn newest_first(&self, count: usize, mut all: Vec<(String, TimeMicros)>) -> Result<Vec<String>, MarketError> {
        let ids: BTreeSet<String> = all.iter().map(|(id, _)| id.clone()).collect();
        let mut ordered = self.root.history(self.name, count, |id| ids.contains(id))?;
        all.sort_by_key(|(id, made)| (Reverse(*made), id.clone()));
        for (id, _) in all {
            if !ordered.contains(&id) {
                ordered.push(id);
            }
        }
        Ok(ordered)
    }

    /// Refuses the removal of what is pinned; of several snapshots it is kept and reported.
    fn keep_pinned(
        &self,
        what: What<'_>,
        going: &mut Vec<String>,
        report: &mut RemovalReport,
    ) -> Result<(), MarketError> {
        let pins: BTreeMap<String, PinFound> = latest(self.root.pins(self.name)?, self.now);
        let used: Vec<InUse> = going.iter().filter_map(|id| pins.get(id)).map(pinned_until).collect();
        if !used.is_empty() && !matches!(what, What::AllBut(_)) {
            return Err(refusal(self.name, &used));
        }
        going.retain(|id| !pins.contains_key(id));
        report.kept_in_use.extend(used);
        Ok(())
    }

    /// Takes snapshots out of sight that were announced; returns the time by the store's clock. `None` if others changed the dataset
    /// meanwhile: nothing was done.
    fn hide(
        &self,
        announced: &Announced<'_>,
        what: What<'_>,
        mut going: Vec<String>,
        report: &mut RemovalReport,
    ) -> Result<Option<TimeMicros>, MarketError> {
        // The head before the announcements, as a writer does: it may make one that others rely on.
        let newest = self.root.newest(self.name)?;
        let (now, others) = announced.look_around(self.grace)?;
        self.keep_pinned(what, &mut going, report)?;
        if !self.move_head(what, &newest, &going, &others)? {
            return Ok(None);
        }
        at_once(&going, |id| self.note(id, &announced.token))?;
        announced.delete(&manifests(&going).into_iter().collect::<Vec<_>>())?;
        for id in &going {
            self.root.cache.forget(&*self.root.objects, &format!("{}/{}", self.name, manifest_path(id)));
        }
        report.removed = going;
        Ok(Some(now))
    }

    /// Makes the next head; false if others changed the dataset meanwhile.
    fn move_head(
        &self,
        what: What<'_>,
        newest: &Newest,
        going: &[String],
        others: &[Found],
    ) -> Result<bool, MarketError> {
        let goes = |newest: &Newest| newest.snapshot.as_ref().is_none_or(|id| going.contains(id));
        if matches!(what, What::Whole) {
            return Ok(goes(newest) && self.root.claim(self.name, newest, REMOVED)?);
        }
        match &newest.snapshot {
            None => Ok(false),
            // It was published after the old ones were chosen.
            Some(id) if going.contains(id) && matches!(what, What::AllBut(_)) => Ok(false),
            Some(id) if going.contains(id) => {
                let Some(next) = self.next(going, others)? else {
                    // The others are being removed, or are not whole.
                    return if others.is_empty() { Err(only_one(self.name, id)) } else { Ok(false) };
                };
                self.root.claim(self.name, newest, &next)
            }
            Some(_) if going.is_empty() => Ok(true),
            Some(_) => {
                // Whoever made it: it was made after the announcement.
                self.root.claim(self.name, newest, newest.content())?;
                Ok(!goes(&self.root.newest(self.name)?))
            }
        }
    }

    /// The snapshot that is the newest after these are removed: one that nobody is removing, and of which everything is there.
    fn next(&self, going: &[String], others: &[Found]) -> Result<Option<String>, MarketError> {
        let all = self.root.dated_snapshots(self.name)?;
        let there = self.dataset().there()?;
        for id in self.newest_first(going.len() + 1, all)?.into_iter().filter(|id| !going.contains(id)) {
            let mut files = match self.named_by(&id) {
                Ok(Some(files)) => files,
                Ok(None) | Err(MarketError::Checksum { .. } | MarketError::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let is_whole = files.iter().all(|file| there.contains(file) || is_optional(file));
            files.insert(manifest_path(&id));
            if is_whole && !files.iter().any(|file| others.iter().any(|found| found.has(file))) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Notes what a snapshot names, from when on it is out of sight.
    fn note(&self, id: &str, token: &str) -> Result<(), MarketError> {
        let files = match self.named_by(id) {
            Ok(files) => Some(files.unwrap_or_default().into_iter().chain([quarantine_path(id)]).collect()),
            Err(MarketError::Checksum { .. } | MarketError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        let json = serde_json::to_vec(&Note { files }).map_err(|error| MarketError::Refused(error.to_string()))?;
        self.root.create(self.name, &format!("{NOTES}/{id}.{token}.json"), &json).map(drop)
    }

    /// Files and bases that a snapshot names; `None` if it is gone.
    pub(super) fn named_by(&self, id: &str) -> Result<Option<BTreeSet<String>>, MarketError> {
        let files = Files::Remote(self.dataset());
        let manifest = match read_manifest(&files, self.name, id) {
            Ok((manifest, _)) => manifest,
            Err(MarketError::Gone { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut named = manifest.file_paths();
        if let Some(appended) = &manifest.appended {
            named.insert(base_path(&appended.base));
            match read_base(&files, self.name, &appended.base) {
                Ok(base) => named.extend(base.file_paths()),
                // What a writer left that has lost: it cannot be opened.
                Err(MarketError::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(named))
    }

    pub(super) fn dataset(&self) -> RemoteDataset {
        RemoteDataset { root: Arc::clone(self.root), name: self.name.to_owned(), staged: None }
    }
}

fn manifests(ids: &[String]) -> BTreeSet<String> {
    ids.iter().map(|id| manifest_path(id)).collect()
}
