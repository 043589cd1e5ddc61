//! Volume-weighted average prices that begin anew: with a session, a day, a week, a month, or a bar that stood out.

use super::*;

const GROUP: &str = "Volume indicators";

/// Where an average may begin, in the order of [`anchor`].
const ANCHORS: &[&str] =
    &["session", "daily", "weekly", "monthly", "high", "low", "hvol", "prev_high", "prev_low", "prev_hvol", "history"];

const ANCHOR: Param = param("anchor", ParamType::Choice(ANCHORS), 0.0);

pub(super) const LIST: &[Function] = &[
    declare("avwap", GROUP)
        .summary("anchored volume-weighted average price")
        .formula(
            "sum of t*volume / sum of volume since the anchor, t = (high + low + close)/3; NA where no volume \
             was traded. Anchors: the first bar of the regular session, of the trading day ('daily'), week or \
             month; 'high', 'low', 'hvol': the bar of the day's highest high, lowest low or highest volume so \
             far, so it begins anew with each that is more extreme; 'prev_...': that bar of the day before; \
             'history': the first bar of all",
        )
        .reference(Reference::Language)
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .params(&[ANCHOR])
        .fused(&[Fused::SumOver])
        .number(anchored),
    declare("avwap_bands", GROUP)
        .summary("bands around an anchored volume-weighted average price")
        .formula(
            "b = avwap(anchor); un, ln = b +- n*sqrt(sum of volume*(t - b)^2 / sum of volume), t = (high + low + close)/3: since the \
             anchor, with this bar's b; with timeperiod over the last bars, each with its own b",
        )
        .reference(Reference::Language)
        .series(&[HIGH, LOW, CLOSE, VOLUME])
        .params(&[ANCHOR, bars("timeperiod", 0, 0)])
        .outputs(&[
            output("u1", &[]),
            output("u2", &[]),
            output("u3", &[]),
            output("l1", &[]),
            output("l2", &[]),
            output("l3", &[]),
        ])
        .fused(&[Fused::SumOver, Fused::PlusScaled])
        .numbers(bands),
];

/// Period, anchor, whether the period before is meant, and which of the series decides; `None` for the whole history.
fn anchor(choice: f64) -> Option<(Period, Anchor, bool, usize)> {
    let (high, low, volume) = (0, 1, 3);
    Some(match choice as usize {
        0 => (Period::Session, Anchor::Start, false, high),
        1 => (Period::Day, Anchor::Start, false, high),
        2 => (Period::Week, Anchor::Start, false, high),
        3 => (Period::Month, Anchor::Start, false, high),
        4 => (Period::Day, Anchor::Highest, false, high),
        5 => (Period::Day, Anchor::Lowest, false, low),
        6 => (Period::Day, Anchor::Highest, false, volume),
        7 => (Period::Day, Anchor::Highest, true, high),
        8 => (Period::Day, Anchor::Lowest, true, low),
        9 => (Period::Day, Anchor::Highest, true, volume),
        _ => return None,
    })
}

/// Volume-weighted mean of `x` since the anchor.
fn since_anchor<'f>(f: &'f Formula, x: Num<'f>) -> Num<'f> {
    let all @ [high, low, close, volume] = f.series();
    let Some((period, anchor, previous, key)) = anchor(f.real(0)) else {
        return super::volume::running(x, volume);
    };
    // A key that does not decide must not make bars NA.
    let key = if anchor == Anchor::Start { typical(high, low, close) } else { all[key] };
    f.step(Op::AnchoredMean { anchor, previous }, &[f.begins(period).as_number(), key, x, volume])
}

fn anchored(f: &Formula) -> Num<'_> {
    let [high, low, close, _] = f.series();
    since_anchor(f, typical(high, low, close))
}

fn bands(f: &Formula) -> Vec<Num<'_>> {
    let ([high, low, close, volume], p) = (f.series(), f.bars(1));
    let (base, t) = (anchored(f), typical(high, low, close));
    let variance = if p == 0 {
        // Distances from a price near by, of the period's first bar that counts: the difference of two means of squares would cancel.
        let begins = anchor(f.real(0)).map_or_else(|| f.bar_number().equals(1.0), |(period, ..)| f.begins(period));
        let counts = volume.where_finite(t).differs(0.0);
        let seen = f.condition_of(Op::EverSince, &[begins.as_number(), counts.as_number()]);
        let first = counts & (begins | !seen.lag(1));
        let off = t - f.step(Op::ValueWhen, &[first.as_number(), t]);
        (since_anchor(f, off.square()) - since_anchor(f, off).square()).maximum(0.0)
    } else {
        let weighted = volume * (t - base).square();
        // Both sums are over the same bars.
        weighted.sum(p) / volume.where_finite(weighted).sum(p)
    };
    let width = variance.sqrt();
    [1.0, 2.0, 3.0, -1.0, -2.0, -3.0].map(|k| base + k * width).to_vec()
}
