//! The etcd of `trawl cluster up`: a running one, or a temporary one on free loopback ports.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::Command;
use trawl_cluster_store::{ControlStore as _, EtcdStore};

use super::process::Child;
use crate::failure::UserMistake;

/// A free port may be taken before etcd binds it: number of attempts with other ports.
const STARTS_MAX: u32 = 3;
/// Bytes of etcd's log that are shown when it does not start.
const LOG_TAIL_BYTES: u64 = 2000;

/// Where etcd comes from.
pub enum Etcd {
    /// Addresses of a running one.
    Running(String),
    /// An executable to start.
    Start(PathBuf),
}

/// The one that the user named, else an executable on PATH or in the project's target/tools.
pub fn find(urls: Option<&str>, binary: Option<&Path>) -> Result<Etcd, UserMistake> {
    if let Some(urls) = urls {
        EtcdStore::new(urls).map_err(|error| UserMistake::plain(error.to_string()))?;
        return Ok(Etcd::Running(urls.to_owned()));
    }
    if let Some(path) = binary {
        return match path.is_file() {
            true => Ok(Etcd::Start(path.to_owned())),
            false => Err(UserMistake::plain(format!("{} is not an etcd executable", path.display()))),
        };
    }
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).map(|folder| folder.join("etcd")).collect::<Vec<_>>());
    // Beside the build: target/release/trawl and target/tools/etcd.
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent).map(|t| t.join("tools/etcd"));
    let here = Path::new("target/tools/etcd").to_owned();
    let found = on_path.chain([here]).chain(target).find(|path| path.is_file());
    found.map(Etcd::Start).ok_or_else(|| {
        UserMistake::with_help(
            "no etcd executable was found on PATH or in target/tools",
            "install one (Debian: apt-get install etcd-server), run tools/get-etcd in the project's directory, or name \
             one with --etcd-binary FILE or --etcd URL",
        )
    })
}

/// Starts one in `scratch` and waits until it answers.
pub async fn start(binary: &Path, scratch: &Path, timeout: Duration) -> anyhow::Result<(Child, String)> {
    let deadline = Instant::now() + timeout;
    let mut tried = 0;
    loop {
        tried += 1;
        let folder = scratch.join(format!("etcd-{tried}"));
        std::fs::create_dir(&folder).context("cannot make etcd's directory")?;
        let log_path = folder.join("log");
        let (client, peer) = free_ports().context("no free ports")?;
        let mut child = spawn(binary, &folder, &log_path, (&client, &peer))?;
        let store = EtcdStore::new(&client)?;
        loop {
            if store.list("trawl-is-it-there").await.is_ok() {
                return Ok((child, client));
            }
            if child.has_ended() {
                break;
            }
            if Instant::now() > deadline {
                child.kill().await;
                bail!("etcd did not answer within {} s; its log ends with:\n{}", timeout.as_secs(), tail(&log_path));
            }
        }
        if tried == STARTS_MAX {
            bail!("etcd ({}) does not start; its log ends with:\n{}", binary.display(), tail(&log_path));
        }
    }
}

fn spawn(binary: &Path, folder: &Path, log: &Path, (client, peer): (&str, &str)) -> anyhow::Result<Child> {
    let log = File::create(log).context("cannot make etcd's log")?;
    let again = log.try_clone().context("cannot make etcd's log")?;
    let mut command = Command::new(binary);
    command.args(["--name", "trawl"]).args([OsStr::new("--data-dir"), folder.join("data").as_os_str()]);
    command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
    command.args(["--initial-cluster", &format!("trawl={peer}")]);
    // Variables named ETCD_* would override these options.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::from(log)).stderr(Stdio::from(again));
    Child::start_as_is("etcd", command)
}

/// URLs of two loopback ports that are free at this moment.
fn free_ports() -> std::io::Result<(String, String)> {
    let (first, second) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok((format!("http://{}", first.local_addr()?), format!("http://{}", second.local_addr()?)))
}

fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(its log cannot be read: {error})"))
}
