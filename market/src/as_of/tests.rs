//! Which bar an as-of selects in the middle of a session, on half days and holidays, when the clocks change, in markets
//! that trade around the clock, and on weekly bars.

use proptest::prelude::*;

use super::*;
use crate::arrow_file::SymbolBars;
use crate::memory::{MemoryMarket, memory_dataset};
use crate::time::{HOUR, MINUTE, parse_time};

fn at(text: &str) -> TimeMicros {
    parse_time(text).unwrap()
}

fn market(timeframe: &str, calendar: &str, times: Vec<TimeMicros>, complete_to: Option<&str>) -> Dataset {
    let bars = SymbolBars { symbol: "A".into(), columns: vec![vec![1.0; times.len()]], times };
    memory_dataset(MemoryMarket {
        name: "m".to_owned(),
        timeframe: timeframe.parse().unwrap(),
        calendar: calendar.to_owned(),
        columns: vec!["close".to_owned()],
        bars: vec![bars],
        complete_to: complete_to.map(at),
        ..MemoryMarket::default()
    })
    .unwrap()
}

/// Minutes of regular sessions of XNYS.
fn sessions(dates: &[&str], until: &str) -> Vec<TimeMicros> {
    let minutes = |date: &&str| {
        let session = Calendar::XNYS.session_on(at(date)).unwrap();
        (session.open..session.close).step_by(MINUTE as usize).filter(|t| *t < at(until)).collect::<Vec<_>>()
    };
    dates.iter().flat_map(minutes).collect()
}

fn resolved(dataset: &Dataset, text: &str) -> Option<ResolvedAsOf> {
    let as_of = if text.is_empty() { AsOf::Newest } else { AsOf::parse(text).unwrap() };
    dataset.resolve_as_of(&as_of, false, at("2024-06-28 14:31:20")).unwrap()
}

/// Start of the bar, then its as-of as shown to people and as in files.
fn shown(dataset: &Dataset, text: &str) -> [String; 3] {
    let bar = resolved(dataset, text).unwrap().bar;
    [format_time(bar), dataset.manifest.shown_as_of(bar), dataset.manifest.as_of_text(bar)]
}

#[test]
fn in_the_middle_of_a_session_the_newest_closed_bar_is_selected() {
    let live = market("1m", "XNYS", sessions(&["2024-06-27", "2024-06-28"], "2024-06-28 14:31"), None);
    assert_eq!(shown(&live, ""), ["2024-06-28T14:30:00Z", "2024-06-28 10:31 EDT", "2024-06-28T14:31:00Z"]);
    assert_eq!(resolved(&live, "").unwrap().warning, None);
    // The minute in progress has not closed.
    let forming = market("1m", "XNYS", sessions(&["2024-06-28"], "2024-06-28 14:32"), Some("2024-06-28 14:31"));
    assert_eq!(shown(&forming, "now")[0], "2024-06-28T14:30:00Z");
    for text in ["now", "today", "2024-06-28 10:31", "2024-06-28T14:31:00Z", "2024-06-28 10:31 EDT"] {
        assert_eq!(shown(&live, text)[0], "2024-06-28T14:30:00Z", "{text}");
    }
    // A time selects by the end of bars: the minute that starts then is not seen.
    assert_eq!(shown(&live, "2024-06-28 10:30")[0], "2024-06-28T14:29:00Z");
    let last = resolved(&live, "last-session").unwrap();
    assert_eq!(format_time(last.bar), "2024-06-27T19:59:00Z");
    let warning = last.warning.unwrap();
    assert!(warning.contains("2024-06-27 16:00 EDT") && warning.contains("2024-06-28 10:31 EDT"), "{warning}");
}

#[test]
fn a_date_means_the_end_of_that_day_on_the_exchanges_clock() {
    // A half day, then after-hours trading beyond midnight UTC, a weekend, and a Monday.
    let mut times = sessions(&["2024-11-27", "2024-11-29", "2024-12-02"], "2024-12-03");
    times.push(at("2024-11-30 00:59"));
    times.sort_unstable();
    let dataset = market("1m", "XNYS", times, None);
    for (text, bar) in [
        ("2024-11-27", "2024-11-27T20:59:00Z"),
        // Thanksgiving.
        ("2024-11-28", "2024-11-27T20:59:00Z"),
        // 19:59 on the evening of the half day.
        ("2024-11-29", "2024-11-30T00:59:00Z"),
        ("2024-11-29 13:00", "2024-11-29T17:59:00Z"),
        ("2024-12-01", "2024-11-30T00:59:00Z"),
    ] {
        assert_eq!(shown(&dataset, text)[0], bar, "{text}");
    }
    assert_eq!(resolved(&dataset, "2024-11-26"), None);
    let warned = resolved(&dataset, "2024-11-28").unwrap().warning.unwrap();
    assert!(warned.contains("2024-11-27 16:00 EST") && warned.contains("2024-12-02 16:00 EST"), "{warned}");
}

#[test]
fn an_as_of_after_the_data_is_reported_and_a_weekend_is_not() {
    let friday = market("1d", "XNYS", ["2024-06-27", "2024-06-28"].map(at).to_vec(), None);
    assert_eq!(resolved(&friday, "2024-06-30").unwrap().warning, None);
    assert_eq!(resolved(&friday, "2024-07-01 10:00").unwrap().warning, None);
    let beyond = resolved(&friday, "2024-07-01").unwrap().warning.unwrap();
    assert!(beyond.contains("2024-07-01 is after the data") && beyond.contains("as of 2024-06-28"), "{beyond}");
    assert!(resolved(&friday, "2030-01-01").unwrap().warning.is_some());
    let live = market("1m", "XNYS", sessions(&["2024-06-28"], "2024-06-28 14:31"), None);
    assert_eq!(resolved(&live, "2024-06-28 10:31").unwrap().warning, None);
    assert!(resolved(&live, "2024-06-28 10:32").unwrap().warning.is_some());
    assert!(resolved(&live, "today").unwrap().warning.is_some());
}

#[test]
fn an_as_of_follows_local_days_across_clock_changes_and_in_markets_that_never_close() {
    let around: Vec<_> = (0..4 * 24).map(|hour| at("2024-11-01") + hour * HOUR).collect();
    let crypto = market("1h", "24/7", around.clone(), None);
    assert_eq!(shown(&crypto, "2024-11-02"), ["2024-11-02T23:00:00Z", "2024-11-03 00:00 UTC", "2024-11-03T00:00:00Z"]);
    assert_eq!(shown(&crypto, "2024-11-03T00:00:00Z")[0], "2024-11-02T23:00:00Z");
    // The same hours on New York's clock, in the night when it is set back.
    let hours = market("1h", "XNYS", around, None);
    assert_eq!(shown(&hours, "2024-11-02")[1], "2024-11-03 00:00 EDT");
    assert_eq!(shown(&hours, "2024-11-03")[1], "2024-11-04 00:00 EST");
    assert_eq!(shown(&hours, "2024-11-03 01:00 EDT")[0], "2024-11-03T04:00:00Z");
    assert_eq!(shown(&hours, "2024-11-03 01:00 EST")[0], "2024-11-03T05:00:00Z");
    let error = hours.resolve_as_of(&AsOf::parse("2024-11-01 10:00 CET").unwrap(), false, 0).unwrap_err();
    assert!(error.to_string().contains("America/New_York"), "{error}");
}

#[test]
fn a_week_is_named_by_its_last_day_and_visible_after_it() {
    let weeks = market("1w", "XNYS", ["2024-06-17", "2024-06-24"].map(at).to_vec(), None);
    assert_eq!(shown(&weeks, ""), ["2024-06-24", "2024-06-28", "2024-06-28"]);
    assert_eq!(shown(&weeks, "2024-06-27")[0], "2024-06-17");
    assert_eq!(shown(&weeks, "2024-06-28")[0], "2024-06-24");
    let forming = weeks.resolve_as_of(&AsOf::parse("2024-06-25").unwrap(), true, 0).unwrap().unwrap();
    assert_eq!(format_time(forming.bar), "2024-06-24");
}

proptest! {
    #[test]
    fn the_printed_as_of_used_as_an_option_selects_the_same_bar(
        frame in prop::sample::select(vec!["1m", "5m", "1h", "1d", "3d", "1w", "1mo"]),
        calendar in prop::sample::select(vec!["XNYS", "24/7", "weekdays"]),
        start in 1_000_000_000i64..1_900_000_000,
        steps in prop::collection::vec(1i64..400, 1..30),
        asked in 0i64..4000,
        forming in any::<bool>(),
    ) {
        let timeframe: Timeframe = frame.parse().unwrap();
        let step = if timeframe.is_dated() { DAY } else { timeframe.minutes().unwrap() * MINUTE };
        let mut t = (start * crate::time::SECOND).div_euclid(DAY) * DAY;
        let mut times = vec![t];
        for n in steps {
            t += n * step;
            times.push(t);
        }
        // Ends that a session's close cuts short may be equal.
        let calendar = Calendar::named(calendar).unwrap();
        times.dedup_by_key(|t| calendar.bar_end(timeframe, *t));
        let dataset = market(frame, calendar.name(), times.clone(), None);
        let wanted = AsOf::Instant(times[0] + asked * step);
        if let Some(found) = dataset.resolve_as_of(&wanted, forming, 0).unwrap() {
            let manifest = &dataset.manifest;
            for text in [manifest.as_of_text(found.bar), manifest.shown_as_of(found.bar)] {
                let again = dataset.resolve_as_of(&AsOf::parse(&text).unwrap(), forming, 0).unwrap();
                prop_assert_eq!(again.map(|a| a.bar), Some(found.bar), "{} {}", frame, text);
            }
        }
    }
}
