//! The goal that an operator sets for the autoscaler: metadata of a trigger, as text.

use crate::worker_class::is_backend;

/// Maximum of [`Goal::target_s`].
pub const TARGET_S_MAX: f64 = 3600.0;
/// Maximum of [`Goal::hold_s`].
pub const HOLD_S_MAX: u64 = 900;
/// Maximum of [`Goal::threads_per_worker`].
const THREADS_MAX: f64 = 4096.0;

const TARGET: &str = "targetSecondsPerWorker";
const HOLD: &str = "holdSeconds";
const THREADS: &str = "threadsPerWorker";
const BACKEND: &str = "backend";

/// How quickly work should be done, and how long a peak counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// Seconds of work per worker.
    pub target_s: f64,
    /// Seconds over which the highest value counts.
    pub hold_s: u64,
    /// Threads of one worker; `None` takes the last known number.
    pub threads_per_worker: Option<f64>,
    /// The backend of the workers that are scaled; `None` counts the work of all.
    pub backend: Option<String>,
}

impl Default for Goal {
    fn default() -> Self {
        Self { target_s: 60.0, hold_s: 120, threads_per_worker: None, backend: None }
    }
}

/// Why metadata was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// Not a number in its range.
    #[error("{key} is '{value}': {expected} is expected")]
    Value {
        /// The key as documented.
        key: &'static str,
        /// Its value, without control characters and truncated.
        value: String,
        /// The values that are legal, as a phrase.
        expected: String,
    },
    /// A likely misspelling of a known key.
    #[error("there is no metadata '{found}': did you mean '{meant}'?")]
    Key {
        /// The key given.
        found: String,
        /// The known key that it resembles.
        meant: &'static str,
    },
}

/// Normalises a key for comparison with misspellings.
fn plain(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

impl Goal {
    /// Parses a trigger's metadata. Unknown keys belong to the autoscaler itself.
    ///
    /// # Errors
    /// [`GoalError`].
    pub fn of<'a>(metadata: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, GoalError> {
        let mut goal = Self::default();
        for (key, value) in metadata {
            let number = |key, least: f64, most: f64| {
                let read = value.trim().parse().ok().filter(|number: &f64| (least..=most).contains(number));
                read.ok_or_else(|| GoalError::Value {
                    key,
                    value: value.chars().filter(|c| !c.is_control()).take(64).collect(),
                    expected: format!("a number from {least} to {most}"),
                })
            };
            match key {
                TARGET => goal.target_s = number(TARGET, 0.1, TARGET_S_MAX)?,
                HOLD => goal.hold_s = number(HOLD, 0.0, HOLD_S_MAX as f64)? as u64,
                BACKEND if value.is_empty() => {}
                BACKEND if is_backend(value) => goal.backend = Some(value.to_owned()),
                BACKEND => {
                    let value = value.chars().filter(|c| !c.is_control()).take(64).collect();
                    return Err(GoalError::Value { key: BACKEND, value, expected: "'cpu' or 'cuda'".to_owned() });
                }
                THREADS => goal.threads_per_worker = Some(number(THREADS, 0.1, THREADS_MAX)?),
                other => {
                    let keys = [TARGET, HOLD, THREADS, BACKEND];
                    if let Some(meant) = keys.into_iter().find(|ours| plain(ours) == plain(other)) {
                        return Err(GoalError::Key { found: other.chars().take(64).collect(), meant });
                    }
                }
            }
        }
        Ok(goal)
    }
}
