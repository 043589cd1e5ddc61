//! The axis of values beside a panel: which values are labelled and how, and where the last values are, so that none covers another.

/// Labelled values of a panel whose height allows more.
const LABELS_MAX: f64 = 10.0;
/// Labelled values that every panel has at least, if they have room.
const LABELS_MIN: usize = 2;
/// Height that a labelled value usually gets.
const LABEL_ROOM_PIXELS: f64 = 45.0;
/// Steps between labelled values, as parts of a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 2.5, 5.0];
/// Finest step that is tried, as a share of the span.
const STEP_SHARE_MIN: f64 = 1.0 / 64.0;
/// Largest multiple of a step that differs from its neighbours as a number.
const MULTIPLE_MAX: f64 = 1e15;
/// Most decimals of a label.
const DECIMALS_MAX: usize = 12;
/// From which value on, and by which unit, labels are shortened.
const UNITS: [(f64, f64, &str); 3] = [(1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e5, 1e3, "k")];

/// The values that are labelled, and their labels: round, and at least two where they have room. Of those for which `is_covered` holds
/// only the lines of the grid are drawn: their label is empty. `pixels`: the panel's height; `apart`: the least distance of two labels.
pub(crate) fn labels(
    (least, most): (f64, f64),
    pixels: f64,
    apart: f64,
    is_covered: impl Fn(f64) -> bool,
) -> Vec<(f64, String)> {
    let size = most - least;
    if !(size > 0.0 && size.is_finite() && pixels > 0.0) {
        return Vec::new();
    }
    let rows = (pixels / LABEL_ROOM_PIXELS).clamp(LABELS_MIN as f64, LABELS_MAX);
    let mut best: Option<(usize, f64, Vec<f64>)> = None;
    for step in steps(size / rows, size * STEP_SHARE_MIN) {
        if best.is_some() && step / size * pixels < apart {
            break;
        }
        let values = multiples((least, most), step);
        let visible = values.iter().filter(|value| !is_covered(**value)).count();
        if best.as_ref().is_none_or(|(most, ..)| visible > *most) {
            best = Some((visible, step, values));
        }
        if visible >= LABELS_MIN {
            break;
        }
    }
    let Some((_, step, values)) = best else { return Vec::new() };
    let largest = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let label = |value: f64| if is_covered(value) { String::new() } else { label(value, step, largest) };
    values.iter().map(|value| (*value, label(*value))).collect()
}

/// Round steps, descending: from the smallest one that is at least `widest` to `finest`.
fn steps(widest: f64, finest: f64) -> impl Iterator<Item = f64> {
    let power = widest.log10().floor() as i32;
    let of_power = |power: i32| STEPS.into_iter().rev().map(move |part| part * 10f64.powi(power));
    let all: Vec<f64> = (power - 2..=power + 1).rev().flat_map(of_power).collect();
    let first = all.iter().rposition(|step| *step >= widest).unwrap_or(0);
    all.into_iter().skip(first).take_while(move |step| *step >= finest)
}

/// The multiples of a step within a span; none where neighbours would be equal.
fn multiples((least, most): (f64, f64), step: f64) -> Vec<f64> {
    let (first, last) = ((least / step).ceil(), (most / step).floor());
    if first.abs().max(last.abs()) > MULTIPLE_MAX {
        return Vec::new();
    }
    (first as i64..=last as i64).map(|number| number as f64 * step).collect()
}

/// A value with as many decimals as its step needs, in the unit that suits the largest of its axis.
fn label(value: f64, step: f64, largest: f64) -> String {
    let (size, unit) =
        UNITS.iter().find(|(from, ..)| largest >= *from).map_or((1.0, ""), |(_, size, unit)| (*size, *unit));
    if value == 0.0 {
        return "0".to_owned();
    }
    let is_whole = |decimals: &usize| {
        let scaled = step / size * 10f64.powi(*decimals as i32);
        scaled >= 0.5 && (scaled - scaled.round()).abs() < 1e-6
    };
    match (0..=DECIMALS_MAX).find(is_whole) {
        Some(decimals) => format!("{:.decimals$}{unit}", value / size),
        None => format!("{value:e}"),
    }
}

/// Where boxes of a height are put that want to be in the middle at `wanted`, within `range`: as near as they can be without covering
/// each other. Those for which there is no room are left out, the last ones first.
pub(crate) fn apart(wanted: &[i32], height: i32, range: (i32, i32)) -> Vec<Option<i32>> {
    let room = usize::try_from((range.1 - range.0) / height.max(1)).unwrap_or(0).max(1);
    let mut order: Vec<usize> = (0..wanted.len().min(room)).collect();
    order.sort_by_key(|at| wanted[*at]);
    // Without the heights of the boxes above them places only have to ascend: each run that does not gets its mean.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for (above, at) in order.iter().enumerate() {
        let mut run = (f64::from(wanted[*at]) - f64::from(height) * above as f64, 1);
        while let Some(before) = runs.pop_if(|before| before.0 > run.0) {
            let count = before.1 + run.1;
            run = ((before.0 * before.1 as f64 + run.0 * run.1 as f64) / count as f64, count);
        }
        runs.push(run);
    }
    let least = f64::from(range.0) + f64::from(height) / 2.0;
    let most = (f64::from(range.1) - f64::from(height) * (order.len() as f64 - 0.5)).max(least);
    let mut placed = vec![None; wanted.len()];
    let places = runs.into_iter().flat_map(|(place, count)| std::iter::repeat_n(place.clamp(least, most), count));
    for (above, (at, place)) in order.into_iter().zip(places).enumerate() {
        placed[at] = Some(place.round() as i32 + height * above as i32);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(span: (f64, f64), pixels: f64, last: &[f64]) -> Vec<String> {
        let covered = |value: f64| last.iter().any(|l| (value - l).abs() / (span.1 - span.0) * pixels < 15.0);
        labels(span, pixels, 17.0, covered).into_iter().map(|(_, label)| label).filter(|l| !l.is_empty()).collect()
    }

    #[test]
    fn labels_are_round_and_at_least_two() {
        assert_eq!(shown((184.0, 213.0), 410.0, &[]), ["185", "190", "195", "200", "205", "210"]);
        assert_eq!(shown((0.0, 13.2e6), 60.0, &[]), ["0", "10M"]);
        // The only label of two rows would be covered.
        assert_eq!(shown((-4.4, 3.7), 120.0, &[0.64]), ["-2.5", "2.5"]);
        assert_eq!(shown((0.0, 1.0), 0.0, &[]), [""; 0]);
        assert_eq!(shown((f64::MIN, f64::MAX), 100.0, &[]), [""; 0]);
    }

    #[test]
    fn a_label_has_the_decimals_of_its_step_and_a_unit() {
        assert_eq!(label(187.5, 2.5, 210.0), "187.5");
        assert_eq!(label(190.0, 10.0, 210.0), "190");
        assert_eq!(label(5e6, 5e6, 1e7), "5M");
        assert_eq!(label(7.5e6, 2.5e6, 1e7), "7.5M");
        assert_eq!(label(0.0, 2.5e6, 1e7), "0");
        assert_eq!(label(-0.25, 0.25, 1.0), "-0.25");
        assert_eq!(label(2e-15, 1e-15, 5e-15), "2e-15");
    }

    #[test]
    fn last_values_move_apart_and_stay_inside() {
        assert_eq!(apart(&[100, 50], 15, (0, 200)), [Some(100), Some(50)]);
        assert_eq!(apart(&[100, 102, 101], 15, (0, 200)), [Some(86), Some(116), Some(101)]);
        assert_eq!(apart(&[100, 110, 111, 40], 15, (0, 200)), [Some(92), Some(107), Some(122), Some(40)]);
        assert_eq!(apart(&[3, 4], 15, (0, 200)), [Some(8), Some(23)]);
        assert_eq!(apart(&[199, 199], 15, (0, 200)), [Some(178), Some(193)]);
        assert_eq!(apart(&[5, 6, 7], 15, (0, 32)), [Some(8), Some(23), None], "there is room for two");
    }

    proptest! {
        #[test]
        fn no_last_value_covers_another_or_leaves_its_panel(wanted in prop::collection::vec(-50i32..450, 0..40), height in 8i32..20) {
            let placed = apart(&wanted, height, (0, 400));
            let mut shown: Vec<i32> = placed.iter().flatten().copied().collect();
            prop_assert_eq!(shown.len(), wanted.len().min((400 / height) as usize));
            shown.sort_unstable();
            prop_assert!(shown.windows(2).all(|pair| pair[1] - pair[0] >= height), "{:?}", shown);
            prop_assert!(shown.iter().all(|y| *y >= height / 2 - 1 && *y <= 401 - height / 2), "{:?}", shown);
        }

        #[test]
        fn every_panel_has_two_labels_beside_a_last_value(least in -1e9f64..1e9, size in 1e-6f64..1e9, pixels in 120f64..500.0, at in 0f64..1.0) {
            let span = (least, least + size);
            prop_assume!(span.1 - span.0 > span.1.abs().max(span.0.abs()) * 1e-9);
            let labels = shown(span, pixels, &[least + size * at]);
            prop_assert!(labels.len() >= 2, "{:?}", labels);
            let mut distinct = labels.clone();
            distinct.dedup();
            prop_assert_eq!(labels.len(), distinct.len());
        }
    }
}
