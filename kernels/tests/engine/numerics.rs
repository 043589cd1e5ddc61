//! Guarantees of window arithmetic, on data for which plain sliding sums are wrong.

use proptest::prelude::*;
use trawl_kernels::{NoCancel, SymbolInput, evaluate_all, evaluate_last};
use trawl_plan::{Plan, Program, Schema, compile_expressions};

fn plan(items: &[String]) -> Plan {
    let columns = ["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec();
    compile_expressions(items, "test", &Schema::of_columns(columns)).expect("legal")
}

/// Every column the same.
fn input<'a>(program: &Program, close: &'a [f64]) -> SymbolInput<'a> {
    SymbolInput { columns: vec![close; program.inputs.len()], visible: close.len() }
}

fn last(items: &[String], market: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let plan = plan(items);
    let inputs: Vec<SymbolInput<'_>> = market.iter().map(|close| input(plan.program(), close)).collect();
    evaluate_last(plan.program(), &inputs, &NoCancel).expect("not cancelled")
}

fn whole(items: &[String], close: &[f64]) -> Vec<Vec<f64>> {
    let plan = plan(items);
    evaluate_all(plan.program(), &input(plan.program(), close), &NoCancel).expect("not cancelled")
}

/// Prices in cents: all up to 2.00, then ever fewer up to 5000.00.
fn prices() -> Vec<u64> {
    (1..=200).chain((1..600).map(|i| 200 + i * i * 7 % 499_800)).collect()
}

#[test]
fn a_flat_window_has_its_value_for_a_mean_whatever_came_before() {
    for p in 2..300usize {
        let items: Vec<String> = ["sma(close,P)", "wma(close,P)", "stddev(close,P)", "cci(P)", "bbands(close,P).upper"]
            .iter()
            .map(|item| item.replace('P', &p.to_string()))
            .collect();
        let stretch = |cents: u64| {
            let before = (0..37 + cents % 5).map(|t| ((cents + t * 7919) % 100_003) as f64 / 100.0);
            before.chain(std::iter::repeat_n(cents as f64 / 100.0, 2 * p)).collect::<Vec<f64>>()
        };
        let market: Vec<Vec<f64>> = prices().into_iter().map(stretch).collect();
        for (close, got) in market.iter().zip(last(&items, &market)) {
            let price = *close.last().expect("a bar");
            assert_eq!(got, [price, price, 0.0, 0.0, price], "{p} bars of {price}");
        }
    }
}

#[test]
fn a_flat_history_has_no_convergence() {
    let items = ["ema(close,9)", "macd(close,12,26,9).line", "macd(close,12,26,9).signal", "macd(close,12,26,9).hist"]
        .map(str::to_owned);
    let market: Vec<Vec<f64>> = prices().into_iter().map(|cents| vec![cents as f64 / 100.0; 80]).collect();
    for (close, got) in market.iter().zip(last(&items, &market)) {
        assert_eq!(got, [close[0], 0.0, 0.0, 0.0]);
    }
}

#[test]
fn a_value_that_left_the_window_leaves_nothing_behind() {
    for p in [2usize, 3, 4, 5, 20, 63, 64, 65, 250] {
        let items: Vec<String> = ["sma", "wma", "stddev"].iter().map(|f| format!("{f}(close, {p})")).collect();
        let close: Vec<f64> = (0..700).map(|t| 50.0 + f64::from(t * 7919 % 1000) / 100.0).collect();
        let mut spiked = close.clone();
        spiked[300] *= 1e22;
        let (plain, spiked) = (whole(&items, &close), whole(&items, &spiked));
        for ((item, a), b) in items.iter().zip(&plain).zip(&spiked) {
            assert_eq!(a[300 + p..], b[300 + p..], "{item}");
        }
    }
}

#[test]
fn a_score_is_na_only_where_nothing_varies() {
    let tiny: Vec<f64> = (0..60).map(|t| 100.0 + f64::from(t % 3) * 1e-9).collect();
    // Deviations of 8e-10: no threshold treats them as 0.
    let got = whole(&["zscore(close, 6)".to_owned()], &tiny);
    assert!(got[0][5..].iter().all(|z| z.is_finite() && z.abs() > 1e-3 || *z == 0.0), "{:?}", &got[0][5..9]);
    assert!((got[0][6] - -1.224_744_871).abs() < 1e-3, "{}", got[0][6]);
    let flat = whole(&["zscore(close, 6)".to_owned()], &[100.1; 60]);
    assert!(flat[0].iter().all(|z| z.is_nan()));
}

#[test]
fn equal_windows_of_whole_numbers_give_equal_bits_wherever_they_lie() {
    // Each with the largest size of the values: squares of whole numbers have to be whole numbers too.
    let functions: &[(&str, u64)] = &[
        ("sma(close,P)", 1 << 36),
        ("wma(close,P)", 1 << 28),
        ("sum(close,P)", 1 << 36),
        ("avgdev(close,P)", 1 << 30),
        ("stddev(close,P)", 9_000),
        ("var(close,P,1)", 9_000),
        ("zscore(close,P)", 9_000),
        ("bbands(close,P,2).upper", 9_000),
        ("linearreg(close,P)", 1 << 24),
        ("linearreg_slope(close,P)", 1 << 24),
        ("linearreg_angle(close,P)", 1 << 24),
        ("linearreg_intercept(close,P)", 1 << 24),
        ("tsf(close,P)", 1 << 24),
        ("correl(close,abs(close - 40),P)", 9_000),
    ];
    let mut state = 11u64;
    let mut random = |size: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % size
    };
    for p in [2u64, 3, 4, 5, 7, 9, 20, 49, 63, 100, 252] {
        for (function, most) in functions {
            for size in [3, 500, *most] {
                // Of both signs where there is room.
                let low = if size == *most { 0 } else { size / 2 };
                let window: Vec<f64> = (0..p).map(|_| random(size) as f64 - low as f64).collect();
                let (mut close, mut ends) = (Vec::new(), Vec::new());
                for lead in 0..p.min(40) {
                    close.extend((0..p + lead % p).map(|_| random(size) as f64));
                    close.extend(&window);
                    ends.push(close.len() - 1);
                }
                let got = whole(&[function.replace('P', &p.to_string())], &close);
                let bits: Vec<u64> = ends.iter().map(|end| got[0][*end].to_bits()).collect();
                assert!(
                    bits.iter().all(|b| *b == bits[0]),
                    "{function} of {p} below {size}: {:?}",
                    ends.iter().map(|e| got[0][*e]).collect::<Vec<_>>()
                );
                if function.starts_with("sma") {
                    let mean = window.iter().sum::<f64>() / p as f64;
                    assert_eq!(got[0][ends[0]], mean, "rounded once: {p} below {size}");
                }
            }
        }
    }
}

/// Walks of all sorts: on a grid, near a large price, with spikes; tiny and huge as a whole.
fn walks() -> Vec<Vec<f64>> {
    let mut walks = Vec::new();
    for seed in 1..40u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut x = 5_000i64;
        let mut walk = Vec::new();
        for _ in 0..300 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            x += (state >> 11) as i64 % 201 - 100;
            let spike = if seed % 3 == 0 && state % 50 == 0 { 37.0 } else { 1.0 };
            walk.push(x as f64 * spike / 100.0);
        }
        // The product of two variances of the last but one overflows, of the last one underflows.
        let scales = [(1.0, 0.0), (1e-2, 1e6), (1e-6, 0.0), (3.7e80, 0.0), (4.1e-86, 0.0)];
        let (scale, level) = scales[seed as usize % scales.len()];
        walks.push(walk.into_iter().map(|x| x * scale + level).collect());
    }
    walks
}

#[test]
fn a_series_correlates_with_itself_exactly() {
    let items: Vec<String> = [3, 5, 30, 100]
        .iter()
        .flat_map(|p| {
            [
                format!("correl(close, close, {p})"),
                format!("correl(close, -close, {p})"),
                format!("correl(close, 4*close, {p})"),
            ]
        })
        .collect();
    for close in walks() {
        for (item, series) in items.iter().zip(whole(&items, &close)) {
            let want = if item.contains('-') { -1.0 } else { 1.0 };
            let wrong = series.iter().position(|x| *x != want && *x != 0.0 && !x.is_nan());
            assert_eq!(wrong, None, "{item}: {:?}", wrong.map(|t| series[t]));
            assert!(series[100..].iter().all(|x| *x == want), "{item}");
        }
    }
}

#[test]
fn a_correlation_never_exceeds_1() {
    let items: Vec<String> = [2, 3, 5, 30]
        .iter()
        .flat_map(|p| [format!("correl(close, 3*close, {p})"), format!("correl(close, 7.1 - close/3, {p})")])
        .collect();
    for close in walks() {
        for (item, series) in items.iter().zip(whole(&items, &close)) {
            assert!(series[100..].iter().all(|x| x.abs() <= 1.0), "{item}");
        }
    }
    // Where a variance is a good number its correlation with a multiple is 1 to the last digits.
    let got = whole(&items, &walks()[4]);
    assert!(got[6][100..].iter().all(|x| (x - 1.0).abs() < 1e-14), "{:?}", &got[6][100..110]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// On a grid of cents the sums are known exactly, as integers.
    #[test]
    fn means_of_prices_are_off_by_a_rounding(
        start in 100i64..1_000_000,
        steps in prop::collection::vec(-100i64..101, 400),
        p in 2usize..260,
    ) {
        let mut cents = vec![start];
        for step in steps {
            cents.push((cents[cents.len() - 1] + step).max(1));
        }
        let close: Vec<f64> = cents.iter().map(|c| *c as f64 / 100.0).collect();
        let items: Vec<String> = ["sma", "wma", "stddev"].iter().map(|f| format!("{f}(close, {p})")).collect();
        let got = whole(&items, &close);
        for t in p - 1..close.len() {
            let window = &cents[t + 1 - p..=t];
            let n = p as i128;
            let sum: i128 = window.iter().map(|c| i128::from(*c)).sum();
            let weighted: i128 = window.iter().zip(1..).map(|(c, k)| i128::from(*c) * k).sum();
            let squares: i128 = window.iter().map(|c| (n * i128::from(*c) - sum).pow(2)).sum();
            let exact = [
                sum as f64 / (100 * n) as f64,
                weighted as f64 / (50 * n * (n + 1)) as f64,
                (squares as f64 / (n as f64).powi(3)).sqrt() / 100.0,
            ];
            // A price is itself rounded to a cent's nearest double, each by up to half a unit.
            for ((item, got), want) in items.iter().zip(&got).zip(exact).take(2) {
                prop_assert!((got[t] - want).abs() <= 4.0 * f64::EPSILON * want, "{item} at {t}: {} {want}", got[t]);
            }
            let noise = 4.0 * f64::EPSILON * close[t];
            prop_assert!((got[2][t] - exact[2]).abs() <= 1e-13 * exact[2] + noise, "{} {}", got[2][t], exact[2]);
        }
    }
}
