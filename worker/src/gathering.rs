//! Gathers the replies of a shard into messages: a message costs both sides more than most replies do.

use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;
use trawl_wire::limits::GATHERED_BYTES_MAX;
use trawl_wire::pb;

/// How long a reply waits for others. Timers of tokio have a resolution of a millisecond.
const GATHER_TIME: Duration = Duration::from_micros(500);

type Reply = Result<pb::SegmentReply, Status>;

/// The messages of a shard: each is a reply with those that followed it at once, up to [`GATHERED_BYTES_MAX`]. A larger
/// reply is a message of its own. Nothing waits once the shard has ended.
pub(crate) fn gathered(replies: mpsc::Receiver<Reply>) -> impl Stream<Item = Reply> + Send {
    futures::stream::unfold((replies, None), |(mut replies, kept)| async move {
        let first = match kept {
            Some(kept) => kept,
            None => replies.recv().await?,
        };
        let Ok(mut message) = first else { return Some((first, (replies, None))) };
        let (mut bytes, mut kept) = (message.encoded_len(), None);
        let over = tokio::time::sleep(GATHER_TIME);
        tokio::pin!(over);
        while bytes < GATHERED_BYTES_MAX {
            let next = tokio::select! {
                biased;
                next = replies.recv() => next,
                () = &mut over => break,
            };
            match next {
                Some(Ok(reply)) if bytes + reply.encoded_len() <= GATHERED_BYTES_MAX => {
                    bytes += reply.encoded_len();
                    message.more.push(reply);
                }
                Some(other) => {
                    kept = Some(other);
                    break;
                }
                None => break,
            }
        }
        Some((Ok(message), (replies, kept)))
    })
}

#[cfg(test)]
mod tests {
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
        let segments = |message: Reply| match message {
            Ok(message) => {
                std::iter::once(message.segment).chain(message.more.iter().map(|more| more.segment)).collect()
            }
            Err(_) => vec![],
        };
        gathered(receiver).map(segments).collect().await
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
        let mut gathering = std::pin::pin!(gathered(receiver));
        sender.send(reply(1, 10)).await.unwrap();
        let first = tokio::time::timeout(Duration::from_secs(10), gathering.next()).await;
        assert_eq!(first.expect("the sender still lives").unwrap().unwrap().segment, 1);
    }
}
