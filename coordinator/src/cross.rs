//! Cross-sections: reduces the values of all symbols at one time to the values that each of them reads.
//!
//! Pure. Values come in the order of the dataset's symbols, so sums are added in that order, whichever worker computed
//! them.

use std::collections::BTreeMap;

use trawl_plan::frame::CrossFunction;

/// Reduces one population: `values` in the order of symbols, all finite. Returns one value per symbol, or a single
/// value if the function is a market series.
pub fn reduce(function: CrossFunction, values: &[f64]) -> Vec<f64> {
    let n = values.len() as f64;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    // Both signs of zero have the same rank.
    let below = |v: f64| sorted.partition_point(|x| *x < v);
    let up_to = |v: f64| sorted.partition_point(|x| *x <= v);
    match function {
        CrossFunction::Rank => values.iter().map(|&v| (values.len() - up_to(v) + 1) as f64).collect(),
        CrossFunction::Percent => {
            // The average rank of equal values at ranks below+1 ..= up_to is (below + 1 + up_to)/2.
            values.iter().map(|&v| ((below(v) + up_to(v) + 1) as f64 / 2.0 - 0.5) / n).collect()
        }
        CrossFunction::Demean => {
            let mean = mean(values, &sorted);
            values.iter().map(|v| v - mean).collect()
        }
        CrossFunction::Score => {
            let mean = mean(values, &sorted);
            let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
            let deviation = variance.sqrt();
            values.iter().map(|v| if deviation > 0.0 { (v - mean) / deviation } else { f64::NAN }).collect()
        }
        CrossFunction::Quantile(q) => vec![quantile(&sorted, q.value())],
        CrossFunction::Breadth => vec![values.iter().filter(|v| **v == 1.0).count() as f64 / n],
    }
}

/// The mean; if all values are equal, exactly that value.
fn mean(values: &[f64], sorted: &[f64]) -> f64 {
    match (sorted.first(), sorted.last()) {
        (Some(first), Some(last)) if first == last => *first,
        _ => values.iter().sum::<f64>() / values.len() as f64,
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q * last as f64;
    let low = (place.floor() as usize).min(last);
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
}

/// Reduces the values of all symbols at one time: NaN is not a member. Returns the values per symbol and per group. A
/// symbol without a group belongs to none.
pub fn reduce_groups<'g>(
    function: CrossFunction,
    values: &[f64],
    group: impl Fn(usize) -> Option<&'g str>,
) -> (Vec<f64>, BTreeMap<&'g str, f64>) {
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, value) in values.iter().enumerate() {
        if let (true, Some(group)) = (value.is_finite(), group(i)) {
            members.entry(group).or_default().push(i);
        }
    }
    let (mut each, mut all) = (vec![f64::NAN; values.len()], BTreeMap::new());
    for (name, members) in members {
        let population: Vec<f64> = members.iter().map(|&i| values[i]).collect();
        let reduced = reduce(function, &population);
        if function.is_market_series() {
            all.insert(name, reduced[0]);
        } else {
            members.iter().zip(reduced).for_each(|(&i, value)| each[i] = value);
        }
    }
    (each, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_the_smallest_rank_and_the_average_percentile() {
        let values = [5.0, 1.0, 5.0, 0.0, -0.0];
        assert_eq!(reduce(CrossFunction::Rank, &values), [1.0, 3.0, 1.0, 4.0, 4.0]);
        assert_eq!(reduce(CrossFunction::Percent, &values), [0.8, 0.5, 0.8, 0.2, 0.2]);
        assert_eq!(reduce(CrossFunction::Percent, &[7.0]), [0.5]);
    }

    #[test]
    fn a_population_without_spread_has_no_score() {
        assert!(reduce(CrossFunction::Score, &[0.1, 0.1, 0.1]).iter().all(|z| z.is_nan()));
        assert_eq!(reduce(CrossFunction::Demean, &[0.1, 0.1, 0.1]), [0.0; 3]);
        assert_eq!(reduce(CrossFunction::Score, &[1.0, 3.0]), [-1.0, 1.0]);
    }

    #[test]
    fn quantiles_lie_between_values_and_breadth_counts_the_true() {
        let quantile = |q: f64| reduce(CrossFunction::Quantile(q.into()), &[4.0, 1.0, 2.0])[0];
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(quantile), [1.0, 1.5, 2.0, 4.0]);
        assert_eq!(reduce(CrossFunction::Breadth, &[1.0, 0.0, 1.0, 1.0]), [0.75]);
    }

    #[test]
    fn groups_are_apart_and_symbols_without_one_read_nothing() {
        let values = [1.0, 2.0, f64::NAN, 3.0, 4.0];
        let group = |i: usize| [Some("a"), Some("b"), Some("a"), Some("a"), None][i];
        let (each, all) = reduce_groups(CrossFunction::Rank, &values, group);
        assert_eq!(each[..2], [2.0, 1.0]);
        assert_eq!(each[3], 1.0);
        assert!(each[2].is_nan() && each[4].is_nan() && all.is_empty());
        let (_, all) = reduce_groups(CrossFunction::Quantile(1.0.into()), &values, group);
        assert_eq!(all, BTreeMap::from([("a", 3.0), ("b", 2.0)]));
    }
}
