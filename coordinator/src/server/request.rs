//! A client's request: its checks that need no scan, and its translation.

use std::time::{Duration, Instant};

use tonic::{Code, Status};
use trawl_market::AsOf;
use trawl_plan::ScanDocument;
use trawl_security::Caller;
use trawl_terms::Priority;
use trawl_wire::error::status_of;
use trawl_wire::limits::{SEGMENTS_MAX, speaks, spoken};
use trawl_wire::{ErrorKind, pb};

use super::scans::{Asked, Document, now_us};
use crate::durable::RequestMark;
use crate::planner::ShardSpec;
use crate::worker_class::is_backend;

/// Checks the protocol of a client.
pub(super) fn check_version(asked: u32) -> Result<(), Status> {
    if speaks(asked) {
        return Ok(());
    }
    let message = format!("protocol version {asked} was asked for, this coordinator speaks {}", spoken());
    Err(status_of(Code::FailedPrecondition, ErrorKind::Invalid, &message))
}

/// The as-of of a request; clients of protocol 2 send the start of a bar, and later ones where it is all that they know.
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
    let asked = Priority::from(request.priority());
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

/// Checks the segments that a client says it has.
pub(super) fn check_have(have: &[u32]) -> Result<(), Status> {
    if have.len() <= SEGMENTS_MAX {
        return Ok(());
    }
    let message = format!("{} segments are named as known, a scan has at most {SEGMENTS_MAX}", have.len());
    Err(status_of(Code::InvalidArgument, ErrorKind::Invalid, &message))
}

/// Which scans a list shows.
#[derive(Debug)]
pub(super) struct ListFilter<'a> {
    request: &'a pb::ListScansRequest,
}

impl<'a> ListFilter<'a> {
    /// That of a request.
    pub fn of(request: &'a pb::ListScansRequest) -> Result<Self, Status> {
        let known = |state: &i32| pb::ScanState::try_from(*state).is_ok_and(|s| s != pb::ScanState::Unspecified);
        if request.states.iter().all(known) {
            return Ok(Self { request });
        }
        Err(status_of(Code::InvalidArgument, ErrorKind::Invalid, "a state of scans that is not known is asked for"))
    }

    /// Whether it shows a scan.
    pub fn admits(&self, scan: &pb::ScanInfo) -> bool {
        let pb::ListScansRequest { states, owner, dataset, submitted_from_us, submitted_before_us, .. } = self.request;
        let of_dataset = || match dataset.split_once('@') {
            // The dataset as it is shown has its whole snapshot.
            Some(_) => scan.dataset.starts_with(dataset.as_str()),
            None => scan.dataset.split('@').next() == Some(dataset.as_str()),
        };
        (states.is_empty() || states.contains(&scan.state))
            && (owner.is_empty() || scan.owner == *owner)
            && (dataset.is_empty() || of_dataset())
            && submitted_from_us.is_none_or(|from| scan.submitted_us >= from)
            && submitted_before_us.is_none_or(|before| scan.submitted_us < before)
    }
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
pub(super) fn asked(
    request: pb::ScanRequest,
    as_of: AsOf,
    mark: Option<RequestMark>,
    caller: &Caller,
) -> (Asked, Document) {
    let received = Instant::now();
    let priority = request.priority().into();
    let allowed = request.deadline_ms.map(Duration::from_millis);
    let document = Document::Here(request.document_json.into());
    let asked = Asked {
        backend: Some(request.backend).filter(|backend| !backend.is_empty()),
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
        fresh: request.fresh,
        profile: request.profile,
        durable: !request.ephemeral,
        datasets: caller.allowance.datasets.clone(),
        received,
        submitted_us: now_us(),
        mark,
    };
    (asked, document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_the_scans_that_fit_every_filter() {
        let scan = pb::ScanInfo {
            state: pb::ScanState::Done.into(),
            owner: "user ana".to_owned(),
            dataset: "us@0123abcd".to_owned(),
            submitted_us: 100,
            ..pb::ScanInfo::default()
        };
        let admits = |request: pb::ListScansRequest| ListFilter::of(&request).unwrap().admits(&scan);
        let none = pb::ListScansRequest::default;
        assert!(admits(none()));
        let done = vec![pb::ScanState::Failed.into(), pb::ScanState::Done.into()];
        assert!(admits(pb::ListScansRequest { states: done, ..none() }));
        assert!(!admits(pb::ListScansRequest { states: vec![pb::ScanState::Running.into()], ..none() }));
        for (owner, expected) in [("user ana", true), ("user", false), ("user anastasia", false)] {
            assert_eq!(admits(pb::ListScansRequest { owner: owner.to_owned(), ..none() }), expected, "{owner}");
        }
        for (dataset, expected) in [("us", true), ("us@0123", true), ("us@0124", false), ("us5", false), ("u", false)] {
            assert_eq!(admits(pb::ListScansRequest { dataset: dataset.to_owned(), ..none() }), expected, "{dataset}");
        }
        for (from, before, expected) in [(100, 101, true), (101, 200, false), (0, 100, false)] {
            let (submitted_from_us, submitted_before_us) = (Some(from), Some(before));
            let request = pb::ListScansRequest { submitted_from_us, submitted_before_us, ..none() };
            assert_eq!(admits(request), expected, "{from} to {before}");
        }
        assert!(ListFilter::of(&pb::ListScansRequest { states: vec![77], ..none() }).is_err());
    }

    #[test]
    fn more_segments_than_a_scan_has_are_refused() {
        assert!(check_have(&[0; 10]).is_ok());
        assert!(check_have(&vec![0; SEGMENTS_MAX + 1]).is_err());
    }
}
