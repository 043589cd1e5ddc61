//! A scan on a cluster: the request, its answer, and what a coordinator's failure means to the user.

use trawl_coordinator::client::{self, ClientError, ScanCall};
use trawl_front::mistake::drawn;
use trawl_front::run::Outcome;
use trawl_market::AsOf;
use trawl_plan::ScanDocument;
use trawl_wire::Identity;

use super::Args;
use super::clauses::as_of;
use crate::failure::UserMistake;
use crate::progress::Waiting;

/// The request to a coordinator.
pub(super) fn call(args: &Args, document: &ScanDocument, as_of: AsOf) -> anyhow::Result<ScanCall> {
    Ok(ScanCall {
        document: document.clone(),
        as_of,
        shards: args.running.shards,
        security: args.tls.client(args.token_file.as_ref())?,
        priority: args.priority,
        deadline: args.running.deadline,
        ephemeral: args.ephemeral,
        allow_partial: args.running.allow_partial,
        fresh: args.fresh,
        profile: args.running.profile,
        idempotency_key: args.idempotency_key.clone(),
        backend: args.running.backend.of_workers(),
    })
}

pub(super) fn submitted(args: &Args, url: &str, document: &ScanDocument, as_of: AsOf) -> anyhow::Result<Outcome> {
    let waiting = Waiting::new(args.shown.quiet);
    let scanned = client::scan_blocking(url, &call(args, document, as_of)?, &waiting).map_err(of_client)?;
    Ok(scanned.into())
}

/// The scan that gives the values of symbols that did not match, of the same snapshot and bar.
pub(super) fn submitted_of_all(
    args: &Args,
    url: &str,
    document: &ScanDocument,
    identity: &Identity,
) -> anyhow::Result<Outcome> {
    let dataset = Some(format!("{}@{}", identity.dataset, identity.snapshot));
    let document = ScanDocument { dataset, ..trawl_front::every_value::of_all(document) };
    let call =
        ScanCall { ephemeral: true, idempotency_key: None, ..call(args, &document, as_of(Some(&identity.as_of))?)? };
    let waiting = Waiting::new(args.shown.quiet);
    let scanned = client::scan_blocking(url, &call, &waiting).map_err(of_client)?;
    Ok(scanned.into())
}

/// A coordinator's failure in this program's words.
pub fn of_client(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Mistakes(mistakes) => drawn(mistakes).into(),
        error if error.is_users_mistake() => UserMistake::plain(error.to_string()).into(),
        error => anyhow::Error::new(error),
    }
}
