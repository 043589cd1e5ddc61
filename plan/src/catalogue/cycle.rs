//! The dominant cycle by Ehlers' Hilbert transform.

use super::*;

const GROUP: &str = "Cycle indicators";
const OVERLAP: &str = "Overlap studies";

pub(super) const LIST: &[Function] = &[
    Function::new("ht_dcperiod", GROUP)
        .summary("period of the dominant cycle in bars")
        .formula("Hilbert transform of the smoothed price")
        .series(&[REAL])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::Hilbert(Cycle::Period))),
    Function::new("ht_dcphase", GROUP)
        .summary("phase of the dominant cycle in degrees")
        .formula("Hilbert transform of the smoothed price")
        .series(&[REAL])
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::Hilbert(Cycle::Phase))),
    Function::new("ht_phasor", GROUP)
        .summary("phasor of the dominant cycle")
        .formula("the smoothed price without its trend, three bars late, and a quarter cycle ahead of it")
        .series(&[REAL])
        .outputs(&[output("inphase", &[]), output("quadrature", &[])])
        .numbers(|f| [Cycle::InPhase, Cycle::Quadrature].map(|result| f.x().step(Op::Hilbert(result))).to_vec()),
    Function::new("ht_sine", GROUP)
        .summary("sine of the dominant cycle's phase")
        .formula("sine = sin(phase); leadsine = sin(phase + 45 degrees)")
        .series(&[REAL])
        .outputs(&[output("sine", &[]), output("leadsine", &["lead"])])
        .scaling(Scaling::PURE)
        .numbers(|f| [Cycle::Sine, Cycle::LeadSine].map(|result| f.x().step(Op::Hilbert(result))).to_vec()),
    Function::new("ht_trendmode", GROUP)
        .summary("whether the price trends (1) or cycles (0)")
        .formula(
            "0 where sine and leadsine crossed less than half a period ago or the phase turns at the period's \
             rate; 1 otherwise, and where the smoothed price is 1.5 % or more off the trend line",
        )
        .series(&[REAL])
        .integer()
        .scaling(Scaling::PURE)
        .number(|f| f.x().step(Op::Hilbert(Cycle::TrendMode))),
    Function::new("ht_trendline", OVERLAP)
        .summary("trend without the dominant cycle")
        .formula("(4m + 3m[1] + 2m[2] + m[3])/10, m = mean of the price over the period of the dominant cycle")
        .series(&[REAL])
        .number(|f| f.x().step(Op::Hilbert(Cycle::Trendline))),
];
