//! Finds the `trawl` under test.
//!
//! `./test` names it in `TRAWL_BIN`. A plain `cargo test` builds it into the same target directory and profile as the
//! running test, once per process, so that a stale executable is never tested.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the executable.
///
/// # Panics
/// When it cannot be built: no test can run without it.
pub fn trawl() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("TRAWL_BIN").map_or_else(build, PathBuf::from))
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie one folder below the root")
}

fn build() -> PathBuf {
    // .../target/PROFILE/deps/integration-0123456789abcdef
    let test = std::env::current_exe().expect("the running test has a path");
    let output = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let (target, profile) = (output.parent().expect("a target directory"), output.file_name().expect("a profile"));
    let profile = match profile.to_str() {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    // All targets: the features are unified as for the test itself, so nothing is built twice.
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--workspace", "--all-targets", "--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(repository())
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "cargo could not build the executable under test");
    output.join(format!("trawl{}", std::env::consts::EXE_SUFFIX))
}
