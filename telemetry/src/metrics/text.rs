//! The Prometheus text formats: OpenMetrics 1.0 for clients that accept it, else the older text format, without
//! exemplars.

use std::fmt::Write as _;

use super::exemplar::Exemplar;
use super::kinds::{Buckets, Labels, SECONDS_BOUNDS, Value};
use super::{About, Kind, Place, of};

/// Format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0, with units and exemplars.
    OpenMetrics,
}

impl Format {
    /// The format that the header `accept` asks for.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The header `content-type` of the answer.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Every metric of a process in this place, with its current value.
pub fn render(place: Place, format: Format) -> String {
    let mut text = String::new();
    for metric in of(place) {
        let (about, samples) = (metric.about(), metric.read());
        if !samples.is_empty() {
            head(&mut text, &about, format);
        }
        for sample in samples {
            match sample.value {
                Value::Number(number) => line(&mut text, &about.full_name(), &sample.labels, number, None),
                Value::Buckets(read) => {
                    let exemplars = format == Format::OpenMetrics;
                    buckets(&mut text, about.name, &sample.labels, &read, exemplars);
                }
            }
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn head(text: &mut String, about: &About, format: Format) {
    // The older format names a family after its samples, and has no info metrics.
    let (name, kind) = match (about.kind, format) {
        (Kind::Counter, Format::OpenMetrics) => (about.name.to_owned(), "counter"),
        (Kind::Counter, Format::Prometheus) => (about.full_name(), "counter"),
        (Kind::Gauge, _) => (about.full_name(), "gauge"),
        (Kind::Histogram, _) => (about.full_name(), "histogram"),
        (Kind::Info, Format::OpenMetrics) => (about.name.to_owned(), "info"),
        (Kind::Info, Format::Prometheus) => (about.full_name(), "gauge"),
    };
    let _ = writeln!(text, "# HELP {name} {}", escaped(about.meaning));
    let _ = writeln!(text, "# TYPE {name} {kind}");
    let unit = about.unit.suffix();
    if format == Format::OpenMetrics && !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
}

fn buckets(text: &mut String, name: &str, labels: &Labels, read: &Buckets, exemplars: bool) {
    let mut seen = 0;
    for (i, (count, exemplar)) in read.counts.iter().zip(read.exemplars).enumerate() {
        seen += count;
        let bound = SECONDS_BOUNDS.get(i).map_or_else(|| "+Inf".to_owned(), |bound| format!("{bound:?}"));
        let mut labels = labels.clone();
        labels.push(("le", bound.into()));
        line(text, &format!("{name}_bucket"), &labels, seen as f64, exemplar.filter(|_| exemplars));
    }
    // Summed from the very buckets above, so that they agree whatever was counted meanwhile.
    line(text, &format!("{name}_count"), labels, seen as f64, None);
    line(text, &format!("{name}_sum"), labels, read.sum, None);
}

fn line(text: &mut String, name: &str, labels: &Labels, number: f64, exemplar: Option<Exemplar>) {
    text.push_str(name);
    for (i, (label, value)) in labels.iter().enumerate() {
        let _ = write!(text, "{}{label}=\"{}\"", if i == 0 { '{' } else { ',' }, escaped(value));
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = write!(text, " {number}");
    if let Some(Exemplar { trace, value, seen_s }) = exemplar {
        let _ = write!(text, " # {{trace_id=\"{trace}\"}} {value} {seen_s:.3}");
    }
    text.push('\n');
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}
