//! Spans of time that are those of dates. An import replaces the bars of some: what the dataset has there and the import does not is
//! removed, since a vendor that publishes a day again may have withdrawn bars. Files of a day each have bars of their date alone.

use crate::calendar::Calendar;
use crate::time::{DAY, DateOrder, TimeMicros, parse_written};
use trawl_terms::Timeframe;

/// Bytes of a date such as `2024-06-28`.
const DATE_BYTES: usize = 10;

/// From and before which labels of bars are of a date on the exchange's clock.
fn span_of(date: TimeMicros, timeframe: Timeframe, calendar: Calendar) -> (TimeMicros, TimeMicros) {
    let instant = |local: TimeMicros| if timeframe.is_dated() { local } else { calendar.zone().to_utc(local) };
    (instant(date), instant(date + DAY))
}

/// The span of the date with which a file's name begins; `None` for another name.
pub(super) fn span_of_file(name: &str, timeframe: Timeframe, calendar: Calendar) -> Option<(TimeMicros, TimeMicros)> {
    Some(span_of(date_of_file(name)?, timeframe, calendar))
}

/// The date with which a file's name begins, as midnight in UTC.
pub(super) fn date_of_file(name: &str) -> Option<TimeMicros> {
    Some(parse_written(name.get(..DATE_BYTES)?, DateOrder::MonthFirst)?.local)
}

/// Spans of labels of bars, each from its start on and before its end; ascending, and apart from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<(TimeMicros, TimeMicros)>);

impl Spans {
    /// The spans of dates on the exchange's clock, given as midnights in UTC. Dated bars are labelled by their date, others by an
    /// instant.
    pub fn of_dates(dates: &[TimeMicros], timeframe: Timeframe, calendar: Calendar) -> Self {
        let mut spans: Vec<_> = dates.iter().map(|date| span_of(*date, timeframe, calendar)).collect();
        spans.sort_unstable();
        spans.dedup();
        Self(spans)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a label is in one of them.
    pub fn holds(&self, time: TimeMicros) -> bool {
        self.touches(time, time)
    }

    /// Whether one of them has instants from `first` to `last`, both included.
    pub fn touches(&self, first: TimeMicros, last: TimeMicros) -> bool {
        let at = self.0.partition_point(|(_, end)| *end <= first);
        self.0.get(at).is_some_and(|(start, _)| *start <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_time;

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    #[test]
    fn the_span_of_a_date_is_its_label_or_its_day_on_the_exchanges_clock() {
        let dates = [at("2024-06-28"), at("2024-01-02")];
        let days = Spans::of_dates(&dates, Timeframe::DAY, Calendar::XNYS);
        assert!(days.holds(at("2024-06-28")) && days.holds(at("2024-01-02")));
        assert!(!days.holds(at("2024-06-29")) && !days.holds(at("2024-01-01")) && !days.holds(at("2024-03-01")));
        let minutes = Spans::of_dates(&dates, "1m".parse().unwrap(), Calendar::XNYS);
        assert!(minutes.holds(at("2024-06-28T04:00:00Z")) && minutes.holds(at("2024-06-29T03:59:00Z")));
        assert!(!minutes.holds(at("2024-06-28T03:59:00Z")) && !minutes.holds(at("2024-06-29T04:00:00Z")));
        assert!(minutes.holds(at("2024-01-03T04:59:00Z")) && !minutes.holds(at("2024-01-02T04:59:00Z")));
        assert!(
            minutes.touches(at("2024-01-01"), at("2024-02-01")) && !minutes.touches(at("2024-02-01"), at("2024-06-01"))
        );
        assert!(!Spans::default().touches(TimeMicros::MIN, TimeMicros::MAX));
    }
}
