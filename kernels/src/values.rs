//! Values of several symbols in one piece of memory.

use std::ops::Range;

/// Values of symbols: `[symbol][output][bar]`, one after the other. Where the last bars alone are wanted, they are rows, one a symbol.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    /// Per output: which series of a symbol it is; `None` where it was left out.
    places: Vec<Option<usize>>,
    /// Number of series of each symbol.
    stored: usize,
    /// Where the values of each symbol begin, and where those of the last one end.
    begins: Vec<usize>,
    values: Vec<f64>,
}

impl Values {
    /// So many outputs of symbols with so many bars each, all NaN; those for which `is_left_out` have no bars.
    pub(crate) fn new(outputs: usize, is_left_out: impl Fn(usize) -> bool, bars: impl Iterator<Item = usize>) -> Self {
        let mut stored = 0;
        let mut place = |output: usize| {
            let at = stored;
            stored += usize::from(!is_left_out(output));
            (stored > at).then_some(at)
        };
        let places = (0..outputs).map(&mut place).collect();
        let mut end = 0;
        let ends = bars.map(|bars| {
            end += bars * stored;
            end
        });
        let begins: Vec<usize> = std::iter::once(0).chain(ends).collect();
        let values = vec![f64::NAN; begins.last().copied().unwrap_or(0)];
        Self { places, stored, begins, values }
    }

    /// Number of symbols.
    pub fn symbols(&self) -> usize {
        self.begins.len().saturating_sub(1)
    }

    /// Number of outputs, left out or not.
    pub fn outputs(&self) -> usize {
        self.places.len()
    }

    /// An output of a symbol, bar by bar: empty if it was left out, `None` if there is no such symbol or output.
    pub fn get(&self, symbol: usize, output: usize) -> Option<&[f64]> {
        self.values.get(self.range(symbol, output)?)
    }

    /// An output of a symbol, bar by bar; empty if there is none.
    pub fn series(&self, symbol: usize, output: usize) -> &[f64] {
        self.get(symbol, output).unwrap_or_default()
    }

    pub(crate) fn series_mut(&mut self, symbol: usize, output: usize) -> &mut [f64] {
        self.range(symbol, output).and_then(|range| self.values.get_mut(range)).unwrap_or_default()
    }

    /// Takes some of the outputs, which are left out here from now on: none of them is in memory twice afterwards.
    pub(crate) fn take_out(&mut self, outputs: &Range<usize>) -> Self {
        let bars =
            |symbol: usize| (self.begins[symbol + 1] - self.begins[symbol]).checked_div(self.stored).unwrap_or(0);
        let all_bars = (0..self.symbols()).map(bars);
        let is_left_out = |output: usize| self.places.get(outputs.start + output).is_none_or(Option::is_none);
        let mut taken = Self::new(outputs.len(), is_left_out, all_bars.clone());
        for symbol in 0..self.symbols() {
            for (at, output) in outputs.clone().enumerate() {
                taken.series_mut(symbol, at).copy_from_slice(self.series(symbol, output));
            }
        }
        let mut places = self.places.clone();
        places.get_mut(outputs.clone()).unwrap_or_default().fill(None);
        let mut stored = 0;
        for place in places.iter_mut().flatten() {
            *place = stored;
            stored += 1;
        }
        // The rest moves to the front.
        let (mut end, mut begins) = (0, vec![0]);
        for symbol in 0..self.symbols() {
            for output in (0..places.len()).filter(|output| places[*output].is_some()) {
                let range = self.range(symbol, output).unwrap_or_default();
                let length = range.len();
                self.values.copy_within(range, end);
                end += length;
            }
            begins.push(end);
        }
        self.values.truncate(end);
        self.values.shrink_to_fit();
        (self.places, self.stored, self.begins) = (places, stored, begins);
        taken
    }

    /// Stores a value; nothing where there is no such output or bar.
    pub(crate) fn put(&mut self, symbol: usize, output: usize, bar: usize, value: f64) {
        if let Some(slot) = self.series_mut(symbol, output).get_mut(bar) {
            *slot = value;
        }
    }

    fn range(&self, symbol: usize, output: usize) -> Option<Range<usize>> {
        let (begin, end) = (*self.begins.get(symbol)?, *self.begins.get(symbol + 1)?);
        let Some(at) = *self.places.get(output)? else { return Some(begin..begin) };
        let bars = (end - begin) / self.stored;
        Some(begin + at * bars..begin + (at + 1) * bars)
    }

    /// All values, symbol by symbol, output by output.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        let all = (0..self.symbols()).flat_map(|symbol| (0..self.outputs()).map(move |output| (symbol, output)));
        all.flat_map(|(symbol, output)| self.series(symbol, output)).copied()
    }

    /// The values as lists of lists: `[symbol][output][bar]`.
    pub fn nested(&self) -> Vec<Vec<Vec<f64>>> {
        let of_symbol = |symbol| (0..self.outputs()).map(|output| self.series(symbol, output).to_vec()).collect();
        (0..self.symbols()).map(of_symbol).collect()
    }
}

impl From<Vec<Vec<f64>>> for Values {
    /// The outputs of one symbol, all of one length.
    fn from(outputs: Vec<Vec<f64>>) -> Self {
        let bars = outputs.first().map_or(0, Vec::len);
        let mut values = Self::new(outputs.len(), |_| false, std::iter::once(bars));
        for (output, series) in outputs.iter().enumerate() {
            values.series_mut(0, output).iter_mut().zip(series).for_each(|(to, value)| *to = *value);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_have_rows_of_their_own_length() {
        let mut values = Values::new(3, |output| output == 1, [2, 0, 1].into_iter());
        for (symbol, output, bar) in [(0, 0, 0), (0, 0, 1), (0, 2, 0), (0, 2, 1), (2, 0, 0), (2, 2, 0)] {
            values.put(symbol, output, bar, (100 * symbol + 10 * output + bar) as f64);
        }
        // None of these is there.
        for (symbol, output, bar) in [(0, 1, 0), (1, 0, 0), (2, 2, 1), (3, 0, 0), (0, 3, 0)] {
            values.put(symbol, output, bar, -1.0);
        }
        let want =
            [[vec![0.0, 1.0], vec![], vec![20.0, 21.0]], [vec![], vec![], vec![]], [vec![200.0], vec![], vec![220.0]]];
        assert_eq!(values.nested(), want);
        assert_eq!(values.iter().collect::<Vec<_>>(), [0.0, 1.0, 20.0, 21.0, 200.0, 220.0]);
        let none = Values::new(2, |_| true, [5].into_iter());
        assert_eq!((none.series(0, 1), none.symbols(), none.outputs()), (&[][..], 1, 2));
        assert_eq!((none.get(0, 1), none.get(0, 2), none.get(1, 0)), (Some(&[][..]), None, None));
        assert_eq!(Values::default().symbols(), 0);
        let mut one = Values::from(vec![vec![1.0, 2.0], vec![3.0, 4.0]]);
        assert_eq!(one.take_out(&(0..1)).nested(), [[vec![1.0, 2.0]]]);
        assert_eq!(one.nested(), [[vec![], vec![3.0, 4.0]]]);
    }

    #[test]
    fn outputs_that_are_taken_out_are_not_in_memory_twice() {
        let value = |symbol: usize, output: usize, bar: usize| (100 * symbol + 10 * output + bar) as f64;
        let lengths = [3, 0, 2, 1];
        for left_out in [vec![], vec![1], vec![2, 4], vec![0, 1, 2, 3, 4]] {
            for outputs in [0..0, 0..2, 1..4, 3..5, 0..5] {
                let mut values = Values::new(5, |output| left_out.contains(&output), lengths.into_iter());
                for (symbol, bars) in lengths.into_iter().enumerate() {
                    for (output, bar) in (0..5).flat_map(|output| (0..bars).map(move |bar| (output, bar))) {
                        values.put(symbol, output, bar, value(symbol, output, bar));
                    }
                }
                let (all, before) = (values.clone(), values.values.len());
                let taken = values.take_out(&outputs);
                assert_eq!((values.symbols(), values.outputs()), (4, 5));
                assert_eq!((taken.symbols(), taken.outputs()), (4, outputs.len()));
                assert_eq!(values.values.len() + taken.values.len(), before);
                for (symbol, output) in (0..4).flat_map(|symbol| (0..5).map(move |output| (symbol, output))) {
                    let is_taken = outputs.contains(&output);
                    let (there, gone) = if is_taken {
                        (taken.series(symbol, output - outputs.start), values.series(symbol, output))
                    } else {
                        (values.series(symbol, output), &[][..])
                    };
                    assert_eq!((there, gone), (all.series(symbol, output), &[][..]), "{symbol} {output} {outputs:?}");
                }
            }
        }
    }
}
