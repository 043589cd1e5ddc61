//! The shell around the scheduler: turns what happens into events, and commands into work. One task owns everything.
//!
//! There is one way to lose a worker, whatever the evidence (its record is gone, its connection broke): `lose`. One that
//! is still registered is pinged until it answers, then it joins again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tonic::transport::Channel;
use trawl_protocol::limits::PROTOCOL_VERSION;
use trawl_protocol::security::Connector;
use trawl_protocol::{ErrorKind, Failure, SegmentResultV2, WorkerRecord, envelope, pb};

use trawl_worker::{StepKind, execution_class, execution_class_in};

use super::attempt::{self, Ending, Found, Said, Ticket};
use crate::membership::Member;
use crate::passes::Passes;
use crate::planner::{Shard, ShardSpec, WorkerSeat, name_key, plan_shards};
use crate::prepare::PreparedScan;
use crate::report::{RunPurpose, SegmentRun};
use crate::scheduler::{
    AttemptId, ClassId, Command, DELIVERED_KEPT, Event, HostId, Limits, Loss, Outcome, Piece, Priority, Purpose,
    Request, SHARDS_IN_FLIGHT_PER_WORKER, ScanId, Scheduler, WorkerId,
};

/// Replies and news that wait for the dispatcher; whoever has more to say waits.
const INBOX_MAX: usize = 1024;
/// How often the scheduler is told that time goes by.
const TICK: Duration = Duration::from_millis(50);
/// Wait before a lost worker that is still registered is pinged; doubles up to [`PING_BACK_OFF_MAX`].
const PING_BACK_OFF: Duration = Duration::from_millis(250);
/// Longest wait between pings.
const PING_BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// The one class that a coordinator dispatches to, its own build's: workers of another are not joined.
const CLASS: ClassId = 0;
/// The reason of a symbol that kills workers; it enters the answer, so it names none of them.
const POISONED: &str = "evaluating this symbol kills the worker that does it";

/// What the dispatcher tells one scan; bounded by the scan's own segments and attempts.
#[derive(Debug)]
pub(crate) enum News {
    Started { attempt: AttemptId, worker: String, segments: Vec<u32>, purpose: RunPurpose },
    Over { attempt: AttemptId, ending: String },
    Result { piece: Piece, result: SegmentResultV2, envelope: pb::Envelope, run: SegmentRun, replaces: bool },
    Failed { piece: Piece, failure: Failure, attempts: u32 },
    WorkerLost { worker: String },
    Contested { segment: u32 },
    Quarantined { worker: String },
    End(Outcome),
}

/// A scan that is handed in.
pub(crate) struct Submission {
    pub scan_name: String,
    pub prepared: Arc<PreparedScan>,
    /// Where the scan is in its steps; this is one of them.
    pub passes: Arc<Passes>,
    pub shards: ShardSpec,
    pub priority: Priority,
    /// When it ends, done or not.
    pub deadline: Option<Instant>,
    /// Parent of every shard's span.
    pub trace: Option<pb::TraceContext>,
    pub news: mpsc::UnboundedSender<News>,
}

/// What a submission is told at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submitted {
    pub scan: ScanId,
    pub shards: usize,
    /// Threads of all workers.
    pub threads: u32,
}

enum Ask {
    Submit(Box<Submission>, oneshot::Sender<Submitted>),
    Cancel(ScanId),
    List(oneshot::Sender<Vec<pb::WorkerInfo>>),
    Answers { id: String, boot: String },
    Silent { id: String, boot: String },
}

/// A cheap handle. The dispatcher ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    asks: mpsc::Sender<Ask>,
}

impl Dispatcher {
    /// Starts the task; `members` is what [`super::membership::follow`] tells, `connector` how workers are reached.
    pub fn start(limits: Limits, members: mpsc::Receiver<Member>, connector: Connector) -> Self {
        let (asks, asked) = mpsc::channel(INBOX_MAX);
        let (said, says) = mpsc::channel(INBOX_MAX);
        let state = State {
            started: Instant::now(),
            connector,
            scheduler: Scheduler::new(limits, 0),
            registered: BTreeMap::new(),
            workers: BTreeMap::new(),
            scans: BTreeMap::new(),
            attempts: BTreeMap::new(),
            held: None,
            quarantined: BTreeSet::new(),
            ended: VecDeque::new(),
            next: 1,
            said,
            // Weak, so that the task does not keep itself alive.
            asks: asks.downgrade(),
        };
        tokio::spawn(state.run(asked, says, members));
        Self { asks }
    }

    /// Hands a scan in; its news follow. `None` when the dispatcher has ended.
    pub async fn submit(&self, submission: Submission) -> Option<Submitted> {
        let (reply, replied) = oneshot::channel();
        self.asks.send(Ask::Submit(Box::new(submission), reply)).await.ok()?;
        replied.await.ok()
    }

    /// Ends a scan that nobody wants any more.
    pub async fn cancel(&self, scan: ScanId) {
        let _ = self.asks.send(Ask::Cancel(scan)).await;
    }

    /// The workers that are given work.
    pub async fn list(&self) -> Vec<pb::WorkerInfo> {
        let (reply, replied) = oneshot::channel();
        let _ = self.asks.send(Ask::List(reply)).await;
        replied.await.unwrap_or_default()
    }
}

/// A worker whose record is in the store.
struct RegisteredWorker {
    record: WorkerRecord,
    channel: Channel,
    /// Of its name.
    host: HostId,
    /// Its id with the scheduler; `None` while it is lost and pinged.
    joined: Option<WorkerId>,
    /// Its results proved wrong: it stays joined and is given nothing.
    quarantined: bool,
    /// The task that pings it.
    pinging: Option<AbortHandle>,
}

impl RegisteredWorker {
    /// Whether it is given work.
    fn serves(&self) -> bool {
        self.joined.is_some() && !self.quarantined && !self.record.draining
    }
}

struct Scan {
    submission: Submission,
    /// What the last attempt of a piece said.
    messages: BTreeMap<Piece, String>,
}

struct Running {
    scan: ScanId,
    worker: WorkerId,
    task: AbortHandle,
}

struct State {
    started: Instant,
    connector: Connector,
    scheduler: Scheduler,
    /// By worker's id in the store.
    registered: BTreeMap<String, RegisteredWorker>,
    /// Scheduler's id -> store's id, of those that joined.
    workers: BTreeMap<WorkerId, String>,
    scans: BTreeMap<ScanId, Scan>,
    attempts: BTreeMap<AttemptId, Running>,
    /// The result that is being reported to the scheduler.
    held: Option<(AttemptId, Box<Found>)>,
    /// Hosts whose results proved wrong, for as long as this process lives.
    quarantined: BTreeSet<HostId>,
    /// Names of scans that ended, newest last.
    ended: VecDeque<(ScanId, String)>,
    /// Next id of a scan or a worker.
    next: u64,
    said: mpsc::Sender<Said>,
    asks: mpsc::WeakSender<Ask>,
}

impl State {
    async fn run(
        mut self,
        mut asked: mpsc::Receiver<Ask>,
        mut says: mpsc::Receiver<Said>,
        mut members: mpsc::Receiver<Member>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                ask = asked.recv() => match ask {
                    Some(ask) => self.answer(ask),
                    None => break,
                },
                Some(said) = says.recv() => self.hear(said),
                Some(member) = members.recv() => self.note(member),
                _ = tick.tick() => self.step(Event::Tick),
            }
        }
        for running in self.attempts.values() {
            running.task.abort();
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Submit(submission, reply) => {
                let scan = self.fresh();
                let shards = self.shards_of(&submission);
                let (prepared, planned) = (&submission.prepared, shards.len());
                let deadline = submission.deadline.map(|at| at.saturating_duration_since(self.started));
                let request = Request {
                    shards,
                    symbols: prepared.segments.iter().map(|&s| (s, prepared.whole(s).count)).collect(),
                    class: CLASS,
                    priority: submission.priority,
                    deadline_ms: deadline.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
                };
                let joined = self.registered.values().filter(|w| w.serves());
                let threads = joined.map(|w| w.record.threads).sum();
                let submitted = Submitted { scan, shards: planned, threads };
                self.scans.insert(scan, Scan { submission: *submission, messages: BTreeMap::new() });
                // Before the first step: a scan without segments ends in it.
                let wanted = reply.send(submitted).is_ok();
                self.step(Event::Submitted { scan, request });
                if !wanted {
                    self.step(Event::Cancelled { scan });
                }
            }
            Ask::Cancel(scan) => self.step(Event::Cancelled { scan }),
            Ask::List(reply) => {
                let info = |worker: &RegisteredWorker| {
                    if !worker.serves() {
                        return None;
                    }
                    let in_flight = self.scheduler.in_flight(worker.joined?);
                    Some(pb::WorkerInfo {
                        id: worker.record.id.clone(),
                        address: worker.record.address.clone(),
                        boot: worker.record.boot.clone(),
                        threads: worker.record.threads,
                        shards_in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
                    })
                };
                let _ = reply.send(self.registered.values().filter_map(info).collect());
            }
            Ask::Answers { id, boot } => {
                if self.registered.get(&id).is_some_and(|w| w.record.boot == boot && w.joined.is_none()) {
                    tracing::info!(worker = id, "answers again");
                    self.join(&id);
                }
            }
            Ask::Silent { id, boot } => {
                if self.registered.get(&id).is_some_and(|w| w.record.boot == boot) {
                    self.lose(&id, "its lease is over and it does not answer");
                }
            }
        }
    }

    fn shards_of(&self, submission: &Submission) -> Vec<Shard> {
        let serving = self.registered.values().filter(|worker| worker.serves());
        let seat = |w: &RegisteredWorker| Some(WorkerSeat { worker: w.joined?, key: name_key(&w.record.id) });
        let seats: Vec<WorkerSeat> = serving.filter_map(seat).collect();
        let affinity = name_key(&submission.prepared.identity.dataset);
        plan_shards(&submission.prepared.segment_costs(), &seats, submission.shards, affinity)
    }

    fn note(&mut self, member: Member) {
        match member {
            Member::Here(record) => {
                if let Some(why) = unusable(&record) {
                    tracing::warn!(worker = record.id, why, "this worker is given no work");
                    return;
                }
                match attempt::channel_to(&record.address, &self.connector) {
                    Ok(channel) => {
                        let id = record.id.clone();
                        tracing::info!(worker = id, address = record.address, "registered");
                        let host = name_key(&id);
                        let (leaves, quarantined) = (record.draining, self.quarantined.contains(&host));
                        let worker =
                            RegisteredWorker { record, channel, host, joined: None, quarantined, pinging: None };
                        self.registered.insert(id.clone(), worker);
                        if !leaves {
                            self.join(&id);
                        }
                    }
                    Err(error) => tracing::warn!(worker = record.id, %error, "this worker's address cannot be used"),
                }
            }
            Member::Draining { id, boot } => {
                let Some(worker) = self.registered.get_mut(&id).filter(|w| w.record.boot == boot) else { return };
                tracing::info!(worker = id, "drains");
                worker.record.draining = true;
                if let Some(worker) = worker.joined {
                    self.step(Event::WorkerDraining { worker });
                }
            }
            Member::Suspect(record) => {
                let id = record.id.clone();
                if self.registered.get(&id).is_none_or(|w| w.record.boot != record.boot) {
                    self.note(Member::Here(record));
                }
                self.ping(&id);
            }
            Member::Gone { id, boot } => {
                if self.registered.get(&id).is_some_and(|w| w.record.boot == boot) {
                    self.lose(&id, "its record is gone");
                    if let Some(pinging) = self.registered.remove(&id).and_then(|w| w.pinging) {
                        pinging.abort();
                    }
                }
            }
        }
    }

    fn join(&mut self, id: &str) {
        let worker = self.fresh();
        if let Some(registered) = self.registered.get_mut(id) {
            registered.joined = Some(worker);
            registered.pinging = None;
            let host = registered.host;
            self.workers.insert(worker, id.to_owned());
            self.step(Event::WorkerJoined { worker, host, class: CLASS, slots: SHARDS_IN_FLIGHT_PER_WORKER });
        }
    }

    /// The one way to lose a worker.
    fn lose(&mut self, id: &str, reason: &str) {
        let Some(registered) = self.registered.get_mut(id) else { return };
        let Some(worker) = registered.joined.take() else { return };
        let loss = if registered.record.draining { Loss::Left } else { Loss::Died };
        match loss {
            Loss::Left => tracing::info!(worker = id, "left"),
            Loss::Died => tracing::warn!(worker = id, reason, "lost a worker"),
        }
        self.workers.remove(&worker);
        let touched: Vec<ScanId> = self.attempts.values().filter(|r| r.worker == worker).map(|r| r.scan).collect();
        for scan in self.scans.iter().filter(|(scan, _)| touched.contains(scan)).map(|(_, s)| s) {
            let _ = scan.submission.news.send(News::WorkerLost { worker: id.to_owned() });
        }
        self.step(Event::WorkerLost { worker, loss });
    }

    /// Pings a lost worker that is still registered until it answers.
    fn ping(&mut self, id: &str) {
        let Some(worker) = self.registered.get_mut(id) else { return };
        let (id, boot) = (id.to_owned(), worker.record.boot.clone());
        let (channel, asks) = (worker.channel.clone(), self.asks.clone());
        let task = tokio::spawn(async move {
            let mut wait = PING_BACK_OFF;
            loop {
                tokio::time::sleep(wait).await;
                if attempt::ping(channel.clone(), &boot).await {
                    break;
                }
                if let Some(asks) = asks.upgrade() {
                    let _ = asks.send(Ask::Silent { id: id.clone(), boot: boot.clone() }).await;
                }
                wait = (wait * 2).min(PING_BACK_OFF_MAX);
            }
            if let Some(asks) = asks.upgrade() {
                let _ = asks.send(Ask::Answers { id, boot }).await;
            }
        });
        worker.pinging = Some(task.abort_handle());
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Piece { ticket: Ticket { attempt, scan, host }, piece, outcome } => match outcome {
                Ok(found) => {
                    let digest = found.digest;
                    self.held = Some((attempt, found));
                    self.step(Event::PieceDone { scan, attempt, host, piece, digest });
                    self.held = None;
                }
                Err(failure) => {
                    if let Some(scan) = self.scans.get_mut(&scan) {
                        scan.messages.insert(piece, failure.message);
                    }
                    self.step(Event::PieceFailed { attempt, piece, kind: failure.kind });
                }
            },
            Said::End { attempt, ending } => {
                let Some(running) = self.attempts.remove(&attempt) else { return };
                let text = match &ending {
                    Ending::Done => "done".to_owned(),
                    Ending::Refused(failure) => format!("refused: {failure}"),
                    Ending::Broken(why) => format!("broken: {why}"),
                };
                self.tell(running.scan, News::Over { attempt, ending: text });
                if let Ending::Refused(failure) = &ending {
                    tracing::warn!(attempt, %failure, "a worker refused a shard");
                }
                // Put back for `lose`, which looks for scans that are touched.
                if let (Ending::Broken(why), Some(id)) = (&ending, self.workers.get(&running.worker).cloned()) {
                    self.attempts.insert(attempt, running);
                    self.lose(&id, why);
                    self.ping(&id);
                } else {
                    self.step(Event::AttemptEnded { attempt });
                }
            }
        }
    }

    fn tell(&self, scan: ScanId, news: News) {
        if let Some(scan) = self.scans.get(&scan) {
            // Refused only when the scan's task is gone: then it is being cancelled.
            let _ = scan.submission.news.send(news);
        }
    }

    fn step(&mut self, event: Event) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        for command in self.scheduler.step(event, now_ms) {
            match command {
                Command::Dispatch { attempt, scan, worker, pieces, purpose } => {
                    self.dispatch(attempt, scan, worker, pieces, purpose);
                }
                Command::Stop { attempt } => {
                    if let Some(running) = self.attempts.remove(&attempt) {
                        running.task.abort();
                        self.tell(running.scan, News::Over { attempt, ending: "stopped".to_owned() });
                    }
                }
                Command::Accept { scan, piece } => self.accept(scan, piece, false),
                Command::Replace { scan, piece } => self.accept(scan, piece, true),
                Command::Fail { scan, piece, kind, attempts } => {
                    let message = self.scans.get_mut(&scan).and_then(|s| s.messages.remove(&piece));
                    let message = match kind {
                        ErrorKind::Poisoned => POISONED.to_owned(),
                        _ => message.unwrap_or_else(|| crate::local::gave_up(attempts)),
                    };
                    self.tell(scan, News::Failed { piece, failure: Failure::new(kind, message), attempts });
                }
                Command::Contest { scan, piece } => {
                    tracing::warn!(scan, segment = piece.segment, "workers gave different results");
                    self.tell(scan, News::Contested { segment: piece.segment });
                }
                Command::Quarantine { host, scan, piece } => self.quarantine(host, scan, piece),
                Command::Doubt { scan } => {
                    let name = self.ended.iter().find(|(id, _)| *id == scan).map_or("", |(_, name)| name);
                    tracing::error!(
                        scan = name,
                        "a result of this scan, which has ended, came to be in doubt: run it again"
                    );
                }
                Command::End { scan, outcome } => {
                    self.tell(scan, News::End(outcome));
                    if let Some(over) = self.scans.remove(&scan) {
                        if self.ended.len() == DELIVERED_KEPT {
                            self.ended.pop_front();
                        }
                        self.ended.push_back((scan, over.submission.scan_name));
                    }
                }
            }
        }
    }

    /// A worker whose results proved wrong.
    fn quarantine(&mut self, host: HostId, scan: ScanId, piece: Piece) {
        self.quarantined.insert(host);
        let Some((id, worker)) = self.registered.iter_mut().find(|(_, w)| w.host == host) else { return };
        worker.quarantined = true;
        let id = id.clone();
        tracing::error!(
            worker = id,
            segment = piece.segment,
            "this worker's result is wrong, it is given nothing more: check its machine, then start it under another id"
        );
        self.tell(scan, News::Quarantined { worker: id });
    }

    fn accept(&mut self, scan: ScanId, piece: Piece, replaces: bool) {
        let Some((attempt, found)) = self.held.take() else { return };
        let Found { result, envelope, timings, .. } = *found;
        let worker = self.attempts.get(&attempt).and_then(|r| self.workers.get(&r.worker));
        let run = SegmentRun {
            segment: piece.segment,
            first: piece.first,
            attempt,
            worker: worker.cloned().unwrap_or_default(),
            busy_ms: (timings.load_us + timings.compute_us) as f64 / 1e3,
            load_ms: Some(timings.load_us as f64 / 1e3),
            symbols: timings.symbols,
            resident: timings.resident,
        };
        self.tell(scan, News::Result { piece, result, envelope, run, replaces });
    }

    fn dispatch(
        &mut self,
        attempt: AttemptId,
        scan_id: ScanId,
        worker: WorkerId,
        pieces: Vec<Piece>,
        purpose: Purpose,
    ) {
        let (Some(scan), Some(id)) = (self.scans.get(&scan_id), self.workers.get(&worker)) else { return };
        let Some(registered) = self.registered.get(id) else { return };
        let submission = &scan.submission;
        let prepared = &submission.prepared;
        let segments: Vec<u32> = pieces.iter().map(|p| p.segment).collect();
        let purpose = purpose.into();
        let started = News::Started { attempt, worker: id.clone(), segments: segments.clone(), purpose };
        let _ = submission.news.send(started);
        let part = pieces.iter().find(|p| **p != prepared.whole(p.segment));
        let step = submission.passes.step();
        // Only what these segments read: a shard never carries the whole market's tables.
        let input = match envelope::encode_input(&submission.passes.input(&segments)) {
            Ok(input) => input,
            Err(error) => {
                let message = format!("the cross-sections of a shard cannot be sent: {error}; ask for more shards");
                let ending = Ending::Refused(Failure::new(ErrorKind::Permanent, message));
                let said = self.said.clone();
                let task = tokio::spawn(async move {
                    let _ = said.send(Said::End { attempt, ending }).await;
                });
                let task = task.abort_handle();
                self.attempts.insert(attempt, Running { scan: scan_id, worker, task });
                return;
            }
        };
        let request = pb::ShardRequest {
            protocol_version: PROTOCOL_VERSION,
            scan_id: submission.scan_name.clone(),
            attempt,
            document_json: prepared.document.to_json(),
            dataset: prepared.dataset_reference(),
            as_of_us: prepared.as_of,
            plan_fingerprint: prepared.identity.plan.clone(),
            execution_class: Some(execution_class_in(prepared.precision).into()),
            segments,
            trace: submission.trace.clone(),
            stage: u32::try_from(step.stage).unwrap_or(u32::MAX),
            times_only: step.kind == StepKind::Times,
            input: Some(input),
            adjustment: prepared.identity.adjustment.clone(),
            part_first: part.map_or(0, |p| p.first),
            part_count: part.map_or(0, |p| p.count),
        };
        let ticket = Ticket { attempt, scan: scan_id, host: registered.host };
        let running = attempt::run(
            registered.channel.clone(),
            request,
            (ticket, pieces),
            (Arc::clone(prepared), step),
            self.said.clone(),
        );
        let task = tokio::spawn(running).abort_handle();
        self.attempts.insert(attempt, Running { scan: scan_id, worker, task });
    }
}

/// Why a registered worker cannot be given this coordinator's work.
fn unusable(record: &WorkerRecord) -> Option<String> {
    let (version, schema) = (record.protocol_version, format!("{:016x}", envelope::schema_fingerprint()));
    if version != PROTOCOL_VERSION {
        return Some(format!("it speaks protocol {version}, this coordinator {PROTOCOL_VERSION}"));
    }
    if record.result_schema != schema {
        return Some(format!("its results have schema {}, expected {schema}", record.result_schema));
    }
    if record.class != execution_class() {
        return Some(format!("its class is '{}', this coordinator's '{}'", record.class, execution_class()));
    }
    None
}

/// What a scan is told that ended without workers.
pub(crate) fn no_worker(timeout_ms: u64) -> Failure {
    let seconds = timeout_ms as f64 / 1e3;
    let message = format!("no worker has been registered for {seconds} s; start one with 'trawl worker'");
    Failure::new(ErrorKind::Retryable, message)
}
