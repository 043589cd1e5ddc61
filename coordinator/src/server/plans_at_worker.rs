//! The plans that a worker keeps, as it said in its replies: what is sent to it under their keys needs no document.
//!
//! It is a guess, since the worker may have dropped them meanwhile; then it asks for the document. It ends with the worker's process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use trawl_wire::plan_key::PlanKey;

/// Maximum number of plans that are remembered of one worker; some more than a worker keeps. Least recently used first.
const PLANS_MAX: usize = 128;

/// Keys of plans, most recently used last.
#[derive(Debug, Default)]
pub(crate) struct PlansAtWorker(Mutex<VecDeque<PlanKey>>);

impl PlansAtWorker {
    fn held(&self) -> MutexGuard<'_, VecDeque<PlanKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the worker said that it keeps a plan.
    pub fn has(&self, key: &PlanKey) -> bool {
        self.held().contains(key)
    }

    /// Notes that it keeps one.
    pub fn keep(&self, key: PlanKey) {
        let mut held = self.held();
        held.retain(|kept| *kept != key);
        held.push_back(key);
        if held.len() > PLANS_MAX {
            held.pop_front();
        }
    }

    /// Notes that it has dropped one.
    pub fn forget(&self, key: &PlanKey) {
        self.held().retain(|kept| kept != key);
    }
}

#[cfg(test)]
mod tests {
    use trawl_wire::pb::ShardRequest;

    use super::*;

    #[test]
    fn what_a_worker_keeps_is_remembered_until_it_says_otherwise_and_within_bounds() {
        let key = |as_of_us| PlanKey::of(&ShardRequest { as_of_us, ..ShardRequest::default() });
        let plans = PlansAtWorker::default();
        assert!(!plans.has(&key(0)));
        let most = i64::try_from(PLANS_MAX).unwrap();
        (0..most).for_each(|number| plans.keep(key(number)));
        plans.keep(key(0));
        plans.keep(key(most));
        assert!(plans.has(&key(0)) && plans.has(&key(most)) && !plans.has(&key(1)));
        plans.forget(&key(0));
        assert!(!plans.has(&key(0)) && plans.has(&key(2)));
    }
}
