//! The events that the leader sends, on their way to a client of another coordinator: bytes as they are, as fast as the client
//! reads.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Response, Status};

use super::{Events, reply_with};
use crate::server::service::of_leader;
use crate::server::streams::StreamPermit;

/// The body of the leader's reply. A broken connection to it becomes a status with which clients try again.
#[derive(Debug)]
struct PassedOn {
    body: tonic::body::Body,
    _open: StreamPermit,
}

/// A reply with the events of the leader's.
pub(in crate::server) fn passed_on(body: tonic::body::Body, open: StreamPermit) -> Response<Events> {
    reply_with(PassedOn { body, _open: open })
}

impl Body for PassedOn {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx).map(|frame| match frame? {
            Ok(frame) => Some(match frame.into_trailers() {
                Ok(trailers) => of_leader_in(trailers),
                Err(frame) => Ok(frame),
            }),
            // What was sent of a message so far is no whole one: clients see the stream break and come again.
            Err(status) => Some(Err(of_leader(status))),
        })
    }
}

fn of_leader_in(trailers: HeaderMap) -> Result<Frame<Bytes>, Status> {
    match Status::from_header_map(&trailers) {
        Some(status) if status.code() != Code::Ok => {
            let mut trailers = HeaderMap::new();
            of_leader(status).add_header(&mut trailers)?;
            Ok(Frame::trailers(trailers))
        }
        _ => Ok(Frame::trailers(trailers)),
    }
}
