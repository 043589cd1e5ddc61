//! Waits between tries.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

/// Waits that double from a first one up to a maximum, each shortened by a random part of up to one half, so that
/// processes which failed together do not try again together.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// The next wait before it is shortened.
    next: Duration,
}

impl Backoff {
    /// Waits from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// After a success: the next wait is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next wait: from half of what doubling gives to all of it.
    pub fn next_wait(&mut self) -> Duration {
        /// Steps into which the random half is divided.
        const STEPS: u64 = 1_000;
        let whole = self.next.min(self.longest);
        self.next = whole.saturating_mul(2).min(self.longest);
        // The seed of a hash map is random.
        let random = RandomState::new().hash_one(0u8) % STEPS;
        whole / 2 + whole.mul_f64(random as f64 / (2 * STEPS) as f64)
    }

    /// Sleeps for [`Backoff::next_wait`].
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again_after_a_reset() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(450));
        for whole in [100, 200, 400, 450, 450] {
            let wait = backoff.next_wait();
            assert!((ms(whole) / 2..=ms(whole)).contains(&wait), "{wait:?} of {whole} ms");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= ms(100));
    }

    #[test]
    fn two_processes_do_not_wait_equally_long() {
        let waits: std::collections::BTreeSet<Duration> =
            (0..20).map(|_| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).next_wait()).collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
