//! `trawl debug bundle`: what somebody else needs to look at a problem of a cluster, in one file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use trawl_coordinator::client::{ClientError, Manager};
use trawl_wire::pb;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::scans::{ClientArgs, ask, json_lines, print};
use crate::failure::{DONE, NOT_DONE, UserMistake};
use trawl_front::human::counted;
use trawl_front::output::atomic_file::StagedFile;
use trawl_front::records::{CoordinatorLine, ScanLine, WorkerLine};

/// Scans listed.
const SCANS_MAX: u32 = 200;
/// Scans whose report is in it, if none is named: the newest that failed, and the newest of all.
const REPORTS_MAX: usize = 10;
/// Longest wait for the metrics of one process.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of the metrics of one process.
const METRICS_BYTES_MAX: u64 = 16 << 20;
/// Variables whose values are shown; of others of ours only that they are set.
const SHOWN_VARIABLES: [&str; 8] = [
    "TRAWL_COORDINATOR",
    "TRAWL_DATA_ROOT",
    "TRAWL_DATA_CACHE",
    "TRAWL_DATA_CACHE_BYTES",
    "TRAWL_BACKEND",
    "TRAWL_LOG",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_TRACES_SAMPLER",
];

const AFTER_HELP: &str = "\
The file contains the cluster's coordinators, workers and scans (with their conditions, callers and datasets, but no \
results), the reports of some scans, the metrics of the processes that --metrics names, and this program's version. No \
token, key or certificate is read into it. What cannot be had is named in errors.txt, and the exit code is 1.

Examples:
  trawl debug bundle -o problem.zip
  trawl debug bundle -o problem.zip --scan SCAN --metrics http://127.0.0.1:9464/metrics";

/// Collect what is needed to look at a problem of a cluster
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Bundle(BundleArgs),
}

/// Write coordinators, workers, scans, reports and metrics of a cluster to one ZIP file
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
struct BundleArgs {
    /// File to write
    #[arg(long, short, value_name = "FILE.zip")]
    output: PathBuf,

    /// Scans whose report to include [default: the newest, and the newest that failed]
    #[arg(long, value_name = "SCAN")]
    scan: Vec<String>,

    /// Where processes serve their metrics, http://IP:PORT/metrics
    #[arg(long, value_name = "URL")]
    metrics: Vec<String>,

    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Command::Bundle(args) = &args.command;
    bundle(args)
}

/// The parts of a bundle by name, and what could not be had.
#[derive(Default)]
struct Parts {
    files: Vec<(String, String)>,
    errors: Vec<String>,
}

impl Parts {
    fn add(&mut self, name: &str, content: Result<String, String>) {
        match content {
            Ok(content) => self.files.push((name.to_owned(), content)),
            Err(error) => self.errors.push(format!("{name}: {error}")),
        }
    }
}

fn bundle(args: &BundleArgs) -> anyhow::Result<ExitCode> {
    if let Some(url) = args.metrics.iter().find(|url| !url.starts_with("http://")) {
        let help = "http://IP:PORT/metrics is expected, as --metrics of a server serves it";
        return Err(UserMistake::with_help(format!("--metrics {url}"), help).into());
    }
    let mut parts = Parts::default();
    parts.add("about.txt", Ok(about()));
    let cluster = ask(&args.client, async |manager| {
        of_cluster(manager, &args.scan, &mut parts).await;
        Ok(())
    });
    if let Err(error) = cluster {
        parts.errors.push(format!("the cluster: {error:#}"));
    }
    for (number, url) in args.metrics.iter().enumerate() {
        parts.add(&format!("metrics-{}.txt", number + 1), metrics(url));
    }
    if !parts.errors.is_empty() {
        parts.files.push(("errors.txt".to_owned(), parts.errors.join("\n") + "\n"));
    }
    write(&args.output, &parts.files)?;
    let mut text = format!("{} in {}\n", counted(parts.files.len(), "file"), args.output.display());
    for error in &parts.errors {
        let _ = writeln!(text, "not included: {error}");
    }
    print(&text)?;
    Ok(ExitCode::from(if parts.errors.is_empty() { DONE } else { NOT_DONE }))
}

async fn of_cluster(manager: &mut Manager<'_>, wanted: &[String], parts: &mut Parts) {
    let text = |error: ClientError| format!("{:#}", anyhow::Error::from(error));
    let of_lines = |lines: anyhow::Result<String>| lines.map_err(|error| error.to_string());
    let coordinators = manager.coordinators().await.map_err(text);
    parts.add(
        "coordinators.jsonl",
        coordinators.and_then(|all| of_lines(json_lines(all.iter().map(CoordinatorLine::of)))),
    );
    let workers = manager.workers().await.map_err(text);
    parts.add("workers.jsonl", workers.and_then(|all| of_lines(json_lines(all.iter().map(WorkerLine::of)))));
    let datasets = manager.datasets().await.map_err(text);
    parts.add("datasets.jsonl", datasets.and_then(|all| of_lines(json_lines(&all))));
    let listed = manager.list(pb::ListScansRequest { limit: SCANS_MAX, ..Default::default() }).await.map_err(text);
    let scans = listed.as_ref().map(|reply| reply.scans.clone()).unwrap_or_default();
    parts.add("scans.jsonl", listed.and_then(|reply| of_lines(json_lines(reply.scans.iter().map(ScanLine::of)))));
    for scan in reports_of(wanted, &scans) {
        let report = manager.trace(&scan).await.map(|reply| reply.report_json).map_err(text);
        parts.add(&format!("report-{scan}.json"), report);
    }
}

/// The scans whose reports are included: those named, or half the newest that failed and half the newest.
fn reports_of(wanted: &[String], scans: &[pb::ScanInfo]) -> Vec<String> {
    if !wanted.is_empty() {
        return wanted.to_vec();
    }
    let failed = scans.iter().filter(|scan| scan.state() == pb::ScanState::Failed || scan.failed_symbols > 0);
    let mut names: Vec<String> = failed.take(REPORTS_MAX / 2).map(|scan| scan.scan_id.clone()).collect();
    for scan in scans {
        if names.len() < REPORTS_MAX && !names.contains(&scan.scan_id) {
            names.push(scan.scan_id.clone());
        }
    }
    names
}

fn about() -> String {
    let mut text = format!(
        "trawl {}, {} {}\nat {} UTC\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        trawl_market::format_time(trawl_market::now()),
    );
    let mut names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("TRAWL_") || name.starts_with("OTEL_"))
        .collect();
    names.sort();
    for name in names {
        let value = std::env::var(&name).ok().filter(|_| SHOWN_VARIABLES.contains(&name.as_str()));
        // An address with a credential in it is refused everywhere, but it may be set.
        let value = value.filter(|value| !(value.contains("://") && value.contains(['@', '?', '#'])));
        let _ = writeln!(text, "{name} {}", value.map_or_else(|| "is set".to_owned(), |value| format!("= {value}")));
    }
    text
}

fn metrics(url: &str) -> Result<String, String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(METRICS_TIMEOUT)).max_redirects(0).build();
    let response = ureq::Agent::new_with_config(config).get(url).call().map_err(|error| format!("{url}: {error}"))?;
    let mut text = String::new();
    let read = response.into_body().into_reader().take(METRICS_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| format!("{url}: {error}"))?;
    Ok(format!("# {url}\n{text}"))
}

fn write(output: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", output.display());
    let mut file = StagedFile::create(output)?;
    let mut zip = ZipWriter::new(tempfile::tempfile().with_context(failed)?);
    for (name, content) in files {
        zip.start_file(name, SimpleFileOptions::default()).with_context(failed)?;
        zip.write_all(content.as_bytes()).with_context(failed)?;
    }
    let mut written: File = zip.finish().with_context(failed)?;
    std::io::Seek::rewind(&mut written).with_context(failed)?;
    std::io::copy(&mut written, &mut file).with_context(failed)?;
    file.keep().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_of_named_scans_or_of_failed_and_new_ones() {
        let scan = |id: usize, state: pb::ScanState| pb::ScanInfo {
            scan_id: format!("s-{id}"),
            state: state.into(),
            ..pb::ScanInfo::default()
        };
        let of = |id| scan(id, if id % 4 == 3 { pb::ScanState::Failed } else { pb::ScanState::Done });
        let scans: Vec<pb::ScanInfo> = (0..40).map(of).collect();
        let names = reports_of(&[], &scans);
        assert_eq!(names[..6], ["s-3", "s-7", "s-11", "s-15", "s-19", "s-0"]);
        assert_eq!(names.len(), REPORTS_MAX);
        assert_eq!(reports_of(&["x".to_owned()], &scans), ["x"]);
    }
}
