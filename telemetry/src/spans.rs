//! Spans that the macros of `tracing` cannot make: with past times, with links, with a sampling decision at their end.
//!
//! Without an exporter every function here returns at once.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::Context;
pub use opentelemetry::trace::SpanContext;
use opentelemetry::trace::{Span as _, Status, TraceContextExt as _, Tracer as _};
pub use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_sdk::trace::SdkTracer;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::names::attribute;
use crate::tail_sampling::Keeper;

/// Longest that reading both clocks may take for the pair to be used; otherwise they are read again.
const ANCHOR_WINDOW: Duration = Duration::from_micros(50);
/// How many times they are read again.
const ANCHOR_TRIES: u32 = 4;

/// The pipeline of finished spans, once export has started.
static EXPORT: OnceLock<(SdkTracer, Keeper)> = OnceLock::new();

pub(crate) fn install(tracer: SdkTracer, keeper: Keeper) {
    let _ = EXPORT.set((tracer, keeper));
}

/// Whether spans are exported at all.
pub fn exporting() -> bool {
    EXPORT.get().is_some()
}

/// A finished span.
#[derive(Debug, Clone)]
pub struct Finished {
    /// One of [`crate::names::span`].
    pub name: &'static str,
    /// When it began.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Keys from [`crate::names::attribute`].
    pub attributes: Vec<KeyValue>,
}

/// Both clocks at one moment: past spans are given in the host's time of day.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    instant: Instant,
    time: SystemTime,
}

impl Anchor {
    fn now() -> Self {
        let mut best: Option<(Duration, Self)> = None;
        for _ in 0..ANCHOR_TRIES {
            let instant = Instant::now();
            let time = SystemTime::now();
            let window = instant.elapsed();
            if best.is_none_or(|(shortest, _)| window < shortest) {
                best = Some((window, Self { instant, time }));
            }
            if window <= ANCHOR_WINDOW {
                break;
            }
        }
        best.map_or_else(|| Self { instant: Instant::now(), time: SystemTime::now() }, |(_, anchor)| anchor)
    }

    fn time_of(self, at: Instant) -> SystemTime {
        match at.checked_duration_since(self.instant) {
            Some(after) => self.time.checked_add(after),
            None => self.time.checked_sub(self.instant.duration_since(at)),
        }
        .unwrap_or(self.time)
    }
}

/// Exports `count` finished spans as children of `parent`. They are created later on another thread, so that ending a
/// shard does not wait for it.
pub fn emit<S: IntoIterator<Item = Finished>>(
    parent: &tracing::Span,
    count: usize,
    spans: impl FnOnce() -> S + Send + 'static,
) {
    let (Some((tracer, keeper)), Some(parent)) = (EXPORT.get(), context(parent)) else { return };
    let anchor = Anchor::now();
    keeper.note(count, move || {
        let within = Context::new().with_remote_span_context(parent);
        for Finished { name, started, ended, attributes } in spans() {
            let builder = tracer
                .span_builder(Cow::Borrowed(name))
                .with_start_time(anchor.time_of(started))
                .with_attributes(attributes);
            tracer.build_with_context(builder, &within).end_with_timestamp(anchor.time_of(ended.max(started)));
        }
    });
}

/// A count as an attribute: the macros of `tracing` turn an unsigned integer into text.
pub fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Adds attributes to a span; they are not shown in logs. From now on its parent is fixed. Once for several attributes is cheaper than
/// once for each: the span is looked up by its id.
pub fn set(span: &tracing::Span, attributes: impl IntoIterator<Item = KeyValue>) {
    if exporting() {
        span.context().span().set_attributes(attributes);
    }
}

/// The span context for other processes; `None` when nothing is exported.
pub fn context(span: &tracing::Span) -> Option<SpanContext> {
    exporting().then(|| span.context().span().span_context().clone()).filter(SpanContext::is_valid)
}

/// Links a span to an earlier one; `how` is the value of [`attribute::LINK`].
pub fn link(span: &tracing::Span, earlier: SpanContext, how: &'static str) {
    span.add_link_with_attributes(earlier, vec![KeyValue::new(attribute::LINK, how)]);
}

/// Marks a span as failed.
pub fn fail(span: &tracing::Span, error_type: &'static str, message: String) {
    if exporting() {
        span.set_attribute(attribute::ERROR_TYPE, error_type);
        span.set_status(Status::error(message));
    }
}

/// Whether a span is exported regardless of later decisions.
pub fn is_sampled(span: &tracing::Span) -> bool {
    context(span).is_some_and(|context| context.is_sampled())
}

/// The trace id of a span in hex, as tracing backends expect it.
pub fn trace_id(span: &tracing::Span) -> Option<String> {
    context(span).map(|context| context.trace_id().to_string())
}

/// Exports the whole trace of a span as far as this process has it, although the head sampler did not sample it.
pub fn keep(span: &tracing::Span) {
    if let (Some((_, keeper)), Some(context)) = (EXPORT.get(), context(span))
        && !context.is_sampled()
    {
        keeper.keep(context.trace_id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_clocks_go_together() {
        let anchor = Anchor::now();
        let (early, late) = (anchor.instant - Duration::from_secs(3), anchor.instant + Duration::from_secs(2));
        assert_eq!(anchor.time.duration_since(anchor.time_of(early)).unwrap(), Duration::from_secs(3));
        assert_eq!(anchor.time_of(late).duration_since(anchor.time).unwrap(), Duration::from_secs(2));
    }

    #[test]
    fn without_an_exporter_nothing_has_an_identity() {
        let span = tracing::info_span!("anything");
        assert!(!exporting() && !is_sampled(&span) && context(&span).is_none() && trace_id(&span).is_none());
        keep(&span);
        emit(&span, 1, || -> [Finished; 1] { unreachable!("nothing would receive them") });
    }
}
