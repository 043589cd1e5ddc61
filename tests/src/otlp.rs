//! A receiver of OTLP spans over gRPC, inside the test, that keeps what it is sent.

use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// One span as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The resource's `service.name`.
    pub service: String,
    pub name: String,
    /// Hexadecimal.
    pub trace: String,
    pub span: String,
    /// Empty for a root.
    pub parent: String,
    /// The attribute `worker`; empty without one.
    pub worker: String,
}

/// The receiver. Its thread ends with it.
#[derive(Debug)]
pub struct Sink {
    /// For `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    _runtime: tokio::runtime::Runtime,
}

struct Service(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in request.into_inner().resource_spans {
            let service =
                resource.resource.as_ref().and_then(|r| text_of(&r.attributes, "service.name")).unwrap_or_default();
            for span in resource.scope_spans.into_iter().flat_map(|s| s.spans) {
                spans.push(Span {
                    service: service.clone(),
                    name: span.name,
                    trace: hex(&span.trace_id),
                    span: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    worker: text_of(&span.attributes, "worker").unwrap_or_default(),
                });
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Sink {
    /// Listens on a free loopback port.
    pub fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("tokio");
        let spans = Arc::new(Mutex::new(Vec::new()));
        let service = TraceServiceServer::new(Service(Arc::clone(&spans)));
        let _inside = runtime.enter();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let url = format!("http://{}", incoming.local_addr().expect("a bound address"));
        runtime.spawn(tonic::transport::Server::builder().serve_with_incoming(service, incoming));
        drop(_inside);
        Self { url, spans, _runtime: runtime }
    }

    /// All spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|a| a.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
