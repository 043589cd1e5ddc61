//! Results in a bucket, over a server of S3 and of Google's XML interface that is made here.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use trawl_objects::{Address, Environment, open_bucket};

use super::group::GroupName;
use super::results::{Named, ResultStore};
use super::store_error::StoreError;
use super::testing::stored;

/// Keys of one page of a listing: few, so that several pages are asked for.
const PAGE: usize = 2;
/// Keys of one page of a real server's listing.
const REAL_PAGE: u32 = 1_000;

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The subset of S3, and of Google's interface, that the store uses, over objects in memory. Any signature and any token is accepted.
fn serve() -> (String, Objects) {
    let objects = Objects::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let kept = Arc::clone(&objects);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let objects = Arc::clone(&kept);
            // Ends with its connection.
            std::thread::spawn(move || while answer(&stream, &objects).is_some() {});
        }
    });
    (address, objects)
}

/// One request and its answer; `None` when the connection is over.
fn answer(stream: &TcpStream, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_ascii_lowercase());
    }
    let header = |name: &str| lines.iter().find_map(|l| l.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let mut body = vec![0; header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let signed = header("authorization").is_some_and(|a| a.starts_with("aws4-hmac-sha256") || a.starts_with("bearer "));
    let mut request = lines.first()?.split(' ');
    let (method, target) = (request.next()?, request.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter = |name: &str| query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
    let key = path
        .strip_prefix("/bucket")
        .map(|p| p.trim_start_matches('/').replace("%2f", "/").replace("%2e", ".").replace("%2d", "-"));
    let only_new = header("if-none-match") == Some("*") || header("x-goog-if-generation-match") == Some("0");
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, text) = match (method, key) {
        _ if !signed => (403, b"<Error><Code>AccessDenied</Code></Error>".to_vec()),
        ("put", Some(key)) if only_new && objects.contains_key(&key) => (412, Vec::new()),
        ("put", Some(key)) => {
            objects.insert(key, body);
            (200, Vec::new())
        }
        ("get", Some(key)) if key.is_empty() => {
            let prefix = parameter("prefix").unwrap_or_default().replace("%2f", "/");
            let after = parameter("continuation-token").unwrap_or_default().replace("%2f", "/");
            let under: Vec<&String> = objects.keys().filter(|k| k.starts_with(&prefix) && **k > after).collect();
            let shown = &under[..under.len().min(PAGE)];
            let contents = |k: &&String| {
                let size = objects[*k].len();
                format!(
                    "<Contents><Key>{k}</Key><Size>{size}</Size><LastModified>2026-11-21T00:00:00Z</LastModified><ETag>\"e\"</ETag></Contents>"
                )
            };
            let more = match shown.last().filter(|_| under.len() > shown.len()) {
                Some(last) => format!("<NextContinuationToken>{last}</NextContinuationToken>"),
                None => String::new(),
            };
            let shown: String = shown.iter().map(contents).collect();
            (200, format!("<ListBucketResult>{shown}{more}</ListBucketResult>").into_bytes())
        }
        ("get", Some(key)) => match objects.get(&key) {
            Some(bytes) => (200, bytes.clone()),
            None => (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
        },
        ("delete", Some(key)) => (if objects.remove(&key).is_some() { 204 } else { 404 }, Vec::new()),
        ("post", Some(_)) if query.starts_with("delete") => {
            let asked = String::from_utf8_lossy(&body).into_owned();
            let keys: Vec<&str> = asked.split("<Key>").skip(1).filter_map(|k| k.split("</Key>").next()).collect();
            keys.iter().for_each(|key| drop(objects.remove(*key)));
            let deleted: String = keys.iter().map(|k| format!("<Deleted><Key>{k}</Key></Deleted>")).collect();
            (200, format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes())
        }
        _ => (400, Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nETag: \"e\"\r\nLast-Modified: Sat, 21 Nov 2026 00:00:00 GMT\r\n\r\n",
        text.len()
    );
    let mut stream = stream;
    stream.write_all(&[head.into_bytes(), text].concat()).ok()
}

/// A bucket of the server, by its provider's scheme, with more variables.
fn bucket(scheme: &str, path: &str, server: &str, more: &[(&str, &str)]) -> Arc<dyn ObjectStore> {
    let text = format!("{scheme}://{path}");
    let Ok(Address::Bucket(address)) = Address::parse(&text) else { panic!("{text} is no bucket") };
    let endpoint = [("AWS_ENDPOINT_URL", server), ("AWS_REGION", "us-east-1"), ("GOOGLE_BASE_URL", server)];
    let variables = endpoint.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    open_bucket(&address, &Environment::of(variables)).unwrap()
}

#[test]
fn a_bucket_is_needed_and_an_address_is_shown_as_it_was_given() {
    assert!(ResultStore::open("s3://").is_err() && ResultStore::open("gs:///prefix").is_err());
    let store = ResultStore::open("s3://bucket/some/prefix/").unwrap();
    assert_eq!((store.shown(), store.is_local()), ("s3://bucket/some/prefix/", false));
}

/// `TRAWL_BUCKET_TEST=s3://BUCKET/PREFIX`, or `gs://`, `az://`, takes a real bucket, with its provider's variables for the rest.
#[tokio::test]
async fn a_bucket_keeps_what_a_directory_keeps() {
    if let Ok(bucket) = std::env::var("TRAWL_BUCKET_TEST") {
        return keeps(&ResultStore::open(&bucket).unwrap(), None).await;
    }
    for (scheme, keys) in [
        ("s3", [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hunter2")].as_slice()),
        ("gs", &[("GOOGLE_BEARER_TOKEN", "hunter2")]),
    ] {
        let (address, objects) = serve();
        let store = bucket(scheme, "bucket/pre/fix", &address, keys);
        keeps(&ResultStore::over(store, &format!("{scheme}://bucket/pre/fix")), Some(&objects)).await;
    }
}

/// What is put is there once, listed, read and deleted. `objects`: those of the server, if it is the one that is made here.
async fn keeps(store: &ResultStore, objects: Option<&Objects>) {
    let groups: u32 = if objects.is_none() { REAL_PAGE + 1 } else { 7 };
    assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
    store.probe("test").await.unwrap();
    store.delete_scan("s3-1").await.unwrap();
    let name = |number| GroupName { stage: 0, epoch: 5, number };
    for _ in 0..2 {
        store.put_group("s3-1", 0, name(1), &[stored(1, 100_000)]).await.unwrap();
    }
    for number in 2..=groups {
        store.put_group("s3-1", 0, name(number), &[stored(number, 10)]).await.unwrap();
    }
    let error = store.put_group("s3-1", 0, name(1), &[stored(2, 10)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    assert_eq!(store.put_named("s3-1", Named::Summary(0), b"one").await.unwrap(), None);
    assert_eq!(store.put_named("s3-1", Named::Summary(0), b"two").await.unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(store.named("s3-1", Named::Document).await.unwrap(), None);
    let contents = store.contents("s3-1", 0).await.unwrap();
    assert_eq!(contents.stages[&0].segments.keys().copied().collect::<Vec<_>>(), (1..=groups).collect::<Vec<_>>());
    assert_eq!(contents.stages[&0].segments[&1], stored(1, 100_000).outcome);
    assert_eq!(store.scans().await.unwrap()["s3-1"].objects, u64::from(groups) + 1);
    if let Some(objects) = objects {
        let objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(objects.keys().all(|key| key.starts_with("pre/fix/scans/s3-1/")), "{:?}", objects.keys());
    }
    assert_eq!(store.delete_scan("s3-1").await.unwrap(), u64::from(groups) + 1);
    assert!(!store.scans().await.unwrap().contains_key("s3-1"));
}

#[tokio::test]
async fn a_bucket_that_refuses_says_that_this_process_may_not() {
    let (address, _objects) = serve();
    let objects = bucket("s3", "bucket", &address, &[("AWS_SKIP_SIGNATURE", "true")]);
    let store = ResultStore::over(objects, "s3://bucket");
    let error = store.probe("test").await.unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert!(error.to_string().contains("s3://bucket"), "{error}");
}
