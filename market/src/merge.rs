//! Merges imported bars of a symbol with those of a dataset.

use std::ops::AddAssign;

use crate::arrow_file::SymbolBars;
use crate::import::Spans;

/// What happened to the good rows of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct MergeCounts {
    pub added: u64,
    pub unchanged: u64,
    pub revised: u64,
    /// Known bars that are in a span that is replaced, and do not come again.
    pub removed: u64,
}

impl AddAssign for MergeCounts {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.unchanged += other.unchanged;
        self.revised += other.revised;
        self.removed += other.removed;
    }
}

/// Merges a symbol's known bars with new ones; both have the same columns and ascending times.
///
/// Where both have a bar the new values win, but a NaN never replaces a number. In spans that are replaced the new bars alone count.
pub(crate) fn merge_bars(known: SymbolBars, new: SymbolBars, replaced: &Spans, counts: &mut MergeCounts) -> SymbolBars {
    debug_assert_eq!(known.columns.len(), new.columns.len());
    let rows = known.times.len() + new.times.len();
    let mut merged = SymbolBars {
        symbol: known.symbol,
        times: Vec::with_capacity(rows),
        columns: vec![Vec::with_capacity(rows); known.columns.len()],
    };
    let (mut k, mut n) = (0, 0);
    loop {
        let (old_time, new_time) = (known.times.get(k).copied(), new.times.get(n).copied());
        let Some(time) = old_time.into_iter().chain(new_time).min() else { return merged };
        let (has_old, has_new) = (old_time == Some(time), new_time == Some(time));
        let alone = replaced.holds(time);
        if alone && !has_new {
            counts.removed += 1;
            k += 1;
            continue;
        }
        merged.times.push(time);
        let mut revised = false;
        for ((to, old), new) in merged.columns.iter_mut().zip(&known.columns).zip(&new.columns) {
            to.push(match (has_old, has_new) {
                (true, true) => {
                    let (old, new) = (old[k], new[n]);
                    // Compared as bits, so that -0.0 for 0.0 counts as a revision: the file would change.
                    let differs = (alone || !new.is_nan()) && new.to_bits() != old.to_bits();
                    revised |= differs;
                    if differs { new } else { old }
                }
                (true, false) => old[k],
                _ => new[n],
            });
        }
        match (has_old, has_new) {
            (true, true) if revised => counts.revised += 1,
            (true, true) => counts.unchanged += 1,
            (false, true) => counts.added += 1,
            _ => {}
        }
        k += usize::from(has_old);
        n += usize::from(has_new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(rows: &[(i64, f64)]) -> SymbolBars {
        SymbolBars {
            symbol: "X".into(),
            times: rows.iter().map(|r| r.0).collect(),
            columns: vec![rows.iter().map(|r| r.1).collect()],
        }
    }

    #[test]
    fn new_values_win_and_a_missing_one_does_not_replace_a_known_one() {
        let mut counts = MergeCounts::default();
        let known = bars(&[(1, 10.0), (2, 20.0), (4, 40.0), (5, f64::NAN)]);
        let new = bars(&[(0, 1.0), (1, 10.0), (2, 21.0), (4, f64::NAN), (5, 50.0), (6, f64::NAN)]);
        let merged = merge_bars(known, new, &Spans::default(), &mut counts);
        assert_eq!(merged.times, [0, 1, 2, 4, 5, 6]);
        assert_eq!(merged.columns[0][..5], [1.0, 10.0, 21.0, 40.0, 50.0]);
        assert!(merged.columns[0][5].is_nan());
        assert_eq!(counts, MergeCounts { added: 2, unchanged: 2, revised: 2, removed: 0 });
    }

    #[test]
    fn in_a_span_that_is_replaced_the_new_bars_alone_count() {
        use crate::calendar::Calendar;
        use crate::time::DAY;
        let replaced = Spans::of_dates(&[DAY, 2 * DAY], trawl_terms::Timeframe::DAY, Calendar::XNYS);
        let mut counts = MergeCounts::default();
        let known = bars(&[(0, 10.0), (DAY, 20.0), (2 * DAY, 30.0), (3 * DAY, 40.0)]);
        let merged = merge_bars(known, bars(&[(2 * DAY, f64::NAN)]), &replaced, &mut counts);
        assert_eq!(merged.times, [0, 2 * DAY, 3 * DAY]);
        assert!(merged.columns[0][1].is_nan());
        assert_eq!(counts, MergeCounts { added: 0, unchanged: 0, revised: 1, removed: 1 });
    }
}
