//! What the dates of a file show about the order of day and month, such as `05/06/2024`.

use super::cells::Cells;
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

impl DateEvidence {
    /// Checks the date of one row.
    pub fn look(&mut self, time: &Cells<'_>, row: usize) {
        if let Cells::Text(texts) = time
            && let Some((first, second)) = open_order(texts.value(row))
        {
            // The fifth of May is the same in both orders.
            if first == second {
                return;
            }
            if !self.open {
                self.example = texts.value(row).trim().to_owned();
            }
            self.open = true;
            self.month_first |= (1..=12).contains(&first) && (13..=31).contains(&second);
            self.day_first |= (13..=31).contains(&first) && (1..=12).contains(&second);
        }
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
