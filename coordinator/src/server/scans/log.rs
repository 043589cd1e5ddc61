//! The event log of one scan: an append-only list that any number of clients read at their own pace.
//!
//! A slow reader delays nothing: it lags behind in the list. Results that do not fit into memory are in the spool.
//! Nothing is visible before the scan is recorded. A scan that restarts (another generation) drops its earlier events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::{Code, Status};
use trawl_wire::error::status_of;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, pb};

use super::failure;
use super::memory::{HeldShare, ScanMemory};
use super::spool::{Spool, SpoolError, SpoolFile, SpooledResult};

/// Smallest payload that is written to the spool; smaller ones stay in memory.
const SPOOLED_BYTES_MIN: usize = 4096;

/// The event log of one scan.
#[derive(Debug)]
pub(crate) struct ScanLog {
    state: Mutex<State>,
    /// Notified whenever there is a new event.
    changed: watch::Sender<()>,
    spool: Spool,
    /// Held by each reader.
    readers: Arc<()>,
}

#[derive(Debug)]
struct State {
    generation: u32,
    events: Vec<LogEntry>,
    /// Bytes of the events in memory.
    held: HeldShare,
    /// Bytes of all results, in memory and in the spool.
    answer_bytes: usize,
    /// Where results go that do not fit into memory.
    file: Option<Arc<SpoolFile>>,
    /// Whether clients may read it.
    shown: bool,
    /// Whether the events were unloaded from memory.
    unloaded: bool,
    end: Option<End>,
}

impl State {
    fn add(&mut self, entry: LogEntry) {
        self.held.add(entry.weight());
        self.answer_bytes += entry.answer_bytes();
        self.events.push(entry);
    }

    fn clear(&mut self) {
        self.held.clear();
        self.events.clear();
        (self.answer_bytes, self.file) = (0, None);
    }
}

/// One event.
#[derive(Debug, Clone)]
enum LogEntry {
    Held(Arc<Event>),
    Spooled(Arc<SpooledResult>),
}

/// Bytes of an entry beside its content.
const ENTRY_BYTES: usize = 256;

impl LogEntry {
    /// Approximate bytes in memory.
    fn weight(&self) -> usize {
        let content = match self {
            Self::Spooled(_) => 0,
            Self::Held(event) => match &**event {
                Event::Accepted(a) => a.identity_json.len() + a.points_json.len(),
                Event::SegmentDone(d) => payload_bytes(d),
                Event::SegmentFailed(f) => f.symbols.iter().map(|s| s.len() + 24).sum(),
                Event::Summary(s) => s.report_json.len(),
                Event::Refused(r) => r.diagnostics_json.len(),
            },
        };
        ENTRY_BYTES + content
    }

    /// Bytes of its result.
    fn answer_bytes(&self) -> usize {
        match self {
            Self::Spooled(spooled) => spooled.bytes,
            Self::Held(event) => match &**event {
                Event::SegmentDone(done) => payload_bytes(done),
                _ => 0,
            },
        }
    }

    fn is(&self, test: impl Fn(&Event) -> bool) -> bool {
        matches!(self, Self::Held(event) if test(event))
    }

    /// The segment, if it is a result that replaces none.
    fn segment(&self) -> Option<u32> {
        let done = match self {
            Self::Spooled(spooled) => &spooled.done,
            Self::Held(event) => match &**event {
                Event::SegmentDone(done) => done,
                _ => return None,
            },
        };
        (!done.replaces).then_some(done.segment)
    }
}

pub(crate) fn payload_bytes(done: &pb::SegmentDone) -> usize {
    done.result.as_ref().map_or(0, |envelope| envelope.payload.len())
}

/// Why the log has no further events.
#[derive(Debug, Clone)]
enum End {
    /// The scan has ended; its last event is in the log.
    Logged,
    /// This coordinator has no further events of it.
    Abandoned(Status),
}

/// The reading position of one client.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    generation: u32,
    next: usize,
    /// Segments of this generation that the client already has.
    have: BTreeSet<u32>,
    begun: bool,
}

impl Cursor {
    /// The cursor of a client that reconnects with segments of `generation`.
    pub fn with(generation: u32, have: impl IntoIterator<Item = u32>) -> Self {
        Self { generation, have: have.into_iter().collect(), ..Self::default() }
    }
}

/// An event for one client.
#[derive(Debug)]
pub(crate) struct ReadEvent {
    pub event: Arc<Event>,
    /// The share of what is read back for clients, held until it is sent; `None` if others read the same memory.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl ScanLog {
    pub fn new(memory: &ScanMemory) -> Self {
        let state = State {
            generation: 0,
            events: Vec::new(),
            held: memory.results.share(),
            answer_bytes: 0,
            file: None,
            shown: false,
            unloaded: false,
            end: None,
        };
        let (changed, spool) = (watch::Sender::new(()), memory.spool.clone());
        Self { state: Mutex::new(state), changed, spool, readers: Arc::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of this scan's events, in memory and in the spool.
    pub fn bytes(&self) -> usize {
        let state = self.state();
        state.held.bytes().saturating_add(state.file.as_ref().map_or(0, |file| file.bytes()))
    }

    /// Bytes of its results, wherever they are.
    pub fn answer_bytes(&self) -> usize {
        self.state().answer_bytes
    }

    /// The summary of a finished scan, unless its events were unloaded.
    pub fn summary(&self) -> Option<pb::Summary> {
        match self.state().events.last() {
            Some(LogEntry::Held(event)) => match &**event {
                Event::Summary(summary) => Some(summary.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether there are no events yet.
    pub fn is_empty(&self) -> bool {
        self.state().events.is_empty()
    }

    /// Adds an event, unless the log is closed.
    pub fn push(&self, event: Event) {
        self.add(LogEntry::Held(Arc::new(event)), false);
        self.tell();
    }

    /// Adds an event; a large result goes to the spool while memory is full. [`Self::tell`] has to follow: it wakes the readers.
    ///
    /// # Errors
    /// The spool cannot take it.
    pub async fn add_result(&self, event: Event) -> Result<(), Failure> {
        let entry = self.entry(event).await?;
        self.add(entry, false);
        Ok(())
    }

    /// Tells readers that there may be new events.
    pub fn tell(&self) {
        self.changed.send_replace(());
    }

    /// Adds the last event and closes the log. Of a log that was never shown it is the only one: a scan that could not be
    /// recorded was not accepted.
    pub fn close(&self, event: Event) {
        self.add(LogEntry::Held(Arc::new(event)), true);
        self.tell();
    }

    fn add(&self, entry: LogEntry, last: bool) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if last && !state.shown {
            state.clear();
        }
        state.add(entry);
        if last {
            (state.shown, state.end) = (true, Some(End::Logged));
        }
    }

    /// An event as it is kept: in memory, or in the spool.
    async fn entry(&self, event: Event) -> Result<LogEntry, Failure> {
        let done = match event {
            Event::SegmentDone(done) if payload_bytes(&done) >= SPOOLED_BYTES_MIN => done,
            event => return Ok(LogEntry::Held(Arc::new(event))),
        };
        let file = {
            let mut state = self.state();
            if !state.held.is_full() {
                return Ok(LogEntry::Held(Arc::new(Event::SegmentDone(done))));
            }
            match &state.file {
                Some(file) => Arc::clone(file),
                None => Arc::clone(state.file.insert(Arc::new(self.spool.file().map_err(|e| of_spool(&e))?))),
            }
        };
        let kept = tokio::task::spawn_blocking(move || file.keep(done)).await;
        let kept = kept.map_err(|_| failure(ErrorKind::Permanent, "internal error while a result was kept"))?;
        Ok(LogEntry::Spooled(Arc::new(kept.map_err(|error| of_spool(&error))?)))
    }

    /// Makes the log visible to clients.
    pub fn show(&self) {
        self.state().shown = true;
        self.tell();
    }

    /// Keeps the events loaded while it is held.
    pub fn reading(&self) -> Arc<()> {
        Arc::clone(&self.readers)
    }

    /// Frees the memory of a closed log that nobody reads. An answer is read from the result store on demand; of a scan
    /// without an answer the last event is kept.
    pub fn unload(&self) {
        let mut state = self.state();
        if !matches!(state.end, Some(End::Logged)) || Arc::strong_count(&self.readers) > 1 {
            return;
        }
        let last = state.events.pop().filter(|last| last.is(|event| matches!(event, Event::Refused(_))));
        state.clear();
        match last {
            Some(last) => state.add(last),
            None => state.unloaded = true,
        }
    }

    /// Marks as unloaded the log of a scan whose answer is in the result store.
    pub fn put_away(&self) {
        let mut state = self.state();
        (state.end, state.unloaded) = (Some(End::Logged), true);
    }

    /// Begins an unloaded log anew: its scan is computed again. Nobody sees it before [`Self::show`].
    pub fn reopen(&self) {
        let mut state = self.state();
        state.clear();
        (state.shown, state.unloaded, state.end) = (false, false, None);
    }

    /// Whether the events have to be loaded before they can be read.
    pub fn is_unloaded(&self) -> bool {
        self.state().unloaded
    }

    /// Restores unloaded events.
    ///
    /// # Errors
    /// The spool cannot take them.
    pub async fn load(&self, events: Vec<Event>) -> Result<(), Failure> {
        // Only one caller loads at a time; an earlier one may have failed on the way.
        self.state().clear();
        for event in events {
            let entry = self.entry(event).await?;
            let mut state = self.state();
            if !state.unloaded {
                return Ok(());
            }
            state.add(entry);
        }
        let mut state = self.state();
        (state.unloaded, state.shown, state.end) = (false, true, Some(End::Logged));
        Ok(())
    }

    /// Drops all events, because the scan restarts.
    pub fn restart(&self, generation: u32) {
        let mut state = self.state();
        state.clear();
        state.generation = generation;
    }

    /// Closes the log with an error for every reader. No effect on a closed log.
    pub fn abandon(&self, why: Status) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(End::Abandoned(why));
        }
        drop(state);
        self.tell();
    }

    /// Passes each event of this generation to `take`, in the order of arrival; blocks on the disk.
    ///
    /// # Errors
    /// The spool's, and those of `take`.
    pub fn each(&self, mut take: impl FnMut(&Event) -> Result<(), Failure>) -> Result<(), Failure> {
        let events = self.state().events.clone();
        for entry in events {
            match entry {
                LogEntry::Spooled(spooled) => {
                    take(&Event::SegmentDone(spooled.read().map_err(|error| of_spool(&error))?))?;
                }
                LogEntry::Held(event) => take(&event)?,
            }
        }
        Ok(())
    }

    /// The next event for a client; `None` after the last.
    ///
    /// # Errors
    /// Why this coordinator has no further events of the scan.
    pub async fn next(&self, cursor: &mut Cursor) -> Result<Option<ReadEvent>, Status> {
        let mut changed = self.changed.subscribe();
        loop {
            match self.peek(cursor) {
                Peek::Entry(LogEntry::Held(event)) => return Ok(Some(ReadEvent { event, permit: None })),
                Peek::Entry(LogEntry::Spooled(spooled)) => {
                    let permit = spooled.room().await;
                    let read = tokio::task::spawn_blocking(move || spooled.read()).await;
                    let done = match read {
                        Ok(Ok(done)) => done,
                        Ok(Err(error)) => return Err(of_spool(&error).to_status()),
                        Err(_) => return Err(status_of(Code::Internal, ErrorKind::Permanent, "internal error")),
                    };
                    return Ok(Some(ReadEvent { event: Arc::new(Event::SegmentDone(done)), permit }));
                }
                Peek::End(End::Logged) => return Ok(None),
                Peek::End(End::Abandoned(why)) => return Err(why),
                // The sender lives as long as this log.
                Peek::Nothing => drop(changed.changed().await),
            }
        }
    }

    /// The next event, if it is a result in memory of at most `room` bytes that can be read at once.
    pub fn next_small(&self, cursor: &mut Cursor, room: usize) -> Option<Arc<Event>> {
        let state = self.state();
        if cursor.generation != state.generation || !state.shown {
            return None;
        }
        let wanted = |entry: &LogEntry| entry.segment().is_none_or(|segment| !cursor.have.contains(&segment));
        let at = cursor.next + state.events.get(cursor.next..)?.iter().position(wanted)?;
        let LogEntry::Held(event) = &state.events[at] else { return None };
        let small = matches!(&**event, Event::SegmentDone(done) if payload_bytes(done) <= room);
        small.then(|| {
            (cursor.next, cursor.begun) = (at + 1, true);
            Arc::clone(event)
        })
    }

    fn peek(&self, cursor: &mut Cursor) -> Peek {
        let state = self.state();
        if let (Some(End::Abandoned(why)), false) = (&state.end, state.shown) {
            return Peek::End(End::Abandoned(why.clone()));
        }
        if !state.shown {
            return Peek::Nothing;
        }
        if cursor.generation != state.generation {
            *cursor = Cursor { generation: state.generation, ..Cursor::default() };
        }
        while let Some(entry) = state.events.get(cursor.next) {
            cursor.next += 1;
            if entry.segment().is_none_or(|segment| !cursor.have.contains(&segment)) {
                cursor.begun = true;
                return Peek::Entry(entry.clone());
            }
        }
        state.end.clone().map_or(Peek::Nothing, Peek::End)
    }
}

enum Peek {
    Entry(LogEntry),
    End(End),
    Nothing,
}

/// The failure of a scan whose results cannot be kept.
fn of_spool(error: &SpoolError) -> Failure {
    tracing::error!(%error, "a result that does not fit into memory cannot be kept");
    failure(ErrorKind::Retryable, error.to_string())
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
