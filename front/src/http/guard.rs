//! Refuses requests that a browser was made to send: by a page of another site, or by a name that was made to lead here.

use axum::http::{HeaderMap, Uri, header};
use trawl_security::{Peer, PeerIdentity};
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HttpRefusal};
use trawl_wire::loopback::is_loopback;

use super::problem::{Kind, Problem};

/// Characters of a header that are said again.
const SAID_MAX: usize = 128;

/// A refusal, which is counted.
fn refused(why: HttpRefusal, what: &str, value: &str, help: &str) -> Problem {
    HTTP_REFUSALS.of(why).inc();
    let value: String = value.chars().filter(|c| !c.is_control()).take(SAID_MAX).collect();
    Problem::new(Kind::Denied, format!("{what}: '{value}'")).help(help)
}

/// Checks where a request claims to go to: over plain text on loopback, to this machine by a name of its own.
///
/// # Errors
/// 403, counted.
pub fn check_host(peer: &Peer, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    // Over a certificate a browser has checked the name, and over a network there is no name to compare with.
    let is_plain = peer.identity == PeerIdentity::PlainText;
    let named = uri.authority().is_none_or(|authority| is_loopback(authority.as_str()));
    if is_plain && peer.address.ip().is_loopback() && !(is_loopback(host) && hosts.next().is_none() && named) {
        let (what, help) =
            ("the header Host does not name this machine", "use the address with 127.0.0.1 or localhost");
        return Err(refused(HttpRefusal::Host, what, host, help));
    }
    Ok(())
}

/// Checks where a request claims to come from and to go to.
///
/// # Errors
/// 403, counted.
pub fn check(peer: &Peer, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    check_host(peer, uri, headers)?;
    let refused = |value: &str| {
        let (what, help) =
            ("the request comes from another site", "this interface is for programs, not for pages of other sites");
        refused(HttpRefusal::Origin, what, value, help)
    };
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("(not text)"));
    if let Some(origin) = text(header::ORIGIN) {
        let scheme = if peer.identity == PeerIdentity::PlainText { "http://" } else { "https://" };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if origin.strip_prefix(scheme) != Some(host) {
            return Err(refused(origin));
        }
    }
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site"))
        && !matches!(site, "same-origin" | "none")
    {
        return Err(refused(site));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&str, &str)]) -> u16 {
        let peer = Peer { address: "127.0.0.1:5".parse().unwrap(), identity: PeerIdentity::PlainText };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: header::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        check(&peer, &Uri::from_static("/v1/scans"), &map).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn a_name_that_is_not_of_this_machine_is_refused() {
        for host in ["127.0.0.1:7410", "localhost:7410", "[::1]:7410", "127.8.8.8", "localhost"] {
            assert_eq!(status(&[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:7410",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7410",
            "127.0.0.1:7410.evil.example",
            "",
            "10.0.0.1:7410",
        ] {
            assert_eq!(status(&[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&[]), 403);
        assert_eq!(status(&[("host", "localhost"), ("host", "evil.example")]), 403);
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let here = ("host", "127.0.0.1:7410");
        assert_eq!(status(&[here, ("origin", "http://127.0.0.1:7410")]), 200);
        for origin in
            ["https://evil.example", "null", "http://127.0.0.1:7411", "https://127.0.0.1:7410", "127.0.0.1:7410"]
        {
            assert_eq!(status(&[here, ("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(status(&[here, ("sec-fetch-site", "none")]), 200);
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(status(&[here, ("sec-fetch-site", site)]), 403, "{site}");
        }
    }

    #[test]
    fn over_a_network_there_is_no_name_to_compare_with_and_pages_are_still_refused() {
        let peer = Peer { address: "10.0.0.9:5".parse().unwrap(), identity: PeerIdentity::PlainText };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "coordinator.example:7401".parse().unwrap());
        assert!(check(&peer, &Uri::from_static("/"), &headers).is_ok());
        headers.insert(header::ORIGIN, "http://evil.example".parse().unwrap());
        assert!(check(&peer, &Uri::from_static("/"), &headers).is_err());
    }
}
