//! The replies of one shard, on their way to the coordinator that sent it.
//!
//! Compute threads wait while the coordinator is slow, which is the flow control of a shard. They do not wait for one
//! that leads no longer: as soon as its successor sends anything, its shards are not wanted any more.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tonic::Status;
use trawl_wire::pb;

use crate::gathering::Waiting;

/// The sending side of a shard's replies.
#[derive(Debug)]
pub(crate) struct Replies {
    sender: mpsc::Sender<Result<pb::SegmentReply, Status>>,
    /// The leader that sent the shard.
    epoch: i64,
    /// The highest epoch of any leader.
    newest: watch::Receiver<i64>,
    runtime: Handle,
    waiting: Arc<Waiting>,
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.waiting.over();
    }
}

impl Replies {
    /// Replies to a leader; call it inside a runtime.
    pub fn new(
        sender: mpsc::Sender<Result<pb::SegmentReply, Status>>,
        epoch: i64,
        newest: watch::Receiver<i64>,
    ) -> Self {
        Self { sender, epoch, newest, runtime: Handle::current(), waiting: Arc::default() }
    }

    /// What of them waits to be gathered.
    pub fn waiting(&self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed() || *self.newest.borrow() > self.epoch
    }

    /// Sends a reply; waits while too many are buffered, unless nobody listens. Not for threads of a runtime.
    pub fn send(&self, reply: pb::SegmentReply) {
        let (bytes, last) = (payload_bytes(&reply), reply.shard.is_some());
        // Usually there is room.
        if let Err(TrySendError::Full(reply)) = self.sender.try_send(Ok(reply)) {
            let mut newest = self.newest.clone();
            self.runtime.block_on(async {
                tokio::select! {
                    biased;
                    // The sender lives as long as the worker.
                    _ = newest.wait_for(|newest| *newest > self.epoch) => {}
                    // Fails only when the receiver is dropped.
                    _ = self.sender.send(reply) => {}
                }
            });
        }
        self.waiting.sent(bytes, last);
    }
}

fn payload_bytes(reply: &pb::SegmentReply) -> usize {
    match &reply.outcome {
        Some(pb::segment_reply::Outcome::Result(envelope)) => envelope.payload.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_thread_does_not_wait_for_a_leader_that_was_succeeded() {
        let (sender, _stopped) = mpsc::channel(1);
        let (epoch, newest) = watch::channel(3);
        let replies = Replies::new(sender, 3, newest);
        let sending = std::thread::spawn(move || {
            // The second does not fit.
            (0..2).for_each(|_| replies.send(pb::SegmentReply::default()));
            replies.is_closed()
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!sending.is_finished(), "it waits for its leader");
        epoch.send_replace(4);
        for _ in 0..1000 {
            if sending.is_finished() {
                assert!(sending.join().unwrap());
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it waits for a leader that was succeeded");
    }
}
