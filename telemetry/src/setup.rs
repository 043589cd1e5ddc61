//! Starts logging and the export of spans, once per process.
//!
//! Without the address of a receiver no exporter exists and no span has an id. With it, spans wait in a bounded queue
//! and are sent in batches on a thread of their own: a slow or absent receiver costs spans, never a scan, and at the
//! end of the process at most [`Role::flush_timeout`].

use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{EnvFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::audit::{AUDIT_TARGET, AuditFile};
use crate::environment::{Signal, Wanted, variable, wanted};
use crate::logs::{self, LogFormat};
use crate::metrics::{self, Place};
use crate::otlp::Export;
use crate::resource::resource;
use crate::role::Role;
use crate::spans;

/// Variable with the log filter, in the syntax of tracing's filters.
const LOG_VARIABLE: &str = "TRAWL_LOG";
/// How long a command may take to send its last spans: a person waits for it.
const COMMAND_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);
/// The same for a server.
const SERVER_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl Role {
    /// `service.name` of its spans, unless `OTEL_SERVICE_NAME` is set.
    pub(crate) fn service_name(self) -> &'static str {
        match self {
            Self::Command => "trawl",
            Self::Coordinator => "trawl-coordinator",
            Self::Worker => "trawl-worker",
        }
    }

    /// Which metrics it has; a command has none.
    fn place(self) -> Option<Place> {
        match self {
            Self::Command => None,
            Self::Coordinator => Some(Place::Coordinator),
            Self::Worker => Some(Place::Worker),
        }
    }

    /// The default log filter without [`LOG_VARIABLE`]: servers log which processes join and leave.
    fn default_filter(self) -> &'static str {
        match self {
            Self::Command => "warn,opentelemetry=off",
            Self::Coordinator | Self::Worker => "warn,trawl=info,opentelemetry=off",
        }
    }

    /// How long the end of the process may wait for the receiver.
    fn flush_timeout(self) -> Duration {
        match self {
            Self::Command => COMMAND_FLUSH_TIMEOUT,
            Self::Coordinator | Self::Worker => SERVER_FLUSH_TIMEOUT,
        }
    }
}

/// Sends the last spans when it is dropped; keep it until the process ends.
#[derive(Debug)]
#[must_use = "spans are lost without it"]
pub struct Guard {
    export: Option<Export>,
    /// Sends the last metrics when dropped.
    _metrics: Option<metrics::Export>,
    role: Role,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(export) = self.export.take() {
            export.end(self.role.flush_timeout());
        }
    }
}

/// Starts logging and, when asked for, the export of traces. Once per process.
/// `audit`: where the audit log goes besides stderr.
pub fn init(role: Role, audit: Option<AuditFile>) -> Guard {
    let mut mistakes = Vec::new();
    let filter = match variable(LOG_VARIABLE).as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            mistakes.push(format!("{LOG_VARIABLE} cannot be read and is ignored: {error}"));
            EnvFilter::new(role.default_filter())
        }
        None => EnvFilter::new(role.default_filter()),
    };
    let (format, mistake) = LogFormat::from_environment();
    mistakes.extend(mistake);
    let started = wanted(Signal::Traces).and_then(|wanted| match wanted {
        Wanted::Off => Ok(None),
        Wanted::Otlp(protocol) => Export::start(role, protocol).map(Some),
    });
    let export = started.unwrap_or_else(|why| {
        mistakes.push(format!("traces are not exported: {why}"));
        None
    });
    let traces = export.as_ref().map(|export| {
        spans::install(export.tracer(), export.keeper());
        tracing_opentelemetry::layer()
            .with_tracer(export.tracer())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            // Nothing asks the SDK for the current span, and setting it costs time at each poll of a future.
            .with_context_activation(false)
            // A static filter is evaluated once per callsite; a function would be called at every callsite that the
            // libraries pass.
            .with_filter(Targets::new().with_target("trawl", LevelFilter::INFO))
    });
    let audit = audit.map(|file| {
        let target = Targets::new().with_target(AUDIT_TARGET, LevelFilter::DEBUG);
        logs::json_lines(Arc::new(file)).with_filter(target)
    });
    // It only fails when it was called before: the first call wins.
    let subscriber =
        tracing_subscriber::registry().with(logs::layer(format).with_filter(filter)).with(audit).with(traces);
    let _ = subscriber.try_init();
    for mistake in mistakes {
        tracing::warn!("{mistake}");
    }
    let metrics = role.place().map_or(Ok(None), |place| metrics::export(place, || resource(role)));
    if let Err(failure) = &metrics {
        tracing::warn!("metrics are not exported: {failure}");
    }
    Guard { export, _metrics: metrics.unwrap_or_default(), role }
}
