//! Up to when imported bars are complete: a bar that ends after the import's clock is not closed.

use std::collections::BTreeMap;

use super::ImportOptions;
use super::imported::Imported;
use crate::calendar::Calendar;
use crate::error::MarketError;
use crate::manifest::Manifest;
use crate::time::TimeMicros;
use trawl_terms::Timeframe;

/// Ends of the imported bars, relative to the clock.
pub(super) struct Closed {
    /// End of the last bar.
    last: Option<TimeMicros>,
    /// End of the last bar that ends no later than the clock.
    closed: Option<TimeMicros>,
    /// Start of the first bar.
    first: Option<TimeMicros>,
    /// Bars that end after the clock.
    forming: usize,
    /// Symbols whose last bar ends after the dataset was complete and has not come again: the first by name, and how many.
    open: Option<(String, usize)>,
}

impl Closed {
    /// From the bars of each imported symbol, and what the dataset held before.
    ///
    /// # Errors
    /// Those of [`Imported::times`].
    pub fn of(
        imported: &Imported,
        clock: Option<TimeMicros>,
        old: Option<&Manifest>,
        (calendar, timeframe): (Calendar, Timeframe),
    ) -> Result<Self, MarketError> {
        let clock = clock.unwrap_or(TimeMicros::MAX);
        let mut found = Self { last: None, closed: None, first: None, forming: 0, open: None };
        let was_forming = |last| old.is_some_and(|old| old.bar_end(last) > old.complete_to());
        let entries = old.iter().flat_map(|old| &old.symbols).filter(|entry| was_forming(entry.last_time));
        let mut open: BTreeMap<&str, TimeMicros> = entries.map(|e| (e.symbol.as_str(), e.last_time)).collect();
        let bar_end = |start: TimeMicros| calendar.bar_end(timeframe, start);
        for symbol in &imported.symbols {
            let last = open.get(&*symbol.name).copied().filter(|last| (symbol.first..=symbol.last).contains(last));
            let end = bar_end(symbol.last);
            found.last = found.last.max(Some(end));
            found.first = [found.first, Some(symbol.first)].into_iter().flatten().min();
            // Only what is open or forming needs more than the last bar.
            if last.is_none() && end <= clock {
                found.closed = found.closed.max(Some(end));
                continue;
            }
            let times = imported.times(symbol)?;
            if last.is_some_and(|last| times.binary_search(&last).is_ok()) {
                open.remove(&*symbol.name);
            }
            let ends = || times.iter().rev().map(|&start| bar_end(start));
            let forming = ends().take_while(|end| *end > clock).count();
            found.closed = found.closed.max(ends().nth(forming));
            found.forming += forming;
        }
        found.open = open.keys().next().map(|symbol| ((*symbol).to_owned(), open.len()));
        Ok(found)
    }

    /// The requested time, else the dataset's as long as no imported bar ends later, else the one by the clock: `None`
    /// where that is the end of the last bar. The result is the end of a bar and never the clock itself, so that the
    /// same file imported a second later gives the same snapshot.
    pub fn complete_to(&self, requested: Option<TimeMicros>, old: Option<&Manifest>) -> Option<TimeMicros> {
        let kept = || {
            let kept = old?.complete_to?;
            (self.last.is_none_or(|end| end <= kept)).then_some(kept)
        };
        let by_clock = || {
            let before = old.map(Manifest::complete_to);
            // The end of the dataset's last bar may be in the future where that bar has not come again.
            (self.forming > 0 || self.open.is_some()).then(|| self.closed.max(before).or(self.first)).flatten()
        };
        requested.or_else(kept).or_else(by_clock)
    }

    /// A note that bars are closed, or about to be, with the values of an earlier import at which they were forming.
    pub fn open_note(&self, options: &ImportOptions, old: Option<&Manifest>) -> Option<String> {
        let ((symbol, count), old) = (self.open.as_ref()?, old?);
        (options.complete_to.is_none() && self.last.is_some_and(|end| end > old.complete_to())).then(|| {
            let others = if *count > 1 { format!(" and {} other symbols", count - 1) } else { String::new() };
            format!(
                "the last bar of {symbol}{others} ended after {}, up to which the dataset was complete, and has not come \
                 again: it may have the values of a bar that was still forming; import it again",
                old.calendar().zone().format(old.complete_to())
            )
        })
    }

    /// A note that bars are still forming, unless the user gave the time up to which they are complete.
    pub fn note(&self, options: &ImportOptions, calendar: Calendar) -> Option<String> {
        let (clock, last) = (options.clock?, self.last?);
        (self.forming > 0 && options.complete_to.is_none()).then(|| {
            let zone = calendar.zone();
            format!(
                "{} of the imported bars end after the present, {} (the last at {}): they are forming, and not used \
                 unless --forming asks for them; --complete-to overrides this",
                self.forming,
                zone.format(clock - clock.rem_euclid(crate::time::SECOND)),
                zone.format(last)
            )
        })
    }
}
