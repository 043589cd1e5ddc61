//! What an operator wants of the autoscaler: metadata of a trigger, as texts.

/// Longest that work may wait for by wish.
pub const TARGET_S_MAX: f64 = 3600.0;
/// Longest hold.
pub const HOLD_S_MAX: u64 = 900;
/// Most threads a worker is said to have.
const THREADS_MAX: f64 = 4096.0;

const TARGET: &str = "targetSecondsPerWorker";
const HOLD: &str = "holdSeconds";
const THREADS: &str = "threadsPerWorker";

/// How quickly work should be done, and how long a peak is remembered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Seconds of work that one worker may have before it.
    pub target_s: f64,
    /// The highest of so many seconds counts.
    pub hold_s: u64,
    /// Of one worker; as the last ones had when `None`.
    pub threads_per_worker: Option<f64>,
}

impl Default for Goal {
    fn default() -> Self {
        Self { target_s: 60.0, hold_s: 120, threads_per_worker: None }
    }
}

/// A value that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// Not a number in its range.
    #[error("{key} is '{value}': {expected} is expected")]
    Value { key: &'static str, value: String, expected: String },
    /// Nearly a key of ours.
    #[error("there is no metadata '{found}': did you mean '{meant}'?")]
    Key { found: String, meant: &'static str },
}

/// As a person may have meant it.
fn plain(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

impl Goal {
    /// From a trigger's metadata. What is not a key of ours is the autoscaler's own.
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
                THREADS => goal.threads_per_worker = Some(number(THREADS, 0.1, THREADS_MAX)?),
                other => {
                    if let Some(meant) = [TARGET, HOLD, THREADS].into_iter().find(|ours| plain(ours) == plain(other)) {
                        return Err(GoalError::Key { found: other.chars().take(64).collect(), meant });
                    }
                }
            }
        }
        Ok(goal)
    }
}
