//! Adjusting raw bars for splits and dividends, as of a date, when they are loaded.
//!
//! Bars before an ex-date are converted to the terms after it. A split of r new shares for one: prices x 1/r, volume x
//! r. A cash dividend d: prices x (1 - d / c), where c is the raw close of the last regular bar before the ex-date (the
//! convention of CRSP), volume unchanged. Factors of several events multiply, from the newest back. Only events whose
//! ex-date is not after the as-of are applied, so that an answer as of a past date uses no later event. When every bar
//! is an as-of of its own (all bars, backtests), `known_from` gives the bar from which an event is known.

use super::factors::FactorRow;
use crate::arrow_file::SymbolBars;
use crate::calendar::Calendar;
use crate::error::MarketError;
use crate::name::{Timeframe, shortened};
use crate::time::{TimeMicros, parse_time};

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
    /// Events with a later ex-date are not applied; `TimeMicros::MAX` applies all.
    pub as_of: TimeMicros,
    /// With an answer per bar: adjust every bar as of the last one (`@last`), which looks ahead, instead of as of
    /// itself.
    pub at_last: bool,
}

impl Adjustment {
    /// Raw bars.
    pub const NONE: Self = Self { mode: AdjustmentMode::None, as_of: TimeMicros::MAX, at_last: false };

    /// Reads `none`, `split` or `split+dividend`, each optionally with `@last` or `@DATE`; without a date, all events.
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
        let as_of = date.filter(|_| !at_last).map_or(Some(TimeMicros::MAX), parse_time).ok_or_else(bad)?;
        Ok(Self { mode, as_of, at_last })
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
    if timeframe.is_dated() { event.date } else { calendar.trading_day_start(event.date) }
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

/// Adjusts the bars of one symbol in place. `columns` names them; `closes` are the raw closes.
pub(crate) fn adjust(
    bars: &mut SymbolBars,
    columns: &[String],
    closes: Option<&[f64]>,
    events: &[FactorRow],
    adjustment: &Adjustment,
    (calendar, timeframe): (Calendar, Timeframe),
) {
    let dated = timeframe.is_dated();
    let effect = |e: &FactorRow| calendar.trading_day_start(e.date);
    let known = |e: &&FactorRow| known_from(e, calendar, timeframe) <= adjustment.as_of;
    let (mut price, mut volume, mut end) = (1.0, 1.0, bars.times.len());
    for event in events.iter().filter(known).rev() {
        let starts = effect(event);
        let before = bars.times.partition_point(|&t| calendar.bar_end(timeframe, t) <= starts).min(end);
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

fn rescale(bars: &mut SymbolBars, columns: &[String], range: std::ops::Range<usize>, price: f64, volume: f64) {
    for (column, values) in columns.iter().zip(&mut bars.columns) {
        let by = match scale(column) {
            Scale::Price => price,
            Scale::Volume => volume,
            Scale::Not => continue,
        };
        if by != 1.0 {
            values[range.clone()].iter_mut().for_each(|v| *v *= by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut bars = SymbolBars {
            symbol: "A".into(),
            times: times.iter().map(|t| at(t)).collect(),
            columns: vec![closes.clone(), vec![10.0; n], vec![7.0; n]],
        };
        let how = Adjustment::parse(how).unwrap();
        let frame = frame.parse().unwrap();
        adjust(&mut bars, &columns, Some(&closes), events, &how, (Calendar::XNYS, frame));
        bars.columns
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
        let early = adjusted(&times[..2], "1m", "split@2024-12-06 00:30", &[event("2024-12-06", 2.0, 0.0)]);
        assert_eq!(early[0], [100.0, 100.0]);
    }

    #[test]
    fn ways_to_adjust_are_read_and_others_refused() {
        assert_eq!(Adjustment::parse("none").unwrap(), Adjustment::NONE);
        let split = Adjustment::parse("split@2013-02-22").unwrap();
        assert_eq!((split.mode, split.as_of), (AdjustmentMode::Split, at("2013-02-22")));
        assert_eq!(split.known_at(at("2012-01-03")).as_of, at("2012-01-03"));
        let last = Adjustment::parse("split+dividend@last").unwrap();
        assert_eq!((last.mode, last.at_last), (AdjustmentMode::SplitAndDividend, true));
        for bad in ["", "splits", "split@", "split@soon", "dividend"] {
            assert!(Adjustment::parse(bad).unwrap_err().to_string().contains("split+dividend"), "{bad}");
        }
    }
}
