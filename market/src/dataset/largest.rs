//! How large the values of bars can be that were not read: what a program must know of them to begin later.

use super::Dataset;
use crate::arrow_file::LoadedBars;
use crate::error::MarketError;
use crate::reference::Adjustment;
use crate::sums::Run;

impl Dataset {
    /// For the bars of all symbols of a group (see [`Dataset::load_group_newest`]), by symbol and column, no finite value of the bars
    /// that were not read is larger in magnitude, adjusted as the others; `None` where that is not known: checksums that were written
    /// by an older version lack it.
    ///
    /// # Errors
    /// A data root that cannot be reached, and those of the table of splits and dividends.
    pub fn largest_unread(
        &self,
        group: u32,
        columns: &[String],
        adjustment: &Adjustment,
        bars: &[LoadedBars],
    ) -> Result<Option<Vec<Vec<f64>>>, MarketError> {
        let runs = self.runs(group);
        let Some(file) = self.manifest.file(group).filter(|_| runs.len() == bars.len()) else { return Ok(None) };
        let Some(sums) = self.sums_of(file, runs)? else { return Ok(None) };
        let adjusts = !adjustment.is_none() && self.manifest.factors.is_some();
        let factors = if adjusts { Some(self.factor_table()?) } else { None };
        let of_symbol = |(run, bars): (&Run, &LoadedBars)| {
            let events = factors.as_ref().map_or(&[][..], |factors| factors.of(&bars.symbol));
            // Dividends lower prices.
            let by: f64 = events.iter().map(|event| event.split.max(1.0 / event.split)).product();
            let of_column = |name: &String| {
                // Of times none are kept, and none are numbers of a program.
                let largest = &sums.column(name)?.largest;
                let unread = largest.get(run.chunk..run.chunk + run.chunks_before(bars.unread as u64))?;
                unread.iter().all(|value| value.is_finite()).then(|| by * unread.iter().copied().fold(0.0, f64::max))
            };
            columns.iter().map(of_column).collect::<Option<Vec<f64>>>()
        };
        Ok(runs.iter().zip(bars).map(of_symbol).collect())
    }
}
