//! Answers in the format that a request accepts, written while they are sent: never whole beside the answer itself.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use trawl_coordinator::client::Scanned;
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HttpRefusal};

use super::negotiation::{Offered, chosen};
use super::problem::{Kind, Problem};
use super::series::SeriesColumns;
use crate::output::{About, Format, columnar};

/// Bytes of one part of a reply.
const PART_BYTES: usize = 128 << 10;
/// Parts that are written ahead of the client.
pub(super) const PARTS_AHEAD_MAX: usize = 4;
/// How long a request waits while [`super::ANSWERS_MAX`] answers are under way.
pub const TURN_WAIT: Duration = Duration::from_secs(20);

/// A format of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As `--output FILE.json`.
    Json,
    /// As `--output FILE.jsonl`.
    JsonLines,
    /// As `--output FILE.csv`.
    Csv,
    /// An Arrow IPC stream.
    ArrowStream,
    /// As `--output FILE.parquet`.
    Parquet,
}

impl Encoding {
    /// All of them; the first is the one for a client that accepts anything.
    pub const ALL: [Self; 5] = [Self::Json, Self::JsonLines, Self::Csv, Self::ArrowStream, Self::Parquet];

    /// Those of tables of any length: JSON has none.
    pub const TABLES: [Self; 3] = [Self::Csv, Self::ArrowStream, Self::Parquet];
    /// That of tensors.
    pub const TENSORS: [Self; 1] = [Self::ArrowStream];

    /// The one of an answer that a request asks for.
    ///
    /// # Errors
    /// Those of [`chosen`].
    pub fn of(format: Option<&str>, headers: &HeaderMap) -> Result<Self, Problem> {
        chosen(&Self::ALL, format, headers)
    }

    fn write(self, answered: &Scanned, writer: &mut (impl Write + Send)) -> anyhow::Result<()> {
        let (answer, about) = (&answered.answer, About::new(&answered.answer, answered.document.as_ref()));
        match self {
            Self::Json => Format::Json.write(answer, &about, writer),
            Self::JsonLines => Format::JsonLines.write(answer, &about, writer),
            Self::Csv => Format::Csv.write(answer, &about, writer),
            Self::ArrowStream => columnar::write_arrow_stream(answer, &about, writer),
            Self::Parquet => Format::Parquet.write(answer, &about, writer),
        }
    }
}

impl Offered for Encoding {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::JsonLines => "ndjson",
            Self::Csv => "csv",
            Self::ArrowStream => "arrow",
            Self::Parquet => "parquet",
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv",
            Self::ArrowStream => "application/vnd.apache.arrow.stream",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// Waits for a turn; the answers under way are bounded, for each is whole in memory.
pub async fn turn(turns: &Arc<Semaphore>, wait: Duration) -> Result<OwnedSemaphorePermit, Problem> {
    match tokio::time::timeout(wait, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => {
            HTTP_REFUSALS.of(HttpRefusal::Busy).inc();
            Err(Problem::new(Kind::TooMany, "too many requests of this kind are under way: try again"))
        }
    }
}

/// Passes on what is written in parts of a bounded size; fails once nobody takes them.
pub(super) struct Parts<F: FnMut(Bytes) -> io::Result<()>> {
    take: F,
    buffer: Vec<u8>,
}

impl<F: FnMut(Bytes) -> io::Result<()>> Parts<F> {
    /// Passes parts to `take`.
    pub fn new(take: F) -> Self {
        Self { take, buffer: Vec::with_capacity(PART_BYTES) }
    }

    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::replace(&mut self.buffer, Vec::with_capacity(PART_BYTES));
        (self.take)(part.into())
    }

    /// Passes the last part on.
    ///
    /// # Errors
    /// That of `take`.
    pub fn finish(mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.send() }
    }
}

impl<F: FnMut(Bytes) -> io::Result<()>> Write for Parts<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// That nobody takes a part.
pub(super) fn gone<T>(_: T) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

/// The reply with an answer. `permit` is held until all of it is written.
pub fn reply(answered: Arc<Scanned>, encoding: Encoding, permit: OwnedSemaphorePermit) -> Response {
    let (sender, receiver) = mpsc::channel(PARTS_AHEAD_MAX);
    let headers = headers_of(&answered);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut parts = Parts::new(|part| sender.blocking_send(Ok(part)).map_err(gone));
        let written = encoding.write(&answered, &mut parts).and_then(|()| Ok(parts.finish()?));
        if let Err(error) = written {
            // The connection is reset, so that a part is never taken for the whole.
            let _ = sender.blocking_send(Err(io::Error::other(error.to_string())));
        }
    });
    let mut reply = Response::new(Body::from_stream(ReceiverStream::new(receiver)));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    reply.headers_mut().extend(headers);
    reply
}

/// What identifies the answer.
fn headers_of(answered: &Scanned) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let answer = &answered.answer;
    let identity = serde_json::to_string(&answer.identity).unwrap_or_default();
    for (name, value) in [
        ("trawl-answer-digest", answer.digest.clone()),
        ("trawl-identity", identity),
        ("etag", format!("\"{}\"", answer.digest)),
    ] {
        // Names of datasets are ASCII.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The reply with series.
pub fn series(columns: &SeriesColumns, encoding: Encoding) -> Result<Response, Problem> {
    let bytes = match encoding {
        Encoding::Json => serde_json::to_vec(columns).map_err(anyhow::Error::from),
        Encoding::Csv => columns.csv(),
        Encoding::ArrowStream => columns.arrow_stream(),
        Encoding::Parquet => columns.parquet(),
        Encoding::JsonLines => {
            let problem = Problem::new(Kind::Invalid, "series are not given as JSON lines");
            return Err(problem.with_status(StatusCode::NOT_ACCEPTABLE).help("ask for json, csv, arrow or parquet"));
        }
    };
    let bytes = bytes.map_err(|error| Problem::of_error(&error))?;
    let mut reply = Response::new(Body::from(bytes));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use trawl_coordinator::RunReport;
    use trawl_testing::sample_answer;

    fn accepted(accept: &[&str]) -> Result<Encoding, u16> {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, value.parse().unwrap());
        }
        Encoding::of(None, &headers).map_err(|problem| problem.status.as_u16())
    }

    #[test]
    fn the_format_is_the_one_that_is_accepted_most() {
        assert_eq!(accepted(&[]), Ok(Encoding::Json));
        assert_eq!(accepted(&["*/*"]), Ok(Encoding::Json));
        assert_eq!(accepted(&["text/html, text/*;q=0.5"]), Ok(Encoding::Csv));
        assert_eq!(accepted(&["application/json;q=0.5, application/vnd.apache.parquet"]), Ok(Encoding::Parquet));
        assert_eq!(accepted(&["TEXT/CSV;q=0.2", "application/x-ndjson;q=0.3"]), Ok(Encoding::JsonLines));
        assert_eq!(accepted(&["application/vnd.apache.arrow.stream"]), Ok(Encoding::ArrowStream));
        assert_eq!(accepted(&["text/html"]), Err(406));
        assert_eq!(accepted(&["application/json;q=0"]), Err(406));
        assert_eq!(accepted(&[&"a".repeat(2000)]), Err(400));
        assert_eq!(Encoding::of(Some("csv"), &HeaderMap::new()).unwrap(), Encoding::Csv);
        assert_eq!(Encoding::of(Some("xml"), &HeaderMap::new()).unwrap_err().status, 422);
    }

    fn scanned(rows: usize) -> Scanned {
        let mut answer = sample_answer();
        let row = answer.rows[0].clone();
        answer.rows.resize(rows, row);
        Scanned { answer, report: RunReport::default(), synthetic: false, timeframe: "1d".to_owned(), document: None }
    }

    #[tokio::test]
    async fn an_answer_in_parts_has_the_bytes_of_the_whole() {
        let turns = Arc::new(Semaphore::new(1));
        for rows in [8, 20_000] {
            for encoding in Encoding::ALL {
                let scanned = Arc::new(scanned(rows));
                let mut whole = Vec::new();
                encoding.write(&scanned, &mut whole).unwrap();
                let permit = turn(&turns, TURN_WAIT).await.unwrap();
                let reply = reply(scanned, encoding, permit);
                assert_eq!(reply.headers()[header::CONTENT_TYPE], encoding.media_type());
                assert_eq!(reply.headers()["trawl-answer-digest"], "d1");
                let bytes = to_bytes(reply.into_body(), usize::MAX).await.unwrap();
                assert!(bytes == whole, "{encoding:?} of {rows} rows");
            }
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_gives_its_turn_back() {
        let turns = Arc::new(Semaphore::new(1));
        let permit = turn(&turns, TURN_WAIT).await.unwrap();
        assert_eq!(turn(&turns, Duration::from_millis(1)).await.unwrap_err().status, 429);
        drop(reply(Arc::new(scanned(200_000)), Encoding::Json, permit));
        assert!(turn(&turns, TURN_WAIT).await.is_ok());
    }
}
