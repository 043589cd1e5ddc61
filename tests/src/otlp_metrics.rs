//! A receiver of OTLP metrics over gRPC, inside the test, that keeps the newest of each series.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Service, metric and label values -> its newest point.
pub type Points = BTreeMap<(String, String, String), Point>;

/// A point as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub unit: String,
    pub value: Reading,
}

/// The value of a point.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// A sum that only grows.
    Counter(f64),
    Gauge(f64),
    /// Bounds, counts of the buckets, sum.
    Histogram(Vec<f64>, Vec<u64>, f64),
}

/// The receiver. Its thread ends with it.
#[derive(Debug)]
pub struct MetricsSink {
    /// For `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`.
    pub url: String,
    points: Arc<Mutex<Points>>,
    _runtime: tokio::runtime::Runtime,
}

struct Service(Arc<Mutex<Points>>);

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in request.into_inner().resource_metrics {
            let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
            let service = attributes.iter().find(|a| a.key == "service.name").map(text_of).unwrap_or_default();
            for metric in resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                let number = |value: Option<number_data_point::Value>| match value {
                    Some(number_data_point::Value::AsDouble(number)) => number,
                    Some(number_data_point::Value::AsInt(number)) => number as f64,
                    None => f64::NAN,
                };
                let mut keep = |attributes: &[KeyValue], value| {
                    let labels: Vec<String> = attributes.iter().map(|a| format!("{}={}", a.key, text_of(a))).collect();
                    let key = (service.clone(), metric.name.clone(), labels.join(","));
                    points.insert(key, Point { unit: metric.unit.clone(), value });
                };
                match metric.data {
                    Some(metric::Data::Sum(sum)) if sum.is_monotonic => {
                        sum.data_points.iter().for_each(|p| keep(&p.attributes, Reading::Counter(number(p.value))));
                    }
                    Some(metric::Data::Gauge(gauge)) => {
                        gauge.data_points.iter().for_each(|p| keep(&p.attributes, Reading::Gauge(number(p.value))));
                    }
                    Some(metric::Data::Histogram(histogram)) => histogram.data_points.into_iter().for_each(|p| {
                        let sum = p.sum.unwrap_or(f64::NAN);
                        keep(&p.attributes, Reading::Histogram(p.explicit_bounds, p.bucket_counts, sum));
                    }),
                    other => panic!("{} has an undeclared kind: {other:?}", metric.name),
                }
            }
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

impl MetricsSink {
    /// Listens on a free loopback port.
    pub fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("tokio");
        let points = Arc::default();
        let service = MetricsServiceServer::new(Service(Arc::clone(&points)));
        let inside = runtime.enter();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let url = format!("http://{}", incoming.local_addr().expect("a bound address"));
        runtime.spawn(tonic::transport::Server::builder().serve_with_incoming(service, incoming));
        drop(inside);
        Self { url, points, _runtime: runtime }
    }

    /// The newest of each series so far.
    pub fn points(&self) -> Points {
        self.points.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn text_of(attribute: &KeyValue) -> String {
    match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}
