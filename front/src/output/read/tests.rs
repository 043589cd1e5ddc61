use super::super::{AnswerFile, columnar as columnar_writer, csv as csv_writer, json as json_writer};
use super::*;
use crate::output::About;
use proptest::prelude::*;
use trawl_testing::sample_answer as sample;

const FORMATS: [(&str, Format); 5] = [
    ("csv", Format::Csv),
    ("json", Format::Json),
    ("jsonl", Format::JsonLines),
    ("parquet", Format::Parquet),
    ("arrow", Format::Arrow),
];

/// The bytes that a scan writes.
fn written(format: Format) -> Vec<u8> {
    let answer = sample();
    let about = About::new(&answer, None);
    let mut bytes = Vec::new();
    match format {
        Format::Csv => csv_writer::write(&answer, &mut bytes),
        Format::Json => json_writer::write(&answer, &about, &mut bytes),
        Format::JsonLines => json_writer::write_lines(&answer, &mut bytes),
        Format::Parquet => columnar_writer::write_parquet(&answer, &about, &mut bytes),
        Format::Arrow => columnar_writer::write_arrow(&answer, &about, &mut bytes),
    }
    .unwrap();
    bytes
}

fn read_csv(text: &str) -> Result<AnswerTable, Damage> {
    table(Format::Csv, text.as_bytes().to_vec(), None)
}

#[test]
fn every_format_is_read_back_as_the_answer_that_was_written() {
    let answer = sample();
    let folder = tempfile::tempdir().unwrap();
    for (extension, _) in FORMATS {
        let path = folder.path().join(format!("a.{extension}"));
        AnswerFile::prepare(&path).unwrap().write(&answer, None).unwrap();
        let read = super::answer(&path).unwrap();
        assert_eq!(read.select, answer.select, "{extension}");
        assert_eq!(read.answer_digest.as_deref(), Some("d1"), "{extension}");
        let identity = read.identity.unwrap();
        assert_eq!((identity["dataset"].as_str(), identity["as_of"].as_str()), ("us5", "2013-02-22"), "{extension}");
        assert_eq!(read.rows.len(), answer.rows.len(), "{extension}");
        for (read, wrote) in read.rows.iter().zip(&answer.rows) {
            assert_eq!(
                (&read.symbol, read.status, &read.reason),
                (&wrote.row.symbol, wrote.row.status, &wrote.row.reason)
            );
            assert_eq!(read.place, wrote.place);
            for (i, value) in read.values.iter().enumerate() {
                let wrote = wrote.row.values.get(i).copied().unwrap_or(f64::NAN);
                let wrote = if extension == "jsonl" && wrote.is_infinite() { f64::NAN } else { wrote };
                assert!(value.to_bits() == wrote.to_bits() || value.is_nan() && wrote.is_nan(), "{extension}");
            }
        }
    }
}

#[test]
fn settings_and_flags_are_found_by_name() {
    let text = "n,x,place,symbol,status,edge,provisional,reason,close\n\
                10,0.5,1,IBM,matched,true,false,,3.5\n10.0,1,,IBM,not_matched,,,,\n";
    let read = read_csv(text).unwrap();
    assert_eq!((read.settings, read.select), (vec!["n".to_owned(), "x".to_owned()], vec!["close".to_owned()]));
    assert_eq!(read.rows[0].settings, ["10", "0.5"]);
    assert_eq!(read.rows[1].settings, ["10", "1"]);
    assert_eq!((read.rows[0].edge, read.rows[0].provisional, read.rows[1].edge), (Some(true), Some(false), None));
    assert_eq!(read.rows[0].values, [3.5]);
    // The same answer has the same keys in JSON.
    let json = r#"{"identity": {"as_of": "x"}, "rows": [{"n": 10, "x": 0.5, "place": 1, "symbol": "IBM",
        "status": "matched", "edge": true, "provisional": false, "reason": "", "close": 3.5}]}"#;
    let same = table(Format::Json, json.into(), None).unwrap();
    assert_eq!(same.rows[0], read.rows[0]);
    let line = r#"{"n": 10, "x": 0.5, "place": 1, "symbol": "IBM", "status": "matched", "edge": true, "provisional": false,
        "reason": "", "close": 3.5}"#;
    let line = line.replace('\n', "") + "\n";
    let same = table(Format::JsonLines, line.clone().into(), None).unwrap();
    assert_eq!(same.rows[0], read.rows[0]);
    // A line that is none of the first one's rows is reported at its place.
    for (second, word) in
        [("{\"n\": 10}\n", "fields are here"), ("{\"n\": 10,\n", "truncated"), ("[]\n", "expected a row")]
    {
        let damage = table(Format::JsonLines, (line.clone() + second).into(), None).unwrap_err();
        assert_eq!(damage.place.as_deref(), Some("line 2"), "{second}");
        assert!(damage.message.contains(word), "{}", damage.message);
    }
    let damage = table(Format::JsonLines, line.trim_end().into(), None).unwrap_err();
    assert!(damage.message.contains("does not end"), "{}", damage.message);
}

#[test]
fn rows_of_many_times_are_told_apart_by_time_and_those_of_one_are_not() {
    let head = "time,n,place,symbol,status,reason,up\n";
    let one =
        read_csv(&format!("{head}2024-01-02,5,1,IBM,matched,,true\n2024-01-02,5,,FB,not_matched,,false\n")).unwrap();
    assert_eq!((one.settings, one.rows[0].settings.as_slice()), (vec!["n".to_owned()], &["5".to_owned()][..]));
    assert_eq!((&one.rows[0].values, &one.rows[1].values), (&vec![1.0], &vec![0.0]));
    let many = read_csv(&format!("{head}2024-01-02,5,1,IBM,matched,,\n2024-01-03,5,1,IBM,matched,,\n")).unwrap();
    assert_eq!(many.settings, ["time", "n"]);
    assert_eq!(many.rows[1].settings, ["2024-01-03", "5"]);
    let twice =
        read_csv(&format!("{head}2024-01-02,5,1,IBM,matched,,\n2024-01-03,5,1,IBM,matched,,\n").replace("-03", "-02"));
    assert!(twice.unwrap_err().message.contains("'IBM' appears twice"));
}

#[test]
fn columns_that_begin_with_a_text_are_labels_or_dates_and_left_out() {
    let head = "place,symbol,status,reason,sector,close,next\n";
    let rows = "1,IBM,matched,,,5,2024-01-02\n2,FB,matched,,Tech,6,\n3,A,matched,,9,7,2024-01-03\n";
    let read = read_csv(&format!("{head}{rows}")).unwrap();
    assert_eq!(read.select, ["close"]);
    assert_eq!(read.rows.iter().map(|row| row.values.as_slice()).collect::<Vec<_>>(), [[5.0], [6.0], [7.0]]);
}

#[test]
fn an_identity_that_names_the_columns_of_texts_decides_instead_of_the_first_cell() {
    let read = |text: &str, texts: &[&str]| {
        let about = serde_json::json!({"identity": {}, "text_columns": texts}).to_string();
        table(Format::Csv, text.as_bytes().to_vec(), serde_json::from_str(&about).ok())
    };
    let head = "place,symbol,status,reason,sector,close\n";
    let labels = format!("{head}1,IBM,matched,,9,5\n2,FB,matched,,Tech,6\n");
    assert_eq!(read(&labels, &["sector"]).unwrap().select, ["close"]);
    let damaged = format!("{head}1,IBM,matched,,9,x5\n2,FB,matched,,Tech,6\n");
    let damage = read(&damaged, &["sector"]).unwrap_err();
    assert_eq!((damage.place.as_deref(), damage.message.as_str()), (Some("line 2"), "'close': 'x5' is not a number"));
}

#[test]
fn a_mistake_is_reported_with_its_place() {
    let head = "place,symbol,status,reason\n";
    for (text, place, word) in [
        ("symbol,status\n".to_owned(), "line 1", "no column 'place'"),
        ("place,symbol,status,reason,a,a\n".to_owned(), "line 1", "two columns 'a'"),
        ("symbol,place,status,reason\n".to_owned(), "line 1", "is before 'place'"),
        (format!("{head}1,IBM,matchd,\n"), "line 2", "'matchd', one of failed"),
        (format!("{head}0,IBM,matched,\n"), "line 2", "whole number from 1"),
        (format!("{head}1,IBM,matched\n"), "line 2", "3 fields are here, 4 are expected"),
        (format!("{head}1,,matched,\n"), "line 2", "symbol is empty"),
        (
            "place,symbol,status,reason,c\n1,IBM,matched,,1\n2,FB,matched,,x\n".to_owned(),
            "line 3",
            "'c': 'x' is not a number",
        ),
        (format!("{head},IBM,stale,a\n,IBM,stale,a\n"), "", "'IBM' appears twice"),
        (format!("{head},IBM,stale,a"), "", "does not end"),
    ] {
        let damage = read_csv(&text).unwrap_err();
        assert_eq!(damage.place.as_deref().unwrap_or_default(), place, "{text}");
        assert!(damage.message.contains(word), "{}", damage.message);
    }
    let damage = table(Format::Json, b"{\"identity\": {},\n \"rows\": [1]}".to_vec(), None).unwrap_err();
    assert!(damage.place.is_some_and(|place| place.starts_with("line 2")), "{}", damage.message);
    let damage = table(Format::Json, b"{\"rows\": []}".to_vec(), None).unwrap_err();
    assert!(damage.message.contains("no 'identity'"), "{}", damage.message);
}

#[test]
fn a_file_of_rows_that_lost_whole_lines_does_not_agree_with_its_identity() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.csv", "a.ndjson"] {
        let path = folder.path().join(name);
        AnswerFile::prepare(&path).unwrap().write(&sample(), None).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let cut = text.trim_end().rfind('\n').unwrap() + 1;
        std::fs::write(&path, &text[..cut]).unwrap();
        let message = super::answer(&path).unwrap_err().to_string();
        assert!(message.contains("its identity counts 1 outside, but 0 rows are"), "{message}");
        // Without the identity file the difference cannot be noticed.
        std::fs::remove_file(identity_path(&path)).unwrap();
        assert_eq!(super::answer(&path).unwrap().identity, None);
    }
}

#[test]
fn two_formats_of_one_name_have_an_identity_each_and_the_older_place_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut other = sample();
    other.identity.dataset = "other".to_owned();
    AnswerFile::prepare(&at("a.csv")).unwrap().write(&sample(), None).unwrap();
    AnswerFile::prepare(&at("a.jsonl")).unwrap().write(&other, None).unwrap();
    let dataset = |name: &str| super::answer(&at(name)).unwrap().identity.unwrap()["dataset"].clone();
    assert_eq!((dataset("a.csv").as_str(), dataset("a.jsonl").as_str()), ("us5", "other"));
    std::fs::rename(at("a.csv.identity.json"), at("a.identity.json")).unwrap();
    assert_eq!(dataset("a.csv"), "us5");
    assert_eq!(dataset("a.jsonl"), "other", "its own takes precedence");
}

#[test]
fn an_empty_and_a_foreign_file_are_refused() {
    for (_, format) in FORMATS {
        assert!(table(format, Vec::new(), None).is_err());
        assert!(table(format, b"PAR1 not an answer, ARROW1 neither PAR1ARROW1".to_vec(), None).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_truncated_or_damaged_file_is_an_answer_or_a_mistake_and_never_a_panic(
        which in 0..FORMATS.len(),
        cut in proptest::option::of(0.0..1.0f64),
        flips in proptest::collection::vec((0.0..1.0f64, any::<u8>()), 0..6),
    ) {
        let format = FORMATS[which].1;
        let mut bytes = written(format);
        if let Some(cut) = cut {
            bytes.truncate((bytes.len() as f64 * cut) as usize);
        }
        for (at, byte) in flips {
            if let Some(there) = { let at = (bytes.len() as f64 * at) as usize; bytes.get_mut(at) } {
                *there = byte;
            }
        }
        let whole = bytes == written(format);
        let read = table(format, bytes, None);
        if whole {
            prop_assert!(read.is_ok());
        }
    }

    #[test]
    fn any_csv_text_is_an_answer_or_a_mistake(text in "(place|symbol|status|reason|matched|[,\n\"a1.-]){0,60}") {
        let _ = read_csv(&text);
    }
}
