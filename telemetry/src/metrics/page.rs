//! The documentation page with the meaning of every metric, generated from the declarations.

use std::fmt::Write as _;

use super::{Kind, Place, SECONDS_BOUNDS, declared};

const HEAD: &str = "\
# Metrics

<!-- Written from the declarations by `just docs`; a test compares. -->

`trawl coordinator --metrics 9464` and `trawl worker --metrics 9464` show these on `http://127.0.0.1:9464/metrics`; with
`OTEL_EXPORTER_OTLP_ENDPOINT` they are sent by OTLP as well, under the same names without `_total`. How to look at them:
[deploy/](../deploy/README.md). What to do when an alert fires: [runbook.md](runbook.md).

Counters begin at 0 with the process and are there from the start, every value of a label too. Instead of the length of a
queue there are two counters, of what came in and of what ended: their difference is what there is, and neither misses what
happened between two looks. Work is in seconds of one core, as the cost model estimates it. No symbol, scan, user or dataset
is a label: its values are those of this page. A histogram's buckets carry the id of the newest sampled trace that fell into
them, for who reads OpenMetrics.
";

/// The text of `docs/metrics.md`.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    let bounds: Vec<String> = SECONDS_BOUNDS.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "\nBuckets of every histogram, in seconds: {}, and without bound.", bounds.join(", "));
    for (place, title) in
        [(Place::Coordinator, "Of a coordinator"), (Place::Worker, "Of a worker"), (Place::Every, "Of both")]
    {
        let _ = write!(text, "\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        for about in declared().into_iter().filter(|about| about.place == place) {
            let kind = match about.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
                Kind::Info => "info",
            };
            let label = |(name, values): &(&str, &[&str])| match values {
                [] => format!("`{name}`"),
                values => format!("`{name}`: {}", values.join(", ")),
            };
            let labels: Vec<String> = about.labels.iter().map(label).collect();
            let _ = writeln!(text, "| `{}` | {kind} | {} | {} |", about.full_name(), labels.join("; "), about.meaning);
        }
    }
    text
}
