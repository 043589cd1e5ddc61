//! Replies that are streams of a scan's events, to any number of clients, each at its own pace.
//!
//! They do not go through tonic's encoder, which makes whole messages, one of which the transport keeps for as long as a client
//! does not read. The handler of a call returns an empty stream, and puts the body of the reply into its extensions; a layer
//! around the service exchanges the two.

mod body;
mod encoding;
mod exchange;
mod passed_on;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_stream::Empty as NoEvents;
use tonic::{Response, Status};
use tracing::field::Empty;
use trawl_plan::ColumnKind;
use trawl_telemetry::metrics::catalogue::coordinator::{CLIENT_WAIT, STREAMS_ENDED, STREAMS_OPENED, StreamEnd};
use trawl_telemetry::names::{attribute, span};
use trawl_wire::limits::GATHERED_BYTES_MAX;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::{ErrorKind, Failure, pb, trace};

use self::body::{EventSender, NotSent, reply};
use self::encoding::OutgoingMessage;
pub(super) use self::exchange::WithBodies;
pub(super) use self::passed_on::passed_on;
use super::scans::{Cursor, Environment, Scan, ScanMemory, Scans, as_before, load, payload_bytes};
use super::service::retry;
use super::streams::StreamPermit;

/// How long a client may read nothing before its stream ends; an ephemeral scan ends with it.
const CLIENT_STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of an event beside its payload, about: its digest and the frames.
const EVENT_BYTES: usize = 128;
/// The answer to a client that would show the places of labels and the days of dates as numbers.
const EARLIER_CLIENT: &str = "'select' has columns of labels or dates, which this client's release cannot read: use a client of the \
                              coordinator's release, or leave these columns out";

/// What the handler of a streaming call returns as its stream.
pub(super) type Events = NoEvents<Result<pb::ScanEvent, Status>>;

/// A reply with this body.
fn reply_with<B>(body: B) -> Response<Events>
where
    B: hyper::body::Body<Data = bytes::Bytes, Error = Status> + Send + 'static,
{
    let mut reply = Response::new(tokio_stream::empty());
    reply.extensions_mut().insert(exchange::ReplyBody::new(tonic::body::Body::new(body)));
    reply
}

/// Keeps the events of a scan loaded for a reply. If they were read back for it, the limit of what ended scans hold is applied
/// afterwards: otherwise nothing would apply it before another scan ends.
pub(super) struct Reading {
    // Dropped in this order.
    _log: Arc<()>,
    _relief: Option<Relief>,
}

struct Relief(Arc<Scans>);

impl Drop for Relief {
    fn drop(&mut self) {
        self.0.relieve();
    }
}

/// Loads the events of an ended scan if its log was unloaded; they stay loaded while the reply is held.
pub(super) async fn loaded(environment: &Environment, scan: &Arc<Scan>) -> Result<Reading, Status> {
    let relief = scan.log.is_unloaded().then(|| Relief(Arc::clone(&environment.scans)));
    let reading = Reading { _log: scan.log.reading(), _relief: relief };
    load(environment, scan).await.map_err(|failure| failure.to_status())?;
    Ok(reading)
}

/// What a stream of a scan's events depends on beside the scan.
pub(super) struct StreamOptions {
    /// The scan ends with the stream; those among which it is forgotten if its client has not read all of it.
    pub ends_it: Option<Arc<Scans>>,
    /// Only the first event is sent.
    pub detached: bool,
    /// Small results that are there already share a message.
    pub gathers: bool,
    /// The client reads columns of labels and dates.
    pub kinds: bool,
    /// The budgets of what is made for a client of an earlier release, which reads neither columns nor digests that are trees.
    pub earlier: Option<ScanMemory>,
}

/// Streams a scan's events to one client.
pub(super) fn stream(
    scan: Arc<Scan>,
    cursor: Cursor,
    options: StreamOptions,
    within: Option<&pb::TraceContext>,
    (open, reading): (StreamPermit, Reading),
) -> Response<Events> {
    let (client, body) = reply(open, CLIENT_STALL_TIMEOUT);
    STREAMS_OPENED.inc();
    // A child of the client's own span: it may last longer than the scan.
    let span = within.map_or_else(tracing::Span::none, |within| {
        let span = tracing::info_span!(span::STREAM, { attribute::SCAN_ID } = scan.name, { attribute::EVENTS } = Empty);
        trace::set_parent(&span, [Some(within), None]);
        span
    });
    tokio::spawn(async move {
        let sent = tokio::select! {
            sent = send_all(&scan, cursor, &client, &options, span) => sent,
            () = client.gone() => Err(NotSent::Gone),
        };
        let end = match sent {
            Ok(end) => {
                let code = end.code();
                match client.finish(end).await {
                    Ok(()) if code == tonic::Code::Ok => StreamEnd::Complete,
                    Ok(()) => StreamEnd::Broken,
                    Err(NotSent::Gone) => StreamEnd::ClientGone,
                    Err(NotSent::Stalled) => StreamEnd::Stalled,
                }
            }
            Err(NotSent::Gone) => StreamEnd::ClientGone,
            Err(NotSent::Stalled) => {
                client.abandon(retry("nothing of this stream was read for a minute"));
                StreamEnd::Stalled
            }
        };
        STREAMS_ENDED.of(end).inc();
        drop(reading);
        if let (StreamEnd::ClientGone | StreamEnd::Stalled, Some(scans)) = (end, &options.ends_it) {
            tracing::info!(scan = scan.name, "the client went away, its scan is cancelled");
            scan.cancel();
            // Its results may take the room of the spool, and nobody reads them any more.
            if scan.has_ended() {
                scans.forget(&scan.name);
            }
        }
    });
    reply_with(body)
}

fn has_texts_or_dates(header: &pb::Accepted) -> bool {
    let kinds: Vec<ColumnKind> = serde_json::from_str(&header.kinds_json).unwrap_or_default();
    kinds.iter().any(|kind| matches!(kind, ColumnKind::Text(_) | ColumnKind::Date))
}

/// Sends a scan's events as they come; returns how the stream ends.
async fn send_all(
    scan: &Arc<Scan>,
    mut cursor: Cursor,
    client: &EventSender,
    options: &StreamOptions,
    mut span: tracing::Span,
) -> Result<Status, NotSent> {
    let mut events_sent = 0i64;
    while let Some(read) = scan.log.next(&mut cursor).await.transpose() {
        let read = match read {
            Ok(read) => read,
            Err(status) => return Ok(status),
        };
        if let (Event::Accepted(header), false) = (&*read.event, options.kinds)
            && has_texts_or_dates(header)
        {
            if options.ends_it.is_some() {
                scan.cancel();
            }
            return Ok(Failure::new(ErrorKind::Invalid, EARLIER_CLIENT.to_owned()).to_status());
        }
        let mut more = Vec::new();
        if let (Event::SegmentDone(done), true) = (&*read.event, options.gathers) {
            let mut room = GATHERED_BYTES_MAX.saturating_sub(payload_bytes(done));
            while let Some(next) = scan.log.next_small(&mut cursor, room) {
                if let Event::SegmentDone(done) = &*next {
                    room = room.saturating_sub(payload_bytes(done) + EVENT_BYTES);
                }
                more.push(next);
            }
        }
        events_sent += 1 + i64::try_from(more.len()).unwrap_or(i64::MAX);
        let enough = options.detached && matches!(*read.event, Event::Accepted(_));
        let last = matches!(*read.event, Event::Summary(_) | Event::Refused(_));
        if last || enough {
            // End it before the client can have read the event, so that the client's span ends later.
            span.record(attribute::EVENTS, events_sent);
            drop(std::mem::replace(&mut span, tracing::Span::none()));
        }
        let mut first = read.event;
        if let Some(memory) = &options.earlier {
            for event in std::iter::once(&mut first).chain(&mut more) {
                match as_before(scan, Arc::clone(event), memory).await {
                    Ok(before) => *event = before,
                    Err(failure) => return Ok(failure.to_status()),
                }
            }
        }
        let waits = Instant::now();
        let sent = client.send(OutgoingMessage::new(first, more), read.permit).await;
        CLIENT_WAIT.add_time(waits.elapsed());
        sent?;
        if enough {
            break;
        }
    }
    Ok(Status::ok(""))
}
