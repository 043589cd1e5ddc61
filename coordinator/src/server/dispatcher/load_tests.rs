//! Scans of many shards through the dispatcher's task, with the results that workers send: that nothing is lost, and how many events it
//! takes in a second.
//!
//! `benches/scheduler.sh` runs it in its full size; otherwise it is small, and a test like others.

use tokio::sync::oneshot;
use trawl_kernels::stages::Stages;
use trawl_kernels::{BACKEND_CPU, NoCancel};
use trawl_market::{Store, SynthOptions, Timeframe, synthesise};
use trawl_plan::ScanDocument;
use trawl_security::{Expect, Role};
use trawl_terms::Priority;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::{SegmentResult, StepInputV1, WorkerRecord, envelope, pb};
use trawl_worker::{References, ScanStep, StepKind, execution_class};

use super::*;
use crate::prepare::{PreparedScan, prepare};
use crate::scan_steps::Passes;
use crate::scheduler::Outcome;
use crate::server::attempt::{Ending, PieceReply, Ticket};

/// Variable with the sizes of the benchmark: symbols, scans, and numbers of workers, such as `64000 20 10,100,1000`.
const SIZES: &str = "TRAWL_BENCH_DISPATCHER";

/// What was measured with one number of workers.
struct Measured {
    workers: usize,
    segments: usize,
    events: u64,
    took: Duration,
    /// Of the first submission, which plans the snapshot, and of all others on average.
    first_submission: Duration,
    submission: Duration,
}

fn record(number: usize) -> WorkerRecord {
    WorkerRecord {
        id: format!("w{number}"),
        // Nobody listens: what workers send is made here.
        address: "127.0.0.1:1".to_owned(),
        boot: "b".to_owned(),
        protocol_version: PROTOCOL_VERSION,
        protocol_oldest: PROTOCOL_VERSION,
        result_schema: format!("{:016x}", envelope::schema_fingerprint()),
        result_schemas_earlier: Vec::new(),
        class: execution_class(),
        threads: 1,
        cache_bytes: 0,
        device: None,
        draining: false,
    }
}

/// A scan of a market of so many symbols.
fn market(data: &std::path::Path, symbols: u32) -> Arc<PreparedScan> {
    let store = Store::new(data.to_owned());
    let (name, timeframe) = ("market".to_owned(), Timeframe::DAY);
    synthesise(&store, &SynthOptions { name, symbols, bars: 2, seed: 1, timeframe }).unwrap();
    let dataset = Some("market".to_owned());
    let document = ScanDocument { dataset, condition: "close > open".to_owned(), ..ScanDocument::default() };
    Arc::new(prepare(&store, &document, None).unwrap().on(BACKEND_CPU))
}

fn submission(prepared: &Arc<PreparedScan>) -> (Submission, mpsc::UnboundedReceiver<News>) {
    let (news, inbox) = mpsc::unbounded_channel();
    let submission = Submission {
        scan_name: "s".to_owned(),
        generation: 0,
        prepared: Arc::clone(prepared),
        segments: Arc::new(prepared.segments.iter().copied().collect()),
        number: 0,
        passes: Arc::new(Passes::new(prepared).unwrap()),
        shards: crate::planner::ShardSpec::Automatic,
        priority: Priority::Normal,
        caller: 1,
        waits: false,
        needs: prepared.class_needs(None),
        class_patience: Duration::MAX,
        deadline: None,
        trace: None,
        profile: false,
        news,
    };
    (submission, inbox)
}

/// The results of all segments, as workers compute them.
fn results(prepared: &PreparedScan) -> BTreeMap<u32, (SegmentResult, pb::Envelope)> {
    let (source, step) = (prepared.source(), ScanStep { stage: 0, kind: StepKind::Values });
    let (input, references) = (StepInputV1::default(), References::new());
    let one = |segment: &u32| {
        let result = source.execute(*segment, step, &input, &references, &NoCancel, &mut Stages::default()).unwrap();
        let sealed = envelope::seal_result(&result).unwrap();
        (*segment, (result, sealed))
    };
    prepared.segments.iter().map(one).collect()
}

impl State {
    /// The messages of all running attempts to their ends.
    fn replies(
        &self,
        started: &mut BTreeMap<AttemptId, Vec<u32>>,
        (prepared, results): (&PreparedScan, &BTreeMap<u32, (SegmentResult, pb::Envelope)>),
    ) -> Vec<AttemptEvent> {
        let mut events = Vec::new();
        for (attempt, running) in self.attempts.all() {
            let Some(segments) = started.remove(&attempt) else { continue };
            let host = self.registered[&self.workers[&running.worker]].host;
            let ticket = Ticket { attempt, scan: running.scan, host };
            let reply = |segment: u32| {
                let (result, envelope) = &results[&segment];
                let found = Found {
                    result: result.clone(),
                    digest: result.digest(),
                    envelope: envelope.clone(),
                    timings: pb::SegmentTimings { bars: 100, resident: true, ..Default::default() },
                    transit: self.transit.hold(envelope.payload.len()),
                };
                PieceReply { piece: prepared.whole(segment), outcome: Ok(Box::new(found)), timings: None, cache: None }
            };
            events.push(AttemptEvent::Pieces { ticket, replies: segments.into_iter().map(reply).collect() });
            events.push(AttemptEvent::End { attempt, ending: Ending::Done });
        }
        events
    }
}

/// Takes the news so far: notes the segments of attempts, and counts the results; whether the scan has ended.
fn read(
    inbox: &mut mpsc::UnboundedReceiver<News>,
    started: &mut BTreeMap<AttemptId, Vec<u32>>,
    results: &mut BTreeSet<u32>,
) -> Option<Outcome> {
    let mut end = None;
    while let Ok(news) = inbox.try_recv() {
        match news {
            News::Started { attempt, segments, .. } => drop(started.insert(attempt, segments)),
            News::Result { piece, .. } => assert!(results.insert(piece.segment), "one result each"),
            News::End(outcome) => end = Some(outcome),
            _ => {}
        }
    }
    end
}

async fn measure(prepared: &Arc<PreparedScan>, scans: usize, workers: usize) -> Measured {
    let (asks, _asked) = mpsc::channel(INBOX_MAX);
    let (events, _incoming) = mpsc::channel(INBOX_MAX);
    let connector = Connector::new(None, Expect::Role(Role::Worker));
    let mut state = State::new(Limits::default(), (connector, 1), Heartbeat::default(), (events, asks.downgrade()));
    (0..workers).for_each(|number| state.note(Member::Here(record(number))));
    let computed = results(prepared);
    let (mut took, mut count, mut submissions) = (Duration::ZERO, 0, Vec::with_capacity(scans));
    for _ in 0..scans {
        let (submission, mut inbox) = submission(prepared);
        let (reply, mut replied) = oneshot::channel();
        let began = Instant::now();
        state.answer(Ask::Submit(Box::new(submission), reply));
        submissions.push(began.elapsed());
        assert_eq!(replied.try_recv().unwrap().threads as usize, workers);
        let (mut started, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let end = loop {
            let end = read(&mut inbox, &mut started, &mut seen);
            let tasks: Vec<AbortHandle> = state.attempts.all().map(|(_, running)| running.task.clone()).collect();
            let messages = state.replies(&mut started, (prepared, &computed));
            if messages.is_empty() {
                break end;
            }
            count += messages
                .iter()
                .map(|event| match event {
                    AttemptEvent::Pieces { replies, .. } => replies.len() as u64,
                    _ => 1,
                })
                .sum::<u64>();
            let began = Instant::now();
            messages.into_iter().for_each(|event| state.hear(event));
            took += began.elapsed();
            // They would send requests.
            tasks.iter().for_each(AbortHandle::abort);
            tokio::task::yield_now().await;
        };
        assert_eq!(end, Some(Outcome::Complete { disputed: false }));
        assert_eq!(seen.len(), prepared.segments.len());
        assert!(state.attempts.is_empty() && state.scans.is_empty() && state.scheduler.is_idle());
    }
    assert_eq!(state.transit.held(), 0, "everything under way was given back");
    let first_submission = submissions.remove(0);
    let submission = submissions.iter().sum::<Duration>() / u32::try_from(submissions.len().max(1)).unwrap();
    Measured { workers, segments: prepared.segments.len(), events: count, took, first_submission, submission }
}

#[tokio::test]
async fn all_results_of_many_shards_pass_through_the_dispatcher() {
    let sizes = std::env::var(SIZES).unwrap_or_else(|_| "640 3 1,8".to_owned());
    let mut words = sizes.split(' ');
    let mut number = || words.next().unwrap().parse::<u32>().unwrap();
    let (symbols, scans) = (number(), number() as usize);
    let workers: Vec<usize> = words.next().unwrap().split(',').map(|count| count.parse().unwrap()).collect();
    let data = tempfile::tempdir().unwrap();
    let prepared = market(data.path(), symbols);
    for workers in workers {
        let of = measure(&prepared, scans, workers).await;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{}",
            serde_json::json!({
                "benchmark": "dispatcher",
                "workers": of.workers,
                "segments": of.segments,
                "scans": scans,
                "events": of.events,
                "thousand_events_per_second": of.events as f64 / of.took.as_secs_f64() / 1e3,
                "first_submission_ms": ms(of.first_submission),
                "submission_ms": ms(of.submission),
            })
        );
    }
}

/// The workers that the attempts of one scan go to, and the threads that it is told of; the scan is given up then.
async fn asked(state: &mut State, prepared: &Arc<PreparedScan>) -> (BTreeSet<String>, u32) {
    let (submission, mut inbox) = submission(prepared);
    let (reply, mut replied) = oneshot::channel();
    state.answer(Ask::Submit(Box::new(submission), reply));
    let submitted = replied.try_recv().unwrap();
    let mut workers = BTreeSet::new();
    while let Ok(news) = inbox.try_recv() {
        if let News::Started { worker, .. } = news {
            workers.insert(worker);
        }
    }
    state.answer(Ask::Cancel(submitted.scan));
    tokio::task::yield_now().await;
    (workers, submitted.threads)
}

#[tokio::test]
async fn what_is_remembered_of_the_workers_is_forgotten_when_they_change() {
    let data = tempfile::tempdir().unwrap();
    let prepared = market(data.path(), 640);
    let (asks, _asked) = mpsc::channel(INBOX_MAX);
    let (events, _incoming) = mpsc::channel(INBOX_MAX);
    let connector = Connector::new(None, Expect::Role(Role::Worker));
    let mut state = State::new(Limits::default(), (connector, 1), Heartbeat::default(), (events, asks.downgrade()));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    (0..2).for_each(|number| state.note(Member::Here(record(number))));
    for _ in 0..2 {
        assert_eq!(asked(&mut state, &prepared).await, (names(&["w0", "w1"]), 2));
    }
    state.note(Member::Draining { id: "w1".to_owned(), boot: "b".to_owned() });
    assert_eq!(asked(&mut state, &prepared).await, (names(&["w0"]), 1));
    state.note(Member::Here(record(2)));
    assert_eq!(asked(&mut state, &prepared).await, (names(&["w0", "w2"]), 2));
    state.lose("w0", "as a test has it");
    assert_eq!(asked(&mut state, &prepared).await, (names(&["w2"]), 1));
    let needs = prepared.class_needs(None);
    assert!(state.choose(&needs).is_some());
    state.lose("w2", "as a test has it");
    assert_eq!((state.choose(&needs), asked(&mut state, &prepared).await), (None, (names(&[]), 0)));
}

/// As many as leave at once when a cluster is updated.
const LEAVING: usize = 1_000;

#[tokio::test]
async fn a_thousand_workers_that_leave_are_not_looked_at_for_each_attempt_that_ends() {
    let data = tempfile::tempdir().unwrap();
    let prepared = market(data.path(), 640);
    let (asks, _asked) = mpsc::channel(INBOX_MAX);
    let (events, _incoming) = mpsc::channel(INBOX_MAX);
    let connector = Connector::new(None, Expect::Role(Role::Worker));
    let mut state = State::new(Limits::default(), (connector, 1), Heartbeat::default(), (events, asks.downgrade()));
    (0..LEAVING).for_each(|number| state.note(Member::Here(record(number))));
    // Scans, each a shard for each segment, until every worker is busy.
    let mut inboxes = Vec::new();
    loop {
        let before = state.attempts.len();
        let (mut asked, inbox) = submission(&prepared);
        asked.shards = crate::planner::ShardSpec::PerSegment;
        let (reply, _replied) = oneshot::channel();
        state.answer(Ask::Submit(Box::new(asked), reply));
        inboxes.push(inbox);
        if state.attempts.len() == before {
            break;
        }
    }
    let attempts: Vec<AttemptId> = state.attempts.all().map(|(attempt, _)| attempt).collect();
    assert!(attempts.len() >= 2 * LEAVING, "{}", attempts.len());
    // They would send requests.
    state.attempts.all().for_each(|(_, running)| running.task.abort());
    state.attempts.looked_at.store(0, Ordering::Relaxed);
    let ids: Vec<String> = (0..LEAVING).map(|number| format!("w{number}")).collect();
    for id in &ids {
        state.note(Member::Draining { id: id.clone(), boot: "b".to_owned() });
    }
    for id in &ids {
        state.note(Member::Gone { id: id.clone(), boot: "b".to_owned() });
    }
    assert_eq!((state.registered.len(), state.parting.len()), (LEAVING, LEAVING), "their replies are awaited");
    for attempt in &attempts {
        state.hear(AttemptEvent::End { attempt: *attempt, ending: Ending::Done });
    }
    assert!(state.attempts.is_empty() && state.registered.is_empty() && state.parting.is_empty());
    let (looked_at, most) = (state.attempts.looked_at.load(Ordering::Relaxed), attempts.len() + LEAVING);
    assert!(looked_at <= most, "{looked_at} attempts were looked at while {} ended", attempts.len());
    assert!(
        state.asked_to_part <= most,
        "{} workers were looked at while {} ended",
        state.asked_to_part,
        attempts.len()
    );
}
