use super::*;
use crate::name::Timeframe;
use crate::time::{format_time, parse_time};

fn at(text: &str) -> TimeMicros {
    parse_time(text).unwrap()
}

fn hours(date: &str) -> String {
    let hours = |s: Session| format!("{} {}", format_time(s.open), format_time(s.close));
    Calendar::XNYS.session_on(at(date)).map_or_else(|| "closed".to_owned(), hours)
}

#[test]
fn new_york_has_holidays_early_closes_and_a_change_of_clocks() {
    assert_eq!(hours("2024-11-27"), "2024-11-27T14:30:00Z 2024-11-27T21:00:00Z");
    assert_eq!(hours("2024-11-28"), "closed");
    assert_eq!(hours("2024-11-29"), "2024-11-29T14:30:00Z 2024-11-29T18:00:00Z");
    assert_eq!(hours("2024-11-30"), "closed");
    assert_eq!(hours("2024-03-08"), "2024-03-08T14:30:00Z 2024-03-08T21:00:00Z");
    assert_eq!(hours("2024-03-11"), "2024-03-11T13:30:00Z 2024-03-11T20:00:00Z");
    assert_eq!(hours("2001-09-11"), "closed");
    assert_eq!(hours("2012-10-29"), "closed");
    assert_eq!(hours("2025-01-09"), "closed");
}

#[test]
fn an_instant_belongs_to_the_session_that_holds_it() {
    let xnys = Calendar::XNYS;
    for (time, regular) in [
        ("2024-11-29 14:29:59", false),
        ("2024-11-29 14:30", true),
        ("2024-11-29 17:59:59.999999", true),
        ("2024-11-29 18:00", false),
        ("2024-11-28 15:00", false),
    ] {
        assert_eq!(xnys.is_regular(at(time)), regular, "{time}");
    }
    assert!(Calendar::ALWAYS.is_regular(at("2024-11-28 03:00")));
    assert!(Calendar::WEEKDAYS.is_regular(at("2024-11-28 20:59")));
    assert!(!Calendar::WEEKDAYS.is_regular(at("2024-11-30 20:59")));
}

#[test]
fn sessions_follow_each_other_in_both_directions() {
    for calendar in [Calendar::XNYS, Calendar::ALWAYS, Calendar::WEEKDAYS] {
        let mut session = calendar.next_session(at("1999-12-20")).unwrap();
        for _ in 0..1000 {
            let next = calendar.next_session(session.date).unwrap();
            assert_eq!(calendar.previous_session(next.date), Some(session));
            assert_eq!(calendar.ordinal(next.date), calendar.ordinal(session.date) + 1);
            assert_eq!(calendar.nth(calendar.ordinal(next.date)), Some(next));
            session = next;
        }
        assert_eq!(calendar.ordinal(0), 0);
        let (first, last) = calendar.range();
        assert!(calendar.next_session(last).is_none() && calendar.previous_session(first).is_none());
        for t in [TimeMicros::MIN, TimeMicros::MAX, first - 1, last + DAY] {
            assert!(calendar.session_at(t).is_none() && calendar.check_known(t).is_err());
            let _ = (calendar.next_session(t), calendar.previous_session(t), calendar.trading_day_start(t));
        }
    }
    assert_eq!(Calendar::WEEKDAYS.ordinal(at("1969-12-31")), -1);
}

#[test]
fn the_range_is_told_where_it_ends() {
    assert_eq!(Calendar::XNYS.range(), (at("1970-01-01"), at("2035-12-31")));
    let told = Calendar::XNYS.check_known(at("1962-01-02")).unwrap_err().to_string();
    assert!(told.contains("XNYS knows the sessions from 1970-01-01 to 2035-12-31"), "{told}");
}

#[test]
fn names_are_found_and_others_refused() {
    for name in CALENDARS {
        assert_eq!(Calendar::named(name).unwrap().name(), name);
    }
    assert_eq!(Calendar::named("xnys").unwrap(), Calendar::XNYS);
    let told = Calendar::named("NYSE").unwrap_err().to_string();
    assert!(told.contains("XNYS, 24/7, weekdays"), "{told}");
}

#[test]
fn a_bar_ends_with_its_session_at_the_latest() {
    let end = |timeframe: &str, start: &str| {
        format_time(Calendar::XNYS.bar_end(timeframe.parse::<Timeframe>().unwrap(), at(start)))
    };
    assert_eq!(end("1h", "2024-11-27 14:30"), "2024-11-27T15:30:00Z");
    assert_eq!(end("1h", "2024-11-29 17:30"), "2024-11-29T18:00:00Z");
    assert_eq!(end("1h", "2024-11-29 18:00"), "2024-11-29T19:00:00Z");
    assert_eq!(end("1d", "2024-11-29"), "2024-11-29T18:00:00Z");
    assert_eq!(end("1d", "2024-11-28"), "2024-11-29");
    assert_eq!(end("2d", "2024-11-27"), "2024-11-29T18:00:00Z");
    // The Thursday before Good Friday ends the week, and the month.
    assert_eq!(end("1w", "2024-03-25"), "2024-03-28T20:00:00Z");
    assert_eq!(end("1mo", "2024-03-01"), "2024-03-28T20:00:00Z");
    assert_eq!(end("1d", "1960-01-04"), "1960-01-05");
    assert_eq!(end("1mo", "2024-12-01"), "2024-12-31T21:00:00Z");
}

#[test]
fn an_event_takes_effect_before_pre_market_and_after_the_evening_before() {
    let start = Calendar::XNYS.trading_day_start(at("2024-12-06"));
    assert_eq!(format_time(start), "2024-12-06T09:00:00Z");
    assert_eq!(Calendar::ALWAYS.trading_day_start(at("2024-12-06 10:00")), at("2024-12-06"));
}
