//! Datasets whose newest bar may be at most so old: counted by state in a metric, and named in the log when that changes.
//!
//! Every coordinator looks at its own data root, whether it leads or not. Only the time on the clock is compared: exchanges that are closed
//! for days have to be allowed for in the limit. Scans do not depend on any of this.

use std::convert::Infallible;
use std::time::Duration;

use trawl_market::{MarketError, Store, TimeMicros, check_dataset_name, now};
use trawl_telemetry::metrics::catalogue::coordinator::{DataState, WATCHED_DATASETS};

/// How often the datasets are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of watched datasets.
pub const WATCHED_DATASETS_MAX: usize = 64;
/// Longest age that can be asked for: ten years.
pub const AGE_HOURS_MAX: u64 = 87_600;
const MICROS_AN_HOUR: i64 = 3_600_000_000;

/// A dataset, and how old its newest bar may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedDataset {
    /// Its name in the data root.
    pub name: String,
    /// Hours from the end of its newest bar.
    pub age_hours_max: u64,
}

impl std::str::FromStr for WatchedDataset {
    type Err = String;

    /// Reads `NAME=HOURS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected NAME=HOURS with 1 to {AGE_HOURS_MAX} hours, for instance us=96");
        let (name, hours) = text.split_once('=').ok_or_else(expected)?;
        let hours = hours.parse().ok().filter(|hours| (1..=AGE_HOURS_MAX).contains(hours));
        let age_hours_max = hours.ok_or_else(expected)?;
        check_dataset_name(name).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), age_hours_max })
    }
}

impl WatchedDataset {
    /// Its state at a time, and what the log says of it.
    fn state(&self, read: Result<TimeMicros, MarketError>, now: TimeMicros) -> (DataState, String) {
        let Self { name, age_hours_max } = self;
        match read {
            Err(error) => (DataState::Unreadable, format!("dataset {name} cannot be read: {error}")),
            Ok(end) => {
                let hours = now.saturating_sub(end).max(0) / MICROS_AN_HOUR;
                let late = hours.cast_unsigned() >= *age_hours_max;
                let about =
                    format!("the newest bar of dataset {name} ended {hours} h ago, {age_hours_max} h are allowed");
                (if late { DataState::Late } else { DataState::Fresh }, about)
            }
        }
    }
}

/// Looks at the datasets again and again; does not end.
pub(super) async fn watch(store: Store, datasets: Vec<WatchedDataset>) -> Infallible {
    if datasets.is_empty() {
        return std::future::pending().await;
    }
    let mut before = vec![DataState::Fresh; datasets.len()];
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        looks.tick().await;
        let (store, asked) = (store.clone(), datasets.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let end = |dataset: &WatchedDataset| store.open(&dataset.name).map(|found| found.manifest.complete_to());
            asked.iter().map(|dataset| dataset.state(end(dataset), now())).collect::<Vec<_>>()
        });
        // A panic has been reported; the metric stays as it is.
        let Ok(found) = looked.await else { continue };
        for ((state, about), before) in found.iter().zip(&mut before) {
            match (state, state == before) {
                (_, true) => {}
                (DataState::Fresh, false) => tracing::info!("{about}"),
                _ => tracing::warn!("{about}"),
            }
            *before = *state;
        }
        for state in [DataState::Fresh, DataState::Late, DataState::Unreadable] {
            let count = found.iter().filter(|(found, _)| *found == state).count();
            WATCHED_DATASETS.of(state).set_count(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_hours_are_read_and_all_else_is_refused_with_an_example() {
        let us: WatchedDataset = "us=96".parse().unwrap();
        assert_eq!(us, WatchedDataset { name: "us".to_owned(), age_hours_max: 96 });
        for text in ["us", "us=", "us=0", "us=87601", "us=4d", "us=-1", ""] {
            let refused = text.parse::<WatchedDataset>().unwrap_err();
            assert!(refused.contains("NAME=HOURS") && refused.contains("us=96"), "{text}: {refused}");
        }
        // A snapshot does not become newer.
        for text in ["=96", "us@1234abcd=96", "../us=96"] {
            text.parse::<WatchedDataset>().unwrap_err();
        }
    }

    #[test]
    fn bars_are_late_from_the_hour_that_is_not_allowed_any_more() {
        let us = WatchedDataset { name: "us".to_owned(), age_hours_max: 2 };
        let at = |hours: i64| us.state(Ok(1_000), 1_000 + hours * MICROS_AN_HOUR).0;
        // Bars that end in the future, as those that are forming do, are fresh.
        assert_eq!(
            [at(-5), at(0), at(1), at(2), at(900)].map(|state| state == DataState::Late),
            [false, false, false, true, true]
        );
        let gone = us.state(Err(check_dataset_name("").unwrap_err()), 0);
        assert_eq!(gone.0, DataState::Unreadable);
        assert!(gone.1.contains("us"), "{}", gone.1);
    }
}
