//! A lowered plan: its pieces lowered once, and constants needed for rows, shared by all segments, times and threads.

use std::sync::{Arc, OnceLock};

use trawl_kernels::{Executable, Forgetting, Precision};
use trawl_plan::Plan;

/// A plan whose pieces are lowered for one precision. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ExecutablePlan(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    plan: Arc<Plan>,
    fingerprint: OnceLock<String>,
    precision: Precision,
    /// `[stage][piece]`.
    stages: Vec<Vec<Executable>>,
    /// Per point: number of bars that its condition needs before it is defined.
    bars_needed: Vec<usize>,
    /// Number of values per symbol from the last stage.
    outputs: usize,
    /// Of a plan of one program.
    forgetting: OnceLock<Option<Forgetting>>,
}

impl ExecutablePlan {
    /// Lowers every piece of the plan.
    pub fn new(plan: Arc<Plan>, precision: Precision) -> Self {
        let look_backs = plan.look_backs();
        let needed =
            |condition: Option<trawl_plan::graph::NodeId>| condition.map_or(0, |id| look_backs[id.index()]) + 1;
        let pieces = |stage: &trawl_plan::Stage| {
            stage.pieces.iter().map(|piece| Executable::new(&piece.program, precision)).collect()
        };
        Self(Arc::new(Inner {
            stages: plan.stages().iter().map(pieces).collect(),
            bars_needed: plan.points.iter().map(|point| needed(point.condition)).collect(),
            outputs: plan.outputs().count(),
            precision,
            fingerprint: OnceLock::new(),
            forgetting: OnceLock::new(),
            plan,
        }))
    }

    /// The plan that was lowered.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.0.plan
    }

    /// [`Plan::fingerprint`], computed once.
    pub fn fingerprint(&self) -> &str {
        self.0.fingerprint.get_or_init(|| self.0.plan.fingerprint())
    }

    /// Precision of the arithmetic.
    pub fn precision(&self) -> Precision {
        self.0.precision
    }

    /// What the means of a plan of one program forget; `None` if a step of it does not, or there are several programs.
    pub fn forgetting(&self) -> Option<&Forgetting> {
        let made = || {
            let mut pieces = self.pieces();
            let only = pieces.next().filter(|_| pieces.next().is_none())?;
            Forgetting::of(only.program(), self.0.precision)
        };
        self.0.forgetting.get_or_init(made).as_ref()
    }

    /// The pieces of a stage, in its order; empty if the plan has no such stage.
    pub fn stage(&self, number: usize) -> &[Executable] {
        self.0.stages.get(number).map_or(&[], Vec::as_slice)
    }

    /// All pieces, stage by stage.
    pub fn pieces(&self) -> impl Iterator<Item = &Executable> {
        self.0.stages.iter().flatten()
    }

    /// Bytes that the plan and its lowered pieces take in memory, about.
    pub fn bytes(&self) -> usize {
        self.0.plan.bytes() + self.pieces().map(Executable::bytes).sum::<usize>()
    }

    /// Working memory in bytes per thread, besides the bars, for histories of up to `bars` bars.
    pub fn workspace_bytes(&self, bars: usize) -> u64 {
        self.pieces().map(|piece| piece.workspace_bytes(bars)).max().unwrap_or(0)
    }

    /// Per point: number of bars that its condition needs before it is defined.
    pub fn bars_needed(&self) -> &[usize] {
        &self.0.bars_needed
    }

    /// Number of values per symbol from the last stage.
    pub(crate) fn outputs(&self) -> usize {
        self.0.outputs
    }
}
