//! A server of S3 that others wrote (moto's; MinIO where `TRAWL_MINIO` names it), as a real process, behind a proxy with faults.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::etcd::free_port;
use crate::executable::repository;
use crate::process::{self, Background};
use crate::wait;

/// Longest that the processes may take to answer.
const START_BOUND: Duration = Duration::from_secs(60);
/// How often they are started, if a port of theirs is taken meanwhile.
const STARTS: usize = 3;
/// Longest that one answer may take.
const ANSWER_BOUND: Duration = Duration::from_secs(30);
/// The bucket that is there.
pub const BUCKET: &str = "market-data";
/// The key of all requests.
const KEY: [&str; 2] = ["test", "hunter2hunter2"];

/// The processes; both end when it is dropped.
#[derive(Debug)]
pub struct S3 {
    _server: Background,
    _proxy: Background,
    _folder: tempfile::TempDir,
    proxy: u16,
    control: u16,
}

impl S3 {
    /// Starts both, and makes the bucket.
    ///
    /// # Panics
    /// When there is no Python with moto's server: `./test` makes one.
    pub fn start() -> Self {
        // Another process may take a port between its choice and the server's start.
        (1..STARTS)
            .find_map(|_| Self::try_start().ok())
            .unwrap_or_else(|| Self::try_start().unwrap_or_else(|why| panic!("{why}")))
    }

    /// Starts both once; the error is what they printed.
    fn try_start() -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("trawl-test-s3-").tempdir().expect("a temporary directory");
        let [port, proxy, control] = [free_port(), free_port(), free_port()];
        let (server, ready) = match std::env::var_os("TRAWL_MINIO") {
            Some(program) => (minio(&program, folder.path(), port), "GET /minio/health/ready".to_owned()),
            None => (moto(folder.path(), port), format!("PUT /{BUCKET}")),
        };
        let mut command = Command::new("python3");
        command.arg(repository().join("tools/soak/slow_store.py"));
        for (name, port) in [("--listen", proxy), ("--control", control), ("--to", port)] {
            command.args([name, &port.to_string()]);
        }
        let mut s3 = Self {
            _proxy: Background::start("the proxy of S3", &mut command),
            _server: server,
            _folder: folder,
            proxy,
            control,
        };
        let made = wait::until(START_BOUND, || {
            if !s3._server.running() || !s3._proxy.running() {
                return Some(false);
            }
            let request =
                format!("{ready} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            let answer = ask(port, request.as_bytes())?;
            (answer.contains(" 200 ") && s3.settings("{}").is_some()).then_some(true)
        });
        match made {
            Some(true) => Ok(s3),
            _ => Err(format!("no server of S3:\n{}\n{}", s3._server.output(), s3._proxy.output())),
        }
    }

    /// Changes the faults of the proxy, see `tools/soak/slow_store.py`; returns its settings and counters.
    #[track_caller]
    pub fn faults(&self, settings: &str) -> serde_json::Value {
        self.settings(settings).expect("the proxy answers")
    }

    fn settings(&self, settings: &str) -> Option<serde_json::Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.control)).ok()?;
        stream.set_read_timeout(Some(ANSWER_BOUND)).ok()?;
        stream.write_all(format!("{settings}\n").as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Puts the files of a folder into the bucket, under a prefix.
    #[track_caller]
    pub fn put(&self, folder: &Path, prefix: &str) {
        let mut command = Command::new(python());
        command.arg(repository().join("tests/python/s3_put.py")).arg(folder).args([BUCKET, prefix]);
        command.envs(self.variables());
        process::run(&mut command).expect_code(0);
    }

    /// The variables of a process that uses the bucket.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.proxy)),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY[0].to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEY[1].to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

fn moto(folder: &Path, port: u16) -> Background {
    let mut command = Command::new(python());
    command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]).env("TMPDIR", folder);
    Background::start("moto's server", &mut command)
}

/// MinIO over a drive; a folder of the drive is a bucket.
fn minio(program: &OsStr, folder: &Path, port: u16) -> Background {
    std::fs::create_dir_all(folder.join("drive").join(BUCKET)).expect("the drive");
    let mut command = Command::new(program);
    command.args(["server", "--address", &format!("127.0.0.1:{port}"), "--certs-dir"]);
    command.arg(folder.join("certs")).arg(folder.join("drive"));
    command.envs([("MINIO_ROOT_USER", KEY[0]), ("MINIO_ROOT_PASSWORD", KEY[1]), ("MINIO_BROWSER", "off")]);
    Background::start("MinIO", &mut command)
}

/// Sends a request and reads the answer to the end of the connection.
fn ask(port: u16, request: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_BOUND)).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A Python with moto's server.
fn python() -> PathBuf {
    let python = std::env::var_os("TRAWL_STORE_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| repository().join("target/venv-soak/store/bin/python"));
    assert!(python.is_file(), "no Python with a server of S3: run ./test, or tools/get-venv soak/store once");
    python
}
