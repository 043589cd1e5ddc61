//! A real etcd: the one that `./test` shares (`TRAWL_TEST_ETCD`), or one of this process's own.

use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::certs::Files;
use crate::executable::repository;
use crate::process::Background;
use crate::wait;

/// A free port may be taken before etcd binds it.
const ATTEMPTS_MAX: u32 = 5;
const HEALTHY_BOUND: Duration = Duration::from_secs(30);

/// The client URL of an etcd for tests.
///
/// # Panics
/// When there is none: a cluster test is never skipped.
pub fn endpoint() -> String {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| std::env::var("TRAWL_TEST_ETCD").unwrap_or_else(|_| start_own())).clone()
}

/// A cluster name, which is etcd's key prefix, that no other test uses.
pub fn fresh_cluster_name() -> String {
    // A temporary directory's name is random and unique on this machine.
    let unique = tempfile::Builder::new().prefix("").rand_bytes(12).tempdir().expect("a temporary directory");
    let name = unique.path().file_name().and_then(|n| n.to_str()).expect("a plain name");
    format!("test-{}", name.to_lowercase())
}

/// A loopback port that is free at this moment.
pub fn free_port() -> u16 {
    free_port_of(IpAddr::from([127, 0, 0, 1]))
}

/// The same for another address of this machine.
pub fn free_port_of(ip: IpAddr) -> u16 {
    TcpListener::bind((ip, 0)).and_then(|l| l.local_addr()).expect("a free port").port()
}

/// The executable: named by `./test`, unpacked by an earlier run of it, or on PATH.
pub fn executable() -> PathBuf {
    let unpacked = repository().join("target/tools/etcd");
    let on_path = || std::env::split_paths(&std::env::var_os("PATH")?).map(|d| d.join("etcd")).find(|p| p.is_file());
    std::env::var_os("TRAWL_ETCD")
        .map(PathBuf::from)
        .or_else(on_path)
        .or_else(|| unpacked.is_file().then_some(unpacked))
        .unwrap_or_else(|| panic!("no etcd: run ./test, or tools/get-etcd once, or put etcd on PATH"))
}

fn start_own() -> String {
    // Statics are never dropped: a watcher stops etcd and removes its files when this process has ended.
    let mut script = Command::new("python3");
    script.arg(repository().join("tools/shared_etcd.py")).arg(executable());
    script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = script.spawn().expect("python3 can be run");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("shared_etcd.py says its URL");
    assert!(line.starts_with("http://"), "shared_etcd.py did not start etcd");
    // The open pipe keeps it alive.
    std::mem::forget(child);
    line.trim().to_owned()
}

/// An etcd of the test's own, which it may stop and kill.
#[derive(Debug)]
pub struct OwnEtcd {
    pub process: Background,
    pub url: String,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
}

impl OwnEtcd {
    /// Starts one and waits until it accepts connections.
    pub fn start() -> Self {
        Self::start_with("http", &[])
    }

    /// One with additional flags.
    pub fn start_with_flags(flags: &[String]) -> Self {
        Self::start_with("http", flags)
    }

    /// One that accepts only connections with a certificate of the CA of `files`.
    pub fn start_secure(files: &Files) -> Self {
        let text = |path: &std::path::Path| path.display().to_string();
        Self::start_with(
            "https",
            &[
                format!("--cert-file={}", text(&files.certificate)),
                format!("--key-file={}", text(&files.key)),
                format!("--trusted-ca-file={}", text(&files.ca)),
                "--client-cert-auth".to_owned(),
            ],
        )
    }

    fn start_with(scheme: &str, flags: &[String]) -> Self {
        for _ in 0..ATTEMPTS_MAX {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let (client, peer) = (free_port(), free_port());
            let (url, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
            let mut arguments = vec![
                "--name=own".to_owned(),
                format!("--data-dir={}", folder.path().join("data").display()),
                format!("--listen-client-urls={url}"),
                format!("--advertise-client-urls={url}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=own={peer}"),
                "--log-level=error".to_owned(),
            ];
            arguments.extend_from_slice(flags);
            let process = Background::start("etcd", Command::new(executable()).args(&arguments));
            let mut etcd = Self { process, url, arguments, folder };
            if etcd.accepts() {
                return etcd;
            }
        }
        panic!("etcd did not start in {ATTEMPTS_MAX} attempts");
    }

    /// Whether it accepts connections in time.
    fn accepts(&mut self) -> bool {
        let address = self.url.rsplit('/').next().unwrap_or_default().to_owned();
        let up = wait::until(HEALTHY_BOUND, || {
            if !self.process.running() {
                return Some(false);
            }
            std::net::TcpStream::connect(&address).is_ok().then_some(true)
        });
        up == Some(true)
    }

    /// Kills it, deletes its data, and starts an empty one at the same address.
    pub fn set_up_anew(&mut self) {
        self.process.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("its data");
        self.process = Background::start("etcd", Command::new(executable()).args(&self.arguments));
        assert!(self.accepts(), "{}", self.process.output());
    }
}
