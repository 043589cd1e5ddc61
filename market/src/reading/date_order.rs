//! What the dates of a file show about the order of day and month, such as `05/06/2024`.

use super::cells::Cells;
use crate::limits::CLASSIFY_ROWS;
use crate::time::open_order;

/// What a file's dates show about the order of day and month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OrderEvidence {
    /// No date is ambiguous.
    NotNeeded,
    /// Some dates are ambiguous, and none decides.
    Silent,
    Decided(DateOrderKey),
    /// Both orders occur.
    Mixed,
}

/// [`crate::time::DateOrder`] with equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DateOrderKey {
    MonthFirst,
    DayFirst,
}

/// The orders of day and month that were seen.
#[derive(Debug, Clone, Default)]
pub(super) struct DateEvidence {
    /// Some date is ambiguous.
    pub open: bool,
    /// The first of them as written.
    pub example: String,
    month_first: bool,
    day_first: bool,
}

/// The dates of one batch whose order is ambiguous, by the first rows that have them.
#[derive(Debug, Clone, Default)]
pub(super) struct BatchDates {
    /// The first of them as written.
    first: Option<(usize, String)>,
    month_first: Option<usize>,
    day_first: Option<usize>,
}

impl BatchDates {
    /// Checks the date of one row; rows ascend.
    pub fn look(&mut self, time: &Cells<'_>, row: usize) {
        if let Some(text) = time.written(row)
            && let Some((first, second)) = open_order(text)
        {
            // The fifth of May is the same in both orders.
            if first == second {
                return;
            }
            if self.first.is_none() {
                self.first = Some((row, text.trim().to_owned()));
            }
            if (1..=12).contains(&first) && (13..=31).contains(&second) {
                self.month_first.get_or_insert(row);
            }
            if (13..=31).contains(&first) && (1..=12).contains(&second) {
                self.day_first.get_or_insert(row);
            }
        }
    }
}

impl DateEvidence {
    /// Adds what the dates of the next batch show, up to a row, until `decided`. Once some date is ambiguous all are
    /// checked; before, the first of each batch are enough to see whether dates can be. Returns whether it was decided.
    pub fn add(&mut self, dates: &BatchDates, last: usize, decided: impl Fn(&Self) -> bool) -> bool {
        let Some((row, text)) = dates.first.as_ref().filter(|(row, _)| *row <= last) else { return false };
        if !self.open && *row >= CLASSIFY_ROWS {
            return false;
        }
        if !self.open {
            self.example.clone_from(text);
        }
        self.open = true;
        let mut shown = [(dates.month_first, true), (dates.day_first, false)];
        shown.sort_unstable();
        for (row, month_first) in shown {
            if row.is_none_or(|row| row > last) {
                continue;
            }
            if month_first {
                self.month_first = true
            } else {
                self.day_first = true
            }
            if decided(self) {
                return true;
            }
        }
        decided(self)
    }

    /// Whether only the day-first order occurs.
    pub fn is_day_first(&self) -> bool {
        self.day_first && !self.month_first
    }

    /// Whether some date is valid only with the month first.
    pub fn has_month_first(&self) -> bool {
        self.month_first
    }

    pub fn conclude(&self) -> OrderEvidence {
        match (self.open, self.month_first, self.day_first) {
            (false, ..) => OrderEvidence::NotNeeded,
            (true, false, false) => OrderEvidence::Silent,
            (true, true, true) => OrderEvidence::Mixed,
            (true, true, false) => OrderEvidence::Decided(DateOrderKey::MonthFirst),
            (true, false, true) => OrderEvidence::Decided(DateOrderKey::DayFirst),
        }
    }
}
