use super::*;
use crate::time::{MINUTE, format_time, parse_time};
use trawl_terms::Period;
use trawl_terms::Timeframe;

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
    for calendar in Calendar::all() {
        let mut session = calendar.next_session(at("2003-12-20")).unwrap();
        for _ in 0..1000 {
            let next = calendar.next_session(session.date).unwrap();
            assert_eq!(calendar.previous_session(next.date), Some(session));
            assert_eq!(calendar.ordinal(next.date), calendar.ordinal(session.date) + 1);
            assert_eq!(calendar.nth(calendar.ordinal(next.date)), Some(next));
            session = next;
        }
        assert_eq!(calendar.ordinal(0), 0);
        let (first, last) = calendar.range();
        assert!(calendar.next_session(first - DAY).is_some() && calendar.next_session(TimeMicros::MIN).is_some());
        assert!(calendar.next_session(last).is_none() && calendar.previous_session(first).is_none());
        for t in [TimeMicros::MIN, TimeMicros::MAX, first - 1, last + DAY] {
            assert!(calendar.session_at(t).is_none() && calendar.check_known(t).is_err());
            let _ = (calendar.next_session(t), calendar.previous_session(t), calendar.trading_day_start(t));
        }
    }
    assert_eq!(Calendar::WEEKDAYS.ordinal(at("1969-12-31")), -1);
}

#[test]
fn an_instant_outside_the_range_is_refused_with_the_range() {
    assert_eq!(Calendar::XNYS.range(), (at("1970-01-01"), at("2035-12-31")));
    let message = Calendar::XNYS.check_known(at("1962-01-02")).unwrap_err().to_string();
    assert!(message.contains("XNYS knows the sessions from 1970-01-01 to 2035-12-31"), "{message}");
}

#[test]
fn names_are_found_and_others_refused() {
    for name in CALENDARS {
        assert_eq!(Calendar::named(name).unwrap().name(), name);
    }
    assert_eq!(Calendar::named("xnys").unwrap(), Calendar::XNYS);
    for (text, meant) in [
        ("NYSE", "'XNYS'"),
        ("nasdaq", "'XNAS'"),
        ("LSE", "'XLON'"),
        ("Xetra", "'XETR'"),
        ("TSE", "'XTKS'"),
        ("CME", "'CMES'"),
        ("Hong Kong", "'XHKG'"),
        ("XNSY", "'XNYS'"),
        ("crypto", "'24/7'"),
    ] {
        let message = Calendar::named(text).unwrap_err().to_string();
        assert!(
            message.contains(&format!("did you mean {meant}")) && message.contains("24/7, CMES, XASX"),
            "{message}"
        );
    }
    let message = Calendar::named("qqqqqq").unwrap_err().to_string();
    assert!(!message.contains("did you mean"), "{message}");
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
    // A date without a session ends at midnight in New York.
    assert_eq!(end("1d", "2024-11-28"), "2024-11-29T05:00:00Z");
    assert_eq!(end("2d", "2024-11-27"), "2024-11-29T18:00:00Z");
    // The Thursday before Good Friday ends the week, and the month.
    assert_eq!(end("1w", "2024-03-25"), "2024-03-28T20:00:00Z");
    assert_eq!(end("1mo", "2024-03-01"), "2024-03-28T20:00:00Z");
    assert_eq!(end("1d", "1960-01-04"), "1960-01-05T05:00:00Z");
    // Weeks and months are those that hold the label, whatever day vendors choose.
    assert_eq!((end("1w", "2024-03-29"), end("1w", "2024-03-31")), (end("1w", "2024-03-25"), end("1w", "2024-03-25")));
    assert_eq!(end("1mo", "2024-03-29"), end("1mo", "2024-03-01"));
    assert_eq!(end("1mo", "2024-12-01"), "2024-12-31T21:00:00Z");
}

#[test]
fn an_event_takes_effect_before_pre_market_and_after_the_evening_before() {
    let start = Calendar::XNYS.trading_day_start(at("2024-12-06"));
    assert_eq!(format_time(start), "2024-12-06T09:00:00Z");
    assert_eq!(Calendar::ALWAYS.trading_day_start(at("2024-12-06 10:00")), at("2024-12-06"));
}

#[test]
fn every_file_is_read_to_its_last_line_and_its_sessions_follow_each_other() {
    for calendar in Calendar::all() {
        let (table, name) = (calendar.table(), calendar.name());
        assert!(table.rules.unread.is_empty(), "{name}: {:?}", table.rules.unread);
        assert!(!table.rules.title.is_empty() && !table.rules.hours.is_empty(), "{name}");
        let (mut date, end) = (at("2003-12-20").max(calendar.range().0), calendar.range().1.min(at("2040-01-01")));
        let mut before: Option<Session> = None;
        while let Some(s) = calendar.next_session(date).filter(|s| s.date <= end) {
            assert!(s.open < s.close && s.close - s.open <= DAY, "{name} {s:?}");
            assert!((s.date - DAY..s.date + DAY).contains(&s.open) && s.close <= s.date + DAY, "{name} {s:?}");
            assert!(s.pause.is_none_or(|(from, to)| s.open < from && from < to && to < s.close), "{name} {s:?}");
            assert!(before.is_none_or(|b| b.close <= s.open && b.date < s.date), "{name} {s:?}");
            let inside = [s.open, s.close - 1];
            assert!(inside.iter().all(|&t| calendar.session_at(t) == Some(s)), "{name} {s:?}");
            assert!(s.pause.is_none_or(|(from, to)| !calendar.is_regular(from) && calendar.is_regular(to)), "{name}");
            let start = calendar.trading_day_start(s.date);
            assert!(start <= s.open && before.is_none_or(|b| b.close <= start), "{name} {s:?}");
            assert!(calendar.check_known(s.open).is_ok(), "{name} {s:?}");
            (before, date) = (Some(s), s.date);
        }
    }
}

/// In the format of tools/make_calendar.py.
fn written(date: TimeMicros, session: Option<Session>) -> String {
    let Some(s) = session else { return format!("{} closed", format_time(date)) };
    let mut text = format_time(date);
    let pause = s.pause.into_iter().flat_map(|(from, to)| [from, to]);
    for time in std::iter::once(s.open).chain(pause).chain([s.close]) {
        let (clock, day) = (time.rem_euclid(DAY) / MINUTE, format_time(day(time)));
        text.push_str(&format!(" {day}T{:02}:{:02}", clock / 60, clock % 60));
    }
    text
}

#[test]
fn sessions_are_those_of_the_package_that_the_files_were_made_from() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/calendars/samples");
    for calendar in Calendar::all().filter(|calendar| !calendar.table().is_weekly()) {
        let name = calendar.name();
        let sample = std::fs::read_to_string(folder.join(format!("{name}.txt"))).expect(name);
        let mut digest = None;
        for line in sample.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["sessions", count, "sha256", sha256] => digest = Some((count, sha256)),
                _ => assert_eq!(written(at(words[0]), calendar.session_on(at(words[0]))), line, "{name}"),
            }
        }
        let sessions = std::iter::successors(calendar.nth(0), |s| calendar.next_session(s.date));
        let lines: Vec<String> = sessions.map(|s| written(s.date, Some(s)) + "\n").collect();
        let found = crate::manifest::sha256_hex(lines.concat().as_bytes());
        assert_eq!(digest, Some((lines.len().to_string().as_str(), found.as_str())), "{name}");
    }
}

#[test]
fn new_york_is_as_it_was_with_the_table_of_utc_hours() {
    // For every session from 1970 to 2035: pre-market trading begins five and a half hours before the open.
    let mut date = Calendar::XNYS.range().0 - DAY;
    while let Some(s) = Calendar::XNYS.next_session(date) {
        assert_eq!(Calendar::XNYS.trading_day_start(s.date), s.open - 330 * MINUTE, "{}", format_time(s.date));
        date = s.date;
    }
    assert_eq!(Calendar::XNYS.trading_day_start(at("2024-11-30")), at("2024-12-02 09:00"));
    // Beyond the years the result is midnight of the date, not the first session of the calendar.
    assert_eq!(Calendar::XNYS.trading_day_start(at("1960-01-04")), at("1960-01-04 05:00"));
}

#[test]
fn a_bar_in_the_lunch_break_is_not_regular_and_none_spans_it() {
    let tokyo = Calendar::named("xtks").unwrap();
    // 09:00 to 11:30 and 12:30 to 15:30 in Tokyo, nine hours before UTC.
    let session = tokyo.session_at(at("2025-01-06 02:29")).unwrap();
    assert_eq!(session.pause, Some((at("2025-01-06 02:30"), at("2025-01-06 03:30"))));
    assert!(!tokyo.is_regular(at("2025-01-06 02:30")) && !tokyo.is_regular(at("2025-01-06 03:29")));
    assert_eq!(tokyo.session_at(at("2025-01-06 03:30")), Some(session));
    let end = |start: &str| format_time(tokyo.bar_end("1h".parse().unwrap(), at(start)));
    assert_eq!(end("2025-01-06 01:00"), "2025-01-06T02:00:00Z");
    assert_eq!(end("2025-01-06 02:00"), "2025-01-06T02:30:00Z");
    assert_eq!(end("2025-01-06 06:00"), "2025-01-06T06:30:00Z");
    assert_eq!(tokyo.next_regular(at("2025-01-06 02:45")), Some(at("2025-01-06 03:30")));
    assert_eq!(tokyo.next_regular(at("2025-01-06 06:30")), Some(at("2025-01-07")));
    // A half day in Hong Kong has none.
    let eve = Calendar::named("XHKG").unwrap().session_on(at("2024-12-24")).unwrap();
    assert_eq!((eve.close, eve.pause), (at("2024-12-24 04:00"), None));
}

#[test]
fn a_date_without_a_session_ends_where_the_next_one_begins() {
    for (name, date) in [
        // Before the years of the calendar, a holiday in Tokyo, and after the years.
        ("XETR", "1995-06-07"),
        ("XTKS", "2024-07-15"),
        ("XBOM", "2027-01-08"),
        ("XASX", "1995-01-02"),
        ("XLON", "1960-07-01"),
    ] {
        let calendar = Calendar::named(name).unwrap();
        let end = calendar.bar_end("1d".parse().unwrap(), at(date));
        let last = day(calendar.zone().wall(end - 1));
        assert_eq!(format_time(last), date, "{name} ends {}", format_time(end));
        assert!(end <= calendar.trading_day_start(at(date) + DAY), "{name} {date}");
    }
}

#[test]
fn a_session_over_midnight_has_the_trading_date() {
    let chicago = Calendar::named("CMES").unwrap();
    // Sunday 17:00 in Chicago is 23:00 UTC in winter.
    let monday = chicago.session_at(at("2025-01-05 23:00")).unwrap();
    assert_eq!((monday.date, monday.close), (at("2025-01-06"), at("2025-01-06 23:00")));
    assert!(!chicago.is_regular(at("2025-01-05 22:59")) && !chicago.is_regular(at("2025-01-04 12:00")));
    assert_eq!(chicago.session_at(at("2025-01-06 12:00")), Some(monday));
    assert_eq!(format_time(chicago.bar_end("1d".parse().unwrap(), at("2025-01-06"))), "2025-01-06T23:00:00Z");
    assert_eq!(chicago.trading_day_start(at("2025-01-06")), monday.open);
    let times = ["2025-01-03 22:59", "2025-01-05 23:00", "2025-01-06 12:00", "2025-01-06 23:00", "2025-01-07 01:00"];
    let begins = chicago.begins(Period::Session, false, &times.map(at));
    assert_eq!(begins, [true, true, false, true, false]);
    assert_eq!(chicago.begins(Period::Week, false, &times.map(at)), [true, true, false, false, false]);
}

#[test]
fn a_day_in_sydney_opens_before_its_date_in_utc_and_ends_on_it() {
    let sydney = Calendar::named("XASX").unwrap();
    let summer = sydney.session_on(at("2025-01-06")).unwrap();
    assert_eq!((summer.open, summer.close), (at("2025-01-05 23:00"), at("2025-01-06 05:00")));
    assert_eq!(sydney.session_at(at("2025-01-05 23:00")), Some(summer));
    let end = |start: &str| format_time(sydney.bar_end("1d".parse().unwrap(), at(start)));
    assert_eq!(end("2025-01-06"), "2025-01-06T05:00:00Z");
    assert_eq!(end("2025-07-07"), "2025-07-07T06:00:00Z");
    assert_eq!(end("2024-12-24"), "2024-12-24T03:10:00Z");
    assert!(sydney.trading_day_start(at("2025-01-06")) < summer.open);
}

#[test]
fn bars_beyond_the_years_of_a_calendar_cause_a_warning() {
    let frame = |text: &str| text.parse::<Timeframe>().unwrap();
    let warned = |name: &str, timeframe: &str, first: &str, last: &str| {
        Calendar::named(name).unwrap().coverage_warning(frame(timeframe), at(first), at(last)).unwrap_or_default()
    };
    assert_eq!(warned("XNYS", "1d", "1970-01-02", "2035-12-31"), "");
    assert_eq!(warned("XNYS", "1m", "1970-01-02 14:30", "2035-12-31 20:59"), "");
    assert_eq!(warned("24/7", "1m", "1700-01-01", "2400-01-01"), "");
    let message = warned("XNYS", "1d", "1962-01-02", "2020-01-02");
    assert!(
        message.contains("XNYS covers 1970-01-01 to 2035-12-31") && message.contains("every date with a bar"),
        "{message}"
    );
    assert!(warned("XBOM", "1m", "2026-01-02", "2027-01-05 04:00").contains("sessions are not known"));
    assert!(warned("XTKS", "1m", "2009-01-05 01:00", "2012-01-05").contains("trading hours from 2011-11-21"));
    assert_eq!(warned("XTKS", "1d", "2009-01-05", "2012-01-05"), "");
}

#[test]
fn days_after_the_last_year_are_distinguished_by_their_date() {
    let times = ["2035-12-31 20:59", "2036-01-02 15:00", "2036-01-03 15:00", "2036-01-03 15:01"].map(at);
    assert_eq!(Calendar::XNYS.begins(Period::Session, false, &times), [true, true, true, false]);
}
