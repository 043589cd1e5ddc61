//! Directional movement and what else tells the direction of a trend.

use super::*;

const GROUP: &str = "Momentum indicators";

const BAR: &[SeriesArg] = &[HIGH, LOW, CLOSE];
const RANGE: &[SeriesArg] = &[HIGH, LOW];

pub(super) const LIST: &[Function] = &[
    declare("plus_dm", GROUP)
        .summary("plus directional movement")
        .formula("Wilder's sum of high - high[1] where that is positive and exceeds low[1] - low, else of 0")
        .series(RANGE)
        .params(&[period(14, 1)])
        .number(|f| movement(f, PLUS)),
    declare("minus_dm", GROUP)
        .summary("minus directional movement")
        .formula("Wilder's sum of low[1] - low where that is positive and exceeds high - high[1], else of 0")
        .series(RANGE)
        .params(&[period(14, 1)])
        .number(|f| movement(f, MINUS)),
    declare("plus_di", GROUP)
        .summary("plus directional indicator, 0 to 100")
        .formula(
            "100 * Wilder's sum of the plus directional movement / Wilder's sum of the true range; for one \
             bar the plain ratio",
        )
        .series(BAR)
        .params(&[period(14, 1)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::TrueRange])
        .number(|f| indicator(f, PLUS)),
    declare("minus_di", GROUP)
        .summary("minus directional indicator, 0 to 100")
        .formula(
            "100 * Wilder's sum of the minus directional movement / Wilder's sum of the true range; for one \
             bar the plain ratio",
        )
        .series(BAR)
        .params(&[period(14, 1)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::TrueRange])
        .number(|f| indicator(f, MINUS)),
    declare("dx", GROUP)
        .summary("directional movement index, 0 to 100")
        .formula("100*|+DI - -DI|/(+DI + -DI); 0 where both are 0")
        .series(BAR)
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::TrueRange, Fused::Apart])
        .number(|f| {
            let [apart, total] = apart(f);
            100.0 * apart.ratio_or_zero(total)
        }),
    declare("adx", GROUP)
        .summary("average directional index, 0 to 100: strength of a trend whatever its direction")
        .formula(
            "Wilder's mean of 100*|+DI - -DI|/(+DI + -DI); each DI is 100 * Wilder's sum of the directional \
             movement / Wilder's sum of the true range",
        )
        .series(BAR)
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::Directional])
        .number(adx),
    declare("adxr", GROUP)
        .summary("average directional index rating")
        .formula("(adx + adx[timeperiod-1])/2")
        .series(BAR)
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .fused(&[Fused::PairOver, Fused::Directional])
        .number(|f| {
            let now = adx(f);
            (now + now.lag(f.bars(0) - 1)) / 2.0
        }),
    declare("aroon", GROUP)
        .summary("how lately the extremes of a window were reached, 0 to 100")
        .formula("100*(timeperiod - bars since the lowest low (highest high) of timeperiod+1 bars)/timeperiod")
        .series(RANGE)
        .params(&[period(14, 2)])
        .outputs(&[output("aroondown", &["down"]), output("aroonup", &["up"])])
        .scaling(Scaling::PURE)
        .numbers(|f| {
            let [down, up] = aroon(f);
            vec![down.where_finite(up), up.where_finite(down)]
        }),
    declare("aroonosc", GROUP)
        .summary("Aroon oscillator, -100 to 100")
        .formula("aroonup - aroondown")
        .series(RANGE)
        .params(&[period(14, 2)])
        .scaling(Scaling::PURE)
        .number(|f| {
            let [down, up] = aroon(f);
            up - down
        }),
    declare("vortex", GROUP)
        .summary("vortex indicator")
        .formula(
            "plusvi = sum of |high - low[1]| / sum of the true range over timeperiod; minusvi = sum of |low - \
             high[1]| / the same; 0 where that is 0",
        )
        .series(BAR)
        .params(&[period(14, 1)])
        .outputs(&[output("plusvi", &["plus"]), output("minusvi", &["minus"])])
        .scaling(Scaling::PURE)
        .fused(&[Fused::TrueRange, Fused::Apart])
        .numbers(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let range = true_range(high, low, close).sum(p);
            let plus = (high - low.lag(1)).abs().sum(p);
            let minus = (low - high.lag(1)).abs().sum(p);
            vec![plus.ratio_or_zero(range), minus.ratio_or_zero(range)]
        }),
    declare("fractal", GROUP)
        .summary("swing highs and lows: 100 on the bar that confirms one, else 0")
        .formula(
            "the high (low) of rightbars ago is above (below) those of the leftbars before it and of the \
             rightbars since",
        )
        .series(RANGE)
        .params(&[bars("leftbars", 2, 1), bars("rightbars", 2, 1)])
        .outputs(&[output("swinghigh", &["high"]), output("swinglow", &["low"])])
        .scaling(Scaling::PURE)
        .numbers(|f| {
            let ([high, low], left, right) = (f.series(), f.bars(0), f.bars(1));
            let neighbours = high.highest(left).lag(right + 1).maximum(high.highest(right));
            let top = high.lag(right).above(neighbours).decides().choose(100.0, 0.0);
            let neighbours = low.lowest(left).lag(right + 1).minimum(low.lowest(right));
            let bottom = neighbours.above(low.lag(right)).decides().choose(100.0, 0.0);
            vec![top.where_finite(bottom), bottom.where_finite(top)]
        }),
];

/// Places of the two directions.
const PLUS: usize = 0;
const MINUS: usize = 1;

/// Wilder's directional movements up and down: each where it is positive and exceeds the other, else 0. The third series
/// is NA where they are not to count.
fn movements<'f>(high: Num<'f>, low: Num<'f>) -> [Num<'f>; 3] {
    let (up, down) = (high - high.lag(1), low.lag(1) - low);
    [prevailing(up, down), prevailing(down, up), up + down]
}

/// `this` where it is positive and exceeds `other`, else 0.
fn prevailing<'f>(this: Num<'f>, other: Num<'f>) -> Num<'f> {
    (this.above(0.0) & this.above(other)).choose(this, 0.0)
}

/// Wilder's sum of one directional movement; of one bar the movement itself.
fn movement(f: &Formula, side: usize) -> Num<'_> {
    let [high, low] = f.series();
    let [plus, minus, moved] = movements(high, low);
    // Both skip the same bars.
    let moved = [plus, minus][side].where_finite(moved);
    match f.bars(0) {
        1 => moved,
        p => moved.step(Op::WilderTotal(p)),
    }
}

/// The directional movements and the true range, defined on the same bars.
fn parts(f: &Formula) -> [Num<'_>; 3] {
    let [high, low, close] = f.series();
    let [plus, minus, moved] = movements(high, low);
    let range = true_range(high, low, close);
    let whole = moved + range;
    [plus, minus, range].map(|part| part.where_finite(whole))
}

/// Wilder's sums of [`parts`] over a window of more than one bar.
fn sums(f: &Formula) -> [Num<'_>; 3] {
    parts(f).map(|part| part.step(Op::WilderSum(f.bars(0))))
}

/// +DI or -DI.
fn indicator(f: &Formula, side: usize) -> Num<'_> {
    if f.bars(0) == 1 {
        let parts = parts(f);
        return parts[side].ratio_or_zero(parts[2]);
    }
    let sums = sums(f);
    100.0 * sums[side].ratio_or_zero(sums[2])
}

/// What |+DI - -DI| and +DI + -DI are in proportion to: the true range, by which both are divided, cancels in their
/// quotient. Where it is 0 the indicators are.
fn apart(f: &Formula) -> [Num<'_>; 2] {
    let [plus, minus, range] = sums(f);
    [(minus - plus).abs(), range.above(0.0).choose(minus + plus, 0.0)]
}

fn adx(f: &Formula) -> Num<'_> {
    f.step(Op::WilderRatio(f.bars(0)), &apart(f))
}

/// Of the lowest low and of the highest high: 100 when it is this bar's, 0 when it is the oldest of the window's.
fn aroon(f: &Formula) -> [Num<'_>; 2] {
    let ([high, low], p) = (f.series(), f64::from(f.bars(0)));
    let since = [low.step(Op::BarsSinceMin(f.bars(0) + 1)), high.step(Op::BarsSinceMax(f.bars(0) + 1))];
    since.map(|bars| 100.0 * (p - bars) / p)
}
