//! Tail sampling: which spans leave the process. Those of traces that the head sampler chose, and those of traces that
//! turned out to matter.
//!
//! The head decides by `OTEL_TRACES_SAMPLER` when a trace begins. Spans of unsampled traces are recorded all the same
//! and wait in a bounded buffer until the trace is marked to be kept (a shard was slow, failed or was hedged), or until
//! the buffer is full and theirs is the oldest trace. With `always_off` and `parentbased_always_off` nothing is
//! recorded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceFlags, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample, Span, SpanData, SpanProcessor};

use crate::queue::Queue;

/// Spans of unsampled traces that wait for a decision; when there are more, the oldest trace is dropped first.
pub const UNDECIDED_SPANS_MAX: usize = 8192;
/// Traces that are remembered as kept: further spans of them may still end.
pub const KEPT_TRACES_MAX: usize = 1024;

/// Applies the head's decision, but also records what the head did not sample.
#[derive(Debug, Clone)]
pub(crate) struct Recording(pub Box<dyn ShouldSample>);

impl ShouldSample for Recording {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.0.should_sample(parent, trace, name, kind, attributes, links);
        if result.decision == SamplingDecision::Drop {
            result.decision = SamplingDecision::RecordOnly;
        }
        result
    }
}

/// Sits between the spans that end and the queue that sends them. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    queue: Queue,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Undecided spans, by trace.
    undecided: BTreeMap<[u8; 16], Vec<SpanData>>,
    /// Traces in order of arrival.
    order: VecDeque<[u8; 16]>,
    spans: usize,
    kept: BTreeSet<[u8; 16]>,
    kept_order: VecDeque<[u8; 16]>,
}

impl State {
    fn wait(&mut self, trace: [u8; 16], span: SpanData) {
        while self.spans >= UNDECIDED_SPANS_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.spans -= self.undecided.remove(&oldest).map_or(0, |spans| spans.len());
        }
        let spans = self.undecided.entry(trace).or_insert_with(|| {
            self.order.push_back(trace);
            Vec::new()
        });
        spans.push(span);
        self.spans += 1;
    }

    fn keep(&mut self, trace: [u8; 16]) -> Vec<SpanData> {
        if !self.kept.insert(trace) {
            return Vec::new();
        }
        self.kept_order.push_back(trace);
        if self.kept_order.len() > KEPT_TRACES_MAX
            && let Some(oldest) = self.kept_order.pop_front()
        {
            self.kept.remove(&oldest);
        }
        let spans = self.undecided.remove(&trace).unwrap_or_default();
        self.order.retain(|t| *t != trace);
        self.spans -= spans.len();
        spans
    }
}

impl Keeper {
    pub fn new(queue: Queue) -> Self {
        Self { queue, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts `count` spans that `make` will end later.
    pub fn note(&self, count: usize, make: impl FnOnce() + Send + 'static) {
        self.queue.note(count, make);
    }

    /// Sends the buffered spans of a trace, and all that are still to come.
    pub fn keep(&self, trace: TraceId) {
        let spans = self.state().keep(trace.to_bytes());
        spans.into_iter().for_each(|span| self.queue.push(sampled(span)));
    }
}

/// Marks a span as sampled: receivers treat one that is marked as not sampled as an error.
fn sampled(mut span: SpanData) -> SpanData {
    let context = &span.span_context;
    let (flags, state) = (context.trace_flags() | TraceFlags::SAMPLED, context.trace_state().clone());
    span.span_context = SpanContext::new(context.trace_id(), context.span_id(), flags, false, state);
    span
}

impl SpanProcessor for Keeper {
    fn on_start(&self, _span: &mut Span, _within: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            return self.queue.push(span);
        }
        let trace = span.span_context.trace_id().to_bytes();
        {
            let mut state = self.state();
            if !state.kept.contains(&trace) {
                return state.wait(trace, span);
            }
        }
        self.queue.push(sampled(span));
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span as _, Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

    use super::*;
    use crate::queue;

    fn provider(keeper: &Keeper, head: Sampler) -> SdkTracerProvider {
        let sampler: Box<dyn ShouldSample> = Box::new(Recording(Box::new(head)));
        SdkTracerProvider::builder().with_sampler(sampler).with_span_processor(keeper.clone()).build()
    }

    #[test]
    fn unsampled_spans_are_sent_when_their_trace_is_kept_and_not_before() {
        let (queue, sent) = queue::recorded(64);
        let keeper = Keeper::new(queue);
        let tracer = provider(&keeper, Sampler::TraceIdRatioBased(0.0)).tracer("t");
        let names = || sent().into_iter().map(|span| span.name.into_owned()).collect::<Vec<_>>();
        let mut first = tracer.start("slow");
        let trace = first.span_context().trace_id();
        first.end();
        tracer.start("quick").end();
        assert!(names().is_empty());
        keeper.keep(trace);
        keeper.keep(trace);
        assert_eq!(names(), ["slow"]);
        assert!(sent().iter().all(|span| span.span_context.is_sampled()));
        // What ends later follows.
        let parent =
            SpanContext::new(trace, first.span_context().span_id(), TraceFlags::NOT_SAMPLED, true, <_>::default());
        let within = opentelemetry::trace::TraceContextExt::with_remote_span_context(&Context::new(), parent);
        tracer.start_with_context("later", &within).end();
        assert_eq!(names(), ["slow", "later"]);
    }

    #[test]
    fn undecided_spans_are_bounded_and_the_oldest_trace_is_dropped_first() {
        let (queue, sent) = queue::recorded(UNDECIDED_SPANS_MAX * 2);
        let keeper = Keeper::new(queue);
        let tracer = provider(&keeper, Sampler::AlwaysOff).tracer("t");
        let traces: Vec<TraceId> = (0..=UNDECIDED_SPANS_MAX)
            .map(|_| {
                let mut span = tracer.start("x");
                span.end();
                span.span_context().trace_id()
            })
            .collect();
        assert_eq!(keeper.state().spans, UNDECIDED_SPANS_MAX);
        keeper.keep(traces[0]);
        assert!(sent().is_empty(), "the oldest is gone");
        keeper.keep(traces[UNDECIDED_SPANS_MAX]);
        assert_eq!(sent().len(), 1);
        traces.iter().for_each(|trace| keeper.keep(*trace));
        let state = keeper.state();
        assert_eq!((state.kept.len(), state.kept_order.len(), state.spans), (KEPT_TRACES_MAX, KEPT_TRACES_MAX, 0));
    }

    #[test]
    fn sampled_spans_are_sent_at_once() {
        let (queue, sent) = queue::recorded(4);
        let keeper = Keeper::new(queue);
        let tracer = provider(&keeper, Sampler::AlwaysOn).tracer("t");
        tracer.start("x").end();
        assert_eq!(sent().len(), 1);
    }
}
