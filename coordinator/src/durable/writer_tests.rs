use std::sync::atomic::{AtomicUsize, Ordering};

use trawl_testing::MemoryStore;

use super::super::testing::{Fault, Faulty, header, next_term, stored};
use super::*;

/// Longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

fn limits() -> WriterLimits {
    WriterLimits {
        commit_interval: Duration::from_millis(5),
        back_off: Duration::from_millis(1),
        progress_delay: Duration::ZERO,
        progress_interval: Duration::from_millis(1),
        put_timeout: Duration::from_millis(200),
        ..WriterLimits::default()
    }
}

struct Bench {
    control: Arc<MemoryStore>,
    ledger: Ledger<MemoryStore>,
    faulty: Arc<Faulty>,
    store: ResultStore,
}

async fn bench() -> Bench {
    let control = Arc::new(MemoryStore::default());
    let ledger = Ledger::new(Arc::clone(&control), "c", next_term(&control).await);
    ledger.accept(&header("a-1", 100)).await.unwrap();
    let faulty = Faulty::new();
    let store = ResultStore::over(faulty.clone(), "faulty");
    Bench { control, ledger, faulty, store }
}

impl Bench {
    fn writer(&self, limits: WriterLimits) -> Writer {
        Writer::start(self.store.clone(), self.ledger.clone(), "a-1", 0, (0, BTreeSet::new()), limits)
    }

    async fn segments(&self, stage: u32) -> Vec<u32> {
        let contents = self.store.contents("a-1", 0).await.unwrap();
        contents.stages.get(&stage).map(|s| s.segments.keys().copied().collect()).unwrap_or_default()
    }
}

async fn patient<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("done in time")
}

#[tokio::test]
async fn segments_are_stored_in_few_groups_and_flush_says_when() {
    let bench = bench().await;
    let writer = bench.writer(WriterLimits { commit_interval: PATIENCE * 2, ..limits() });
    for segment in 0..50 {
        writer.store(0, stored(segment, 100), None).await.unwrap();
    }
    assert_eq!(bench.faulty.puts(), 0, "they wait for each other");
    patient(writer.flush()).await.unwrap();
    assert_eq!(bench.segments(0).await, (0..50).collect::<Vec<_>>());
    assert_eq!(bench.faulty.puts(), 1);
    patient(writer.flush()).await.unwrap();
    assert_eq!(bench.faulty.puts(), 1, "nothing more to store");
}

/// An etcd that was restored from a backup gives the epochs after it again.
#[tokio::test]
async fn names_of_an_earlier_leader_with_the_same_epoch_are_left_to_it() {
    let bench = bench().await;
    for (term, segment) in [(bench.ledger.clone(), 3), (bench.ledger.clone(), 4)] {
        // Another process: it counts its groups from the beginning.
        let ledger = Ledger::new(Arc::clone(&bench.control), "c", term.term().clone());
        let writer = Writer::start(bench.store.clone(), ledger, "a-1", 0, (0, BTreeSet::new()), limits());
        writer.store(0, stored(segment, 100), None).await.unwrap();
        patient(writer.flush()).await.unwrap();
    }
    assert_eq!(bench.segments(0).await, [3, 4]);
}

#[tokio::test]
async fn a_group_is_closed_by_time_by_bytes_and_by_the_stage() {
    let bench = bench().await;
    let writer = bench.writer(limits());
    writer.store(0, stored(7, 10), None).await.unwrap();
    patient(async {
        while bench.segments(0).await.is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let bytes = WriterLimits { commit_bytes_max: 4096, commit_interval: PATIENCE * 2, ..limits() };
    let writer = bench.writer(bytes);
    for segment in 0..10 {
        writer.store(1, stored(segment, 1000), None).await.unwrap();
    }
    writer.store(2, stored(0, 10), None).await.unwrap();
    patient(writer.flush()).await.unwrap();
    assert_eq!(bench.segments(1).await, (0..10).collect::<Vec<_>>());
    assert_eq!(bench.segments(2).await, [0]);
    // 4 of about 1,130 bytes make a group: 4, 4, 2 for the stage's end, 1.
    assert_eq!(bench.faulty.puts(), 1 + 4);
}

#[tokio::test]
async fn puts_that_fail_tear_or_lose_their_answer_are_tried_again() {
    let bench = bench().await;
    let writer = bench.writer(limits());
    for fault in [
        Fault::Fails(std::io::ErrorKind::TimedOut),
        Fault::AnswerLost,
        Fault::Torn(0),
        Fault::Torn(40),
        Fault::AnswerLost,
    ] {
        bench.faulty.fail([fault]);
        let segment = u32::try_from(bench.faulty.puts()).unwrap();
        writer.store(0, stored(segment, 100), None).await.unwrap();
        patient(writer.flush()).await.unwrap();
        assert!(bench.segments(0).await.contains(&segment), "{fault:?}");
        assert!(bench.store.contents("a-1", 0).await.unwrap().damaged.is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn a_full_store_fails_the_scan_with_its_reason_after_a_bounded_number_of_tries() {
    let bench = bench().await;
    let writer = bench.writer(limits());
    bench.faulty.fail(std::iter::repeat_n(Fault::Fails(std::io::ErrorKind::StorageFull), 1000));
    writer.store(0, stored(0, 10), None).await.unwrap();
    let failure = patient(writer.failure()).await;
    assert_eq!(failure.kind, ErrorKind::Retryable);
    assert!(failure.message.contains("is full"), "{failure}");
    assert_eq!(bench.faulty.puts(), PUT_TRIES_MAX as usize);
    assert_eq!(patient(writer.flush()).await.unwrap_err(), failure);
    assert_eq!(patient(writer.store(0, stored(1, 10), None)).await.unwrap_err(), failure);
}

#[tokio::test]
async fn space_that_is_freed_in_time_saves_the_scan() {
    let bench = bench().await;
    let writer = bench.writer(limits());
    bench.faulty.fail(std::iter::repeat_n(Fault::Fails(std::io::ErrorKind::StorageFull), PUT_TRIES_MAX as usize - 1));
    writer.store(0, stored(0, 10), None).await.unwrap();
    patient(writer.flush()).await.unwrap();
    assert_eq!(bench.segments(0).await, [0]);
}

#[tokio::test]
async fn a_slow_store_slows_down_whoever_hands_in_and_never_holds_more_than_its_bound() {
    let bench = bench().await;
    let (segment_bytes, buffer) = (10 * 1024, 64 * 1024);
    let slow = WriterLimits { buffer_bytes_max: buffer, commit_bytes_max: 16 * 1024, ..limits() };
    bench.faulty.slow_down(Duration::from_millis(20));
    let writer = Arc::new(bench.writer(slow));
    let handed_in = Arc::new(AtomicUsize::new(0));
    let (feeder, count) = (Arc::clone(&writer), Arc::clone(&handed_in));
    let feeding = tokio::spawn(async move {
        for segment in 0..60 {
            feeder.store(0, stored(segment, segment_bytes), None).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut most = 0;
    while !feeding.is_finished() {
        // Read before what is stored, so that the difference is never too large.
        let waiting = handed_in.load(Ordering::SeqCst).saturating_sub(bench.segments(0).await.len());
        most = most.max(waiting);
        sleep(Duration::from_millis(1)).await;
    }
    feeding.await.unwrap();
    assert!(most <= buffer / segment_bytes, "{most} segments waited");
    assert!(most > 1, "the store was not slow");
    patient(writer.flush()).await.unwrap();
    assert_eq!(bench.segments(0).await.len(), 60);
}

#[tokio::test]
async fn a_segment_larger_than_the_whole_bound_is_stored_all_the_same() {
    let bench = bench().await;
    let writer = bench.writer(WriterLimits { buffer_bytes_max: 4096, ..limits() });
    for segment in 0..3 {
        patient(writer.store(0, stored(segment, 100_000), None)).await.unwrap();
    }
    patient(writer.flush()).await.unwrap();
    assert_eq!(bench.segments(0).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_store_that_hangs_is_given_up() {
    let bench = bench().await;
    bench.faulty.slow_down(PATIENCE * 2);
    let hung = WriterLimits { put_timeout: Duration::from_millis(10), put_tries_max: 2, ..limits() };
    let writer = bench.writer(hung);
    writer.store(0, stored(0, 10), None).await.unwrap();
    let failure = patient(writer.flush()).await.unwrap_err();
    assert!(failure.message.contains("no answer within"), "{failure}");
}

#[tokio::test]
async fn progress_is_noted_and_a_replaced_leader_stops() {
    let bench = bench().await;
    let writer = bench.writer(limits());
    writer.store(0, stored(3, 10), None).await.unwrap();
    patient(writer.flush()).await.unwrap();
    patient(async {
        let noted = async || bench.ledger.get("a-1").await.unwrap().unwrap().progress;
        while noted().await.map(|p| p.segments()) != Some(vec![3]) {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    next_term(&bench.control).await;
    writer.store(0, stored(4, 10), None).await.unwrap();
    let failure = patient(writer.failure()).await;
    assert!(failure.message.contains("another coordinator leads"), "{failure}");
    assert!(patient(writer.store(0, stored(5, 10), None)).await.is_err());
}

#[tokio::test]
async fn progress_is_written_at_most_once_an_interval() {
    let bench = bench().await;
    let before = bench.control.list("c/").await.unwrap().revision;
    let writer = bench.writer(WriterLimits { progress_interval: PATIENCE * 2, ..limits() });
    for segment in 0..20 {
        writer.store(0, stored(segment, 10), None).await.unwrap();
        patient(writer.flush()).await.unwrap();
    }
    assert_eq!(bench.faulty.puts(), 20);
    patient(async {
        while bench.control.list("c/").await.unwrap().revision == before {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(bench.control.list("c/").await.unwrap().revision, before + 1);
}

fn ends() -> AnswerEnds {
    AnswerEnds { accepted: b"the beginning".to_vec(), summary: b"the end".to_vec() }
}

#[tokio::test]
async fn a_small_scan_is_one_object_with_the_ends_of_its_answer() {
    let bench = bench().await;
    let before = bench.control.list("c/").await.unwrap().revision;
    let writer = bench.writer(WriterLimits { commit_interval: PATIENCE * 2, progress_delay: PATIENCE * 2, ..limits() });
    for segment in 0..20 {
        writer.store(0, stored(segment, 100), None).await.unwrap();
    }
    patient(writer.finish(ends())).await.unwrap();
    assert_eq!(bench.faulty.puts(), 1);
    assert_eq!(bench.segments(0).await, (0..20).collect::<Vec<_>>());
    assert_eq!(bench.store.contents("a-1", 0).await.unwrap().ends, Some(ends()));
    assert_eq!(bench.store.ends("a-1", 0).await.unwrap(), Some(ends()));
    assert_eq!(bench.control.list("c/").await.unwrap().revision, before, "it ends before there is progress to note");
}

#[tokio::test]
async fn the_ends_of_a_large_answer_are_read_without_it() {
    let bench = bench().await;
    let writer = bench.writer(WriterLimits { commit_interval: PATIENCE * 2, ..limits() });
    writer.store(0, stored(1, 2 * GROUP_WITH_ENDS_BYTES_MAX), None).await.unwrap();
    assert_eq!(bench.store.ends("a-1", 0).await.unwrap(), None);
    patient(writer.finish(ends())).await.unwrap();
    assert_eq!(bench.faulty.puts(), 2);
    assert_eq!((bench.segments(0).await, bench.store.ends("a-1", 0).await.unwrap()), (vec![1], Some(ends())));
}

#[tokio::test]
async fn the_last_group_of_a_scan_is_tried_until_the_store_is_there_again() {
    let bench = bench().await;
    let kind = std::io::ErrorKind::ConnectionReset;
    let writer = bench.writer(limits());
    // More often than a group before it.
    bench.faulty.fail(std::iter::repeat_n(Fault::Fails(kind), 20).chain([Fault::AnswerLost, Fault::Torn(30)]));
    patient(writer.finish(ends())).await.unwrap();
    assert_eq!(bench.store.ends("a-1", 0).await.unwrap(), Some(ends()));
    bench.faulty.fail(std::iter::repeat_n(Fault::Fails(kind), PUT_TRIES_MAX as usize));
    writer.store(0, stored(1, 10), None).await.unwrap();
    assert!(patient(writer.flush()).await.is_err(), "and that no more often");
}

#[tokio::test]
async fn a_scan_that_is_driven_again_in_one_term_meets_none_of_its_own_objects() {
    let bench = bench().await;
    for (segment, bytes) in [(0, 10), (1, 20), (0, 30)] {
        let writer = bench.writer(limits());
        writer.store(0, stored(segment, bytes), None).await.unwrap();
        patient(writer.flush()).await.unwrap();
    }
    let contents = bench.store.contents("a-1", 0).await.unwrap();
    let segments = &contents.stages[&0].segments;
    assert_eq!(segments.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(segments[&0], stored(0, 30).outcome, "what was written last counts");
}

#[tokio::test]
async fn whoever_waits_learns_why_storing_failed_also_when_the_reason_comes_after_the_end_of_the_task() {
    let (asks, asked) = mpsc::channel(1);
    let (fail, failed) = watch::channel(None);
    let tasks = [(); 2].map(|()| tokio::spawn(std::future::pending::<()>()).abort_handle());
    let writer = Writer { asks, budget: Arc::new(Semaphore::new(1)), permits_max: 1, failed, tasks };
    // The task has let go of what was asked, and has not yet said why.
    drop(asked);
    let later = async {
        tokio::task::yield_now().await;
        fail.send_replace(Some(Failure::new(ErrorKind::Retryable, "the store refuses")));
    };
    let (flushed, stored, ()) =
        patient(async { tokio::join!(writer.flush(), writer.store(0, stored(1, 10), None), later) }).await;
    for failure in [flushed.unwrap_err(), stored.unwrap_err()] {
        assert_eq!(failure.message, "the store refuses");
    }
}
