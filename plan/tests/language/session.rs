//! Words of the exchange's clock, and the symbol's own name.

use trawl_plan::graph::Op;
use trawl_plan::{Plan, ScanDocument, Schema, Timeframe, compile_scan};

use crate::schema;

fn intraday(condition: &str) -> Result<Plan, String> {
    let schema = Schema { timeframe: Some("5m".parse::<Timeframe>().expect("a timeframe")), ..schema() };
    let document = ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() };
    compile_scan(&document, &schema).map_err(|d| d[0].to_string())
}

#[test]
fn words_are_written_without_parentheses() {
    let clocks = |plan: &Plan| plan.nodes().iter().filter(|n| matches!(n.op, Op::Clock(_))).count();
    assert_eq!(clocks(&intraday("minutes_since_open < 120 and minutes_to_close > 5").expect("legal")), 2);
    assert_eq!(clocks(&intraday("weekday() == 1 and weekday == 1").expect("legal")), 1);
    let field = intraday("close > prev_session.high and session.open > prev_session.close").expect("legal");
    assert!(field.nodes().iter().any(|n| n.op == Op::MaxSince));
    let whole = intraday("session > 1").expect_err("refused");
    assert!(whole.contains("session has 3 outputs") && whole.contains("write session.open"), "{whole}");
    assert!(intraday("session.close > 1").expect_err("refused").contains("no output 'close'"));
    assert!(intraday("mont == 1").expect_err("refused").contains("did you mean 'month'?"));
}

#[test]
fn times_and_days_are_compared_as_text() {
    let plain = |condition: &str| intraday(condition).expect("legal").fingerprint();
    assert_eq!(plain("'9:45' <= time_of_day < '10:30'"), plain("585 <= time_of_day < 630"));
    assert_eq!(plain("weekday == 'fri' or weekday == 'Monday'"), plain("weekday == 5 or weekday == 1"));
    assert_eq!(plain("month != 'january'"), plain("month != 1"));
    for (condition, expected) in [
        ("time_of_day < '25:00'", "a time from '00:00' to '24:00'"),
        ("time_of_day < '10:5'", "a time from"),
        ("weekday == 'freitag'", "a day's name"),
        ("month == 'm'", "a month's name"),
        ("minutes_since_open < '10:30'", "is not a number"),
        ("close < '10:30'", "is no series"),
    ] {
        let found = intraday(condition).expect_err("refused");
        assert!(found.contains(expected), "{condition}: {found}");
    }
}

#[test]
fn numbers_that_a_word_of_the_calendar_never_is_are_refused() {
    for (condition, expected) in [
        ("weekday == 0", "weekday is never 0"),
        ("weekday != 8", "weekday is never 8"),
        ("0 == weekday", "weekday is never 0"),
        ("weekday in (1, 0)", "weekday is never 0"),
        ("month == 13", "month is never 13"),
        ("month == 1.5", "month is never 1.5"),
        ("time_of_day < 1600", "time_of_day is never 1600"),
        ("0 < time_of_day <= 1500", "time_of_day is never 1500"),
        ("time_of_day == 90.5", "time_of_day is never 90.5"),
    ] {
        let found = intraday(condition).expect_err(condition);
        assert!(found.contains(expected), "{condition}: {found}");
    }
    for legal in
        ["weekday < 8", "weekday > 0", "month <= 12.5", "time_of_day < 1440", "weekday + 0 == 0", "time_of_day < 90.5"]
    {
        intraday(legal).expect(legal);
    }
}

#[test]
fn days_have_no_time_of_day() {
    let daily = |condition: &str| {
        let document = ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() };
        compile_scan(&document, &schema()).map_err(|d| d[0].message.clone())
    };
    for word in ["minutes_since_open", "minutes_to_close", "session_bar", "time_of_day", "opening_range(30).high"] {
        let found = daily(&format!("{word} > 1")).expect_err("refused");
        assert!(found.contains("needs bars shorter than a day, and these are of 1d"), "{word}: {found}");
    }
    assert!(daily("weekday == 1 and month == 1 and session.high > prev_session.high").is_ok());
    assert!(intraday("tf('1w', time_of_day) > 1").expect_err("refused").contains("these are of 1w"));
    assert!(intraday("tf('1w', month) > 1").is_ok());
}

#[test]
fn the_symbols_own_name_is_a_label() {
    assert!(intraday("symbol in ('SPY', 'QQQ') and symbol != 'IBM'").is_ok());
    assert!(intraday("symbol in ('SPY', 'QQX')").expect_err("refused").contains("did you mean 'QQQ'?"));
    assert!(intraday("symbol == 'SPY'").is_ok());
    assert!(intraday("xs_rank(close, by=symbol) == 1").expect_err("refused").contains("a group of its own"));
    assert!(intraday("symbol > 1").expect_err("refused").contains("write symbol == 'AAPL'"));
}
