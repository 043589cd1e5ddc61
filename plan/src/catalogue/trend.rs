//! Adaptive Trend Classification: fifty-four averages, what following each of them would have earned, and the trend that
//! the families which earned most agree on. The steps are defined at [`Op`]; docs/adr/0010 explains how they are run.

use super::*;

const GROUP: &str = "Trend classification";

/// The families in the order in which they are added up, with what their parameters begin with.
const FAMILIES: [Trend; 6] = [Trend::Ema, Trend::Hma, Trend::Wma, Trend::Dema, Trend::Lsma, Trend::Kama];

/// How far the lengths of a family are from its base length: names, and the four offsets of each.
const ROBUSTNESS: &[&str] = &["narrow", "medium", "wide"];
const OFFSETS: [[u32; 4]; 3] = [[1, 2, 3, 4], [1, 2, 4, 6], [1, 3, 5, 7]];
const MEDIUM: f64 = 1.0;

/// `la` counts in thousandths, `de` in percent.
const GROWTH_UNIT: f64 = 1000.0;
const DECAY_UNIT: f64 = 100.0;

/// Places of the parameters in the declaration below.
const LENGTHS: usize = 1;
const WEIGHTS: usize = 7;
const LA: usize = 14;
const DE: usize = 15;
const CUTOUT: usize = 16;
const LONG: usize = 17;
const SHORT: usize = 18;
const STRATEGY: usize = 19;
const ROBUST: usize = 13;

const fn length(name: &'static str) -> Param {
    Param { name, kind: ParamType::Integer { min: 1, max: PERIOD_MAX }, default: ParamDefault::SameAs("len") }
}

const fn weight(name: &'static str) -> Param {
    param(name, ParamType::Real { min: f64::MIN_POSITIVE, max: 3e37 }, 1.0)
}

const SRC: SeriesArg = num("src", Some("close"));
const PRICE: SeriesArg = always("close");

pub(super) const LIST: &[Function] = &[declare("atc", GROUP)
    .summary(
        "adaptive trend classification: what six families of averages say, weighed by what following them \
         earned",
    )
    .formula(
        "nine averages of src a family, of length len and four lengths on each side of it (robustness: \
         narrow 1 2 3 4, medium 1 2 4 6, wide 1 3 5 7). An average says 1 from where close crosses above \
         it, -1 from where it crosses below. What following a signal earned: e = e*(1 - de/100)*(1 + \
         sign(signal[1])*r), at least 0.25, r = (close/close[1] - 1)*exp(la/1000*(bar - cutout)). A \
         family's signal: sum of signal*e over sum of e, in hundredths, half to even; its equity: what \
         following that earned, from its weight on. signal: mean of the families' votes (1 above long, -1 \
         below short, else 0) weighed by their equities; trend: its sign; equity: what following it \
         earned, from 1 on; win_rate: percent of the bars on which the price moved behind a trend that it \
         moved the trend's way, so far; agreement: percent of the families whose signal has the trend's \
         sign. No bar before cutout counts. strategy_mode gives the signal one bar late. A history shorter \
         than the longest average (kama's excepted) or than cutout is refused by 'trawl compute', and NA \
         in a scan",
    )
    .reference(Reference::Source("InvestorUnknown, Adaptive Trend Classification"))
    .series(&[SRC, PRICE])
    .params(&[
        param("len", ParamType::Integer { min: 1, max: PERIOD_MAX }, 28.0),
        length("ema_len"),
        length("hma_len"),
        length("wma_len"),
        length("dema_len"),
        length("lsma_len"),
        length("kama_len"),
        weight("ema_w"),
        weight("hma_w"),
        weight("wma_w"),
        weight("dema_w"),
        weight("lsma_w"),
        weight("kama_w"),
        param("robustness", ParamType::Choice(ROBUSTNESS), MEDIUM),
        param("la", REAL_RANGE, 0.02),
        param("de", ParamType::Real { min: 0.0, max: 100.0 }, 0.03),
        param("cutout", ParamType::Real { min: -(PERIOD_MAX as f64), max: PERIOD_MAX as f64 }, 0.0),
        param("long", REAL_RANGE, 0.1),
        param("short", REAL_RANGE, -0.1),
        param("strategy_mode", ParamType::Truth, 0.0),
    ])
    .outputs(&[
        output("signal", &[]),
        output("trend", &[]),
        output("ema", &[]),
        output("hma", &[]),
        output("wma", &[]),
        output("dema", &[]),
        output("lsma", &[]),
        output("kama", &[]),
        output("ema_equity", &[]),
        output("hma_equity", &[]),
        output("wma_equity", &[]),
        output("dema_equity", &[]),
        output("lsma_equity", &[]),
        output("kama_equity", &[]),
        output("equity", &[]),
        output("win_rate", &[]),
        output("agreement", &[]),
    ])
    .check(conflict)
    .scaling(Scaling::PURE)
    .fused(&[Fused::TrendMeans])
    .numbers(build)];

/// The nine lengths of a family, in the order in which they are added up.
fn lengths(base: u32, offsets: [u32; 4]) -> impl Iterator<Item = u32> {
    let up = offsets.into_iter().map(move |o| base + o);
    let down = offsets.into_iter().map(move |o| base.saturating_sub(o));
    std::iter::once(base).chain(up).chain(down)
}

fn offsets(params: &[f64]) -> [u32; 4] {
    OFFSETS[(params[ROBUST] as usize).min(OFFSETS.len() - 1)]
}

/// What no range of one parameter says.
fn conflict(params: &[f64]) -> Option<Conflict> {
    let most = offsets(params)[3];
    let word = ROBUSTNESS[(params[ROBUST] as usize).min(ROBUSTNESS.len() - 1)];
    let short = (0..FAMILIES.len()).map(|k| LENGTHS + k).find(|at| params[*at] <= f64::from(most));
    if let Some(at) = short {
        // What sets all lengths is reported where they are the same.
        let name = if params[at] == params[0] { "len" } else { LIST[0].params[at].name };
        return Some(Conflict {
            places: vec![LIST[0].params[at].name, "len", "robustness"],
            message: format!(
                "with robustness '{word}' an average of {name} = {} would be {most} bars shorter",
                params[at]
            ),
            label: format!("expected a whole number from {} to {PERIOD_MAX}", most + 1),
            help: format!("such as {name}={}, or robustness='narrow', which takes {name} from 5 on", most + 1),
        });
    }
    if params[CUTOUT].fract() != 0.0 {
        return Some(Conflict {
            places: vec!["cutout"],
            message: format!("{} is not legal for 'cutout' of atc", params[CUTOUT]),
            label: format!("expected a whole number up to {PERIOD_MAX}; below 0 counts as 0"),
            help: format!("such as cutout={}", params[CUTOUT].trunc()),
        });
    }
    // What is no number was refused before.
    (params[LONG] <= params[SHORT]).then(|| Conflict {
        places: vec!["long", "short"],
        message: format!("long ({}) is not above short ({})", params[LONG], params[SHORT]),
        label: "expected long above short".to_owned(),
        help: "such as long=0.1, short=-0.1".to_owned(),
    })
}

/// Percent of the bars on which the price moved behind a trend that it moved the trend's way, so far.
fn win_rate<'f>(trend: Num<'f>, price: Num<'f>) -> Num<'f> {
    let won = trend.lag(1) * price.change(1).sign();
    let counted = won.abs();
    // 1 of a bar that was won, 0 of one that was lost or does not count.
    50.0 * ((won + counted).cumulative() / counted.cumulative())
}

/// Percent of the families whose own signal has the trend's sign.
fn agreement<'f>(trend: Num<'f>, signals: &[Num<'f>]) -> Num<'f> {
    let mut agree = trend.formula.constant(0.0);
    for signal in signals {
        // Before the first bar that counts a family has none.
        let same = signal.sign().or_else(0.0).equals(trend).decides();
        agree = agree + same.as_number();
    }
    agree * (100.0 / signals.len() as f64)
}

fn build(f: &Formula) -> Vec<Num<'_>> {
    let [src, price] = f.series();
    let offsets = offsets(f.params());
    let cutout = f.real(CUTOUT).max(0.0) as u32;
    let decay = (1.0 - f.real(DE) / DECAY_UNIT).into();
    let bar = f.bar_number();
    let rate = (f.real(LA) / GROWTH_UNIT).into();
    let returns = f.step(Op::GrownReturn { rate, cutout }, &[price, price.lag(1), bar]);
    let equity_from =
        |start: f64, signal| f.step(Op::SignalEquity { start: start.into(), decay, cutout }, &[signal, returns, bar]);
    let (mut signals, mut equities) = (Vec::new(), Vec::new());
    let mut longest = 0;
    for (k, family) in FAMILIES.into_iter().enumerate() {
        let mut inputs = vec![price, returns, bar];
        for len in lengths(f.bars(LENGTHS + k), offsets) {
            let of: &[Num<'_>] = if family.counts_bars() { &[src, bar] } else { &[src] };
            inputs.push(f.step(Op::TrendMean { family, len }, of));
            // Kaufman's takes any history.
            if family != Trend::Kama {
                longest = longest.max(len);
            }
        }
        let signal = f.step(Op::FamilySignal { decay, cutout }, &inputs);
        signals.push(signal);
        equities.push(equity_from(f.real(WEIGHTS + k), signal));
    }
    let both: Vec<Num<'_>> = signals.iter().chain(&equities).copied().collect();
    let mut signal = f.step(Op::TrendVote { long: f.real(LONG).into(), short: f.real(SHORT).into() }, &both);
    if f.real(STRATEGY) == 1.0 {
        signal = signal.lag(1).or_else(0.0);
    }
    let trend = signal.sign();
    // How good the classification was: what a sweep's settings are compared by.
    let measures = [equity_from(1.0, signal), win_rate(trend, price), agreement(trend, &signals)];
    let outputs = [signal, trend].into_iter().chain(both).chain(measures);
    outputs.map(|x| x.after_bars(longest.max(cutout + 1))).collect()
}
