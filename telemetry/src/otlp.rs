//! The OTLP exporters: gRPC or HTTP with protobuf, over our own connections, configured by the standard variables.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithHttpConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::trace::{Config, SdkTracer, SdkTracerProvider, ShouldSample, SpanExporter as _};
use tonic::transport::{Channel, Endpoint};

use trawl_connect::HttpVersion;

use crate::connector::{Http, connector};
use crate::environment::{Protocol, Signal, endpoint, export_timeout, shown, variable};
use crate::queue::{Bounds, COUNTS, Queue};
use crate::resource::resource;
use crate::role::Role;
use crate::tail_sampling::{Keeper, Recording};

/// Most characters of an exporter's reason that are shown.
const REASON_CHARS_MAX: usize = 300;
/// Samplers with which unsampled traces are not recorded at all.
const OFF_SAMPLERS: [&str; 2] = ["always_off", "parentbased_always_off"];

/// Exports spans as long as it lives.
#[derive(Debug)]
pub(crate) struct Export {
    provider: SdkTracerProvider,
    keeper: Keeper,
    queue: Queue,
    /// The runtime of the connections to the receiver and of the task that sends.
    runtime: tokio::runtime::Runtime,
}

impl Export {
    /// # Errors
    /// A sentence, without secrets.
    pub fn start(role: Role, protocol: Protocol) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("trawl-otlp")
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        // Connections live on the runtime that is current while they are created.
        let inside = runtime.enter();
        let (mut exporter, resource) = (exporter(protocol)?, resource(role));
        // The provider passes the resource to span processors only, and the exporter is behind the queue.
        exporter.set_resource(&resource);
        let queue = Queue::start(exporter, Bounds::from_environment(), &COUNTS);
        drop(inside);
        let mut provider = SdkTracerProvider::builder().with_resource(resource);
        let off = variable("OTEL_TRACES_SAMPLER").is_some_and(|name| OFF_SAMPLERS.contains(&name.as_str()));
        if !off {
            // The head sampler is the one that the variables name.
            let recording: Box<dyn ShouldSample> = Box::new(Recording(Config::default().sampler));
            provider = provider.with_sampler(recording);
        }
        let keeper = Keeper::new(queue.clone());
        let provider = provider.with_span_processor(keeper.clone()).build();
        Ok(Self { provider, keeper, queue, runtime })
    }

    pub fn tracer(&self) -> SdkTracer {
        self.provider.tracer("trawl")
    }

    pub fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// Sends the last spans, within `bound`.
    pub fn end(self, bound: Duration) {
        if !self.queue.flush(bound) {
            let waited = format!("the receiver did not accept the last spans within {} s", bound.as_secs_f64());
            tracing::warn!(why = waited, "traces cannot be delivered; scans are not affected");
        }
        self.runtime.shutdown_background();
    }
}

/// # Errors
/// A sentence, without secrets.
fn exporter(protocol: Protocol) -> Result<SpanExporter, String> {
    match connect(Signal::Traces, protocol)? {
        Connected::Grpc(channel) => SpanExporter::builder().with_tonic().with_channel(channel).build(),
        Connected::Http(client) => SpanExporter::builder().with_http().with_http_client(*client).build(),
    }
    .map_err(|error| explained(Signal::Traces, protocol, &error))
}

/// The metrics exporter. Call it on the runtime that its connections are to live on.
///
/// # Errors
/// A sentence, without secrets.
pub(crate) fn metric_exporter(protocol: Protocol) -> Result<MetricExporter, String> {
    match connect(Signal::Metrics, protocol)? {
        Connected::Grpc(channel) => MetricExporter::builder().with_tonic().with_channel(channel).build(),
        Connected::Http(client) => MetricExporter::builder().with_http().with_http_client(*client).build(),
    }
    .map_err(|error| explained(Signal::Metrics, protocol, &error))
}

/// A channel to the receiver.
enum Connected {
    Grpc(Channel),
    Http(Box<Http>),
}

fn connect(signal: Signal, protocol: Protocol) -> Result<Connected, String> {
    match protocol {
        Protocol::Grpc => {
            let url = endpoint(signal, protocol);
            let address = Endpoint::from_shared(url.clone()).map_err(|error| format!("{}: {error}", shown(&url)))?;
            // The scheme decides whether the connection is encrypted; the connector does TLS.
            Ok(Connected::Grpc(address.connect_with_connector_lazy(connector(signal, HttpVersion::Http2)?)))
        }
        Protocol::Http => {
            Ok(Connected::Http(Box::new(Http::new(connector(signal, HttpVersion::Http1)?, export_timeout(signal)))))
        }
    }
}

/// An exporter's message may contain headers: only the first line of the reason is passed on, truncated.
fn explained(signal: Signal, protocol: Protocol, error: &ExporterBuildError) -> String {
    let why: String = error.to_string().lines().next().unwrap_or_default().chars().take(REASON_CHARS_MAX).collect();
    format!("{}: {why}", shown(&endpoint(signal, protocol)))
}
