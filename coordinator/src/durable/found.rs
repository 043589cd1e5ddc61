//! Reads records: keys and values of the control store become one [`Recorded`] per scan.

use std::collections::BTreeMap;

use trawl_cluster_store::{ControlStore, Entry, Pages};

use super::recorded::{LedgerError, Loaded, Recorded};
use super::records::{Closed, End, Header, KeyKind, Keys, Progress, Record as _, RecordError, Tombstone};

/// Name in [`Recorded::created`] of the record of a scan that has ended.
pub(super) const CLOSED: &str = "closed";

/// The scans that have ended, page by page, as of one revision.
#[derive(Debug)]
pub struct EndedPages<'l, S> {
    pub(super) keys: &'l Keys,
    pub(super) pages: Pages<'l, S>,
}

impl<S: ControlStore> EndedPages<'_, S> {
    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// [`LedgerError::Control`]; if the revision was compacted, start again from the first page.
    pub async fn next(&mut self) -> Result<Option<Loaded>, LedgerError> {
        let Some(page) = self.pages.next().await? else { return Ok(None) };
        let mut found = Found::default();
        page.entries.iter().for_each(|entry| found.take(self.keys, entry));
        Ok(Some(found.loaded()))
    }
}

/// Records read so far, by scan.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub scans: BTreeMap<String, Recorded>,
    unreadable: BTreeMap<String, RecordError>,
}

impl Found {
    pub fn take(&mut self, keys: &Keys, entry: &Entry) {
        let (scan, part) = match (keys.parse(&entry.key), keys.parse_ended(&entry.key)) {
            (Some((scan, part)), _) => (scan, Some(part)),
            (None, Some(scan)) => (scan, None),
            (None, None) => return,
        };
        let recorded = self.scans.entry(scan.to_owned()).or_default();
        scan.clone_into(&mut recorded.scan);
        let taken = match part {
            Some(part) => take(recorded, part, entry),
            None => take_closed(recorded, entry),
        };
        if let Err(error) = taken {
            tracing::warn!(scan, %error, "a scan's record cannot be read; the scan is left alone");
            self.unreadable.insert(scan.to_owned(), error);
        }
    }

    pub fn loaded(mut self) -> Loaded {
        self.scans.retain(|scan, _| !self.unreadable.contains_key(scan));
        Loaded { scans: self.scans.into_values().collect(), unreadable: self.unreadable }
    }
}

/// Decodes one part into the record of its scan.
fn take(recorded: &mut Recorded, part: KeyKind, entry: &Entry) -> Result<(), RecordError> {
    let scan = recorded.scan.clone();
    match part {
        KeyKind::Header => {
            let header = Header::from_bytes(&scan, &entry.value)?;
            recorded.header = Some(of_scan(header, &scan, Header::WHAT)?);
        }
        // A hint: an unreadable one loses nothing.
        KeyKind::Progress => recorded.progress = Progress::from_bytes(&scan, &entry.value).ok(),
        KeyKind::End => recorded.end = Some(End::from_bytes(&scan, &entry.value)?),
        KeyKind::Tombstone => recorded.tombstone = Some(Tombstone::from_bytes(&scan, &entry.value)?),
    }
    recorded.created.insert(part.name(), entry.created);
    Ok(())
}

/// Reads the one record of a scan that has ended.
fn take_closed(recorded: &mut Recorded, entry: &Entry) -> Result<(), RecordError> {
    let scan = recorded.scan.clone();
    let closed = Closed::from_bytes(&scan, &entry.value)?;
    recorded.header = Some(of_scan(closed.header, &scan, Closed::WHAT)?);
    recorded.end = Some(closed.end);
    recorded.created.insert(CLOSED, entry.created);
    Ok(())
}

/// The header, if it belongs to the scan of its key.
fn of_scan(header: Header, scan: &str, what: &'static str) -> Result<Header, RecordError> {
    if header.scan == scan {
        return Ok(header);
    }
    let (scan, why) = (scan.to_owned(), format!("it is that of scan '{}'", header.scan));
    Err(RecordError::Malformed { what, scan, why })
}
