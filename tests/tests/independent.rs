//! Values against programs in Python that compute the same from the same bars, without anything of Trawl's.

use std::path::PathBuf;
use std::process::Command;

use trawl_tests::executable::{repository, trawl};
use trawl_tests::process;

fn compare(program: &str) {
    let python = std::env::var_os("TRAWL_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| repository().join("target/venv/bin/python"));
    assert!(python.is_file(), "no Python environment: run ./test, or tools/get-venv once");
    let mut command = Command::new(python);
    command.arg(repository().join("tests/python").join(program)).arg("--trawl").arg(trawl());
    println!("{}", process::run(&mut command).expect_code(0).stdout);
}

#[test]
fn words_of_sessions_equal_a_plain_reading_of_the_clock() {
    compare("session_words.py");
}

#[test]
fn a_study_has_the_figures_of_exported_closes() {
    compare("study.py");
}

#[test]
fn a_panel_has_the_columns_of_exported_bars_and_nothing_of_their_future() {
    compare("panel.py");
}

#[test]
fn a_panel_and_a_study_are_what_a_user_of_pandas_computes() {
    compare("pandas_history.py");
}
