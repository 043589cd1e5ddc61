//! What names a scan that a worker has prepared. Requests carry this key in any case; the document follows only where the worker does
//! not have the scan.
//!
//! A worker marks its reply when it keeps what it prepared, and from then on a coordinator may leave the document out. It never
//! does so for a worker that has not said so: workers of earlier releases get every document. What a worker has dropped meanwhile
//! it answers with a mark of its own, which is neither a failure nor a refusal.

use tonic::metadata::{MetadataMap, MetadataValue};

use crate::error::status_of;
use crate::{ErrorKind, pb};

/// Metadata key of [`PlanAtWorker`], in the headers of a reply or in a status.
const PLAN_METADATA_KEY: &str = "trawl-plan";

/// Everything that the results of a scan's segments depend on, beside the segment and the step's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanKey {
    /// The plan's fingerprint.
    pub plan: String,
    /// `NAME@SNAPSHOT`.
    pub dataset: String,
    /// Microseconds since 1970-01-01 UTC.
    pub as_of_us: i64,
    /// As in the answer's identity.
    pub adjustment: String,
    /// The execution class.
    pub class: Option<pb::ExecutionClass>,
}

impl PlanKey {
    /// The key in a request.
    pub fn of(request: &pb::ShardRequest) -> Self {
        Self {
            plan: request.plan_fingerprint.clone(),
            dataset: request.dataset.clone(),
            as_of_us: request.as_of_us,
            adjustment: request.adjustment.clone(),
            class: request.execution_class.clone(),
        }
    }
}

/// What a worker says about the plan of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanAtWorker {
    /// It keeps it: the next request may leave the document out.
    Kept,
    /// The request had no document, and it does not have the plan: the same request with the document will be run.
    Unknown,
}

impl PlanAtWorker {
    fn value(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Unknown => "unknown",
        }
    }

    /// Marks a reply.
    pub fn mark(self, metadata: &mut MetadataMap) {
        metadata.insert(PLAN_METADATA_KEY, MetadataValue::from_static(self.value()));
    }

    /// The mark of a reply or of a status; `None` if it has none, or one that this release does not know.
    pub fn of(metadata: &MetadataMap) -> Option<Self> {
        let value = metadata.get(PLAN_METADATA_KEY)?.to_str().ok()?;
        [Self::Kept, Self::Unknown].into_iter().find(|one| one.value() == value)
    }
}

/// The reply to a request without a document, of a worker that does not have the plan.
pub fn unknown_plan() -> tonic::Status {
    let message = "this worker does not have the plan: send the document";
    // Whoever does not know the mark may try again.
    let mut status = status_of(tonic::Code::NotFound, ErrorKind::Retryable, message);
    PlanAtWorker::Unknown.mark(status.metadata_mut());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_made_and_others_are_none() {
        for mark in [PlanAtWorker::Kept, PlanAtWorker::Unknown] {
            let mut metadata = MetadataMap::new();
            assert_eq!(PlanAtWorker::of(&metadata), None);
            mark.mark(&mut metadata);
            assert_eq!(PlanAtWorker::of(&metadata), Some(mark));
        }
        let mut later = MetadataMap::new();
        later.insert(PLAN_METADATA_KEY, MetadataValue::from_static("of a later release"));
        assert_eq!(PlanAtWorker::of(&later), None);
        assert_eq!(PlanAtWorker::of(unknown_plan().metadata()), Some(PlanAtWorker::Unknown));
    }

    #[test]
    fn every_field_that_values_depend_on_is_in_the_key() {
        let class = |backend: &str| pb::ExecutionClass { backend: backend.to_owned(), ..pb::ExecutionClass::default() };
        let request = pb::ShardRequest {
            plan_fingerprint: "p".to_owned(),
            dataset: "m@1".to_owned(),
            as_of_us: 7,
            adjustment: "none".to_owned(),
            execution_class: Some(class("cpu")),
            ..pb::ShardRequest::default()
        };
        let changed: [fn(&mut pb::ShardRequest); 5] = [
            |r| r.plan_fingerprint.push('q'),
            |r| r.dataset.push('2'),
            |r| r.as_of_us += 1,
            |r| r.adjustment = "split@2020-01-01".to_owned(),
            |r| r.execution_class = None,
        ];
        for change in changed {
            let mut other = request.clone();
            change(&mut other);
            assert_ne!(PlanKey::of(&other), PlanKey::of(&request), "{other:?}");
        }
        let other = pb::ShardRequest { execution_class: Some(class("cuda")), ..request.clone() };
        assert_ne!(PlanKey::of(&other), PlanKey::of(&request));
        // What may differ between the shards of one scan is not.
        let other =
            pb::ShardRequest { segments: vec![1], attempt: 9, stage: 1, document_json: "{}".into(), ..request.clone() };
        assert_eq!(PlanKey::of(&other), PlanKey::of(&request));
    }
}
