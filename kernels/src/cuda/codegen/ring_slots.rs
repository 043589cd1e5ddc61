//! Sizes of rings of past values.

/// A private ring of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingSlots {
    /// This many slots, of which a history of n bars uses the first n + 1.
    UpTo(usize),
    /// `slots` slots, of which a history of n bars uses the first n + 1; behind these the first `again` of them once more.
    Again { slots: usize, again: usize },
    /// Exactly this many slots.
    Exactly(usize),
    /// `slots` slots, of which a history of n bars uses the first n + 1, plus `more`; `each` rows per slot.
    Rows { slots: usize, more: usize, each: usize },
}

impl RingSlots {
    /// Rows of memory that it needs at most.
    pub fn rows(self) -> usize {
        match self {
            Self::UpTo(slots) | Self::Exactly(slots) => slots,
            Self::Again { slots, again } => slots.saturating_add(again),
            Self::Rows { slots, more, each } => slots.saturating_add(more).saturating_mul(each),
        }
    }
}
