//! The body of a reply that is a stream of events: messages are encoded as far as the connection takes them.
//!
//! What a client that does not read keeps in memory is one slice and references to events of the log. When its patience is over,
//! the references go too, although the transport keeps the stream until its connection ends: it asks for bytes only when there
//! is room for them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::timeout;
use tonic::Status;
use tonic::codegen::http::HeaderMap;

use super::encoding::OutgoingMessage;
use crate::server::service::retry;
use crate::server::streams::StreamPermit;

/// Messages that wait for a slow client; they refer to events of the log.
const MESSAGES_MAX: usize = 4;
/// Most bytes that are encoded at once.
const SLICE_BYTES: usize = 32 << 10;

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotSent {
    /// The client has left.
    Gone,
    /// The client did not read for as long as it may.
    Stalled,
}

/// The writing end of a reply.
#[derive(Debug)]
pub(super) struct EventSender {
    queue: Arc<Queue>,
    /// How long a client may read nothing.
    patience: Duration,
}

/// The body of a reply, which the transport reads.
#[derive(Debug)]
pub(super) struct EventBody {
    queue: Arc<Queue>,
    /// The stream counts until the transport lets it go, which may be long after it ended for us.
    _open: StreamPermit,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// Notified when the transport has taken a slice, or the body.
    taken: Notify,
    /// Notified when the transport has dropped the body.
    gone: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<(OutgoingMessage, Option<OwnedSemaphorePermit>)>,
    /// How the stream ends after the messages.
    end: Option<Status>,
    /// Whether the end has been sent.
    ended: bool,
    /// Whether a message was cut off: the stream cannot end properly.
    cut: bool,
    /// Whether the transport has dropped the body.
    gone: bool,
    /// Whether it did so before it had taken everything.
    unread: bool,
    /// Slices that the transport has taken.
    slices: u64,
    transport: Option<Waker>,
}

/// A reply whose client may read nothing for `patience`.
pub(super) fn reply(open: StreamPermit, patience: Duration) -> (EventSender, EventBody) {
    let queue = Arc::<Queue>::default();
    (EventSender { queue: Arc::clone(&queue), patience }, EventBody { queue, _open: open })
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSender {
    /// Waits until the queue has at most `messages` messages.
    async fn until(&self, messages: usize) -> Result<(), NotSent> {
        loop {
            let seen = {
                let state = self.queue.state();
                if state.unread {
                    return Err(NotSent::Gone);
                }
                if state.messages.len() <= messages {
                    return Ok(());
                }
                state.slices
            };
            // A slice is progress: a slow client of a large result is not a stalled one.
            if timeout(self.patience, self.queue.taken.notified()).await.is_err() && self.queue.state().slices == seen {
                return Err(NotSent::Stalled);
            }
        }
    }

    /// Sends a message as soon as there is room; `permit` is given back when the transport has taken all of it.
    ///
    /// # Errors
    /// The client left, or did not read for too long.
    pub async fn send(&self, message: OutgoingMessage, permit: Option<OwnedSemaphorePermit>) -> Result<(), NotSent> {
        self.until(MESSAGES_MAX - 1).await?;
        let transport = {
            let mut state = self.queue.state();
            if state.gone {
                return Err(NotSent::Gone);
            }
            state.messages.push_back((message, permit));
            state.transport.take()
        };
        transport.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Waits until the client has left.
    pub async fn gone(&self) {
        while !self.queue.state().gone {
            self.queue.gone.notified().await;
        }
    }

    /// Ends the stream after what was sent, and waits until the transport has taken that.
    ///
    /// # Errors
    /// The client left before, or did not read for too long.
    pub async fn finish(self, end: Status) -> Result<(), NotSent> {
        self.end(end);
        self.until(0).await
    }

    fn end(&self, end: Status) {
        let transport = {
            let mut state = self.queue.state();
            state.end.get_or_insert(end);
            state.transport.take()
        };
        transport.into_iter().for_each(Waker::wake);
    }

    /// Ends the stream without what was not taken yet, whose memory is given back at once.
    pub fn abandon(self, why: Status) {
        let dropped = {
            let mut state = self.queue.state();
            state.cut = state.messages.front().is_some_and(|(message, _)| message.has_begun());
            state.end = Some(why);
            std::mem::take(&mut state.messages)
        };
        drop(dropped);
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        // Only of a task that failed or was dropped; otherwise there is an end.
        self.end(retry("this coordinator stopped sending the scan's events"));
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        let dropped = {
            let mut state = self.queue.state();
            state.gone = true;
            state.unread = !state.messages.is_empty();
            std::mem::take(&mut state.messages)
        };
        drop(dropped);
        self.queue.taken.notify_one();
        self.queue.gone.notify_one();
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut state = self.queue.state();
        if state.cut && !state.ended {
            state.ended = true;
            return Poll::Ready(state.end.clone().map(Err));
        }
        let first = state.messages.front().map_or(0, |(message, _)| message.bytes());
        let mut slice = BytesMut::with_capacity(first.min(SLICE_BYTES));
        while slice.len() < SLICE_BYTES
            && let Some((message, _)) = state.messages.front_mut()
        {
            let room = SLICE_BYTES - slice.len();
            if !message.fill(&mut slice, room) {
                break;
            }
            state.messages.pop_front();
        }
        if !slice.is_empty() {
            state.slices += 1;
            drop(state);
            self.queue.taken.notify_one();
            return Poll::Ready(Some(Ok(Frame::data(slice.freeze()))));
        }
        match &state.end {
            Some(end) if !state.ended => {
                let mut trailers = HeaderMap::new();
                let added = end.add_header(&mut trailers);
                state.ended = true;
                Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
            }
            Some(_) => Poll::Ready(None),
            None => {
                state.transport = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Instant;

    use prost::Message as _;
    use tokio::sync::Semaphore;
    use tonic::Code;
    use trawl_security::Caller;
    use trawl_wire::pb;
    use trawl_wire::pb::scan_event::Event;

    use super::super::encoding::tests::result;
    use super::*;
    use crate::server::streams::Streams;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn opened() -> (EventSender, EventBody) {
        patient(PATIENCE)
    }

    fn patient(patience: Duration) -> (EventSender, EventBody) {
        reply(Streams::default().open(&Caller::local()).unwrap(), patience)
    }

    async fn frame(body: &mut EventBody) -> Option<Result<Frame<Bytes>, Status>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    async fn data(body: &mut EventBody) -> Bytes {
        frame(body).await.unwrap().unwrap().into_data().unwrap()
    }

    fn one(event: &Arc<Event>) -> OutgoingMessage {
        OutgoingMessage::new(Arc::clone(event), Vec::new())
    }

    #[tokio::test]
    async fn messages_come_whole_and_in_order_with_the_end_behind_them() {
        let (sender, mut body) = opened();
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let events: Vec<_> = [10, 100_000, 0, 70].into_iter().zip(0..).map(|(bytes, n)| result(n, bytes)).collect();
        let wanted = events.clone();
        let sending = tokio::spawn(async move {
            let mut permit = Some(permit);
            for event in &events {
                sender.send(one(event), permit.take()).await.unwrap();
            }
            sender.finish(Status::ok("")).await
        });
        let mut sent = BytesMut::new();
        let trailers = loop {
            match frame(&mut body).await.unwrap().unwrap().into_data() {
                Ok(slice) => {
                    assert!(slice.len() <= SLICE_BYTES);
                    sent.extend_from_slice(&slice);
                }
                Err(end) => break end.into_trailers().unwrap(),
            }
        };
        assert_eq!(Status::from_header_map(&trailers).unwrap().code(), Code::Ok);
        assert!(frame(&mut body).await.is_none());
        assert_eq!(sending.await.unwrap(), Ok(()));
        assert_eq!(permits.available_permits(), 1);
        for event in wanted {
            let length = u32::from_be_bytes(sent[1..5].try_into().unwrap()) as usize;
            let message = sent.split_to(5 + length);
            assert_eq!(pb::ScanEvent::decode(&message[5..]).unwrap().event.unwrap(), *event);
        }
        assert!(sent.is_empty());
    }

    #[tokio::test]
    async fn a_client_that_reads_slowly_is_waited_for_and_one_that_reads_nothing_is_given_up() {
        let patience = Duration::from_secs(1);
        let (sender, mut body) = patient(patience);
        let large = result(0, SLICE_BYTES * 6);
        for _ in 0..MESSAGES_MAX {
            sender.send(one(&large), None).await.unwrap();
        }
        let begun = Instant::now();
        let held = Arc::strong_count(&large);
        assert_eq!(held, 1 + MESSAGES_MAX);
        let sending = {
            let large = Arc::clone(&large);
            tokio::spawn(async move { (sender.send(one(&large), None).await, sender) })
        };
        // The first message needs seven slices: each of them is progress.
        for _ in 0..4 {
            tokio::time::sleep(patience / 2).await;
            assert_eq!(data(&mut body).await.len(), SLICE_BYTES);
        }
        let (sent, sender) = sending.await.unwrap();
        assert_eq!(sent, Err(NotSent::Stalled));
        assert!(begun.elapsed() >= patience * 3, "{:?}", begun.elapsed());
        sender.abandon(retry("too slow"));
        assert_eq!(Arc::strong_count(&large), 1, "what was not read is let go while the transport keeps the body");
        // A message was cut off: the stream breaks.
        assert!(frame(&mut body).await.unwrap().is_err());
        assert!(frame(&mut body).await.is_none());
    }

    #[tokio::test]
    async fn an_abandoned_stream_that_was_not_begun_ends_with_its_status() {
        let (sender, mut body) = opened();
        sender.send(one(&result(0, 5)), None).await.unwrap();
        sender.abandon(retry("too slow"));
        let trailers = frame(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(Status::from_header_map(&trailers).unwrap().message(), "too slow");
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_at_once() {
        let (sender, body) = opened();
        for _ in 0..MESSAGES_MAX {
            sender.send(one(&result(0, 5)), None).await.unwrap();
        }
        let sending = tokio::spawn(async move {
            let sent = sender.send(one(&result(0, 5)), None).await;
            sender.gone().await;
            (sent, sender.finish(Status::ok("")).await)
        });
        tokio::task::yield_now().await;
        let begun = Instant::now();
        drop(body);
        assert_eq!(sending.await.unwrap(), (Err(NotSent::Gone), Err(NotSent::Gone)));
        assert!(begun.elapsed() < PATIENCE / 2);
    }

    #[tokio::test]
    async fn a_sender_that_is_dropped_ends_the_stream_with_a_status_that_says_so() {
        let (sender, mut body) = opened();
        drop(sender);
        let trailers = frame(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(Status::from_header_map(&trailers).unwrap().code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn a_stream_counts_until_the_transport_lets_it_go() {
        let streams = Streams::default();
        let (sender, body) = reply(streams.open(&Caller::local()).unwrap(), PATIENCE);
        sender.abandon(retry("too slow"));
        assert!(!streams.is_empty());
        drop(body);
        assert!(streams.is_empty());
    }
}
