//! Windows of features: the last bars of the dataset up to a row's own, as tensors `[sample, window, feature]`.

use std::collections::VecDeque;

use super::FeatureChunk;

/// The last times that were seen.
#[derive(Debug)]
pub struct Windows {
    length: usize,
    /// One for each of the last times, the newest last: `[feature][symbol]`, NaN for NA.
    seen: VecDeque<Vec<Vec<f64>>>,
}

impl Windows {
    /// Of `length` bars each.
    pub fn new(length: usize) -> Self {
        Self { length: length.max(1), seen: VecDeque::new() }
    }

    /// Takes the times of a chunk, the first one of which follows the last one of the chunk before, and gives each sample, by time
    /// and symbol, to `take`: its cell, then `window x feature` values, the newest bar last. Bars before the first one of the
    /// dataset are NaN.
    ///
    /// # Errors
    /// That of `take`.
    pub fn push<E>(
        &mut self,
        chunk: &FeatureChunk,
        mut take: impl FnMut(usize, &[f64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let features = chunk.features.len();
        let mut sample = vec![f64::NAN; self.length * features];
        for time in 0..chunk.times.len() {
            let cells = chunk.cells(time);
            if self.seen.len() == self.length {
                self.seen.pop_front();
            }
            self.seen.push_back(chunk.features.iter().map(|column| column[cells.clone()].to_vec()).collect());
            if !chunk.own.contains(&time) {
                continue;
            }
            for (symbol, cell) in cells.enumerate().filter(|(_, cell)| chunk.is_row(*cell)) {
                let missing = (self.length - self.seen.len()) * features;
                sample[..missing].fill(f64::NAN);
                let values = self.seen.iter().flat_map(|columns| columns.iter().map(|column| column[symbol]));
                sample[missing..].iter_mut().zip(values).for_each(|(place, value)| *place = value);
                take(cell, &sample)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trawl_wire::Status;

    /// Times from `first` on, of one symbol whose feature is the number of the time.
    fn chunk(times: std::ops::Range<i64>, own: std::ops::Range<usize>) -> FeatureChunk {
        let count = times.end - times.start;
        FeatureChunk {
            times: times.clone().collect(),
            symbols: Arc::new(vec!["A".to_owned()]),
            status: vec![Status::NotMatched; count as usize],
            features: vec![times.map(|time| time as f64).collect()],
            first: 0,
            forward: Vec::new(),
            uses: Vec::new(),
            own,
            matches_only: false,
        }
    }

    #[test]
    fn a_window_ends_at_its_own_bar_and_goes_on_over_chunks() {
        let mut windows = Windows::new(3);
        let mut found: Vec<Vec<f64>> = Vec::new();
        for chunk in [chunk(0..2, 1..2), chunk(2..5, 0..3)] {
            let pushed: Result<(), ()> = windows.push(&chunk, |_, sample| {
                found.push(sample.to_vec());
                Ok(())
            });
            assert_eq!(pushed, Ok(()));
        }
        assert!(found[0][0].is_nan());
        assert_eq!(found[0][1..], [0.0, 1.0]);
        assert_eq!(found[1..], [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]);
    }
}
