//! The spacing of bars, and the timeframe that it implies.

use std::collections::BTreeMap;

use crate::limits::SPACINGS_MAX;
use crate::time::{DAY, HOUR, MINUTE};
use trawl_terms::{TimeUnit, Timeframe};

/// Shorter steps are between bars of one day, longer ones between days.
const STEP_OF_DAYS: i64 = 20 * HOUR;
/// Number of steps from which a file's spacing is certain enough to refuse the file.
pub(crate) const SURE_STEPS: u64 = 3;
/// Number of steps from which dated bars are taken for weekly or monthly ones.
pub(crate) const DATED_STEPS: u64 = 2;
/// Number of steps from which bars that are further apart than their timeframe are taken for bars of a longer one.
pub(crate) const MANY_STEPS: u64 = 20;
/// Lengths of intraday bars that few steps are enough to infer.
const USUAL_MINUTES: [i64; 14] = [1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 120, 180, 240, 360];

/// Different steps whose counts are at hand: those of most symbols, such as a day and a weekend.
const RECENT: usize = 4;

/// Steps from bar to bar of the same symbol, in microseconds, and how often each occurs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spacing {
    /// By length: the first [`SPACINGS_MAX`] different ones.
    steps: BTreeMap<i64, u64>,
    /// Steps that came last, and how often since they are here, which is not yet in `steps`.
    recent: [(i64, u64); RECENT],
    /// Which of them the next different one replaces.
    next: usize,
}

/// What the spacing implies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Inferred {
    /// Bars of this length, and whether most steps are exactly that.
    Timeframe(Timeframe, bool),
    /// Bars that are this many microseconds apart, which is not a timeframe.
    Odd(i64),
}

impl Spacing {
    #[inline]
    pub fn add(&mut self, step: i64) {
        match self.recent.iter_mut().find(|(known, _)| *known == step) {
            Some((_, count)) => *count += 1,
            None => self.add_other(step),
        }
    }

    fn add_other(&mut self, step: i64) {
        self.count_steps(step, 0);
        let (before, count) = std::mem::replace(&mut self.recent[self.next], (step, 1));
        self.next = (self.next + 1) % RECENT;
        self.count_steps(before, count);
    }

    /// Counts so many steps of one length, unless there are too many different ones.
    fn count_steps(&mut self, step: i64, count: u64) {
        if step > 0 && (self.steps.len() < SPACINGS_MAX || self.steps.contains_key(&step)) {
            *self.steps.entry(step).or_default() += count;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (step, count) in other.counted() {
            self.count_steps(step, count);
        }
    }

    fn counted(&self) -> BTreeMap<i64, u64> {
        let mut all = self.clone();
        for (step, count) in self.recent {
            all.count_steps(step, count);
        }
        all.steps
    }

    /// Steps between different times.
    pub fn count(&self) -> u64 {
        self.counted().values().sum()
    }

    /// The timeframe that the steps imply; `None` without any.
    pub fn timeframe(&self) -> Option<Inferred> {
        let steps = self.counted();
        let total: u64 = steps.values().sum();
        let short: u64 = steps.range(..STEP_OF_DAYS).map(|(_, count)| count).sum();
        let usual =
            |steps: &BTreeMap<i64, u64>| steps.iter().max_by_key(|(step, n)| (**n, -**step)).map(|(s, n)| (*s, *n));
        if total == 0 {
            return None;
        }
        if short * 4 > total {
            let inside: BTreeMap<i64, u64> = steps.range(..STEP_OF_DAYS).map(|(s, n)| (*s, *n)).collect();
            let (mode, count) = usual(&inside)?;
            let clear = count * 10 >= short * 6;
            // Bars of a seldom traded symbol have gaps: the timeframe is what all steps are multiples of.
            let step = if clear { mode } else { inside.keys().fold(0, |a, b| gcd(a, *b)) };
            let minutes = step / MINUTE;
            let known = total >= MANY_STEPS || USUAL_MINUTES.contains(&minutes);
            if step % MINUTE != 0 || !known {
                return Some(Inferred::Odd(step));
            }
            let (count, unit) = match minutes % 60 {
                0 => (minutes / 60, TimeUnit::Hour),
                _ => (minutes, TimeUnit::Minute),
            };
            let count = u32::try_from(count).ok()?;
            return Some(Inferred::Timeframe(Timeframe { count, unit }, clear));
        }
        // Days in local time are an hour shorter or longer where the clocks change.
        let mut days: BTreeMap<i64, u64> = BTreeMap::new();
        for (step, count) in steps.range(STEP_OF_DAYS..) {
            *days.entry((step + DAY / 2) / DAY).or_default() += count;
        }
        let share = |range: std::ops::RangeInclusive<i64>| days.range(range).map(|(_, n)| n).sum::<u64>() * 10;
        let sure = total >= DATED_STEPS;
        let (count, unit) = if sure && share(7..=7) >= total * 6 {
            (1, TimeUnit::Week)
        } else if sure && share(28..=31) >= total * 8 {
            (1, TimeUnit::Month)
        } else if sure && share(89..=92) >= total * 8 {
            (3, TimeUnit::Month)
        } else {
            (1, TimeUnit::Day)
        };
        let clear = unit != TimeUnit::Day || share(1..=1) >= total * 5;
        Some(Inferred::Timeframe(Timeframe { count, unit }, clear))
    }

    /// Why these bars cannot be bars of `wanted`, if they cannot. For dated bars `least` steps are enough to judge, and
    /// from `many` steps on bars that are further apart are taken for bars of a longer timeframe.
    pub fn contradicts(&self, wanted: Timeframe, least: u64, many: u64) -> Option<String> {
        let total = self.count();
        if total < if wanted.is_dated() { least } else { SURE_STEPS } {
            return None;
        }
        match self.timeframe()? {
            Inferred::Odd(step) if !wanted.is_dated() && step >= wanted.minutes().unwrap_or(0) * MINUTE => None,
            Inferred::Odd(step) => Some(format!("the bars are {} apart", length(step))),
            Inferred::Timeframe(inferred, clear) => {
                let (shorter, longer) = match (inferred.minutes(), wanted.minutes()) {
                    (Some(inferred), Some(wanted)) => (inferred < wanted, inferred > wanted),
                    (Some(_), None) => (true, false),
                    (None, Some(_)) => (false, true),
                    (None, None) => (days(inferred) < days(wanted) && clear, days(inferred) > days(wanted)),
                };
                // Bars that begin at the same time of day are daily bars, and not minutes of a seldom traded symbol.
                let steps = self.counted();
                let even = steps.iter().filter(|(step, _)| **step % HOUR == 0).map(|(_, n)| n).sum::<u64>();
                let days = inferred.is_dated() && !wanted.is_dated() && even * 5 >= total * 4;
                let many = if wanted.is_dated() { many } else { MANY_STEPS };
                let far = longer && (days || clear && total >= many);
                (shorter || far).then(|| format!("the bars are {inferred} apart"))
            }
        }
    }
}

/// Approximate number of days that a dated bar covers.
fn days(timeframe: Timeframe) -> i64 {
    let unit = match timeframe.unit {
        TimeUnit::Week => 7,
        TimeUnit::Month => 30,
        TimeUnit::Day | TimeUnit::Hour | TimeUnit::Minute => 1,
    };
    i64::from(timeframe.count) * unit
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A step in words.
pub(crate) fn length(step: i64) -> String {
    let seconds = step as f64 / 1e6;
    if seconds < 120.0 { format!("{seconds} s") } else { format!("{} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(steps: &[(i64, u64)]) -> String {
        let mut spacing = Spacing::default();
        for (step, count) in steps {
            (0..*count).for_each(|_| spacing.add(*step));
        }
        match spacing.timeframe() {
            None => "nothing".to_owned(),
            Some(Inferred::Odd(step)) => length(step),
            Some(Inferred::Timeframe(timeframe, _)) => timeframe.to_string(),
        }
    }

    #[test]
    fn the_timeframe_is_inferred_from_the_spacing() {
        assert_eq!(inferred(&[]), "nothing");
        assert_eq!(inferred(&[(MINUTE, 389), (DAY - 389 * MINUTE, 1)]), "1m");
        assert_eq!(inferred(&[(7 * MINUTE, 5), (9 * MINUTE, 4), (MINUTE, 6), (17 * HOUR, 1)]), "1m");
        assert_eq!(inferred(&[(30 * MINUTE, 10), (HOUR, 60), (18 * HOUR, 10)]), "1h");
        assert_eq!(inferred(&[(4 * HOUR, 50)]), "4h");
        assert_eq!(inferred(&[(DAY, 4), (3 * DAY, 1)]), "1d");
        assert_eq!(inferred(&[(DAY - HOUR, 1), (DAY, 4), (DAY + HOUR, 1)]), "1d");
        assert_eq!(inferred(&[(7 * DAY, 20), (6 * DAY, 1)]), "1w");
        assert_eq!(inferred(&[(7 * DAY, 2)]), "1w");
        assert_eq!(inferred(&[(31 * DAY, 1), (30 * DAY, 1)]), "1mo");
        assert_eq!(inferred(&[(7 * DAY, 1)]), "1d");
        assert_eq!(inferred(&[(28 * DAY, 1), (30 * DAY, 4), (31 * DAY, 7)]), "1mo");
        assert_eq!(inferred(&[(1_000_000, 100)]), "1 s");
        assert_eq!(inferred(&[(7 * MINUTE, 1)]), "7 min");
    }

    #[test]
    fn every_step_is_counted_however_steps_alternate() {
        let lengths = [DAY, 3 * DAY, 4 * DAY, HOUR, MINUTE, 2 * MINUTE, 0];
        let (mut whole, mut joined) = (Spacing::default(), Spacing::default());
        let mut expected: BTreeMap<i64, u64> = BTreeMap::new();
        for part in 0..5 {
            let mut spacing = Spacing::default();
            for at in 0..1000 {
                let step = lengths[(at * at + part * 3) % lengths.len()];
                spacing.add(step);
                whole.add(step);
                if step > 0 {
                    *expected.entry(step).or_default() += 1;
                }
            }
            joined.merge(&spacing);
        }
        assert_eq!((whole.counted(), joined.counted()), (expected.clone(), expected));
        for step in 1..=2 * SPACINGS_MAX as i64 {
            joined.add(step);
        }
        assert_eq!(joined.counted().len(), SPACINGS_MAX, "no more different ones than that");
    }

    #[test]
    fn a_timeframe_is_refused_only_where_the_spacing_is_sure() {
        let spacing = |step: i64, count: u64| {
            let mut spacing = Spacing::default();
            (0..count).for_each(|_| spacing.add(step));
            spacing
        };
        let refused = |spacing: &Spacing, timeframe: &str| {
            spacing.contradicts(timeframe.parse().unwrap(), SURE_STEPS, MANY_STEPS).is_some()
        };
        assert!(refused(&spacing(MINUTE, 100), "1d") && refused(&spacing(MINUTE, 100), "5m"));
        assert!(!refused(&spacing(MINUTE, 100), "1m") && !refused(&spacing(MINUTE, 2), "1d"));
        assert!(refused(&spacing(5 * MINUTE, 100), "1m") && !refused(&spacing(5 * MINUTE, 10), "1m"));
        assert!(refused(&spacing(DAY, 3), "1m") && !refused(&spacing(DAY + 7 * MINUTE, 3), "1m"));
        assert!(refused(&spacing(DAY, 30), "1m") && refused(&spacing(DAY, 30), "1w"));
        assert!(refused(&spacing(7 * DAY, 30), "1d") && !refused(&spacing(7 * DAY, 30), "1w"));
        assert!(refused(&spacing(1_000_000, 30), "1m"));
        let few = |step: i64, count: u64, many: u64| {
            spacing(step, count).contradicts("1d".parse().unwrap(), 1, many).is_some()
        };
        assert!(few(7 * DAY, 2, DATED_STEPS) && !few(7 * DAY, 2, MANY_STEPS) && !few(DAY, 2, DATED_STEPS));
        assert!(few(MINUTE, 1, MANY_STEPS), "two bars of a day are not daily");
    }
}
