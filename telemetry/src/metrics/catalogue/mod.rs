//! Every metric, declared once: its name, kind, unit, label and meaning, by the process that has it.
//!
//! What is added here is on `/metrics`, goes out by OTLP, and wants `just docs`; nothing else lists metrics. Whoever counts
//! names the static.

pub mod coordinator;
pub mod process;
pub mod worker;

use super::kinds::Metric;

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static dyn Metric> {
    [coordinator::ALL, worker::ALL, worker::MORE, process::ALL, process::MORE].into_iter().flatten().copied()
}

/// Declares metrics of one place: what it means, `NAME: KIND = "name", UNIT;`.
macro_rules! metrics {
    ($place:ident; $($(#[doc = $meaning:literal])+ $name:ident: $type:ty = $text:literal, $unit:ident;)+) => {
        $(
            $(#[doc = $meaning])+
            pub static $name: $type = <$type>::new($crate::metrics::kinds::Said {
                name: $text,
                meaning: concat!($($meaning),+).trim_ascii(),
                unit: $crate::metrics::Unit::$unit,
                place: $crate::metrics::Place::$place,
            });
        )+

        /// In this order they are shown.
        pub(super) static ALL: &[&dyn $crate::metrics::kinds::Metric] = &[$(&$name),+];
    };
}

use metrics;
