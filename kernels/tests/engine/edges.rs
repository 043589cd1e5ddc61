//! Where a kernel's memory and its first bar are just enough: each step alone, so that another step's longer look-back
//! cannot hide that it began too late; histories shorter than every window; tables of several kinds in one launch.

use std::collections::BTreeMap;

use trawl_kernels::Precision;
use trawl_kernels::cuda::{Constants, Limits, Sequence};
use trawl_plan::Program;

use crate::emulator::{Emulator, Order};
use crate::fused::{check, market, program};

/// Steps of finite windows, one an item, over P bars.
const WINDOWS: &[&str] = &[
    "sma(close,P)",
    "wma(close,P)",
    "stddev(close,P)",
    "donchian(P).upper",
    "donchian(P).lower",
    "aroon(P).up",
    "linearreg(close,P)",
    "correl(close,open,P)",
    "beta(close,open,P)",
    "cci(P)",
    "percentile(close,P,0.5)",
    "close[P]",
    // Windows at every bar, which begin blocks where bars run side by side.
    "ema(sma(close,P),3)",
    "ema(wma(close,P),3)",
    "ema(stddev(close,P),3)",
    "ema(donchian(P).upper,3)",
];

/// Windows whose values are wanted at the last bars only.
const TAILS: &[&str] = &[
    // Deviations from a mean over fewer values than are read together, and over some more than that many times them.
    "cci(3)",
    "cci(7)",
    "cci(9)",
    "cci(14)",
    "cci(20)",
    "cci(8) - close[11]",
    "cci(11) + rsi(close,7)",
    "sma(avgdev(close,9),6)",
    "mfi(14)",
    "stoch(9,3,3).d",
    "sma(close,6) - wma(close,9) + stddev(close,8)",
    "donchian(5).middle - close[3]",
    "kama(close,10) - donchian(20).lower",
    "rsi(close,9) - willr(14)",
    "cmo(volume - volume, 9)",
    "sma(volume - volume[1],6) + rsi(close - close,7)",
];

fn plans(period: usize) -> Vec<(String, Program)> {
    let item = |item: &&str| item.replace('P', &period.to_string());
    WINDOWS.iter().map(item).map(|item| (item.clone(), program(&[item]))).collect()
}

fn held(plans: &[(String, Program)], bars: &[Vec<Vec<f64>>]) {
    Precision::ALL.into_iter().for_each(|precision| held_in(precision, plans, bars));
}

fn held_in(precision: Precision, plans: &[(String, Program)], bars: &[Vec<Vec<f64>>]) {
    let fused = |program: &Program| Sequence::fused_in(program, Constants::None, precision).expect("every primitive");
    let kernels: BTreeMap<String, String> = plans.iter().flat_map(|(_, program)| fused(program).kernels()).collect();
    let mut device = Emulator::new(&kernels);
    for (i, (item, program)) in plans.iter().enumerate() {
        device.order = [Order::Random, Order::Reverse, Order::Forward][i % 3];
        let comparison = check(&device, program, &fused(program), bars, Limits::default());
        assert!(comparison.differs.is_empty(), "{item} in {precision:?}: {:?}", comparison.differs.first());
        assert!(comparison.values > 0);
    }
}

#[test]
fn each_window_alone_has_seen_enough_at_the_last_bar() {
    // Of one group, so long that nothing needs to begin at the first bar; every offset of a block is a last bar.
    let lengths: Vec<usize> = (180..212).collect();
    held(&plans(14), &market(&lengths, 3));
    held(&plans(23), &market(&lengths, 4));
}

#[test]
fn means_and_windows_alone_begin_at_any_bar_of_a_group() {
    // So long that the last bars need nothing of the first ones: most bars are run in groups. Values are missing at the beginning,
    // for a tile and more, and most lanes have no bars.
    let lengths: Vec<usize> = (206..213).collect();
    let mut bars = market(&lengths, 8);
    for (symbol, columns) in bars.iter_mut().enumerate() {
        columns.iter_mut().flat_map(|column| column.iter_mut().take(23 * symbol)).for_each(|value| *value = f64::NAN);
    }
    let alone = |items: &[&str]| -> Vec<(String, Program)> {
        items.iter().map(|item| ((*item).to_owned(), program(&[(*item).to_owned()]))).collect()
    };
    held(&alone(&["kama(close,10)", "sma(close,5) - ema(close,3)", "ema(sma(close,9),3)"]), &bars);
    // The last bars, which are run in pairs: windows of even and odd periods, of several in one part, with deviations from a mean
    // over both bars, look-back at wanted bars, and ratios of which some are of nothing.
    held(&alone(TAILS), &bars);
}

/// Histories of one group that end far from each other: windows run before each end, not in between, and go on with the state that they had.
#[test]
fn windows_leave_out_the_bars_between_the_ends_of_a_groups_histories() {
    let lengths = [20, 21, 90, 97, 98, 170, 175, 240, 241, 300];
    let mut bars = market(&lengths, 9);
    // Missing values among the last bars of one history, behind bars that are left out.
    bars[7].iter_mut().for_each(|column| column[225..229].fill(f64::NAN));
    let mut plans = plans(7);
    for items in [
        &["ema(close,5) + median(close,6)", "sma(close,9)", "donchian(4).upper[3]"][..],
        &["percentrank(close,8) + rsi(close,5)", "bbands(close,10).upper - close[12]", "stddev(roc(close,3),8)"][..],
        &["within(crosses_above(sma(close,3), sma(close,8)), 4) and ema(close,9) > 0"][..],
    ] {
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        plans.push((items.join(", "), program(&items)));
    }
    held(&plans, &bars);
}

/// Divisors next to powers of two: the inverse of the one just below is in the middle between two numbers.
#[test]
fn quotients_by_numbers_next_to_powers_of_two_have_the_bits_of_the_cpu() {
    let mut bars = market(&[160, 97, 33], 10);
    for (symbol, columns) in bars.iter_mut().enumerate() {
        for (number, column) in columns.iter_mut().enumerate() {
            for (bar, value) in column.iter_mut().enumerate() {
                let place = bar + 3 * number + 7 * symbol;
                let power = 2f64.powi((place % 11) as i32 - 5);
                *value = [power.next_down(), power, -power, power.next_up()][(place / 11 + number) % 4];
            }
        }
    }
    let items = [
        "close/open",
        "high/low",
        "cumsum(close/open)",
        "cumsum(high/low)",
        "ema(volume/open,3)",
        "cumsum(open/close)",
    ];
    held(&[(items.join(", "), program(&items.map(str::to_owned)))], &bars);
}

#[test]
fn windows_longer_than_every_history_have_no_value() {
    held(&plans(64), &market(&[40, 39, 33, 32, 17, 16, 15, 2, 1], 5));
}

#[test]
fn tables_of_several_kinds_lie_in_one_launch() {
    let items = ["atc(close,9,la=0.5).ema", "atc(close,9,la=5).wma", "ht_sine(close).sine", "atc(close,9,la=0.5).kama"];
    let items = items.map(str::to_owned);
    held(&[(items.join(", "), program(&items))], &market(&[240, 161, 100, 33, 1], 6));
}
