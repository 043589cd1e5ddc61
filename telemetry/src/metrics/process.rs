//! What the operating system reports about this process. Where it reports nothing (no `/proc`), the metric is left out.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clock ticks per second, as `/proc` counts them on every Linux.
const TICKS_PER_S: f64 = 100.0;
/// When this process started counting.
static BEGAN_S: OnceLock<f64> = OnceLock::new();

/// Records the start of the process (the first call wins).
pub fn begin() {
    BEGAN_S.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
}

pub(super) fn start_time_s() -> Option<f64> {
    BEGAN_S.get().copied()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Bytes of a line like `VmRSS:   1234 kB`.
fn kib_of(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: f64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

pub(super) fn resident_bytes() -> Option<f64> {
    kib_of(&read("/proc/self/status")?, "VmRSS")
}

pub(super) fn cpu_s() -> Option<f64> {
    let stat = read("/proc/self/stat")?;
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_S)
}

pub(super) fn open_files() -> Option<f64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

pub(super) fn open_files_max() -> Option<f64> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The limit of the control group, else the machine's memory.
pub(super) fn memory_limit_bytes() -> Option<f64> {
    let machine = read("/proc/meminfo").and_then(|text| kib_of(&text, "MemTotal"));
    let group = read("/proc/self/cgroup").and_then(|text| group_limit(&text, |path| read(&path.to_string_lossy())));
    match (machine, group) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// The smallest limit on the path from the process's group (cgroup v2) to the root.
fn group_limit(cgroup: &str, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let group = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new("/sys/fs/cgroup").join(group);
    let limits = folder.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    let limits = limits.filter_map(|folder| read(&folder.join("memory.max"))?.trim().parse::<f64>().ok());
    limits.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_memory_time_and_files() {
        begin();
        assert!(start_time_s().is_some_and(|at| at > 1.7e9));
        if cfg!(target_os = "linux") {
            assert!(resident_bytes().is_some_and(|bytes| bytes > 1e5));
            assert!(cpu_s().is_some());
            assert!(open_files().is_some_and(|files| files >= 3.0));
            assert!(memory_limit_bytes() > resident_bytes());
        }
    }

    #[test]
    fn the_tightest_group_counts_and_one_without_a_limit_does_not() {
        let limit = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/pod/box/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/pod/memory.max" => Some("1048576\n".to_owned()),
            "/sys/fs/cgroup/memory.max" => Some("4194304\n".to_owned()),
            _ => None,
        };
        assert_eq!(group_limit("0::/pod/box\n", limit), Some(1_048_576.0));
        assert_eq!(group_limit("0::/\n", limit), Some(4_194_304.0));
        assert_eq!(group_limit("4:memory:/old\n", limit), None);
        assert_eq!(kib_of("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS"), Some(12_288.0));
    }
}
