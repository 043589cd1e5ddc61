//! Prints `docs/metrics.md`, generated from the declarations.

fn main() {
    print!("{}", trawl_telemetry::metrics::page());
}
