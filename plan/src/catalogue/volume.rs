//! Volume.

use super::*;

const GROUP: &str = "Volume indicators";

pub(super) const LIST: &[Function] = &[
    declare("obv", GROUP)
        .summary("on-balance volume")
        .formula(
            "starts at the first bar's volume; adds the volume of bars that close higher, takes away that of \
             bars that close lower",
        )
        .series(&[CLOSE, VOLUME])
        .scaling(Scaling::VOLUMES)
        .sums_signed()
        .number(|f| f.step(Op::OnBalance, &f.series::<2>())),
    declare("vwap", GROUP)
        .summary("volume-weighted average price over the whole history")
        .formula("running sum of t*volume / running sum of volume, t = (high + low + close)/3")
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .fused(&[Fused::SumOver, Fused::Weighed])
        .number(|f| {
            let [high, low, close, volume] = f.series();
            running(typical(high, low, close), volume)
        }),
    declare("ad", GROUP)
        .summary("Chaikin's accumulation/distribution line")
        .formula(
            "running sum of volume*((close - low) - (high - close))/(high - low); a bar whose high is not \
             above its low adds nothing",
        )
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .scaling(Scaling::VOLUMES)
        .number(accumulation),
    declare("adosc", GROUP)
        .summary("Chaikin's oscillator")
        .formula(
            "exponential mean of ad over fastperiod - that over slowperiod, both starting from ad's first \
             value",
        )
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .params(&[bars("fastperiod", 3, 2), bars("slowperiod", 10, 2)])
        .scaling(Scaling::VOLUMES)
        .number(|f| {
            let line = accumulation(f);
            let [fast, slow] = [0, 1].map(|i| {
                let factor = 2.0 / (f64::from(f.bars(i)) + 1.0);
                line.step(Op::EmaBy { p: 1, delay: 0, factor: factor.into() })
            });
            (fast - slow).skip(f.bars(0).max(f.bars(1)) - 1)
        }),
    declare("cmf", GROUP)
        .summary("Chaikin's money flow, -1 to 1")
        .formula(
            "sum of volume*((close - low) - (high - close))/(high - low) / sum of volume over timeperiod; a \
             bar whose high is not above its low adds nothing above; 0 where no volume is",
        )
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .params(&[period(20, 2)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let ([_, _, _, volume], p) = (f.series(), f.bars(0));
            let flow = money_flow(f);
            flow.sum(p).ratio_or_zero(volume.where_finite(flow).sum(p))
        }),
    declare("efi", GROUP)
        .summary("Elder's force index")
        .formula("exponential mean of (close - close[1])*volume")
        .series(&[CLOSE, VOLUME])
        .params(&[period(13, 1)])
        .scaling(Scaling::Powers { prices: 1.0, volumes: 1.0 })
        .sums_signed()
        .number(|f| {
            let [close, volume] = f.series();
            (close.change(1) * volume).ema(f.bars(0))
        }),
    declare("marketfi", GROUP)
        .summary("market facilitation index")
        .formula("(high - low)/volume; 0 where nothing is traded")
        .series(&[HIGH, LOW, VOLUME])
        .scaling(Scaling::Powers { prices: 1.0, volumes: -1.0 })
        .number(|f| {
            let [high, low, volume] = f.series();
            let range = high - low;
            // What an infinity takes part in is no 0.
            range.ratio_or_zero(volume).where_finite(range + volume)
        }),
    declare("nvi", GROUP)
        .summary("negative volume index")
        .formula("starts at 1000; on bars with less volume than the one before it is multiplied by close/close[1]")
        .series(&[CLOSE, VOLUME])
        .scaling(Scaling::PURE)
        .number(|f| volume_index(f, |volume, before| volume.below(before))),
    declare("pvi", GROUP)
        .summary("positive volume index")
        .formula("starts at 1000; on bars with more volume than the one before it is multiplied by close/close[1]")
        .series(&[CLOSE, VOLUME])
        .scaling(Scaling::PURE)
        .number(|f| volume_index(f, |volume, before| volume.above(before))),
    declare("pvt", GROUP)
        .summary("price volume trend")
        .formula(
            "running sum of volume*(close - close[1])/close[1], 0 on the first bar; where close[1] is 0 \
             nothing is added",
        )
        .series(&[CLOSE, VOLUME])
        .scaling(Scaling::VOLUMES)
        .number(|f| {
            let [close, volume] = together(f);
            let before = close.previous();
            ((close - before).ratio_or_zero(before) * volume).cumulative()
        }),
    declare("wad", "Momentum indicators")
        .summary("Williams' accumulation/distribution")
        .formula(
            "running sum, 0 on the first bar: close - min(low, close[1]) where the close rose, close - \
             max(high, close[1]) where it fell, else 0",
        )
        .series(&[HIGH, LOW, CLOSE])
        .number(|f| {
            let [high, low, close] = f.series();
            let close = close.where_finite(high - low);
            let before = close.previous();
            let bought = close - low.minimum(before);
            let sold = close - high.maximum(before);
            let (rose, fell) = (close.above(before).decides(), before.above(close).decides());
            rose.choose(bought, fell.choose(sold, 0.0)).cumulative()
        }),
    declare("rvol", GROUP)
        .summary("relative volume")
        .formula("volume / mean volume of the timeperiod bars before, IEEE: an infinity where that alone is 0")
        .series(&[VOLUME])
        .params(&[period(20, 1)])
        .scaling(Scaling::PURE)
        .number(|f| f.x().quotient(f.x().mean(f.bars(0)).lag(1))),
];

/// The volume-weighted mean of `x` from the first bar on.
pub(super) fn running<'f>(x: Num<'f>, volume: Num<'f>) -> Num<'f> {
    let value = x * volume;
    // Both sums skip the same bars.
    let value = value.where_finite(value);
    value.cumulative().ratio_or_zero(volume.where_finite(value).cumulative())
}

/// volume*((close - low) - (high - close))/(high - low); 0 where high is not above low.
fn money_flow(f: &Formula) -> Num<'_> {
    let [high, low, close, volume] = f.series();
    let apart = (close - low) - (high - close);
    let range = high - low;
    let part = range.above(0.0).choose(apart.ratio_or_zero(range) * volume, 0.0);
    // A bar that is not whole is NA even where its range is 0.
    part.where_finite(apart + volume)
}

fn accumulation(f: &Formula) -> Num<'_> {
    money_flow(f).cumulative()
}

/// Close and volume, defined on the same bars.
fn together(f: &Formula) -> [Num<'_>; 2] {
    let [close, volume] = f.series();
    let close = close.where_finite(volume);
    [close, volume.where_finite(close)]
}

/// 1000 times the product of close/close[1] on the bars that count by their volume and that of the bar before.
fn volume_index<'f>(f: &'f Formula, counts: fn(Num<'f>, Num<'f>) -> Truth<'f>) -> Num<'f> {
    let [close, volume] = together(f);
    let before = close.previous();
    let counts = counts(volume, volume.previous()).decides() & before.differs(0.0);
    1000.0 * counts.choose(close.ratio_or_zero(before), 1.0).step(Op::Product)
}
