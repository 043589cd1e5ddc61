//! Markets as the reference sees them: bars of some symbols, their labels, and the sessions of the exchange. Bars are those of days, which
//! weeks are made of, or of minutes, which are made into bars of five; what follows says days and weeks of both.

use std::collections::BTreeMap;

/// Microseconds in a day: bars carry midnight of their date.
pub const DAY: i64 = 86_400_000_000;

/// Microseconds in a minute.
pub const MINUTE: i64 = 60_000_000;
/// Minutes of a day, and of a longer bar of minutes.
const DAY_MINUTES: i64 = 24 * 60;
const LONG_MINUTES: i64 = 5;

/// What the bars of a market are numbered by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Clock {
    /// Days since 1970-01-01; longer bars are weeks.
    #[default]
    Days,
    /// Minutes since 1970-01-01 in UTC, of regular sessions; longer bars have five.
    Minutes,
}

impl Clock {
    /// Microseconds from one number to the next.
    pub fn unit(self) -> i64 {
        match self {
            Self::Days => DAY,
            Self::Minutes => MINUTE,
        }
    }

    /// The number of the longer bar that has a bar. Sessions begin at a multiple of five minutes.
    pub fn week_of(self, day: i64) -> i64 {
        match self {
            Self::Days => (day + 3).div_euclid(7),
            Self::Minutes => day.div_euclid(LONG_MINUTES),
        }
    }

    /// The first bar that may be in a longer one, which decides on its labels: the Monday of a week.
    pub fn first_of(self, week: i64) -> i64 {
        match self {
            Self::Days => week * 7 - 3,
            Self::Minutes => week * LONG_MINUTES,
        }
    }

    /// The day of a bar: regular sessions of New York are within one in UTC.
    pub fn date_of(self, day: i64) -> i64 {
        match self {
            Self::Days => day,
            Self::Minutes => day.div_euclid(DAY_MINUTES),
        }
    }

    /// Minutes since midnight in New York at which its sessions open.
    pub const OPEN: i64 = 9 * 60 + 30;

    /// The timeframe of the longer bars.
    pub fn longer(self) -> &'static str {
        match self {
            Self::Days => "1w",
            Self::Minutes => "5m",
        }
    }

    /// A text of the language, written for days, with the lengths of this clock.
    pub fn spelled(self, text: &str) -> String {
        match self {
            Self::Days => text.to_owned(),
            Self::Minutes => text.replace("tf('1w', ", &format!("tf('{}', ", self.longer())),
        }
    }

    /// So many bars, as an age.
    pub fn age(self, bars: i64) -> String {
        match self {
            Self::Days => format!("{bars}d"),
            Self::Minutes => format!("{bars}m"),
        }
    }
}

/// Every minute of the regular sessions from Thursday 2013-03-07 to Wednesday 2013-03-13; between them New York's clocks are put forward.
pub fn new_york_minutes() -> Vec<i64> {
    let open = |(day, hour): (i64, i64)| day_number(2013, 3, day) * DAY_MINUTES + hour * 60 + 30;
    let sessions = [(7, 14), (8, 14), (11, 13), (12, 13), (13, 13)];
    sessions.into_iter().flat_map(|session| (0..390).map(move |minute| open(session) + minute)).collect()
}

/// The columns of every market, in order.
pub const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// Days without a session of the New York exchanges, 2012 to 2014 (days since 1970-01-01 of year, month, day).
const HOLIDAYS: [(i64, i64, i64); 29] = [
    (2012, 1, 2),
    (2012, 1, 16),
    (2012, 2, 20),
    (2012, 4, 6),
    (2012, 5, 28),
    (2012, 7, 4),
    (2012, 9, 3),
    (2012, 10, 29),
    (2012, 10, 30),
    (2012, 11, 22),
    (2012, 12, 25),
    (2013, 1, 1),
    (2013, 1, 21),
    (2013, 2, 18),
    (2013, 3, 29),
    (2013, 5, 27),
    (2013, 7, 4),
    (2013, 9, 2),
    (2013, 11, 28),
    (2013, 12, 25),
    (2014, 1, 1),
    (2014, 1, 20),
    (2014, 2, 17),
    (2014, 4, 18),
    (2014, 5, 26),
    (2014, 7, 4),
    (2014, 9, 1),
    (2014, 11, 27),
    (2014, 12, 25),
];

/// Days since 1970-01-01 in the Gregorian calendar (Hinnant's `days_from_civil`).
pub fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The weekday of a day, 1 for Monday, or its month, 1 for January.
pub fn calendar_word(name: &str, day: i64) -> Option<f64> {
    match name {
        "weekday" => Some(((day + 3).rem_euclid(7) + 1) as f64),
        "month" => {
            // 400 years have 146,097 days; a year is found from below.
            let mut year = 1970 + (day * 400).div_euclid(146_097) - 1;
            while day_number(year + 1, 1, 1) <= day {
                year += 1;
            }
            (1..=12).rfind(|month| day_number(year, *month, 1) <= day).map(|month| month as f64)
        }
        _ => None,
    }
}

/// Every session (day number) of the New York exchanges from 2012 to 2014.
pub fn new_york_sessions() -> Vec<i64> {
    let closed: Vec<i64> = HOLIDAYS.iter().map(|&(y, m, d)| day_number(y, m, d)).collect();
    (day_number(2012, 1, 1)..=day_number(2014, 12, 31))
        .filter(|day| (day + 3).rem_euclid(7) < 5 && !closed.contains(day))
        .collect()
}

/// A label's value from a day on, until the next one; `None` for a missing value.
pub type LabelSpan = (i64, Option<String>);

/// A split or a cash dividend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Ex-date: the first day in the new terms.
    pub day: i64,
    /// New shares per old share.
    pub split: f64,
    pub dividend: f64,
}

/// One symbol.
#[derive(Debug, Clone, Default)]
pub struct Symbol {
    pub name: String,
    /// Day numbers, ascending.
    pub days: Vec<i64>,
    /// One row per bar, in the order of [`COLUMNS`]; NaN = NA.
    pub bars: Vec<[f64; 5]>,
    /// By label, ascending by day.
    pub labels: BTreeMap<String, Vec<LabelSpan>>,
    /// Day from which it is known, name (`cap`, a number, or `earnings`, a day) and value; at most one a day, ascending.
    pub attributes: Vec<(i64, &'static str, f64)>,
    /// Ascending by day.
    pub events: Vec<Event>,
}

impl Symbol {
    /// An attribute's value as known on a day.
    pub fn attribute(&self, attribute: &str, day: i64) -> Option<f64> {
        let known = self.attributes.iter().rfind(|(known_on, name, _)| *name == attribute && *known_on <= day);
        known.map(|(.., value)| *value)
    }

    /// The label's value on a day.
    pub fn label(&self, label: &str, day: i64) -> Option<&str> {
        let spans = self.labels.get(label)?;
        spans.iter().rfind(|(from, _)| *from <= day).and_then(|(_, value)| value.as_deref())
    }
}

/// A whole market.
#[derive(Debug, Clone, Default)]
pub struct Market {
    /// What days are, here and in symbols.
    pub clock: Clock,
    /// Sorted by name.
    pub symbols: Vec<Symbol>,
    /// Day numbers of every session of the exchange, beyond both ends of the bars.
    pub sessions: Vec<i64>,
}

impl Market {
    /// The index of a symbol.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.symbols.iter().position(|s| s.name == name)
    }

    /// Every day on which some symbol has a bar, ascending.
    pub fn days(&self) -> Vec<i64> {
        let mut days: Vec<i64> = self.symbols.iter().flat_map(|s| s.days.iter().copied()).collect();
        days.sort_unstable();
        days.dedup();
        days
    }

    /// The market as seen on a day: prices before each event that is known by then are in the terms after it. A split
    /// divides prices and multiplies volumes; a dividend multiplies prices by 1 - dividend / the last close before it.
    pub fn adjusted(&self, as_of: i64, dividends: bool) -> Self {
        let mut market = self.clone();
        for (symbol, raw) in market.symbols.iter_mut().zip(&self.symbols) {
            let known: Vec<&Event> = raw.events.iter().filter(|e| e.day <= as_of).collect();
            for (day, row) in symbol.days.iter().zip(&mut symbol.bars) {
                let (mut price, mut volume) = (1.0, 1.0);
                for event in known.iter().rev().filter(|e| *day < e.day) {
                    price /= event.split;
                    volume *= event.split;
                    if dividends && event.dividend > 0.0 {
                        let before =
                            raw.days.iter().zip(&raw.bars).rfind(|(d, row)| **d < event.day && !row[3].is_nan());
                        let kept = before.map_or(1.0, |(_, row)| 1.0 - event.dividend / row[3]);
                        price *= if kept > 0.0 { kept } else { f64::NAN };
                    }
                }
                for (i, value) in row.iter_mut().enumerate() {
                    *value *= if i == 4 { volume } else { price };
                }
            }
        }
        market
    }

    /// How many events are known on a day: while it is the same, nothing has to be adjusted again.
    pub fn known_events(&self, day: i64) -> usize {
        self.symbols.iter().flat_map(|s| &s.events).filter(|e| e.day <= day).count()
    }

    /// The part of the market up to a day, without what came later.
    pub fn cut(&self, day: i64) -> Self {
        let mut market = self.clone();
        for symbol in &mut market.symbols {
            let kept = symbol.days.partition_point(|d| *d <= day);
            symbol.days.truncate(kept);
            symbol.bars.truncate(kept);
            symbol.events.retain(|e| e.day <= day);
        }
        market
    }

    /// Of a market of minutes: the first minute of the regular session of a minute's day, and the first one after it.
    pub fn session_of(&self, minute: i64) -> Option<(i64, i64)> {
        let date = self.clock.date_of(minute);
        let first = self.sessions.partition_point(|at| self.clock.date_of(*at) < date);
        let after = self.sessions.partition_point(|at| self.clock.date_of(*at) <= date);
        Some((*self.sessions.get(first..after)?.first()?, self.sessions[after - 1] + 1))
    }

    /// The last session of a week: with it the week is complete.
    pub fn last_session_of(&self, week: i64) -> Option<i64> {
        self.sessions.iter().copied().rfind(|day| self.clock.week_of(*day) == week)
    }
}

/// Bars that an expression runs along.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// What two symbols' bars are matched by: the day number, or the number of the week.
    pub keys: Vec<i64>,
    pub rows: Vec<[f64; 5]>,
    /// The base bar that ends each of them.
    pub last_base: Vec<usize>,
}

/// The symbol's own daily bars.
pub fn base_bars(symbol: &Symbol) -> Bars {
    Bars { keys: symbol.days.clone(), rows: symbol.bars.clone(), last_base: (0..symbol.days.len()).collect() }
}

/// Weekly bars made of the first `count` daily ones. A week without a bar of the symbol has no weekly bar. What is NA
/// in one of the days is NA in the week; the open is the first bar's, the close the last one's.
pub fn weekly_bars(clock: Clock, symbol: &Symbol, count: usize) -> Bars {
    let mut weeks = Bars::default();
    for t in 0..count {
        let [open, high, low, close, volume] = symbol.bars[t];
        let week = clock.week_of(symbol.days[t]);
        if weeks.keys.last() == Some(&week) {
            let at = weeks.rows.len() - 1;
            let [first_open, h, l, _, v] = weeks.rows[at];
            weeks.rows[at] = [first_open, larger(h, high), -larger(-l, -low), close, v + volume];
            weeks.last_base[at] = t;
        } else {
            weeks.keys.push(week);
            weeks.rows.push([open, high, low, close, volume]);
            weeks.last_base.push(t);
        }
    }
    weeks
}

fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b {
        a
    } else {
        b
    }
}
