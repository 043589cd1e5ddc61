//! Logs on stderr, and traces by OTLP when the usual OTEL variables name a receiver.
//!
//! Without `OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) no exporter exists and no span has an
//! id. With it, spans wait in a bounded queue and go out in batches on threads of their own: a receiver that is slow or
//! away costs spans, never a scan, and at the end of the process at most [`FLUSH_TIMEOUT`].

use std::io::IsTerminal as _;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::metrics::{self, Place};

/// What is logged, in the syntax of tracing's filters.
const LOG_VARIABLE: &str = "TRAWL_LOG";
/// Any of them turns the export on.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// Any of them may ask for another protocol than the one there is.
const PROTOCOL_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"];
/// How long the last spans may take to leave.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// What the process is, by which its spans are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A command of a person.
    Command,
    /// `trawl coordinator`.
    Coordinator,
    /// `trawl worker`.
    Worker,
}

impl Role {
    /// `service.name` of its spans, unless `OTEL_SERVICE_NAME` says another.
    fn service_name(self) -> &'static str {
        match self {
            Self::Command => "trawl",
            Self::Coordinator => "trawl-coordinator",
            Self::Worker => "trawl-worker",
        }
    }

    /// Whose metrics it has; a command has none.
    fn place(self) -> Option<Place> {
        match self {
            Self::Command => None,
            Self::Coordinator => Some(Place::Coordinator),
            Self::Worker => Some(Place::Worker),
        }
    }

    /// What is logged when [`LOG_VARIABLE`] says nothing: servers tell operators who comes and goes.
    fn default_filter(self) -> &'static str {
        match self {
            Self::Command => "warn,opentelemetry=off",
            Self::Coordinator | Self::Worker => "warn,trawl=info,opentelemetry=off",
        }
    }
}

/// Sends the last spans when it is dropped; keep it until the process ends.
#[derive(Debug, Default)]
#[must_use = "spans are lost without it"]
pub struct Guard {
    export: Option<Export>,
    /// Sends the last metrics when it goes.
    _metrics: Option<metrics::Export>,
}

#[derive(Debug)]
struct Export {
    provider: SdkTracerProvider,
    /// Where connections to the receiver live.
    runtime: tokio::runtime::Runtime,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(Export { provider, runtime }) = self.export.take() {
            if let Err(error) = provider.shutdown_with_timeout(FLUSH_TIMEOUT) {
                tracing::debug!(%error, "the last spans could not be exported");
            }
            runtime.shutdown_background();
        }
    }
}

fn is_set(name: &&str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Starts logging and, when asked for, the export of traces. Once per process.
pub fn init(role: Role) -> Guard {
    let directives = std::env::var(LOG_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let (filter, mistake) = match directives.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(role.default_filter()), Some(error.to_string())),
        None => (EnvFilter::new(role.default_filter()), None),
    };
    let colours = std::io::stderr().is_terminal() && !is_set(&"NO_COLOR");
    let logs = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr).with_filter(filter);
    let wanted = ENDPOINT_VARIABLES.iter().any(is_set);
    let (export, failure) = match wanted.then(|| start_export(role)) {
        None => (None, None),
        Some(Ok(export)) => (Some(export), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let traces = export.as_ref().map(|export| {
        tracing_opentelemetry::layer()
            .with_tracer(export.provider.tracer("trawl"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|meta| meta.target().starts_with("trawl") && *meta.level() <= LevelFilter::INFO))
    });
    // Refused only when it was called before: then the first call counts.
    let _ = tracing_subscriber::registry().with(logs).with(traces).try_init();
    if let Some(mistake) = mistake {
        tracing::warn!("{LOG_VARIABLE} cannot be read and is ignored: {mistake}");
    }
    if let Some(failure) = failure {
        tracing::warn!("traces are not exported: {failure}");
    }
    let metrics = role.place().map_or(Ok(None), |place| metrics::export(place, || resource_of(role)));
    if let Err(failure) = &metrics {
        tracing::warn!("metrics are not exported: {failure}");
    }
    Guard { export, _metrics: metrics.unwrap_or_default() }
}

fn start_export(role: Role) -> Result<Export, String> {
    for name in PROTOCOL_VARIABLES {
        if let Ok(protocol) = std::env::var(name)
            && !matches!(protocol.as_str(), "" | "grpc")
        {
            return Err(format!("{name} asks for '{protocol}'; only 'grpc' is supported"));
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("trawl-otlp")
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    // The connection lives on the runtime that is entered while it is made.
    let exporter = {
        let _entered = runtime.enter();
        opentelemetry_otlp::SpanExporter::builder().with_tonic().build().map_err(|error| error.to_string())?
    };
    // Queue, batch and delay are bounded by default and follow the OTEL_BSP_* variables.
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).build())
        .with_resource(resource_of(role))
        .build();
    Ok(Export { provider, runtime })
}

/// What every span and metric says of the process.
fn resource_of(role: Role) -> Resource {
    let mut resource = Resource::builder();
    if !is_set(&"OTEL_SERVICE_NAME") {
        resource = resource.with_service_name(role.service_name());
    }
    resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build()
}
