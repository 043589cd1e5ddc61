//! Receivers of traces other than the correct one of `otlp`: one from another project, and some that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::etcd::free_port;
use crate::process::Background;
use crate::wait;

/// Longest that rotel may take to listen.
const START_BOUND: Duration = Duration::from_secs(60);

/// How a bad receiver treats a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Accepts it and never sends anything.
    Hangs,
    /// Answers with bytes of no known protocol.
    Babbles,
    /// Ends it at once.
    HangsUp,
}

/// A receiver that misbehaves. Its thread ends with the test.
#[derive(Debug)]
pub struct Bad {
    pub url: String,
    /// Connections so far, so that a test knows that it was used.
    pub met: Arc<Mutex<usize>>,
}

impl Bad {
    pub fn start(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound address"));
        let met = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&met);
        std::thread::spawn(move || {
            let mut kept: Vec<TcpStream> = Vec::new();
            for connection in listener.incoming().map_while(Result::ok) {
                *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                match does {
                    Does::Hangs => kept.push(connection),
                    Does::HangsUp => drop(connection),
                    Does::Babbles => babble(connection),
                }
            }
        });
        Self { url, met }
    }

    pub fn met(&self) -> usize {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn babble(mut connection: TcpStream) {
    let _ = connection.set_read_timeout(Some(Duration::from_secs(1)));
    let mut asked = [0; 1024];
    let _ = connection.read(&mut asked);
    let _ = connection.write_all(&[0x5a; 4096]);
}

/// The receiver of `tests/requirements.txt`: it prints what it receives.
#[derive(Debug)]
pub struct Rotel {
    /// For `OTEL_EXPORTER_OTLP_ENDPOINT` by gRPC.
    pub grpc: String,
    /// The same by `http/protobuf`.
    pub http: String,
    process: Background,
}

/// One span as rotel prints it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrintedSpan {
    pub service: String,
    pub trace: String,
    pub parent: String,
    pub span: String,
    pub name: String,
    pub kind: String,
    /// `KEY: VALUE`, as it prints them.
    pub attributes: Vec<String>,
}

impl Rotel {
    /// Starts it; `None`, with a message on stderr, if no Python environment with it is configured.
    pub fn start() -> Option<Self> {
        let Some(agent) = agent() else {
            eprintln!("SKIPPED: TRAWL_PYTHON names no Python with rotel; set it to $(tools/get-venv)");
            return None;
        };
        let (grpc, http) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let mut command = Command::new(agent);
        command
            .args(["start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .args(["--otlp-grpc-endpoint", &grpc, "--otlp-http-endpoint", &http]);
        let process = Background::start("rotel", &mut command);
        for address in [&grpc, &http] {
            let listens = wait::until(START_BOUND, || TcpStream::connect(address.as_str()).ok());
            assert!(listens.is_some(), "rotel does not listen at {address}; its output:\n{}", process.output());
        }
        Some(Self { grpc: format!("http://{grpc}"), http: format!("http://{http}"), process })
    }

    /// All spans it has printed.
    pub fn spans(&self) -> Vec<PrintedSpan> {
        let printed = self.process.output();
        let (mut spans, mut service, mut in_resource): (Vec<PrintedSpan>, String, bool) =
            (Vec::new(), String::new(), false);
        for line in printed.lines().map(str::trim) {
            let field = |name: &str| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            };
            if line.starts_with("ResourceSpans #") {
                (in_resource, service) = (true, String::new());
            } else if line.starts_with("Span #") {
                in_resource = false;
                spans.push(PrintedSpan { service: service.clone(), ..PrintedSpan::default() });
            } else if let Some(attribute) = line.strip_prefix("-> ") {
                if let (true, Some(name)) = (in_resource, attribute.strip_prefix("service.name: ")) {
                    service = name.trim_start_matches("Str(").trim_end_matches(')').to_owned();
                } else if let (false, Some(span)) = (in_resource, spans.last_mut()) {
                    span.attributes.push(attribute.to_owned());
                }
            } else if let Some(span) = spans.last_mut().filter(|_| !in_resource) {
                for (name, into) in [
                    ("Trace ID", &mut span.trace),
                    ("Parent ID", &mut span.parent),
                    ("ID", &mut span.span),
                    ("Name", &mut span.name),
                    ("Kind", &mut span.kind),
                ] {
                    if let Some(value) = field(name) {
                        *into = value;
                    }
                }
            }
        }
        spans
    }

    /// Its output, for messages.
    pub fn output(&self) -> String {
        self.process.output()
    }
}

/// Where the package installs its executable.
fn agent() -> Option<PathBuf> {
    let python = std::env::var_os("TRAWL_PYTHON")?;
    let find = "import importlib.util as u; print(u.find_spec('rotel').submodule_search_locations[0])";
    let found = Command::new(python).args(["-c", find]).output().ok().filter(|found| found.status.success())?;
    let agent = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()).join("rotel-agent");
    agent.is_file().then_some(agent)
}
