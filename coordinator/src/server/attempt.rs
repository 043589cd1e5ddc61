//! One dispatch of a shard over gRPC: sends it, checks every reply, and reports how it ended.
//!
//! It decides nothing. Deliberate errors of the worker carry an error kind; any other error is evidence that the worker
//! or the connection is broken.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use trawl_security::Connector;
use trawl_wire::error::{innermost, plan_in, text_of};
use trawl_wire::limits::{DOCUMENT_BYTES_MAX, MESSAGE_BYTES_MAX};
use trawl_wire::pb::worker_client::WorkerClient;
use trawl_wire::plan_key::{PlanAtWorker, PlanKey};
use trawl_wire::{CrossTimes, EnvelopeError, ErrorKind, Failure, SegmentResult, envelope, pb, trace};
use trawl_worker::ScanStep;

use super::counted_channel::CountedChannel;
use super::plans_at_worker::PlansAtWorker;
use super::transit_bytes::{TransitBytes, TransitPermit};
use crate::prepare::PreparedScan;
use crate::scan_steps::Passes;
use crate::scheduler::{AttemptId, Digest, HostId, Piece, ScanId};

/// How long connecting to a worker may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval and timeout of pings to a worker; a stopped one is detected within their sum.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(2));
/// How often an attempt that is not read for lack of room is reported as alive.
const PAUSE_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a worker may take to compile a document, including its look at the dataset.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a worker may take to answer a ping of ours.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The worker replied for all pieces.
    Done,
    /// The worker refused, or stopped on purpose.
    Refused(Failure),
    /// The connection broke: the worker counts as lost.
    Broken(String),
}

/// Identifies an attempt: its id, scan and worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub attempt: AttemptId,
    pub scan: ScanId,
    pub host: HostId,
}

/// A valid result with its timings.
#[derive(Debug)]
pub(crate) struct Found {
    pub result: SegmentResult,
    pub digest: Digest,
    pub envelope: pb::Envelope,
    pub timings: pb::SegmentTimings,
    /// Its share of the bytes under way.
    pub transit: TransitPermit,
}

/// Why a reply has no result that can be used.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The worker reports it, or the reply may have been changed on its way, or be of another build.
    Failed(Failure),
    /// It arrived as it was sent, and cannot be a result of the piece.
    Malformed(Failure),
}

impl Fault {
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Failed(failure) | Self::Malformed(failure) => failure,
        }
    }
}

impl From<EnvelopeError> for Fault {
    fn from(error: EnvelopeError) -> Self {
        match error {
            EnvelopeError::Archive(_) | EnvelopeError::Content(_) => Self::Malformed(error.into()),
            error => Self::Failed(error.into()),
        }
    }
}

/// A worker's reply for one piece.
#[derive(Debug)]
pub(crate) struct PieceReply {
    pub piece: Piece,
    pub outcome: Result<Box<Found>, Fault>,
    /// Timings of the whole shard, with its last reply.
    pub timings: Option<Box<pb::ShardTimings>>,
    /// What the worker holds, with its last reply.
    pub cache: Option<Box<pb::CacheReport>>,
}

/// A message from an attempt.
#[derive(Debug)]
pub(crate) enum AttemptEvent {
    /// The replies of one message, at least one.
    Pieces {
        ticket: Ticket,
        replies: Vec<PieceReply>,
    },
    /// The attempt is not read, because too many results are under way already.
    Paused {
        attempt: AttemptId,
    },
    End {
        attempt: AttemptId,
        ending: Ending,
    },
}

/// A lazy connection to a worker; `connector` decides on TLS and verifies that the peer is a worker.
pub(crate) fn channel_to(address: &str, connector: &Connector) -> Result<Channel, tonic::transport::Error> {
    Ok(endpoint_of(address)?.connect_with_connector_lazy(connector.clone()))
}

/// An address with the times of all connections between the processes of a cluster.
pub(crate) fn endpoint_of(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(HTTP2_KEEP_ALIVE.0)
        .keep_alive_timeout(HTTP2_KEEP_ALIVE.1)
        .keep_alive_while_idle(true))
}

/// The answer of the process registered as `boot`, if it answers.
pub(crate) async fn ping(channel: Channel, boot: &str) -> Option<pb::PingReply> {
    let mut client = WorkerClient::new(channel);
    let answer = tokio::time::timeout(PING_TIMEOUT, client.ping(pb::PingRequest {})).await;
    answer.ok()?.ok().map(tonic::Response::into_inner).filter(|reply| reply.boot == boot)
}

/// The fingerprint of the plan that a worker compiles a document to; `request` names no plan and no segments, so that it
/// is always refused.
///
/// # Errors
/// Why the worker cannot run the document, or does not answer.
pub(crate) async fn plan_of(channel: Channel, request: pb::ShardRequest) -> Result<String, Failure> {
    let retryable = |why: &str| Failure::new(ErrorKind::Retryable, why);
    let mut client = WorkerClient::new(channel).max_encoding_message_size(MESSAGE_BYTES_MAX);
    let answer = tokio::time::timeout(COMPILE_TIMEOUT, client.execute(request)).await;
    let status = match answer {
        Err(_) => return Err(retryable("a worker does not compile the document in time")),
        Ok(Ok(_)) => return Err(retryable("a worker took a shard without a plan")),
        Ok(Err(status)) => status,
    };
    match Failure::from_status(&status) {
        Some(failure) => match plan_in(&failure.message) {
            Some(plan) => Ok(plan.to_owned()),
            None => Err(failure),
        },
        None => Err(retryable(&text_of(&status))),
    }
}

/// Asks a worker to leave.
pub(crate) async fn ask_to_leave(channel: Channel, epoch: i64) -> Result<(), tonic::Status> {
    let mut client = WorkerClient::new(channel);
    let answer = tokio::time::timeout(PING_TIMEOUT, client.drain(pb::DrainRequest { epoch })).await;
    let silent = |_| tonic::Status::unavailable("the worker does not answer");
    answer.map_err(silent)?.map(|_| ())
}

/// Runs one attempt to its end, or until it is dropped (which cancels it at the worker). The request lacks what `passes` give: its input.
pub(crate) async fn run(
    (channel, plans): (Channel, Arc<PlansAtWorker>),
    (request, passes): (pb::ShardRequest, Arc<Passes>),
    (ticket, pieces): (Ticket, Vec<Piece>),
    (prepared, step): (Arc<PreparedScan>, ScanStep),
    (events, transit): (mpsc::Sender<AttemptEvent>, Arc<TransitBytes>),
) {
    let ending = match completed(request, passes, &prepared, &plans).await {
        Ok((request, wanted)) => {
            let what = (&*prepared, step, &*wanted);
            replies((channel, &plans), request, (ticket, &pieces), what, (&events, &transit)).await
        }
        Err(failure) => Ending::Refused(failure),
    };
    // Fails only while the coordinator is shutting down.
    let _ = events.send(AttemptEvent::End { attempt: ticket.attempt, ending }).await;
}

/// The whole request, and the times whose values it asks for. Not the dispatcher's work: the input may be large.
///
/// # Errors
/// It cannot be sent.
async fn completed(
    request: pb::ShardRequest,
    passes: Arc<Passes>,
    prepared: &Arc<PreparedScan>,
    plans: &Arc<PlansAtWorker>,
) -> Result<(pb::ShardRequest, Vec<CrossTimes>), Failure> {
    if !passes.has_tables() {
        return with_input(request, &passes, prepared, plans);
    }
    let (prepared, plans) = (Arc::clone(prepared), Arc::clone(plans));
    let made = tokio::task::spawn_blocking(move || with_input(request, &passes, &prepared, &plans));
    made.await.unwrap_or_else(|_| Err(Failure::new(ErrorKind::Permanent, "internal error while a shard was sent")))
}

fn with_input(
    mut request: pb::ShardRequest,
    passes: &Passes,
    prepared: &PreparedScan,
    plans: &PlansAtWorker,
) -> Result<(pb::ShardRequest, Vec<CrossTimes>), Failure> {
    let refused = |message: String| Failure::new(ErrorKind::Permanent, message);
    // Only the data that these segments read: a shard never carries the whole market's tables.
    let asked = passes.input(&request.segments);
    request.input = Some(envelope::encode_input(&asked).map_err(|error| {
        refused(format!("the cross-sections of a shard cannot be sent: {error}; ask for more shards"))
    })?);
    let mut bytes = prost::Message::encoded_len(&request);
    // Left out only if there would be room for it: the worker may ask for it.
    if bytes > MESSAGE_BYTES_MAX - 2 * DOCUMENT_BYTES_MAX || !plans.has(&PlanKey::of(&request)) {
        request.document_json = prepared.document.to_json();
        bytes = prost::Message::encoded_len(&request);
    }
    if bytes > MESSAGE_BYTES_MAX {
        // Otherwise this side's encoder fails, which looks like a broken connection.
        return Err(refused(format!(
            "a shard's request has {bytes} bytes, at most {MESSAGE_BYTES_MAX} are sent; ask for more shards"
        )));
    }
    Ok((request, asked.wanted))
}

async fn replies(
    (channel, plans): (Channel, &PlansAtWorker),
    request: pb::ShardRequest,
    (ticket, pieces): (Ticket, &[Piece]),
    (prepared, step, wanted): (&PreparedScan, ScanStep, &[CrossTimes]),
    (events, transit): (&mpsc::Sender<AttemptEvent>, &Arc<TransitBytes>),
) -> Ending {
    let (channel, arrived) = CountedChannel::new(channel);
    let mut client = WorkerClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let mut stream = match execute(&mut client, request, plans, prepared).await {
        Ok(stream) => stream,
        Err(status) => return ending_of(&status),
    };
    loop {
        while !transit.room(PAUSE_REPORT_INTERVAL).await {
            if events.send(AttemptEvent::Paused { attempt: ticket.attempt }).await.is_err() {
                return Ending::Done;
            }
        }
        match stream.message().await {
            Ok(Some(mut reply)) => {
                let more = std::mem::take(&mut reply.more);
                let read = |mut reply: pb::SegmentReply| {
                    let (timings, cache) = (reply.shard.take().map(Box::new), reply.cache.take().map(Box::new));
                    // Ignore pieces that were not requested.
                    let piece = *pieces.get(pieces.binary_search_by_key(&reply.segment, |p| p.segment).ok()?)?;
                    let outcome = outcome_of(reply, piece, (prepared, step, wanted), transit);
                    Some(PieceReply { piece, outcome, timings, cache })
                };
                let replies: Vec<PieceReply> = std::iter::once(reply).chain(more).filter_map(read).collect();
                if !replies.is_empty() && events.send(AttemptEvent::Pieces { ticket, replies }).await.is_err() {
                    return Ending::Done;
                }
                arrived.dealt_with();
            }
            Ok(None) => return Ending::Done,
            Err(status) => return ending_of(&status),
        }
    }
}

/// Sends a request. A worker that does not have the plan any more gets the document: that is part of the same attempt.
async fn execute(
    client: &mut WorkerClient<CountedChannel>,
    request: pb::ShardRequest,
    plans: &PlansAtWorker,
    scan: &PreparedScan,
) -> Result<tonic::Streaming<pb::SegmentReply>, tonic::Status> {
    let key = PlanKey::of(&request);
    let whole = request.document_json.is_empty().then(|| request.clone());
    let mut reply = client.execute(traced(request)).await;
    let unknown = |status: &tonic::Status| PlanAtWorker::of(status.metadata()) == Some(PlanAtWorker::Unknown);
    if let Some(whole) = whole.filter(|_| reply.as_ref().is_err_and(unknown)) {
        plans.forget(&key);
        let document_json = scan.document.to_json();
        reply = client.execute(traced(pb::ShardRequest { document_json, ..whole })).await;
    }
    let reply = reply?;
    if PlanAtWorker::of(reply.metadata()) == Some(PlanAtWorker::Kept) {
        plans.keep(key);
    }
    Ok(reply.into_inner())
}

/// A request with its trace in the headers too.
fn traced(request: pb::ShardRequest) -> tonic::Request<pb::ShardRequest> {
    let context = request.trace.clone();
    let mut request = tonic::Request::new(request);
    trace::inject(context.as_ref(), request.metadata_mut());
    request
}

fn ending_of(status: &tonic::Status) -> Ending {
    match Failure::from_status(status) {
        Some(failure) => Ending::Refused(failure),
        None if std::error::Error::source(status).is_some() => Ending::Broken(innermost(status)),
        None => Ending::Broken(text_of(status)),
    }
}

/// The result in a reply, checked against envelope, segment, the snapshot's symbols and the times that were asked for.
fn outcome_of(
    reply: pb::SegmentReply,
    piece: Piece,
    (prepared, step, wanted): (&PreparedScan, ScanStep, &[CrossTimes]),
    transit: &Arc<TransitBytes>,
) -> Result<Box<Found>, Fault> {
    let retryable = |message: String| Failure::new(ErrorKind::Retryable, message);
    let malformed = |message: String| Fault::Malformed(retryable(message));
    match reply.outcome {
        Some(pb::segment_reply::Outcome::Result(envelope)) => {
            let transit = transit.hold(envelope.payload.len());
            let result = envelope::read(&envelope)?;
            if result.segment() != reply.segment {
                return Err(malformed(format!("segment {} came for segment {}", result.segment(), reply.segment)));
            }
            prepared.check_piece(step, piece, &result).map_err(malformed)?;
            PreparedScan::check_times(wanted, &result).map_err(malformed)?;
            // As received it is a part of a larger buffer, which would be kept with it.
            let (envelope, transit) = match &result {
                SegmentResult::Rows(columns) => (envelope::seal_again(columns, &envelope)?, transit.keep_envelope()),
                SegmentResult::Step(_) => {
                    let payload = Bytes::copy_from_slice(&envelope.payload);
                    (pb::Envelope { payload, ..envelope }, transit)
                }
            };
            let (digest, timings) = (result.digest(), reply.timings.unwrap_or_default());
            Ok(Box::new(Found { result, digest, envelope, timings, transit }))
        }
        Some(pb::segment_reply::Outcome::Failure(failure)) => Err(Fault::Failed(failure.into())),
        None => Err(Fault::Failed(retryable(format!("an empty reply for segment {}", reply.segment)))),
    }
}
