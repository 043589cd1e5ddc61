use proptest::prelude::*;

use super::*;
use crate::time::{format_time, parse_time};

fn at(text: &str) -> TimeMicros {
    parse_time(text).unwrap()
}

fn frame(text: &str) -> Timeframe {
    text.parse().unwrap()
}

fn built(calendar: Calendar, base: &str, higher: &str, times: &[TimeMicros]) -> HigherBars {
    higher_bars(&calendar, frame(base), frame(higher), times).unwrap()
}

/// Of every base bar.
fn completed(bars: &HigherBars) -> Vec<usize> {
    (0..).map_while(|bar| bars.completed(bar)).collect()
}

/// [`higher_bars`] by its definition: the session, the period and the end of each base bar on its own.
fn one_by_one(calendar: &Calendar, base: Timeframe, higher: Timeframe, times: &[TimeMicros]) -> HigherBars {
    let higher = check(base, higher).unwrap();
    let mut periods = BarSpans { calendar, base, higher, session: None, dated: None };
    let (mut labels, mut members, mut ends) = (Vec::new(), Vec::<Vec<usize>>::new(), Vec::new());
    let (mut complete_from, mut seen) = (Vec::new(), TimeMicros::MIN);
    for (i, &time) in times.iter().enumerate() {
        let session = periods.session(time);
        if let Some(period) = session.map(|s| periods.period(time, s)).filter(|p| p.end > seen) {
            if labels.last() == Some(&period.label) {
                members.last_mut().unwrap().push(i);
            } else {
                labels.push(period.label);
                ends.push(period.end);
                members.push(vec![i]);
            }
        }
        seen = seen.max(periods.base_end(time, session));
        while ends.get(complete_from.len()).is_some_and(|end| *end <= seen) {
            complete_from.push(i);
        }
    }
    let (mut runs, mut first_run) = (Vec::new(), Vec::new());
    for members in members {
        first_run.push(runs.len());
        runs.extend(members.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1));
    }
    HigherBars { times: labels, bars: times.len(), complete_from, runs, first_run }
}

fn labels(bars: &HigherBars) -> Vec<String> {
    bars.times.iter().map(|&t| format_time(t)).collect()
}

fn dates(texts: &[&str]) -> Vec<TimeMicros> {
    texts.iter().map(|t| at(t)).collect()
}

/// All minutes of a date's regular session, and two before and after.
fn minutes(date: &str) -> Vec<TimeMicros> {
    let s = Calendar::XNYS.session_on(at(date)).unwrap();
    (-2..(s.close - s.open) / MINUTE + 2).map(|k| s.open + k * MINUTE).collect()
}

#[test]
fn a_week_is_complete_on_its_last_session_even_before_a_holiday() {
    // Good Friday is 2024-03-29.
    let times = dates(&["2024-03-25", "2024-03-26", "2024-03-27", "2024-03-28", "2024-04-01", "2024-04-02"]);
    let bars = built(Calendar::XNYS, "1d", "1w", &times);
    assert_eq!(labels(&bars), ["2024-03-25", "2024-04-01"]);
    assert_eq!(completed(&bars), [0, 0, 0, 1, 1, 1]);
    // Without holidays Friday is still to come.
    assert_eq!(completed(&built(Calendar::WEEKDAYS, "1d", "1w", &times)), [0, 0, 0, 0, 1, 1]);
    let bars = built(Calendar::XNYS, "1d", "1mo", &times);
    assert_eq!(labels(&bars), ["2024-03-01", "2024-04-01"]);
    assert_eq!(completed(&bars), [0, 0, 0, 1, 1, 1]);
}

#[test]
fn a_week_without_its_friday_is_complete_at_the_next_bar() {
    let times = dates(&["2024-03-14", "2024-03-19", "2024-04-10", "2024-04-12"]);
    let bars = built(Calendar::XNYS, "1d", "1w", &times);
    assert_eq!(labels(&bars), ["2024-03-11", "2024-03-18", "2024-04-08"]);
    assert_eq!(completed(&bars), [0, 1, 2, 3]);
}

#[test]
fn a_week_of_minutes_leaves_out_bars_between_its_sessions() {
    let times: Vec<TimeMicros> =
        ["2024-11-26", "2024-11-27", "2024-11-29", "2024-12-02"].iter().flat_map(|d| minutes(d)).collect();
    let bars = built(Calendar::XNYS, "1m", "1w", &times);
    assert_eq!(labels(&bars), ["2024-11-25", "2024-12-02"]);
    assert_eq!(bars.base_bars(0).count(), 390 + 390 + 210);
    assert!(bars.base_bars(0).all(|i| Calendar::XNYS.is_regular(times[i])));
    // The last minute of the half day completes the week.
    let last = times.iter().position(|&t| t == at("2024-11-29 17:59")).unwrap();
    assert_eq!((completed(&bars)[last - 1], completed(&bars)[last], completed(&bars)[last + 1]), (0, 1, 1));
    let ones = vec![1.0; times.len()];
    assert_eq!(bars.aggregate("volume", &ones), [990.0, 390.0]);
    assert_eq!(bars.forming(0), None);
    assert_eq!(bars.forming(3), Some((0, vec![2, 3])));
}

#[test]
fn a_half_day_is_a_day_of_210_minutes_and_cuts_its_last_hour_off() {
    let times: Vec<TimeMicros> = ["2024-11-27", "2024-11-29"].iter().flat_map(|d| minutes(d)).collect();
    let days = built(Calendar::XNYS, "1m", "1d", &times);
    assert_eq!(labels(&days), ["2024-11-27", "2024-11-29"]);
    assert_eq!([days.base_bars(0).count(), days.base_bars(1).count()], [390, 210]);
    let hours = built(Calendar::XNYS, "1m", "60m", &times);
    assert_eq!(hours.times.len(), 7 + 4);
    assert_eq!(labels(&hours)[10], "2024-11-29T17:30:00Z");
    assert_eq!(hours.base_bars(10).count(), 30);
    let seen = |time: &str| completed(&hours)[times.iter().position(|&t| t == at(time)).unwrap()];
    assert_eq!([seen("2024-11-29 17:58"), seen("2024-11-29 17:59"), seen("2024-11-29 18:01")], [10, 11, 11]);
}

#[test]
fn the_change_of_the_clocks_moves_the_bins_with_the_session() {
    let times: Vec<TimeMicros> = ["2024-03-08", "2024-03-11"].iter().flat_map(|d| minutes(d)).collect();
    let hours = labels(&built(Calendar::XNYS, "1m", "2h", &times));
    assert_eq!(hours[0], "2024-03-08T14:30:00Z");
    assert_eq!(hours[4], "2024-03-11T13:30:00Z");
    assert_eq!(labels(&built(Calendar::XNYS, "1m", "1d", &times)), ["2024-03-08", "2024-03-11"]);
}

#[test]
fn a_thin_symbol_sees_an_hour_when_its_own_next_bar_closes() {
    let times = dates(&["2024-11-27 14:31", "2024-11-27 15:29", "2024-11-27 15:40", "2024-11-27 19:00"]);
    let bars = built(Calendar::XNYS, "1m", "1h", &times);
    assert_eq!(bars.times, dates(&["2024-11-27 14:30", "2024-11-27 15:30", "2024-11-27 18:30"]));
    assert_eq!(completed(&bars), [0, 1, 1, 2]);
}

#[test]
fn dates_without_a_session_enter_nothing_and_still_read() {
    let times = dates(&["2024-11-27", "2024-11-28", "2024-11-29", "2024-11-30", "2024-12-02"]);
    let bars = built(Calendar::XNYS, "1d", "1w", &times);
    assert_eq!(bars.base_bars(0).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(completed(&bars), [0, 0, 1, 1, 1]);
    let times = dates(&["2024-11-29", "2024-11-30", "2024-12-01", "2024-12-02"]);
    assert_eq!(completed(&built(Calendar::ALWAYS, "1d", "1w", &times)), [0, 0, 1, 1]);
}

#[test]
fn counts_over_one_begin_at_a_fixed_date_whatever_the_history() {
    let mut all = Vec::new();
    let mut session = Calendar::XNYS.next_session(at("2023-01-01")).unwrap();
    while session.date < at("2024-01-01") {
        all.push(session.date);
        session = Calendar::XNYS.next_session(session.date).unwrap();
    }
    for higher in ["3d", "2w", "2mo", "3mo", "12mo"] {
        let whole = built(Calendar::XNYS, "1d", higher, &all);
        let late = built(Calendar::XNYS, "1d", higher, &all[50..]);
        let shared = late.times.iter().filter(|t| whole.times.contains(t)).count();
        assert_eq!(shared, late.times.len(), "{higher}");
    }
    assert_eq!(
        labels(&built(Calendar::XNYS, "1d", "3mo", &all)),
        ["2023-01-01", "2023-04-01", "2023-07-01", "2023-10-01"]
    );
    let three = built(Calendar::XNYS, "1d", "3d", &all);
    assert!((1..three.times.len() - 1).all(|i| three.base_bars(i).count() == 3));
    // 2023-01-02 is the Monday of week 2765 since 1970-01-05, an odd one.
    assert_eq!(labels(&built(Calendar::XNYS, "1d", "2w", &all))[..2], ["2022-12-26", "2023-01-09"]);
}

#[test]
fn values_are_aggregated_by_the_meaning_of_their_column() {
    let v = [f64::NAN, 3.0, 1.0, 2.0, f64::NAN];
    let one = |column: &str, range| aggregate(column, &v, range);
    assert_eq!(["open", "high", "low", "close"].map(|c| one(c, 1..4)), [3.0, 3.0, 1.0, 2.0]);
    assert_eq!(["volume", "transactions", "adj_close"].map(|c| one(c, 1..4)), [6.0, 6.0, 2.0]);
    // A missing value in a part makes the whole missing, unless the whole does not use that part.
    for column in ["high", "low", "volume"] {
        assert!(one(column, 0..4).is_nan() && one(column, 1..5).is_nan(), "{column}");
    }
    assert!(one("open", 0..4).is_nan() && one("close", 1..5).is_nan());
    assert_eq!((one("open", 1..5), one("close", 0..4)), (3.0, 2.0));
    assert!(one("close", 0..9).is_nan());
}

#[test]
fn a_higher_bar_that_cannot_be_built_is_refused_with_the_reason() {
    for (base, higher, expected) in [
        ("1d", "1h", "shorter than the dataset's"),
        ("1h", "30m", "shorter than the dataset's"),
        ("1w", "1d", "shorter than the dataset's"),
        ("15m", "20m", "not a multiple of 15"),
        ("1m", "48h", "write their length in days"),
        ("2d", "1w", "only bars of 1d, 1w or 1mo"),
        ("1w", "1mo", "a week may lie in two months"),
        ("1d", "weekly", "is not a timeframe"),
    ] {
        let error = check_resampling(frame(base), higher).unwrap_err();
        assert!(error.contains(expected), "{base} {higher}: {error}");
    }
    for (base, higher, canonical) in
        [("1m", "60m", "1h"), ("1m", "90m", "90m"), ("1d", "1w", "1w"), ("5m", "1d", "1d"), ("1d", "1d", "1d")]
    {
        assert_eq!(check_resampling(frame(base), higher).unwrap().to_string(), canonical);
    }
    let beyond = dates(&["1960-01-04"]);
    for (base, higher) in [("1d", "3d"), ("1m", "1h"), ("1m", "1d")] {
        let error = higher_bars(&Calendar::XNYS, frame(base), frame(higher), &beyond).unwrap_err().to_string();
        assert!(error.contains("1970-01-01 to 2035-12-31"), "{error}");
    }
    for (base, higher) in [("1d", "1d"), ("1d", "1w"), ("1d", "1mo"), ("1mo", "3mo"), ("1w", "2w"), ("1m", "1d")] {
        for time in [TimeMicros::MIN, TimeMicros::MIN + 1, TimeMicros::MAX] {
            assert!(higher_bars(&Calendar::XNYS, frame(base), frame(higher), &[time]).is_err());
        }
    }
}

#[test]
fn before_the_years_of_the_calendar_a_week_is_complete_at_its_end() {
    let times = dates(&["1969-12-22", "1969-12-26", "1969-12-29", "1969-12-31", "1970-01-02", "1970-01-05"]);
    let weeks = built(Calendar::XNYS, "1d", "1w", &times);
    assert_eq!(labels(&weeks), ["1969-12-22", "1969-12-29", "1970-01-05"]);
    assert_eq!(completed(&weeks), [0, 0, 1, 1, 2, 2]);
    assert_eq!(completed(&built(Calendar::XNYS, "1d", "1d", &times)), [1, 2, 3, 4, 5, 6]);
    assert_eq!(completed(&built(Calendar::XNYS, "1d", "1mo", &times)), [0, 0, 0, 1, 1, 1]);
    let late = dates(&["2035-12-28", "2035-12-31", "2036-01-04", "2036-01-07"]);
    assert_eq!(completed(&built(Calendar::XNYS, "1d", "1w", &late)), [1, 1, 1, 2]);
}

#[test]
fn hours_start_over_after_the_lunch_break() {
    // 09:00 to 11:30 and 12:30 to 15:30 in Tokyo, nine hours before UTC; bars in the break are of no session.
    let times: Vec<TimeMicros> = (0..420).map(|k| at("2025-01-06") - 5 * MINUTE + k * MINUTE).collect();
    let tokyo = Calendar::named("XTKS").unwrap();
    let hours = built(tokyo, "1m", "1h", &times);
    let starts = ["00:00:00", "01:00:00", "02:00:00", "03:30:00", "04:30:00", "05:30:00"];
    let starts: Vec<TimeMicros> = starts.iter().map(|t| at(&format!("2025-01-06 {t}"))).collect();
    assert_eq!(hours.times, starts);
    let counts: Vec<usize> = (0..6).map(|k| hours.base_bars(k).count()).collect();
    assert_eq!(counts, [60, 60, 30, 60, 60, 60]);
    let seen = |time: &str| completed(&hours)[times.iter().position(|&t| t == at(time)).unwrap()];
    assert_eq!([seen("2025-01-06 02:28"), seen("2025-01-06 02:29"), seen("2025-01-06 03:30")], [2, 3, 3]);
    let halves = built(tokyo, "1m", "4h", &times);
    assert_eq!((halves.base_bars(0).count(), halves.base_bars(1).count()), (150, 180));
    assert_eq!(built(tokyo, "1m", "1d", &times).base_bars(0).count(), 330);
}

#[test]
fn a_day_over_midnight_is_one_bar_of_its_trading_date() {
    let chicago = Calendar::named("CMES").unwrap();
    // Friday to Tuesday afternoon, every hour: Sunday evening belongs to Monday.
    let times: Vec<TimeMicros> = (0..98).map(|k| at("2025-01-03 20:00") + k * 60 * MINUTE).collect();
    let days = built(chicago, "1h", "1d", &times);
    assert_eq!(labels(&days), ["2025-01-03", "2025-01-06", "2025-01-07"]);
    assert_eq!((days.base_bars(0).count(), days.base_bars(1).count()), (3, 24));
    assert_eq!(times[days.base_bars(1).next().unwrap()], at("2025-01-05 23:00"));
    let seen = |time: &str| completed(&days)[times.iter().position(|&t| t == at(time)).unwrap()];
    assert_eq!([seen("2025-01-03 21:00"), seen("2025-01-03 22:00"), seen("2025-01-06 22:00")], [0, 1, 2]);
    assert_eq!(labels(&built(chicago, "1h", "1w", &times)), ["2024-12-30", "2025-01-06"]);
}

fn calendars() -> impl Strategy<Value = Calendar> {
    proptest::sample::select(Calendar::all().collect::<Vec<_>>())
}

fn frames() -> impl Strategy<Value = (&'static str, &'static str)> {
    let pairs = [
        ("1m", "5m"),
        ("1m", "1h"),
        ("1m", "1d"),
        ("1m", "1w"),
        ("15m", "90m"),
        ("1h", "4h"),
        ("1h", "3d"),
        ("1d", "1d"),
        ("1d", "1w"),
        ("1d", "2w"),
        ("1d", "1mo"),
        ("1w", "2w"),
        ("1mo", "3mo"),
    ];
    proptest::sample::select(pairs.to_vec())
}

proptest! {
    #[test]
    fn later_bars_never_change_what_a_bar_sees(
        calendar in calendars(),
        (base, higher) in frames(),
        gaps in proptest::collection::vec(1i64..3000, 1..120),
        cut in 0usize..120,
    ) {
        let unit = if frame(base).is_dated() { DAY } else { MINUTE };
        let mut time = at("2024-11-25");
        let times: Vec<TimeMicros> = gaps
            .iter()
            // Mostly neighbours, at times a hole; at times bars overlap, which must not repaint either.
            .map(|&g| {
                time += unit * if g < 2700 { 1 + g % 3 } else { (g - 2700).max(1) };
                time
            })
            .collect();
        let whole = built(calendar, base, higher, &times);
        let values: Vec<f64> = (0..times.len()).map(|i| (i * 7919 % 101) as f64).collect();
        let columns: Vec<Vec<f64>> = ["open", "high", "low", "close", "volume"].map(|c| whole.aggregate(c, &values)).to_vec();
        let cut = cut.min(times.len());
        let part = built(calendar, base, higher, &times[..cut]);
        prop_assert_eq!(&whole, &one_by_one(&calendar, frame(base), frame(higher), &times));
        for from in [0, cut / 2, cut] {
            let along: Vec<usize> =
                whole.completed_along(from).flat_map(|(bars, completed)| bars.map(move |_| completed)).collect();
            prop_assert_eq!(&along[..], &completed(&whole)[from..]);
        }
        prop_assert_eq!(&completed(&part)[..], &completed(&whole)[..cut]);
        let seen = completed(&part).last().copied().unwrap_or(0);
        prop_assert_eq!(&part.times[..], &whole.times[..part.times.len()]);
        for (name, all) in ["open", "high", "low", "close", "volume"].iter().zip(&columns) {
            prop_assert_eq!(&part.aggregate(name, &values[..cut])[..seen], &all[..seen]);
        }
        prop_assert!(whole.times.is_sorted_by(|a, b| a < b) && completed(&whole).is_sorted());
    }

    #[test]
    fn times_never_cause_a_panic(calendar in calendars(), (base, higher) in frames(), mut times in proptest::collection::vec(any::<i64>(), 0..5)) {
        times.sort_unstable();
        times.dedup();
        let _ = higher_bars(&calendar, frame(base), frame(higher), &times);
    }
}
