//! Lakes: Parquet in folders `symbol=AAPL`, out of a dataset and into another one, in a directory and in a bucket.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, Float64Array, RecordBatch, StringArray, Time64MicrosecondArray};
use trawl_tests::home::Home;
use trawl_tests::process;
use trawl_tests::s3::{BUCKET, S3};

use super::{bars, files_below, killed_at_random, no_secret, snapshot};

#[test]
fn a_lake_out_of_a_dataset_is_the_same_dataset_again() {
    let (home, s3) = (Home::new(), S3::start());
    let rows = (1..25).flat_map(|day| {
        ["AAPL", "BRK/B", "A%2F"].map(|symbol| format!("2024-01-{day:02},{symbol},{day}.5,{day}00.25\n"))
    });
    home.write("bars.csv", &format!("date,symbol,close,volume\n{}", rows.collect::<String>()));
    let import_command = |dataset: &str, what: &[&str]| {
        let words = ["data", "import", "--dataset", dataset, "--calendar", "24/7", "--timeframe", "1d", "--strict"];
        let mut command = home.command(&[&words[..], what].concat());
        command.envs(s3.variables().into_iter().map(|(name, value)| (format!("TRAWL_SOURCE_{name}"), value)));
        command
    };
    let import = |dataset: &str, what: &[&str]| process::run(&mut import_command(dataset, what));
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
    // Parts of a writer that is not done, and folders of others, are no part of a lake, in a directory and in a bucket.
    let part = files_below(&home.path("lake")).into_iter().find(|path| path.display().to_string().contains("AAPL"));
    for folder in ["_temporary/symbol=X", "others", "_task=1"] {
        std::fs::create_dir_all(home.path("lake").join(folder)).unwrap();
        std::fs::copy(part.as_ref().unwrap(), home.path("lake").join(folder).join("X.parquet")).unwrap();
    }
    import("second", &["lake"]).expect_code(0);
    assert_eq!(snapshot(&home, "second"), snapshot(&home, "first"));
    // The same lake into a bucket and out of it again.
    let address = format!("s3://{BUCKET}/out/first");
    let export = |to: &str, more: &[&str]| {
        let mut command = home.command(&[&["data", "export", "first", "-o", to][..], more].concat());
        let own = s3.variables().into_iter().map(|(name, value)| (format!("TRAWL_SOURCE_{name}"), value));
        process::run(command.envs(own))
    };
    // Calls that are refused or cut off are made again.
    s3.faults(r#"{"refuse_every": 4, "cut_every": 5}"#);
    let put = export(&address, &["--hive"]).expect_code(0);
    s3.faults(r#"{"refuse_every": 0, "cut_every": 0}"#);
    assert_eq!(put.stdout, format!("wrote 72 bars of 3 symbols to {address}\n"));
    s3.faults(r#"{"delay_s": 0.03}"#);
    killed_at_random(&home, |dataset| import_command(dataset, &[&address]), "first");
    s3.faults(r#"{"delay_s": 0}"#);
    let taken = export(&address, &["--hive"]).expect_code(2);
    assert!(taken.stderr.contains(&format!("--hive cannot write to '{address}'")), "{}", taken.stderr);
    assert!(taken.stderr.contains("nothing below it"), "{}", taken.stderr);
    let file = export(&format!("{address}.parquet"), &[]).expect_code(2);
    assert!(file.stderr.contains("to which lakes alone are written"), "{}", file.stderr);
    let secret = export("s3://key:hunter2@b", &["--hive"]).expect_code(2);
    assert!(secret.stderr.contains("credentials and options"), "{}", secret.stderr);
    no_secret(&[&home.data_root()], &[&put.stderr, &taken.stderr, &file.stderr, &secret.stderr], &["hunter2"]);
    // A prefix is taken as it is written, percent signs too.
    s3.put(&home.path("lake"), "lakes/a%20b~c");
    let ended = import("third", &[&format!("s3://{BUCKET}/lakes/a%20b~c")]).expect_code(0);
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

/// A Parquet file of these columns.
fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("Parquet");
    writer.write(&batch).expect("memory");
    writer.close().expect("memory");
    bytes
}

#[test]
fn each_damaged_file_of_a_lake_has_its_own_message_with_its_path() {
    let home = Home::new();
    let dates = || Arc::new(Date32Array::from(vec![19_724, 19_725])) as ArrayRef;
    let numbers = |values: [f64; 2]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let words = |values: [&str; 2]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let whole = parquet(vec![("date", dates()), ("close", numbers([1.0, 2.0]))]);
    let mut flipped = whole.clone();
    // In the first page, behind the magic.
    flipped[10] ^= 0xff;
    let mut footer = whole.clone();
    let length = footer.len() - 8;
    footer[length..length + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let none = parquet(vec![
        ("date", Arc::new(Date32Array::from(Vec::<i32>::new())) as ArrayRef),
        ("close", Arc::new(Float64Array::from(Vec::<f64>::new())) as ArrayRef),
    ]);
    let zoo: Vec<(&str, &str, Vec<u8>, &str)> = vec![
        ("cut off", "symbol=X", whole[..whole.len() - 20].to_vec(), "Parquet"),
        ("its magic alone", "symbol=X", b"PAR1".to_vec(), "Parquet"),
        ("a footer longer than the file", "symbol=X", footer, "Parquet"),
        ("a page that was changed", "symbol=X", flipped, ""),
        ("empty", "symbol=X", Vec::new(), "it is empty"),
        ("no rows", "symbol=X", none, "no rows"),
        ("no close", "symbol=X", parquet(vec![("date", dates()), ("shut", numbers([1.0, 2.0]))]), "no column 'close'"),
        ("no time", "symbol=X", parquet(vec![("close", numbers([1.0, 2.0]))]), "time"),
        ("words for prices", "symbol=X", parquet(vec![("date", dates()), ("close", words(["a", "b"]))]), "close"),
        (
            "no usable row",
            "symbol=X",
            parquet(vec![("date", dates()), ("close", numbers([-1.0, 0.0]))]),
            "none of its 2 rows",
        ),
        ("a web page", "symbol=X", b"<!DOCTYPE html><html>denied</html>".to_vec(), "web page"),
        ("a key without a value", "symbol=__HIVE_DEFAULT_PARTITION__", whole.clone(), "in its path cannot be a symbol"),
        ("an empty value", "symbol=", whole.clone(), "in its path cannot be a symbol"),
    ];
    let write = |folder: &str, bytes: &[u8]| {
        let folder = home.path("lake").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("part-0.parquet"), bytes).unwrap();
    };
    let import = |more: &[&str]| {
        let words = ["data", "import", "lake", "--dataset", "d", "--calendar", "24/7", "--timeframe", "1d"];
        home.trawl(&[&words[..], more].concat())
    };
    let mut messages = std::collections::BTreeSet::new();
    for (what, folder, bytes, message) in zoo {
        let _ = std::fs::remove_dir_all(home.path("lake"));
        write("symbol=GOOD", &whole);
        write(folder, &bytes);
        let refused = import(&["--strict"]).expect_code(2);
        let path = Path::new("lake").join(folder).join("part-0.parquet").display().to_string();
        assert!(!refused.panicked() && refused.stderr.contains(&path), "{what}: {}", refused.stderr);
        assert!(refused.stderr.contains(message), "{what}: {message}: {}", refused.stderr);
        messages.insert(refused.stderr.lines().next().unwrap_or_default().replace(&path, ""));
        assert!(!home.data_root().join("d").join("HEAD").exists(), "{what}");
    }
    assert!(messages.len() >= 10, "{messages:#?}");
    // Without --strict it is left out and reported; a bad row is counted.
    write("symbol=BAD", &whole[..whole.len() - 20]);
    write("symbol=ROW", &parquet(vec![("date", dates()), ("close", numbers([1.0, -2.0]))]));
    let made = super::json(import(&["--json"]));
    assert_eq!((&made["skipped"].as_array().unwrap().len(), &made["bars"]), (&2, &3.into()), "{made}");
    assert_eq!(made["quarantined"], serde_json::json!({ "zero or negative price": 1 }));
}

#[test]
fn a_date_in_the_path_is_the_time_of_daily_bars_and_the_date_of_shorter_ones() {
    let home = Home::new();
    let numbers = |values: [f64; 2]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let words = |values: [&str; 2]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let day = |day: u8| parquet(vec![("symbol", words(["A", "B"])), ("close", numbers([f64::from(day), 50.0]))]);
    let minute = |minute: i64| (9 * 60 + 30 + minute) * 60_000_000;
    let clocks = || Arc::new(Time64MicrosecondArray::from(vec![minute(0), minute(1)])) as ArrayRef;
    let closes = || ("close", numbers([1.5, 2.5]));
    let write = |path: &str, bytes: &[u8]| {
        let path = home.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for number in 1..9 {
        write(&format!("spark/date=2024-01-{number:02}/part-0.parquet"), &day(number));
        write(&format!("parts/year=2024/month=1/day={number:02}/part-0.parquet"), &day(number));
        write(&format!("other/trade_day=202401{number:02}/part-0.parquet"), &day(number));
        let text = format!("symbol,time,close\nA,09:30:00,{number}\nA,09:31:00,{number}.5\n");
        write(&format!("text/dt=2024-01-{number:02}/part-0.csv"), text.as_bytes());
        let folder = format!("2024-01-{number:02}/symbol=A");
        write(&format!("clocks/date={folder}/part-0.parquet"), &parquet(vec![("time", clocks()), closes()]));
        write(&format!("named/d={folder}/part-0.parquet"), &parquet(vec![("time", clocks()), closes()]));
    }
    let import = |from: &str, dataset: &str, more: &[&str]| {
        let words = ["data", "import", from, "--dataset", dataset, "--calendar", "24/7", "--strict"];
        home.trawl(&[&words[..], more].concat())
    };
    let made = super::json(import("spark", "spark", &["--json"]));
    assert_eq!(
        (&made["timeframe"], &made["bars"], &made["formats"]),
        (&"1d".into(), &16.into(), &serde_json::json!({ "parquet": 8 }))
    );
    assert!(bars(&home, "spark").contains("\nA,2024-01-08,8\nB,2024-01-01,50\n"), "{}", bars(&home, "spark"));
    import("parts", "parts", &[]).expect_code(0);
    import("other", "other", &["--map", "time=trade_day"]).expect_code(0);
    for dataset in ["parts", "other"] {
        assert_eq!(snapshot(&home, dataset), snapshot(&home, "spark"), "{dataset}");
    }
    let minutes = ["--timeframe", "1m", "--tz", "America/New_York"];
    for (from, more) in [("text", &[][..]), ("clocks", &[]), ("named", &["--map", "time=d"])] {
        import(from, from, &[&minutes[..], more].concat()).expect_code(0);
        let found = bars(&home, from);
        let times: Vec<&str> = found.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
        assert_eq!(
            (times.len(), times[0], times[3]),
            (16, "2024-01-01T14:30:00Z", "2024-01-02T14:31:00Z"),
            "{from}: {found}"
        );
    }

    // Dates of the file take precedence, unless --map names the key; a time is never taken from elsewhere.
    let dates = || Arc::new(Date32Array::from(vec![19_724, 19_725])) as ArrayRef;
    write("own/date=1999-01-01/A.parquet", &parquet(vec![("timestamp", dates()), closes()]));
    import("own", "own", &[]).expect_code(0);
    assert!(bars(&home, "own").contains("\nA,2024-01-02,1.5\nA,2024-01-03,2.5\n"));
    let one = |name: &str| parquet(vec![(name, dates()), ("symbol", words(["A", "B"])), closes()]);
    write("mapped/known=2024-02-01/A.parquet", &one("timestamp"));
    import("mapped", "mapped", &["--map", "time=known", "--timeframe", "1d"]).expect_code(0);
    assert!(bars(&home, "mapped").contains("\nA,2024-02-01,1.5\nB,2024-02-01,2.5\n"), "{}", bars(&home, "mapped"));
    let none = parquet(vec![("symbol", words(["A", "B"])), closes()]);
    for (path, more, message) in [
        (
            "date=__HIVE_DEFAULT_PARTITION__/A.parquet",
            &[][..],
            "'__HIVE_DEFAULT_PARTITION__' of the key 'date' in its path is not a date",
        ),
        ("date=2024-02-30/A.parquet", &[], "'2024-02-30' of the key 'date' in its path is not a date"),
        (
            "year=2024/month=2/A.parquet",
            &[],
            "no date or time, and none of the keys in its path (year, month) is a date",
        ),
        (
            "year=2024/A.parquet",
            &["--map", "time=date"],
            "neither its header nor its path has 'date', which --map names",
        ),
        ("year=2024/A.parquet", &["--map", "time=year"], "'2024' of the key 'year' in its path is not a date"),
    ] {
        let _ = std::fs::remove_dir_all(home.path("bad"));
        write(&format!("bad/{path}"), &none);
        let refused = import("bad", "bad", more).expect_code(2);
        assert!(
            refused.stderr.contains(message) && refused.stderr.contains("A.parquet"),
            "{message}: {}",
            refused.stderr
        );
    }
    write("unnamed/date=2024-01-02/part-0.parquet", &parquet(vec![("symbols", words(["A", "B"])), closes()]));
    let refused = import("unnamed", "unnamed", &[]).expect_code(2);
    assert!(refused.stderr.contains("its name is that of a part of a lake"), "{}", refused.stderr);
}
