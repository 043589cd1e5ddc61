//! The page for people: files of `front/page`, inside the executable. Nothing is built from them, and they load nothing from
//! other hosts.
//!
//! [`reply`] is a plain function of a path; [`mounted`] puts the files into a router. Everybody may read them: they contain no
//! data, and each request that they make has the rule of access of its own path.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// What a browser may do with the page: load from this server only, run no script and apply no style inside the document, be in
/// no frame, send no form.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Digits of a digest in an `ETag`.
const TAG_DIGITS: usize = 32;

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Where it is served.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// What it contains.
    pub bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! assets {
    ($($path:literal, $file:literal, $type:expr;)*) => {
        [$(Asset { path: $path, content_type: $type, bytes: include_bytes!(concat!("../page/", $file)) }),*]
    };
}

/// Every file of the page.
#[rustfmt::skip]
pub static ASSETS: [Asset; 27] = assets! {
    "/", "index.html", HTML;
    "/icon.svg", "icon.svg", IMAGE;
    "/style.css", "style.css", STYLE;
    "/views.css", "views.css", STYLE;
    "/api.js", "api.js", SCRIPT;
    "/app.js", "app.js", SCRIPT;
    "/chart.js", "chart.js", SCRIPT;
    "/cluster.js", "cluster.js", SCRIPT;
    "/colours.js", "colours.js", SCRIPT;
    "/compare.js", "compare.js", SCRIPT;
    "/coverage.js", "coverage.js", SCRIPT;
    "/document.js", "document.js", SCRIPT;
    "/dom.js", "dom.js", SCRIPT;
    "/draw.js", "draw.js", SCRIPT;
    "/editor.js", "editor.js", SCRIPT;
    "/language.js", "language.js", SCRIPT;
    "/link.js", "link.js", SCRIPT;
    "/past.js", "past.js", SCRIPT;
    "/results.js", "results.js", SCRIPT;
    "/scan.js", "scan.js", SCRIPT;
    "/shared.js", "shared.js", SCRIPT;
    "/sparks.js", "sparks.js", SCRIPT;
    "/symbol.js", "symbol.js", SCRIPT;
    "/table.js", "table.js", SCRIPT;
    "/waterfall.js", "waterfall.js", SCRIPT;
    "/why.js", "why.js", SCRIPT;
    "/words.js", "words.js", SCRIPT;
};

/// The `ETag` of each file, in the order of [`ASSETS`].
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| ASSETS.iter().map(|asset| tag(asset.bytes)).collect());

fn tag(bytes: &[u8]) -> String {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{}\"", &digest[..TAG_DIGITS])
}

/// Each file compressed, in the order of [`ASSETS`]: once, at the first request of a browser that takes it. Empty where that fails.
static PACKED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| ASSETS.iter().map(|asset| packed(asset.bytes)).collect());

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::best());
    match encoder.write_all(bytes) {
        Ok(()) => encoder.finish().unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// Whether `Accept-Encoding` admits gzip.
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        let refused =
            parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0)));
        named && !refused
    })
}

/// A file and its headers.
#[derive(Debug)]
pub struct Reply {
    /// 200, or 304 for a browser that has the file.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// Empty for 304.
    pub bytes: &'static [u8],
}

/// The file at a path; `None` if there is none. `if_none_match` and `accept_encoding`: the headers of these names.
pub fn reply(path: &str, if_none_match: Option<&str>, accept_encoding: Option<&str>) -> Option<Reply> {
    let index = ASSETS.iter().position(|asset| asset.path == path)?;
    let asset = &ASSETS[index];
    let packed = accept_encoding.filter(|accepted| takes_gzip(accepted)).and_then(|_| PACKED.get(index));
    let packed = packed.filter(|packed| !packed.is_empty() && packed.len() < asset.bytes.len());
    // Each encoding has a tag of its own.
    let tag = TAGS.get(index)?;
    let tag = packed.map_or_else(|| tag.clone(), |_| format!("{}-gz\"", tag.trim_end_matches('"')));
    let names =
        |list: &str| list.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag);
    let is_known = if_none_match.is_some_and(names);
    let mut headers = vec![
        ("etag", tag),
        ("vary", "accept-encoding".to_owned()),
        // Files are asked for again each time and are then usually known: a page never runs with parts of two releases.
        ("cache-control", "no-cache".to_owned()),
        ("content-type", asset.content_type.to_owned()),
        ("content-security-policy", CONTENT_SECURITY_POLICY.to_owned()),
        ("x-content-type-options", "nosniff".to_owned()),
        ("x-frame-options", "DENY".to_owned()),
        ("referrer-policy", "no-referrer".to_owned()),
        ("cross-origin-opener-policy", "same-origin".to_owned()),
        ("cross-origin-resource-policy", "same-origin".to_owned()),
    ];
    if packed.is_some() {
        headers.push(("content-encoding", "gzip".to_owned()));
    }
    let bytes = packed.map_or(asset.bytes, Vec::as_slice);
    let (status, bytes) = if is_known { (304, &[][..]) } else { (200, bytes) };
    Some(Reply { status, headers, bytes })
}

/// The router with the page's files.
pub fn mounted(mut router: Router) -> Router {
    for asset in &ASSETS {
        router = router.route(asset.path, get(async move |headers: HeaderMap| response(asset.path, &headers)));
    }
    router
}

fn response(path: &str, headers: &HeaderMap) -> Response {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let mut response = Response::new(Body::empty());
    let Some(reply) = reply(path, text(header::IF_NONE_MATCH), text(header::ACCEPT_ENCODING)) else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    *response.status_mut() = if reply.status == 304 { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    *response.body_mut() = Body::from(reply.bytes);
    for (name, value) in reply.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let paths = ASSETS.iter().map(|asset| if asset.path == "/" { "index.html" } else { &asset.path[1..] });
        assert_eq!(files.collect::<BTreeSet<_>>(), paths.map(str::to_owned).collect::<BTreeSet<_>>());
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = reply("/", None, None).unwrap();
        assert_eq!((first.status, first.bytes), (200, ASSETS[0].bytes));
        let tag = first.headers.iter().find(|(name, _)| *name == "etag").unwrap().1.clone();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
            let again = reply("/", Some(&known), None).unwrap();
            assert_eq!((again.status, again.bytes.len()), (304, 0), "{known}");
        }
        assert_eq!(reply("/", Some("\"other\""), None).unwrap().status, 200);
        assert!(reply("/../Cargo.toml", None, None).is_none());
        assert!(reply("/v1/version", None, None).is_none());
    }

    #[test]
    fn a_browser_that_takes_it_receives_every_file_compressed() {
        use std::io::Read as _;
        let [mut all, mut sent] = [0, 0];
        for asset in &ASSETS {
            let found = reply(asset.path, None, Some("br;q=1.0, gzip;q=0.8")).unwrap();
            let header =
                |name: &str| found.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
            let plain = reply(asset.path, None, None).unwrap();
            assert_eq!(header("vary").as_deref(), Some("accept-encoding"));
            (all, sent) = (all + asset.bytes.len(), sent + found.bytes.len());
            if header("content-encoding").is_none() {
                assert_eq!(found.bytes, asset.bytes, "one that would grow: {}", asset.path);
                continue;
            }
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(found.bytes).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, asset.bytes, "{}", asset.path);
            let tag = header("etag").unwrap();
            assert!(plain.headers.iter().all(|(_, value)| *value != tag), "another tag: {tag}");
            let again = reply(asset.path, Some(&tag), Some("gzip")).unwrap();
            assert_eq!((again.status, again.bytes.len()), (304, 0));
            assert_eq!(reply(asset.path, Some(&tag), None).unwrap().status, 200, "not that of the plain file");
        }
        assert!(sent * 5 < all * 2, "{sent} of {all} bytes");
        for (accepted, taken) in
            [("gzip", true), ("*", true), ("", false), ("br", false), ("gzip;q=0", false), ("GZIP ; q=1", true)]
        {
            assert_eq!(takes_gzip(accepted), taken, "{accepted}");
        }
    }

    #[test]
    fn nothing_is_inside_the_document_and_nothing_comes_from_elsewhere() {
        let text = |asset: &Asset| std::str::from_utf8(asset.bytes).unwrap().to_owned();
        let html = text(&ASSETS[0]);
        for forbidden in ["<style", " style=", "javascript:", " onclick=", " onload=", "<script>"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        assert!(html.matches("<script").count() == html.matches("src=\"app.js\"></script>").count());
        for asset in &ASSETS {
            // The name of a namespace is no address that is loaded.
            let text = text(asset).replace("http://www.w3.org/2000/svg", "");
            for forbidden in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "@import",
                "document.write",
            ] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", asset.path);
            }
        }
    }

    #[test]
    fn files_are_short_and_are_small_together() {
        for asset in &ASSETS {
            assert!(asset.bytes.split(|byte| *byte == b'\n').count() < 500, "{}", asset.path);
        }
        let all: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(all < 200_000, "{all} bytes");
    }

    #[tokio::test]
    async fn the_router_serves_the_page_and_keeps_its_own_paths() {
        use tonic::codegen::Service as _;
        let own = Router::new().route("/healthz", get(|| async { "ok" }));
        let mut router = mounted(own);
        let mut asked = async |path: &str| {
            let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
            router.call(request).await.unwrap()
        };
        let page = asked("/").await;
        assert_eq!(page.status(), StatusCode::OK);
        assert_eq!(page.headers()[header::CONTENT_TYPE], HTML);
        assert_eq!(page.headers()[header::CONTENT_SECURITY_POLICY], CONTENT_SECURITY_POLICY);
        assert_eq!(page.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(asked("/app.js").await.headers()[header::CONTENT_TYPE], SCRIPT);
        assert_eq!(asked("/healthz").await.status(), StatusCode::OK);
        assert_eq!(asked("/nothing.js").await.status(), StatusCode::NOT_FOUND);
    }
}
