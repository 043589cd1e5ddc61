//! Higher bars of one symbol from its base bars: hours from minutes, days from minutes, weeks and months from days.
//!
//! Labels are canonical starts of periods, so that two symbols' higher bars match by label:
//! - minutes and hours: session open + k times the length (the last one is cut off by the close); after a break they
//!   start over at its end, and the last one before the break is cut off by its start;
//! - days: the session's date; `3d` counts sessions, from the first session of 1970 or of the calendar;
//! - weeks: Monday 00:00 UTC; `2w` counts from Monday 1970-01-05;
//! - months: the first of the month; `3mo` are the quarters of the calendar, `12mo` its years.
//!
//! Whether a higher bar is complete depends on the calendar and on the end of the base bar that reads it, never on
//! later bars: what a base bar sees does not change when more bars are added. A base bar belongs to the period that
//! contains its START. Bars outside regular sessions belong to no higher bar but can read the last completed one.
//! Beyond the calendar's years each date with a bar is a session, and a week or month is complete at its end.

use std::ops::Range;

use crate::calendar::{Calendar, Session, day, weekday};
use crate::error::MarketError;
use crate::time::{DAY, MINUTE, TimeMicros, month_index, month_start};
use trawl_terms::{TimeUnit, Timeframe, TimeframeError};

/// Minutes of the longest bar whose length may be written in minutes or hours.
const INTRADAY_MINUTES_MAX: i64 = 24 * 60;
/// Monday 1970-01-05, from which weeks are counted.
const FIRST_MONDAY: TimeMicros = 4 * DAY;

/// Higher bars of one symbol. Takes memory by the higher bar, not by the base bar.
#[derive(Debug, Clone, PartialEq)]
pub struct HigherBars {
    /// Canonical label of each higher bar that has at least one base bar, ascending.
    pub times: Vec<TimeMicros>,
    /// Number of base bars.
    bars: usize,
    /// Of the higher bars that a base bar saw complete: the first base bar at whose close each of them is. Never falls.
    complete_from: Vec<usize>,
    /// Runs of consecutive base bars, each of one higher bar, ascending. Other bars may lie between them: pre-market bars
    /// inside a week.
    runs: Vec<Range<usize>>,
    /// Per higher bar: its first run.
    first_run: Vec<usize>,
}

impl HigherBars {
    /// How many of the higher bars are complete when a base bar closes. Never falls from one bar to the next.
    pub fn completed(&self, base: usize) -> Option<usize> {
        (base < self.bars).then(|| self.complete_from.partition_point(|from| *from <= base))
    }

    /// [`Self::completed`] of the base bars from `base` on, as ranges of bars with the same number.
    pub fn completed_along(&self, base: usize) -> impl Iterator<Item = (Range<usize>, usize)> + '_ {
        let first = self.complete_from.partition_point(|from| *from <= base);
        let (mut from, mut completed) = (base, first);
        std::iter::from_fn(move || {
            while from < self.bars {
                let until = self.complete_from.get(completed).copied().unwrap_or(self.bars);
                let found = (from..until, completed);
                (from, completed) = (until, completed + 1);
                if !found.0.is_empty() {
                    return Some(found);
                }
            }
            None
        })
    }

    fn runs_of(&self, higher: usize) -> &[Range<usize>] {
        let end = self.first_run.get(higher + 1).copied().unwrap_or(self.runs.len());
        self.first_run.get(higher).and_then(|first| self.runs.get(*first..end)).unwrap_or(&[])
    }

    /// The base bars (their indices, ascending) of a higher bar. Not always consecutive.
    pub fn base_bars(&self, higher: usize) -> impl Iterator<Item = usize> + '_ {
        self.runs_of(higher).iter().flat_map(Range::clone)
    }

    /// The last base bar of a higher bar.
    pub fn last_base_bar(&self, higher: usize) -> Option<usize> {
        self.runs_of(higher).last().map(|run| run.end - 1)
    }

    /// One column of all higher bars from that column of the base bars; see [`aggregate`].
    pub fn aggregate(&self, column: &str, values: &[f64]) -> Vec<f64> {
        let mut gathered: Vec<f64> = Vec::new();
        let mut one = |higher| match self.runs_of(higher) {
            [run] => aggregate(column, values, run.clone()),
            _ => {
                gathered.clear();
                gathered.extend(self.base_bars(higher).map(|i| values.get(i).copied().unwrap_or(f64::NAN)));
                aggregate(column, &gathered, 0..gathered.len())
            }
        };
        (0..self.times.len()).map(&mut one).collect()
    }

    /// The higher bar that a base bar belongs to and its base bars up to and including this one: the forming bar.
    /// `None` for base bars outside regular sessions.
    pub fn forming(&self, base: usize) -> Option<(usize, Vec<usize>)> {
        let run = self.runs.partition_point(|run| run.end <= base);
        self.runs.get(run).filter(|run| run.contains(&base))?;
        let higher = self.first_run.partition_point(|first| *first <= run).checked_sub(1)?;
        Some((higher, self.base_bars(higher).take_while(|bar| *bar <= base).collect()))
    }

    /// Adds base bars to the last higher bar.
    fn extend(&mut self, bars: Range<usize>) {
        let own = self.first_run.last().copied().unwrap_or(0);
        match self.runs.get_mut(own..).and_then(<[_]>::last_mut) {
            Some(run) if run.end == bars.start => run.end = bars.end,
            _ => self.runs.push(bars),
        }
    }
}

/// How the values of a column are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    First,
    Greatest,
    Smallest,
    Sum,
    Last,
}

fn rule(column: &str) -> Rule {
    match column {
        "open" => Rule::First,
        "high" => Rule::Greatest,
        "low" => Rule::Smallest,
        "volume" | "transactions" | "trades" | "turnover" | "amount" | "quote_volume" => Rule::Sum,
        _ => Rule::Last,
    }
}

/// One value of a column from those of a range of bars: open is the first, high the greatest, low the smallest, volume
/// (and transactions, trades, turnover, amount, quote_volume) the sum, close and anything else the last. If one of the
/// values used is NaN, the result is NaN: never a smaller sum, never an extreme of fewer bars. Sums add in time order.
pub fn aggregate(column: &str, values: &[f64], range: Range<usize>) -> f64 {
    let values = values.get(range).unwrap_or(&[]);
    // NaN counts as both greatest and smallest.
    let extreme = |better: fn(f64, f64) -> bool| {
        values.iter().copied().reduce(|a, b| if a.is_nan() || (!b.is_nan() && !better(b, a)) { a } else { b })
    };
    let found = match rule(column) {
        Rule::First => values.first().copied(),
        Rule::Last => values.last().copied(),
        Rule::Greatest => extreme(|b, a| b > a),
        Rule::Smallest => extreme(|b, a| b < a),
        Rule::Sum => values.iter().copied().reduce(|a, b| a + b),
    };
    found.unwrap_or(f64::NAN)
}

/// Checks that bars of `higher` can be built from bars of `base`; returns `higher` in its canonical form (`60m` is
/// `1h`). The length of the base bars themselves is allowed.
///
/// # Errors
/// A sentence for a diagnostic.
pub fn check_resampling(base: Timeframe, higher: &str) -> Result<Timeframe, String> {
    check(base, higher.parse().map_err(|e: TimeframeError| e.to_string())?)
}

fn check(base: Timeframe, higher: Timeframe) -> Result<Timeframe, String> {
    match (base.minutes(), higher.minutes()) {
        (_, Some(minutes)) if minutes > INTRADAY_MINUTES_MAX => {
            Err(format!("bars of {higher} are longer than a day: write their length in days, such as 2d"))
        }
        (Some(short), Some(long)) if long < short => {
            Err(format!("bars of {higher} are shorter than the dataset's, which are of {base}"))
        }
        (Some(short), Some(long)) if long % short != 0 => Err(format!(
            "bars of {higher} cannot be built from bars of {base}: {long} minutes are not a multiple of {short}"
        )),
        (Some(_), Some(minutes)) if minutes % 60 == 0 => {
            // At most a day, therefore far below a u32.
            Ok(Timeframe { count: (minutes / 60) as u32, unit: TimeUnit::Hour })
        }
        (Some(_), Some(minutes)) => Ok(Timeframe { count: minutes as u32, unit: TimeUnit::Minute }),
        (None, Some(_)) => Err(format!("bars of {higher} are shorter than the dataset's, which are of {base}")),
        (Some(_), None) => Ok(higher),
        (None, None) if base.count > 1 && base != higher => Err(format!(
            "bars of {base} do not begin with every period of {higher}: only bars of 1d, 1w or 1mo are built on"
        )),
        (None, None) => match (base.unit, higher.unit) {
            (TimeUnit::Week, TimeUnit::Day) | (TimeUnit::Month, TimeUnit::Day | TimeUnit::Week) => {
                Err(format!("bars of {higher} are shorter than the dataset's, which are of {base}"))
            }
            (TimeUnit::Week, TimeUnit::Month) => {
                Err(format!("bars of {higher} cannot be built from bars of {base}: a week may lie in two months"))
            }
            _ => Ok(higher),
        },
    }
}

/// One period of a higher timeframe.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BarSpan {
    label: TimeMicros,
    /// When its higher bar is complete; never, if the calendar ends inside a period of several days.
    end: TimeMicros,
}

/// Finds periods and the ends of base bars; consecutive bars are mostly of one session or period.
struct BarSpans<'a> {
    calendar: &'a Calendar,
    base: Timeframe,
    higher: Timeframe,
    session: Option<Session>,
    dated: Option<(Session, BarSpan)>,
}

impl BarSpans<'_> {
    /// The session of a base bar; `None` outside regular sessions.
    fn session(&mut self, time: TimeMicros) -> Option<Session> {
        let dated = self.base.is_dated();
        let known = self.session.filter(|s| if dated { s.date == day(time) } else { s.holds(time) });
        known.or_else(|| {
            let found = match self.base.unit {
                TimeUnit::Week | TimeUnit::Month => Some(Session::of_date(day(time))),
                TimeUnit::Day if !self.calendar.covers(time) => Some(Session::of_date(day(time))),
                TimeUnit::Day => self.calendar.session_on(time),
                TimeUnit::Minute | TimeUnit::Hour => self.calendar.session_at(time),
            };
            self.session = found.or(self.session);
            found
        })
    }

    /// When a base bar is closed.
    fn base_end(&self, time: TimeMicros, session: Option<Session>) -> TimeMicros {
        match (session, self.base.minutes(), self.base.unit) {
            (Some(session), Some(minutes), _) => session.stretch(time).1.min(time.saturating_add(minutes * MINUTE)),
            (Some(session), None, TimeUnit::Day) if self.base.count == 1 => session.close,
            (_, None, TimeUnit::Week) => self.last_close(week(day(time), 1), week(day(time), 1) + 7 * DAY),
            (_, None, TimeUnit::Month) => {
                let month = month_index(time);
                self.last_close(month_start(month), month_start(month + 1))
            }
            _ => self.calendar.bar_end(self.base, time),
        }
    }

    /// How many of the bars from the first of `times` on, which is of a session and its period if there are any, are of
    /// the same period and of the same uninterrupted range of trading, and when they close. At least one.
    fn together(&self, times: &[TimeMicros], session: Option<Session>, period: Option<BarSpan>) -> Together {
        if let (Some(session), Some(period), Some(minutes)) = (session, period, self.base.minutes()) {
            let close = session.stretch(times[0]).1;
            let until = if self.higher.minutes().is_some() { period.end.min(close) } else { close };
            return Together { bars: first_from(times, until).max(1), length: minutes * MINUTE, close };
        }
        Together { bars: 1, length: 0, close: self.base_end(times[0], session) }
    }

    /// The period that contains a regular base bar.
    fn period(&mut self, time: TimeMicros, session: Session) -> BarSpan {
        if let Some(minutes) = self.higher.minutes() {
            let (from, to) = session.stretch(time);
            let label = time - (time - from) % (minutes * MINUTE);
            return BarSpan { label, end: to.min(label + minutes * MINUTE) };
        }
        if let Some((known, period)) = self.dated
            && known == session
        {
            return period;
        }
        let count = i64::from(self.higher.count);
        let period = match self.higher.unit {
            TimeUnit::Week => {
                let label = week(session.date, count);
                BarSpan { label, end: self.last_close(label, label + count * 7 * DAY) }
            }
            TimeUnit::Month => {
                let month = month_index(session.date);
                let first = month - month.rem_euclid(count);
                let label = month_start(first);
                BarSpan { label, end: self.last_close(label, month_start(first + count)) }
            }
            _ if count == 1 => BarSpan { label: session.date, end: session.close },
            _ => {
                let ordinal = self.calendar.ordinal(session.date);
                let first = ordinal - ordinal.rem_euclid(count);
                let label = self.calendar.nth(first).map_or(session.date, |s| s.date);
                BarSpan { label, end: self.calendar.nth(first + count - 1).map_or(TimeMicros::MAX, |s| s.close) }
            }
        };
        self.dated = Some((session, period));
        period
    }

    /// Close of the last session in a range of dates; the end of the range, when the calendar ends before it.
    fn last_close(&self, start: TimeMicros, end: TimeMicros) -> TimeMicros {
        if !self.calendar.covers(end.saturating_sub(1)) {
            return end;
        }
        let last = self.calendar.previous_session(end).filter(|s| s.date >= start);
        last.map_or(end, |s| s.close)
    }
}

/// Consecutive base bars of one period.
#[derive(Debug, Clone, Copy)]
struct Together {
    bars: usize,
    /// A bar closes so long after its start, and at `close` at the latest; 0 for a single bar, which closes then.
    length: TimeMicros,
    close: TimeMicros,
}

impl Together {
    fn end_of(&self, time: TimeMicros) -> TimeMicros {
        if self.length == 0 { self.close } else { self.close.min(time.saturating_add(self.length)) }
    }

    /// The first of these bars that closes at or after `end`; their number if none does.
    fn first_until(&self, times: &[TimeMicros], end: TimeMicros) -> usize {
        if self.close < end { times.len() } else { times.partition_point(|time| self.end_of(*time) < end) }
    }
}

/// The first of ascending `times` that is not before `time`, which is probably near: looked for in steps that double.
fn first_from(times: &[TimeMicros], time: TimeMicros) -> usize {
    let mut step = 1;
    while times.get(step).is_some_and(|found| *found < time) {
        step *= 2;
    }
    let (from, until) = (step / 2, times.len().min(step));
    from + times[from..until].partition_point(|found| *found < time)
}

/// Monday of the first of so many weeks.
fn week(date: TimeMicros, count: i64) -> TimeMicros {
    let weeks = (date - weekday(date) * DAY - FIRST_MONDAY).div_euclid(7 * DAY);
    FIRST_MONDAY + (weeks - weeks.rem_euclid(count)) * 7 * DAY
}

/// Builds the higher bars of one symbol from the times of its base bars, which ascend strictly.
///
/// [`MarketError::Refused`] when `higher` cannot be built from `base`, and for a bar outside the calendar's range whose
/// session is needed: one of minutes or hours, or one whose days are counted.
pub fn higher_bars(
    calendar: &Calendar,
    base: Timeframe,
    higher: Timeframe,
    times: &[TimeMicros],
) -> Result<HigherBars, MarketError> {
    let higher = check(base, higher).map_err(MarketError::Refused)?;
    let session_needed = !base.is_dated() || (higher.unit == TimeUnit::Day && higher.count > 1);
    for &time in times.first().into_iter().chain(times.last()) {
        // Dates alone are sufficient in all years that a bar may have.
        if session_needed || !Calendar::ALWAYS.covers(time) {
            calendar.check_known(time)?;
        }
    }
    debug_assert!(times.is_sorted_by(|a, b| a < b));
    let mut periods = BarSpans { calendar, base, higher, session: None, dated: None };
    let mut bars = HigherBars {
        times: Vec::new(),
        bars: times.len(),
        complete_from: Vec::new(),
        runs: Vec::new(),
        first_run: Vec::new(),
    };
    // Ends of the higher bars, and the latest end of a base bar so far.
    let mut ends: Vec<TimeMicros> = Vec::new();
    let mut seen = TimeMicros::MIN;
    let mut i = 0;
    while i < times.len() {
        let session = periods.session(times[i]);
        let period = session.map(|session| periods.period(times[i], session));
        let together = periods.together(&times[i..], session, period);
        let part = &times[i..i + together.bars];
        // A period that an earlier bar saw complete accepts no further bar (possible only where base bars overlap).
        if let Some(period) = period.filter(|period| period.end > seen) {
            let last = together.first_until(part, period.end);
            let members = i..i + part.len().min(last + 1);
            if bars.times.last() != Some(&period.label) {
                bars.times.push(period.label);
                bars.first_run.push(bars.runs.len());
                ends.push(period.end);
            }
            bars.extend(members);
        }
        while let Some(&end) = ends.get(bars.complete_from.len()) {
            let at = if seen >= end { 0 } else { together.first_until(part, end) };
            if at == part.len() {
                break;
            }
            let before = bars.complete_from.last().copied().unwrap_or(0);
            bars.complete_from.push(before.max(i + at));
        }
        seen = seen.max(together.end_of(part[part.len() - 1]));
        i += part.len();
    }
    Ok(bars)
}

#[cfg(test)]
#[path = "resample_tests.rs"]
mod tests;
