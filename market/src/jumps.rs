//! Jumps of the close: unadjusted splits, or real moves. They are reported and never removed.

use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::limits::{JUMP_FACTOR, SPLIT_RATIOS, SPLIT_TOLERANCE};
use crate::reference::known_from;
use crate::time::TimeMicros;

/// A close over three times the previous one, or under a third of it; or one that a usual split ratio explains.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Jump {
    /// Whose.
    pub symbol: String,
    /// Time of the earlier bar.
    pub before_time: TimeMicros,
    /// Time of the later bar.
    pub time: TimeMicros,
    /// Close of the bar before.
    pub before: f64,
    /// Close of the bar.
    pub close: f64,
}

impl Jump {
    /// Ratio of the later close to the earlier one.
    pub fn factor(&self) -> f64 {
        self.close / self.before
    }

    /// The split that the jump looks like: new and old shares, such as `(2, 1)`, or `(1, 10)` for a reverse split.
    pub fn split(&self) -> Option<(u32, u32)> {
        split_of(self.factor())
    }
}

/// Ratios of closes that no usual split explains: each is two to one at least, or one to two.
const NO_SPLIT: std::ops::Range<f64> = 0.6..1.8;

/// The usual split ratio nearest to a ratio of closes, within what a price moves from one bar to the next.
fn split_of(factor: f64) -> Option<(u32, u32)> {
    if NO_SPLIT.contains(&factor) {
        return None;
    }
    let near = |ratio: f64| (factor * ratio - 1.0).abs() <= SPLIT_TOLERANCE;
    SPLIT_RATIOS.into_iter().find_map(|(new, old)| {
        let ratio = f64::from(new) / f64::from(old);
        if near(ratio) { Some((new, old)) } else { near(1.0 / ratio).then_some((old, new)) }
    })
}

impl Dataset {
    /// Removes the jumps that the dataset's splits explain: those across an ex-date with a split.
    pub(crate) fn retain_unadjusted(&self, jumps: &mut Vec<Jump>) -> Result<(), MarketError> {
        if jumps.is_empty() || self.manifest.factors.is_none() {
            return Ok(());
        }
        let factors = self.factor_table()?;
        let (calendar, timeframe) = (self.manifest.calendar(), self.manifest.timeframe);
        jumps.retain(|jump| {
            let known = |e: &crate::reference::FactorRow| {
                let from = known_from(e, calendar, timeframe);
                e.split != 1.0 && jump.before_time < from && from <= jump.time
            };
            !factors.of(&jump.symbol).iter().any(known)
        });
        Ok(())
    }
}

/// Jumps at bars not before `since`, by time. Missing closes are skipped.
pub(crate) fn find_jumps(symbol: &str, times: &[TimeMicros], closes: &[f64], since: TimeMicros) -> Vec<Jump> {
    let mut jumps = Vec::new();
    let (mut before, mut before_time) = (f64::NAN, TimeMicros::MIN);
    for (&time, &close) in times.iter().zip(closes) {
        if close.is_nan() {
            continue;
        }
        let jumps_far = close > before * JUMP_FACTOR || close * JUMP_FACTOR < before;
        if time >= since && (jumps_far || split_of(close / before).is_some()) {
            jumps.push(Jump { symbol: symbol.to_owned(), before_time, time, before, close });
        }
        (before, before_time) = (close, time);
    }
    jumps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_three_times_is_a_jump_and_so_is_a_usual_split() {
        let closes = [3.0, 7.8, 28.0, f64::NAN, 9.0, 4.4, 100.0];
        let found = find_jumps("X", &[0, 1, 2, 3, 4, 5, 6], &closes, 1);
        let jumps: Vec<_> = found.iter().map(|j| (j.before_time, j.time, j.split())).collect();
        assert_eq!(jumps, [(1, 2, None), (2, 4, Some((3, 1))), (4, 5, Some((2, 1))), (5, 6, None)]);
        assert!(find_jumps("X", &[0, 1], &[1.0, 9.0], 2).is_empty());
    }

    #[test]
    fn no_usual_split_is_near_one() {
        let ratios = SPLIT_RATIOS.map(|(new, old)| f64::from(new) / f64::from(old));
        let least = ratios.into_iter().fold(f64::INFINITY, f64::min);
        assert!((1.0 + SPLIT_TOLERANCE) / least < NO_SPLIT.start && (1.0 - SPLIT_TOLERANCE) * least > NO_SPLIT.end);
    }

    #[test]
    fn a_split_is_known_by_its_ratio_in_either_direction() {
        for (factor, split) in [
            (0.5, Some((2, 1))),
            (0.485, Some((2, 1))),
            (0.62, None),
            (0.515, Some((2, 1))),
            (0.53, None),
            (1.93, Some((1, 2))),
            (1.9, None),
            (1.45, None),
            (2.0, Some((1, 2))),
            (0.0502, Some((20, 1))),
            (10.3, Some((1, 10))),
            (0.85, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(split_of(factor), split, "{factor}");
        }
    }
}
