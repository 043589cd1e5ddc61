//! A user's environment in a temporary directory: own data root, own files, own home, no variables of the caller.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::executable::trawl;
use crate::process::{self, Ended};

/// Variables that are passed to the executable; the rest of the caller's environment is hidden from it.
const PASSED_ON: [&str; 3] = ["PATH", "TMPDIR", "LD_LIBRARY_PATH"];

/// A data root and a working folder that are deleted with the test.
#[derive(Debug)]
pub struct Home {
    folder: tempfile::TempDir,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// An empty one.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("trawl-test-").tempdir().expect("a temporary directory");
        for name in ["data", "work"] {
            std::fs::create_dir(folder.path().join(name)).expect("the temporary directory can be written");
        }
        Self { folder }
    }

    /// Where datasets live.
    pub fn data_root(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A copy of the datasets, deleted when it is dropped.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn copy_of_data(&self) -> tempfile::TempDir {
        fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
            std::fs::create_dir_all(to)?;
            for entry in std::fs::read_dir(from)? {
                let source = entry?.path();
                let target = to.join(source.file_name().unwrap_or_default());
                if source.is_dir() { copy(&source, &target)? } else { std::fs::copy(&source, &target).map(drop)? }
            }
            Ok(())
        }
        let folder = tempfile::Builder::new().prefix("trawl-test-data-").tempdir().expect("a temporary directory");
        copy(&self.data_root(), folder.path()).expect("the datasets can be copied");
        folder
    }

    /// A file of the working folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    /// Writes a file of the working folder.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the working folder can be written");
        path
    }

    /// Reads a file of the working folder.
    #[track_caller]
    pub fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
    }

    /// `trawl` with these arguments, in the working folder, without the caller's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(trawl());
        command.env_clear().args(arguments).current_dir(self.folder.path().join("work"));
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", self.folder.path()).env("TRAWL_DATA_ROOT", self.data_root());
        // Most tests of clusters are about computing an answer, not about giving a known one.
        if arguments.contains(&"--coordinator") {
            command.env("TRAWL_FRESH", "1");
        }
        command
    }

    /// Runs `trawl` to its end.
    #[track_caller]
    pub fn trawl(&self, arguments: &[&str]) -> Ended {
        process::run(&mut self.command(arguments))
    }

    /// Generates a synthetic dataset.
    #[track_caller]
    pub fn synth(&self, name: &str, symbols: u32, bars: u32) {
        let (symbols, bars) = (symbols.to_string(), bars.to_string());
        self.trawl(&["synth", "--symbols", &symbols, "--bars", &bars, "--seed", "7", "--dataset", name]).expect_code(0);
    }

    /// Text in which this folder and its random parts have fixed names, for snapshots.
    pub fn plain(&self, text: &str) -> String {
        let root = self.folder.path();
        let real = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        text.replace(&real.display().to_string(), "HOME").replace(&root.display().to_string(), "HOME")
    }
}

/// The bytes of a file as text, for messages.
pub fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
