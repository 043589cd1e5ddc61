//! What launch graphs, bars that are brought ahead, and NCCL gain: each off and on, with the same bits.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use trawl_kernels::cuda::{CHUNK_BARS, ExecutorOptions, Fleet, GatherOptions, Gathers, Nccl, Search};
use trawl_kernels::stages::{EngineStage, Launches, Stages};
use trawl_kernels::{Executable, NoCancel, Precision};

use super::work::{Work, of_bits};
use super::{Opened, Report, ms};
use crate::gpu::figures::{compiled, inputs, market};

/// Histories that are computed in chunks, whose kernels are launched as graphs: few, so that launches count.
const LONG_SYMBOLS: u32 = 4;
/// Their bars, in chunks, at the least.
const LONG_CHUNKS: usize = 3;
/// Recursive steps at several levels: six kernels over chunks.
const LONG_PLAN: [&str; 3] = ["rsi(close,14)", "ema(ema(sma(close,20),9),7)", "ema(close,5) > ema(close,9)"];

impl Report {
    /// A sequence of kernels launched one by one, and as a graph.
    pub(super) fn graphs(
        &mut self,
        usual: &ExecutorOptions,
        open: &Opened<'_>,
        (bars, repeats): (u32, u32),
    ) -> Result<()> {
        let long = bars.max(u32::try_from(LONG_CHUNKS * CHUNK_BARS).unwrap_or(u32::MAX));
        let program = Executable::new(compiled(&LONG_PLAN)?.program(), Precision::F64);
        let market = market(LONG_SYMBOLS, long);
        let symbols = inputs(&program, &market)?;
        let from: Vec<usize> = symbols.iter().map(|symbol| symbol.visible.saturating_sub(1)).collect();
        let mut want: Option<Vec<u64>> = None;
        for (graphs, name) in [(false, "off"), (true, "on")] {
            let fleet = open(&ExecutorOptions { graphs, ..usual.clone() }, 1)?;
            let (mut best, mut kernels, mut launches) = (Duration::MAX, Duration::MAX, Launches::default());
            // The first run compiles, and a sequence is a graph from its second run on.
            for at in 0..repeats + 2 {
                let (begun, mut stages) = (Instant::now(), Stages::default());
                let values = fleet.evaluate_in_chunks(&program, &symbols, &from, None, &NoCancel, &mut stages)?;
                let took = begun.elapsed();
                let bits: Vec<u64> = values.iter().map(f64::to_bits).collect();
                if *want.get_or_insert_with(|| bits.clone()) != bits {
                    bail!("the bits differ with launch graphs: report this");
                }
                if at >= 2 {
                    let spans = stages.spans().iter().filter(|span| span.stage == EngineStage::Kernel);
                    let computing = spans.map(|span| span.ended.saturating_duration_since(span.started)).sum();
                    (best, kernels, launches) = (best.min(took), kernels.min(computing), stages.launches());
                }
            }
            let Launches { kernels: count, calls } = launches;
            let more = format!(
                ", kernels {:.3} ms; {count} kernels by {calls} launches, {} saved",
                ms(kernels),
                launches.saved()
            );
            let what = format!("{LONG_SYMBOLS} long histories, graphs: {name}");
            self.time(&format!("graphs_{name}"), &what, best, &more);
            self.figure(format!("graphs_{name}_kernels_ms"), ms(kernels));
            self.figure(format!("graphs_{name}_launches_saved"), launches.saved());
        }
        Ok(())
    }

    /// Bars that no device has, in two calls: the second one's are brought while the first is computed, or not.
    pub(super) fn prefetching(
        &mut self,
        work: &Work<'_>,
        usual: &ExecutorOptions,
        open: &Opened<'_>,
        repeats: u32,
        want: &mut Vec<u64>,
    ) -> Result<()> {
        for (prefetch, name) in [(false, "off"), (true, "on")] {
            let fleet = open(&ExecutorOptions { prefetch, ..usual.clone() }, 1)?;
            work.checked(&fleet, false, want)?;
            let mut best = Duration::MAX;
            for at in 0..repeats {
                best = best.min(of_bits(work.run_ahead(&fleet, &format!("ahead {at}"))?, want)?.took);
            }
            let done = fleet.prefetches();
            let share = done.hidden_share();
            let more = format!(", {:.0}% of the copies hidden", share * 100.0);
            self.time(&format!("prefetch_{name}"), &format!("two calls, prefetching: {name}"), best, &more);
            self.figure(format!("prefetch_{name}_hidden_share"), share);
            self.figure(format!("prefetch_{name}_brought_bytes"), done.brought_bytes);
        }
        Ok(())
    }

    /// A cross-section gathered by the host, and by the devices through NCCL: with one device too, which shows that the library works.
    pub(super) fn gathering(
        &mut self,
        work: &Work<'_>,
        usual: &ExecutorOptions,
        open: &Opened<'_>,
        (count, repeats): (usize, u32),
        want: &mut Vec<u64>,
    ) -> Result<()> {
        let best = |fleet: &Fleet, want: &mut Vec<u64>| -> Result<Duration> {
            let mut best = Duration::MAX;
            for at in 0..=repeats {
                let took = of_bits(work.run_gathered(fleet)?, want)?.took;
                best = if at == 0 { best } else { best.min(took) };
            }
            Ok(best)
        };
        let mut devices: Vec<usize> = vec![1, count];
        devices.dedup();
        for devices in devices {
            let fleet = open(usual, devices)?;
            let took = best(&fleet, want)?;
            self.time(
                &format!("gathered_by_host_{devices}"),
                &format!("gathered by the host, devices: {devices}"),
                took,
                "",
            );
            drop(fleet);
            let mut fleet = open(usual, devices)?;
            let connected = Nccl::find(&Search::of_environment())
                .and_then(|nccl| fleet.gather_by(Box::new(nccl), GatherOptions { bytes_min: 0, ..Default::default() }));
            let what = format!("gathered by NCCL, devices: {devices}");
            if let Err(why) = connected {
                self.figure(format!("gathered_by_nccl_{devices}_refused"), why.clone());
                self.line(what, why);
                continue;
            }
            let took = best(&fleet, want)?;
            let Gathers { by_devices, by_host } = fleet.gathers();
            let over = fleet.gathering_over().map_or_else(String::new, |why| format!("; {why}"));
            let more = format!(", {by_devices} times by devices, {by_host} times by the host after that failed{over}");
            self.time(&format!("gathered_by_nccl_{devices}"), &what, took, &more);
            self.figure(format!("gathers_by_nccl_{devices}"), json!({ "by_devices": by_devices, "by_host": by_host }));
        }
        Ok(())
    }
}
