//! CPU time of a cluster's processes, from the kernel: by role, and what the workers' compute threads take of it.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Names of the threads that compute begin with this.
const COMPUTE_THREAD: &str = "trawl-compute";
/// Where the numbers of `stat` that are read here are, counted behind the name in brackets: the parent, and CPU time in
/// user and kernel mode.
const PARENT: usize = 1;
const USER: usize = 11;
const SYSTEM: usize = 12;
/// Milliseconds of a clock tick: Linux counts a hundred a second for programs, on all machines.
const TICK_MS: f64 = 10.0;

/// CPU time in milliseconds: since the processes started, or of one scan.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CpuMs {
    /// The benchmark itself.
    pub client: f64,
    pub coordinator: f64,
    /// All workers, their compute threads included.
    pub workers: f64,
    /// The workers' compute threads: loading from memory, computing, and encoding results.
    pub compute_threads: f64,
    pub etcd: f64,
}

impl CpuMs {
    /// What `cluster up` with this process id and its children have taken so far, and this process.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or there are no such processes.
    pub fn so_far(cluster: u32) -> Result<Self> {
        let mut taken = Self { client: ticks("/proc/self/stat")?.1, ..Self::default() };
        let mut found = 0;
        for entry in fs::read_dir("/proc")?.flatten() {
            let process = entry.path();
            let of = |file: &str| process.join(file).display().to_string();
            // A process may end meanwhile.
            let Ok((parent, ms)) = ticks(&of("stat")) else { continue };
            if parent != cluster {
                continue;
            }
            let arguments = fs::read(of("cmdline")).unwrap_or_default();
            let is = |word: &str| arguments.split(|byte| *byte == 0).any(|given| given == word.as_bytes());
            found += 1;
            if is("worker") {
                taken.workers += ms;
                taken.compute_threads += compute_threads(&of("task"));
            } else if is("coordinator") {
                taken.coordinator += ms;
            } else {
                taken.etcd += ms;
            }
        }
        anyhow::ensure!(found > 0, "process {cluster} has no children: it is not a cluster");
        Ok(taken)
    }

    /// Since `before`, for each of `scans` scans.
    pub fn since(&self, before: &Self, scans: usize) -> Self {
        let each = |now: f64, before: f64| (now - before) / scans.max(1) as f64;
        Self {
            client: each(self.client, before.client),
            coordinator: each(self.coordinator, before.coordinator),
            workers: each(self.workers, before.workers),
            compute_threads: each(self.compute_threads, before.compute_threads),
            etcd: each(self.etcd, before.etcd),
        }
    }

    /// By name, as they are printed.
    pub fn parts(&self) -> [(&'static str, f64); 5] {
        [
            ("client", self.client),
            ("coordinator", self.coordinator),
            ("workers", self.workers),
            ("of it compute threads", self.compute_threads),
            ("etcd", self.etcd),
        ]
    }
}

/// CPU time of the whole machine so far, in clock ticks.
#[derive(Debug, Clone, Copy)]
pub struct Stolen {
    stolen: u64,
    all: u64,
}

impl Stolen {
    /// From the kernel; `None` where it does not say what other guests of its host took.
    pub fn so_far() -> Option<Self> {
        /// Of the numbers behind `cpu`: user, nice, system, idle, iowait, irq, softirq, steal.
        const STEAL: usize = 7;
        let text = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<u64> =
            text.lines().next()?.split_ascii_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
        Some(Self { stolen: *ticks.get(STEAL)?, all: ticks.iter().take(STEAL + 1).sum() })
    }

    /// Since `before`, in percent of the machine's time, idle time included.
    pub fn percent_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64 * 100.0
    }
}

/// The parent of a process, and the CPU time of a process or thread.
fn ticks(stat: &str) -> Result<(u32, f64)> {
    let text = fs::read_to_string(stat)?;
    let numbers: Vec<&str> =
        text.rsplit_once(')').context("a process without a name")?.1.split_ascii_whitespace().collect();
    let number = |at: usize| -> Result<u64> { Ok(numbers.get(at).context("a short line")?.parse()?) };
    Ok((u32::try_from(number(PARENT)?)?, (number(USER)? + number(SYSTEM)?) as f64 * TICK_MS))
}

/// CPU time of a process's compute threads.
fn compute_threads(tasks: &str) -> f64 {
    let mut ms = 0.0;
    for thread in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.starts_with(COMPUTE_THREAD) {
            ms += ticks(&thread.path().join("stat").display().to_string()).map_or(0.0, |(_, ms)| ms);
        }
    }
    ms
}
