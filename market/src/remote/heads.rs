//! The numbered heads of a dataset: which snapshot is the newest, and who makes the next one.
//!
//! A head is an object that is made only if it is not there, and never changes. It contains the id of a snapshot, or [`REMOVED`] where
//! the dataset was removed. The highest number counts. Numbers are never used again, also not after a removal.

use super::objects::Deadline;
use super::{ListedObject, RemoteRoot};
use crate::error::MarketError;
use crate::layout::HEAD;
use crate::name::is_digest;

/// Folder of the numbered heads.
pub(super) const HEADS: &str = "heads";
/// Content of the head of a dataset that was removed.
pub(super) const REMOVED: &str = "removed";
/// Digits of a head's number.
const NUMBER_DIGITS: usize = 20;
/// How often the newest head is looked for, if it is deleted while it is read.
const HEAD_READS_MAX: u32 = 3;
/// Heads that are kept: a writer that took so long that this many others came meanwhile has lost.
const HEADS_KEPT: u64 = 256;

/// The newest snapshot of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its id.
    pub snapshot: String,
    /// Number of its head; 0 in a directory.
    pub number: u64,
}

/// The newest head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Newest {
    /// Its number; 0 for a `HEAD` that was copied from a directory, and where there is none.
    pub number: u64,
    /// The snapshot; `None` for a dataset that was removed, or never made.
    pub snapshot: Option<String>,
}

impl Newest {
    /// What a head that changes nothing contains.
    pub fn content(&self) -> &str {
        self.snapshot.as_deref().unwrap_or(REMOVED)
    }
}

impl RemoteRoot {
    /// The newest snapshot of a dataset; `None` when it does not exist.
    pub fn head(&self, name: &str) -> Result<Option<Head>, MarketError> {
        let Newest { number, snapshot } = self.newest(name)?;
        Ok(snapshot.map(|snapshot| Head { snapshot, number }))
    }

    /// Whether a dataset was removed, and not made again since.
    pub fn was_removed(&self, name: &str) -> Result<bool, MarketError> {
        let Newest { number, snapshot } = self.newest(name)?;
        Ok(snapshot.is_none() && number > 0)
    }

    /// The newest head.
    pub(super) fn newest(&self, name: &str) -> Result<Newest, MarketError> {
        for _ in 0..HEAD_READS_MAX {
            let Some(number) = self.numbers(name)?.into_iter().max() else {
                let content = self.read(name, HEAD)?;
                let snapshot = content.map(|content| id_of(name, HEAD, &content)).transpose()?.flatten();
                return Ok(Newest { number: 0, snapshot });
            };
            if let Some(snapshot) = self.at(name, number)? {
                return Ok(Newest { number, snapshot });
            }
        }
        Err(self.failed("read", format!("{name}/{HEADS}"), "its heads are deleted as fast as they are read".to_owned()))
    }

    /// The snapshot in a head, `None` in that of a removed dataset; nothing where there is no such head.
    fn at(&self, name: &str, number: u64) -> Result<Option<Option<String>>, MarketError> {
        let relative = head_path(number);
        self.read(name, &relative)?.map(|content| id_of(name, &relative, &content)).transpose()
    }

    /// The last snapshots that were the newest, the last one first: at least `count` different ones of those that `wanted` accepts, if
    /// there are as many heads.
    pub(super) fn history(
        &self,
        name: &str,
        count: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, MarketError> {
        let mut numbers = self.numbers(name)?;
        numbers.sort_unstable();
        let mut found: Vec<String> = Vec::new();
        for number in numbers.into_iter().rev() {
            if found.len() >= count {
                break;
            }
            if let Some(Some(snapshot)) = self.at(name, number)?
                && wanted(&snapshot)
                && !found.contains(&snapshot)
            {
                found.push(snapshot);
            }
        }
        Ok(found)
    }

    /// Numbers of a dataset's heads.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<u64>, MarketError> {
        let listed = self.list(&format!("{name}/{HEADS}"))?.objects;
        let number = |object: ListedObject| {
            let digits = object.name.len() == NUMBER_DIGITS && object.name.bytes().all(|c| c.is_ascii_digit());
            digits.then(|| object.name.parse().ok()).flatten()
        };
        Ok(listed.into_iter().filter_map(number).collect())
    }

    /// Makes the head after `before`, with this content. False if there is another one. Either way there is a head with that number
    /// then, and it was made after `before` was read.
    pub(super) fn claim(&self, name: &str, before: &Newest, content: &str) -> Result<bool, MarketError> {
        let Some(number) = before.number.checked_add(1) else { return Ok(false) };
        let (head, content) = (head_path(number), format!("{content}\n"));
        if !self.create(name, &head, content.as_bytes())?
            // It is ours if the answer to an earlier try was lost; and as good as ours if another process made the same.
            && self.read(name, &head)?.is_none_or(|found| found != content.as_bytes())
        {
            return Ok(false);
        }
        let numbers = self.numbers(name)?;
        if numbers.iter().max().is_some_and(|newest| *newest > number.saturating_add(HEADS_KEPT)) {
            // Others came long ago, and their heads of this number were deleted since.
            self.delete(name, &head, Deadline::of_a_call())?;
            return Ok(false);
        }
        for old in numbers.into_iter().filter(|old| old.saturating_add(HEADS_KEPT) < number) {
            // The next writer deletes what is left.
            let _ = self.delete(name, &head_path(old), Deadline::of_a_call());
        }
        Ok(true)
    }
}

pub(super) fn head_path(number: u64) -> String {
    format!("{HEADS}/{number:0NUMBER_DIGITS$}")
}

/// The id in a head; `None` in that of a dataset that was removed.
fn id_of(name: &str, relative: &str, content: &[u8]) -> Result<Option<String>, MarketError> {
    let id = String::from_utf8_lossy(content).trim_end().to_owned();
    if id == REMOVED {
        return Ok(None);
    }
    if is_digest(&id) {
        return Ok(Some(id));
    }
    let why = "it should contain the 64 hex digits of a snapshot id".to_owned();
    Err(MarketError::Corrupt { file: format!("{name}/{relative}"), why })
}
