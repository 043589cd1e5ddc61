//! Connects to a coordinator: any of several, over TLS or on this machine.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use trawl_security::{ClientSecurity, Connector, Expect, Role};
use trawl_wire::error::innermost;
use trawl_wire::limits::MESSAGE_BYTES_MAX;
use trawl_wire::loopback::is_loopback;
use trawl_wire::pb::coordinator_client::CoordinatorClient;

use super::ClientError;

/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval and timeout of pings to an idle coordinator.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// Maximum time to find out whether a server expects TLS.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The first bytes of an HTTP/2 connection (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS record that carries an alert (RFC 8446, section 5.1).
const TLS_ALERT: u8 = 21;

/// A client, and the connector, which knows why a TLS handshake failed.
pub(super) async fn connect(
    url: &str,
    security: &ClientSecurity,
) -> Result<(CoordinatorClient<Channel>, Connector), ClientError> {
    let malformed = |why: &str| ClientError::Url { url: url.to_owned(), why: why.to_owned() };
    let (host, encrypted) = match url.split_once("://") {
        Some(("http", host)) => (host.trim_end_matches('/'), false),
        Some(("https", host)) => (host.trim_end_matches('/'), true),
        _ => return Err(malformed("it does not begin with http:// or https://")),
    };
    if host.rsplit_once(':').is_none_or(|(name, port)| name.is_empty() || port.parse::<u16>().is_err()) {
        return Err(malformed("it has no port"));
    }
    // The connector decides on TLS, so the endpoint is always `http`.
    let endpoint = Endpoint::from_shared(format!("http://{host}")).map_err(|_| malformed("it is not a URL"))?;
    check_secure(url, host, encrypted, security)?;
    let connector = Connector::new(security.tls.clone(), Expect::Role(Role::Coordinator));
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(HTTP2_KEEP_ALIVE.0)
        .keep_alive_timeout(HTTP2_KEEP_ALIVE.1);
    let channel =
        endpoint.connect_with_connector(connector.clone()).await.map_err(|error| match connector.reason() {
            Some(why) => ClientError::Untrusted { url: url.to_owned(), why },
            None => ClientError::Unreachable { url: url.to_owned(), why: innermost(&error) },
        })?;
    let client = CoordinatorClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Ok((client, connector))
}

/// Rejects plain text to other machines unless it is explicitly allowed, and tokens over plain text to other machines
/// in any case.
fn check_secure(url: &str, host: &str, encrypted: bool, security: &ClientSecurity) -> Result<(), ClientError> {
    let insecure = |why: &str| Err(ClientError::Insecure { url: url.to_owned(), why: why.to_owned() });
    match (encrypted, security.tls.is_some()) {
        (true, true) => Ok(()),
        (true, false) => insecure("https needs --tls-ca FILE, and --tls-cert and --tls-key of this side"),
        (false, true) => insecure("certificates are given, but it is plain text: write https://"),
        (false, false) if is_loopback(host) => Ok(()),
        (false, false) if security.token.is_some() => {
            insecure("a token is not sent in plain text to another machine: use https:// and --tls-ca")
        }
        (false, false) if !security.insecure => insecure(
            "plain text to another machine is neither encrypted nor authenticated: use https:// with --tls-ca, \
             --tls-cert and --tls-key, or insist with --insecure",
        ),
        (false, false) => {
            tracing::warn!("--insecure: the scan and its answer travel in plain text to {host}, who may be anybody");
            Ok(())
        }
    }
}

/// Whether a server that was addressed in plain text expects TLS: it answers the beginning of HTTP/2 with an alert.
pub(super) async fn expects_tls(url: &str) -> bool {
    let Some(host) = url.strip_prefix("http://") else { return false };
    let first_byte = async {
        let mut stream = TcpStream::connect(host.trim_end_matches('/')).await?;
        stream.write_all(HTTP2_PREFACE).await?;
        stream.read_u8().await
    };
    matches!(tokio::time::timeout(PROBE_TIMEOUT, first_byte).await, Ok(Ok(TLS_ALERT)))
}

/// The error of a server that expects TLS and was addressed in plain text.
pub(super) fn needs_tls(url: &str) -> ClientError {
    let why = "it expects TLS: write https:// and give --tls-ca, --tls-cert and --tls-key".to_owned();
    ClientError::Untrusted { url: url.to_owned(), why }
}
