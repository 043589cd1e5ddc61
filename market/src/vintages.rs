//! Bars as they were known at the time: when every bar is an as-of of its own (all bars, backtests), a split or a
//! dividend is known only from its ex-date on.
//!
//! A vintage is the state of one symbol's adjusted bars between two such dates. Its values are computed from the raw
//! bars, adjusted as of the vintage, and never by rescaling another vintage.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::arrow_file::LoadedBars;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::reference::{Adjustment, AdjustmentMode, adjust, known_from};
use crate::time::TimeMicros;
use trawl_terms::Timeframe;

/// One symbol's bars as they were known at the bars from `from` to `until`.
#[derive(Debug, Clone)]
pub struct Vintage {
    /// Its bars up to `until`, adjusted as of `from`.
    pub bars: LoadedBars,
    /// First time of a bar that sees this state.
    pub from: TimeMicros,
    /// Last time of a bar that sees this state.
    pub until: TimeMicros,
}

impl Dataset {
    /// The times of bars in `(after, until]` from which the adjustment changes, each with its symbol: ascending by
    /// time. For one group's symbols, or for all.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] or [`MarketError::Io`] for the tables.
    pub fn adjustment_changes(
        &self,
        adjustment: &Adjustment,
        group: Option<u32>,
        (after, until): (TimeMicros, TimeMicros),
    ) -> Result<Vec<(TimeMicros, String)>, MarketError> {
        let mut changes = Vec::new();
        if adjustment.is_none() || adjustment.at_last || self.manifest.factors.is_none() {
            return Ok(changes);
        }
        let factors = self.factor_table()?;
        for entry in self.manifest.symbols.iter().filter(|s| group.is_none_or(|group| s.group == group)) {
            let times = self.changes_of(&factors, &entry.symbol, adjustment)?;
            let inside = times.into_iter().filter(|t| *t > after && *t <= until);
            changes.extend(inside.map(|t| (t, entry.symbol.clone())));
        }
        changes.sort();
        Ok(changes)
    }

    /// Like [`Dataset::load_group_part`], for every bar from `from` to `until` as of itself: each symbol's
    /// vintages, by symbol and time. They cover the range without a gap.
    ///
    /// # Errors
    /// Those of [`Dataset::load_group_adjusted`].
    pub fn load_group_vintages(
        &self,
        (group, part): (u32, Range<usize>),
        columns: &[String],
        adjustment: &Adjustment,
        (from, until): (TimeMicros, TimeMicros),
    ) -> Result<Vec<Vintage>, MarketError> {
        let changes = self.adjustment_changes(adjustment, Some(group), (from, until))?;
        let mut by_symbol: BTreeMap<&str, Vec<TimeMicros>> = BTreeMap::new();
        for (time, symbol) in &changes {
            by_symbol.entry(symbol).or_default().push(*time);
        }
        let part: Vec<usize> = (part.start..part.end.min(self.members(group).len())).collect();
        let seen = |at: TimeMicros| if adjustment.at_last { *adjustment } else { adjustment.known_at(at) };
        if by_symbol.is_empty() {
            let bars = self.load_group_part(group, columns, &seen(from), &part)?;
            return Ok(bars.into_iter().map(|bars| Vintage { bars, from, until }).collect());
        }
        let (wanted, close) = self.with_close(columns, adjustment);
        let factors = self.factor_table()?;
        let when = (self.manifest.calendar(), self.manifest.timeframe);
        let mut vintages = Vec::new();
        for raw in self.load_group_part(group, &wanted, &Adjustment::NONE, &part)? {
            let cuts = by_symbol.get(&*raw.symbol).map_or(&[][..], Vec::as_slice);
            let starts = std::iter::once(from).chain(cuts.iter().copied());
            let ends = cuts.iter().map(|cut| cut - 1).chain([until]);
            for (from, until) in starts.zip(ends) {
                let visible = raw.times.partition_point(|t| *t <= until);
                let mut bars = LoadedBars {
                    symbol: raw.symbol.clone(),
                    times: raw.times.part(0..visible),
                    columns: raw.columns.iter().map(|c| c.part(0..visible)).collect(),
                    unread: raw.unread,
                    untimed: raw.untimed,
                };
                let closes = close.map(|i| &raw.columns[i][..visible]);
                adjust(&mut bars, &wanted, closes, factors.of(&raw.symbol), &seen(from), when);
                bars.columns.truncate(columns.len());
                vintages.push(Vintage { bars, from, until });
            }
        }
        Ok(vintages)
    }

    /// Times at which events of a symbol become known, ascending, without repeats.
    fn changes_of(
        &self,
        factors: &crate::reference::FactorTable,
        symbol: &str,
        adjustment: &Adjustment,
    ) -> Result<Vec<TimeMicros>, MarketError> {
        let (calendar, timeframe): (_, Timeframe) = (self.manifest.calendar(), self.manifest.timeframe);
        let dividends = adjustment.mode == AdjustmentMode::SplitAndDividend;
        let matters = factors.of(symbol).iter().filter(|e| e.split != 1.0 || (dividends && e.dividend > 0.0));
        let mut times: Vec<TimeMicros> =
            matters.map(|e| known_from(e, calendar, timeframe)).filter(|t| *t <= adjustment.as_of).collect();
        times.sort_unstable();
        times.dedup();
        Ok(times)
    }
}
