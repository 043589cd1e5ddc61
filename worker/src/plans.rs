//! Cache of compiled plans: the shards of a scan use the same plan in every step.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::executable::ExecutablePlan;

/// Maximum number of plans; evicted least recently used first.
const PLANS_MAX: usize = 16;
/// Maximum number of nodes of all cached plans except the newest, which is kept regardless of its size.
const NODES_MAX: usize = 1 << 20;

/// The key: what a plan is compiled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// `NAME@SNAPSHOT`.
    pub dataset: String,
    /// Symbol names are resolved as of this time, in microseconds since 1970.
    pub as_of_us: i64,
    /// The document as it was sent.
    pub document: String,
}

/// Compiled plans, most recently used last.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<VecDeque<(Asked, ExecutablePlan)>>);

impl Plans {
    /// A panicked thread leaves the list unchanged.
    fn held(&self) -> MutexGuard<'_, VecDeque<(Asked, ExecutablePlan)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan, if it is cached.
    pub fn known(&self, asked: &Asked) -> Option<ExecutablePlan> {
        let mut kept = self.held();
        let at = kept.iter().position(|(known, _)| known == asked)?;
        let found = kept.remove(at)?;
        let plan = found.1.clone();
        kept.push_back(found);
        Some(plan)
    }

    /// Adds a plan to the cache.
    pub fn keep(&self, asked: Asked, plan: &ExecutablePlan) {
        let mut kept = self.held();
        kept.retain(|(known, _)| *known != asked);
        kept.push_back((asked, plan.clone()));
        let nodes = |kept: &VecDeque<(Asked, ExecutablePlan)>| -> usize {
            kept.iter().map(|(_, plan)| plan.plan().nodes().len()).sum()
        };
        while kept.len() > 1 && (kept.len() > PLANS_MAX || nodes(&kept) > NODES_MAX) {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trawl_kernels::Precision;
    use trawl_plan::{ScanDocument, Schema, compile_scan};

    use super::*;

    fn asked(number: i64) -> Asked {
        Asked { dataset: "m@1".to_owned(), as_of_us: number, document: "{}".to_owned() }
    }

    fn plan() -> ExecutablePlan {
        let document = ScanDocument { condition: "close > 1".to_owned(), ..ScanDocument::default() };
        let plan = compile_scan(&document, &Schema::of_columns(vec!["close".to_owned()])).unwrap();
        ExecutablePlan::new(Arc::new(plan), Precision::F64)
    }

    #[test]
    fn a_plan_is_known_by_all_that_it_is_compiled_from() {
        let (plans, plan) = (Plans::default(), plan());
        plans.keep(asked(1), &plan);
        let known = plans.known(&asked(1)).expect("it was kept");
        assert!(Arc::ptr_eq(known.plan(), plan.plan()), "the same plan, not another one like it");
        assert!(plans.known(&asked(2)).is_none());
        assert!(plans.known(&Asked { dataset: "m@2".to_owned(), ..asked(1) }).is_none());
        assert!(plans.known(&Asked { document: "{ }".to_owned(), ..asked(1) }).is_none());
    }

    #[test]
    fn the_plan_that_was_not_asked_for_longest_goes_first() {
        let (plans, plan) = (Plans::default(), plan());
        let most = i64::try_from(PLANS_MAX).unwrap();
        (0..most).for_each(|number| plans.keep(asked(number), &plan));
        assert!(plans.known(&asked(0)).is_some());
        plans.keep(asked(most), &plan);
        assert!(plans.known(&asked(1)).is_none());
        assert!(plans.known(&asked(0)).is_some() && plans.known(&asked(most)).is_some());
    }
}
