//! One price of a bar or a window.

use super::*;

const GROUP: &str = "Price transform";

pub(super) const LIST: &[Function] = &[
    Function::new("avgdev", GROUP)
        .summary("average deviation of a window")
        .formula("mean of |x - mean of the window|")
        .series(&[REAL])
        .params(&[period(14, 2)])
        .number(|f| {
            let (x, p) = (f.x(), f.bars(0));
            x.mean_deviation(p, x.mean(p))
        }),
    Function::new("avgprice", GROUP)
        .summary("average price of the bar")
        .formula("(open + high + low + close)/4")
        .series(&[OPEN, HIGH, LOW, CLOSE])
        .fused(&[Fused::SumOver])
        .number(|f| {
            let [open, high, low, close] = f.series();
            (high + low + close + open) / 4.0
        }),
    Function::new("ha", GROUP)
        .summary("Heikin-Ashi candles")
        .formula(
            "haclose = (open + high + low + close)/4; haopen = (haopen[1] + haclose[1])/2, the first (open + \
             close)/2; hahigh and halow = highest and lowest of the two and the bar's own",
        )
        .series(&[OPEN, HIGH, LOW, CLOSE])
        .outputs(&[
            output("haopen", &["open"]),
            output("hahigh", &["high"]),
            output("halow", &["low"]),
            output("haclose", &["close"]),
        ])
        .fused(&[Fused::SumOver])
        .numbers(|f| {
            let [open, high, low, close] = f.series();
            let candle_close = (open + high + low + close) / 4.0;
            let candle_open = f.step(Op::HeikinAshi, &[open, close, candle_close]);
            let top = high.maximum(candle_open.maximum(candle_close));
            let bottom = low.minimum(candle_open.minimum(candle_close));
            vec![candle_open, top, bottom, candle_close]
        }),
    Function::new("medprice", GROUP)
        .summary("median price of the bar")
        .formula("(high + low)/2")
        .series(&[HIGH, LOW])
        .fused(&[Fused::PairOver])
        .number(|f| {
            let [high, low] = f.series();
            (high + low) / 2.0
        }),
    Function::new("typprice", GROUP)
        .summary("typical price of the bar")
        .formula("(high + low + close)/3")
        .series(&[HIGH, LOW, CLOSE])
        .fused(&[Fused::SumOver])
        .number(|f| {
            let [high, low, close] = f.series();
            typical(high, low, close)
        }),
    Function::new("wclprice", GROUP)
        .summary("price of the bar weighted to the close")
        .formula("(high + low + 2*close)/4")
        .series(&[HIGH, LOW, CLOSE])
        .fused(&[Fused::SumOver])
        .number(|f| {
            let [high, low, close] = f.series();
            (high + low + 2.0 * close) / 4.0
        }),
];
