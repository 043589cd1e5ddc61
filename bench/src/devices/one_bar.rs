//! One new bar of every symbol, from states that stay in memory: by each route, and by the one that is chosen from what they took.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use trawl_kernels::cuda::ExecutorOptions;
use trawl_kernels::{Engine, NoCancel, Route, RoutedStates, SymbolInput};

use super::work::Work;
use super::{Opened, Report};

/// Bars that are pushed by each route: W1's windows repeat after so many.
const PUSHES_MAX: usize = 140;
/// Share of the history, one in so many, that is pushed by one route at most.
const HISTORY_SHARE: usize = 8;

impl Report {
    /// Each route in turn, and the chosen one; values are compared with those of the whole histories.
    pub(super) fn one_bar(&mut self, work: &Work<'_>, usual: &ExecutorOptions, open: &Opened<'_>) -> Result<()> {
        let last = work.symbols.iter().map(|symbol| symbol.visible).min().unwrap_or(0);
        let pushes = (last / HISTORY_SHARE).min(PUSHES_MAX);
        if pushes == 0 {
            return Ok(());
        }
        let engine = Engine::Device(Arc::new(open(usual, 1)?));
        let mut best = f64::INFINITY;
        for only in [Some(Route::Sequential), Some(Route::Threads), Some(Route::Device), None] {
            let until = |visible: usize| -> Vec<SymbolInput<'_>> {
                work.symbols.iter().map(|symbol| SymbolInput { visible, ..symbol.clone() }).collect()
            };
            let first = until(last - pushes);
            let mut states = RoutedStates::new(&work.program, &first, &engine, &NoCancel)?;
            if let (Some(Route::Device), Some(why)) = (only, states.without_device()) {
                self.figure("one_bar_device_refused", why);
                self.line("one new bar, device", why);
                continue;
            }
            states.take_only(only);
            let mut times: Vec<f64> = Vec::with_capacity(pushes);
            for bar in last - pushes..last {
                let columns: Vec<Vec<f64>> = (0..work.program.inputs.len())
                    .map(|column| work.symbols.iter().map(|symbol| symbol.columns[column][bar]).collect())
                    .collect();
                let columns: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
                let begun = Instant::now();
                states.push(&columns, None)?;
                times.push(begun.elapsed().as_secs_f64());
                // Between bars, when nobody waits.
                states.catch_up();
            }
            let want = work.program.evaluate_last(&until(last), &NoCancel)?;
            let differs = want.iter().enumerate().any(|(symbol, values)| {
                values.iter().enumerate().any(|(output, x)| x.to_bits() != states.value(symbol, output).to_bits())
            });
            if differs {
                bail!("the bits of resident states differ: report this");
            }
            let all: f64 = times.iter().sum();
            times.sort_by(f64::total_cmp);
            let median = Duration::from_secs_f64(times[times.len() / 2]);
            match only {
                Some(route) => {
                    best = best.min(all);
                    let what = format!("one new bar, {}", route.name());
                    self.time(&format!("one_bar_{}", route.name()), &what, median, "");
                }
                None => {
                    let (routing, regret) = (states.routing(), all / best - 1.0);
                    let taken: Vec<String> =
                        routing.routes.iter().map(|used| format!("{} {}", used.route.name(), used.pushes)).collect();
                    let more = format!(
                        ", regret {:.1}% against the best route alone, {:.1}% by its own times; {}",
                        regret * 100.0,
                        routing.regret * 100.0,
                        taken.join(", ")
                    );
                    self.time("one_bar_routed", "one new bar, routed", median, &more);
                    self.figure("one_bar_regret", regret);
                    self.figure("one_bar_regret_by_router", routing.regret);
                    for used in &routing.routes {
                        self.figure(format!("one_bar_routed_{}", used.route.name()), json!(used.pushes));
                    }
                }
            }
        }
        Ok(())
    }
}
