//! A few plans under NVIDIA's compute-sanitizer, where the machine has it: accesses beyond memory, reads of what nobody wrote,
//! races in shared memory.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::{Ending, Section, Size, Told};

/// Its tools that are used, in order.
const TOOLS: [&str; 2] = ["memcheck", "racecheck"];
/// Its exit code where it found something.
const FOUND: i32 = 86;
/// Characters of what it says that are kept.
const SAID_MAX: usize = 2_000;

pub(super) fn run(size: &Size) -> Result<Told> {
    let Some(program) = find() else {
        return Ok(Told::other(Ending::Skipped, "compute-sanitizer is not there"));
    };
    let mut told = Told::done();
    for tool in TOOLS {
        let executable = std::env::current_exe().context("where this executable lies")?;
        let output = Command::new(&program)
            .args(["--tool", tool, "--error-exitcode", &FOUND.to_string()])
            .arg(executable)
            .args(["bench", "gpu", "--section", Section::Small.name()])
            .args(size.arguments())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("'{}' does not run", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let well = output.status.success() && said.contains("\"ending\":\"done\"");
        told.figure(tool, well);
        told.line(tool, if well { "nothing found" } else { "something found, or it did not run" });
        if !well {
            (told.ending, told.why) = (Ending::Failed, format!("{tool}: {}", output.status));
            told.figure(&format!("{tool}_said"), said.chars().take(SAID_MAX).collect::<String>());
        }
    }
    Ok(told)
}

/// In the folders of programs, or in the toolkit's.
fn find() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(std::env::var_os(variable).map(|root| PathBuf::from(root).join("bin")));
    }
    folders.extend(["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join("compute-sanitizer")).find(|path| path.is_file())
}
