//! W3C trace context between `tracing` spans, gRPC metadata and requests.
//!
//! Without an exporter there is no context: none is sent and none is read.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tonic::metadata::MetadataMap;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::pb;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// Maximum bytes of an accepted `tracestate`: the W3C asks for at least 512 characters.
const TRACESTATE_BYTES_MAX: usize = 512;

/// The context of `span` for a request; `None` without an exporter.
pub fn context_of(span: &tracing::Span) -> Option<pb::TraceContext> {
    let context = span.context();
    let span_context = context.span().span_context().clone();
    span_context.is_valid().then(|| pb::TraceContext {
        traceparent: format!(
            "00-{}-{}-{:02x}",
            span_context.trace_id(),
            span_context.span_id(),
            span_context.trace_flags().to_u8() & TraceFlags::SAMPLED.to_u8()
        ),
        tracestate: span_context.trace_state().header(),
    })
}

/// Puts `trace` into gRPC metadata.
pub fn inject(trace: Option<&pb::TraceContext>, metadata: &mut MetadataMap) {
    let Some(trace) = trace else { return };
    for (key, text) in [(TRACEPARENT, &trace.traceparent), (TRACESTATE, &trace.tracestate)] {
        if let (false, Ok(value)) = (text.is_empty(), text.parse()) {
            metadata.insert(key, value);
        }
    }
}

/// Reads the context from gRPC metadata.
pub fn extract(metadata: &MetadataMap) -> Option<pb::TraceContext> {
    let text = |key| metadata.get(key).and_then(|v| v.to_str().ok()).unwrap_or("").to_owned();
    let traceparent = text(TRACEPARENT);
    (!traceparent.is_empty()).then(|| pb::TraceContext { traceparent, tracestate: text(TRACESTATE) })
}

/// Makes `span` a child of the first context that is well-formed. Must be called before the span is entered.
pub fn set_parent(span: &tracing::Span, traces: [Option<&pb::TraceContext>; 2]) {
    if let Some(parent) = traces.into_iter().flatten().find_map(parse) {
        // Fails only for a span that is disabled or already entered: then there is nothing to attach.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// `00-{32 hex}-{16 hex}-{2 hex}`; anything else, including all-zero ids, is not a context.
fn parse(trace: &pb::TraceContext) -> Option<SpanContext> {
    let parts: Vec<&str> = trace.traceparent.split('-').collect();
    let [version, trace_id, span_id, flags, ..] = parts[..] else {
        return None;
    };
    let hex = |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    let shaped = hex(version, 2) && hex(trace_id, 32) && hex(span_id, 16) && hex(flags, 2);
    if !shaped || version == "ff" || (version == "00" && parts.len() != 4) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = Some(trace.tracestate.as_str()).filter(|s| s.len() <= TRACESTATE_BYTES_MAX);
    let state = state.and_then(|s| s.parse::<TraceState>().ok()).unwrap_or_default();
    let (trace_id, span_id) = (TraceId::from_hex(trace_id).ok()?, SpanId::from_hex(span_id).ok()?);
    Some(SpanContext::new(trace_id, span_id, flags, true, state)).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(traceparent: &str) -> pb::TraceContext {
        pb::TraceContext { traceparent: traceparent.to_owned(), tracestate: "a=b".to_owned() }
    }

    #[test]
    fn a_context_survives_metadata() {
        let trace = context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let mut metadata = MetadataMap::new();
        inject(Some(&trace), &mut metadata);
        assert_eq!(extract(&metadata), Some(trace.clone()));
        let parsed = parse(&trace).unwrap();
        assert_eq!(parsed.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parsed.trace_state().header(), "a=b");
        assert!(parsed.is_sampled() && parsed.is_remote());
    }

    #[test]
    fn what_is_not_a_context_is_ignored() {
        for bad in [
            "",
            "00",
            "00-0-0-0",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert!(parse(&context(bad)).is_none(), "{bad}");
        }
    }
}
