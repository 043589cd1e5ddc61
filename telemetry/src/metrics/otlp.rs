//! Metrics by OTLP: the SDK reads them at intervals and sends them to the endpoint of the OTEL variables.
//!
//! Counters and gauges are read when they are sent; histograms forward each value, because the SDK has no observable
//! histogram. The SDK sends no exemplars: those are on `/metrics` (docs/adr/0015). A slow or absent receiver costs
//! metrics, and at the end of the process at most [`FLUSH_TIMEOUT`].

use std::sync::mpsc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};

use super::kinds::{Labels, Metric, SECONDS_BOUNDS, Sample, Value};
use super::{Kind, Place, Unit, of};
use crate::environment::{Signal, Wanted, wanted};
use crate::otlp::metric_exporter;

/// How long sending the last metrics may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends the last metrics when it is dropped.
#[derive(Debug)]
pub(crate) struct Export {
    provider: Option<SdkMeterProvider>,
    /// Where connections to the receiver live.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            // The SDK's shutdown has no timeout: it runs on a thread of its own, which may take longer than we wait.
            let (done, finished) = mpsc::channel();
            let flushing = std::thread::Builder::new().name("trawl-otlp-flush".to_owned());
            let started = flushing.spawn(move || done.send(provider.shutdown()));
            if started.is_err() || !matches!(finished.recv_timeout(FLUSH_TIMEOUT), Ok(Ok(()))) {
                tracing::debug!("the last metrics could not be exported");
            }
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sends the metrics of this place from now on, every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds (default 60,000), when
/// the variables ask for it. Once per process.
///
/// # Errors
/// Why metrics cannot be exported.
pub(crate) fn export(place: Place, resource: impl FnOnce() -> Resource) -> Result<Option<Export>, String> {
    let protocol = match wanted(Signal::Metrics)? {
        Wanted::Off => return Ok(None),
        Wanted::Otlp(protocol) => protocol,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("trawl-otlp")
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    // The connection lives on the runtime that is current while it is created.
    let exporter = {
        let _entered = runtime.enter();
        metric_exporter(protocol)?
    };
    super::begin();
    let provider = start(place, exporter, resource());
    Ok(Some(Export { provider: Some(provider), runtime: Some(runtime) }))
}

fn start(place: Place, exporter: impl PushMetricExporter, resource: Resource) -> SdkMeterProvider {
    let reader = PeriodicReader::builder(exporter).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).with_resource(resource).build();
    let meter = provider.meter("trawl");
    of(place).for_each(|metric| register(&meter, metric));
    provider
}

fn register(meter: &Meter, metric: &'static dyn Metric) {
    let about = metric.about();
    let unit = match about.unit {
        Unit::None => "1",
        Unit::Seconds => "s",
        Unit::Bytes => "By",
    };
    let attributes = |labels: Labels| -> Vec<KeyValue> {
        labels.into_iter().map(|(name, value)| KeyValue::new(name, value.into_owned())).collect()
    };
    let each = move |observe: &dyn Fn(f64, &[KeyValue])| {
        for sample in metric.read() {
            if let Value::Number(number) = sample.value {
                observe(number, &attributes(sample.labels));
            }
        }
    };
    match about.kind {
        Kind::Counter => {
            let counter = meter.f64_observable_counter(about.name).with_unit(unit).with_description(about.meaning);
            counter.with_callback(move |seen| each(&|number, labels| seen.observe(number, labels))).build();
        }
        Kind::Gauge | Kind::Info => {
            let gauge = meter.f64_observable_gauge(about.full_name()).with_unit(unit).with_description(about.meaning);
            gauge.with_callback(move |seen| each(&|number, labels| seen.observe(number, labels))).build();
        }
        Kind::Histogram => {
            let histogram = meter.f64_histogram(about.name).with_unit(unit).with_description(about.meaning);
            let histogram = histogram.with_boundaries(SECONDS_BOUNDS.to_vec()).build();
            if let Some(forward) = metric.forward() {
                // It can only be set already when this was called before: the first call wins.
                let bound = |sample: Sample| histogram.bind(&attributes(sample.labels));
                let _ = forward.set(metric.read().into_iter().map(bound).collect());
            }
        }
    }
}
