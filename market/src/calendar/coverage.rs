//! Warnings for bars beyond the years that a calendar covers.
//!
//! Dated bars remain meaningful there: every date with a bar is a session, and weeks and months end with their last
//! day. Minutes and hours do not: it is unknown which session a bar belongs to, so building higher bars from them is
//! refused.

use super::Calendar;
use crate::time::{TimeMicros, format_time};
use trawl_terms::Timeframe;

impl Calendar {
    /// A warning when bars of a timeframe between two times lie where the calendar does not know the sessions, or not
    /// their hours; it gives the years and the rule that applies there.
    pub fn coverage_warning(&self, timeframe: Timeframe, first: TimeMicros, last: TimeMicros) -> Option<String> {
        let (from, to) = self.range();
        let dated = timeframe.is_dated();
        let beyond = [first, last].into_iter().any(|t| {
            let known = if dated { self.covers(t) } else { self.check_known(t).is_ok() };
            !known
        });
        if beyond {
            let then = if dated {
                "outside, every date with a bar counts as a session, and weeks and months end with their last day"
            } else {
                "outside, sessions are not known: a day is a UTC day, and bars of other lengths cannot be built"
            };
            let (name, from, to) = (self.name(), format_time(from), format_time(to));
            return Some(format!("calendar {name} covers {from} to {to}, and the bars reach beyond: {then}"));
        }
        let known = self.table().rules.hours_known;
        (!dated && first < known && from < known).then(|| {
            let (name, known) = (self.name(), format_time(known));
            format!(
                "calendar {name} knows the trading hours from {known} on, and the bars begin before: sessions before it \
                 may have had other hours than the calendar assumes"
            )
        })
    }
}
