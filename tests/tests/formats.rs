//! What earlier versions wrote keeps opening: a dataset, answers in every format, and the state of an update.

use std::fs;
use std::path::{Path, PathBuf};

use trawl_tests::executable;
use trawl_tests::home::Home;

/// The scan whose answers are kept.
const SCAN: [&str; 10] = [
    "--dataset",
    "old",
    "--where",
    "sma(close,5) > sma(close,10)",
    "--adjust",
    "split+dividend",
    "--select",
    "sma(close,10) as mean",
    "--select",
    "close*2 as twice",
];

fn written_by(commit: &str) -> PathBuf {
    executable::repository().join("tests/golden/formats").join(commit)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("the fixture's folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}

/// A home whose data root holds the dataset of that commit.
fn home(commit: &str) -> Home {
    let home = Home::new();
    copy(&written_by(commit).join("dataset"), &home.data_root().join("old"));
    home
}

#[test]
fn a_dataset_of_c7b7003_is_whole_is_added_to_and_gives_the_answer_it_gave() {
    let home = home("c7b7003");
    let verified = home.trawl(&["data", "inspect", "old", "--verify"]).expect_code(0).stdout;
    assert!(verified.contains("1fc0bcc0457"), "{verified}");
    for ending in ["csv", "json", "parquet", "arrow"] {
        let now = format!("now.{ending}");
        home.trawl(&[&["scan"], &SCAN[..], &["-q", "-o", &now]].concat()).expect_code(0);
        let before = written_by("c7b7003").join("answers").join(format!("answer.{ending}"));
        let compared = home.trawl(&["diff", &before.display().to_string(), &now, "--exit-code"]).expect_code(0);
        assert!(compared.stdout.contains("0 entered, 0 left, 2 still there"), "{ending}: {}", compared.stdout);
        assert!(compared.stderr.contains("numerics (n4 in A"), "{ending}: {}", compared.stderr);
    }
    home.write("more.csv", "symbol,date,open,high,low,close,volume\nBBB,2024-06-13,46,47,45,46.5,100\n");
    let added = home.trawl(&["data", "import", "more.csv", "--dataset", "old"]).expect_code(0).stdout;
    assert!(added.contains("3 symbols, 85 bars"), "{added}");
}

#[test]
fn the_state_of_an_update_of_c7b7003_is_recognised_and_replaced() {
    let home = home("c7b7003");
    fs::create_dir_all(home.path("state")).expect("a folder");
    fs::copy(written_by("c7b7003").join("update.state"), home.path("state/state.trawl")).expect("a copy");
    let updated = home.trawl(&[&["update"], &SCAN[..], &["--state", "state", "-o", "-"]].concat()).expect_code(0);
    assert!(updated.stderr.contains("kept by another engine (trawl/0.1.0 n4 cpu)"), "{}", updated.stderr);
    assert!(updated.stdout.contains("1,BBB,matched"), "{}", updated.stdout);
}
