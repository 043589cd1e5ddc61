//! What a process counts: metrics, each declared once, shown on `/metrics` and sent by OTLP.
//!
//! `catalogue` declares them, `kinds` is how they count (atomics in fixed arrays: nothing is looked up, nothing is
//! allocated), `labels` which values a label may have, `exemplar` how a number points to a trace. `text` writes them for
//! Prometheus, `serve` answers scrapes, `otlp` sends them, `page` writes their page of the docs, `process` asks the
//! operating system.
//!
//! A label's values are known when the program is compiled: no symbol, scan, user or dataset can become one.

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
pub use process::begin;
pub use serve::{METRICS_PORT, Scrapes};
pub use text::{Format, render};

use kinds::Metric;

/// Where a metric is: which processes have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `trawl coordinator`.
    Coordinator,
    /// `trawl worker`.
    Worker,
    /// Both.
    Every,
}

/// What is counted, and so how a name ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    None,
    /// Kept in whole nanoseconds, shown in seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// What names of this unit end with, before `_total`.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }

    /// What is kept for one of it.
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
    /// How often values were at most so large.
    Histogram,
    /// Always 1; its labels are what it tells.
    Info,
}

/// What is declared of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Without what its kind adds (`_total`, `_info`).
    pub name: &'static str,
    /// What it says, a sentence.
    pub meaning: &'static str,
    /// See [`Unit`].
    pub unit: Unit,
    /// See [`Place`].
    pub place: Place,
    /// See [`Kind`].
    pub kind: Kind,
    /// Names of its labels, and the values of each; of an info they are not known before.
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

impl About {
    /// As queries name it: a histogram's buckets, sum and count have this name with `_bucket`, `_sum`, `_count`.
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

/// What is declared of every metric, in the order of the catalogue.
pub fn declared() -> Vec<About> {
    catalogue::all().map(|metric| metric.about()).collect()
}

/// What a process in this place has.
fn of(place: Place) -> impl Iterator<Item = &'static dyn Metric> {
    catalogue::all()
        .filter(move |metric| place == Place::Every || [place, Place::Every].contains(&metric.about().place))
}
