//! Volume.

use super::{CLOSE, Formula, Function, HIGH, LOW, ONE, TALIB, VOLUME};
use crate::graph::{Binary, NodeId, Op};

const GROUP: &str = "Volume indicators";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "obv",
        aliases: &[],
        group: GROUP,
        summary: "on-balance volume",
        formula: "starts at the first bar's volume; adds the volume of bars that close higher, takes away that of bars that close lower",
        reference: TALIB,
        series: &[CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| vec![f.step_of(Op::OnBalance, &[f.series(0), f.series(1)])],
    },
    Function {
        name: "vwap",
        aliases: &[],
        group: GROUP,
        summary: "volume-weighted average price over the whole history",
        formula: "running sum of t*volume / running sum of volume, t = (high + low + close)/3",
        reference: TALIB,
        series: &[HIGH, LOW, CLOSE, VOLUME],
        params: &[],
        outputs: ONE,
        build: |f| {
            let typical = f.typical(f.series(0), f.series(1), f.series(2));
            vec![running(f, typical, f.series(3))]
        },
    },
];

/// The volume-weighted mean of `x` from the first bar on.
pub(super) fn running(f: &mut Formula<'_>, x: NodeId, volume: NodeId) -> NodeId {
    let value = f.multiply(x, volume);
    // Both sums skip the same bars.
    let value = f.gate(value, value);
    let volume = f.gate(volume, value);
    let value = f.step(Op::Cumulative, value);
    let volume = f.step(Op::Cumulative, volume);
    f.binary(Binary::RatioOrZero, value, volume)
}
