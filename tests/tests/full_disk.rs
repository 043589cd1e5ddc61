//! No room on the disk: a command that writes a dataset says what it could not write and what to do, leaves the dataset as it was, and
//! nothing of its own. The kernel refuses bytes beyond a limit of the process; a file system that is really full answers at the same
//! calls, with another number.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use trawl_tests::home::Home;
use trawl_tests::process::{self, Ended};

/// Bytes of a block of `ulimit -f`.
const BLOCK: usize = 512;
/// No file of these tests is longer than so many blocks.
const BLOCKS_MAX: usize = (64 << 20) / BLOCK;

/// Runs `trawl` where no file may be longer than so many blocks.
fn limited(home: &Home, blocks: usize, arguments: &[&str]) -> Ended {
    let plain = home.command(arguments);
    // A refused write is an error only for who ignores the signal that comes with it.
    let script = "trap '' XFSZ; ulimit -f \"$0\" && exec \"$@\"";
    let mut command = Command::new("/bin/sh");
    command.env_clear().args(["-c", script, &blocks.to_string()]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    if let Some(folder) = plain.get_current_dir() {
        command.current_dir(folder);
    }
    process::run(&mut command)
}

/// Every file below a folder with its bytes; locks have none.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("lock")) => {}
                false => drop(found.insert(path.clone(), std::fs::read(&path).expect("a file of the data root"))),
            }
        }
    }
    found
}

/// Symbols of these tests: more than one group.
const SYMBOLS: usize = 150;

/// Bars of all symbols, one on each of these days, and of the first symbol on so many days before: its group is far larger than the
/// others, which fit when it does not.
fn bars(days: std::ops::Range<usize>, longer: usize, close: usize) -> String {
    let mut text = "symbol,date,open,high,low,close,volume\n".to_owned();
    for symbol in 0..SYMBOLS {
        let first = days.start - if symbol == 0 { longer } else { 0 };
        for day in first..days.end {
            let (year, month, of_month) = (2000 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
            let close = close + (symbol * 7 + day) % 13;
            text += &format!("S{symbol:03},{year}-{month:02}-{of_month:02},{close},{close}.5,1,{close},{day}\n");
        }
    }
    text
}

/// Runs a command with more and more room. Until it succeeds nothing may change; returns how often it was refused.
fn until_it_fits(home: &Home, arguments: &[&str]) -> usize {
    let before = content(&home.data_root());
    let mut blocks = 0;
    for refused in 0.. {
        assert!(blocks <= BLOCKS_MAX, "it never fits");
        let ended = limited(home, blocks, arguments);
        if ended.code == Some(0) {
            return refused;
        }
        let message = ended.expect_code(1).stderr;
        let told = ["cannot write", "its disk is full", "the dataset is as it was before", "trawl data prune"];
        assert!(told.iter().all(|words| message.contains(words)), "with {blocks} blocks: {message}");
        let after = content(&home.data_root());
        let names = |content: &BTreeMap<PathBuf, Vec<u8>>| content.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before), "with {blocks} blocks");
        assert!(after == before, "a file was changed with {blocks} blocks");
        blocks = (blocks * 3 / 2).max(blocks + 1);
    }
    0
}

#[test]
fn imports_appends_and_compactions_that_find_no_room_change_nothing() {
    let (home, roomy) = (Home::new(), Home::new());
    let steps: [(&str, String); 3] = [
        ("first.csv", bars(14_950..15_000, 14_950, 50)),
        // Later bars only, which are appended.
        ("later.csv", bars(15_000..15_003, 0, 50)),
        // Other values, for which groups are written again; and a row for the quarantine.
        ("revised.csv", bars(14_990..15_003, 0, 60) + "S000,2044-01-01,1,2,3,4,5\n"),
    ];
    let snapshot = |home: &Home| std::fs::read_to_string(home.data_root().join("d/HEAD")).expect("a dataset");
    let (mut refused, mut compacted) = (Vec::new(), false);
    for (name, text) in &steps {
        for home in [&home, &roomy] {
            home.write(name, text);
        }
        let import = ["import", name, "--dataset", "d", "--calendar", "24/7", "--timeframe", "1d"];
        refused.push(until_it_fits(&home, &import));
        roomy.trawl(&import).expect_code(0);
        assert_eq!(snapshot(&home), snapshot(&roomy), "{name}");
        if *name == "later.csv" {
            let compact = ["data", "compact", "d"];
            let before = snapshot(&home);
            refused.push(until_it_fits(&home, &compact));
            roomy.trawl(&compact).expect_code(0);
            compacted = snapshot(&home) != before;
        }
        assert_eq!(snapshot(&home), snapshot(&roomy), "{name}");
        home.trawl(&["inspect", "d", "--verify"]).expect_code(0);
    }
    assert!(compacted, "there was something to compact");
    assert!(refused.iter().all(|times| *times >= 5), "each was refused at several sizes: {refused:?}");
}
