//! The records of scans, written under the epoch of one leader.
//!
//! Every write is a transaction that holds only while the leader's key is the one of this term, so a leader that was
//! replaced and does not know it yet changes nothing. A commit that was not answered, or that finds its own earlier try in its
//! way, is settled by reading: ids of scans are used once, so a record with these very bytes is one's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trawl_protocol::control::{ControlError, ControlStore, Entry, Guard, Write};

use super::records::{
    End, Header, Keys, Part, Progress, Record as _, RecordError, RequestMark, RequestRecord, Tombstone, is_scan_id,
};

/// Tries of an acceptance whose idempotency key is taken by a scan that is being deleted.
const ACCEPT_TRIES_MAX: usize = 3;

/// One reign: the leader's key and the revision at which it was created, its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// `{cluster}/leader`.
    pub key: String,
    /// Grows from leader to leader.
    pub epoch: i64,
}

/// Why the records could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The control store. What was to be written may stand, now or later.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// A record that cannot be written or believed.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// An id that was used before, or is none.
    #[error("'{0}' is not a new scan's id")]
    Id(String),
    /// The idempotency key's scan is being deleted, and its place was not free in time.
    #[error("the scan of this idempotency key is being deleted; try again in a while")]
    Busy,
}

/// What became of a scan that asked to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// It is recorded: from now on it ends, whatever dies.
    Accepted,
    /// The same request was accepted before, as this scan.
    Existing(Box<Header>),
    /// Another request was accepted under this idempotency key, as this scan.
    Conflict {
        /// Its id.
        scan: String,
    },
    /// Another leads; nothing was recorded.
    NotLeader,
}

/// What became of a write about a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It stands.
    Done,
    /// The scan has ended, is being deleted, or was never there: nothing was written.
    Over,
    /// Another leads; nothing was written.
    NotLeader,
}

/// What became of the end of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It stands.
    Recorded,
    /// The scan had ended before, so; that end stays.
    Already(Box<End>),
    /// There is no such scan, or it is being deleted.
    Unknown,
    /// Another leads; nothing was written.
    NotLeader,
}

/// Everything that stands about one scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its id.
    pub scan: String,
    /// Absent when only a tombstone is there, for objects that belong to no scan.
    pub header: Option<Header>,
    /// The last that was written.
    pub progress: Option<Progress>,
    /// Its last word.
    pub end: Option<End>,
    /// Whether its objects are going to be deleted.
    pub tombstone: Option<Tombstone>,
    /// Create revision of each part.
    pub created: BTreeMap<&'static str, i64>,
}

/// Everything that stands about all scans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// By id.
    pub scans: Vec<Recorded>,
    /// Scans with a record that this program cannot read; they are neither run nor deleted.
    pub unreadable: BTreeMap<String, RecordError>,
}

/// The records, for one term. Cheap to clone.
#[derive(Debug)]
pub struct Ledger<S> {
    control: Arc<S>,
    keys: Keys,
    term: Term,
}

impl<S> Clone for Ledger<S> {
    fn clone(&self) -> Self {
        Self { control: Arc::clone(&self.control), keys: self.keys.clone(), term: self.term.clone() }
    }
}

impl<S: ControlStore> Ledger<S> {
    /// For the leader of `term` in a cluster whose name was checked.
    pub fn new(control: Arc<S>, cluster_name: &str, term: Term) -> Self {
        Self { control, keys: Keys::new(cluster_name), term }
    }

    /// The term whose leader writes.
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Whether this term's leader still leads, or did a moment ago.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub async fn leads(&self) -> Result<bool, LedgerError> {
        Ok(self.control.get(&self.term.key).await?.is_some_and(|entry| entry.created == self.term.epoch))
    }

    /// Records a scan, and with it its idempotency key. Its document, where it is an object, is stored before.
    ///
    /// # Errors
    /// [`LedgerError`]. After [`LedgerError::Control`] it may come to be recorded all the same: ask again with the same header,
    /// or leave it to [`super::recovery::unclaimed`].
    pub async fn accept(&self, header: &Header) -> Result<Acceptance, LedgerError> {
        let scan = header.scan.as_str();
        if !is_scan_id(scan) || header.generation != 0 {
            return Err(LedgerError::Id(scan.to_owned()));
        }
        let bytes = header.to_bytes(scan)?;
        let key = self.keys.part(scan, Part::Header);
        let mut guards = vec![
            self.guard(),
            Guard::Absent { key: key.clone() },
            Guard::Absent { key: self.keys.part(scan, Part::Tombstone) },
        ];
        let mut writes = vec![put(&key, bytes.clone())];
        if let Some(mark) = &header.request {
            let request = self.keys.request(&mark.slot);
            let record = RequestRecord { scan: scan.to_owned(), digest: mark.digest.clone() };
            writes.push(put(&request, record.to_bytes(scan)?));
            guards.push(Guard::Absent { key: request });
        }
        for _ in 0..ACCEPT_TRIES_MAX {
            let committed = self.control.commit(&guards, writes.clone()).await;
            if committed.as_ref().is_ok_and(|c| c.applied) {
                return Ok(Acceptance::Accepted);
            }
            match (self.control.get(&key).await, committed) {
                (Ok(Some(entry)), _) if entry.value == bytes => return Ok(Acceptance::Accepted),
                (_, Err(error)) | (Err(error), _) => return Err(error.into()),
                (Ok(_), Ok(_)) if !self.leads().await? => return Ok(Acceptance::NotLeader),
                (Ok(Some(_)), Ok(_)) => return Err(LedgerError::Id(scan.to_owned())),
                (Ok(None), Ok(_)) => {}
            }
            if let Some(mark) = &header.request
                && let Some(known) = self.known_request(mark).await?
            {
                return Ok(known);
            }
        }
        if self.control.get(&self.keys.part(scan, Part::Tombstone)).await?.is_some() {
            return Err(LedgerError::Id(scan.to_owned()));
        }
        Err(LedgerError::Busy)
    }

    /// What a request became that was made before; `None` when it was not, or its scan is deleted by now.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn known_request(&self, mark: &RequestMark) -> Result<Option<Acceptance>, LedgerError> {
        let Some(entry) = self.control.get(&self.keys.request(&mark.slot)).await? else { return Ok(None) };
        let known = RequestRecord::from_bytes("of this idempotency key", &entry.value)?;
        if known.digest != mark.digest {
            return Ok(Some(Acceptance::Conflict { scan: known.scan }));
        }
        let header = self.get(&known.scan).await?.and_then(|recorded| recorded.header);
        Ok(header.map(|header| Acceptance::Existing(Box::new(header))))
    }

    /// Begins a scan anew: `header` is of the next generation.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn restart(&self, header: &Header) -> Result<Written, LedgerError> {
        let scan = header.scan.as_str();
        let bytes = header.to_bytes(scan)?;
        let Some(known) = self.get(scan).await? else { return Ok(Written::Over) };
        let present = known.header.as_ref().map(|h| h.generation);
        if present == Some(header.generation) && known.header.as_ref() == Some(header) {
            return Ok(Written::Done);
        }
        if present.and_then(|g| g.checked_add(1)) != Some(header.generation) {
            return Ok(Written::Over);
        }
        let key = self.keys.part(scan, Part::Header);
        let writes = vec![put(&key, bytes), Write::Delete { key: self.keys.part(scan, Part::Progress) }];
        let revision = known.created.get(Part::Header.name()).copied().unwrap_or_default();
        self.write(scan, vec![Guard::Created { key, revision }], writes).await
    }

    /// Notes how far a scan is. Callers write at most once a second.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn progress(&self, scan: &str, progress: &Progress) -> Result<Written, LedgerError> {
        let writes = vec![put(&self.keys.part(scan, Part::Progress), progress.to_bytes(scan)?)];
        self.write(scan, Vec::new(), writes).await
    }

    /// Records the end of a scan; the first one stays.
    ///
    /// # Errors
    /// [`LedgerError`]. After [`LedgerError::Control`] it may stand: ask again.
    pub async fn end(&self, scan: &str, end: &End) -> Result<Ending, LedgerError> {
        let key = self.keys.part(scan, Part::End);
        let writes = vec![put(&key, end.to_bytes(scan)?), Write::Delete { key: self.keys.part(scan, Part::Progress) }];
        let Some(known) = self.get(scan).await? else { return Ok(Ending::Unknown) };
        let revision = known.created.get(Part::Header.name()).copied().unwrap_or_default();
        let alive = Guard::Created { key: self.keys.part(scan, Part::Header), revision };
        let written = self.write(scan, vec![alive], writes).await?;
        if written == Written::Done {
            return Ok(Ending::Recorded);
        }
        match self.get(scan).await?.and_then(|recorded| recorded.end) {
            Some(found) if found == *end => Ok(Ending::Recorded),
            Some(found) => Ok(Ending::Already(Box::new(found))),
            None if written == Written::NotLeader => Ok(Ending::NotLeader),
            None => Ok(Ending::Unknown),
        }
    }

    /// Marks the objects of a scan that ended, or of none, for deletion by this term's leader.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn mark(&self, recorded: &Recorded, now_us: i64) -> Result<Written, LedgerError> {
        let scan = recorded.scan.as_str();
        let guard = match recorded.created.get(Part::End.name()) {
            // An end that is there now: nothing else may be deleted.
            Some(&revision) => Guard::Created { key: self.keys.part(scan, Part::End), revision },
            None => Guard::Absent { key: self.keys.part(scan, Part::Header) },
        };
        let tombstone = Tombstone { epoch: self.term.epoch, marked_us: now_us };
        let key = self.keys.part(scan, Part::Tombstone);
        let committed = self.control.commit(&[self.guard(), guard], vec![put(&key, tombstone.to_bytes(scan)?)]).await?;
        self.applied(committed.applied).await
    }

    /// Deletes every record of a scan that is marked under this term, after its objects.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn forget(&self, recorded: &Recorded) -> Result<Written, LedgerError> {
        let scan = recorded.scan.as_str();
        let Some(&revision) = recorded.created.get(Part::Tombstone.name()) else { return Ok(Written::Over) };
        let marked = Guard::Created { key: self.keys.part(scan, Part::Tombstone), revision };
        let mut keys: BTreeSet<String> = Part::ALL.into_iter().map(|part| self.keys.part(scan, part)).collect();
        // Written and deleted with the header only, so it is this scan's.
        keys.extend(
            recorded.header.iter().filter_map(|h| h.request.as_ref()).map(|mark| self.keys.request(&mark.slot)),
        );
        let writes = keys.into_iter().map(|key| Write::Delete { key }).collect();
        let committed = self.control.commit(&[self.guard(), marked], writes).await?;
        self.applied(committed.applied).await
    }

    /// What stands about one scan; `None` when nothing does.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn get(&self, scan: &str) -> Result<Option<Recorded>, LedgerError> {
        if !is_scan_id(scan) {
            return Ok(None);
        }
        let mut loaded = self.read(&self.keys.scan(scan)).await?;
        match loaded.unreadable.remove(scan) {
            Some(error) => Err(error.into()),
            None => Ok(loaded.scans.pop()),
        }
    }

    /// What stands about every scan: a new leader's first question.
    ///
    /// # Errors
    /// [`LedgerError::Control`]; records that cannot be read are in [`Loaded::unreadable`].
    pub async fn load(&self) -> Result<Loaded, LedgerError> {
        self.read(self.keys.scans()).await
    }

    async fn read(&self, prefix: &str) -> Result<Loaded, LedgerError> {
        let mut scans: BTreeMap<String, Recorded> = BTreeMap::new();
        let mut unreadable = BTreeMap::new();
        for entry in self.control.list(prefix).await?.entries {
            let Some((scan, part)) = self.keys.parse(&entry.key) else { continue };
            let recorded = scans.entry(scan.to_owned()).or_default();
            scan.clone_into(&mut recorded.scan);
            if let Err(error) = take(recorded, part, &entry) {
                tracing::warn!(scan, %error, "a scan's record cannot be read; the scan is left alone");
                unreadable.insert(scan.to_owned(), error);
            }
        }
        scans.retain(|scan, _| !unreadable.contains_key(scan));
        Ok(Loaded { scans: scans.into_values().collect(), unreadable })
    }

    fn guard(&self) -> Guard {
        Guard::Created { key: self.term.key.clone(), revision: self.term.epoch }
    }

    /// A write about a scan that has not ended.
    async fn write(&self, scan: &str, guards: Vec<Guard>, writes: Vec<Write>) -> Result<Written, LedgerError> {
        let alive = [Part::End, Part::Tombstone].map(|part| Guard::Absent { key: self.keys.part(scan, part) });
        let guards: Vec<Guard> = [self.guard()].into_iter().chain(alive).chain(guards).collect();
        let committed = self.control.commit(&guards, writes).await?;
        self.applied(committed.applied).await
    }

    async fn applied(&self, applied: bool) -> Result<Written, LedgerError> {
        Ok(match applied {
            true => Written::Done,
            false if self.leads().await? => Written::Over,
            false => Written::NotLeader,
        })
    }
}

fn put(key: &str, value: Vec<u8>) -> Write {
    Write::Put { key: key.to_owned(), value, lease: None }
}

/// Reads one part into what is known of its scan.
fn take(recorded: &mut Recorded, part: Part, entry: &Entry) -> Result<(), RecordError> {
    let scan = recorded.scan.clone();
    match part {
        Part::Header => {
            let header = Header::from_bytes(&scan, &entry.value)?;
            if header.scan != scan {
                let why = format!("it is that of scan '{}'", header.scan);
                return Err(RecordError::Malformed { what: Header::WHAT, scan, why });
            }
            recorded.header = Some(header);
        }
        // A hint: without it nothing is lost.
        Part::Progress => recorded.progress = Progress::from_bytes(&scan, &entry.value).ok(),
        Part::End => recorded.end = Some(End::from_bytes(&scan, &entry.value)?),
        Part::Tombstone => recorded.tombstone = Some(Tombstone::from_bytes(&scan, &entry.value)?),
    }
    recorded.created.insert(part.name(), entry.created);
    Ok(())
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
