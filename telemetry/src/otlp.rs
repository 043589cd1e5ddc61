//! The exporters of OTLP: gRPC or HTTP with protobuf, over connections of ours, set up by the standard variables.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithHttpConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::trace::{Config, SdkTracer, SdkTracerProvider, ShouldSample, SpanExporter as _};
use tonic::transport::{Channel, Endpoint};

use crate::Role;
use crate::dial::{Dial, Http, Speaks};
use crate::environment::{Protocol, Signal, endpoint, export_timeout, shown, variable};
use crate::keep::{Keeper, Recording};
use crate::queue::{Bounds, COUNTS, Queue};
use crate::resource::resource;

/// Characters of an exporter's reason.
const REASON_CHARS_MAX: usize = 300;
/// Samplers under which nothing is recorded that the head decided against.
const OFF_SAMPLERS: [&str; 2] = ["always_off", "parentbased_always_off"];

/// What exports spans, as long as it lives.
#[derive(Debug)]
pub(crate) struct Export {
    provider: SdkTracerProvider,
    keeper: Keeper,
    queue: Queue,
    /// Where connections to the receiver live, and the task that sends.
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
        // Connections live on the runtime that is entered while they are made.
        let inside = runtime.enter();
        let (mut exporter, resource) = (exporter(protocol)?, resource(role));
        // The provider tells processors alone of it, and the exporter is behind the queue.
        exporter.set_resource(&resource);
        let queue = Queue::start(exporter, Bounds::from_environment(), &COUNTS);
        drop(inside);
        let mut provider = SdkTracerProvider::builder().with_resource(resource);
        let off = variable("OTEL_TRACES_SAMPLER").is_some_and(|name| OFF_SAMPLERS.contains(&name.as_str()));
        if !off {
            // The head is what the variables say.
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

    /// Sends the last spans, for at most so long.
    pub fn end(self, bound: Duration) {
        if !self.queue.flush(bound) {
            let waited = format!("the receiver did not take the last ones within {} s", bound.as_secs_f64());
            tracing::warn!(why = waited, "traces cannot be delivered; nothing else waits for them");
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
    .map_err(|error| told(Signal::Traces, protocol, &error))
}

/// The exporter of metrics. Call it on the runtime on which its connections are to live.
///
/// # Errors
/// A sentence, without secrets.
pub(crate) fn metric_exporter(protocol: Protocol) -> Result<MetricExporter, String> {
    match connect(Signal::Metrics, protocol)? {
        Connected::Grpc(channel) => MetricExporter::builder().with_tonic().with_channel(channel).build(),
        Connected::Http(client) => MetricExporter::builder().with_http().with_http_client(*client).build(),
    }
    .map_err(|error| told(Signal::Metrics, protocol, &error))
}

/// A way to the receiver.
enum Connected {
    Grpc(Channel),
    Http(Box<Http>),
}

fn connect(signal: Signal, protocol: Protocol) -> Result<Connected, String> {
    match protocol {
        Protocol::Grpc => {
            let url = endpoint(signal, protocol);
            let address = Endpoint::from_shared(url.clone()).map_err(|error| format!("{}: {error}", shown(&url)))?;
            // The scheme says whether the connection is encrypted; TLS is made by the connector.
            Ok(Connected::Grpc(address.connect_with_connector_lazy(Dial::new(signal, Speaks::Http2)?)))
        }
        Protocol::Http => {
            Ok(Connected::Http(Box::new(Http::new(Dial::new(signal, Speaks::Http1)?, export_timeout(signal)))))
        }
    }
}

/// What the exporter says of headers is not passed on: only the first line of a reason, not too long.
fn told(signal: Signal, protocol: Protocol, error: &ExporterBuildError) -> String {
    let why: String = error.to_string().lines().next().unwrap_or_default().chars().take(REASON_CHARS_MAX).collect();
    format!("{}: {why}", shown(&endpoint(signal, protocol)))
}
