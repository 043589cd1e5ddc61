//! Removals that are under way: each announces what it is about to delete before it looks whether anybody needs that.
//!
//! An announcement is an object `NAME/removals/TOKEN.json` with the paths; its name is never used again. A writer looks for
//! announcements after it has read the newest head, and does not use a name that one of them has; whoever pins a snapshot looks after the
//! pin is written. So either these see the removal, or the removal sees them. It is withdrawn when every deletion has been answered.
//!
//! What a crash leaves is withdrawn by a later removal, once it is so old that its process cannot delete anything any more: nothing is
//! deleted later than [`ANNOUNCED_ACTS`] after the announcement, by the clocks of the process.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::objects::Deadline;
use super::{RemoteRoot, at_once};
use crate::error::MarketError;
use crate::time::TimeMicros;

/// Folder of the announcements.
pub(super) const REMOVALS: &str = "removals";
/// How long after its announcement a removal deletes.
pub(super) const ANNOUNCED_ACTS: Duration = Duration::from_secs(15 * 60);
/// An announcement younger than this is never taken for one that a crash left.
pub(super) const ANNOUNCED_HELD_MIN: Duration = Duration::from_secs(30 * 60);

/// What the object contains.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Paths {
    paths: BTreeSet<String>,
}

/// An announcement that was found.
#[derive(Debug)]
pub(super) struct Found {
    token: String,
    /// When it was made, by the store's clock.
    pub made: TimeMicros,
    /// `None` where it cannot be read: it may have any path.
    paths: Option<BTreeSet<String>>,
}

impl Found {
    /// Whether this path may be deleted.
    pub fn has(&self, path: &str) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.contains(path))
    }
}

impl RemoteRoot {
    /// The announcements of a dataset's removals.
    pub(super) fn announced(&self, name: &str) -> Result<Vec<Found>, MarketError> {
        let mut found = Vec::new();
        for object in self.list(&format!("{name}/{REMOVALS}"))?.objects {
            let Some(token) = object.name.strip_suffix(".json") else { continue };
            // One that was withdrawn meanwhile has ended.
            let Some(content) = self.read(name, &path_of(token))? else { continue };
            let paths = serde_json::from_slice::<Paths>(&content).ok().map(|paths| paths.paths);
            found.push(Found { token: token.to_owned(), made: object.modified, paths });
        }
        Ok(found)
    }

    /// Whether a removal that is under way may delete one of these.
    pub(super) fn is_announced(&self, name: &str, paths: &BTreeSet<String>) -> Result<bool, MarketError> {
        let found = self.announced(name)?;
        Ok(found.iter().any(|found| paths.iter().any(|path| found.has(path))))
    }

    /// Announces that these are about to be deleted.
    pub(super) fn announce<'a>(
        &'a self,
        name: &'a str,
        paths: &BTreeSet<String>,
    ) -> Result<Announced<'a>, MarketError> {
        // It begins before anybody can see it.
        let until = Deadline::after(ANNOUNCED_ACTS);
        let token = token();
        let json = serde_json::to_vec(&Paths { paths: paths.clone() });
        let json = json.map_err(|error| MarketError::Refused(error.to_string()))?;
        // Nobody else has the token: if there is one already, an answer was lost.
        self.create(name, &path_of(&token), &json)?;
        Ok(Announced { root: self, name, token, until, unanswered: AtomicBool::new(false) })
    }
}

/// An announcement of this process.
#[derive(Debug)]
pub(super) struct Announced<'a> {
    root: &'a RemoteRoot,
    name: &'a str,
    pub token: String,
    until: Deadline,
    /// A deletion was not answered, and may still happen.
    unanswered: AtomicBool,
}

impl Announced<'_> {
    /// When it was made by the store's clock, and the announcements of others. Those that crashed removals left more than `held` ago
    /// are withdrawn.
    pub fn look_around(&self, held: Duration) -> Result<(TimeMicros, Vec<Found>), MarketError> {
        let (own, mut others): (Vec<Found>, Vec<Found>) =
            self.root.announced(self.name)?.into_iter().partition(|found| found.token == self.token);
        let Some(made) = own.first().map(|own| own.made) else {
            // Somebody took it for an old one: this process was stopped for that long.
            return Err(self.late());
        };
        let held = micros(held.max(ANNOUNCED_HELD_MIN));
        let mut left = Ok(());
        others.retain(|found| {
            if found.made.saturating_add(held) > made {
                return true;
            }
            let path = path_of(&found.token);
            left = std::mem::replace(&mut left, Ok(())).and(self.root.delete(self.name, &path, Deadline::of_a_call()));
            false
        });
        left.map(|()| (made, others))
    }

    /// Deletes objects that were announced.
    pub fn delete(&self, paths: &[String]) -> Result<(), MarketError> {
        at_once(paths, |path| {
            if self.until.has_passed() {
                return Err(self.late());
            }
            self.root
                .delete(self.name, path, self.until)
                .inspect_err(|_| self.unanswered.store(true, Ordering::Relaxed))
        })
    }

    fn late(&self) -> MarketError {
        let why = format!("a removal deletes for {} minutes at most: run it again", ANNOUNCED_ACTS.as_secs() / 60);
        self.root.failed("delete", self.name.to_owned(), why)
    }

    /// Withdraws it, unless a deletion may still happen.
    pub fn end(self) {
        if !self.unanswered.load(Ordering::Relaxed) {
            // What is left of it is withdrawn by a later removal.
            let _ = self.root.delete(self.name, &path_of(&self.token), Deadline::of_a_call());
        }
    }
}

pub(super) fn micros(time: Duration) -> TimeMicros {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn path_of(token: &str) -> String {
    format!("{REMOVALS}/{token}.json")
}

/// A name that no other process has: 128 random bits.
fn token() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}
