//! The sessions of XNYS, from the table that comes with the program (`tools/make_calendar.py` writes it).
//!
//! Read once per process. The table is part of the program, so what it cannot read it leaves out; a test holds that it
//! reads every line.

use std::sync::OnceLock;

use super::{Session, weekday};
use crate::time::{DAY, MINUTE, TimeMicros, parse_time};

const XNYS: &str = include_str!("../../data/calendars/XNYS.txt");

/// Sessions by date, and the first and last date that the table speaks of.
pub(super) struct Table {
    pub sessions: Vec<Session>,
    pub range: (TimeMicros, TimeMicros),
}

pub(super) fn xnys() -> &'static Table {
    static READ: OnceLock<Table> = OnceLock::new();
    READ.get_or_init(|| read(XNYS))
}

/// Lines `range FIRST LAST` and `FIRST COUNT OPEN CLOSE`, a run of weekdays with the same hours.
fn read(text: &str) -> Table {
    let mut table = Table { sessions: Vec::new(), range: (0, 0) };
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["range", first, last] => {
                table.range = (parse_time(first).unwrap_or(0), parse_time(last).unwrap_or(0));
            }
            [first, count, open, close] => {
                let (Some(mut date), Ok(count)) = (parse_time(first), count.parse::<u32>()) else { continue };
                let (Some(open), Some(close)) = (clock(open), clock(close)) else { continue };
                for _ in 0..count {
                    table.sessions.push(Session { date, open: date + open, close: date + close });
                    date += DAY;
                    while weekday(date) > 4 {
                        date += DAY;
                    }
                }
            }
            _ => {}
        }
    }
    debug_assert!(table.sessions.is_sorted_by(|a, b| a.close <= b.open));
    table
}

fn clock(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    Some((hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?) * MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = XNYS.lines().filter(|l| !l.starts_with('#') && !l.starts_with("range"));
        let counts = lines.map(|l| l.split(' ').nth(1).and_then(|c| c.parse::<usize>().ok()).unwrap());
        assert_eq!(counts.sum::<usize>(), xnys().sessions.len());
        assert!(xnys().sessions.len() > 16_000);
        assert!(xnys().sessions.is_sorted_by(|a, b| a.close <= b.open));
        assert!(xnys().sessions.iter().all(|s| s.date < s.open && s.open < s.close && s.close < s.date + DAY));
    }
}
