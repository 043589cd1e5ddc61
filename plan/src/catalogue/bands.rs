//! Bands.

use super::*;

const OVERLAP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    Function::new("bbands", OVERLAP)
        .summary("Bollinger bands")
        .formula(
            "middleband = average; upperband = middle + nbdevup * population deviation; lowerband = middle - \
             nbdevdn * deviation",
        )
        .series(&[REAL])
        .params(&[
            period(20, 2),
            param("nbdevup", REAL_RANGE, 2.0),
            Param { name: "nbdevdn", kind: REAL_RANGE, default: ParamDefault::SameAs("nbdevup") },
            average("matype"),
        ])
        .outputs(CHANNEL)
        .fused(&[Fused::Bands])
        .numbers(|f| {
            let (x, p) = (f.x(), f.bars(0));
            let middle = x.average(f.bars(3), p);
            let deviation = x.deviation(p);
            let upper = middle + f.real(1) * deviation;
            let lower = middle - f.real(2) * deviation;
            vec![upper, middle.where_finite(upper), lower]
        }),
    Function::new("donchian", OVERLAP)
        .summary("Donchian channel")
        .formula("upperband = highest high, lowerband = lowest low over timeperiod; middleband = their mean")
        .series(&[HIGH, LOW])
        .params(&[period(20, 2)])
        .outputs(CHANNEL)
        .fused(&[Fused::PairOver])
        .numbers(|f| {
            let ([high, low], p) = (f.series(), f.bars(0));
            let (upper, lower) = (high.highest(p), low.lowest(p));
            vec![upper, (upper + lower) / 2.0, lower]
        }),
];
