//! Jumps of the close: unadjusted splits, or real. They are reported and never removed.

use crate::limits::JUMP_FACTOR;
use crate::time::TimeMicros;

/// A close over three times the one before, or under a third of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Jump {
    /// Whose.
    pub symbol: String,
    /// Time of the later bar.
    pub time: TimeMicros,
    /// Close of the bar before.
    pub before: f64,
    /// Close of the bar.
    pub close: f64,
}

impl Jump {
    /// Later close over the earlier one.
    pub fn factor(&self) -> f64 {
        self.close / self.before
    }
}

/// Jumps at bars not before `since`, by time. Missing closes are passed over.
pub(crate) fn find_jumps(symbol: &str, times: &[TimeMicros], closes: &[f64], since: TimeMicros) -> Vec<Jump> {
    let mut jumps = Vec::new();
    let mut before = f64::NAN;
    for (&time, &close) in times.iter().zip(closes) {
        if close.is_nan() {
            continue;
        }
        if time >= since && (close > before * JUMP_FACTOR || close * JUMP_FACTOR < before) {
            jumps.push(Jump { symbol: symbol.to_owned(), time, before, close });
        }
        before = close;
    }
    jumps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_than_three_times_is_a_jump() {
        let closes = [3.0, 9.0, 28.0, f64::NAN, 9.0, 3.0, 100.0];
        let found: Vec<i64> = find_jumps("X", &[0, 1, 2, 3, 4, 5, 6], &closes, 1).iter().map(|j| j.time).collect();
        assert_eq!(found, [2, 4, 6]);
        assert!(find_jumps("X", &[0, 1], &[1.0, 9.0], 2).is_empty());
    }
}
