//! The door for other programs: HTTP/1.1 and JSON over the same operations as the command line.
//!
//! [`door`] is what a server can do, with two implementations: [`embedded`] runs scans in this process (`trawl serve`), [`cluster`]
//! calls the coordinator that it is part of. `routes` is the one table of paths, from which the router and OpenAPI are made,
//! `handlers` has what each does, `read` reads bodies and queries, whose types are in `request`, `bodies`, `document` and `queries`, `guard` refuses what a browser could be made to send, `refusals` has what is refused in the log,
//! `problem` is every error, `answer`, `history` and `events` write replies that are streams, `listener` has the connections.
//!
//! Callers are identified by the rules of gRPC (`protocol/security/src/access.rs`): each path names the RPC whose rule it has.

mod answer;
mod asked;
mod bodies;
pub mod cluster;
mod document;
pub mod door;
pub mod embedded;
mod events;
mod guard;
mod handlers;
mod history;
mod listener;
mod negotiation;
mod openapi;
mod operation;
mod picture;
mod problem;
mod queries;
mod questions;
mod read;
mod refusals;
mod replies;
mod request;
mod routes;
mod series;

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use trawl_security::Access;

pub use door::Submission;
pub use listener::{CONNECTIONS_MAX, serve};
pub use openapi::document as openapi;
pub use problem::{Kind, Problem};
pub use questions::{QuestionLimits, Questions};

use door::Door;

/// Version of the interface: the first part of every path.
pub const API_VERSION: &str = "1";
/// Maximum bytes of a request's body: a scan document, with room for its text as a JSON string.
pub const BODY_BYTES_MAX: usize = 2 * trawl_wire::limits::DOCUMENT_BYTES_MAX;
/// Maximum answers that are gathered or written at once; further requests wait for [`answer::TURN_WAIT`].
pub const ANSWERS_MAX: usize = 8;
/// Maximum requests whose bodies are in memory; further ones wait as those for answers do.
pub const BODIES_MAX: usize = 64;
/// Maximum streams of events that are open at once.
pub const EVENT_STREAMS_MAX: usize = 384;
/// Maximum requests at once that wait for the end of a scan.
pub const WAITING_MAX: usize = 256;

/// What all requests share.
pub(crate) struct App {
    door: Arc<dyn Door>,
    /// The description of the interface, as JSON.
    openapi: Bytes,
    access: Access,
    answers: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// True once the server is ending: streams of events end.
    stopping: watch::Receiver<bool>,
}

impl App {
    fn new(door: Arc<dyn Door>, access: Access, stopping: watch::Receiver<bool>) -> Self {
        Self {
            door,
            openapi: openapi::text().into(),
            access,
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            bodies: Arc::new(Semaphore::new(BODIES_MAX)),
            streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            stopping,
        }
    }
}

/// Waits for `true`; nobody else can end the server, so that one whose sender is gone ends too.
async fn until_true(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
