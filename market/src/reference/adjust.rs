//! Adjusting raw bars for splits and dividends, as of a date, when they are loaded.
//!
//! Bars before an ex-date are converted to the terms after it. A split of r new shares for one: prices x 1/r, volume x
//! r. A cash dividend d: prices x (1 - d / c), where c is the raw close of the last regular bar before the ex-date (the
//! convention of CRSP), volume unchanged. Factors of several events multiply, from the newest back. Only events whose
//! ex-date is not after the as-of are applied, so that an answer as of a past date uses no later event. When every bar
//! is an as-of of its own (all bars, backtests), `known_from` gives the bar from which an event is known.

use super::factors::FactorRow;
use crate::arrow_file::LoadedBars;
use crate::calendar::Calendar;
use crate::error::MarketError;
use trawl_terms::{TimeUnit, Timeframe};

use crate::name::shortened;
use crate::time::{DAY, TimeMicros, YearFirst, add_months, parse_year_first};

/// What bars are adjusted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdjustmentMode {
    /// Raw, as stored.
    #[default]
    None,
    /// Splits.
    Split,
    /// Splits and cash dividends.
    SplitAndDividend,
}

/// How bars are adjusted when they are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adjustment {
    /// The kind of events.
    pub mode: AdjustmentMode,
    /// Events that bars starting by this time do not include are not applied; `TimeMicros::MAX` applies all.
    pub as_of: TimeMicros,
    /// `as_of` is 00:00 UTC of a date that the user wrote, whose own events apply: [`Adjustment::on`] makes it a time.
    pub by_date: bool,
    /// With an answer per bar: adjust every bar as of the last one (`@last`), which looks ahead, instead of as of
    /// itself.
    pub at_last: bool,
}

impl Adjustment {
    /// Raw bars.
    pub const NONE: Self = Self { mode: AdjustmentMode::None, as_of: TimeMicros::MAX, by_date: false, at_last: false };

    /// Reads `none`, `split` or `split+dividend`, each optionally with `@last`, `@DATE` or `@` and an instant; without
    /// them, all events.
    ///
    /// # Errors
    /// [`MarketError::BadName`].
    pub fn parse(text: &str) -> Result<Self, MarketError> {
        let bad = || MarketError::BadName {
            text: shortened(text),
            what: "way to adjust",
            expected:
                "expected none, split or split+dividend, or one of them as of the last bar (split@last) or of a date \
                       (split@2024-06-28)"
                    .to_owned(),
        };
        let (mode, date) = match text.split_once('@') {
            Some((mode, date)) => (mode, Some(date)),
            None => (text, None),
        };
        let mode = match mode.trim() {
            "none" => AdjustmentMode::None,
            "split" => AdjustmentMode::Split,
            "split+dividend" => AdjustmentMode::SplitAndDividend,
            _ => return Err(bad()),
        };
        let at_last = date == Some("last");
        let (as_of, by_date) = match date.filter(|_| !at_last).map(parse_year_first) {
            None => (TimeMicros::MAX, false),
            Some(Some(YearFirst::Date(date))) => (date, true),
            Some(Some(YearFirst::Instant(at))) => (at, false),
            // A local time would need the exchange's clock, and a date such as 05/06/2024 two readings.
            Some(Some(YearFirst::Wall(..)) | None) => return Err(bad()),
        };
        Ok(Self { mode, as_of, by_date, at_last })
    }

    /// The same for a dataset's bars: with a date, the events up to the end of that date are applied; to bars of more
    /// than a day also the later ones that its bar covers.
    #[must_use]
    pub fn on(self, calendar: Calendar, timeframe: Timeframe) -> Self {
        let as_of = match (self.by_date, timeframe.is_dated()) {
            (false, _) => self.as_of,
            (true, true) => first_bar_after(self.as_of, calendar, timeframe),
            (true, false) => calendar.trading_day_start(self.as_of.saturating_add(DAY)) - 1,
        };
        Self { as_of, by_date: false, ..self }
    }

    /// The same, but applying no event after `time`: what a scan as of `time` may know.
    #[must_use]
    pub fn known_at(self, time: TimeMicros) -> Self {
        Self { as_of: self.as_of.min(time), ..self }
    }

    /// Whether bars are left raw.
    pub fn is_none(&self) -> bool {
        self.mode == AdjustmentMode::None
    }
}

/// When an event becomes known: the first bar that starts at or after this time includes it.
pub(crate) fn known_from(event: &FactorRow, calendar: Calendar, timeframe: Timeframe) -> TimeMicros {
    first_bar_after(event.date, calendar, timeframe)
}

/// The least time of a bar that covers trading on a date, or on the first one after it that has a session: bars of
/// weeks and months from the first date of the period that holds it.
pub(super) fn first_bar_after(date: TimeMicros, calendar: Calendar, timeframe: Timeframe) -> TimeMicros {
    let count = i64::from(timeframe.count);
    let traded = || calendar.session_on(date).or_else(|| calendar.next_session(date)).map_or(date, |s| s.date);
    match timeframe.unit {
        TimeUnit::Minute | TimeUnit::Hour => calendar.trading_day_start(date),
        TimeUnit::Day if count == 1 => date,
        TimeUnit::Day => {
            let first = calendar.ordinal(traded()).saturating_sub(count - 1);
            calendar.nth(first).map_or_else(|| traded().saturating_sub((count - 1) * DAY), |s| s.date)
        }
        TimeUnit::Week => calendar.period_start(timeframe, traded()).saturating_sub((count - 1) * 7 * DAY),
        TimeUnit::Month => add_months(traded(), 1 - count),
    }
}

/// Which column holds what.
#[derive(Debug, Clone, Copy)]
enum Scale {
    Price,
    Volume,
    Not,
}

fn scale(column: &str) -> Scale {
    match column {
        "open" | "high" | "low" | "close" | "vwap" => Scale::Price,
        "volume" => Scale::Volume,
        _ => Scale::Not,
    }
}

/// The events of a symbol that an adjustment applies, by date. They are the first ones: those of a later as-of begin with those of an
/// earlier one.
pub(crate) fn known_events<'e>(
    events: &'e [FactorRow],
    adjustment: &Adjustment,
    (calendar, timeframe): (Calendar, Timeframe),
) -> impl DoubleEndedIterator<Item = &'e FactorRow> {
    let as_of = adjustment.as_of;
    events.iter().filter(move |event| known_from(event, calendar, timeframe) <= as_of)
}

/// Adjusts the bars of one symbol in place. `columns` names them; `closes` are the raw closes.
pub(crate) fn adjust(
    bars: &mut LoadedBars,
    columns: &[String],
    closes: Option<&[f64]>,
    events: &[FactorRow],
    adjustment: &Adjustment,
    (calendar, timeframe): (Calendar, Timeframe),
) {
    let dated = timeframe.is_dated();
    let effect = |e: &FactorRow| calendar.trading_day_start(e.date);
    let (mut price, mut volume, mut end) = (1.0, 1.0, bars.times.len());
    for event in known_events(events, adjustment, (calendar, timeframe)).rev() {
        let (from, starts) = (known_from(event, calendar, timeframe), effect(event));
        let is_before = |&t: &TimeMicros| if dated { t < from } else { calendar.bar_end(timeframe, t) <= starts };
        let before = bars.times.partition_point(is_before).min(end);
        rescale(bars, columns, before..end, price, volume);
        end = before;
        price /= event.split;
        volume *= event.split;
        if adjustment.mode == AdjustmentMode::SplitAndDividend && event.dividend > 0.0 {
            let regular = |&i: &usize| dated || calendar.is_regular(bars.times[i]);
            let close = closes.and_then(|c| (0..before).rev().filter(regular).map(|i| c[i]).find(|c| !c.is_nan()));
            // After a dividend larger than the price no prices are left to compare.
            let factor = 1.0 - event.dividend / close.unwrap_or(f64::INFINITY);
            price *= if factor > 0.0 { factor } else { f64::NAN };
        }
    }
    rescale(bars, columns, 0..end, price, volume);
}

fn rescale(bars: &mut LoadedBars, columns: &[String], range: std::ops::Range<usize>, price: f64, volume: f64) {
    let range = range.start.max(bars.unread)..range.end;
    if range.is_empty() {
        return;
    }
    for (column, values) in columns.iter().zip(&mut bars.columns) {
        let by = match scale(column) {
            Scale::Price => price,
            Scale::Volume => volume,
            Scale::Not => continue,
        };
        if by != 1.0 {
            values.to_mut()[range.clone()].iter_mut().for_each(|v| *v *= by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;
    use crate::time::parse_time;

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    fn event(date: &str, split: f64, dividend: f64) -> FactorRow {
        FactorRow { symbol: "A".to_owned(), date: at(date), split, dividend }
    }

    fn adjusted(times: &[&str], frame: &str, how: &str, events: &[FactorRow]) -> Vec<Vec<f64>> {
        let n = times.len();
        let closes = vec![100.0; n];
        let columns = ["close", "volume", "rank"].map(str::to_owned);
        let mut bars = LoadedBars {
            symbol: "A".into(),
            times: times.iter().map(|t| at(t)).collect(),
            columns: [closes.clone(), vec![10.0; n], vec![7.0; n]].map(Series::from).to_vec(),
            unread: 0,
            untimed: 0,
        };
        let how = Adjustment::parse(how).unwrap();
        let frame = frame.parse().unwrap();
        adjust(&mut bars, &columns, Some(&closes), events, &how.on(Calendar::XNYS, frame), (Calendar::XNYS, frame));
        bars.columns.iter().map(|column| column.to_vec()).collect()
    }

    const DAYS: [&str; 4] = ["2024-12-03", "2024-12-04", "2024-12-05", "2024-12-06"];

    #[test]
    fn bars_before_a_split_are_put_into_the_terms_after_it() {
        let found = adjusted(&DAYS, "1d", "split", &[event("2024-12-05", 4.0, 5.0)]);
        assert_eq!(found, [[25.0, 25.0, 100.0, 100.0], [40.0, 40.0, 10.0, 10.0], [7.0; 4]]);
    }

    #[test]
    fn a_dividend_lowers_prices_before_it_and_leaves_volume() {
        let events = [event("2024-12-04", 2.0, 0.0), event("2024-12-06", 1.0, 10.0)];
        let found = adjusted(&DAYS, "1d", "split+dividend", &events);
        assert_eq!(found, [[45.0, 90.0, 90.0, 100.0], [20.0, 10.0, 10.0, 10.0], [7.0; 4]]);
        let nothing_left = adjusted(&DAYS, "1d", "split+dividend", &[event("2024-12-04", 1.0, 100.0)]);
        assert!(nothing_left[0][0].is_nan() && nothing_left[0][1] == 100.0);
    }

    #[test]
    fn events_after_the_as_of_are_unknown() {
        let events = [event("2024-12-04", 2.0, 0.0), event("2024-12-06", 4.0, 0.0)];
        assert_eq!(adjusted(&DAYS, "1d", "split@2024-12-05", &events)[0], [50.0, 100.0, 100.0, 100.0]);
        assert_eq!(adjusted(&DAYS, "1d", "split@2024-12-06", &events)[0], [12.5, 25.0, 25.0, 100.0]);
        assert_eq!(adjusted(&DAYS, "1d", "none", &[])[0], [100.0; 4]);
    }

    #[test]
    fn after_hours_past_midnight_utc_belong_to_the_evening_before() {
        let times = ["2024-12-05 20:59", "2024-12-06 00:30", "2024-12-06 09:00", "2024-12-06 14:30"];
        let found = adjusted(&times, "1m", "split", &[event("2024-12-06", 2.0, 0.0)]);
        assert_eq!(found[0], [50.0, 50.0, 100.0, 100.0]);
        let early = adjusted(&times[..2], "1m", "split@2024-12-06T00:30:00Z", &[event("2024-12-06", 2.0, 0.0)]);
        assert_eq!(early[0], [100.0, 100.0]);
    }

    #[test]
    fn a_date_includes_its_own_events_and_those_of_no_later_day() {
        let times = ["2024-11-27 20:59", "2024-11-29 14:30", "2024-12-02 14:30"];
        let events = [event("2024-11-29", 2.0, 0.0), event("2024-12-02", 4.0, 0.0)];
        assert_eq!(adjusted(&times, "1m", "split@2024-11-28", &events)[0], [100.0, 100.0, 100.0]);
        assert_eq!(adjusted(&times, "1m", "split@2024-11-29", &events)[0], [50.0, 100.0, 100.0]);
        // The weekend has no trading, and Monday's split is later.
        assert_eq!(adjusted(&times, "1m", "split@2024-12-01", &events)[0], [50.0, 100.0, 100.0]);
        assert_eq!(adjusted(&times, "1m", "split@2024-12-02", &events)[0], [12.5, 25.0, 100.0]);
    }

    #[test]
    fn a_week_or_a_month_that_holds_a_split_is_in_the_terms_after_it() {
        let split = [event("2024-10-02", 2.0, 0.0)];
        for (frame, labels) in [
            ("1w", ["2024-09-16", "2024-09-23", "2024-09-30", "2024-10-07"]),
            // Fridays.
            ("1w", ["2024-09-20", "2024-09-27", "2024-10-04", "2024-10-11"]),
            ("1mo", ["2024-08-01", "2024-09-01", "2024-10-01", "2024-11-01"]),
            ("1mo", ["2024-08-30", "2024-09-30", "2024-10-31", "2024-11-29"]),
            ("2d", ["2024-09-27", "2024-09-30", "2024-10-02", "2024-10-04"]),
        ] {
            let found = adjusted(&labels, frame, "split", &split);
            assert_eq!(found[0], [50.0, 50.0, 100.0, 100.0], "{frame} {labels:?}");
            let as_of = Adjustment::parse("split").unwrap().known_at(at(labels[2]));
            let before = Adjustment::parse("split").unwrap().known_at(at(labels[1]));
            let first = known_from(&split[0], Calendar::XNYS, frame.parse().unwrap());
            assert!(first <= as_of.as_of && first > before.as_of, "{frame} {labels:?}");
        }
    }

    #[test]
    fn ways_to_adjust_are_read_and_others_refused() {
        assert_eq!(Adjustment::parse("none").unwrap(), Adjustment::NONE);
        let split = Adjustment::parse("split@2013-02-22").unwrap();
        assert_eq!((split.mode, split.as_of), (AdjustmentMode::Split, at("2013-02-22")));
        assert_eq!(split.known_at(at("2012-01-03")).as_of, at("2012-01-03"));
        let last = Adjustment::parse("split+dividend@last").unwrap();
        assert_eq!((last.mode, last.at_last), (AdjustmentMode::SplitAndDividend, true));
        for bad in ["", "splits", "split@", "split@soon", "dividend", "split@05/06/2024", "split@2024-06-05 10:00"] {
            assert!(Adjustment::parse(bad).unwrap_err().to_string().contains("split+dividend"), "{bad}");
        }
    }
}
