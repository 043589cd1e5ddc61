//! A proxy between a client and its coordinator that hands on the end of each stream a moment after all that came before it, as a network
//! may: in one process both arrive together.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// How much later the end of a stream arrives.
const DELAY: Duration = Duration::from_millis(1);
/// Bytes of the head of a frame of HTTP/2: length, type, flags, stream (RFC 9113, section 4.1).
const HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// Starts a proxy to a coordinator on loopback; returns its URL.
pub async fn late_trailers(url: &str) -> String {
    let to: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(to).await.expect("the coordinator");
            client.set_nodelay(true).expect("an option");
            let ((mut from_client, to_client), (from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            tokio::spawn(hand_on(from_server, to_client));
        }
    });
    format!("http://{at}")
}

/// Frame by frame, in order: the tables of header compression depend on it.
async fn hand_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    loop {
        let mut frame = vec![0; HEAD_BYTES];
        from.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(HEAD_BYTES + length, 0);
        from.read_exact(&mut frame[HEAD_BYTES..]).await?;
        if frame[3] == HEADERS && frame[4] & END_STREAM != 0 {
            tokio::time::sleep(DELAY).await;
        }
        to.write_all(&frame).await?;
    }
}
