use proptest::prelude::*;

use super::*;

fn iso(text: &str) -> String {
    parse_time(text).map_or_else(|| "none".to_owned(), format_time)
}

#[test]
fn every_known_notation_is_read() {
    for (text, expected) in [
        ("2013-02-22", "2013-02-22"),
        (" 2013/2/22 ", "2013-02-22"),
        ("20130222", "2013-02-22"),
        ("20130222153000", "2013-02-22T15:30:00Z"),
        ("20130222 15:30", "2013-02-22T15:30:00Z"),
        ("20130222 153000", "2013-02-22T15:30:00Z"),
        ("1999-01-22", "1999-01-22"),
        ("1/4/1999", "1999-01-04"),
        ("22/2/2013", "2013-02-22"),
        ("22-02-2013", "2013-02-22"),
        ("22-Feb-2013", "2013-02-22"),
        ("2013-feb-22", "2013-02-22"),
        ("01.02.2017", "2017-02-01"),
        ("01.01.2017 22:00:00.000", "2017-01-01T22:00:00Z"),
        ("2021-09-27 14:45:00+01:00", "2021-09-27T13:45:00Z"),
        ("2021-09-27T14:45:00.25-0430", "2021-09-27T19:15:00.250000Z"),
        ("2021-09-27T00:00:00Z", "2021-09-27"),
        ("2021-09-27 00:00 UTC", "2021-09-27"),
        ("9/27/2021 2:45 PM", "2021-09-27T14:45:00Z"),
        ("9/27/2021 12:05:01 am", "2021-09-27T00:05:01Z"),
        ("1632743100", "2021-09-27T11:45:00Z"),
        ("1632743100.0", "2021-09-27T11:45:00Z"),
        ("1632743100000", "2021-09-27T11:45:00Z"),
        ("1632743100000000", "2021-09-27T11:45:00Z"),
        ("1632743100000000000", "2021-09-27T11:45:00Z"),
        ("1969-12-31 23:59:59.999999", "1969-12-31T23:59:59.999999Z"),
    ] {
        assert_eq!(iso(text), expected, "{text}");
    }
}

#[test]
fn text_that_is_not_a_time_is_refused() {
    for text in [
        "",
        "dt",
        "null",
        "2013-02-30",
        "2013-13-01",
        "0000-00-00",
        "13/13/2013",
        "1/4/99",
        "2013-02",
        "2013-02-22-01",
        "12345",
        "1234567",
        "99999999999999999999",
        "2013-02-22 25:00",
        "2013-02-22 10:60",
        "2013-02-22 10",
        "1e9",
        "2013-02-22 13:00 PM",
        "2013-02-22 10:00 +99:00",
        "2013-02-22 10:00 Mars",
        "0999-01-01",
        "2013.5",
        "-5",
        "é",
    ] {
        assert_eq!(parse_time(text), None, "{text}");
    }
}

#[test]
fn an_order_once_chosen_is_strict() {
    assert_eq!(parse_time_in_order("22/2/2013", DateOrder::MonthFirst), None);
    assert_eq!(parse_time_in_order("2/3/2013", DateOrder::DayFirst).map(format_time).as_deref(), Some("2013-03-02"));
    assert_eq!(open_order("2/3/2013 10:00"), Some((2, 3)));
    assert_eq!(open_order("2013/2/3"), None);
    assert_eq!(open_order("02.03.2013"), None);
}

#[test]
fn the_label_of_a_day_is_the_date_as_written() {
    let written = parse_written("2021-09-27 00:00:00-04:00", DateOrder::MonthFirst).unwrap();
    assert_eq!(format_time(written.utc()), "2021-09-27T04:00:00Z");
    assert_eq!(format_time(written.local.div_euclid(DAY) * DAY), "2021-09-27");
}

#[test]
fn times_beyond_all_years_are_still_shown() {
    assert_eq!(format_time(i64::MAX), format!("{} us", i64::MAX));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(time in -11_000_000_000_000_000i64..16_000_000_000_000_000) {
        prop_assert_eq!(parse_time(&format_time(time)), Some(time));
    }

    #[test]
    fn the_usual_notations_are_read_like_any_other(
        date in "[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]", clock in "|[ T][0-2][0-9]:[0-6][0-9](:[0-6][0-9])?",
    ) {
        let text = format!("{date}{clock}");
        // A blank in front is not among the usual notations.
        prop_assert_eq!(
            parse_written(&text, DateOrder::MonthFirst),
            parse_written(&format!(" {text}"), DateOrder::MonthFirst)
        );
        prop_assert_eq!(open_order(&text), None);
    }

    #[test]
    fn a_date_is_the_day_that_the_calendar_has(year in 1590u32..2510, month in 0u32..14, day in 0u32..33) {
        let date = NaiveDate::from_ymd_opt(year as i32, month, day).filter(|date| YEARS.contains(&date.year()));
        let expected = date.map(|date| i64::from(date.num_days_from_ce() - EPOCH_DAYS_FROM_CE));
        prop_assert_eq!(days(year, month, day), expected);
        let text = format!("{year:04}-{month:02}-{day:02}");
        prop_assert_eq!(parse_usual(text.as_bytes()).map(|time| time.local), expected.map(|day| day * DAY));
    }

    #[test]
    fn what_is_not_in_the_usual_notation_is_left_to_the_general_code(
        at in 0usize..19, byte in 0u8..=255, length in 0usize..22,
    ) {
        let mut text = b"2013-02-22 14:45:00.00".to_vec();
        text.truncate(length);
        if let Some(place) = text.get_mut(at) {
            *place = byte;
        }
        let read = parse_usual(&text);
        let again = std::str::from_utf8(&text).ok().and_then(|text| parse_written(&format!(" {text}"), DateOrder::MonthFirst));
        prop_assert!(read.is_none() || read == again, "{:?}", text);
        let usual = matches!(length, 10 | 16 | 19) && at >= length;
        prop_assert_eq!(usual, usual && read.is_some());
    }

    #[test]
    fn epochs_are_read_like_any_other_notation(
        time in -12_000_000_000_000_000_000i128..17_000_000_000_000_000_000, digits in "[0-9]{7,21}", at in 0usize..21, byte in 0u8..=255,
    ) {
        let time = time.unsigned_abs();
        let epochs = [time, time / 1_000, time / 1_000_000, time / 1_000_000_000].map(|epoch| epoch.to_string());
        let mut changed = digits.clone().into_bytes();
        if let Some(place) = changed.get_mut(at) {
            *place = byte;
        }
        let others = [digits, String::from_utf8_lossy(&changed).into_owned()];
        for text in epochs.iter().chain(&others) {
            let general = parse_written(&format!(" {text}"), DateOrder::MonthFirst);
            match parse_epoch(text.as_bytes()) {
                Some(read) => prop_assert_eq!(general, Some(Written { local: read, offset: Some(0) }), "{}", text),
                None => prop_assert!(general.is_none_or(|w| w.offset != Some(0)) || text.len() == 14 || text.contains('.') || text.trim() != text, "{}", text),
            }
        }
    }

    #[test]
    fn text_never_causes_a_panic(text in ".{0,70}", date in "[0-9/:. TZ+aApPmM-]{0,40}") {
        let _ = (parse_time(&text), parse_time(&date), open_order(&text), open_order(&date));
    }
}

#[test]
fn the_years_that_are_read_begin_and_end_with_their_days() {
    let year = |time: TimeMicros| chrono::DateTime::from_timestamp_micros(time).unwrap().year();
    let (first, last) = (days(1600, 1, 1).unwrap() * DAY, days(2500, 12, 31).unwrap() * DAY + DAY - 1);
    assert_eq!((year(first - 1), year(first), year(last), year(last + 1)), (1599, 1600, 2500, 2501));
    assert_eq!([first - 1, first, last, last + 1].map(is_in_years), [false, true, true, false]);
}
