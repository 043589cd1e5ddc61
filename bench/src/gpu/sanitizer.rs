//! A few plans under NVIDIA's compute-sanitizer, where it is installed: accesses out of bounds, races in shared memory, reads of
//! uninitialised memory, barriers that not all threads reach.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Args, Ending, Outcome, Section, process};

/// The tools that are run, in order.
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];
/// Seconds of one tool, and of the section.
const TOOL_SECONDS_MAX: u64 = 100;
pub(super) const SECONDS_MAX: u64 = TOOL_SECONDS_MAX * TOOLS.len() as u64 + 20;
/// Its exit code when it found something.
const FOUND: i32 = 86;
/// Most characters of its output that are kept.
const OUTPUT_CHARS_MAX: usize = 2_000;

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let Some(program) = find() else {
        return Ok(Outcome::other(Ending::Skipped, "compute-sanitizer is not installed"));
    };
    let mut outcome = Outcome::done();
    for tool in TOOLS {
        let executable = std::env::current_exe().context("cannot find this executable")?;
        let mut command = Command::new(&program);
        command
            .args(["--tool", tool, "--error-exitcode", &FOUND.to_string()])
            .arg(executable)
            .args(["bench", "gpu", "--section", Section::Small.name()])
            .args(args.of_section())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let Some(ended) = process::run(&mut command, Duration::from_secs(TOOL_SECONDS_MAX))? else {
            outcome.figure(tool, false);
            outcome.line(tool, format!("not done within {TOOL_SECONDS_MAX} s"));
            (outcome.ending, outcome.why) = (Ending::Failed, format!("{tool} was not done in time"));
            continue;
        };
        let printed = ended.stdout + &ended.stderr;
        let well = ended.status.success() && printed.contains("\"ending\":\"done\"");
        outcome.figure(tool, well);
        outcome.line(tool, if well { "nothing found" } else { "something found, or it did not run" });
        if !well {
            (outcome.ending, outcome.why) = (Ending::Failed, format!("{tool}: {}", ended.status));
            outcome.figure(&format!("{tool}_said"), printed.chars().take(OUTPUT_CHARS_MAX).collect::<String>());
        }
    }
    Ok(outcome)
}

/// Looked up on PATH, then in the CUDA toolkit.
fn find() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(std::env::var_os(variable).map(|root| PathBuf::from(root).join("bin")));
    }
    folders.extend(["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join("compute-sanitizer")).find(|path| path.is_file())
}
