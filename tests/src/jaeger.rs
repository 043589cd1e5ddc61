//! A fake of Jaeger's query API over the spans that a [`Sink`] received: as much of its format as
//! `deploy/jaeger/find-slow-shard` needs. Only Jaeger itself can show that the format is right
//! (`tests/external/jaeger`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::otlp::{Sink, Span};

/// Answers on a free loopback port, as long as the process lives; returns its URL.
pub fn serve(sink: Arc<Sink>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnects early will ask again.
            let _ = answer(stream, &sink);
        }
    });
    url
}

fn answer(mut stream: TcpStream, sink: &Sink) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let target = first.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let asked: BTreeMap<String, String> =
        query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (decoded(k), decoded(v))).collect();
    let spans = sink.spans();
    let data = match path {
        // Jaeger answers null, not an empty list, before the first span.
        "/api/services" if spans.is_empty() => Value::Null,
        "/api/services" => json!(spans.iter().map(|span| &span.service).collect::<BTreeSet<_>>()),
        "/api/traces" => json!(traces(&spans, &asked)),
        _ => {
            return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    };
    let body = json!({ "data": data }).to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Those that have a span of the service and operation with all of the tags.
fn traces(spans: &[Span], asked: &BTreeMap<String, String>) -> Vec<Value> {
    let text = |key: &str| asked.get(key).map_or("", String::as_str);
    let tags: BTreeMap<String, String> = serde_json::from_str(text("tags")).unwrap_or_default();
    let matches = |span: &Span| {
        span.service == text("service")
            && span.name == text("operation")
            && tags.iter().all(|(key, value)| span.get(key) == value)
    };
    let ids: BTreeSet<&str> = spans.iter().filter(|span| matches(span)).map(|span| span.trace.as_str()).collect();
    let of = |id: &str| {
        let spans: Vec<&Span> = spans.iter().filter(|span| span.trace == id).collect();
        let processes: BTreeMap<&str, Value> =
            spans.iter().map(|span| (span.service.as_str(), json!({ "serviceName": span.service }))).collect();
        json!({ "traceID": id, "spans": spans.iter().map(|span| shown(span)).collect::<Vec<_>>(), "processes": processes })
    };
    ids.into_iter().map(of).collect()
}

fn shown(span: &Span) -> Value {
    let reference = json!({ "refType": "CHILD_OF", "traceID": span.trace, "spanID": span.parent });
    let tags: Vec<Value> = span.attributes.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    json!({
        "traceID": span.trace,
        "spanID": span.span,
        "operationName": span.name,
        "references": if span.parent.is_empty() { vec![] } else { vec![reference] },
        "startTime": span.start_ns / 1000,
        "duration": span.end_ns.saturating_sub(span.start_ns) / 1000,
        "tags": tags,
        "processID": span.service,
    })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let hex = (first == b'%').then(|| more.get(..2)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(if first == b'+' { b' ' } else { first });
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
