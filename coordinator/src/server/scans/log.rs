//! The event log of one scan: an append-only list that any number of clients read at their own pace.
//!
//! A slow reader delays nothing: it lags behind in the list. Nothing is visible before the scan is recorded. A scan
//! that restarts (another generation) drops its earlier events.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tonic::Status;
use trawl_telemetry::metrics::catalogue::coordinator::RESULTS_HELD;
use trawl_wire::pb;
use trawl_wire::pb::scan_event::Event;

/// Total bytes of the events of all scans in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldBytes(Arc<AtomicUsize>);

impl HeldBytes {
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        RESULTS_HELD.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn sub(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
        RESULTS_HELD.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// The event log of one scan.
#[derive(Debug)]
pub(crate) struct ScanLog {
    state: Mutex<State>,
    /// Notified whenever there is a new event.
    changed: watch::Sender<()>,
    held: HeldBytes,
}

#[derive(Debug, Default)]
struct State {
    generation: u32,
    events: Vec<Arc<Event>>,
    bytes: usize,
    /// Whether clients may read it.
    shown: bool,
    /// Whether the events were unloaded from memory.
    unloaded: bool,
    end: Option<End>,
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

impl ScanLog {
    pub fn new(held: HeldBytes) -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()), held }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of this scan's events in memory.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// The summary of a finished scan, unless its events were unloaded.
    pub fn summary(&self) -> Option<pb::Summary> {
        match self.state().events.last().map(|event| &**event) {
            Some(Event::Summary(summary)) => Some(summary.clone()),
            _ => None,
        }
    }

    /// Whether there are no events yet.
    pub fn is_empty(&self) -> bool {
        self.state().events.is_empty()
    }

    /// Adds an event, unless the log is closed.
    pub fn push(&self, event: Event) {
        self.add(event, false);
    }

    /// Adds the last event and closes the log. Of a log that was never shown it is the only one: a scan that could not be
    /// recorded was not accepted.
    pub fn close(&self, event: Event) {
        self.add(event, true);
    }

    fn add(&self, event: Event, last: bool) {
        let mut state = self.state();
        if state.end.is_some() {
            return;
        }
        if last && !state.shown {
            self.held.sub(state.bytes);
            state.bytes = 0;
            state.events.clear();
        }
        let bytes = weight(&event);
        state.bytes += bytes;
        self.held.add(bytes);
        state.events.push(Arc::new(event));
        if last {
            (state.shown, state.end) = (true, Some(End::Logged));
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Makes the log visible to clients.
    pub fn show(&self) {
        self.state().shown = true;
        self.changed.send_replace(());
    }

    /// Frees the memory of a closed log. An answer is read from the result store on demand; of a scan without an answer
    /// the last event is kept.
    pub fn unload(&self) {
        let mut state = self.state();
        if !matches!(state.end, Some(End::Logged)) {
            return;
        }
        self.held.sub(state.bytes);
        state.bytes = 0;
        match state.events.pop() {
            Some(last) if matches!(*last, Event::Refused(_)) => state.events = vec![last],
            _ => (state.events, state.unloaded) = (Vec::new(), true),
        }
    }

    /// Marks as unloaded the log of a scan whose answer is in the result store.
    pub fn put_away(&self) {
        let mut state = self.state();
        (state.end, state.unloaded) = (Some(End::Logged), true);
    }

    /// Whether the events have to be loaded before they can be read.
    pub fn is_unloaded(&self) -> bool {
        self.state().unloaded
    }

    /// Restores unloaded events.
    pub fn load(&self, events: Vec<Event>) {
        let mut state = self.state();
        if state.unloaded {
            let bytes = events.iter().map(weight).sum();
            self.held.add(bytes);
            (state.bytes, state.events) = (bytes, events.into_iter().map(Arc::new).collect());
            (state.unloaded, state.shown, state.end) = (false, true, Some(End::Logged));
        }
    }

    /// Drops all events, because the scan restarts.
    pub fn restart(&self, generation: u32) {
        let mut state = self.state();
        self.held.sub(state.bytes);
        (state.generation, state.bytes) = (generation, 0);
        state.events.clear();
    }

    /// Closes the log with an error for every reader. No effect on a closed log.
    pub fn abandon(&self, why: Status) {
        let mut state = self.state();
        if state.end.is_none() {
            state.end = Some(End::Abandoned(why));
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// The next event for a client; `None` after the last.
    ///
    /// # Errors
    /// Why this coordinator has no further events of the scan.
    pub async fn next(&self, cursor: &mut Cursor) -> Result<Option<Arc<Event>>, Status> {
        let mut changed = self.changed.subscribe();
        loop {
            match self.peek(cursor) {
                Peek::Event(event) => return Ok(Some(event)),
                Peek::End(End::Logged) => return Ok(None),
                Peek::End(End::Abandoned(why)) => return Err(why),
                // The sender lives as long as this log.
                Peek::Nothing => drop(changed.changed().await),
            }
        }
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
        while let Some(event) = state.events.get(cursor.next) {
            cursor.next += 1;
            let had = match &**event {
                Event::SegmentDone(done) => !done.replaces && cursor.have.contains(&done.segment),
                _ => false,
            };
            if !had {
                cursor.begun = true;
                return Peek::Event(Arc::clone(event));
            }
        }
        state.end.clone().map_or(Peek::Nothing, Peek::End)
    }
}

enum Peek {
    Event(Arc<Event>),
    End(End),
    Nothing,
}

impl Drop for ScanLog {
    fn drop(&mut self) {
        let bytes = self.state().bytes;
        self.held.sub(bytes);
    }
}

/// Approximate bytes of an event in memory.
fn weight(event: &Event) -> usize {
    const FIXED: usize = 256;
    FIXED
        + match event {
            Event::Accepted(a) => a.identity_json.len() + a.points_json.len(),
            Event::SegmentDone(d) => d.result.as_ref().map_or(0, |e| e.payload.len()),
            Event::SegmentFailed(f) => f.symbols.iter().map(|s| s.len() + 24).sum(),
            Event::Summary(s) => s.report_json.len(),
            Event::Refused(r) => r.diagnostics_json.len(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use trawl_wire::pb;

    fn done(segment: u32) -> Event {
        Event::SegmentDone(pb::SegmentDone { segment, ..pb::SegmentDone::default() })
    }

    fn accepted(generation: u32) -> Event {
        Event::Accepted(pb::Accepted { generation, ..pb::Accepted::default() })
    }

    fn summary() -> Event {
        Event::Summary(pb::Summary::default())
    }

    async fn all(log: &ScanLog, mut cursor: Cursor) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = log.next(&mut cursor).await.unwrap() {
            events.push((*event).clone());
        }
        events
    }

    #[tokio::test]
    async fn readers_see_everything_in_order_whenever_they_come() {
        let log = Arc::new(ScanLog::new(HeldBytes::default()));
        log.push(accepted(0));
        let early = tokio::spawn({
            let log = Arc::clone(&log);
            async move { all(&log, Cursor::default()).await }
        });
        log.show();
        log.push(done(3));
        tokio::task::yield_now().await;
        log.push(done(1));
        log.close(summary());
        let expected = [accepted(0), done(3), done(1), summary()];
        assert_eq!(early.await.unwrap(), expected);
        assert_eq!(all(&log, Cursor::default()).await, expected);
        assert_eq!(all(&log, Cursor::with(0, [3])).await, [accepted(0), done(1), summary()], "it has 3 already");
        assert_eq!(all(&log, Cursor::with(7, [3])).await, expected, "of another generation it has nothing");
    }

    #[tokio::test]
    async fn nothing_is_shown_before_the_scan_is_recorded() {
        let log = ScanLog::new(HeldBytes::default());
        log.push(accepted(0));
        let mut cursor = Cursor::default();
        let waited = tokio::time::timeout(Duration::from_millis(20), log.next(&mut cursor)).await;
        assert!(waited.is_err());
        log.abandon(Status::unavailable("no longer the leader"));
        assert_eq!(log.next(&mut cursor).await.unwrap_err().message(), "no longer the leader");
    }

    #[tokio::test]
    async fn a_scan_that_could_not_be_recorded_was_never_accepted() {
        let held = HeldBytes::default();
        let log = ScanLog::new(held.clone());
        log.push(accepted(0));
        let refused = Event::Refused(pb::Refused { failure: None, diagnostics_json: "no".to_owned() });
        log.close(refused.clone());
        let mut cursor = Cursor::default();
        assert_eq!(*log.next(&mut cursor).await.unwrap().unwrap(), refused, "not its acceptance");
        assert_eq!(log.next(&mut cursor).await.unwrap(), None);
        assert_eq!(held.bytes(), weight(&refused));
    }

    #[tokio::test]
    async fn a_generation_voids_the_one_before_and_memory_is_counted() {
        let held = HeldBytes::default();
        let log = ScanLog::new(held.clone());
        log.show();
        log.push(accepted(0));
        log.push(done(1));
        let mut cursor = Cursor::default();
        assert_eq!(*log.next(&mut cursor).await.unwrap().unwrap(), accepted(0));
        assert!(held.bytes() > 0);
        log.restart(1);
        assert_eq!(held.bytes(), 0);
        log.push(accepted(1));
        assert_eq!(*log.next(&mut cursor).await.unwrap().unwrap(), accepted(1));
        drop(log);
        assert_eq!(held.bytes(), 0);
    }
}
