//! The dominant cycle by Ehlers' Hilbert transform.

use super::{Formula, Function, INTEGER, ONE, REAL, TALIB, output};
use crate::family::Cycle;
use crate::graph::{NodeId, Op};

const GROUP: &str = "Cycle indicators";
const OVERLAP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    Function {
        name: "ht_dcperiod",
        aliases: &[],
        group: GROUP,
        summary: "period of the dominant cycle in bars",
        formula: "Hilbert transform of the smoothed price",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: ONE,
        build: |f| cycle(f, &[Cycle::Period]),
    },
    Function {
        name: "ht_dcphase",
        aliases: &[],
        group: GROUP,
        summary: "phase of the dominant cycle in degrees",
        formula: "Hilbert transform of the smoothed price",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: ONE,
        build: |f| cycle(f, &[Cycle::Phase]),
    },
    Function {
        name: "ht_phasor",
        aliases: &[],
        group: GROUP,
        summary: "phasor of the dominant cycle",
        formula: "the smoothed price without its trend, three bars late, and a quarter cycle ahead of it",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: &[output("inphase", &[]), output("quadrature", &[])],
        build: |f| cycle(f, &[Cycle::InPhase, Cycle::Quadrature]),
    },
    Function {
        name: "ht_sine",
        aliases: &[],
        group: GROUP,
        summary: "sine of the dominant cycle's phase",
        formula: "sine = sin(phase); leadsine = sin(phase + 45 degrees)",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: &[output("sine", &[]), output("leadsine", &["lead"])],
        build: |f| cycle(f, &[Cycle::Sine, Cycle::LeadSine]),
    },
    Function {
        name: "ht_trendmode",
        aliases: &[],
        group: GROUP,
        summary: "whether the price trends (1) or cycles (0)",
        formula: "0 where sine and leadsine crossed less than half a period ago or the phase turns at the period's rate; 1 otherwise, and where the smoothed price is 1.5 % or more off the trend line",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: INTEGER,
        build: |f| cycle(f, &[Cycle::TrendMode]),
    },
    Function {
        name: "ht_trendline",
        aliases: &[],
        group: OVERLAP,
        summary: "trend without the dominant cycle",
        formula: "(4m + 3m[1] + 2m[2] + m[3])/10, m = mean of the price over the period of the dominant cycle",
        reference: TALIB,
        series: &[REAL],
        params: &[],
        outputs: ONE,
        build: |f| cycle(f, &[Cycle::Trendline]),
    },
];

fn cycle(f: &mut Formula<'_>, results: &[Cycle]) -> Vec<NodeId> {
    let x = f.series(0);
    results.iter().map(|result| f.step(Op::Hilbert(*result), x)).collect()
}
