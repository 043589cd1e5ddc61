//! Kinds of metrics: atomics in arrays with one cell per value of the label.
//!
//! Counting never waits: only a histogram's exemplar is behind a lock, and when the lock is taken the exemplar is
//! skipped.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::exemplar::{Exemplar, TraceId};
use super::labels::Label;
use super::{About, Kind, Place, Unit};

/// Upper bounds of every histogram's buckets, in seconds; a last bucket has no bound. The same everywhere, so that any
/// two histograms can be compared.
pub const SECONDS_BOUNDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
const BUCKETS: usize = SECONDS_BOUNDS.len() + 1;
/// Most rows of an info metric, such as the devices of a machine.
const FACTS_MAX: usize = 64;
/// Most characters of one of its values.
const FACT_CHARS_MAX: usize = 128;

/// Labels of one cell.
pub(super) type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// The value of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Buckets(Box<Buckets>),
}

/// The value of a histogram's cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Buckets {
    /// Counts of each bucket, not cumulative; the unbounded one last.
    pub counts: [u64; BUCKETS],
    pub sum: f64,
    pub exemplars: [Option<Exemplar>; BUCKETS],
}

/// One cell, as read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub labels: Labels,
    pub value: Value,
}

/// What the exporters need from a metric.
pub(super) trait Metric: Sync {
    fn about(&self) -> About;
    /// Every cell; those of a label in the order of its values.
    fn read(&self) -> Vec<Sample>;
    /// Where a histogram also forwards its values: one for each cell.
    fn forward(&self) -> Option<&OnceLock<Vec<Forward>>> {
        None
    }
}

/// One cell of an OTLP histogram, bound to its labels: looking them up took longer than everything else in counting.
pub(super) type Forward = opentelemetry::metrics::BoundHistogram<f64>;

/// What is declared of a metric, before its kind and label are added.
#[derive(Debug, Clone, Copy)]
pub struct Declared {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    pub(super) unit: Unit,
    pub(super) place: Place,
}

const fn about<L: Label>(declared: Declared, kind: Kind) -> About {
    About {
        name: declared.name,
        meaning: declared.meaning,
        unit: declared.unit,
        place: declared.place,
        kind,
        labels: L::LABELS,
    }
}

fn labels_of(about: &About, index: usize) -> Labels {
    let value = |values: &'static [&'static str]| Cow::Borrowed(values.get(index).copied().unwrap_or_default());
    about.labels.iter().map(|(name, values)| (*name, value(values))).collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Only grows.
#[derive(Debug)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds a duration, for a metric in seconds.
    pub fn add_time(&self, more: Duration) {
        self.add(nanos(more));
    }

    /// The stored value: nanoseconds, bytes, or a count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug)]
pub struct Level(AtomicI64);

impl Level {
    /// Sets the stored value: nanoseconds, bytes, or a count.
    pub fn set(&self, now: i64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Sets a count.
    pub fn set_count(&self, now: impl TryInto<i64>) {
        self.set(now.try_into().unwrap_or(i64::MAX));
    }

    /// Sets a duration, for a metric in seconds.
    pub fn set_time(&self, now: Duration) {
        self.set_count(now.as_nanos());
    }

    /// Adds the difference, which may be negative.
    pub fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The stored value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter for each value of a label.
#[derive(Debug)]
pub struct Counter<L = (), const N: usize = 1> {
    declared: Declared,
    cells: [Tally; N],
    label: PhantomData<fn() -> L>,
}

/// A gauge for each value of a label.
#[derive(Debug)]
pub struct Gauge<L = (), const N: usize = 1> {
    declared: Declared,
    cells: [Level; N],
    label: PhantomData<fn() -> L>,
}

impl<L: Label, const N: usize> Counter<L, N> {
    pub(super) const fn new(declared: Declared) -> Self {
        const { assert!(N == L::COUNT, "a cell for each value") };
        Self { declared, cells: [const { Tally(AtomicU64::new(0)) }; N], label: PhantomData }
    }

    /// The cell of this value.
    pub fn of(&self, label: L) -> &Tally {
        &self.cells[label.index()]
    }

    /// The sum over all values.
    pub fn sum(&self) -> u64 {
        self.cells.iter().map(Tally::get).sum()
    }
}

impl std::ops::Deref for Counter {
    type Target = Tally;

    fn deref(&self) -> &Tally {
        &self.cells[0]
    }
}

impl<L: Label, const N: usize> Gauge<L, N> {
    pub(super) const fn new(declared: Declared) -> Self {
        const { assert!(N == L::COUNT, "a cell for each value") };
        Self { declared, cells: [const { Level(AtomicI64::new(0)) }; N], label: PhantomData }
    }

    /// The cell of this value.
    pub fn of(&self, label: L) -> &Level {
        &self.cells[label.index()]
    }
}

impl std::ops::Deref for Gauge {
    type Target = Level;

    fn deref(&self) -> &Level {
        &self.cells[0]
    }
}

impl<L: Label, const N: usize> Metric for Counter<L, N> {
    fn about(&self) -> About {
        about::<L>(self.declared, Kind::Counter)
    }

    fn read(&self) -> Vec<Sample> {
        let about = self.about();
        let sample = |(i, cell): (usize, &Tally)| Sample {
            labels: labels_of(&about, i),
            value: Value::Number(cell.get() as f64 / about.unit.scale()),
        };
        self.cells.iter().enumerate().map(sample).collect()
    }
}

impl<L: Label, const N: usize> Metric for Gauge<L, N> {
    fn about(&self) -> About {
        about::<L>(self.declared, Kind::Gauge)
    }

    fn read(&self) -> Vec<Sample> {
        let about = self.about();
        let sample = |(i, cell): (usize, &Level)| Sample {
            labels: labels_of(&about, i),
            value: Value::Number(cell.get() as f64 / about.unit.scale()),
        };
        self.cells.iter().enumerate().map(sample).collect()
    }
}

/// Durations.
#[derive(Debug)]
struct Spread {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    exemplars: Mutex<[Option<Exemplar>; BUCKETS]>,
}

/// Durations for each value of a label, in buckets up to [`SECONDS_BOUNDS`].
#[derive(Debug)]
pub struct Histogram<L = (), const N: usize = 1> {
    declared: Declared,
    cells: [Spread; N],
    forward: OnceLock<Vec<Forward>>,
    label: PhantomData<fn() -> L>,
}

impl<L: Label, const N: usize> Histogram<L, N> {
    pub(super) const fn new(declared: Declared) -> Self {
        const { assert!(N == L::COUNT, "a cell for each value") };
        Self {
            declared,
            cells: [const {
                Spread {
                    counts: [const { AtomicU64::new(0) }; BUCKETS],
                    sum_ns: AtomicU64::new(0),
                    exemplars: Mutex::new([None; BUCKETS]),
                }
            }; N],
            forward: OnceLock::new(),
            label: PhantomData,
        }
    }

    /// Observes a duration for this value; `trace` becomes the bucket's exemplar.
    pub fn observe(&self, label: L, took: Duration, trace: Option<TraceId>) {
        let (cell, seconds) = (&self.cells[label.index()], took.as_secs_f64());
        let bucket = SECONDS_BOUNDS.partition_point(|bound| *bound < seconds);
        cell.counts[bucket].fetch_add(1, Ordering::Relaxed);
        cell.sum_ns.fetch_add(nanos(took), Ordering::Relaxed);
        if let Some(trace) = trace
            && let Ok(mut exemplars) = cell.exemplars.try_lock()
        {
            exemplars[bucket] = Some(Exemplar::now(trace, seconds));
        }
        if let Some(forward) = self.forward.get().and_then(|cells| cells.get(label.index())) {
            forward.record(seconds);
        }
    }

    /// The number of observations, over all values.
    pub fn count(&self) -> u64 {
        self.cells.iter().flat_map(|cell| &cell.counts).map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl<L: Label, const N: usize> Metric for Histogram<L, N> {
    fn about(&self) -> About {
        about::<L>(self.declared, Kind::Histogram)
    }

    fn read(&self) -> Vec<Sample> {
        let about = self.about();
        let sample = |(i, cell): (usize, &Spread)| Sample {
            labels: labels_of(&about, i),
            value: Value::Buckets(Box::new(Buckets {
                counts: cell.counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
                sum: cell.sum_ns.load(Ordering::Relaxed) as f64 / Unit::Seconds.scale(),
                exemplars: *cell.exemplars.lock().unwrap_or_else(PoisonError::into_inner),
            })),
        };
        self.cells.iter().enumerate().map(sample).collect()
    }

    fn forward(&self) -> Option<&OnceLock<Vec<Forward>>> {
        Some(&self.forward)
    }
}

/// Sampled when it is read; `None`: not available on this system.
#[derive(Debug)]
pub struct Sampled {
    pub(super) declared: Declared,
    pub(super) kind: Kind,
    pub(super) ask: fn() -> Option<f64>,
}

impl Metric for Sampled {
    fn about(&self) -> About {
        about::<()>(self.declared, self.kind)
    }

    fn read(&self) -> Vec<Sample> {
        (self.ask)().map(|number| Sample { labels: Vec::new(), value: Value::Number(number) }).into_iter().collect()
    }
}

/// A metric that consists of labels alone, whose values only the machine knows; set by this program, never from a
/// request.
#[derive(Debug)]
pub struct Facts {
    pub(super) declared: Declared,
    /// Names of the labels; their values are not known in advance.
    pub(super) labels: &'static [(&'static str, &'static [&'static str])],
    pub(super) rows: Mutex<Vec<Labels>>,
}

impl Facts {
    /// Adds a row: the labels' values in their order, truncated where they are long. It is dropped past [`FACTS_MAX`]
    /// rows and when it is there already.
    pub fn add(&self, values: &[&str]) {
        let cut = |value: &&str| Cow::Owned(value.chars().filter(|c| !c.is_control()).take(FACT_CHARS_MAX).collect());
        let row: Labels = self.labels.iter().map(|(name, _)| *name).zip(values.iter().map(cut)).collect();
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() < FACTS_MAX && !rows.contains(&row) {
            rows.push(row);
        }
    }
}

impl Metric for Facts {
    fn about(&self) -> About {
        About { labels: self.labels, ..about::<()>(self.declared, Kind::Info) }
    }

    fn read(&self) -> Vec<Sample> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|labels| Sample { labels: labels.clone(), value: Value::Number(1.0) }).collect()
    }
}
