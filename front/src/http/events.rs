//! The progress of a scan as server-sent events.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use trawl_wire::pb;

use super::door::has_ended;
use super::problem::{ErrorBody, Kind, Problem};
use super::until_true;
use crate::records::ScanLine;

/// Shortest time between two events of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of comments while nothing happens, which keep proxies from closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The data of an event `progress`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProgressEvent {
    /// Segments of the present step.
    pub segments: u32,
    /// Those that have ended.
    pub done: u32,
    /// 1-based; several where there are cross-sections.
    pub step: u32,
}

fn event(name: &str, data: &impl Serialize) -> Bytes {
    // JSON in one line.
    format!("event: {name}\ndata: {}\n\n", serde_json::to_string(data).unwrap_or_default()).into()
}

/// State of one stream.
struct Stream {
    watched: watch::Receiver<pb::ScanInfo>,
    stopping: watch::Receiver<bool>,
    stage: Stage,
    /// What the last event of progress said.
    said: (u32, u32, u32),
    next: Instant,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Follow,
    End,
}

impl Stream {
    /// The next part; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.stage == Stage::End {
                return None;
            }
            let info = self.watched.borrow_and_update().clone();
            if self.stage == Stage::Begin {
                self.stage = Stage::Follow;
                return Some(event("accepted", &ScanLine::of(&info)));
            }
            if has_ended(&info) {
                self.stage = Stage::End;
                return Some(event("ended", &ScanLine::of(&info)));
            }
            let present = (info.step, info.segments, info.segments_ended);
            let now = Instant::now();
            if present != self.said && info.segments > 0 && now >= self.next {
                (self.said, self.next) = (present, now + PROGRESS_INTERVAL);
                let (step, segments, done) = present;
                return Some(event("progress", &ProgressEvent { segments, done, step }));
            }
            let pending = present != self.said && info.segments > 0;
            let mut stopping = self.stopping.clone();
            tokio::select! {
                changed = self.watched.changed() => if changed.is_err() && !has_ended(&self.watched.borrow()) {
                    return Some(self.refused("nothing more is known of this scan here: ask for its state"));
                },
                () = tokio::time::sleep_until(self.next), if pending => {}
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b": waiting\n\n")),
                () = until_true(&mut stopping) => {
                    return Some(self.refused("this server is ending: ask another one, or again"));
                }
            }
        }
    }

    fn refused(&mut self, why: &str) -> Bytes {
        self.stage = Stage::End;
        event("refused", &ErrorBody { error: Problem::new(Kind::Unavailable, why).error })
    }
}

/// The reply with the events of a scan.
pub fn reply(
    watched: watch::Receiver<pb::ScanInfo>,
    stopping: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) -> Response {
    let (said, next) = ((0, 0, 0), Instant::now());
    let stream = Stream { watched, stopping, stage: Stage::Begin, said, next, _permit: permit };
    let parts = futures::stream::unfold(stream, async |mut stream| {
        let part = stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(part), stream))
    });
    let mut reply = Response::new(Body::from_stream(parts));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    fn info(state: pb::ScanState, done: u32) -> pb::ScanInfo {
        pb::ScanInfo {
            scan_id: "s".to_owned(),
            state: state.into(),
            segments: 900,
            segments_ended: done,
            step: 1,
            ..pb::ScanInfo::default()
        }
    }

    async fn permit() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_sent_at_most_ten_times_a_second_and_the_end_always() {
        let (state, watched) = watch::channel(info(pb::ScanState::Queued, 0));
        let (_stop, stopping) = watch::channel(false);
        let reply = reply(watched, stopping, permit().await);
        tokio::spawn(async move {
            for done in 1..=900 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                state.send_replace(info(pb::ScanState::Running, done));
            }
            state.send_replace(info(pb::ScanState::Done, 900));
        });
        let text = to_bytes(reply.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        let progress = names.iter().filter(|name| **name == "progress").count();
        assert!((5..=11).contains(&progress), "{progress}: {text}");
        assert_eq!((names.first(), names.last()), (Some(&"accepted"), Some(&"ended")));
        assert!(text.ends_with("\n\n") && text.contains("\"state\":\"done\""), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_and_a_scan_that_is_forgotten_end_the_stream() {
        let (state, watched) = watch::channel(info(pb::ScanState::Running, 3));
        let (stop, stopping) = watch::channel(false);
        let reply = |permit| super::reply(watched.clone(), stopping.clone(), permit);
        let (one, two) = (reply(permit().await), reply(permit().await));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(20)).await;
            stop.send_replace(true);
        });
        let text = to_bytes(one.into_body(), usize::MAX).await.unwrap();
        assert!(text.ends_with(b"\n\n") && String::from_utf8_lossy(&text).contains("event: refused"));
        assert!(String::from_utf8_lossy(&text).contains(": waiting"));
        drop(state);
        let text = to_bytes(two.into_body(), usize::MAX).await.unwrap();
        assert!(String::from_utf8_lossy(&text).contains("event: refused"));
    }
}
