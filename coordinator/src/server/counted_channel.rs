//! A connection to a worker that counts what has come of replies and is not dealt with yet: a reply of some MiB is put
//! together before anyone sees it, and connections are read at once.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::Channel;
use trawl_telemetry::metrics::catalogue::coordinator::RESULTS_HELD;

/// Bytes of the replies to one call that are in memory.
#[derive(Debug, Default)]
pub(super) struct Arrived(AtomicU64);

impl Arrived {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::AcqRel);
        RESULTS_HELD.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Everything that had come by now is dealt with: called after a message, when at most the beginning of the next one
    /// is there too.
    pub fn dealt_with(&self) {
        let bytes = self.0.swap(0, Ordering::AcqRel);
        RESULTS_HELD.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.dealt_with();
    }
}

/// A channel for one call whose reply is a stream.
#[derive(Debug, Clone)]
pub(super) struct CountedChannel {
    channel: Channel,
    arrived: Arc<Arrived>,
}

impl CountedChannel {
    pub fn new(channel: Channel) -> (Self, Arc<Arrived>) {
        let arrived = Arc::default();
        (Self { channel, arrived: Arc::clone(&arrived) }, arrived)
    }
}

impl Service<http::Request<Body>> for CountedChannel {
    type Response = http::Response<CountedBody>;
    type Error = tonic::transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (reply, arrived) = (self.channel.call(request), Arc::clone(&self.arrived));
        Box::pin(async move { Ok(reply.await?.map(|body| CountedBody { body, arrived })) })
    }
}

/// The body of a reply.
#[derive(Debug)]
pub(super) struct CountedBody {
    body: Body,
    arrived: Arc<Arrived>,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.arrived.add(data.len());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
