//! A receiver of OTLP spans over gRPC, inside the test, that keeps what it receives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Sent;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Attributes, each as text.
pub type Attributes = BTreeMap<String, String>;

/// One span as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The resource's `service.name`.
    pub service: String,
    /// All of the resource.
    pub resource: Attributes,
    pub name: String,
    /// Hexadecimal.
    pub trace: String,
    pub span: String,
    /// Empty for a root.
    pub parent: String,
    /// As OTLP numbers them: 1 internal, 2 server, 3 client.
    pub kind: i32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: Attributes,
    /// Spans it links to: id, and the link's own attributes.
    pub links: Vec<(String, Attributes)>,
    /// Whether its status is an error.
    pub failed: bool,
}

impl Span {
    /// An attribute, empty when it is not there.
    pub fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

/// The receiver. Its thread ends with it.
#[derive(Debug)]
pub struct Sink {
    /// For `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    /// What came in the metadata of requests under `x-secret`.
    secrets: Arc<Mutex<BTreeSet<String>>>,
    _runtime: tokio::runtime::Runtime,
}

struct Service {
    spans: Arc<Mutex<Vec<Span>>>,
    secrets: Arc<Mutex<BTreeSet<String>>>,
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if let Some(secret) = request.metadata().get("x-secret").and_then(|value| value.to_str().ok()) {
            lock(&self.secrets).insert(secret.to_owned());
        }
        let mut spans = lock(&self.spans);
        for sent in request.into_inner().resource_spans {
            let resource = attributes_of(&sent.resource.unwrap_or_default().attributes);
            for span in sent.scope_spans.into_iter().flat_map(|s| s.spans) {
                spans.push(span_of(&resource, span));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn span_of(resource: &Attributes, span: Sent) -> Span {
    Span {
        service: resource.get("service.name").cloned().unwrap_or_default(),
        resource: resource.clone(),
        name: span.name,
        trace: hex::encode(&span.trace_id),
        span: hex::encode(&span.span_id),
        parent: hex::encode(&span.parent_span_id),
        kind: span.kind,
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes_of(&span.attributes),
        links: span.links.iter().map(|link| (hex::encode(&link.span_id), attributes_of(&link.attributes))).collect(),
        failed: span.status.is_some_and(|status| status.code == 2),
    }
}

impl Sink {
    /// Listens on a free loopback port.
    pub fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("tokio");
        let (spans, secrets) = (Arc::default(), Arc::default());
        let service = TraceServiceServer::new(Service { spans: Arc::clone(&spans), secrets: Arc::clone(&secrets) })
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip);
        let _inside = runtime.enter();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let url = format!("http://{}", incoming.local_addr().expect("a bound address"));
        runtime.spawn(tonic::transport::Server::builder().serve_with_incoming(service, incoming));
        drop(_inside);
        Self { url, spans, secrets, _runtime: runtime }
    }

    /// All spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        lock(&self.spans).clone()
    }

    /// Values of the header `x-secret` received so far.
    pub fn secrets(&self) -> BTreeSet<String> {
        lock(&self.secrets).clone()
    }

    /// The trace whose root is a span of this name, once it has a root and every parent in it has arrived.
    pub fn whole_trace(&self, root: &str) -> Option<Vec<Span>> {
        let all = self.spans();
        let root = all.iter().find(|s| s.parent.is_empty() && s.name == root)?;
        let trace: Vec<Span> = all.iter().filter(|s| s.trace == root.trace).cloned().collect();
        let ids: BTreeSet<&str> = trace.iter().map(|s| s.span.as_str()).collect();
        let no_orphan = trace.iter().all(|s| s.parent.is_empty() || ids.contains(s.parent.as_str()));
        no_orphan.then_some(trace)
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attributes_of(attributes: &[KeyValue]) -> Attributes {
    attributes.iter().filter_map(|a| Some((a.key.clone(), text_of(a.value.as_ref()?.value.as_ref()?)))).collect()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(value) => value.to_string(),
        Value::IntValue(value) => value.to_string(),
        Value::DoubleValue(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}
