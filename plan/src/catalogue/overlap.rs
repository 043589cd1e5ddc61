//! Channels and stops that lie over the price.

use super::*;

const GROUP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    declare("accbands", GROUP)
        .summary("acceleration bands")
        .formula(
            "upperband = sma of high*(1 + w), lowerband = sma of low*(1 - w), w = 4(high - low)/(high + low); \
             middleband = sma of close",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(20, 2)])
        .outputs(CHANNEL)
        .scales_from(-6, "as TA-Lib, 0 for a ratio whose divisor is below 1e-14")
        .numbers(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let w = (4.0 * (high - low)).ratio_or_zero_epsilon(high + low);
            let (upper, lower) = (high * (1.0 + w), low * (1.0 - w));
            // All three skip the same bars.
            let whole = high + low + close;
            [upper, close, lower].map(|x| x.where_finite(whole).mean(p)).to_vec()
        }),
    declare("kc", GROUP)
        .summary("Keltner channel")
        .formula(
            "middleband = ema of (high + low + close)/3; upperband and lowerband = middleband +- nbdev * \
             atr(atrperiod)",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[
            period(20, 2),
            bars("atrperiod", 10, 1),
            param("nbdev", REAL_RANGE, 2.0),
        ])
        .outputs(CHANNEL)
        .fused(&[Fused::TrueRange, Fused::SumOver, Fused::PlusScaled, Fused::MinusScaled])
        .numbers(|f| {
            let ([high, low, close], p, atr) = (f.series(), f.bars(0), f.bars(1));
            // TA-Lib seeds each where the later one starts.
            let look_back = atr.max(p - 1);
            let middle = typical(high, low, close).skip(look_back - (p - 1)).ema(p);
            let range = true_range(high, low, close).skip(look_back - atr).wilder(atr);
            let band = f.real(2) * range;
            vec![middle + band, middle.where_finite(band), middle - band]
        }),
    declare("cks", GROUP)
        .summary("Chande Kroll stop: stops of longs and shorts off the extremes by a multiple of the range")
        .formula(
            "long = lowest over q of lowest low over p + x*atr(p); short = highest over q of highest high over p - x*atr(p)",
        )
        .reference(Reference::Values("Chande and Kroll, The New Technical Trader (1994)", "cks.csv"))
        .series(&[HIGH, LOW, CLOSE])
        .params(&[
            bars("p", 10, 1),
            param("x", NON_NEGATIVE, 1.0),
            bars("q", 9, 1),
        ])
        .outputs(&[output("long", &[]), output("short", &[])])
        .fused(&[Fused::AverageRange, Fused::PlusScaled, Fused::MinusScaled])
        .numbers(|f| {
            let ([high, low, close], p, q) = (f.series(), f.bars(0), f.bars(2));
            let room = f.real(1) * true_range(high, low, close).wilder(p);
            let (long, short) = (low.lowest(p) + room, high.highest(p) - room);
            vec![long.lowest(q), short.highest(q)]
        }),
    declare("chandelier", GROUP)
        .summary("chandelier exit: stops at a multiple of the range off the extremes")
        .formula("long = highest high - multiplier*atr, short = lowest low + multiplier*atr, all over timeperiod")
        .reference(Reference::Values("C. LeBeau, Chandelier Exit; A. Elder, Come Into My Trading Room (2002)", "chandelier.csv"))
        .series(&[HIGH, LOW, CLOSE])
        .params(&[period(22, 1), param("multiplier", NON_NEGATIVE, 3.0)])
        .outputs(&[output("long", &[]), output("short", &[])])
        .fused(&[Fused::AverageRange, Fused::PlusScaled, Fused::MinusScaled])
        .numbers(|f| {
            let ([high, low, close], p) = (f.series(), f.bars(0));
            let room = f.real(1) * true_range(high, low, close).wilder(p);
            vec![high.highest(p) - room, low.lowest(p) + room]
        }),
    declare("ichimoku", GROUP)
        .summary("Ichimoku Kinko Hyo: two middle lines, and the cloud that was drawn ahead to this bar")
        .formula(
            "conversion and base = (highest high + lowest low)/2 over their bars; lead_a = (conversion + base)/2, lead_b = that \
             middle over span bars: what is drawn displacement - 1 bars ahead; span_a and span_b = what was drawn ahead to this bar",
        )
        .reference(Reference::Values("G. Hosoda, Ichimoku Kinko Hyo (1969)", "ichimoku.csv"))
        .series(&[HIGH, LOW])
        .params(&[
            bars("conversion", 9, 1),
            bars("base", 26, 1),
            bars("span", 52, 1),
            bars("displacement", 26, 1),
        ])
        .outputs(&[
            output("conversion", &["tenkan"]),
            output("base", &["kijun"]),
            output("lead_a", &[]),
            output("lead_b", &[]),
            output("span_a", &["senkou_a"]),
            output("span_b", &["senkou_b"]),
        ])
        .fused(&[Fused::PairOver])
        .numbers(|f| {
            let [high, low] = f.series();
            let [conversion, base, lead_b] = [0, 1, 2].map(|i| middle(high, low, f.bars(i)));
            let lead_a = (conversion + base) / 2.0;
            let [span_a, span_b] = [lead_a, lead_b].map(|lead| lead.lag(f.bars(3) - 1));
            vec![conversion, base, lead_a, lead_b, span_a, span_b]
        }),
    declare("midpoint", GROUP)
        .summary("middle of the range of a window")
        .formula("(highest value + lowest value)/2")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .fused(&[Fused::PairOver])
        .number(|f| middle(f.x(), f.x(), f.bars(0))),
    declare("midprice", GROUP)
        .summary("middle of the price range of a window")
        .formula("(highest high + lowest low)/2")
        .series(&[HIGH, LOW])
        .params(&[period(14, 2)])
        .fused(&[Fused::PairOver])
        .number(|f| {
            let [high, low] = f.series();
            middle(high, low, f.bars(0))
        }),
    declare("vwma", GROUP)
        .summary("moving average weighted by volume")
        .formula("sum of x*volume / sum of volume over the window; NA where no volume is")
        .series(&[REAL, VOLUME])
        .params(&[period(30, 1)])
        .number(|f| {
            let ([x, volume], p) = (f.series(), f.bars(0));
            if p == 1 {
                return x.where_finite(volume);
            }
            let value = x * volume;
            value.sum(p) / volume.where_finite(value).sum(p)
        }),
    declare("supertrend", GROUP)
        .summary("stop of a trend at a multiple of the average true range")
        .formula(
            "bands (high + low)/2 +- multiplier * atr, each moving only towards the price until a close \
             passes it; supertrend is the lower band while the trend is 1, the upper one while it is -1",
        )
        .series(&[HIGH, LOW, CLOSE])
        .params(&[
            period(10, 2),
            param("multiplier", NON_NEGATIVE, 3.0),
        ])
        .outputs(&[output("supertrend", &["line"]), output("trend", &[]).pure()])
        .fused(&[Fused::PairOver, Fused::PlusScaled, Fused::MinusScaled, Fused::AverageRange])
        .numbers(|f| {
            let [high, low, close] = f.series();
            let band = f.real(1) * true_range(high, low, close).wilder(f.bars(0));
            let median = (high + low) / 2.0;
            let bands = [median + band, median - band, close];
            [SuperTrend::Line, SuperTrend::Trend].map(|result| f.step(Op::SuperTrend(result), &bands)).to_vec()
        }),
    declare("sar", GROUP)
        .summary("Wilder's parabolic stop and reverse")
        .formula(
            "stop + af*(extreme - stop), never inside the last two bars; af rises by acceleration with each \
             new extreme, up to maximum",
        )
        .series(&[HIGH, LOW])
        .params(&[
            param("acceleration", NON_NEGATIVE, 0.02),
            param("maximum", NON_NEGATIVE, 0.2),
        ])
        .number(parabolic),
    declare("sarext", GROUP)
        .summary("parabolic stop and reverse with an acceleration of its own in each direction")
        .formula(
            "as sar, negative while short; startvalue > 0 begins long at it, < 0 short at its magnitude; a \
             reversal moves the stop by offsetonreverse of itself",
        )
        .series(&[HIGH, LOW])
        .params(&[
            param("startvalue", REAL_RANGE, 0.0),
            param("offsetonreverse", NON_NEGATIVE, 0.0),
            param("accelerationinitlong", NON_NEGATIVE, 0.02),
            param("accelerationlong", NON_NEGATIVE, 0.02),
            param("accelerationmaxlong", NON_NEGATIVE, 0.2),
            param("accelerationinitshort", NON_NEGATIVE, 0.02),
            param("accelerationshort", NON_NEGATIVE, 0.02),
            param("accelerationmaxshort", NON_NEGATIVE, 0.2),
        ])
        .number(parabolic_extended),
];

/// The middle between the highest and the lowest of `p` values.
fn middle<'f>(high: Num<'f>, low: Num<'f>, p: u32) -> Num<'f> {
    (high.highest(p) + low.lowest(p)) / 2.0
}

fn parabolic(f: &Formula) -> Num<'_> {
    let step = f.real(0).into();
    let both = Acceleration { start: step, step, most: f.real(1).into() };
    let constants = Parabolic { start: 0.0.into(), offset: 0.0.into(), long: both, short: both, signed: false };
    f.step(Op::Parabolic(constants), &f.series::<2>())
}

fn parabolic_extended(f: &Formula) -> Num<'_> {
    let pace =
        |at: usize| Acceleration { start: f.real(at).into(), step: f.real(at + 1).into(), most: f.real(at + 2).into() };
    let constants =
        Parabolic { start: f.real(0).into(), offset: f.real(1).into(), long: pace(2), short: pace(5), signed: true };
    f.step(Op::Parabolic(constants), &f.series::<2>())
}
