//! Processes with a time limit. Each has a process group of its own, so that what it started ends with it.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Interval at which a process is checked for its end.
const POLL: Duration = Duration::from_millis(20);
/// Most bytes of a process's output that are read, of each of its two streams.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// A process that ended by itself.
pub(super) struct Ended {
    pub status: ExitStatus,
    /// Empty where the command does not ask for a pipe.
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command; `None` where it was killed, with what it had started, because its time was over.
///
/// # Errors
/// It cannot be started.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Option<Ended>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn();
    let child = child.as_mut().map_err(|e| anyhow::anyhow!("'{program}' does not run: {e}"))?;
    let (stdout, stderr) = (child.stdout.take().map(reading), child.stderr.take().map(reading));
    let Some(status) = wait(child, limit).with_context(|| format!("cannot wait for '{program}'"))? else {
        return Ok(None);
    };
    let read = |thread: Option<JoinHandle<String>>| thread.and_then(|t| t.join().ok()).unwrap_or_default();
    Ok(Some(Ended { status, stdout: read(stdout), stderr: read(stderr) }))
}

fn reading(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is kept.
        let _ = stream.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            end_group(child.id());
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Kills every process of a group. By the shell: the standard library has no call for it.
fn end_group(group: u32) {
    let _ = Command::new("sh").args(["-c", "kill -s KILL -- \"-$1\"", "sh", &group.to_string()]).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_end_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let begun = Instant::now();
        // It writes the number of its child, then waits for it.
        let script = "sleep 60 & echo $! > \"$1.new\"; mv \"$1.new\" \"$1\"; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&file);
        assert!(run(&mut command, Duration::from_secs(1)).unwrap().is_none());
        let child = std::fs::read_to_string(&file).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        // A process that is gone or was not waited for yet ('Z') runs no more.
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z"));
        while runs() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the process that it started still runs");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn both_streams_of_a_process_are_read() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = run(&mut command, Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str(), ended.status.code()), ("out\n", "err\n", Some(3)));
    }
}
