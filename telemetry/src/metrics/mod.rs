//! Metrics of a process, each declared once, shown on `/metrics` and sent by OTLP.
//!
//! `catalogue` declares them; `kinds` counts (atomics in fixed arrays: no look-up, no allocation); `labels` defines
//! which values a label may have; `exemplar` links a value to a trace. `text` writes the Prometheus formats, `serve`
//! answers scrapes, `otlp` sends metrics, `page` writes their documentation, `process` queries the operating system.
//!
//! The values of a label are known at compile time: a symbol, scan, user or dataset can never become one.

pub mod catalogue;
mod exemplar;
mod kinds;
mod labels;
mod otlp;
mod page;
mod process;
mod serve;
mod text;

pub use exemplar::{TraceId, current_trace, trace_of};
pub use kinds::{Counter, Facts, Gauge, Histogram, SECONDS_BOUNDS};
pub use labels::Label;
pub(crate) use otlp::{Export, export};
pub use page::page;
pub use serve::{METRICS_PORT, Scrapes};
pub use text::{Format, render};

use kinds::Metric;

/// Which processes have a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `trawl coordinator`.
    Coordinator,
    /// `trawl worker`.
    Worker,
    /// Both.
    Every,
}

/// Unit of a metric, which decides the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain count.
    None,
    /// Stored in whole nanoseconds, shown in seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// Suffix of names of this unit, before `_total`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }

    /// The stored value of one unit.
    const fn scale(self) -> f64 {
        match self {
            Self::Seconds => 1e9,
            Self::None | Self::Bytes => 1.0,
        }
    }
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations up to each bound.
    Histogram,
    /// Always 1; its labels are the information.
    Info,
}

/// What is declared of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Without the suffix that its kind adds (`_total`, `_info`).
    pub name: &'static str,
    /// Its description, a sentence.
    pub meaning: &'static str,
    /// See [`Unit`].
    pub unit: Unit,
    /// See [`Place`].
    pub place: Place,
    /// See [`Kind`].
    pub kind: Kind,
    /// Names of its labels with the values of each; those of an info metric are not known in advance.
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

impl About {
    /// The name in queries: a histogram's series are this name with `_bucket`, `_sum` and `_count`.
    pub fn full_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Info => format!("{}_info", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }

    /// Every name that queries may use.
    pub fn query_names(&self) -> Vec<String> {
        match self.kind {
            Kind::Histogram => ["bucket", "sum", "count"].map(|part| format!("{}_{part}", self.name)).to_vec(),
            _ => vec![self.full_name()],
        }
    }
}

/// The declarations of all metrics, in the order of the catalogue.
pub fn declared() -> Vec<About> {
    catalogue::all().map(|metric| metric.about()).collect()
}

/// The metrics of a process in this place.
fn of(place: Place) -> impl Iterator<Item = &'static dyn Metric> {
    catalogue::all()
        .filter(move |metric| place == Place::Every || [place, Place::Every].contains(&metric.about().place))
}
/// Records the start of the process (the first call wins) and what it was built from.
pub fn begin() {
    process::begin();
    catalogue::process::BUILD.add(&[env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS]);
}
