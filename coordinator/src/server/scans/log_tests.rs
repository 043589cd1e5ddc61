use super::*;
use std::time::Duration;
use trawl_wire::pb;

use crate::server::scans::memory::tests::memory;

fn done(segment: u32) -> Event {
    Event::SegmentDone(pb::SegmentDone { segment, ..pb::SegmentDone::default() })
}

/// A result of so many bytes.
fn large(segment: u32, bytes: usize) -> Event {
    let payload = vec![u8::try_from(segment).unwrap(); bytes];
    let result = Some(pb::Envelope { payload: payload.into(), ..pb::Envelope::default() });
    Event::SegmentDone(pb::SegmentDone { segment, result, ..pb::SegmentDone::default() })
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
        events.push((*event.event).clone());
    }
    events
}

#[tokio::test]
async fn readers_see_everything_in_order_whenever_they_come() {
    let log = Arc::new(ScanLog::new(&memory(usize::MAX)));
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
    let log = ScanLog::new(&memory(usize::MAX));
    log.push(accepted(0));
    let mut cursor = Cursor::default();
    let waited = tokio::time::timeout(Duration::from_millis(20), log.next(&mut cursor)).await;
    assert!(waited.is_err());
    log.abandon(Status::unavailable("no longer the leader"));
    assert_eq!(log.next(&mut cursor).await.unwrap_err().message(), "no longer the leader");
}

#[tokio::test]
async fn a_scan_that_could_not_be_recorded_was_never_accepted() {
    let memory = memory(usize::MAX);
    let (held, log) = (memory.results.clone(), ScanLog::new(&memory));
    log.push(accepted(0));
    let refused = Event::Refused(pb::Refused { failure: None, diagnostics_json: "no".to_owned() });
    log.close(refused.clone());
    let mut cursor = Cursor::default();
    assert_eq!(*log.next(&mut cursor).await.unwrap().unwrap().event, refused, "not its acceptance");
    assert!(log.next(&mut cursor).await.unwrap().is_none());
    assert_eq!(held.bytes(), LogEntry::Held(Arc::new(refused)).weight());
}

#[tokio::test]
async fn a_generation_voids_the_one_before_and_memory_is_counted() {
    let memory = memory(usize::MAX);
    let (held, log) = (memory.results.clone(), ScanLog::new(&memory));
    log.show();
    log.push(accepted(0));
    log.push(done(1));
    let mut cursor = Cursor::default();
    assert_eq!(*log.next(&mut cursor).await.unwrap().unwrap().event, accepted(0));
    assert!(held.bytes() > 0);
    log.restart(1);
    assert_eq!(held.bytes(), 0);
    log.push(accepted(1));
    assert_eq!(*log.next(&mut cursor).await.unwrap().unwrap().event, accepted(1));
    drop(log);
    assert_eq!(held.bytes(), 0);
}

#[tokio::test]
async fn results_beyond_the_memory_are_read_from_the_spool() {
    let memory = memory(20_000);
    let log = ScanLog::new(&memory);
    log.show();
    let events: Vec<Event> = (0..6).map(|segment| large(segment, 10_000)).collect();
    for event in &events {
        log.add_result(event.clone()).await.unwrap();
        log.tell();
    }
    assert!(memory.results.bytes() < 2 * 10_000 + 6 * ENTRY_BYTES + 1, "{}", memory.results.bytes());
    assert_eq!(log.answer_bytes(), 60_000);
    assert!(log.bytes() >= 60_000, "those in the spool count too: {}", log.bytes());
    log.close(summary());
    let expected: Vec<Event> = events.iter().cloned().chain([summary()]).collect();
    assert_eq!(all(&log, Cursor::default()).await, expected);
    let rest = [events[0].clone(), events[2].clone(), events[3].clone(), events[4].clone(), summary()];
    assert_eq!(all(&log, Cursor::with(0, [1, 5])).await, rest);
    let mut segments = Vec::new();
    log.each(|event| {
        if let Event::SegmentDone(done) = event {
            segments.push((done.segment, payload_bytes(done)));
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(segments, (0..6).map(|segment| (segment, 10_000)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_scan_whose_results_fit_nowhere_fails_with_the_reason() {
    let log = ScanLog::new(&memory(1));
    log.add_result(large(1, 600_000)).await.unwrap();
    log.add_result(large(2, 600_000)).await.unwrap();
    let failure = log.add_result(large(3, 600_000)).await.unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Retryable);
    assert!(failure.message.starts_with("the results of scans take 600000 bytes on disk"), "{failure}");
}

#[tokio::test]
async fn what_a_client_reads_is_not_unloaded() {
    let log = ScanLog::new(&memory(usize::MAX));
    log.show();
    log.push(done(1));
    log.close(summary());
    let reading = log.reading();
    log.unload();
    assert!(!log.is_unloaded());
    drop(reading);
    log.unload();
    assert!(log.is_unloaded());
    log.load(vec![done(1), summary()]).await.unwrap();
    assert_eq!(all(&log, Cursor::default()).await, [done(1), summary()]);
}
