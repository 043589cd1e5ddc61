//! Words of time and sessions at every bar, against a reading of the clock that is not Trawl's (`tests/python/session_words.py`).

use std::path::PathBuf;
use std::process::Command;

use trawl_tests::executable::{repository, trawl};
use trawl_tests::process;

#[test]
fn words_of_sessions_equal_a_plain_reading_of_the_clock() {
    let python = std::env::var_os("TRAWL_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| repository().join("target/venv/bin/python"));
    assert!(python.is_file(), "no Python environment: run ./test, or tools/get-venv once");
    let mut command = Command::new(python);
    command.arg(repository().join("tests/python/session_words.py")).arg("--trawl").arg(trawl());
    println!("{}", process::run(&mut command).expect_code(0).stdout);
}
