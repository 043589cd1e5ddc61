//! A client's request: its checks that need no scan, and its translation.

use std::time::{Duration, Instant};

use tonic::{Code, Status};
use trawl_market::AsOf;
use trawl_plan::ScanDocument;
use trawl_security::{Caller, PriorityLimit};
use trawl_wire::error::status_of;
use trawl_wire::limits::{speaks, spoken};
use trawl_wire::{ErrorKind, pb};

use super::scans::{Asked, Document, now_us};
use crate::durable::RequestMark;
use crate::planner::ShardSpec;
use crate::scheduler::Priority;
use crate::worker_class::is_backend;

/// Checks the protocol of a client.
pub(super) fn check_version(asked: u32) -> Result<(), Status> {
    if speaks(asked) {
        return Ok(());
    }
    let message = format!("protocol version {asked} was asked for, this coordinator speaks {}", spoken());
    Err(status_of(Code::FailedPrecondition, ErrorKind::Invalid, &message))
}

/// The as-of of a request; clients of protocol 2 send the start of a bar.
pub(super) fn as_of(request: &pb::ScanRequest) -> Result<AsOf, Status> {
    if request.as_of.is_empty() {
        return Ok(request.as_of_us.into());
    }
    AsOf::parse(&request.as_of).map_err(|mistake| {
        let message = format!("as-of: {mistake}; {}", mistake.help);
        status_of(Code::InvalidArgument, ErrorKind::Invalid, &message)
    })
}

/// Checks a request against what its caller may take, apart from quotas.
pub(super) fn check_allowance(caller: &Caller, request: &pb::ScanRequest) -> Result<(), Status> {
    let (limit, name) = (caller.allowance.priority, &caller.name);
    let asked = match request.priority() {
        pb::Priority::Low => PriorityLimit::Low,
        pb::Priority::Normal => PriorityLimit::Normal,
        pb::Priority::High => PriorityLimit::High,
    };
    if asked > limit {
        let message = format!("priority {} is not granted to {name}: at most {}", asked.name(), limit.name());
        return Err(status_of(Code::PermissionDenied, ErrorKind::Invalid, &message));
    }
    if caller.allowance.datasets.is_empty() {
        return Ok(());
    }
    // Before anything is opened, so that the reply does not depend on which datasets there are. A document that cannot
    // be read is refused when it is prepared.
    let Ok(document) = ScanDocument::from_json(&request.document_json) else { return Ok(()) };
    let dataset = document.dataset.as_deref().unwrap_or_default().split('@').next().unwrap_or_default().to_owned();
    if dataset.is_empty() || caller.allowance.admits_dataset(&dataset) {
        return Ok(());
    }
    let message = format!("dataset '{dataset}' is not granted to {name}: {}", caller.allowance.datasets.join(", "));
    Err(status_of(Code::PermissionDenied, ErrorKind::Invalid, &message))
}

/// Checks the backend that a client names.
pub(super) fn check_backend(backend: &str) -> Result<(), Status> {
    if backend.is_empty() || is_backend(backend) {
        return Ok(());
    }
    let message = format!("backend '{backend}' is not known: 'cpu' or 'cuda' is expected, or none");
    Err(status_of(Code::InvalidArgument, ErrorKind::Invalid, &message))
}

/// A request as it is kept.
pub(super) fn asked(request: pb::ScanRequest, as_of: AsOf, mark: Option<RequestMark>, caller: &Caller) -> Asked {
    let received = Instant::now();
    let priority = match request.priority() {
        pb::Priority::Low => Priority::Low,
        pb::Priority::Normal => Priority::Normal,
        pb::Priority::High => Priority::High,
    };
    let allowed = request.deadline_ms.map(Duration::from_millis);
    Asked {
        backend: Some(request.backend).filter(|backend| !backend.is_empty()),
        document: Document::Here(request.document_json),
        as_of,
        shards: match request.shards.and_then(|s| s.spec) {
            None | Some(pb::shard_spec::Spec::PerSegment(false)) => ShardSpec::Automatic,
            Some(pb::shard_spec::Spec::Count(count)) => ShardSpec::Count(count),
            Some(pb::shard_spec::Spec::PerSegment(true)) => ShardSpec::PerSegment,
        },
        priority,
        allowed,
        // A limit beyond the range of the clock counts as none.
        deadline: allowed.and_then(|time| received.checked_add(time)),
        allow_partial: request.allow_partial,
        durable: !request.ephemeral,
        datasets: caller.allowance.datasets.clone(),
        received,
        submitted_us: now_us(),
        mark,
    }
}
