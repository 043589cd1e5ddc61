//! Lakes: Parquet in folders `symbol=AAPL`, out of a dataset and into another one, in a directory and in a bucket.

use trawl_tests::home::Home;
use trawl_tests::process;
use trawl_tests::s3::{BUCKET, S3};

use super::{bars, files_below, no_secret, snapshot};

#[test]
fn a_lake_out_of_a_dataset_is_the_same_dataset_again() {
    let (home, s3) = (Home::new(), S3::start());
    let rows = (1..25).flat_map(|day| {
        ["AAPL", "BRK/B", "A%2F"].map(|symbol| format!("2024-01-{day:02},{symbol},{day}.5,{day}00.25\n"))
    });
    home.write("bars.csv", &format!("date,symbol,close,volume\n{}", rows.collect::<String>()));
    let import = |dataset: &str, what: &[&str]| {
        let words = ["data", "import", "--dataset", dataset, "--calendar", "24/7", "--timeframe", "1d", "--strict"];
        let mut command = home.command(&[&words[..], what].concat());
        let source = s3.variables().into_iter().map(|(name, value)| (format!("TRAWL_SOURCE_{name}"), value));
        process::run(command.envs(source))
    };
    import("first", &["bars.csv"]).expect_code(0);
    let made = home.trawl(&["data", "export", "first", "--hive", "-o", "lake"]).expect_code(0);
    assert_eq!(made.stdout, "wrote 72 bars of 3 symbols to lake\n");
    let mut files: Vec<String> =
        files_below(&home.path("lake")).iter().map(|path| path.display().to_string()).collect();
    files.sort();
    for (file, folder) in files.iter().zip(["symbol=A%252F", "symbol=AAPL", "symbol=BRK%2FB"]) {
        assert!(file.ends_with(&format!("/lake/{folder}/bars.parquet")), "{file}");
    }
    let again = home.trawl(&["data", "export", "first", "--hive", "-o", "lake"]).expect_code(2);
    assert!(again.stderr.contains("does not exist yet"), "{}", again.stderr);

    import("second", &["lake"]).expect_code(0);
    assert_eq!((bars(&home, "second"), snapshot(&home, "second")), (bars(&home, "first"), snapshot(&home, "first")));
    s3.put(&home.path("lake"), "lakes/one");
    let ended = import("third", &[&format!("s3://{BUCKET}/lakes/one")]).expect_code(0);
    assert_eq!(snapshot(&home, "third"), snapshot(&home, "first"));
    // Keys and columns of other names.
    for folder in ["symbol=A%252F", "symbol=AAPL", "symbol=BRK%2FB"] {
        let to = home.path(&format!("other/year=2024/{}", folder.replace("symbol", "instrument_id")));
        std::fs::create_dir_all(&to).unwrap();
        std::fs::copy(home.path(&format!("lake/{folder}/bars.parquet")), to.join("part-0.parquet")).unwrap();
    }
    import("fourth", &["other", "--map", "symbol=instrument_id"]).expect_code(0);
    assert_eq!(snapshot(&home, "fourth"), snapshot(&home, "first"));
    let renamed = import("fifth", &["other", "--map", "symbol=instrument_id,open=close,close=volume"]).expect_code(0);
    assert!(renamed.stdout.contains("72 bars"), "{}", renamed.stdout);
    let none = import("x", &[&format!("s3://{BUCKET}/nothing/here")]).expect_code(2);
    assert!(none.stderr.contains("contains no file of bars"), "{}", none.stderr);
    no_secret(&[&home.data_root()], &[&ended.stdout, &ended.stderr, &none.stderr], &["hunter2"]);
}
