//! The records of scans, written under the epoch of one leader.
//!
//! A scan is accepted by the put of its header under `scans/`. The transaction that ends it deletes the header and puts
//! one compact record under `ended/`: so `scans/` is the index of open scans, which is all that a new leader has to
//! read, and it can never disagree with the records. Earlier releases left header and end of ended scans under
//! `scans/`; those are still read.
//!
//! Every write is a transaction that holds only while the leader's key is the one of this term, so a leader that was
//! replaced and has not noticed changes nothing. A commit that was not answered, or that finds its own earlier try, is
//! resolved by reading: ids of scans are used once, so a record with the same bytes is its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trawl_cluster_store::{ControlStore, Guard, PageRequest, Pages, Write};

use super::found::{CLOSED, EndedPages, Found};
pub use super::recorded::{LedgerError, Loaded, Recorded};
use super::records::{
    Closed, DocumentPlace, End, EndOutcome, Header, KeyKind, Keys, Progress, Record as _, RequestMark, RequestRecord,
    Tombstone, is_scan_id,
};

/// Tries of an acceptance whose idempotency key is taken by a scan that is being deleted.
const ACCEPT_TRIES_MAX: usize = 3;

/// Headers that are remembered from accepting to ending; of more, they are read again.
const ACCEPTED_KEPT_MAX: usize = 1024;

/// One term: the leader's key and the revision at which it was created, its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// `{cluster}/leader`.
    pub key: String,
    /// Create revision of the key; increases from leader to leader.
    pub epoch: i64,
}

/// The outcome of [`Ledger::accept`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// It is recorded: it will end, whichever process dies.
    Accepted,
    /// The same request was accepted before, as this scan.
    Existing(Box<Header>),
    /// Another request was accepted under this idempotency key, as this scan.
    Conflict {
        /// Its id.
        scan: String,
    },
    /// Another coordinator leads; nothing was recorded.
    NotLeader,
}

/// The outcome of a write about a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It was written.
    Done,
    /// The scan has ended, is being deleted, or was never there: nothing was written.
    Over,
    /// Another coordinator leads; nothing was written.
    NotLeader,
}

/// The outcome of [`Ledger::end`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It was recorded.
    Recorded,
    /// The scan had ended before with this end, which is kept.
    Already(Box<End>),
    /// There is no such scan in this generation, or it is being deleted.
    Unknown,
    /// Another coordinator leads; nothing was written.
    NotLeader,
}

/// The records, for one term. Cheap to clone.
#[derive(Debug)]
pub struct Ledger<S> {
    control: Arc<S>,
    keys: Keys,
    term: Term,
    /// Number of result groups named in this term.
    groups: Arc<AtomicU32>,
    /// Headers of open scans that this term accepted, with their create revisions: what ends such a scan need not be read before.
    accepted: Arc<Mutex<BTreeMap<String, (Header, i64)>>>,
}

impl<S> Clone for Ledger<S> {
    fn clone(&self) -> Self {
        let (control, groups, accepted) =
            (Arc::clone(&self.control), Arc::clone(&self.groups), Arc::clone(&self.accepted));
        Self { control, keys: self.keys.clone(), term: self.term.clone(), groups, accepted }
    }
}

impl<S: ControlStore> Ledger<S> {
    /// The records of a cluster, written by the leader of `term`. `cluster_name` has been validated.
    pub fn new(control: Arc<S>, cluster_name: &str, term: Term) -> Self {
        Self { control, keys: Keys::new(cluster_name), term, groups: Arc::default(), accepted: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, (Header, i64)>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the groups of results that this term's leader writes. No number is used twice, so that a scan
    /// that runs again in the same term does not reuse object names of its first run.
    pub(super) fn groups(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.groups)
    }

    /// The term whose leader writes.
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Whether this term's leader held the leader's key when it was read.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub async fn leads(&self) -> Result<bool, LedgerError> {
        Ok(self.control.get(&self.term.key).await?.is_some_and(|entry| entry.created == self.term.epoch))
    }

    /// Records a scan, and with it its idempotency key. Its document, where it is an object, is stored before.
    ///
    /// # Errors
    /// [`LedgerError`]. After [`LedgerError::Control`] it may still become recorded: call again with the same header,
    /// or find it later through [`Ledger::open_names`].
    pub async fn accept(&self, header: &Header) -> Result<Acceptance, LedgerError> {
        let scan = header.scan.as_str();
        if !is_scan_id(scan) || header.generation != 0 {
            return Err(LedgerError::Id(scan.to_owned()));
        }
        let bytes = header.to_bytes(scan)?;
        let key = self.keys.part(scan, KeyKind::Header);
        let mut guards = vec![
            self.guard(),
            Guard::Absent { key: key.clone() },
            Guard::Absent { key: self.keys.part(scan, KeyKind::Tombstone) },
            Guard::Absent { key: self.keys.ended(scan) },
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
            if let Some(committed) = committed.as_ref().ok().filter(|committed| committed.applied) {
                let mut known = self.known();
                if known.len() < ACCEPTED_KEPT_MAX {
                    known.insert(scan.to_owned(), (Header { trace: None, ..header.clone() }, committed.revision));
                }
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
        for key in [self.keys.part(scan, KeyKind::Tombstone), self.keys.ended(scan)] {
            if self.control.get(&key).await?.is_some() {
                return Err(LedgerError::Id(scan.to_owned()));
            }
        }
        Err(LedgerError::Busy)
    }

    /// The outcome of an earlier request with this mark; `None` if there was none, or its scan has been deleted.
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

    /// Restarts a scan: `header` is of the next generation.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn restart(&self, header: &Header) -> Result<Written, LedgerError> {
        let scan = header.scan.as_str();
        self.known().remove(scan);
        let bytes = header.to_bytes(scan)?;
        let Some(known) = self.get(scan).await? else { return Ok(Written::Over) };
        let present = known.header.as_ref().map(|h| h.generation);
        if present == Some(header.generation) && known.header.as_ref() == Some(header) {
            return Ok(Written::Done);
        }
        if present.and_then(|g| g.checked_add(1)) != Some(header.generation) {
            return Ok(Written::Over);
        }
        let key = self.keys.part(scan, KeyKind::Header);
        let writes = vec![put(&key, bytes), Write::Delete { key: self.keys.part(scan, KeyKind::Progress) }];
        let revision = known.created.get(KeyKind::Header.name()).copied().unwrap_or_default();
        self.write(scan, vec![Guard::Created { key, revision }], writes).await
    }

    /// Records the progress of a scan. Callers write at most once a second.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn progress(&self, scan: &str, progress: &Progress) -> Result<Written, LedgerError> {
        let writes = vec![put(&self.keys.part(scan, KeyKind::Progress), progress.to_bytes(scan)?)];
        self.write(scan, Vec::new(), writes).await
    }

    /// Records the end of a scan; the first end is kept. The header is replaced by one record of header and end. After a
    /// restore from a backup the recorded generation may be an earlier one than that of `end`: its answer is not the
    /// scan's, which stays open; a failure or a cancellation is recorded as the end of the recorded generation.
    ///
    /// # Errors
    /// [`LedgerError`]. After [`LedgerError::Control`] it may have been applied: call again.
    pub async fn end(&self, scan: &str, end: &End) -> Result<Ending, LedgerError> {
        if !is_scan_id(scan) {
            return Ok(Ending::Unknown);
        }
        let known = self.known().remove(scan).filter(|(header, _)| header.generation == end.generation);
        if let Some((header, revision)) = known
            && self.close(header, revision, end).await? == Written::Done
        {
            return Ok(Ending::Recorded);
        }
        let mut written = Written::Over;
        if let Some(entry) = self.control.get(&self.keys.part(scan, KeyKind::Header)).await? {
            let header = Header { trace: None, ..Header::from_bytes(scan, &entry.value)? };
            if matches!(end.outcome, EndOutcome::Complete { .. }) && end.generation != header.generation {
                return Ok(Ending::Unknown);
            }
            written = self.close(header, entry.created, end).await?;
        }
        if written == Written::Done {
            return Ok(Ending::Recorded);
        }
        match self.get(scan).await?.and_then(|recorded| recorded.end) {
            Some(found) if (&found.outcome, found.ended_us) == (&end.outcome, end.ended_us) => Ok(Ending::Recorded),
            Some(found) => Ok(Ending::Already(Box::new(found))),
            None if written == Written::NotLeader => Ok(Ending::NotLeader),
            None => Ok(Ending::Unknown),
        }
    }

    /// Replaces a header, with its create revision, by one record of header and end.
    async fn close(&self, header: Header, revision: i64, end: &End) -> Result<Written, LedgerError> {
        let scan = header.scan.clone();
        let end = End { generation: header.generation, ..end.clone() };
        let (key, progress) = (self.keys.part(&scan, KeyKind::Header), self.keys.part(&scan, KeyKind::Progress));
        let writes = vec![
            put(&self.keys.ended(&scan), Closed { header, end }.to_bytes(&scan)?),
            Write::Delete { key: key.clone() },
            Write::Delete { key: progress },
        ];
        self.write(&scan, vec![Guard::Created { key, revision }], writes).await
    }

    /// Marks the objects of a scan that ended, or of none, for deletion by this term's leader.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn mark(&self, recorded: &Recorded, now_us: i64) -> Result<Written, LedgerError> {
        let scan = recorded.scan.as_str();
        let mut guards = vec![self.guard()];
        match (recorded.created.get(CLOSED), recorded.created.get(KeyKind::End.name())) {
            // Guard on the present end: nothing else may be deleted.
            (Some(&revision), _) => guards.push(Guard::Created { key: self.keys.ended(scan), revision }),
            (None, Some(&revision)) => {
                guards.push(Guard::Created { key: self.keys.part(scan, KeyKind::End), revision });
            }
            (None, None) => guards.extend([
                Guard::Absent { key: self.keys.part(scan, KeyKind::Header) },
                Guard::Absent { key: self.keys.ended(scan) },
            ]),
        }
        let tombstone = Tombstone { epoch: self.term.epoch, marked_us: now_us };
        let key = self.keys.part(scan, KeyKind::Tombstone);
        let committed = self.control.commit(&guards, vec![put(&key, tombstone.to_bytes(scan)?)]).await?;
        self.applied(committed.applied).await
    }

    /// Deletes all records of a scan that is marked under this term. Call it after deleting its objects.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn forget(&self, recorded: &Recorded) -> Result<Written, LedgerError> {
        let scan = recorded.scan.as_str();
        let Some(&revision) = recorded.created.get(KeyKind::Tombstone.name()) else { return Ok(Written::Over) };
        let marked = Guard::Created { key: self.keys.part(scan, KeyKind::Tombstone), revision };
        let mut keys: BTreeSet<String> = KeyKind::ALL.into_iter().map(|part| self.keys.part(scan, part)).collect();
        keys.insert(self.keys.ended(scan));
        // Written with the header and deleted only here, so it belongs to this scan.
        keys.extend(
            recorded.header.iter().filter_map(|h| h.request.as_ref()).map(|mark| self.keys.request(&mark.slot)),
        );
        let writes = keys.into_iter().map(|key| Write::Delete { key }).collect();
        let committed = self.control.commit(&[self.guard(), marked], writes).await?;
        self.applied(committed.applied).await
    }

    /// The records of one scan; `None` if there are none.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn get(&self, scan: &str) -> Result<Option<Recorded>, LedgerError> {
        if !is_scan_id(scan) {
            return Ok(None);
        }
        // In this order, so that a scan that ends in between is found as ended instead of missing.
        let mut found = Found::default();
        for entry in self.control.list(&self.keys.scan(scan)).await?.entries {
            found.take(&self.keys, &entry);
        }
        if let Some(entry) = self.control.get(&self.keys.ended(scan)).await? {
            found.take(&self.keys, &entry);
        }
        let mut loaded = found.loaded();
        match loaded.unreadable.remove(scan) {
            Some(error) => Err(error.into()),
            None => Ok(loaded.scans.pop()),
        }
    }

    /// The records of scans that are open or marked, and of those that ended under an earlier release. Read first by a
    /// new leader.
    ///
    /// # Errors
    /// [`LedgerError::Control`]; records that cannot be read are in [`Loaded::unreadable`].
    pub async fn open(&self) -> Result<Loaded, LedgerError> {
        let mut found = Found::default();
        for entry in self.control.list(self.keys.scans()).await?.entries {
            found.take(&self.keys, &entry);
        }
        Ok(found.loaded())
    }

    /// The names of the scans that are open, read from keys only.
    ///
    /// # Errors
    /// [`LedgerError::Control`].
    pub async fn open_names(&self) -> Result<BTreeSet<String>, LedgerError> {
        let mut parts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for entry in self.control.list_keys(self.keys.scans()).await?.entries {
            if let Some((scan, part)) = self.keys.parse(&entry.key) {
                parts.entry(scan.to_owned()).or_default().insert(part.name());
            }
        }
        let over = [KeyKind::End, KeyKind::Tombstone].map(KeyKind::name);
        let open = |parts: &BTreeSet<&str>| {
            parts.contains(KeyKind::Header.name()) && !over.iter().any(|part| parts.contains(part))
        };
        Ok(parts.into_iter().filter(|(_, parts)| open(parts)).map(|(scan, _)| scan).collect())
    }

    /// The scans that have ended, page by page.
    pub fn ended(&self) -> EndedPages<'_, S> {
        EndedPages { keys: &self.keys, pages: Pages::new(&*self.control, PageRequest::new(self.keys.all_ended())) }
    }

    /// The records of all scans, without the documents of those that have ended.
    ///
    /// # Errors
    /// [`LedgerError::Control`]; records that cannot be read are in [`Loaded::unreadable`].
    pub async fn load(&self) -> Result<Loaded, LedgerError> {
        // In this order, for the same reason as in `get`.
        let mut found = Found::default();
        for entry in self.control.list(self.keys.scans()).await?.entries {
            found.take(&self.keys, &entry);
        }
        let mut pages = Pages::new(&*self.control, PageRequest::new(self.keys.all_ended()));
        while let Some(page) = pages.next().await? {
            for entry in page.entries {
                found.take(&self.keys, &entry);
                let ended = self.keys.parse_ended(&entry.key).and_then(|scan| found.scans.get_mut(scan));
                if let Some(header) = ended.and_then(|recorded| recorded.header.as_mut()) {
                    header.document = DocumentPlace::Inline(String::new());
                }
            }
        }
        Ok(found.loaded())
    }

    fn guard(&self) -> Guard {
        Guard::Created { key: self.term.key.clone(), revision: self.term.epoch }
    }

    /// A write about a scan that has not ended.
    async fn write(&self, scan: &str, guards: Vec<Guard>, writes: Vec<Write>) -> Result<Written, LedgerError> {
        let over =
            [self.keys.part(scan, KeyKind::End), self.keys.part(scan, KeyKind::Tombstone), self.keys.ended(scan)];
        let alive = over.map(|key| Guard::Absent { key });
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

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
