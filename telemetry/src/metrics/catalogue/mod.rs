//! Every metric, declared once: its name, kind, unit, label and meaning, by the process that has it.
//!
//! A metric that is added here appears on `/metrics` and is sent by OTLP; run `just docs` to update its page. Nothing
//! else lists metrics. Code that counts names the static.

pub mod coordinator;
pub mod process;
pub mod worker;

use super::kinds::Metric;

/// All metrics.
pub(super) fn all() -> impl Iterator<Item = &'static dyn Metric> {
    [coordinator::ALL, worker::ALL, worker::MORE, process::ALL, process::MORE].into_iter().flatten().copied()
}

/// Declares metrics of one place: the meaning as a doc comment, then `NAME: KIND = "name", UNIT;`.
macro_rules! metrics {
    ($place:ident; $($(#[doc = $meaning:literal])+ $name:ident: $type:ty = $text:literal, $unit:ident;)+) => {
        $(
            $(#[doc = $meaning])+
            pub static $name: $type = <$type>::new($crate::metrics::kinds::Declared {
                name: $text,
                meaning: concat!($($meaning),+).trim_ascii(),
                unit: $crate::metrics::Unit::$unit,
                place: $crate::metrics::Place::$place,
            });
        )+

        /// In the order in which they are shown.
        pub(super) static ALL: &[&dyn $crate::metrics::kinds::Metric] = &[$(&$name),+];
    };
}

use metrics;
