//! The coordinators of a world: processes that run the real election, and call the control store.
//!
//! Their calls are futures, polled when the world delivers a reply; a process that dies drops them, one that is
//! suspended receives nothing until it resumes. Each has its own clock, which runs fast or slow and jumps ahead.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use trawl_cluster_store::{Committed, ControlError, ControlStore as _, Guard, HistoryCheck, Write};
use trawl_coordinator::durable::ledger::Loaded;
use trawl_coordinator::durable::{Acceptance, LedgerError};
use trawl_coordinator::election::{Command, Election, ElectionRole, Event, StoreCall as Asked};
use trawl_coordinator::scheduler::ScanId;
use trawl_wire::LeaderRecord;
use trawl_wire::record::leader_key;

use crate::control::{Answer, Call, Handle, LEASE_TTL_MS};
use crate::following::{View, begin, follow_leader, follow_workers, look, watch_history};
use crate::laws::{CLUSTER, Process, is_guarded};
use crate::leader_term::LeaderTerm;
use crate::ledger::{Checked, Invariant, Violation, ensure};
use crate::sabotage::Bug;
use crate::scans_of_a_term::Begun;
use crate::world::{Happening, World};

/// Timeout of a call on the store.
const CALL_TIMEOUT_MS: u64 = 500;
/// Wait before an unanswered call on the store is retried.
pub const BACK_OFF_MS: u64 = 100;

/// The result of a job.
pub enum Done {
    Nothing,
    Election(Event),
    Accepted {
        begun: Begun,
        acceptance: Result<Acceptance, LedgerError>,
    },
    /// The next generation of a scan is recorded.
    BegunAnew(Begun),
    Loaded(Result<Loaded, LedgerError>),
    /// A process has read the store's version, and takes part from now on.
    Started(HistoryCheck),
    /// The store lost what it had acknowledged.
    HistoryLost,
    /// An end of the scan is recorded, its own or another's.
    Ended {
        scan: ScanId,
    },
}

pub type Job = Pin<Box<dyn Future<Output = Done>>>;

/// The owner of a call.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub coordinator: usize,
    pub life: u64,
    job: u64,
    call: u64,
    /// Epoch of the term that the job belongs to.
    epoch: Option<i64>,
}

pub struct Coordinator {
    pub life: u64,
    pub alive: bool,
    /// Until when it is suspended; `cut_until`: until when it cannot reach the store.
    pub stopped_until: u64,
    pub cut_until: u64,
    /// Until when its node of the store is cut off from the others; until when that node still answers keep-alives.
    pub isolated_until: u64,
    pub renewed_until: u64,
    /// Whether it has read the store's version, in this life.
    pub store_seen: bool,
    /// Its clock: milliseconds counted per 1,000 elapsed, and the sum of its jumps.
    rate_permille: u64,
    pub ahead_ms: u64,
    pub election: Option<Election>,
    jobs: BTreeMap<u64, (Option<i64>, Job)>,
    next_job: u64,
    /// Jobs that wait for changes, with or without the epoch of a term.
    follows: Vec<u64>,
    poked: bool,
    pub handle: Handle,
    views: Arc<Mutex<Vec<View>>>,
    pub term: Option<LeaderTerm>,
    wake_at: u64,
}

impl Coordinator {
    pub fn new(rate_permille: u64) -> Self {
        Self {
            life: 0,
            alive: false,
            stopped_until: 0,
            cut_until: 0,
            isolated_until: 0,
            renewed_until: 0,
            store_seen: false,
            rate_permille,
            ahead_ms: 0,
            election: None,
            jobs: BTreeMap::new(),
            next_job: 0,
            follows: Vec::new(),
            poked: false,
            handle: Handle::default(),
            views: Arc::default(),
            term: None,
            wake_at: 0,
        }
    }

    pub fn clock(&self, now_ms: u64) -> u64 {
        now_ms * self.rate_permille / 1_000 + self.ahead_ms
    }

    /// The first time at which its clock shows `ms`.
    fn when(&self, ms: u64) -> u64 {
        (ms.saturating_sub(self.ahead_ms) * 1_000).div_ceil(self.rate_permille)
    }

    /// The epoch in which it leads, or led until it was suspended.
    pub fn epoch(&self) -> Option<i64> {
        match self.election.as_ref().map(Election::standing) {
            Some(ElectionRole::Leading { epoch, .. } | ElectionRole::Suspended { epoch }) => Some(epoch),
            _ => None,
        }
    }

    /// Whether it leads by its own clock.
    pub fn is_valid(&self, now_ms: u64) -> bool {
        let standing = self.election.as_ref().map(Election::standing);
        matches!(standing, Some(ElectionRole::Leading { deadline_ms, .. }) if self.clock(now_ms) < deadline_ms)
    }
}

/// Executes a command as the real shell does.
async fn perform(handle: Handle, command: Command) -> Done {
    let key = leader_key(CLUSTER);
    let failed = |error: &ControlError, call, lease| match (error, lease) {
        (ControlError::LeaseOver, Some(lease)) => Event::LeaseOver { lease },
        _ => Event::Failed { call },
    };
    Done::Election(match command {
        Command::GrantLease { sent_ms } => match handle.grant(Duration::from_millis(LEASE_TTL_MS)).await {
            Ok(lease) => Event::Granted { lease, sent_ms },
            Err(error) => failed(&error, Asked::Grant { sent_ms }, None),
        },
        Command::Campaign { lease, record } => {
            let (campaign, value) = (record.campaign, serde_json::to_vec(&record).unwrap());
            let put = Write::Put { key: key.clone(), value, lease: Some(lease) };
            match handle.commit(&[Guard::Absent { key }], vec![put]).await {
                Ok(Committed { applied, revision }) => Event::Committed { campaign, applied, revision },
                Err(error) => failed(&error, Asked::Campaign { campaign }, Some(lease)),
            }
        }
        Command::Look => match look(&handle).await {
            Ok(seen) => seen,
            Err(error) => failed(&error, Asked::Look, None),
        },
        Command::KeepAlive { lease, sent_ms } => match handle.keep_alive(lease).await {
            Ok(()) => Event::Renewed { lease, sent_ms },
            Err(error) => failed(&error, Asked::KeepAlive { sent_ms }, Some(lease)),
        },
        Command::Abdicate { epoch, lease } => {
            let guard = Guard::Created { key: key.clone(), revision: epoch };
            if handle.commit(&[guard], vec![Write::Delete { key }]).await.is_ok() {
                let _ = handle.revoke(lease).await;
            }
            Event::Abdicated
        }
        Command::RevokeLease { lease } => {
            let _ = handle.revoke(lease).await;
            return Done::Nothing;
        }
        Command::BecomeLeader { .. } | Command::Suspend { .. } | Command::Resume { .. } | Command::StepDown { .. } => {
            return Done::Nothing;
        }
    })
}

impl World {
    pub fn start_coordinator(&mut self, c: usize) -> Checked {
        let longer = if self.sabotaged(Bug::BelievesItsLeaseLonger) { 2 } else { 1 };
        let state = &mut self.coordinators[c];
        if state.alive {
            return Ok(());
        }
        state.alive = true;
        state.life += 1;
        (state.wake_at, state.store_seen) = (0, false);
        state.handle = Handle::default();
        state.views = Arc::default();
        let record = LeaderRecord {
            id: format!("c{c}"),
            boot: format!("c{c}-{}", state.life),
            address: format!("c{c}:1"),
            protocol_version: 1,
            campaign: 0,
        };
        state.election = Some(Election::new(record, LEASE_TTL_MS * longer));
        let job = begin(state.handle.clone());
        self.spawn(c, None, Box::pin(job))
    }

    fn started(&mut self, c: usize, check: HistoryCheck) -> Checked {
        let state = &self.coordinators[c];
        let (handle, views) = (state.handle.clone(), Arc::clone(&state.views));
        let trusting = self.sabotaged(Bug::TrustsSilentWatches);
        self.follow(c, None, Box::pin(follow_leader(handle.clone(), views, trusting)))?;
        if self.sabotaged(Bug::ForgetsHistory) {
            return Ok(());
        }
        self.spawn(c, None, Box::pin(watch_history(handle, check)))
    }

    /// The process ends, and another is started.
    pub fn kill_coordinator(&mut self, c: usize, restart_ms: u64) {
        self.end_reign(c);
        let state = &mut self.coordinators[c];
        (state.alive, state.election) = (false, None);
        state.jobs.clear();
        state.follows.clear();
        self.soon(restart_ms, Happening::StartCoordinator { coordinator: c });
    }

    fn follow(&mut self, c: usize, epoch: Option<i64>, job: Job) -> Checked {
        let id = self.coordinators[c].next_job;
        self.coordinators[c].follows.push(id);
        self.spawn(c, epoch, job)
    }

    pub fn follow_workers(&mut self, c: usize, epoch: i64) -> Checked {
        let trusting = self.sabotaged(Bug::TrustsSilentWatches);
        let state = &self.coordinators[c];
        let job = follow_workers(state.handle.clone(), Arc::clone(&state.views), trusting);
        self.follow(c, Some(epoch), Box::pin(job))
    }

    pub fn spawn(&mut self, c: usize, epoch: Option<i64>, job: Job) -> Checked {
        let state = &mut self.coordinators[c];
        let id = state.next_job;
        state.next_job += 1;
        state.jobs.insert(id, (epoch, job));
        self.poll(c, id)
    }

    /// Drops the jobs of a term; calls in transit still arrive.
    pub fn drop_jobs_of(&mut self, c: usize, epoch: i64) {
        let state = &mut self.coordinators[c];
        state.jobs.retain(|_, (of, _)| *of != Some(epoch));
        let jobs = &state.jobs;
        state.follows.retain(|id| jobs.contains_key(id));
    }

    fn poll(&mut self, c: usize, id: u64) -> Checked {
        let state = &mut self.coordinators[c];
        let Some((epoch, mut job)) = state.jobs.remove(&id) else { return Ok(()) };
        let polled = job.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let calls = std::mem::take(&mut state.handle.desk.lock().unwrap().calls);
        let views = std::mem::take(&mut *state.views.lock().unwrap());
        let life = state.life;
        for (call, asked) in calls {
            let owner = Owner { coordinator: c, life, job: id, call, epoch };
            match asked {
                Call::Sleep(ms) => self.soon(ms, Happening::Answered { owner, answer: Answer::Done }),
                call => {
                    let wait = self.latency();
                    self.soon(wait, Happening::Reach { owner, call });
                }
            }
        }
        let done = match polled {
            Poll::Ready(done) => done,
            Poll::Pending => {
                self.coordinators[c].jobs.insert(id, (epoch, job));
                Done::Nothing
            }
        };
        for view in views {
            match view {
                View::Leader(event) => self.elect(c, event)?,
                View::Workers(event) => self.hear_of_workers(c, event)?,
            }
        }
        match done {
            Done::Nothing => Ok(()),
            Done::Election(event) => self.elect(c, event),
            Done::Accepted { begun, acceptance } => self.accepted(c, begun, acceptance),
            Done::BegunAnew(begun) => self.begun_anew(c, begun),
            Done::Loaded(loaded) => self.take_over(c, loaded),
            Done::Started(check) => self.started(c, check),
            Done::HistoryLost => {
                self.count("left a restored store");
                self.kill_coordinator(c, 200);
                Ok(())
            }
            Done::Ended { scan } => {
                self.is_over(c, scan);
                Ok(())
            }
        }
    }

    /// Delivers a call to the store, or loses it.
    pub fn reach(&mut self, owner: Owner, call: Call) -> Checked {
        if let Some(answer) = self.answer_of_isolated(owner, &call) {
            let wait = if matches!(answer, Answer::Done) { self.latency() } else { CALL_TIMEOUT_MS };
            self.soon(wait, Happening::Answered { owner, answer });
            return Ok(());
        }
        let held = self.frozen_until.max(self.coordinators[owner.coordinator].cut_until);
        if held > self.now_ms {
            if held - self.now_ms <= CALL_TIMEOUT_MS {
                self.at(held + 1, Happening::Reach { owner, call });
            } else {
                self.soon(CALL_TIMEOUT_MS, Happening::Answered { owner, answer: unanswered() });
                // It may still be applied, long after its caller gave up.
                if self.random.percent(50) {
                    self.at(held + 1, Happening::Late { owner, call });
                }
            }
            return Ok(());
        }
        let mut answer = self.make(owner, call.clone())?;
        let mut wait = self.latency();
        if self.disturbed() && self.random.percent(self.faults.lost_percent) {
            self.count("answers lost");
            // Its caller retries, or gives up.
            answer = if self.random.percent(50) { self.make(owner, call)? } else { unanswered() };
            wait += CALL_TIMEOUT_MS;
        }
        self.soon(wait, Happening::Answered { owner, answer });
        Ok(())
    }

    /// Applies a call to the store.
    pub fn make(&mut self, owner: Owner, mut call: Call) -> Result<Answer, Violation> {
        let key = leader_key(CLUSTER);
        if let (Call::Commit(guards, _), Some(_)) = (&mut call, owner.epoch)
            && self.sabotaged(Bug::ForgetsTheGuard)
        {
            guards.retain(|guard| !is_guarded(guard, &key));
        }
        if let (Call::Page(asked), true) = (&mut call, self.sabotaged(Bug::ReadsInOneAnswer)) {
            asked.limit = asked.limit.max(trawl_cluster_store::PAGE_KEYS_MAX);
        }
        let leader = self.control.created(&key);
        let answer = self.control.make(call.clone(), self.now_ms);
        if self.traced {
            println!("{:>7} c{} {call:?} -> {answer:?}", self.now_ms, owner.coordinator);
        }
        if let (Call::Commit(_, writes), Answer::Committed(Committed { applied: true, .. }), Some(epoch)) =
            (&call, &answer, owner.epoch)
        {
            self.laws.applied((epoch, leader), writes, (&self.control, &self.results, &self.facts))?;
            let life = self.coordinators[owner.coordinator].life;
            if self.faults.kill_at_commit == Some(self.laws.commits) && life == owner.life && self.disturbed() {
                self.count("killed by a commit");
                self.kill_coordinator(owner.coordinator, 300);
            }
        }
        self.poke();
        Ok(answer)
    }

    /// Polls the watchers of the store, which may have changes.
    pub fn poke(&mut self) {
        for c in 0..self.coordinators.len() {
            let state = &mut self.coordinators[c];
            if state.alive && !state.poked {
                state.poked = true;
                let wait = self.latency();
                self.soon(wait, Happening::Poke { coordinator: c });
            }
        }
    }

    pub fn poked(&mut self, c: usize) -> Checked {
        let state = &mut self.coordinators[c];
        let held = state.stopped_until.max(state.cut_until).max(state.isolated_until).max(self.frozen_until);
        if state.alive && held > self.now_ms {
            self.at(held + 1, Happening::Poke { coordinator: c });
            return Ok(());
        }
        state.poked = false;
        for job in state.follows.clone() {
            self.poll(c, job)?;
        }
        Ok(())
    }

    pub fn answered(&mut self, owner: Owner, answer: Answer) -> Checked {
        let state = &mut self.coordinators[owner.coordinator];
        if !state.alive || state.life != owner.life {
            return Ok(());
        }
        if state.stopped_until > self.now_ms {
            let resumes = state.stopped_until;
            self.at(resumes, Happening::Answered { owner, answer });
            return Ok(());
        }
        state.store_seen |= matches!(answer, Answer::Version(_));
        state.handle.desk.lock().unwrap().answers.insert(owner.call, answer);
        self.poll(owner.coordinator, owner.job)
    }

    /// Passes an event to a coordinator's election.
    pub fn elect(&mut self, c: usize, event: Event) -> Checked {
        let now_ms = self.now_ms;
        let state = &mut self.coordinators[c];
        let (clock, life) = (state.clock(now_ms), state.life);
        let Some(election) = &mut state.election else { return Ok(()) };
        let text = self.traced.then(|| format!("{event:?}"));
        let commands = election.step(event, clock);
        if let Some(text) = text.filter(|_| !commands.is_empty()) {
            println!("{now_ms:>7} c{c} at {clock}: {text} -> {commands:?}");
        }
        for command in commands {
            match command {
                Command::BecomeLeader { epoch } => {
                    self.laws.leads(epoch, (c, life))?;
                    self.begin_reign(c, epoch)?;
                }
                Command::StepDown { reason, .. } => {
                    self.count(match reason {
                        trawl_coordinator::election::Reason::Resigned => "hand-overs",
                        _ => "terms that were taken",
                    });
                    if !self.sabotaged(Bug::GoesOnAfterItsTerm) {
                        self.end_reign(c);
                    }
                }
                Command::Suspend { .. } => self.count("suspended terms"),
                Command::Resume { .. } => self.count("resumed terms"),
                command => {
                    let job = perform(self.coordinators[c].handle.clone(), command);
                    self.spawn(c, None, Box::pin(job))?;
                }
            }
        }
        self.check_leaders()?;
        self.wake_later(c);
        Ok(())
    }

    pub fn check_leaders(&self) -> Checked {
        let robbed = |c: usize| {
            let state = &self.coordinators[c];
            self.laws.unaware.contains(&Process::Coordinator(c, state.life))
                || state.term.as_ref().is_some_and(|term| self.laws.robbed.contains(&term.epoch))
        };
        let valid: Vec<usize> = (0..self.coordinators.len())
            .filter(|&c| self.coordinators[c].is_valid(self.now_ms) && !robbed(c))
            .collect();
        ensure(valid.len() <= 1, Invariant::OneLeader, || format!("{valid:?} lead at the same time, each by its clock"))
    }

    fn wake_later(&mut self, c: usize) {
        let now_ms = self.now_ms;
        let state = &mut self.coordinators[c];
        let Some(wake_ms) = state.election.as_ref().and_then(Election::wake_ms) else { return };
        let at = state.when(wake_ms).max(now_ms + 1);
        if at != state.wake_at {
            state.wake_at = at;
            let life = state.life;
            self.at(at, Happening::Wake { coordinator: c, life });
        }
    }

    pub fn wake(&mut self, c: usize, life: u64) -> Checked {
        let state = &self.coordinators[c];
        if !state.alive || state.life != life {
            return Ok(());
        }
        if state.stopped_until > self.now_ms {
            self.at(state.stopped_until, Happening::Wake { coordinator: c, life });
            return Ok(());
        }
        self.elect(c, Event::Tick)
    }
}

pub fn unanswered() -> Answer {
    Answer::Failed(ControlError::Unreachable { endpoints: "simulated".to_owned(), cause: "no answer".to_owned() })
}
