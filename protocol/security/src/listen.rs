//! The serving side: accepts connections, performs handshakes, and identifies peers.
//!
//! Handshakes run concurrently, bounded in number and time, so that a silent peer delays nothing. A rejected peer gets
//! the reason as a TLS alert, and the log states which certificate it was and what to do.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use trawl_telemetry::metrics::catalogue::process::{AUTH_FAILURES, AuthFailure};

use crate::identity::Identity;
use crate::tls::{Credentials, Protocol, Reason};

/// Maximum concurrent handshakes; further connections wait in the operating system.
pub const HANDSHAKES_MAX: usize = 64;
/// Maximum concurrent handshakes of one address; further connections of it are closed, so that one stranger does not keep
/// everybody out.
pub const HANDSHAKES_PER_ADDRESS_MAX: usize = 16;
/// Timeout of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Accepted connections waiting to be served.
const ACCEPTED_MAX: usize = 64;
/// Wait after `accept` failed, for instance for lack of file descriptors.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);
/// How long a rejected connection is still read, so that the peer receives the alert before the connection is reset.
const LINGER: Duration = Duration::from_millis(500);
/// Maximum bytes read meanwhile.
const LINGER_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of rejections logged as warnings per [`REFUSALS_WINDOW`]: a port scanner must not fill the log.
const REFUSALS_LOGGED_MAX: u32 = 20;
/// See [`REFUSALS_LOGGED_MAX`].
const REFUSALS_WINDOW: Duration = Duration::from_secs(10);

/// The peer of a connection; in the extensions of each of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its identity.
    pub identity: PeerIdentity,
}

/// What is known about the peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
    /// Nothing: the connection is plain text.
    PlainText,
    /// A verified certificate's identity, or why it has none.
    Certificate(Result<Identity, String>),
}

/// A connection, encrypted or not.
pub struct Accepted {
    io: Io,
    peer: Peer,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Accepted {
    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Connected for Accepted {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, slices),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, slices),
        }
    }

    /// A frame's head and its payload in one call of the system.
    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

/// Stream of connections ready to be served with gRPC. Must be called inside a runtime; ends when the stream is dropped.
pub fn incoming(listener: TcpListener, tls: Option<Arc<Credentials>>) -> ReceiverStream<io::Result<Accepted>> {
    incoming_of(listener, tls, Protocol::Http2)
}

/// As [`incoming`], for another protocol.
pub fn incoming_of(
    listener: TcpListener,
    tls: Option<Arc<Credentials>>,
    protocol: Protocol,
) -> ReceiverStream<io::Result<Accepted>> {
    let (ready, accepted) = mpsc::channel(ACCEPTED_MAX);
    tokio::spawn(async move {
        let shaking = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let addresses = Arc::new(Addresses::default());
        let refusals = Arc::new(Refusals(Mutex::new((Instant::now(), 0))));
        loop {
            let next = tokio::select! {
                next = listener.accept() => next,
                () = ready.closed() => return,
            };
            let (io, address) = match next {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection, trying again");
                    tokio::time::sleep(ACCEPT_BACK_OFF).await;
                    continue;
                }
            };
            // Without it small replies wait 40 ms for an ACK. Fails only if the connection is gone.
            let _ = io.set_nodelay(true);
            let Some(tls) = tls.clone() else {
                let peer = Peer { address, identity: PeerIdentity::PlainText };
                if ready.send(Ok(Accepted { io: Io::Plain(io), peer })).await.is_err() {
                    return;
                }
                continue;
            };
            let Some(share) = addresses.take(address.ip()) else {
                refusals.record(address, "it has too many handshakes of TLS under way");
                continue;
            };
            // Never closed.
            let Ok(permit) = Arc::clone(&shaking).acquire_owned().await else { return };
            let (ready, refusals) = (ready.clone(), Arc::clone(&refusals));
            tokio::spawn(async move {
                let (_permit, _share) = (permit, share);
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, shake_hands(&tls, (io, address), protocol)).await {
                    Ok(Ok(accepted)) => {
                        // Fails only when the server is ending.
                        let _ = ready.send(Ok(accepted)).await;
                    }
                    Ok(Err(why)) => refusals.record(address, &why),
                    Err(_) => refusals.record(address, "it did not finish the handshake of TLS in time"),
                }
            });
        }
    });
    ReceiverStream::new(accepted)
}

/// Handshakes under way, by address.
#[derive(Debug, Default)]
struct Addresses(Mutex<BTreeMap<IpAddr, usize>>);

/// One handshake of an address, until it is dropped.
#[derive(Debug)]
struct AddressShare {
    addresses: Arc<Addresses>,
    ip: IpAddr,
}

impl Addresses {
    /// A share, unless the address has too many already.
    fn take(self: &Arc<Self>, ip: IpAddr) -> Option<AddressShare> {
        let mut shaking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = shaking.entry(ip).or_default();
        if *count >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(AddressShare { addresses: Arc::clone(self), ip })
    }
}

impl Drop for AddressShare {
    fn drop(&mut self) {
        let mut shaking = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = shaking.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                shaking.remove(&self.ip);
            }
        }
    }
}

async fn shake_hands(
    tls: &Credentials,
    (io, address): (TcpStream, SocketAddr),
    protocol: Protocol,
) -> Result<Accepted, String> {
    let reason = Reason::default();
    let config = tls.server_config(&reason, protocol).map_err(|error| error.to_string())?;
    let mut stream = match TlsAcceptor::from(config).accept(io).into_fallible().await {
        Ok(stream) => stream,
        Err((error, io)) => {
            linger(io).await;
            return Err(why_refused(tls, &error, reason.take()));
        }
    };
    // Does not block: the certificate is available after the handshake.
    let certificate = stream.get_mut().1.peer_certificates().and_then(|chain| chain.first().cloned());
    let identity = match certificate {
        Some(certificate) => Identity::of_certificate(&certificate),
        None => Err("no certificate was shown".to_owned()),
    };
    let peer = Peer { address, identity: PeerIdentity::Certificate(identity) };
    Ok(Accepted { io: Io::Tls(Box::new(stream)), peer })
}

/// A connection with unread bytes is reset when it is closed, and the reset would overtake the alert.
async fn linger(mut io: TcpStream) {
    let _ = io.shutdown().await;
    let drained = async {
        let (mut ignored, mut total) = ([0; 1024], 0);
        while let Ok(n @ 1..) = io.read(&mut ignored).await {
            total += n;
            if total > LINGER_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drained).await;
}

fn why_refused(tls: &Credentials, error: &io::Error, reason: Option<String>) -> String {
    if let Some(reason) = reason {
        return reason;
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::NoCertificatesPresented) => {
            "it showed no certificate; it needs --tls-cert and --tls-key".to_owned()
        }
        Some(rustls::Error::AlertReceived(alert)) => tls.explain_alert(*alert),
        Some(rustls::Error::InvalidMessage(_)) => {
            "it does not speak TLS; it has to use https:// and --tls-ca".to_owned()
        }
        Some(other) => other.to_string(),
        None => error.to_string(),
    }
}

/// Rate limit of logged rejections: start of the current window, and number logged in it.
struct Refusals(Mutex<(Instant, u32)>);

impl Refusals {
    fn record(&self, address: SocketAddr, why: &str) {
        AUTH_FAILURES.of(AuthFailure::Handshake).inc();
        if self.is_within_limit(Instant::now()) {
            tracing::warn!(target: "trawl::audit", peer = %address, outcome = "refused", why, "connection");
        } else {
            tracing::debug!(target: "trawl::audit", peer = %address, outcome = "refused", why, "connection");
        }
    }

    fn is_within_limit(&self, now: Instant) -> bool {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(counted.0) >= REFUSALS_WINDOW {
            *counted = (now, 0);
        }
        counted.1 = counted.1.saturating_add(1);
        counted.1 <= REFUSALS_LOGGED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_share_of_the_handshakes_and_gives_it_back() {
        let addresses = Arc::new(Addresses::default());
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut held: Vec<_> = (0..HANDSHAKES_PER_ADDRESS_MAX).map(|_| addresses.take(one).expect("a share")).collect();
        assert!(addresses.take(one).is_none());
        assert!(addresses.take(other).is_some(), "another address is not concerned");
        held.pop();
        assert!(addresses.take(one).is_some());
        drop(held);
        assert!(addresses.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_flood_of_refusals_is_logged_in_part_and_the_next_window_begins_anew() {
        let start = Instant::now();
        let refusals = Refusals(Mutex::new((start, 0)));
        let logged = (0..1000).filter(|_| refusals.is_within_limit(start)).count();
        assert_eq!(logged, REFUSALS_LOGGED_MAX as usize);
        assert!(refusals.is_within_limit(start + REFUSALS_WINDOW));
    }
}
