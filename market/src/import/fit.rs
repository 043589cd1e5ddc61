//! How well bars fit a calendar: how many are outside its regular sessions, and how many on dates without a session.

use std::collections::BTreeSet;

use crate::calendar::{CALENDARS, Calendar};
use crate::time::{DAY, TimeMicros, format_time};
use trawl_terms::Timeframe;

/// Share of bars on dates without a session from which a calendar does not fit. Markets that trade on weekends have two
/// days of seven, the holidays of another exchange about one day of thirty.
const MISFIT_SHARE: f64 = 0.1;
/// Number of different dates without a session from which the share is considered.
const MISFIT_DATES: usize = 10;
/// Calendars that fit almost any bars, and are suggested last.
const GENERAL: [&str; 2] = ["weekdays", "24/7"];

/// What was counted.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    pub calendar: Calendar,
    /// Bars that were checked: those on dates in the calendar's range.
    pub bars: u64,
    /// Intraday bars that start outside a regular session.
    pub outside: u64,
    /// Bars on dates without a session.
    pub off_days: u64,
    /// The first of these dates.
    dates: BTreeSet<TimeMicros>,
    dated: bool,
    /// Some of the bars, needed only where they do not fit.
    pub sample: Vec<TimeMicros>,
}

/// Remembers the last session, because times come in order.
struct Sessions {
    calendar: Calendar,
    range: (TimeMicros, TimeMicros),
    open: (TimeMicros, TimeMicros),
}

impl Sessions {
    fn new(calendar: Calendar) -> Self {
        let (first, last) = calendar.range();
        Self { calendar, range: (first, last.saturating_add(DAY)), open: (0, 0) }
    }

    fn knows(&self, time: TimeMicros) -> bool {
        (self.range.0..self.range.1).contains(&time)
    }

    fn is_regular(&mut self, time: TimeMicros) -> bool {
        if !(self.open.0..self.open.1).contains(&time) {
            let Some(session) = self.calendar.session_at(time) else { return false };
            self.open = (session.open, session.close);
        }
        true
    }

    /// Whether the local date of an instant has a session.
    fn has_date(&self, time: TimeMicros, dated: bool) -> bool {
        let date = if dated { time } else { self.calendar.zone().wall(time) };
        self.calendar.session_on(date - date.rem_euclid(DAY)).is_some()
    }
}

/// Share of instants outside the regular sessions; 0 without any.
pub(super) fn share_outside(calendar: Calendar, times: impl Iterator<Item = TimeMicros>) -> f64 {
    let mut sessions = Sessions::new(calendar);
    let (mut all, mut outside) = (0u32, 0u32);
    for time in times {
        if sessions.knows(time) {
            all += 1;
            outside += u32::from(!sessions.is_regular(time));
        }
    }
    f64::from(outside) / f64::from(all.max(1))
}

/// `12 %`, with a decimal below ten.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 || percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// How well the bars of one symbol fit.
#[derive(Default)]
pub(super) struct FitCount {
    known: u64,
    outside: u64,
    off: u64,
    dates: BTreeSet<TimeMicros>,
}

impl FitCount {
    pub fn of(calendar: Calendar, timeframe: Timeframe, times: &[TimeMicros]) -> Self {
        let dated = timeframe.is_dated();
        let mut count = Self::default();
        // The labels of weeks and months may be any day.
        if dated && timeframe != Timeframe::DAY {
            return count;
        }
        let mut sessions = Sessions::new(calendar);
        for &time in times {
            if !sessions.knows(time) {
                continue;
            }
            count.known += 1;
            if !dated && sessions.is_regular(time) {
                continue;
            }
            count.outside += u64::from(!dated);
            if !sessions.has_date(time, dated) {
                count.off += 1;
                if count.dates.len() < MISFIT_DATES {
                    count.dates.insert(time - time.rem_euclid(DAY));
                }
            }
        }
        count
    }
}

impl Fit {
    pub(super) fn new(calendar: Calendar, timeframe: Timeframe) -> Self {
        let dated = timeframe.is_dated();
        Self { calendar, bars: 0, outside: 0, off_days: 0, dates: BTreeSet::new(), dated, sample: Vec::new() }
    }

    /// Adds the bars of a symbol.
    pub(super) fn add(&mut self, found: FitCount) {
        self.bars += found.known;
        self.outside += found.outside;
        self.off_days += found.off;
        self.dates.extend(found.dates);
    }

    fn share(count: u64, of: u64) -> f64 {
        count as f64 / of.max(1) as f64
    }

    /// A note that bars are outside the regular sessions, or on dates without one; `None` when all fit.
    pub(super) fn note(&self) -> Option<String> {
        let name = self.calendar.name();
        let first = self.dates.first().map_or_else(String::new, |d| format!(", the first {}", format_time(*d)));
        let off = (self.off_days > 0).then(|| {
            let share = percent(Self::share(self.off_days, self.bars));
            format!("{} bars ({share}) are on dates on which {name} has no session{first}", self.off_days)
        });
        let outside = (self.outside > 0).then(|| {
            let share = percent(Self::share(self.outside, self.bars));
            format!("{} bars ({share}) lie outside the regular sessions of {name}", self.outside)
        });
        match (outside, off) {
            (Some(outside), Some(off)) => Some(format!("{outside}; {off}")),
            (outside, off) => outside.or(off),
        }
    }

    /// Why the calendar does not fit; `None` when all but a few bars fit.
    pub(super) fn misfit(&self) -> Option<String> {
        let share = Self::share(self.off_days, self.bars);
        (share > MISFIT_SHARE && self.dates.len() >= MISFIT_DATES).then(|| {
            let first = self.dates.first().map_or_else(String::new, |d| {
                let day = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
                    [crate::calendar::weekday(*d) as usize % 7];
                format!(", such as {} ({day})", format_time(*d))
            });
            format!(
                "{} of the bars ({} of {}) are on dates on which {} has no session{first}",
                percent(share),
                self.off_days,
                self.bars,
                self.calendar.name()
            )
        })
    }

    /// The calendar that fits best, if one fits: of those with sessions on all the dates, the one with the fewest
    /// sessions.
    pub(super) fn better(&self) -> Option<&'static str> {
        let (first, last) = (self.sample.iter().min().copied()?, self.sample.iter().max().copied()?);
        let share = |calendar: Calendar| {
            let sessions = Sessions::new(calendar);
            let known: Vec<_> = self.sample.iter().filter(|time| sessions.knows(**time)).collect();
            let off = known.iter().filter(|time| {
                let regular = !self.dated && calendar.is_regular(***time);
                !regular && !sessions.has_date(***time, self.dated)
            });
            // A calendar that covers none of the dates does not fit.
            if known.is_empty() { 1.0 } else { off.count() as f64 / known.len() as f64 }
        };
        let own = CALENDARS.iter().filter(|name| !GENERAL.contains(name));
        let named = own.chain(&GENERAL).filter_map(|name| {
            let calendar = Calendar::named(name).ok()?;
            Some((*name, share(calendar), calendar.ordinal(last) - calendar.ordinal(first)))
        });
        // Ties go to the first, and so to an exchange rather than to a calendar that fits anything.
        let best = named.min_by(|a, b| a.1.total_cmp(&b.1).then(a.2.cmp(&b.2)));
        best.filter(|(_, share, _)| *share < MISFIT_SHARE / 2.0).map(|(name, ..)| name)
    }
}
