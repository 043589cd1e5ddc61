//! Which rows a model is trained on and which it is tested on, split by time.
//!
//! A row reads the bars from its own to the last one of its furthest label. A training row whose bars reach into those of the
//! test rows is `purged`; one that is fewer bars of the dataset away from them than the embargo is `embargoed` (López de Prado,
//! "Advances in Financial Machine Learning", 2018, chapter 7). The embargo is kept on both sides.

use std::ops::Range;

use rayon::prelude::*;
use trawl_market::{MarketError, TimeMicros};

use super::FeatureError;
use crate::forward::Closes;
use crate::prepare::PreparedScan;

/// Maximum folds.
pub const FOLDS_MAX: u32 = 100;

/// How rows are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitBy {
    /// Tested from this time on, trained before.
    Time(TimeMicros),
    /// So many runs of consecutive times, about equally long, each of which is tested once.
    Folds(u32),
}

/// What a row is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// For training.
    Train,
    /// For the test.
    Test,
    /// For neither: its labels overlap with the test.
    Purged,
    /// For neither: it is too near to the test.
    Embargoed,
}

impl Use {
    /// As in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
            Self::Purged => "purged",
            Self::Embargoed => "embargoed",
        }
    }
}

/// A test part, and what is left out around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name of its column.
    pub name: String,
    /// First and last time that is tested.
    pub test: (TimeMicros, TimeMicros),
    /// Last bar that labels of test rows read.
    labels_until: TimeMicros,
    /// A training row before the test reads only bars before this; none if there is no such time.
    before: Option<TimeMicros>,
    /// A training row after it is later than this; none if there is no such time.
    after: Option<TimeMicros>,
}

impl Part {
    /// What the row of a time is used for, whose labels read bars up to and with `read_until`.
    pub fn use_of(&self, time: TimeMicros, read_until: TimeMicros) -> Use {
        let (first, last) = self.test;
        if time < first {
            return match () {
                () if read_until >= first => Use::Purged,
                () if self.before.is_some_and(|before| read_until < before) => Use::Train,
                () => Use::Embargoed,
            };
        }
        match () {
            () if time <= last => Use::Test,
            () if time <= self.labels_until => Use::Purged,
            () if self.after.is_some_and(|after| time > after) => Use::Train,
            () => Use::Embargoed,
        }
    }
}

/// All parts: one with a split at a time, one for each fold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// In the order of time.
    pub all: Vec<Part>,
}

impl Parts {
    /// Splits the times with numbers `span` of all times of the dataset, for labels over up to `furthest` bars.
    pub(super) fn new(
        prepared: &PreparedScan,
        times: &[TimeMicros],
        span: Range<usize>,
        (by, furthest, embargo): (SplitBy, u32, u32),
    ) -> Result<Self, FeatureError> {
        let tests: Vec<(String, Range<usize>)> = match by {
            SplitBy::Time(from) => {
                let first = times.partition_point(|time| *time < from);
                if first <= span.start || first >= span.end {
                    let what = if first <= span.start { "before" } else { "from" };
                    return Err(FeatureError::Split(format!("the span has no bar {what} the time of the split")));
                }
                vec![("split".to_owned(), first..span.end)]
            }
            SplitBy::Folds(folds) => {
                let (count, folds) = (span.len(), folds as usize);
                if count < folds {
                    return Err(FeatureError::Split(format!("{count} bars cannot be split into {folds} folds")));
                }
                let edge = |fold: usize| span.start + count * fold / folds;
                (0..folds).map(|fold| (format!("split_{}", fold + 1), edge(fold)..edge(fold + 1))).collect()
            }
        };
        let bounds: Vec<(TimeMicros, TimeMicros)> =
            tests.iter().map(|(_, test)| (times[test.start], times[test.end - 1])).collect();
        let read = |group: &u32| Ok(read_until(&Closes::of_group(prepared, *group)?, &bounds, furthest));
        let found: Vec<Vec<TimeMicros>> = match furthest {
            0 => Vec::new(),
            _ => prepared.segments.par_iter().map(read).collect::<Result<_, MarketError>>()?,
        };
        let embargo = embargo as usize;
        let part = |(at, (name, test)): (usize, (String, Range<usize>))| {
            let labels_until = found.iter().map(|of| of[at]).chain([bounds[at].1]).max().unwrap_or(bounds[at].1);
            let last = times.partition_point(|time| *time <= labels_until) - 1;
            Part {
                name,
                test: bounds[at],
                labels_until,
                before: test.start.checked_sub(embargo).map(|before| times[before]),
                after: times.get(last + embargo).copied(),
            }
        };
        Ok(Self { all: tests.into_iter().enumerate().map(part).collect() })
    }
}

/// By test part: the last bar that labels of its rows read.
fn read_until(closes: &[Closes], tests: &[(TimeMicros, TimeMicros)], furthest: u32) -> Vec<TimeMicros> {
    let of_symbol = |closes: &Closes, last: TimeMicros| {
        let bars = closes.times().partition_point(|bar| *bar <= last);
        bars.checked_sub(1).map(|at| closes.read_until(at, furthest))
    };
    let of_part = |&(first, last): &(TimeMicros, TimeMicros)| {
        closes.iter().filter_map(|closes| of_symbol(closes, last)).chain([first]).max().unwrap_or(first)
    };
    tests.iter().map(of_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_rows_whose_labels_reach_into_the_test_are_purged_and_near_ones_embargoed() {
        // Times 0 to 29, tests from 10 to 14 whose labels read up to 16, an embargo of 3.
        let part = Part { name: String::new(), test: (10, 14), labels_until: 16, before: Some(7), after: Some(19) };
        let uses: Vec<Use> = (0..22).map(|time| part.use_of(time, time + 2)).collect();
        let named = |wanted: Use| (0..22).filter(|time| uses[*time] == wanted).collect::<Vec<_>>();
        assert_eq!(named(Use::Train), [0, 1, 2, 3, 4, 20, 21]);
        assert_eq!(named(Use::Embargoed), [5, 6, 7, 17, 18, 19]);
        assert_eq!(named(Use::Purged), [8, 9, 15, 16]);
        assert_eq!(named(Use::Test), [10, 11, 12, 13, 14]);
    }

    #[test]
    fn an_embargo_beyond_the_data_leaves_nothing_to_train() {
        let part = Part { name: String::new(), test: (10, 14), labels_until: 14, before: None, after: None };
        assert_eq!(part.use_of(0, 1), Use::Embargoed);
        assert_eq!(part.use_of(99, 99), Use::Embargoed);
    }
}
