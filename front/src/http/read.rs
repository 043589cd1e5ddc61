//! Reads what a request brings: a query, and a body of JSON of a bounded size within a bounded time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HttpRefusal};

use super::BODY_BYTES_MAX;
use super::problem::{Kind, Problem};

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a body that is too large which are still read, so that the client reads the reply before the connection is reset.
const DISCARDED_BYTES_MAX: usize = 16 << 20;
/// How long they may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);
/// Reads the query of a request.
pub fn query<T: DeserializeOwned>(query: Option<&str>) -> Result<T, Problem> {
    serde_urlencoded::from_str(query.unwrap_or_default()).map_err(|error| {
        HTTP_REFUSALS.of(HttpRefusal::Malformed).inc();
        Problem::malformed(format!("the query cannot be read: {error}"))
    })
}

/// Reads the body of a request: JSON of a bounded size, within a bounded time.
pub async fn body<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        HTTP_REFUSALS.of(HttpRefusal::ContentType).inc();
        // A page of another site can make a browser send other types without asking.
        return Err(Problem::new(Kind::Invalid, "the body is not declared as application/json")
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .help("send the header Content-Type: application/json"));
    }
    let late = || {
        HTTP_REFUSALS.of(HttpRefusal::SlowRequest).inc();
        Problem::new(Kind::Invalid, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
            .with_status(StatusCode::REQUEST_TIMEOUT)
    };
    let bytes = tokio::time::timeout(BODY_TIMEOUT, bounded(headers, body)).await.map_err(|_| late())??;
    let unreadable = |why: String| {
        HTTP_REFUSALS.of(HttpRefusal::Malformed).inc();
        Problem::malformed(format!("the body cannot be read: {why}"))
    };
    // Serde takes a list for a struct too.
    if !is_object(&bytes) {
        return Err(unreadable("a JSON object is expected".to_owned()));
    }
    serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))
}

/// Whether JSON, if it is some, is an object.
pub(super) fn is_object(json: &[u8]) -> bool {
    json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

/// The bytes of a body within [`BODY_BYTES_MAX`].
async fn bounded(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let mut parts = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut too_large = announced.is_some_and(|length| length > BODY_BYTES_MAX);
    while let (false, Some(part)) = (too_large, parts.next().await) {
        let part = part.map_err(|error| Problem::malformed(format!("the body did not arrive: {error}")))?;
        too_large = bytes.len() + part.len() > BODY_BYTES_MAX;
        if !too_large {
            bytes.extend_from_slice(&part);
        }
    }
    if !too_large {
        return Ok(bytes);
    }
    HTTP_REFUSALS.of(HttpRefusal::TooLarge).inc();
    if announced.is_none_or(|length| length <= DISCARDED_BYTES_MAX) {
        let discard = async {
            let mut read = 0;
            while let Some(Ok(part)) = parts.next().await {
                read += part.len();
                if read > DISCARDED_BYTES_MAX {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, discard).await;
    }
    Err(Problem::new(Kind::TooLarge, format!("the body has more than {BODY_BYTES_MAX} bytes")))
}

#[cfg(test)]
mod tests {
    use super::super::bodies::NearBody;
    use super::*;

    #[tokio::test]
    async fn a_body_has_a_type_and_a_bounded_size() {
        let mut headers = HeaderMap::new();
        let read = async |headers: &HeaderMap, bytes: Vec<u8>| body::<NearBody>(headers, Body::from(bytes)).await;
        assert_eq!(read(&headers, b"{}".to_vec()).await.unwrap_err().status, 415);
        headers.insert(header::CONTENT_TYPE, "text/plain".parse().unwrap());
        assert_eq!(read(&headers, b"{}".to_vec()).await.unwrap_err().status, 415);
        headers.insert(header::CONTENT_TYPE, "application/json; charset=utf-8".parse().unwrap());
        assert!(read(&headers, b"{}".to_vec()).await.is_ok());
        for malformed in [&b"{"[..], b"", b"[]", b"[3]", b"null", b"{}{}", b"\"most\""] {
            assert_eq!(read(&headers, malformed.to_vec()).await.unwrap_err().status, 400, "{malformed:?}");
        }
        assert_eq!(read(&headers, vec![b' '; BODY_BYTES_MAX + 1]).await.unwrap_err().status, 413);
        let nested = "[".repeat(100_000);
        assert_eq!(read(&headers, nested.into_bytes()).await.unwrap_err().status, 400);
    }
}
