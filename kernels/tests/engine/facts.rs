//! Primitives are matched without a default, so that the compiler reports all places to which a new one has to be
//! added.

use std::path::{Path, PathBuf};

/// The lint that forbids defaults, which files that match `Op` switch on.
const LINT: &str = "#![warn(clippy::wildcard_enum_match_arm)]";

/// Crates that match on primitives.
const CRATES: [&str; 6] = ["plan", "kernels", "worker", "coordinator", "cli", "tests"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether a line is an arm of a match on primitives.
fn is_arm(line: &str) -> bool {
    let line = line.trim_start();
    let begins = ["Op::", "| Op::", "(Op::", "Some(Op::"].iter().any(|begin| line.starts_with(begin));
    begins && (line.contains("=>") || line.starts_with('|'))
}

#[test]
fn every_file_that_matches_primitives_forbids_a_default() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    CRATES.iter().for_each(|name| sources(&root.join(name), &mut files));
    let table = std::fs::read_to_string(root.join("plan/src/op.rs")).expect("the table of primitives");
    assert!(table.lines().any(|line| line == LINT), "the table of facts may have a default");
    let mut matching = 0;
    let mut without = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a readable source");
        if text.lines().any(is_arm) {
            matching += 1;
            if !text.lines().any(|line| line == LINT) {
                without.push(path);
            }
        }
    }
    assert!(without.is_empty(), "these match Op and may have a default: {without:?}");
    // The steps of the CPU, their calls in kernels, and the oracle.
    assert!(matching >= 3, "{matching} files match primitives: are they still found?");
}
