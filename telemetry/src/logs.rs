//! Log lines on stderr: text for people, JSON for machines, each with the trace that it belongs to.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::sync::Arc;

use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{DefaultFields, Format, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime as Clock};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt as subscriber};

use crate::audit::AuditFile;
use crate::environment::variable;

/// Variable with the format of log lines.
const FORMAT_VARIABLE: &str = "TRAWL_LOG_FORMAT";

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl LogFormat {
    /// The format that the variable asks for, and a message when its value is invalid.
    pub fn from_environment() -> (Self, Option<String>) {
        match variable(FORMAT_VARIABLE).as_deref() {
            None | Some("text") => (Self::Text, None),
            Some("json") => (Self::Json, None),
            Some(other) => (Self::Text, Some(format!("{FORMAT_VARIABLE} is '{other}'; 'text' or 'json' is expected"))),
        }
    }
}

/// The layer that writes lines.
pub(crate) fn layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let colours = std::io::stderr().is_terminal() && variable("NO_COLOR").is_none();
    let lines = subscriber::layer().with_ansi(colours && format == LogFormat::Text).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => Box::new(lines.event_format(Text(Format::default()))),
        LogFormat::Json => Box::new(lines.fmt_fields(JsonFields::new()).event_format(Json)),
    }
}

/// A layer that writes JSON lines to a file.
pub(crate) fn json_lines<S>(file: Arc<AuditFile>) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = subscriber::layer().with_ansi(false).with_writer(file);
    Box::new(lines.fmt_fields(JsonFields::new()).event_format(Json))
}

/// The trace that an event belongs to: that of its span, or of the current context.
fn trace_of<S, N>(context: &FmtContext<'_, S, N>) -> Option<SpanContext>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let of_span = context.parent_span().and_then(|span| {
        tracing::dispatcher::get_default(|dispatch| tracing_opentelemetry::get_otel_context(&span.id(), dispatch))
    });
    // Where the log filter disables spans, the current OpenTelemetry context still has the trace.
    let within = of_span.unwrap_or_else(opentelemetry::Context::current);
    Some(within.span().span_context().clone()).filter(SpanContext::is_valid)
}

/// The usual line, followed by the ids.
struct Text(Format);

impl<S> FormatEvent<S, DefaultFields> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(trace) = trace_of(context) else { return self.0.format_event(context, writer, event) };
        let mut line = String::new();
        let inner = Format::default().with_ansi(writer.has_ansi_escapes());
        inner.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{} trace_id={} span_id={}", line.trim_end(), trace.trace_id(), trace.span_id())
    }
}

/// One JSON object per line: timestamp, level, target, message, fields, spans (outermost first), trace.
struct Json;

impl<S> FormatEvent<S, JsonFields> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        Clock.format_time(&mut Writer::new(&mut timestamp))?;
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let mut fields = fields.0;
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), timestamp.into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), metadata.target().into());
        line.insert("message".to_owned(), fields.remove("message").unwrap_or_else(|| "".into()));
        if !fields.is_empty() {
            line.insert("fields".to_owned(), Value::Object(fields));
        }
        let mut spans = Vec::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let kept = extensions.get::<FormattedFields<JsonFields>>();
            let kept = kept.and_then(|text| serde_json::from_str::<Map<_, _>>(&text.fields).ok());
            let mut entry = kept.unwrap_or_default();
            entry.insert("name".to_owned(), span.name().into());
            spans.push(Value::Object(entry));
        }
        if !spans.is_empty() {
            line.insert("spans".to_owned(), Value::Array(spans));
        }
        if let Some(trace) = trace_of(context) {
            line.insert("trace_id".to_owned(), trace.trace_id().to_string().into());
            line.insert("span_id".to_owned(), trace.span_id().to_string().into());
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Fields of an event.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // A Debug implementation that fails writes nothing.
        let _ = write!(text, "{value:?}");
        self.0.insert(field.name().to_owned(), text.into());
    }
}
