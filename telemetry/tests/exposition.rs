//! The catalogue and the text of a scrape, as any reader would see them.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trawl_telemetry::metrics::catalogue::coordinator::{SCAN_DURATION, ScanEnd};
use trawl_telemetry::metrics::{About, Format, Kind, Place, SECONDS_BOUNDS, declared, page, render, trace_of};

/// Labels that would grow with the data scanned or with the callers.
const UNBOUNDED: [&str; 8] = ["symbol", "scan", "scan_id", "user", "caller", "dataset", "path", "trace_id"];
/// Series of one process, at most.
const SERIES_MAX: usize = 1000;

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
}

#[test]
fn every_metric_is_declared_well_and_once() {
    let mut names = BTreeSet::new();
    for about in declared() {
        let About { name, meaning, unit, kind, .. } = about;
        assert!(is_name(name) && (name.starts_with("trawl_") || name.starts_with("process_")), "{name}");
        assert!(names.insert(name), "{name} is declared twice");
        assert!(name.ends_with(unit.suffix()), "{name}: its name ends with its unit");
        assert!(!["_total", "_info", "_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)), "{name}");
        assert!(meaning.ends_with('.') && !meaning.contains('|'), "{name}: {meaning}");
        if kind == Kind::Histogram {
            assert!(name.ends_with("_seconds"), "{name}: histograms are of durations");
        }
    }
    assert!(names.len() > 50);
}

#[test]
fn labels_do_not_grow_with_the_data_or_the_callers() {
    for about in declared() {
        for (label, values) in about.labels {
            assert!(is_name(label) && !UNBOUNDED.contains(label), "{}: {label}", about.name);
            // Only the values of info metrics come from the machine.
            assert_eq!(values.is_empty(), about.kind == Kind::Info, "{}: {label}", about.name);
            assert!(values.len() < 16 && values.iter().all(|value| is_name(value)), "{}: {values:?}", about.name);
        }
    }
    for place in [Place::Coordinator, Place::Worker] {
        let series = render(place, Format::Prometheus).lines().filter(|line| !line.starts_with('#')).count();
        assert!(series < SERIES_MAX, "{place:?} has {series} series");
    }
}

/// Samples by name and labels, of a text in which every sample belongs to the family that was announced last.
fn read(text: &str, format: Format) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let (mut family, mut kind, mut families) = (String::new(), String::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            match what {
                "HELP" => {
                    family = rest.split(' ').next().unwrap().to_owned();
                    assert!(families.insert(family.clone()), "{family} comes twice");
                }
                "TYPE" => kind = rest.strip_prefix(&format!("{family} ")).unwrap().to_owned(),
                "UNIT" => assert!(family.ends_with(rest.strip_prefix(&format!("{family} ")).unwrap())),
                "EOF" => assert!(lines.peek().is_none() && format == Format::OpenMetrics),
                other => panic!("{other}"),
            }
            continue;
        }
        let (sample, exemplar) = line.split_once(" # ").unwrap_or((line, ""));
        assert!(exemplar.is_empty() || (format == Format::OpenMetrics && sample.contains("_bucket{")), "{line}");
        let (series, number) = sample.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffixes: &[&str] = match (kind.as_str(), format) {
            ("counter", Format::OpenMetrics) => &["_total"],
            ("histogram", _) => &["_bucket", "_count", "_sum"],
            ("info", _) => &["_info"],
            _ => &[""],
        };
        assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line} in {family} {kind}");
        assert!(samples.insert(series.to_owned(), number.parse().unwrap()).is_none(), "{series} comes twice");
    }
    samples
}

#[test]
fn both_formats_say_the_same_and_buckets_agree_with_their_count() {
    let trace = trace_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    SCAN_DURATION.observe(ScanEnd::Cancelled, Duration::from_millis(30), trace);
    SCAN_DURATION.observe(ScanEnd::Cancelled, Duration::from_millis(10), None);
    SCAN_DURATION.observe(ScanEnd::Cancelled, Duration::from_secs(3600), None);
    let open = render(Place::Coordinator, Format::OpenMetrics);
    let plain = render(Place::Coordinator, Format::Prometheus);
    let samples = read(&open, Format::OpenMetrics);
    let of_time = |series: &String| series.starts_with("process_");
    let differ: Vec<_> = read(&plain, Format::Prometheus)
        .into_iter()
        .filter(|(s, n)| !of_time(s) && samples.get(s) != Some(n))
        .collect();
    assert!(differ.is_empty(), "{differ:?}");
    let name = "trawl_scan_duration_seconds";
    let at = |le: &str| samples[&format!("{name}_bucket{{state=\"cancelled\",le=\"{le}\"}}")];
    assert_eq!([at("0.005"), at("0.01"), at("0.025"), at("0.05"), at("300.0"), at("+Inf")], [0., 1., 1., 2., 2., 3.]);
    assert_eq!(samples[&format!("{name}_count{{state=\"cancelled\"}}")], 3.0);
    assert!((samples[&format!("{name}_sum{{state=\"cancelled\"}}")] - 3600.04).abs() < 1e-9);
    let line = open.lines().find(|line| line.contains(" # {")).expect("an exemplar");
    let head = format!(
        "{name}_bucket{{state=\"cancelled\",le=\"0.05\"}} 2 # {{trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"}} 0.03 "
    );
    assert!(line.starts_with(&head), "{line}");
    assert!(!plain.contains(" # {"), "the older format knows no exemplars");
    assert!(SECONDS_BOUNDS.is_sorted());
}

#[test]
fn a_metric_is_shown_where_it_belongs_and_from_the_start() {
    let [coordinator, worker] = [Place::Coordinator, Place::Worker].map(|place| render(place, Format::Prometheus));
    for about in declared().into_iter().filter(|about| about.kind != Kind::Info && about.name.starts_with("trawl_")) {
        let line = format!("# TYPE {} ", about.full_name());
        let shown = (coordinator.contains(&line), worker.contains(&line));
        let wanted = (about.place != Place::Worker, about.place != Place::Coordinator);
        assert_eq!(shown, wanted, "{}", about.name);
        for (label, values) in about.labels {
            let text = if wanted.0 { &coordinator } else { &worker };
            for value in *values {
                let series = format!("{}{{{label}=\"{value}\"", about.query_names()[0]);
                assert!(text.contains(&series), "{series} is there before it is counted");
            }
        }
    }
}

#[test]
fn the_page_of_the_docs_matches_the_declarations() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page(), "docs/metrics.md is old: run 'just docs'");
}
