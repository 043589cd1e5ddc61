//! Sweeps: constants that take each of several values, and which of the combinations are kept.

use std::fmt;

use serde::{Deserialize, Serialize};
use trawl_terms::Direction;

use crate::limits::{SETTING_TEXT_BYTES_MAX, SWEEP_POINTS_MAX};

/// What a sweep's variable is at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(f64),
    /// A word that a parameter takes, such as `narrow`.
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<f64> for Setting {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

/// The values of a sweep variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a list such as [10, 20, 30] or ['narrow', 'wide'], or a range such as { from = 10, to = 30, step = 5 }"
)]
pub enum SweepValues {
    /// These.
    List(Vec<Setting>),
    /// `from`, `from + step`, ... up to `to`.
    Range(SweepRange),
}

/// An evenly spaced sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepRange {
    /// The first value.
    pub from: f64,
    /// The end, itself a value if the steps reach it.
    pub to: f64,
    /// 1 when absent.
    #[serde(default = "one")]
    pub step: f64,
}

fn one() -> f64 {
    1.0
}

impl SweepValues {
    /// The values in order, or what is wrong with them.
    ///
    /// # Errors
    /// A sentence: nothing to take, a step that leads nowhere, more than [`SWEEP_POINTS_MAX`].
    pub fn values(&self) -> Result<Vec<Setting>, String> {
        let values = match self {
            Self::List(values) => values.clone(),
            Self::Range(SweepRange { from, to, step }) => {
                // Rounding must not lose the last value: 0.1, 0.2, 0.3 ends at 0.3.
                let steps = ((to - from) / step + 1e-9).floor();
                if !(steps >= 0.0 && step.is_finite() && *step != 0.0) {
                    return Err(format!("steps of {step} do not lead from {from} to {to}"));
                }
                if steps >= SWEEP_POINTS_MAX as f64 {
                    return Err(format!("this gives more than {SWEEP_POINTS_MAX} values"));
                }
                // Multiples, not sums, so that errors do not add up; brought to the decimals a person means.
                (0..=steps as u32).map(|i| tidy(from + f64::from(i) * step).into()).collect()
            }
        };
        if values.is_empty() || values.len() > SWEEP_POINTS_MAX {
            return Err(format!("it has {} values; from 1 to {SWEEP_POINTS_MAX} are taken", values.len()));
        }
        for value in &values {
            match value {
                Setting::Number(value) if !value.is_finite() => {
                    return Err("its values must be finite numbers".to_owned());
                }
                Setting::Text(text) if text.is_empty() || text.len() > SETTING_TEXT_BYTES_MAX => {
                    return Err(format!("its words must have from 1 to {SETTING_TEXT_BYTES_MAX} bytes"));
                }
                _ => {}
            }
        }
        Ok(values)
    }
}

/// 0.30000000000000004 is meant to be 0.3.
fn tidy(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}

/// Which of a sweep's combinations each symbol keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a criterion in braces, such as { by = 'roc(close, n)', keep = 3 }")]
pub struct Best {
    /// `EXPR [asc|desc]`; descending when absent. NA is worse than any number.
    pub by: String,
    /// How many are kept for each symbol; 1 when absent.
    #[serde(default = "one_kept")]
    pub keep: u32,
}

fn one_kept() -> u32 {
    1
}

/// How the points of a plan are compared symbol by symbol: by the last select column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Which end is the best.
    pub direction: Direction,
    /// Points that each symbol keeps.
    pub keep: usize,
}

impl Choice {
    /// The best points of one symbol, ascending: `values` has for each point whether the symbol is in its universe, and
    /// its value. Of equal ones the first counts.
    pub fn best(&self, values: &[(bool, f64)]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| {
            let ((in_a, x), (in_b, y)) = (values[a], values[b]);
            let there = (!in_a, x.is_nan()).cmp(&(!in_b, y.is_nan()));
            let by_value = match self.direction {
                Direction::Ascending => x.partial_cmp(&y),
                Direction::Descending => y.partial_cmp(&x),
            };
            there.then(by_value.unwrap_or(std::cmp::Ordering::Equal)).then(a.cmp(&b))
        });
        order.truncate(self.keep);
        order.sort_unstable();
        order
    }
}

/// How much of a sweep is computed once for several combinations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sharing {
    /// Points of the sweep; 1 without one.
    pub combinations: u64,
    /// Steps of all combinations one by one.
    pub steps: u64,
    /// Steps that are computed.
    pub steps_computed: u64,
    /// Moving averages of all combinations one by one.
    pub averages: u64,
    /// Moving averages that are computed.
    pub averages_computed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_those_in_the_universe_with_the_largest_value_and_ties_go_to_the_first() {
        let choice = Choice { direction: Direction::Descending, keep: 2 };
        let nan = f64::NAN;
        assert_eq!(choice.best(&[(true, 1.0), (true, 3.0), (true, 2.0)]), [1, 2]);
        assert_eq!(choice.best(&[(true, 1.0), (true, 1.0), (true, 1.0)]), [0, 1]);
        assert_eq!(choice.best(&[(false, 9.0), (true, nan), (true, 0.0)]), [1, 2]);
        assert_eq!(choice.best(&[(false, nan), (false, 1.0), (true, nan)]), [1, 2]);
        assert_eq!(choice.best(&[(true, 1.0)]), [0]);
        let ascending = Choice { direction: Direction::Ascending, keep: 1 };
        assert_eq!(ascending.best(&[(true, nan), (true, 3.0), (true, 2.0), (true, f64::INFINITY)]), [2]);
        assert_eq!(ascending.best(&[(true, -0.0), (true, 0.0)]), [0]);
    }
}
