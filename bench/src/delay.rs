//! `trawl-bench delay`: connections that take longer, for measuring what a network costs.
//!
//! Passes bytes on to another address, each piece so long after it came, in both directions. Nothing is lost, and the order stays. Threads, not
//! a runtime: its timers have a resolution of a millisecond, which is what is to be measured.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces under way in one direction; whoever sends waits while there are so many.
const PIECES_MAX: usize = 256;

/// Arguments of the proxy.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen and where to pass bytes on to
    #[arg(long, value_name = "IP:PORT=IP:PORT", required = true, value_parser = link)]
    link: Vec<(String, String)>,
    /// Milliseconds in each direction
    #[arg(long, default_value_t = 1.0)]
    ms: f64,
}

fn link(text: &str) -> Result<(String, String), String> {
    let found = text.split_once('=').filter(|(from, to)| from.contains(':') && to.contains(':'));
    found.map(|(from, to)| (from.to_owned(), to.to_owned())).ok_or_else(|| "IP:PORT=IP:PORT is expected".to_owned())
}

/// Reads until the connection ends; the end is passed on after what came before.
fn read(mut from: TcpStream, pieces: &SyncSender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        if pieces.send((Instant::now(), buffer[..bytes].to_vec())).is_err() {
            return;
        }
    }
}

/// One direction of a connection.
fn pass(from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (pieces, came) = sync_channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    thread::spawn(move || read(from, &pieces));
    for (at, piece) in came {
        thread::sleep((at + delay).saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn serve(listener: &TcpListener, target: &str, delay: Duration) {
    for client in listener.incoming().flatten() {
        let Ok(server) = TcpStream::connect(target) else { continue };
        let both = [&client, &server].map(|stream| stream.set_nodelay(true).and_then(|()| stream.try_clone()));
        let [Ok(client_out), Ok(server_out)] = both else { continue };
        thread::spawn(move || pass(client, server_out, delay));
        thread::spawn(move || pass(server, client_out, delay));
    }
}

/// Runs until it is stopped.
///
/// # Errors
/// An address cannot be listened on.
pub fn run(args: &Args) -> Result<ExitCode> {
    let delay = Duration::from_secs_f64(args.ms.max(0.0) / 1e3);
    let mut threads = Vec::new();
    for (from, to) in &args.link {
        let listener = TcpListener::bind(from).with_context(|| format!("cannot listen on {from}"))?;
        let to = to.clone();
        threads.push(thread::spawn(move || serve(&listener, &to, delay)));
    }
    println!("ready");
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(ExitCode::SUCCESS)
}
