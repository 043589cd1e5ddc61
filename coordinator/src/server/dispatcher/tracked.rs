//! Tracing of attempts: a span for each, linked to earlier attempts, with the time its work had waited and the time
//! after which it counts as slow.
//!
//! It decides nothing; without an exporter it costs a few clock reads per attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use trawl_telemetry::names::{attribute, span as name};
use trawl_telemetry::spans::{self, KeyValue, SpanContext};
use trawl_wire::{Failure, pb, trace};
use trawl_worker::timeline::cache_name;

use super::{News, State, Submission};
use crate::report::RunPurpose;
use crate::scheduler::{AttemptId, Piece, ScanId};

/// Maximum number of earlier attempts that a span links to.
const LINKS_MAX: usize = 8;

/// Earlier attempts at a scan's work.
pub(super) struct History {
    begun: Instant,
    /// Per segment returned unanswered: when, and by which attempt.
    given_back: BTreeMap<u32, (Instant, AttemptId)>,
    /// Span contexts of attempts that returned work unanswered.
    attempts: BTreeMap<AttemptId, SpanContext>,
}

impl History {
    pub fn new() -> Self {
        Self { begun: Instant::now(), given_back: BTreeMap::new(), attempts: BTreeMap::new() }
    }

    fn give_back(&mut self, attempt: AttemptId, segments: &[u32], context: Option<SpanContext>) {
        let now = Instant::now();
        self.given_back.extend(segments.iter().map(|segment| (*segment, (now, attempt))));
        self.attempts.extend(context.map(|context| (attempt, context)));
    }

    /// How long `segments` have waited, and the spans of the attempts that had them before.
    fn of(&self, segments: &[u32]) -> (Duration, Vec<SpanContext>) {
        let (mut since, mut before) = (self.begun, BTreeSet::new());
        if !self.given_back.is_empty() {
            for (at, attempt) in segments.iter().filter_map(|segment| self.given_back.get(segment)) {
                since = since.max(*at);
                before.insert(*attempt);
            }
        }
        let before = before.iter().filter_map(|attempt| self.attempts.get(attempt).cloned());
        (since.elapsed(), before.take(LINKS_MAX).collect())
    }
}

/// The tracing state of a running attempt.
pub(super) struct Tracked {
    /// Ends with the last reply, or with the attempt.
    span: Option<tracing::Span>,
    segments: Vec<u32>,
    /// Number of pieces without a reply.
    left: usize,
    /// Number of failed segments.
    failed: u32,
    started: Instant,
    slow_after: Option<Duration>,
    purpose: RunPurpose,
    /// Whether it was hedged.
    hedged: bool,
}

/// A new attempt to be traced.
pub(super) struct Launch<'a> {
    pub attempt: AttemptId,
    pub scan: ScanId,
    pub worker: &'a str,
    /// `HOST:PORT`.
    pub address: &'a str,
    pub segments: Vec<u32>,
    pub pieces: usize,
    pub purpose: RunPurpose,
}

impl Tracked {
    /// Its span context, which its request carries.
    pub fn context(&self) -> Option<pb::TraceContext> {
        self.span.as_ref().and_then(trace::context_of)
    }

    pub fn slow_after(&self) -> Option<Duration> {
        self.slow_after
    }

    /// Records the timings reported by the worker.
    fn timed(&self, timings: &pb::ShardTimings) {
        let Some(span) = self.span.as_ref().filter(|_| spans::exporting()) else { return };
        let cache = cache_name(timings.from_device, timings.from_memory, timings.from_disk);
        let cache = cache.map(|level| KeyValue::new(attribute::CACHE, level));
        spans::set(
            span,
            [
                KeyValue::new(attribute::SYMBOLS, spans::number(timings.symbols)),
                KeyValue::new(attribute::BARS, spans::number(timings.bars)),
                KeyValue::new(attribute::BYTES, spans::number(timings.bytes)),
                KeyValue::new(attribute::DEVICE, timings.device.clone()),
            ]
            .into_iter()
            .chain(cache)
            .chain(sums(timings)),
        );
    }

    /// Ends the span with `ending`; only the first call has an effect.
    pub fn end(&mut self, ending: &str) {
        let Some(span) = self.span.take().filter(|_| spans::exporting()) else { return };
        let slow = self.slow_after.is_some_and(|limit| self.started.elapsed() >= limit);
        let (kind, why) = ending.split_once(": ").unwrap_or((ending, ""));
        let kind = match kind {
            "refused" => Some("refused"),
            "broken" => Some("broken"),
            _ => None,
        };
        if let Some(kind) = kind {
            spans::fail(&span, kind, why.to_owned());
        } else if self.failed > 0 {
            spans::fail(&span, "segment_failed", format!("{} of {} segments failed", self.failed, self.segments.len()));
        }
        let ending = match kind {
            None if self.failed > 0 => "failed",
            Some(kind) => kind,
            None if ending == "stopped" => "stopped",
            None => "done",
        };
        spans::set(&span, [KeyValue::new(attribute::ENDING, ending), KeyValue::new(attribute::SLOW, slow)]);
        if slow || self.hedged || self.purpose == RunPurpose::Hedge || kind.is_some() || self.failed > 0 {
            spans::keep(&span);
        }
    }
}

impl State {
    /// Starts to trace an attempt; returns the state and how long its work had waited.
    pub(super) fn track(&mut self, launch: Launch<'_>) -> (Tracked, Duration) {
        let Launch { attempt, scan, worker, address, segments, pieces, purpose } = launch;
        let slow_after = self.scheduler.slow_after_ms(attempt).map(Duration::from_millis);
        let hedge = purpose == RunPurpose::Hedge;
        let (mut late, mut queued, mut earlier) = (Vec::new(), Duration::ZERO, Vec::new());
        if hedge {
            let its = self.scans.get(&scan).map(|scan| &scan.attempts);
            for attempt in its.into_iter().flatten() {
                let Some(tracked) = self.attempts.get_mut(*attempt).map(|running| &mut running.tracked) else {
                    continue;
                };
                if tracked.segments.iter().any(|segment| segments.contains(segment)) {
                    tracked.hedged = true;
                    late.extend(tracked.span.as_ref().and_then(spans::context));
                }
            }
        } else if let Some(scan) = self.scans.get(&scan) {
            (queued, earlier) = scan.history.of(&segments);
        }
        let submission = self.scans.get(&scan).map(|scan| &scan.submission);
        let span = submission.map_or_else(tracing::Span::none, |of| {
            let span = tracing::info_span!(
                name::SHARD,
                otel.kind = "client",
                { attribute::SCAN_ID } = of.scan_name,
                { attribute::ATTEMPT } = spans::number(attempt),
                { attribute::WORKER } = worker,
            );
            trace::set_parent(&span, [of.trace.as_ref(), None]);
            if spans::exporting() {
                describe(&span, of, (address, &segments, purpose), (queued, slow_after));
                late.into_iter().take(LINKS_MAX).for_each(|context| spans::link(&span, context, "hedge"));
                earlier.into_iter().for_each(|context| spans::link(&span, context, "retry"));
            }
            span
        });
        let started = Instant::now();
        let (span, left) = (Some(span), pieces);
        (Tracked { span, segments, left, failed: 0, started, slow_after, purpose, hedged: false }, queued)
    }

    /// Records a reply of an attempt.
    pub(super) fn track_reply(
        &mut self,
        (attempt, scan): (AttemptId, ScanId),
        piece: Piece,
        failure: Option<&Failure>,
        timings: Option<Box<pb::ShardTimings>>,
    ) {
        let Some(running) = self.attempts.get_mut(attempt) else { return };
        let tracked = &mut running.tracked;
        if let Some(timings) = &timings {
            tracked.timed(timings);
        }
        if failure.is_some() {
            tracked.failed += 1;
            let context = tracked.span.as_ref().and_then(spans::context);
            if let Some(scan) = self.scans.get_mut(&scan) {
                scan.history.give_back(attempt, &[piece.segment], context);
            }
        }
        tracked.left = tracked.left.saturating_sub(1);
        if tracked.left == 0 {
            tracked.end("done");
        }
        if let Some(timings) = timings {
            self.send_news(scan, News::Timed { attempt, timings });
        }
    }

    /// Records the end of an attempt with unanswered pieces, which other attempts will run.
    pub(super) fn track_loss(&mut self, attempt: AttemptId, scan: ScanId, tracked: &mut Tracked, ending: &str) {
        let context = tracked.span.as_ref().and_then(spans::context);
        if let (true, Some(scan)) = (tracked.left > 0, self.scans.get_mut(&scan)) {
            scan.history.give_back(attempt, &tracked.segments, context);
        }
        tracked.end(ending);
    }
}

/// The time of each stage that a worker reports, in the order of the stages.
fn sums(timings: &pb::ShardTimings) -> impl Iterator<Item = KeyValue> {
    let names = [
        (name::RECEIVE, attribute::RECEIVE_MS),
        (name::QUEUE, attribute::THREADS_MS),
        (name::LOAD, attribute::LOAD_MS),
        (name::H2D, attribute::H2D_MS),
        (name::KERNEL, attribute::KERNEL_MS),
        (name::D2H, attribute::D2H_MS),
        (name::ENCODE, attribute::ENCODE_MS),
    ];
    names.into_iter().filter_map(|(stage, attribute)| {
        let mut parts = timings.stages.iter().filter(|timing| timing.stage == stage).peekable();
        parts.peek()?;
        let busy_us = parts.fold(0u64, |sum, timing| sum.saturating_add(timing.busy_us));
        Some(KeyValue::new(attribute, busy_us as f64 / 1e3))
    })
}

fn describe(
    span: &tracing::Span,
    of: &Submission,
    (address, segments, purpose): (&str, &[u32], RunPurpose),
    (queued, slow_after): (Duration, Option<Duration>),
) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    spans::set(
        span,
        [
            KeyValue::new(attribute::RPC_SYSTEM, "grpc"),
            KeyValue::new(attribute::RPC_METHOD, "trawl.v1.Worker/Execute"),
            KeyValue::new(attribute::SERVER_ADDRESS, host.trim_matches(['[', ']']).to_owned()),
            KeyValue::new(attribute::STEP, i64::from(of.number) + 1),
            KeyValue::new(attribute::SEGMENTS, spans::number(segments.len() as u64)),
            KeyValue::new(attribute::PURPOSE, purpose.name()),
            KeyValue::new(attribute::HEDGE, purpose == RunPurpose::Hedge),
            KeyValue::new(attribute::QUEUE_MS, queued.as_secs_f64() * 1e3),
        ]
        .into_iter()
        .chain(port.parse::<u16>().ok().map(|port| KeyValue::new(attribute::SERVER_PORT, i64::from(port))))
        .chain(segments.first().map(|first| KeyValue::new(attribute::SHARD, i64::from(*first))))
        .chain(slow_after.map(|limit| KeyValue::new(attribute::SLOW_AFTER_MS, limit.as_secs_f64() * 1e3))),
    );
}
