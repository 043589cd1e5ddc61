//! How large the values of bars can be that were not read: what a program must know of them to begin later.

use super::Dataset;
use crate::arrow_file::LoadedBars;
use crate::error::MarketError;
use crate::reference::Adjustment;

impl Dataset {
    /// For the bars of symbols of a group (see [`Dataset::load_group_newest`]), by symbol and column, no finite value of the bars
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
        let (runs, names) = (self.runs(group), self.names_of(group));
        let Some(file) = self.manifest.file(group) else { return Ok(None) };
        let Some(sums) = self.sums_of(file, runs)? else { return Ok(None) };
        let adjusts = !adjustment.is_none() && self.manifest.factors.is_some();
        let factors = if adjusts { Some(self.factor_table()?) } else { None };
        let of_symbol = |bars: &LoadedBars| {
            let run = runs.get(names.binary_search(&bars.symbol).ok()?)?;
            let events = factors.as_ref().map_or(&[][..], |factors| factors.of(&bars.symbol));
            let by: f64 = events.iter().map(|event| event.split.max(1.0 / event.split)).product();
            let of_column = |name: &String| {
                // Of times none are kept, and none are numbers of a program.
                let largest = &sums.column(name)?.largest;
                let unread = largest.get(run.chunk..run.chunk + run.chunks_before(bars.unread as u64))?;
                unread.iter().all(|value| value.is_finite()).then(|| by * unread.iter().copied().fold(0.0, f64::max))
            };
            columns.iter().map(of_column).collect::<Option<Vec<f64>>>()
        };
        Ok(bars.iter().map(of_symbol).collect())
    }

    /// Whether [`Dataset::largest_unread`] is known to know nothing of a group.
    pub fn lacks_largest(&self, group: u32) -> bool {
        let Some(file) = self.manifest.file(group) else { return true };
        let known = match self.is_in_objects() {
            // Where they have to be fetched, they are there when the bars are.
            true => self.tables.sums.of(group),
            false => self.sums_of(file, self.runs(group)).ok().flatten(),
        };
        match known {
            Some(sums) => sums.columns.iter().skip(1).any(|column| column.largest.len() < column.sums.len()),
            None => !self.is_in_objects(),
        }
    }
}
