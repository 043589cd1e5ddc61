//! Exemplars: the id of the trace in which the newest value of a bucket was observed.
//!
//! Only sampled traces are referenced. Whether the collector keeps a trace is its own decision.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::TraceContextExt as _;
pub use opentelemetry::trace::TraceId;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// An observed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Exemplar {
    pub trace: TraceId,
    /// In the metric's unit.
    pub value: f64,
    /// Seconds since 1970.
    pub seen_s: f64,
}

impl Exemplar {
    pub fn now(trace: TraceId, value: f64) -> Self {
        let seen_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self { trace, value, seen_s }
    }
}

/// The trace of the current span; `None` when it is not sampled, or nothing is exported.
pub fn current_trace() -> Option<TraceId> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let context = span.span_context();
    (context.is_valid() && context.is_sampled()).then(|| context.trace_id())
}

/// The trace of a W3C `traceparent`; `None` when it is not sampled.
pub fn trace_of(traceparent: &str) -> Option<TraceId> {
    let mut parts = traceparent.split('-').skip(1);
    let (trace, flags) = (parts.next()?, parts.nth(1)?);
    let trace = TraceId::from_hex(trace).ok().filter(|trace| *trace != TraceId::INVALID)?;
    (u8::from_str_radix(flags, 16).ok()? & 1 == 1).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sampled_trace_becomes_an_exemplar() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let of = |flags: &str| trace_of(&format!("00-{id}-00f067aa0ba902b7-{flags}")).map(|id| id.to_string());
        assert_eq!(of("01").as_deref(), Some(id));
        assert_eq!(of("00"), None);
        for odd in ["", "00", "00-x-y-01", &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32))] {
            assert_eq!(trace_of(odd), None, "{odd}");
        }
        assert_eq!(current_trace(), None, "nothing is exported here");
    }
}
