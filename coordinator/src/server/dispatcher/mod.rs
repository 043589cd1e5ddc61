//! The shell around the scheduler: turns what happens into events, and commands into work. One task owns everything.
//!
//! `handle`: how others ask it; `news`: what scans give it and hear from it; `workers`: the registered workers; `roster`: what scans ask
//! of them together; `holdings`: what they report to hold; `check`: reads this process's own copy of the data; `attempts`: which run, and
//! where; `send`: requests to workers; `replies`: what comes back; `tracked`: spans and log lines of attempts; `measure`: metrics. A
//! dispatcher lives as long as its coordinator's term.

mod attempts;
mod check;
mod handle;
mod holdings;
mod measure;
mod news;
mod replies;
mod roster;
mod send;
mod tracked;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use trawl_security::Connector;
use trawl_wire::{ErrorKind, Failure};

use super::attempt::{AttemptEvent, Found};
use super::heartbeat::Heartbeat;
use super::transit_bytes::{TRANSIT_BYTES_MAX, TransitBytes};
use super::work::RemainingWork;
use crate::membership::Member;
use crate::scheduler::{
    AttemptId, ClassId, Command, DELIVERED_KEPT, Event, HostId, Limits, Piece, Request, ScanId, Scheduler, WorkerId,
};
use crate::worker_class::{BACKEND_COUNTERS, ClassNeeds, WorkerClass, counter_of};
use handle::{Ask, Computed, LeaveAsked, WorkerContact};
pub(crate) use handle::{Capacity, Dispatcher};
pub(crate) use news::{News, Submission, Submitted};
use tracked::{History, Tracked};
use workers::RegisteredWorker;

/// Capacity of the dispatcher's inbox; senders wait while it is full.
const INBOX_MAX: usize = 1024;
/// Interval of the scheduler's ticks.
const TICK: Duration = Duration::from_millis(50);
/// Wait before a lost worker that is still registered is pinged; doubles up to [`PING_BACK_OFF_MAX`].
const PING_BACK_OFF: Duration = Duration::from_millis(250);
/// Longest wait between pings.
const PING_BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// The reason of a symbol that kills workers. Part of the answer, so it does not name any worker.
const POISONED: &str = "evaluating this symbol kills the worker that does it";

struct Scan {
    submission: Submission,
    history: History,
    /// Worker and message of the last failed attempt, by piece.
    messages: BTreeMap<Piece, (String, String)>,
    /// Its running attempts.
    attempts: BTreeSet<AttemptId>,
    /// Since when it waits for a worker of its class, as the scan was notified.
    waits_since: Option<Instant>,
}

struct Running {
    scan: ScanId,
    worker: WorkerId,
    task: AbortHandle,
    tracked: Tracked,
}

struct State {
    started: Instant,
    heartbeat: Heartbeat,
    /// Epoch of the term; part of every request.
    epoch: i64,
    connector: Connector,
    scheduler: Scheduler,
    /// Registered workers, by id in the store.
    registered: BTreeMap<String, RegisteredWorker>,
    /// Scheduler's id to store's id, for joined workers.
    workers: BTreeMap<WorkerId, String>,
    /// Classes met in this term, numbered for the scheduler.
    classes: BTreeMap<WorkerClass, ClassId>,
    /// What scans ask of the workers together.
    roster: roster::Roster,
    /// Ids of the registered workers that are parting.
    parting: BTreeSet<String>,
    /// How often a worker was looked at because it might be parting.
    #[cfg(test)]
    asked_to_part: usize,
    scans: BTreeMap<ScanId, Scan>,
    attempts: attempts::Attempts,
    /// The result that is being reported to the scheduler.
    held: Option<(AttemptId, Box<Found>)>,
    /// Hosts whose results proved wrong, for as long as this process lives.
    quarantined: BTreeSet<HostId>,
    /// Reads of this process's own copy of the data.
    checks: Arc<Semaphore>,
    /// Names of scans that ended, newest last.
    ended: VecDeque<(ScanId, String)>,
    /// Next id of a scan or a worker.
    next: u64,
    meter: measure::Meter,
    /// How long loads take.
    pace: holdings::LoadPace,
    events: mpsc::Sender<AttemptEvent>,
    /// Bytes of results between the attempts and the scans.
    transit: Arc<TransitBytes>,
    asks: mpsc::WeakSender<Ask>,
    /// Read by the handles.
    work: Arc<RemainingWork>,
    computed: Arc<Computed>,
    doubts: Arc<AtomicU64>,
}

impl State {
    fn new(
        limits: Limits,
        (connector, epoch): (Connector, i64),
        heartbeat: Heartbeat,
        (events, asks): (mpsc::Sender<AttemptEvent>, mpsc::WeakSender<Ask>),
    ) -> Self {
        let work = Arc::default();
        Self {
            started: Instant::now(),
            heartbeat,
            epoch,
            connector,
            scheduler: Scheduler::new(limits, 0),
            registered: BTreeMap::new(),
            workers: BTreeMap::new(),
            classes: BTreeMap::new(),
            roster: roster::Roster::default(),
            parting: BTreeSet::new(),
            #[cfg(test)]
            asked_to_part: 0,
            scans: BTreeMap::new(),
            attempts: attempts::Attempts::default(),
            held: None,
            quarantined: BTreeSet::new(),
            checks: Arc::new(Semaphore::new(check::CHECKS_AT_ONCE)),
            ended: VecDeque::new(),
            next: 1,
            meter: measure::Meter::new(&work),
            pace: holdings::LoadPace::default(),
            events,
            transit: TransitBytes::new(TRANSIT_BYTES_MAX),
            // Weak, so that the task does not keep itself alive.
            asks,
            work,
            computed: Arc::default(),
            doubts: Arc::default(),
        }
    }

    async fn run(
        mut self,
        mut asked: mpsc::Receiver<Ask>,
        mut incoming: mpsc::Receiver<AttemptEvent>,
        mut members: mpsc::Receiver<Member>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.scheduler.wake_ms().map(|ms| self.started + Duration::from_millis(ms));
            tokio::select! {
                ask = asked.recv() => match ask {
                    Some(ask) => self.answer(ask),
                    None => break,
                },
                Some(event) = incoming.recv() => self.hear(event),
                member = members.recv() => match member {
                    Some(member) => self.note(member),
                    // The task that follows membership has ended: there would be no further changes.
                    None => {
                        tracing::error!("internal error: the task that follows the workers ended");
                        break;
                    }
                },
                _ = tick.tick() => {
                    self.heartbeat.beat();
                    self.step(Event::Tick);
                    self.lose_the_silent();
                    self.tell_who_waits();
                    self.measure();
                }
                // A worker that is free waits no longer for the one that holds the data.
                () = tokio::time::sleep_until(due.unwrap_or(self.started).into()), if due.is_some() => {
                    self.step(Event::Tick);
                }
            }
        }
        for (_, running) in self.attempts.all() {
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
                let class = self.class_for(&submission.prepared);
                let shards = self.shards_of(&submission, class);
                let (prepared, planned) = (&submission.prepared, shards.len());
                let deadline = submission.deadline.map(|at| at.saturating_duration_since(self.started));
                let request = Request {
                    shards,
                    symbols: submission.segments.iter().map(|&s| (s, prepared.whole(s).count)).collect(),
                    class,
                    priority: submission.priority,
                    caller: submission.caller,
                    waits: submission.waits,
                    deadline_ms: deadline.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
                };
                let joined = self.registered.values().filter(|w| w.serves());
                let threads = self.roster.threads(|| joined.map(|w| w.record.threads).fold(0, u32::saturating_add));
                let submitted = Submitted { scan, shards: planned, threads };
                self.meter.submitted(scan, &submission);
                let history = History::new();
                let known = Scan {
                    submission: *submission,
                    history,
                    messages: BTreeMap::new(),
                    attempts: BTreeSet::new(),
                    waits_since: None,
                };
                self.scans.insert(scan, known);
                // Before the first step of the scheduler, in which a scan without segments ends.
                let wanted = reply.send(submitted).is_ok();
                self.step(Event::Submitted { scan, request });
                if !wanted {
                    self.step(Event::Cancelled { scan });
                }
            }
            Ask::Choose(needs, reply) => drop(reply.send(self.choose(&needs))),
            Ask::WorkerOf(class, reply) => drop(reply.send(self.contact(&class))),
            Ask::Cancel(scan) => self.step(Event::Cancelled { scan }),
            Ask::Checked { scan, piece, found } => self.step(Event::Checked { scan, piece, found }),
            Ask::List { all, reply } => {
                let workers = self.registered.values().filter(|worker| all || worker.serves());
                let _ = reply.send(workers.map(|worker| self.info(worker)).collect());
            }
            Ask::Capacity(reply) => {
                let mut capacity = [Capacity::default(); BACKEND_COUNTERS];
                for worker in self.registered.values().filter(|worker| worker.serves()) {
                    let counter = counter_of(Some(&worker.record.class.backend));
                    for one in [0, counter].into_iter().take(1 + usize::from(counter > 0)) {
                        capacity[one].workers += 1;
                        capacity[one].threads = capacity[one].threads.saturating_add(worker.record.threads);
                    }
                }
                let _ = reply.send(capacity);
            }
            Ask::Leave { id, reply } => {
                let asked = self.registered.get(&id).map(|worker| LeaveAsked {
                    channel: worker.channel.clone(),
                    epoch: self.epoch,
                    shards_in_flight: self.info(worker).shards_in_flight,
                });
                let _ = reply.send(asked);
            }
            Ask::Answers { id, boot } => {
                if self.registered.get(&id).is_some_and(|w| w.record.boot == boot && w.joined.is_none()) {
                    tracing::info!(worker = id, "answers again");
                    self.join(&id);
                }
            }
            Ask::Holds { id, boot, report } => {
                if let Some(worker) = self.registered.get_mut(&id).filter(|worker| worker.record.boot == boot)
                    && worker.note_report(*report)
                {
                    self.roster.held_changed();
                }
            }
            Ask::Silent { id, boot } => {
                if let Some(worker) = self.registered.get(&id).filter(|w| w.record.boot == boot) {
                    let parting = worker.parting;
                    self.lose(&id, "its lease is over and it does not answer");
                    if parting {
                        self.part(&id);
                    }
                }
            }
        }
    }

    fn send_news(&self, scan: ScanId, news: News) {
        if let Some(scan) = self.scans.get(&scan) {
            // Fails only when the scan's task has ended: the scan is then being cancelled.
            let _ = scan.submission.news.send(news);
        }
    }

    /// Removes an attempt that has ended.
    fn take_attempt(&mut self, attempt: AttemptId) -> Option<Running> {
        let running = self.attempts.remove(attempt)?;
        if let Some(scan) = self.scans.get_mut(&running.scan) {
            scan.attempts.remove(&attempt);
        }
        Some(running)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn step(&mut self, event: Event) {
        let now_ms = self.now_ms();
        self.meter.event(&event);
        let commands = self.scheduler.step(event, now_ms);
        self.execute(commands);
    }

    /// As [`Self::step`], without giving work to free workers.
    fn note_event(&mut self, event: Event) {
        let now_ms = self.now_ms();
        self.meter.event(&event);
        let commands = self.scheduler.note(event, now_ms);
        self.execute(commands);
    }

    fn execute(&mut self, commands: Vec<Command>) {
        for command in commands {
            self.meter.command(&command);
            match command {
                Command::Dispatch { attempt, scan, worker, pieces, purpose } => {
                    self.dispatch(attempt, scan, worker, pieces, purpose);
                }
                Command::Stop { attempt } => {
                    if let Some(mut running) = self.take_attempt(attempt) {
                        running.task.abort();
                        // The attempts of a lost worker end before their connections break.
                        let lost = !self.workers.contains_key(&running.worker);
                        let ending = if lost { "broken: its worker is gone" } else { "stopped" };
                        self.track_loss(attempt, running.scan, &mut running.tracked, ending);
                        self.send_news(running.scan, News::Over { attempt, ending: ending.to_owned() });
                    }
                }
                Command::Accept { scan, piece } => self.accept(scan, piece, false),
                Command::Replace { scan, piece } => self.accept(scan, piece, true),
                Command::Fail { scan, piece, kind, attempts } => {
                    let last = self.scans.get_mut(&scan).and_then(|s| s.messages.remove(&piece));
                    let (worker, message) = match kind {
                        ErrorKind::Poisoned => (String::new(), POISONED.to_owned()),
                        _ => last.unwrap_or_else(|| (String::new(), crate::local::gave_up(attempts))),
                    };
                    let failure = Failure::new(kind, message);
                    self.send_news(scan, News::Failed { piece, failure, attempts, worker });
                }
                Command::Contest { scan, piece } => {
                    tracing::warn!(scan, segment = piece.segment, "workers gave different results");
                    self.send_news(scan, News::Contested { segment: piece.segment });
                }
                Command::Check { scan, piece } => self.check(scan, piece),
                Command::Distrust { host, scan, piece } => {
                    self.doubts.fetch_add(1, Ordering::Release);
                    self.distrust(host, scan, piece);
                }
                Command::Quarantine { host, scan, piece } => {
                    self.doubts.fetch_add(1, Ordering::Release);
                    self.quarantine(host, scan, piece);
                }
                Command::Doubt { scan } => {
                    self.doubts.fetch_add(1, Ordering::Release);
                    let name = self.ended.iter().find(|(id, _)| *id == scan).map_or("", |(_, name)| name);
                    tracing::error!(
                        scan = name,
                        "a result of this scan, which has ended, came to be in doubt: run it again"
                    );
                }
                Command::End { scan, outcome } => {
                    let Some(over) = self.scans.remove(&scan) else { continue };
                    let (name, news) = (over.submission.scan_name.clone(), over.submission.news.clone());
                    // Before the end is reported: the task that continues with the scan's tables is then their only
                    // owner and need not copy them.
                    drop(over);
                    let _ = news.send(News::End(outcome));
                    if self.ended.len() == DELIVERED_KEPT {
                        self.ended.pop_front();
                    }
                    self.ended.push_back((scan, name));
                }
            }
        }
    }
}

/// The failure of a scan that ended for lack of workers.
pub(crate) fn no_worker(timeout_ms: u64, needs: &ClassNeeds) -> Failure {
    let seconds = timeout_ms as f64 / 1e3;
    let which = if needs.backend.is_some() || needs.own_numerics { format!(" with {needs}") } else { String::new() };
    let message = format!("no worker{which} has been registered for {seconds} s; start one with 'trawl worker'");
    Failure::new(ErrorKind::Retryable, message)
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod tests;
