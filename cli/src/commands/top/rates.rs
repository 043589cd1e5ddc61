//! What workers did lately, from the totals that they report: segments a second, and where their bars were.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use trawl_wire::pb;

/// Over how long rates are taken.
const WINDOW: Duration = Duration::from_secs(10);
/// Totals of one worker that are kept at most.
const TOTALS_MAX: usize = 64;
/// Rates of the whole cluster that are kept for the line of the last refreshes.
pub const PAST_MAX: usize = 240;

/// Segments of a worker by where their bars were: in memory, on a disk, in the data root.
type Loads = [u64; 3];

/// A worker's rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Segments a second.
    pub segments_per_s: f64,
    /// Share of their bars that was in memory, from 0 to 1; `None` if there was no segment.
    pub from_memory: Option<f64>,
}

/// The totals of a worker at several times.
#[derive(Debug, Default)]
struct History {
    /// Of the process: a worker that was started again counts anew.
    boot: String,
    totals: VecDeque<(Duration, Loads)>,
}

/// The rates of all workers.
#[derive(Debug, Default)]
pub struct Rates {
    workers: HashMap<String, History>,
    past: VecDeque<u64>,
}

fn loads_of(worker: &pb::WorkerInfo) -> Loads {
    worker.loads.as_ref().map_or([0; 3], |loads| [loads.memory, loads.disk, loads.data_root])
}

impl Rates {
    /// Takes what all workers reported at a time, since the start of this process. Workers that are gone are forgotten.
    pub fn take(&mut self, at: Duration, workers: &[pb::WorkerInfo]) {
        self.workers.retain(|id, _| workers.iter().any(|worker| worker.id == *id));
        for worker in workers {
            let history = self.workers.entry(worker.id.clone()).or_default();
            let now = loads_of(worker);
            let fell = history
                .totals
                .back()
                .is_some_and(|(_, before)| before.iter().zip(now).any(|(before, now)| now < *before));
            if history.boot != worker.boot || fell {
                history.boot.clone_from(&worker.boot);
                history.totals.clear();
            }
            history.totals.push_back((at, now));
            // The oldest one is kept as long as the next is not a whole window away.
            while history.totals.len() > 2
                && history.totals.get(1).is_some_and(|(time, _)| at.saturating_sub(*time) >= WINDOW)
            {
                history.totals.pop_front();
            }
            while history.totals.len() > TOTALS_MAX {
                history.totals.pop_front();
            }
        }
        if let Some(all) = self.all() {
            self.past.push_back(all.segments_per_s.round() as u64);
            while self.past.len() > PAST_MAX {
                self.past.pop_front();
            }
        }
    }

    /// Those of a worker; `None` before the second refresh.
    pub fn of(&self, worker: &str) -> Option<Rate> {
        let (seconds, loads) = self.workers.get(worker)?.lately()?;
        Some(rate(loads, seconds))
    }

    /// Those of all workers together.
    pub fn all(&self) -> Option<Rate> {
        let each: Vec<(f64, Loads)> = self.workers.values().filter_map(History::lately).collect();
        let segments_per_s = each.iter().map(|(seconds, loads)| rate(*loads, *seconds).segments_per_s).sum();
        let loads =
            each.iter().fold([0; 3], |sum: Loads, (_, loads)| std::array::from_fn(|i| sum[i].saturating_add(loads[i])));
        (!each.is_empty()).then(|| Rate { segments_per_s, ..rate(loads, 1.0) })
    }

    /// Segments a second of all workers at the last refreshes, the oldest first.
    pub fn past(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.past.iter().copied()
    }
}

impl History {
    /// The time between the first and the last totals, in seconds, and what was loaded in it.
    fn lately(&self) -> Option<(f64, Loads)> {
        let ((from, before), (to, after)) = (self.totals.front()?, self.totals.back()?);
        let seconds = to.saturating_sub(*from).as_secs_f64();
        let loads = std::array::from_fn(|i| after[i].saturating_sub(before[i]));
        (seconds > 0.0).then_some((seconds, loads))
    }
}

fn rate(loads: Loads, seconds: f64) -> Rate {
    let all: u64 = loads.iter().sum();
    let from_memory = (all > 0).then(|| loads[0] as f64 / all as f64);
    Rate { segments_per_s: all as f64 / seconds, from_memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(id: &str, boot: &str, memory: u64, disk: u64) -> pb::WorkerInfo {
        let loads = Some(pb::CacheLoads { memory, disk, ..pb::CacheLoads::default() });
        pb::WorkerInfo { id: id.to_owned(), boot: boot.to_owned(), loads, ..pb::WorkerInfo::default() }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rates_are_of_the_last_seconds_and_not_since_the_start_of_the_worker() {
        let mut rates = Rates::default();
        rates.take(s(0), &[worker("w", "b", 1_000_000, 0)]);
        assert_eq!((rates.of("w"), rates.all()), (None, None), "one report tells no rate");
        rates.take(s(2), &[worker("w", "b", 1_000_000, 40)]);
        assert_eq!(rates.of("w"), Some(Rate { segments_per_s: 20.0, from_memory: Some(0.0) }));
        for second in 3..60 {
            rates.take(s(second), &[worker("w", "b", 1_000_000 + 30 * (second - 2), 40 + 10 * (second - 2))]);
        }
        assert_eq!(rates.of("w"), Some(Rate { segments_per_s: 40.0, from_memory: Some(0.75) }));
        for second in 60..80 {
            rates.take(s(second), &[worker("w", "b", 1_001_710, 610)]);
        }
        assert_eq!(rates.of("w"), Some(Rate { segments_per_s: 0.0, from_memory: None }), "idle");
    }

    #[test]
    fn a_worker_that_was_started_again_counts_anew_and_one_that_is_gone_is_forgotten() {
        let mut rates = Rates::default();
        rates.take(s(0), &[worker("w", "b1", 500, 0), worker("v", "b", 0, 0)]);
        rates.take(s(1), &[worker("w", "b2", 10, 0), worker("v", "b", 7, 0)]);
        assert_eq!(rates.of("w"), None);
        assert_eq!(rates.all(), Some(Rate { segments_per_s: 7.0, from_memory: Some(1.0) }));
        rates.take(s(2), &[worker("w", "b2", 30, 0)]);
        assert_eq!((rates.of("w").map(|r| r.segments_per_s), rates.of("v")), (Some(20.0), None));
        assert_eq!(rates.workers.len(), 1);
    }

    #[test]
    fn another_process_counts_anew_even_with_larger_totals_and_so_does_one_whose_totals_fell() {
        let mut rates = Rates::default();
        rates.take(s(0), &[worker("w", "b1", 10, 0), worker("v", "b", 500, 9)]);
        rates.take(s(1), &[worker("w", "b2", 900, 0), worker("v", "b", 600, 3)]);
        assert_eq!((rates.of("w"), rates.of("v")), (None, None));
        rates.take(s(2), &[worker("w", "b2", 905, 0), worker("v", "b", 600, 4)]);
        assert_eq!(rates.of("w"), Some(Rate { segments_per_s: 5.0, from_memory: Some(1.0) }));
        assert_eq!(rates.of("v"), Some(Rate { segments_per_s: 1.0, from_memory: Some(0.0) }));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut rates = Rates::default();
        for ms in 0..10_000 {
            rates.take(Duration::from_millis(ms), &[worker("w", "b", ms, 0)]);
        }
        assert!(rates.workers["w"].totals.len() <= TOTALS_MAX);
        assert_eq!(rates.past().len(), PAST_MAX);
    }
}
