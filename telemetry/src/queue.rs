//! The queue of spans on their way to the receiver: bounded, with a task that creates the spans noted earlier and sends
//! batches.
//!
//! Code that ends a span never waits. Spans that do not fit, and spans that the receiver rejects, are counted and lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Counts of spans by what happened to them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    dropped: AtomicU64,
    delivered: AtomicU64,
}

/// Of this process, since it started.
pub(crate) static COUNTS: Counts = Counts { dropped: AtomicU64::new(0), delivered: AtomicU64::new(0) };

/// Spans that this process did not deliver: the queue was full, or the receiver was away. Never decreases.
pub fn dropped_spans() -> u64 {
    COUNTS.dropped.load(Ordering::Relaxed)
}

/// Spans that a receiver accepted. Never decreases.
pub fn delivered_spans() -> u64 {
    COUNTS.delivered.load(Ordering::Relaxed)
}

/// Bounds of the queue; each comes from its standard variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// `OTEL_BSP_MAX_QUEUE_SIZE`.
    pub queue_spans_max: usize,
    /// `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`.
    pub batch_spans_max: usize,
    /// `OTEL_BSP_SCHEDULE_DELAY`: how long after the last batch an incomplete one is sent.
    pub delay: Duration,
    /// `OTEL_BSP_EXPORT_TIMEOUT`: how long sending a batch may take.
    pub export_timeout: Duration,
}

impl Bounds {
    /// From the environment; an invalid value is ignored.
    pub fn from_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let count = |name, default: usize| {
            number(name).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        let ms = |name, default| Duration::from_millis(number(name).unwrap_or(default));
        Self {
            queue_spans_max: count("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
            batch_spans_max: count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            delay: ms("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            export_timeout: ms("OTEL_BSP_EXPORT_TIMEOUT", 30_000),
        }
    }
}

/// Spans that are still to be created.
struct Noted {
    count: usize,
    /// Ends them, which puts them into the queue.
    make: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Noted").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The spans that wait, and the callers of `flush` that wait for them.
#[derive(Debug, Default)]
struct Waiting {
    spans: Vec<SpanData>,
    noted: Vec<Noted>,
    /// Number of spans over all of `noted`.
    noted_spans: usize,
    /// Notified when everything that waits now has been sent.
    flushes: Vec<SyncSender<()>>,
}

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    waiting: Mutex<Waiting>,
    /// Signals a complete batch or a flush. A single span wakes nobody: a scan ends hundreds of them, and waking a
    /// thread costs more than a span does.
    wake: Notify,
}

impl Waiting {
    fn total(&self) -> usize {
        self.spans.len() + self.noted_spans
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end of the queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    counts: &'static Counts,
}

impl Queue {
    /// Starts the task on the current runtime.
    pub fn start(exporter: impl SpanExporter + 'static, bounds: Bounds, counts: &'static Counts) -> Self {
        let queue = Self::idle(bounds, counts);
        tokio::spawn(Sending { exporter, shared: Arc::clone(&queue.shared), counts, failing: false }.run());
        queue
    }

    /// Without the task.
    fn idle(bounds: Bounds, counts: &'static Counts) -> Self {
        // A batch larger than the queue would never be complete.
        let batch_spans_max = bounds.batch_spans_max.min(bounds.queue_spans_max);
        let bounds = Bounds { batch_spans_max, ..bounds };
        let shared = Shared { bounds, waiting: Mutex::default(), wake: Notify::new() };
        Self { shared: Arc::new(shared), counts }
    }

    /// Queues a span, or counts it as lost. Never waits for the receiver.
    pub fn push(&self, span: SpanData) {
        self.take(1, |waiting| waiting.spans.push(span));
    }

    /// Queues `count` spans that `make` will end, or counts them as lost: creating them is the task's work, not the
    /// scan's.
    pub fn note(&self, count: usize, make: impl FnOnce() + Send + 'static) {
        self.take(count, |waiting| {
            waiting.noted.push(Noted { count, make: Box::new(make) });
            waiting.noted_spans += count;
        });
    }

    fn take(&self, count: usize, add: impl FnOnce(&mut Waiting)) {
        let Bounds { queue_spans_max, batch_spans_max, .. } = self.shared.bounds;
        let is_batch = {
            let mut waiting = self.shared.waiting();
            let before = waiting.total();
            if before + count > queue_spans_max {
                self.counts.dropped.fetch_add(count as u64, Ordering::Relaxed);
                return;
            }
            add(&mut waiting);
            before / batch_spans_max < waiting.total() / batch_spans_max
        };
        if is_batch {
            self.shared.wake.notify_one();
        }
    }

    /// Waits until what is in the queue has been sent, or for `bound`; returns whether it was sent.
    pub fn flush(&self, bound: Duration) -> bool {
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        self.shared.waiting().flushes.push(done);
        self.shared.wake.notify_one();
        is_done.recv_timeout(bound).is_ok()
    }
}

/// State of the task.
struct Sending<E> {
    exporter: E,
    shared: Arc<Shared>,
    counts: &'static Counts,
    /// Whether the last batch was lost: only the first failure is logged, not every batch.
    failing: bool,
}

impl<E: SpanExporter> Sending<E> {
    async fn run(mut self) {
        let Bounds { batch_spans_max, delay, .. } = self.shared.bounds;
        loop {
            let is_due = timeout(delay, self.shared.wake.notified()).await.is_err();
            let (noted, flushes) = {
                let mut waiting = self.shared.waiting();
                waiting.noted_spans = 0;
                (std::mem::take(&mut waiting.noted), std::mem::take(&mut waiting.flushes))
            };
            noted.into_iter().for_each(|noted| (noted.make)());
            let all = self.shared.waiting().spans.len();
            let mut left = if is_due || !flushes.is_empty() { all } else { all - all % batch_spans_max };
            while left > 0 {
                let count = left.min(batch_spans_max);
                left -= count;
                let batch = self.shared.waiting().spans.drain(..count).collect();
                self.send(batch).await;
            }
            for done in flushes {
                let _ = done.try_send(());
            }
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let (count, bound) = (batch.len() as u64, self.shared.bounds.export_timeout);
        let sent = match timeout(bound, self.exporter.export(batch)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", bound.as_secs_f64())),
        };
        match sent {
            Ok(()) => {
                self.counts.delivered.fetch_add(count, Ordering::Relaxed);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(lost = self.counts.dropped.load(Ordering::Relaxed), "traces are delivered again");
                }
            }
            Err(why) => {
                let lost = self.counts.dropped.fetch_add(count, Ordering::Relaxed) + count;
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(lost, why, "traces cannot be delivered; scans are not affected");
                }
            }
        }
    }
}

/// A queue without a task, and a way to see what was put into it so far.
#[cfg(test)]
pub(crate) fn recorded(spans_max: usize) -> (Queue, impl Fn() -> Vec<SpanData>) {
    let bounds = Bounds { queue_spans_max: spans_max, ..Bounds::from_environment() };
    let queue = Queue::idle(bounds, Box::leak(Box::default()));
    let shared = Arc::clone(&queue.shared);
    (queue, move || shared.waiting().spans.clone())
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;
    use crate::tail_sampling::Keeper;

    /// What a receiver does with successive batches.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Does {
        Takes,
        Refuses,
        Hangs,
    }

    #[derive(Debug, Clone)]
    struct Receiver(Arc<Mutex<(Vec<Does>, Vec<usize>)>>);

    impl SpanExporter for Receiver {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let does = {
                let mut state = self.0.lock().unwrap();
                state.1.push(batch.len());
                if state.0.is_empty() { Does::Takes } else { state.0.remove(0) }
            };
            match does {
                Does::Takes => Ok(()),
                Does::Refuses => Err(OTelSdkError::InternalFailure("garbage".to_owned())),
                Does::Hangs => std::future::pending().await,
            }
        }
    }

    fn spans(count: usize) -> Vec<SpanData> {
        let (queue, sent) = recorded(count);
        let provider = SdkTracerProvider::builder().with_span_processor(Keeper::new(queue)).build();
        (0..count).for_each(|_| provider.tracer("t").start("x").end());
        sent()
    }

    #[test]
    fn a_hanging_receiver_delays_nothing_and_lost_spans_are_counted() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let batches = vec![Does::Takes, Does::Refuses, Does::Hangs, Does::Takes];
        let receiver = Receiver(Arc::new(Mutex::new((batches, Vec::new()))));
        let bounds = Bounds {
            queue_spans_max: 8,
            batch_spans_max: 4,
            delay: Duration::from_secs(3600),
            export_timeout: Duration::from_millis(50),
        };
        let queue = {
            let _inside = runtime.enter();
            Queue::start(receiver.clone(), bounds, Box::leak(Box::default()))
        };
        let counts = queue.counts;
        let counted = || (counts.delivered.load(Ordering::Relaxed), counts.dropped.load(Ordering::Relaxed));
        let far = Duration::from_secs(30);
        for span in spans(4) {
            queue.push(span);
        }
        assert!(queue.flush(far));
        assert_eq!(counted(), (4, 0));
        spans(3).into_iter().for_each(|span| queue.push(span));
        assert!(queue.flush(far), "what is refused is over too");
        assert_eq!(counted(), (4, 3));
        spans(3).into_iter().for_each(|span| queue.push(span));
        let started = std::time::Instant::now();
        assert!(!queue.flush(Duration::from_millis(1)), "it hangs");
        assert!(started.elapsed() < far);
        assert!(queue.flush(far));
        assert_eq!(counted(), (4, 6), "given up after its time");
        spans(1).into_iter().for_each(|span| queue.push(span));
        assert!(queue.flush(far));
        assert_eq!(counted(), (5, 6));
        assert_eq!(receiver.0.lock().unwrap().1, [4, 3, 3, 1]);
    }

    #[test]
    fn spans_go_out_in_batches_or_when_they_have_waited_long_enough() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let receiver = Receiver(Arc::default());
        let bounds = Bounds {
            queue_spans_max: 64,
            batch_spans_max: 4,
            delay: Duration::from_millis(300),
            export_timeout: Duration::from_secs(5),
        };
        let queue = {
            let _inside = runtime.enter();
            Queue::start(receiver.clone(), bounds, Box::leak(Box::default()))
        };
        let batches = || receiver.0.lock().unwrap().1.clone();
        let wait = |count: usize| {
            let started = std::time::Instant::now();
            while batches().iter().sum::<usize>() < count && started.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        spans(9).into_iter().for_each(|span| queue.push(span));
        wait(8);
        assert_eq!(batches()[..2], [4, 4], "a batch does not wait");
        wait(9);
        assert_eq!(batches(), [4, 4, 1], "the last one is not requested");
        spans(2).into_iter().for_each(|span| queue.push(span));
        wait(11);
        assert_eq!(batches(), [4, 4, 1, 2]);
    }

    #[test]
    fn noted_spans_are_created_by_the_task_and_counted_when_noted() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let receiver = Receiver(Arc::default());
        let bounds = Bounds {
            queue_spans_max: 8,
            batch_spans_max: 4,
            delay: Duration::from_secs(3600),
            export_timeout: Duration::from_secs(5),
        };
        let queue = Queue::idle(bounds, Box::leak(Box::default()));
        let note = |count: usize| {
            let (again, made) = (queue.clone(), spans(count));
            queue.note(count, move || made.into_iter().for_each(|span| again.push(span)));
        };
        note(6);
        spans(1).into_iter().for_each(|span| queue.push(span));
        note(2);
        assert_eq!(queue.counts.dropped.load(Ordering::Relaxed), 2, "one of two would fit");
        {
            let _inside = runtime.enter();
            let (shared, counts) = (Arc::clone(&queue.shared), queue.counts);
            tokio::spawn(Sending { exporter: receiver.clone(), shared, counts, failing: false }.run());
        }
        assert!(queue.flush(Duration::from_secs(30)));
        assert_eq!(receiver.0.lock().unwrap().1, [4, 3]);
        assert_eq!(queue.counts.delivered.load(Ordering::Relaxed), 7);
        note(8);
        assert!(queue.flush(Duration::from_secs(30)), "there is room again");
        assert_eq!(receiver.0.lock().unwrap().1, [4, 3, 4, 4]);
    }

    #[test]
    fn a_batch_that_is_larger_than_the_queue_is_a_full_queue() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let receiver = Receiver(Arc::default());
        let hour = Duration::from_secs(3600);
        let bounds = Bounds { queue_spans_max: 3, batch_spans_max: 512, delay: hour, export_timeout: hour };
        let queue = {
            let _inside = runtime.enter();
            Queue::start(receiver.clone(), bounds, Box::leak(Box::default()))
        };
        spans(3).into_iter().for_each(|span| queue.push(span));
        let started = std::time::Instant::now();
        while receiver.0.lock().unwrap().1.is_empty() && started.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(receiver.0.lock().unwrap().1, [3]);
    }

    #[test]
    fn a_full_queue_loses_and_counts() {
        let (queue, sent) = recorded(2);
        spans(5).into_iter().for_each(|span| queue.push(span));
        assert_eq!(sent().len(), 2);
        assert_eq!(queue.counts.dropped.load(Ordering::Relaxed), 3);
    }
}
