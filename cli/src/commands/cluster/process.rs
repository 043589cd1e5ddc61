//! A child process of `trawl cluster up`.
//!
//! Each is in a process group of its own, so that Ctrl-C reaches only the parent, which decides the order of ending.
//! Our own children end when the pipe to their standard input closes, however the parent ended.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};

/// A running child.
pub struct Child {
    name: String,
    child: tokio::process::Child,
    /// Closed to stop it.
    stdin: Option<ChildStdin>,
    /// Whether it stops when its standard input closes.
    listens: bool,
    stdout: Option<ChildStdout>,
}

/// This executable again.
pub fn own_command() -> anyhow::Result<Command> {
    let path = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Command::new(path))
}

impl Child {
    /// Starts it; its stderr is ours unless `command` sets another.
    pub fn start(name: &str, mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::start_as_is(name, command)
    }

    /// The same without changing its standard streams.
    pub fn start_as_is(name: &str, mut command: Command) -> anyhow::Result<Self> {
        command.kill_on_drop(true).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Ok(Self { name: name.to_owned(), child, listens: stdin.is_some(), stdin, stdout })
    }

    /// The first line it prints.
    pub async fn first_line(&mut self, timeout: Duration) -> anyhow::Result<String> {
        let stdout = self.stdout.take().with_context(|| format!("{} has no standard output", self.name))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(timeout, lines.next_line()).await;
        let line = line.map_err(|_| anyhow!("{} was not ready within {} s", self.name, timeout.as_secs()))?;
        match line.with_context(|| format!("cannot read the output of {}", self.name))? {
            Some(line) => {
                self.stdout = Some(lines.into_inner().into_inner());
                Ok(line)
            }
            // It closed its output without printing a line: it is ending.
            None => {
                let status = self.wait().await;
                Err(anyhow!("{} ended ({status})", self.name))
            }
        }
    }

    /// Waits for its end; the exit status as text, or why it cannot be waited for.
    pub async fn wait(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => format!("cannot wait for it: {error}"),
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Closes its standard input, which makes our own processes shut down cleanly.
    pub fn ask_to_stop(&mut self) {
        self.stdin = None;
    }

    /// Waits until `deadline` for a process that was asked to stop, then kills it. A process that does not watch its
    /// standard input (etcd, whose data are deleted anyway) is killed at once.
    pub async fn end(&mut self, deadline: Instant) {
        let left = if self.listens { deadline.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
        if tokio::time::timeout(left, self.child.wait()).await.is_err() {
            if self.listens {
                eprintln!("warning: {} did not stop in time and was killed", self.name);
            }
            self.kill().await;
        }
    }

    /// Kills it and waits for its end.
    pub async fn kill(&mut self) {
        // This fails only when it has ended already.
        let _ = self.child.kill().await;
    }
}

/// The first of several futures to finish.
pub async fn first_of<T>(mut futures: Vec<impl Future<Output = T> + Unpin>) -> T {
    std::future::poll_fn(move |context| {
        for future in &mut futures {
            if let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(context) {
                return std::task::Poll::Ready(value);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
