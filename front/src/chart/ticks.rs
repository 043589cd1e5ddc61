//! Which bars are labelled with a date, and how it is written.

use trawl_market::format_time;

/// Most labels that fit beside each other.
pub(crate) const DATES_MAX: usize = 12;
const MINUTE_MICROS: i64 = 60_000_000;
const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;
const DAY_MICROS: i64 = 24 * HOUR_MICROS;
/// The epoch was a Thursday; weeks begin on Monday.
const MONDAY_DAYS: i64 = 3;

/// A division of time: the number of the period that a time lies in, and which part of the time's text labels it.
type Unit = (fn(i64) -> i64, std::ops::Range<usize>);

/// Months since the year 0.
fn month(time: i64) -> i64 {
    let text = format_time(time);
    let part = |range: std::ops::Range<usize>| text.get(range).and_then(|t| t.parse::<i64>().ok()).unwrap_or(0);
    part(0..4) * 12 + part(5..7) - 1
}

/// From the finest to the coarsest.
const UNITS: [Unit; 11] = [
    (|t| t.div_euclid(15 * MINUTE_MICROS), 5..16),
    (|t| t.div_euclid(HOUR_MICROS), 5..16),
    (|t| t.div_euclid(4 * HOUR_MICROS), 5..16),
    (|t| t.div_euclid(DAY_MICROS), 0..10),
    (|t| (t.div_euclid(DAY_MICROS) + MONDAY_DAYS).div_euclid(7), 0..10),
    (month, 0..7),
    (|t| month(t) / 3, 0..7),
    (|t| month(t) / 6, 0..7),
    (|t| month(t) / 12, 0..4),
    (|t| month(t) / 60, 0..4),
    (|t| month(t) / 120, 0..4),
];

/// The bars at which a period begins, by the finest division with at most `most` of them, and their labels. Times are those of a
/// clock on the wall.
pub(crate) fn of(times: &[i64], most: usize) -> Vec<(usize, String)> {
    let begins = |number: fn(i64) -> i64| {
        let numbers: Vec<i64> = times.iter().map(|t| number(*t)).collect();
        let turns = numbers.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]);
        turns.map(|(i, _)| i + 1).collect::<Vec<usize>>()
    };
    let chosen = UNITS.iter().map(|(number, part)| (begins(*number), part)).find(|(bars, _)| bars.len() <= most);
    let Some((bars, part)) = chosen else { return Vec::new() };
    let label = |bar: usize| {
        let text = times.get(bar).map(|t| format_time(*t)).unwrap_or_default();
        (bar, text.get(part.clone()).unwrap_or(&text).replace('T', " "))
    };
    bars.into_iter().map(label).collect()
}

/// Those of the labels that do not overlap one before them, and are not cut off at the ends. `width`: that of a label, as a share of all
/// bars.
pub(crate) fn apart(labels: Vec<(usize, String)>, bars: usize, width: impl Fn(&str) -> f64) -> Vec<(usize, String)> {
    let mut end = 0.0;
    let fits = |(bar, label): &(usize, String)| {
        let (middle, half) = ((*bar as f64 + 0.5) / bars.max(1) as f64, width(label) / 2.0);
        let fits = middle - half >= end;
        if fits {
            end = middle + half;
        }
        fits
    };
    labels.into_iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(times: &[i64]) -> Vec<String> {
        of(times, DATES_MAX).into_iter().map(|(bar, label)| format!("{bar} {label}")).collect()
    }

    #[test]
    fn dates_are_where_a_period_begins() {
        let days: Vec<i64> = (0..120).map(|d| d * DAY_MICROS).collect();
        assert_eq!(labels(&days), ["31 1970-02", "59 1970-03", "90 1970-04"]);
        let week: Vec<i64> = (0..6).map(|d| d * DAY_MICROS).collect();
        assert_eq!(labels(&week).len(), 5);
        let years: Vec<i64> = (0..40).map(|y| y * 366 * DAY_MICROS).collect();
        assert!(labels(&years).contains(&"10 1980".to_owned()), "{:?}", labels(&years));
        let minutes: Vec<i64> = (0..120).map(|m| m * MINUTE_MICROS).collect();
        assert_eq!(labels(&minutes)[0], "15 01-01 00:15");
    }

    #[test]
    fn labels_that_would_overlap_are_left_out() {
        let at = |bars: &[usize]| bars.iter().map(|bar| (*bar, "2024-01".to_owned())).collect::<Vec<_>>();
        let kept = |bars: &[usize]| apart(at(bars), 100, |_| 0.1).into_iter().map(|(bar, _)| bar).collect::<Vec<_>>();
        assert_eq!(kept(&[2, 10, 15, 21, 30, 32]), [10, 21, 32]);
        assert_eq!(kept(&[20, 50, 99]), [20, 50, 99]);
        assert!(apart(at(&[0]), 0, |_| 0.1).len() < 2);
    }

    #[test]
    fn any_time_has_labels_or_none() {
        for times in [vec![], vec![i64::MIN, i64::MAX], vec![0, 0]] {
            assert!(of(&times, DATES_MAX).len() <= DATES_MAX);
        }
    }
}
