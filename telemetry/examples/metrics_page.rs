//! Prints `docs/metrics.md`, from the declarations.

fn main() {
    print!("{}", trawl_telemetry::metrics::page());
}
