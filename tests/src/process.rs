//! Processes under test: run to their end, or kept in the background; output captured, duration bounded, killed on
//! drop.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::wait;

/// Longest that a command which should end may take, on a loaded machine with two cores.
const RUN_BOUND: Duration = Duration::from_secs(240);

/// How a process ended, with its output.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Panics, with all output, unless the process exited with `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\n-- stdout\n{}\n-- stderr\n{}", self.stdout, self.stderr);
        assert!(!self.panicked(), "\n-- stdout\n{}\n-- stderr\n{}", self.stdout, self.stderr);
        self
    }

    /// Whether the program panicked or printed a backtrace, whatever its exit code.
    pub fn panicked(&self) -> bool {
        let words = ["panicked at", "stack backtrace", "RUST_BACKTRACE", "internal error"];
        words.iter().any(|w| self.stderr.contains(w) || self.stdout.contains(w))
    }
}

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Background {
    name: String,
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts `command` without a terminal; both outputs are collected as they arrive.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        let (stdout, first) = collect(child.stdout.take().expect("stdout is piped"));
        let (stderr, second) = collect(child.stderr.take().expect("stderr is piped"));
        Self { name: name.to_owned(), child, stdout, stderr, readers: vec![first, second] }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The output so far, stdout before stderr.
    pub fn output(&self) -> String {
        format!("{}{}", lock(&self.stdout), lock(&self.stderr))
    }

    /// Whether the process still runs.
    pub fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for a complete line, on either output, for which `find` returns something.
    ///
    /// # Panics
    /// When the process ends first or the bound passes.
    #[track_caller]
    pub fn wait_for_line<T>(&mut self, bound: Duration, find: impl Fn(&str) -> Option<T>) -> T {
        let look = |output: &str| {
            output.split_inclusive('\n').filter(|l| l.ends_with('\n')).find_map(|line| find(line.trim_end()))
        };
        let found = wait::until(bound, || {
            let ended = !self.running();
            match look(&self.output()) {
                Some(found) => Some(Some(found)),
                None if ended => Some(None),
                None => None,
            }
        });
        found
            .flatten()
            .unwrap_or_else(|| panic!("{} never printed the expected line; its output:\n{}", self.name, self.output()))
    }

    /// Sends a signal by name (`STOP`, `CONT`, `TERM`, `INT`).
    pub fn signal(&self, name: &str) {
        // The shell's own kill: a minimal image has no other.
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.id())]).status();
        assert!(status.is_ok_and(|s| s.success()), "cannot send {name} to {}", self.name);
    }

    /// SIGKILL, and waits until the process has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When the bound passes; the process is killed then.
    #[track_caller]
    pub fn wait(mut self, bound: Duration) -> Ended {
        let status: Option<ExitStatus> = wait::until(bound, || self.child.try_wait().ok().flatten());
        let Some(status) = status else {
            self.kill();
            panic!("{} did not end within {bound:?}; its output:\n{}", self.name, self.output());
        };
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        Ended { code: status.code(), stdout: lock(&self.stdout).clone(), stderr: lock(&self.stderr).clone() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    let name = format!("{:?}", command.get_program());
    Background::start(&name, command).wait(RUN_BOUND)
}

fn lock(text: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    text.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn collect(from: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&text);
    let reader = std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            lock(&into).push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    (text, reader)
}
