//! Gathers the replies of a shard into messages: a message costs both sides more than most replies do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::{Notify, mpsc};
use tokio_stream::Stream;
use tonic::Status;
use trawl_wire::limits::GATHERED_BYTES_MAX;
use trawl_wire::pb;

/// How long a reply waits for others. Timers of tokio have a resolution of a millisecond.
const GATHER_TIME: Duration = Duration::from_micros(500);
/// So many replies wait for no others: fewer than are buffered, so that compute threads do not wait meanwhile.
const GATHERED_REPLIES_MAX: usize = 32;

type Reply = Result<pb::SegmentReply, Status>;

/// What waits to be gathered of one shard. The task that gathers sleeps until there is enough of it: waking it for each reply would
/// take longer than computing a small segment.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    bytes: AtomicUsize,
    replies: AtomicUsize,
    enough: Notify,
}

impl Waiting {
    /// Notes a reply of about so many bytes that was sent. Nothing is waited for after the `last` of a shard.
    pub fn sent(&self, bytes: usize, last: bool) {
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let replies = self.replies.fetch_add(1, Ordering::Relaxed) + 1;
        if last || waiting >= GATHERED_BYTES_MAX || replies >= GATHERED_REPLIES_MAX {
            self.enough.notify_one();
        }
    }

    /// Completes when there is enough, or nothing more comes.
    async fn enough(&self) {
        self.enough.notified().await;
    }

    fn taken(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.replies.store(0, Ordering::Relaxed);
    }

    /// The shard is over.
    pub fn over(&self) {
        self.enough.notify_one();
    }
}

/// The messages of a shard: each is a reply with those that followed it at once, up to [`GATHERED_BYTES_MAX`]. A larger
/// reply is a message of its own. Nothing waits once the shard has ended.
pub(crate) fn gathered(replies: mpsc::Receiver<Reply>, waiting: Arc<Waiting>) -> impl Stream<Item = Reply> + Send {
    futures::stream::unfold((replies, waiting, None), |(mut replies, waiting, kept)| async move {
        let first = match kept {
            Some(kept) => kept,
            None => replies.recv().await?,
        };
        let Ok(mut message) = first else { return Some((first, (replies, waiting, None))) };
        let (mut bytes, mut kept) = (message.encoded_len(), None);
        if bytes < GATHERED_BYTES_MAX && message.shard.is_none() {
            tokio::select! {
                biased;
                () = waiting.enough() => {}
                () = tokio::time::sleep(GATHER_TIME) => {}
            }
        }
        waiting.taken();
        while bytes < GATHERED_BYTES_MAX {
            match replies.try_recv() {
                Ok(Ok(reply)) if bytes + reply.encoded_len() <= GATHERED_BYTES_MAX => {
                    bytes += reply.encoded_len();
                    message.more.push(reply);
                }
                Ok(other) => {
                    kept = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        Some((Ok(message), (replies, waiting, kept)))
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio_stream::StreamExt as _;

    use super::*;

    fn reply(segment: u32, bytes: usize) -> Reply {
        let envelope = pb::Envelope { payload: vec![0; bytes].into(), ..pb::Envelope::default() };
        let outcome = Some(pb::segment_reply::Outcome::Result(envelope));
        Ok(pb::SegmentReply { segment, outcome, ..pb::SegmentReply::default() })
    }

    async fn messages(replies: Vec<Reply>) -> Vec<Vec<u32>> {
        let (sender, receiver) = mpsc::channel(100);
        for reply in replies {
            sender.send(reply).await.unwrap();
        }
        drop(sender);
        let waiting = Arc::<Waiting>::default();
        waiting.over();
        let segments = |message: Reply| match message {
            Ok(message) => {
                std::iter::once(message.segment).chain(message.more.iter().map(|more| more.segment)).collect()
            }
            Err(_) => vec![],
        };
        gathered(receiver, waiting).map(segments).collect().await
    }

    #[tokio::test]
    async fn small_replies_share_a_message_and_large_ones_have_their_own() {
        let half = GATHERED_BYTES_MAX / 2;
        assert_eq!(messages((1..6).map(|segment| reply(segment, 10)).collect()).await, [[1, 2, 3, 4, 5]]);
        let large = vec![reply(1, 10), reply(2, 3 * half), reply(3, 10), reply(4, half), reply(5, half)];
        assert_eq!(messages(large).await, [vec![1], vec![2], vec![3, 4], vec![5]]);
        let broken = vec![reply(1, 10), Err(Status::internal("broken")), reply(2, 10)];
        assert_eq!(messages(broken).await, [vec![1], vec![], vec![2]]);
    }

    #[tokio::test]
    async fn a_reply_does_not_wait_for_a_shard_that_goes_on() {
        let (sender, receiver) = mpsc::channel(100);
        let mut gathering = std::pin::pin!(gathered(receiver, Arc::default()));
        sender.send(reply(1, 10)).await.unwrap();
        let first = tokio::time::timeout(Duration::from_secs(10), gathering.next()).await;
        assert_eq!(first.expect("the sender still lives").unwrap().unwrap().segment, 1);
    }

    #[tokio::test]
    async fn what_is_enough_is_not_waited_for() {
        let (sender, receiver) = mpsc::channel(100);
        let waiting = Arc::<Waiting>::default();
        let mut gathering = std::pin::pin!(gathered(receiver, Arc::clone(&waiting)));
        for (replies, bytes, last) in
            [(GATHERED_REPLIES_MAX, 1, false), (2, GATHERED_BYTES_MAX / 2, false), (2, 1, true)]
        {
            for at in 1..=replies {
                sender.send(reply(at as u32, 1)).await.unwrap();
                waiting.sent(bytes, last && at == replies);
            }
            let message = gathering.next().now_or_never().expect("at once").unwrap().unwrap();
            assert_eq!(1 + message.more.len(), replies);
        }
        sender.send(reply(1, 1)).await.unwrap();
        waiting.sent(1, false);
        assert!(gathering.next().now_or_never().is_none(), "others may come");
        sender.send(reply(2, 1)).await.unwrap();
        assert_eq!(gathering.next().await.unwrap().unwrap().more.len(), 1);
    }
}
