//! Gatherings one after the other, each with a deadline. A communicator's collectives have to be enqueued in the same order on
//! all devices, so one thread enqueues them. A gathering that fails or is late is aborted, and the next one connects
//! anew, a few times. Whoever asked gets an error and gathers on the host.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cuda::collective::{Collective, Connect, RankPart};
use crate::cuda::device::{Device, Stream, Urgency};
use crate::cuda::execute::transfer::{DeviceBuffer, OwnMark};

/// How long a gathering may take, from its turn on.
pub(super) const GATHER_TIME_MAX: Duration = Duration::from_secs(5);
/// Gatherings that may wait for their turn.
const WAITING_MAX: usize = 8;
/// How often devices are connected again after a failure.
const RECONNECTS_MAX: u64 = 3;
/// How long each device is waited for before the next one is asked.
const TURN: Duration = Duration::from_millis(1);
/// How long an asker waits beyond the deadline for the thread to abort, for each gathering that may be before it.
const GRACE: Duration = Duration::from_secs(1);

/// The part of a device in a gathering. The queue holds the memory for as long as the device may access it.
#[derive(Debug, Clone)]
pub(super) struct GatherPart {
    pub device: Arc<dyn Device>,
    pub send: Arc<DeviceBuffer>,
    pub receive: Arc<DeviceBuffer>,
}

#[derive(Debug)]
struct Job {
    parts: Vec<GatherPart>,
    cells: usize,
    reply: SyncSender<Result<(), String>>,
}

/// Connected devices, by their numbers.
type Connected = (Vec<usize>, Arc<dyn Collective>);

/// What askers and the thread share.
#[derive(Debug, Default)]
struct Shared {
    connected: Mutex<Option<Connected>>,
    /// Why there are no more gatherings.
    over: Mutex<Option<String>>,
    is_over: AtomicBool,
    failures: AtomicU64,
    /// Gatherings that were asked for and have not ended.
    pending: AtomicU32,
}

impl Shared {
    fn connected(&self) -> MutexGuard<'_, Option<Connected>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: &str) {
        self.over.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_owned());
        self.is_over.store(true, Ordering::Release);
    }

    /// Ends what is under way, and forgets the communicator.
    fn abort(&self) {
        if let Some((_, collective)) = self.connected().take() {
            collective.abort();
        }
    }
}

/// The gatherings of a process's devices.
#[derive(Debug)]
pub(super) struct GatherQueue {
    jobs: Option<SyncSender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    time_max: Duration,
}

impl GatherQueue {
    /// # Errors
    /// No thread could be started.
    pub fn new(connect: Box<dyn Connect>, time_max: Duration) -> Result<Self, String> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let shared = Arc::new(Shared::default());
        let worker = Worker { connect, shared: Arc::clone(&shared), streams: Vec::new(), time_max };
        let thread = std::thread::Builder::new().name("trawl-gather".to_owned());
        let thread = thread.spawn(move || worker.run(&waiting)).map_err(|e| format!("the thread that gathers: {e}"))?;
        Ok(Self { jobs: Some(jobs), shared, thread: Some(thread), time_max })
    }

    /// Why there are no more gatherings; `None` while there are.
    pub fn over(&self) -> Option<String> {
        self.shared.over.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gathers the first `cells` cells of each device's `send` in all of their `receive`, and waits for it.
    ///
    /// # Errors
    /// A sentence; `receive` is then undefined, and `send` as it was.
    pub fn gather(&self, parts: Vec<GatherPart>, cells: usize) -> Result<(), String> {
        if self.shared.is_over.load(Ordering::Acquire) {
            return Err(self.over().unwrap_or_default());
        }
        let (reply, answer) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or("the devices are closed")?;
        let turns = self.shared.pending.fetch_add(1, Ordering::AcqRel) + 1;
        if jobs.try_send(Job { parts, cells, reply }).is_err() {
            self.shared.pending.fetch_sub(1, Ordering::AcqRel);
            return Err("too many gatherings wait for their turn".to_owned());
        }
        // The thread keeps the deadline itself, unless it is in a call that does not return.
        match answer.recv_timeout((self.time_max + GRACE) * turns) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err("the thread that gathers has ended".to_owned()),
            Err(RecvTimeoutError::Timeout) => {
                self.shared.end("a call of the library did not return");
                self.shared.abort();
                Err("a call of the library did not return".to_owned())
            }
        }
    }
}

impl Drop for GatherQueue {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // A thread in a call that does not return is left behind.
        if let Some(thread) = self.thread.take().filter(|_| !self.shared.is_over.load(Ordering::Acquire)) {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

/// The thread that enqueues.
struct Worker {
    connect: Box<dyn Connect>,
    shared: Arc<Shared>,
    /// A stream for each device, by its number.
    streams: Vec<(usize, Stream)>,
    time_max: Duration,
}

impl Worker {
    fn run(mut self, waiting: &Receiver<Job>) {
        for job in waiting {
            let done = self.gather(&job);
            if let Err(why) = &done {
                let failures = self.shared.failures.fetch_add(1, Ordering::Relaxed) + 1;
                self.shared.abort();
                if failures > RECONNECTS_MAX {
                    self.shared.end(&format!("{failures} gatherings failed, the last one: {why}"));
                }
            }
            let is_over = self.shared.is_over.load(Ordering::Acquire);
            self.shared.pending.fetch_sub(1, Ordering::AcqRel);
            let Job { parts, reply, .. } = job;
            // Whoever is answered may count on the memory being its own again.
            drop(parts);
            // Fails only if nobody waits any more.
            let _ = reply.send(done);
            if is_over {
                break;
            }
        }
        // Released here, and not by whoever aborts.
        drop(self.shared.connected().take());
    }

    /// The communicator of these devices, connected if necessary.
    fn connected(&self, ordinals: &[usize]) -> Result<Arc<dyn Collective>, String> {
        let known = self.shared.connected().take();
        if let Some((connected, collective)) = known {
            if connected == ordinals {
                *self.shared.connected() = Some((connected, Arc::clone(&collective)));
                return Ok(collective);
            }
            // Of devices of which one was lost.
            collective.abort();
        }
        let collective: Arc<dyn Collective> = Arc::from(self.connect.connect(ordinals)?);
        *self.shared.connected() = Some((ordinals.to_vec(), Arc::clone(&collective)));
        Ok(collective)
    }

    fn stream_of(&mut self, device: &Arc<dyn Device>) -> Result<Stream, String> {
        let ordinal = device.facts().ordinal;
        if let Some((_, stream)) = self.streams.iter().find(|(known, _)| *known == ordinal) {
            return Ok(*stream);
        }
        let stream = device.stream(Urgency::Interactive).map_err(|fault| fault.to_string())?;
        self.streams.push((ordinal, stream));
        Ok(stream)
    }

    fn gather(&mut self, job: &Job) -> Result<(), String> {
        let until = Instant::now() + self.time_max;
        let ordinals: Vec<usize> = job.parts.iter().map(|part| part.device.facts().ordinal).collect();
        let streams: Result<Vec<Stream>, String> = job.parts.iter().map(|part| self.stream_of(&part.device)).collect();
        let streams = streams?;
        let collective = self.connected(&ordinals)?;
        let ranks: Vec<RankPart<'_>> = job
            .parts
            .iter()
            .zip(&streams)
            .map(|(part, stream)| RankPart {
                stream: *stream,
                send: part.send.memory(),
                receive: part.receive.memory(),
            })
            .collect();
        let enqueued = collective.all_gather(&ranks, job.cells);
        let marks: Vec<Result<OwnMark, String>> = job
            .parts
            .iter()
            .zip(&streams)
            .map(|(part, stream)| OwnMark::new(&part.device, *stream).map_err(|fault| fault.to_string()))
            .collect();
        let waited = enqueued.and_then(|()| all_reached(&marks, until, || collective.check()));
        if waited.is_ok() {
            return waited;
        }
        // The kernels of an aborted communicator end; memory that one of them may still access is never released.
        collective.abort();
        if all_reached(&marks, Instant::now() + GRACE, || Ok(())).is_err() {
            self.shared.end("a device does not end what was aborted");
            std::mem::forget(job.parts.clone());
        }
        waited
    }
}

/// Waits until all marks are reached, while `check` finds nothing wrong.
fn all_reached(
    marks: &[Result<OwnMark, String>],
    until: Instant,
    check: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    let mut left: Vec<&OwnMark> = Vec::with_capacity(marks.len());
    for mark in marks {
        left.push(mark.as_ref().map_err(Clone::clone)?);
    }
    loop {
        let mut later = Vec::new();
        for mark in left {
            if !mark.wait_for(TURN).map_err(|fault| fault.to_string())? {
                later.push(mark);
            }
        }
        if later.is_empty() {
            return Ok(());
        }
        check()?;
        if Instant::now() >= until {
            return Err("the devices did not gather in time".to_owned());
        }
        left = later;
    }
}
