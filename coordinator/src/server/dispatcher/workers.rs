//! The workers as seen by the dispatcher: which are registered, which of them receive work, and how one is lost.
//!
//! There is one way to lose a worker, whatever the evidence (its record is gone, its connection broke): `lose`. A lost
//! worker that is still registered is pinged until it answers, and then joins again. A worker that left on purpose is
//! lost once it has sent all its replies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tonic::transport::Channel;
use trawl_cluster_store::Backoff;
use trawl_kernels::BACKEND_CPU;
use trawl_telemetry::metrics::catalogue::coordinator::WorkerState;
use trawl_wire::limits::{PROTOCOL_VERSION, spoken};
use trawl_wire::{WorkerRecord, envelope, pb};

use super::holdings::Reported;
use super::{Ask, News, PING_BACK_OFF, PING_BACK_OFF_MAX, State, WorkerContact};
use crate::membership::Member;
use crate::planner::name_key;
use crate::prepare::PreparedScan;
use crate::scheduler::{ClassId, Event, HostId, Loss, Piece, SHARDS_IN_FLIGHT_PER_WORKER, ScanId, WorkerId};
use crate::server::attempt;
use crate::server::plans_at_worker::PlansAtWorker;
use crate::worker_class::{ClassNeeds, WorkerClass, choose};

/// How long a worker without a record may send no reply before it is lost. One that reaches the store registers again
/// within a fraction of it.
const RECORD_GRACE: Duration = Duration::from_secs(5);

/// A worker whose record is in the store.
pub(super) struct RegisteredWorker {
    pub record: WorkerRecord,
    pub channel: Channel,
    /// The plans that it said it keeps.
    pub plans: Arc<PlansAtWorker>,
    /// Hash of its name.
    pub host: HostId,
    /// Its class, numbered in this term.
    pub class: ClassId,
    /// Its id with the scheduler; `None` while it is lost and pinged.
    pub joined: Option<WorkerId>,
    /// Its results proved wrong: it stays joined and receives nothing.
    pub quarantined: bool,
    /// Its record is gone while replies of it are awaited: it gets nothing more, and is lost once they are complete.
    pub parting: bool,
    /// The record, if the same process has registered again meanwhile.
    pub returned: Option<WorkerRecord>,
    /// Time of its last reply, or of when its record was gone.
    pub heard: Instant,
    /// The task that pings it.
    pub pinging: Option<AbortHandle>,
    /// What it holds, as it last reported.
    pub reported: Reported,
}

impl RegisteredWorker {
    /// Whether it receives work.
    pub fn serves(&self) -> bool {
        self.joined.is_some() && !self.quarantined && !self.record.draining
    }

    /// Notes what it holds; whether that is something else than before.
    pub fn note_report(&mut self, report: pb::CacheReport) -> bool {
        match Reported::of(report) {
            // Shards end side by side, and their last replies may overtake one another.
            Some(reported) if reported.segments() < self.reported.segments() => false,
            Some(reported) => {
                let before = std::mem::replace(&mut self.reported, reported);
                !before.holds_as(&self.reported)
            }
            None => {
                // At each shard: not for an operator.
                tracing::debug!(worker = self.record.id, "what this worker reports to hold is too long");
                false
            }
        }
    }

    /// Its state, for display and metrics.
    pub fn state(&self) -> WorkerState {
        match self {
            Self { quarantined: true, .. } => WorkerState::Quarantined,
            _ if self.record.draining => WorkerState::Draining,
            Self { joined: None, .. } => WorkerState::Lost,
            _ => WorkerState::Serving,
        }
    }
}

impl State {
    /// The class for a scan that starts now; `None` if no worker serves one that it may run in.
    pub(super) fn choose(&mut self, needs: &ClassNeeds) -> Option<WorkerClass> {
        let serving = self.registered.values().filter(|worker| worker.serves());
        self.roster.choice(needs, || choose(serving.map(|worker| &worker.record), needs))
    }

    /// A serving worker of a class, or of the same build with a device.
    pub(super) fn contact(&self, class: &WorkerClass) -> Option<WorkerContact> {
        let of = |worker: &&RegisteredWorker| WorkerClass::of(&worker.record.class);
        let serving = || self.registered.values().filter(|worker| worker.serves());
        let found = serving().find(|worker| of(worker) == *class);
        let found = found.or_else(|| serving().find(|worker| of(worker).on(BACKEND_CPU) == *class))?;
        Some(WorkerContact {
            channel: found.channel.clone(),
            epoch: self.epoch,
            protocol_version: found.record.common_protocol().unwrap_or(PROTOCOL_VERSION),
        })
    }

    /// The workers for a scan: those of its class. Every worker also computes on its CPU, so a CPU scan goes to workers
    /// of the same build with devices if there are no others.
    pub(super) fn class_for(&mut self, prepared: &PreparedScan) -> ClassId {
        let wanted = WorkerClass::of(&prepared.class());
        match self.roster.class(&wanted) {
            Some(class) => class,
            None => {
                let class = self.find_class(wanted.clone());
                self.roster.keep_class(wanted, class);
                class
            }
        }
    }

    fn find_class(&mut self, wanted: WorkerClass) -> ClassId {
        let serving = || self.registered.values().filter(|worker| worker.serves());
        let of = |worker: &RegisteredWorker| WorkerClass::of(&worker.record.class);
        if wanted.backend == BACKEND_CPU && !serving().any(|worker| of(worker) == wanted) {
            let other = serving().find(|worker| of(worker).on(BACKEND_CPU) == wanted).map(|worker| worker.class);
            if let Some(other) = other {
                return other;
            }
        }
        self.class_id(wanted)
    }

    /// The number of a class; a new one if it was not met in this term.
    fn class_id(&mut self, class: WorkerClass) -> ClassId {
        let next = ClassId::try_from(self.classes.len()).unwrap_or(ClassId::MAX);
        *self.classes.entry(class).or_insert(next)
    }

    /// The public description of a worker.
    pub(super) fn info(&self, worker: &RegisteredWorker) -> pb::WorkerInfo {
        let in_flight = worker.joined.map_or(0, |joined| self.scheduler.in_flight(joined));
        let record = &worker.record;
        pb::WorkerInfo {
            id: record.id.clone(),
            address: record.address.clone(),
            boot: record.boot.clone(),
            threads: record.threads,
            shards_in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
            state: worker.state().value().to_owned(),
            execution_class: record.class.to_string(),
            loads: worker.reported.loads,
            cache_bytes: record.cache_bytes,
            device: record.device.as_ref().map_or_else(String::new, |device| device.name.clone()),
            device_memory_bytes: record.device.as_ref().map_or(0, |device| device.memory_bytes),
            device_health: record.device.as_ref().map_or_else(String::new, |device| device.health.clone()),
        }
    }

    pub(super) fn note(&mut self, member: Member) {
        match member {
            Member::Here(record) => {
                let boot = &record.boot;
                if let Some(worker) =
                    self.registered.get_mut(&record.id).filter(|w| w.parting && w.record.boot == *boot)
                {
                    worker.returned = Some(record);
                    return;
                }
                if let Some(why) = unusable(&record) {
                    tracing::warn!(worker = record.id, why, "this worker is given no work");
                    return;
                }
                match attempt::channel_to(&record.address, &self.connector) {
                    Ok(channel) => {
                        let id = record.id.clone();
                        // Replies of a parting process with this id are no longer awaited.
                        self.forget(&id, "it was started anew");
                        tracing::info!(worker = id, address = record.address, "registered");
                        let host = name_key(&id);
                        let class = self.class_id(WorkerClass::of(&record.class));
                        let (leaves, quarantined) = (record.draining, self.quarantined.contains(&host));
                        let worker = RegisteredWorker {
                            record,
                            channel,
                            plans: Arc::default(),
                            host,
                            class,
                            joined: None,
                            quarantined,
                            parting: false,
                            returned: None,
                            heard: Instant::now(),
                            pinging: None,
                            reported: Reported::default(),
                        };
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
                let joined = worker.joined;
                self.roster.changed();
                if let Some(worker) = joined {
                    self.step(Event::WorkerDraining { worker });
                }
            }
            Member::Devices { id, boot, devices } => {
                if let Some(worker) = self.registered.get_mut(&id).filter(|w| w.record.boot == boot) {
                    worker.record.device = devices;
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
                    self.lose_record(&id);
                }
            }
        }
    }

    /// A worker's record is gone: it left, it died, or only its lease ended, as an etcd that does not answer ends it. Its
    /// replies are evidence: while they are awaited it is not lost, unless it does not answer a ping.
    fn lose_record(&mut self, id: &str) {
        let Some(worker) = self.registered.get(id) else { return };
        let (joined, draining) = (worker.joined, worker.record.draining);
        let busy = joined.is_some_and(|joined| self.attempts.has_any(joined));
        if !draining {
            if !busy {
                return self.forget(id, "its record is gone");
            }
            tracing::warn!(worker = id, "its record is gone while it computes: it may finish, and gets nothing more");
            self.ping(id);
            if let Some(worker) = joined {
                self.step(Event::WorkerDraining { worker });
            }
        }
        // The last replies of a worker that leaves may still be in transit; the end of its connection shows when they
        // are complete.
        if let Some(worker) = self.registered.get_mut(id) {
            (worker.parting, worker.heard) = (true, Instant::now());
            self.parting.insert(id.to_owned());
        }
        self.part(id);
    }

    /// Loses workers whose records are gone, that did not leave on purpose, and whose replies have stopped; and those that have
    /// nothing to reply any more, as after the end of their scans.
    pub(super) fn lose_the_silent(&mut self) {
        let silent = |w: &RegisteredWorker| !w.record.draining && w.heard.elapsed() >= RECORD_GRACE;
        for id in self.parting.clone() {
            if self.registered.get(&id).is_some_and(silent) {
                self.lose(&id, "its record is gone and its replies have stopped");
            }
            self.part(&id);
        }
    }

    /// Loses a parting worker that has sent all its replies. At the end of each attempt: it looks at this worker alone.
    pub(super) fn part(&mut self, id: &str) {
        #[cfg(test)]
        {
            self.asked_to_part += 1;
        }
        if !self.parting.contains(id) {
            return;
        }
        let Some(worker) = self.registered.get_mut(id) else { return };
        if worker.joined.is_some_and(|joined| self.attempts.has_any(joined)) {
            return;
        }
        let returned = worker.returned.take();
        self.forget(id, "it left");
        if let Some(record) = returned {
            self.note(Member::Here(record));
        }
    }

    /// Loses a worker whose record is gone.
    fn forget(&mut self, id: &str, reason: &str) {
        self.lose(id, reason);
        self.parting.remove(id);
        if let Some(pinging) = self.registered.remove(id).and_then(|w| w.pinging) {
            pinging.abort();
        }
    }

    /// Notifies scans that no worker serves their class, or that one does again; and, after a while, that another class
    /// could run them.
    pub(super) fn tell_who_waits(&mut self) {
        let mut moves = Vec::new();
        for (&id, scan) in &mut self.scans {
            let waits = self.scheduler.waits_for_workers(id);
            if waits != scan.waits_since.is_some() {
                scan.waits_since = waits.then(Instant::now);
                let class = waits.then(|| scan.submission.prepared.class().to_string());
                let _ = scan.submission.news.send(News::Waits(class));
            }
            if scan.waits_since.is_some_and(|since| since.elapsed() >= scan.submission.class_patience) {
                moves.push((id, scan.submission.needs.clone()));
            }
        }
        for (id, needs) in moves {
            if self.choose(&needs).is_some() {
                self.send_news(id, News::OtherClass);
            }
        }
    }

    pub(super) fn join(&mut self, id: &str) {
        // A worker with damaged data stays out until it is restarted; quarantined hosts are known to the scheduler.
        if self.registered.get(id).is_some_and(|w| w.quarantined && !self.quarantined.contains(&w.host)) {
            return;
        }
        let worker = self.fresh();
        self.roster.changed();
        if let Some(registered) = self.registered.get_mut(id) {
            registered.joined = Some(worker);
            registered.pinging = None;
            let (host, class) = (registered.host, registered.class);
            self.workers.insert(worker, id.to_owned());
            self.ask_what_it_holds(id);
            self.step(Event::WorkerJoined { worker, host, class, slots: SHARDS_IN_FLIGHT_PER_WORKER });
        }
    }

    /// Asks a worker what it holds, once: it may have worked for an earlier leader. Later on it says so with each shard.
    fn ask_what_it_holds(&self, id: &str) {
        let Some(worker) = self.registered.get(id) else { return };
        let (id, boot) = (id.to_owned(), worker.record.boot.clone());
        let (channel, asks) = (worker.channel.clone(), self.asks.clone());
        tokio::spawn(async move {
            let reply = attempt::ping(channel, &boot).await;
            if let (Some(report), Some(asks)) = (reply.and_then(|reply| reply.cache), asks.upgrade()) {
                let _ = asks.send(Ask::Holds { id, boot, report: Box::new(report) }).await;
            }
        });
    }

    /// The one way to lose a worker.
    pub(super) fn lose(&mut self, id: &str, reason: &str) {
        let Some(registered) = self.registered.get_mut(id) else { return };
        let Some(worker) = registered.joined.take() else { return };
        self.roster.changed();
        let loss = if registered.record.draining { Loss::Left } else { Loss::Died };
        match loss {
            Loss::Left => tracing::info!(worker = id, "left"),
            Loss::Died => tracing::warn!(worker = id, reason, "lost a worker"),
        }
        self.workers.remove(&worker);
        let touched: BTreeSet<ScanId> = self.attempts.of(worker).map(|r| r.scan).collect();
        for scan in touched.iter().filter_map(|scan| self.scans.get(scan)) {
            let _ = scan.submission.news.send(News::WorkerLost { worker: id.to_owned() });
        }
        self.step(Event::WorkerLost { worker, loss });
    }

    /// Pings a lost or suspect worker until it answers; a suspect that does not answer is lost.
    pub(super) fn ping(&mut self, id: &str) {
        let Some(worker) = self.registered.get_mut(id).filter(|w| !w.parting) else { return };
        let (id, boot) = (id.to_owned(), worker.record.boot.clone());
        let (channel, asks) = (worker.channel.clone(), self.asks.clone());
        let task = tokio::spawn(async move {
            let mut backoff = Backoff::new(PING_BACK_OFF, PING_BACK_OFF_MAX);
            loop {
                backoff.wait().await;
                if attempt::ping(channel.clone(), &boot).await.is_some() {
                    break;
                }
                // The term is over: the ping is no longer needed.
                let Some(asks) = asks.upgrade() else { return };
                let _ = asks.send(Ask::Silent { id: id.clone(), boot: boot.clone() }).await;
                drop(asks);
            }
            if let Some(asks) = asks.upgrade() {
                let _ = asks.send(Ask::Answers { id, boot }).await;
            }
        });
        if let Some(before) = worker.pinging.replace(task.abort_handle()) {
            before.abort();
        }
    }

    /// Quarantines the workers of a host whose results proved wrong.
    pub(super) fn quarantine(&mut self, host: HostId, scan: ScanId, piece: Piece) {
        self.quarantined.insert(host);
        let Some((id, worker)) = self.registered.iter_mut().find(|(_, w)| w.host == host) else { return };
        worker.quarantined = true;
        self.roster.changed();
        let id = id.clone();
        tracing::error!(
            worker = id,
            segment = piece.segment,
            "this worker's result is wrong, it is given nothing more: check its machine, then start it under another id"
        );
        self.send_news(scan, News::Quarantined { worker: id });
    }
}

/// Why a registered worker cannot run this coordinator's work, if so.
fn unusable(record: &WorkerRecord) -> Option<String> {
    if record.common_protocol().is_none() {
        return Some(format!("it speaks protocol {}, this coordinator {}", record.protocol_version, spoken()));
    }
    let known = [envelope::schema_fingerprint(), envelope::schema_fingerprint_v1()].map(|f| format!("{f:016x}"));
    let mut sent = std::iter::once(&record.result_schema).chain(&record.result_schemas_earlier);
    if !sent.any(|schema| known.contains(schema)) {
        return Some(format!("its results have schema {}, expected {}", record.result_schema, known.join(" or ")));
    }
    // Any engine and numerics: a scan runs in the class of the workers that serve.
    if !WorkerClass::of(&record.class).is_known() {
        return Some(format!("its backend '{}' is not known here", record.class.backend));
    }
    None
}
