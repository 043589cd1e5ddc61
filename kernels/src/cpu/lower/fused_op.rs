//! The operation of a task: one primitive, or a group of primitives run in one pass.

use std::sync::Arc;

#[cfg(test)]
use trawl_plan::catalogue::Fused;
use trawl_plan::graph::{Bits, Op};

use crate::cpu::primitives::count::Counted;
use crate::cpu::primitives::trend::{self, TrendMean};

/// The operation of a task. See `composite` for the groups.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FusedOp {
    /// One primitive.
    Op(Op),
    TrueRange,
    SumOver(Bits),
    PairOver(Bits),
    Apart,
    PlusScaled(Bits),
    MinusScaled(Bits),
    Within,
    ZScore(Bits),
    Flows,
    Share,
    Bands {
        up: Bits,
        down: Bits,
    },
    AverageRange(u32),
    Strength(u32),
    Convergence {
        fast: u32,
        delay: u32,
        slow: u32,
        signal: u32,
    },
    Directional(u32),
    Weighed,
    /// On how many of the last `p` bars a comparison of two series held.
    Count {
        of: Counted,
        p: u32,
    },
    /// Averages of one series computed in one pass, in the order of the outputs.
    TrendMeans(Arc<[TrendMean]>),
}

impl FusedOp {
    /// The group as declarations name it; `None` for one primitive.
    #[cfg(test)]
    pub fn group(&self) -> Option<Fused> {
        Some(match self {
            // A count of a comparison is in no function: a user writes the comparison.
            Self::Op(_) | Self::Count { .. } => return None,
            Self::TrueRange => Fused::TrueRange,
            Self::SumOver(_) => Fused::SumOver,
            Self::PairOver(_) => Fused::PairOver,
            Self::Apart => Fused::Apart,
            Self::PlusScaled(_) => Fused::PlusScaled,
            Self::MinusScaled(_) => Fused::MinusScaled,
            Self::Within => Fused::Within,
            Self::ZScore(_) => Fused::ZScore,
            Self::Flows => Fused::Flows,
            Self::Share => Fused::Share,
            Self::Bands { .. } => Fused::Bands,
            Self::AverageRange(_) => Fused::AverageRange,
            Self::Strength(_) => Fused::Strength,
            Self::Convergence { .. } => Fused::Convergence,
            Self::Directional(_) => Fused::Directional,
            Self::Weighed => Fused::Weighed,
            Self::TrendMeans(_) => Fused::TrendMeans,
        })
    }

    /// Whether it runs from the first bar.
    pub fn is_recursive(&self) -> bool {
        match self {
            Self::Op(op) => op.facts().is_recursive(),
            Self::TrendMeans(means) => means.iter().any(|m| m.op().facts().is_recursive()),
            Self::AverageRange(_) | Self::Strength(_) | Self::Convergence { .. } | Self::Directional(_) => true,
            Self::Weighed => true,
            Self::TrueRange
            | Self::SumOver(_)
            | Self::PairOver(_)
            | Self::Apart
            | Self::PlusScaled(_)
            | Self::MinusScaled(_)
            | Self::Within
            | Self::ZScore(_)
            | Self::Flows
            | Self::Share
            | Self::Bands { .. }
            | Self::Count { .. } => false,
        }
    }

    /// Number of rows that it runs along a history before the first wanted one, in place of reading them back from its inputs.
    pub fn warms_up(&self) -> usize {
        match self {
            Self::Count { p, .. } => (*p as usize).saturating_sub(1),
            _ => 0,
        }
    }

    /// Number of rows before the current one that it reads from its inputs along a history.
    pub fn reads_back_along(&self) -> usize {
        self.reads_back() - self.warms_up()
    }

    /// Number of rows before the current one that its value depends on directly: those that it reads from its inputs in a tile
    /// that stays in memory.
    pub fn reads_back(&self) -> usize {
        match self {
            Self::Op(op) => op.facts().reads_back,
            Self::TrendMeans(means) => trend::reads_back(means),
            Self::Count { of, p } => (*p as usize).saturating_sub(1) + of.reads_back(),
            // Past values that these groups need are among their inputs or their state.
            Self::TrueRange
            | Self::SumOver(_)
            | Self::PairOver(_)
            | Self::Apart
            | Self::PlusScaled(_)
            | Self::MinusScaled(_)
            | Self::Within
            | Self::ZScore(_)
            | Self::Flows
            | Self::Share
            | Self::Bands { .. }
            | Self::AverageRange(_)
            | Self::Strength(_)
            | Self::Convergence { .. }
            | Self::Directional(_)
            | Self::Weighed => 0,
        }
    }
}
