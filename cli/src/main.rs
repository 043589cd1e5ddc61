//! The `trawl` program: parses the command line, starts logging, runs one command, reports how it ended.
//!
//! Commands live in `commands`; everything they share for people (mistakes drawn in place, tables, files, a progress
//! bar) is beside it. Nothing here knows how bars are stored or how scans are scheduled.

#![forbid(unsafe_code)]
// A panic when the reader of `trawl ... | head` has closed the pipe; a failed write ends without an error instead.
#![deny(clippy::print_stdout)]

mod app;
mod backend;
mod commands;
mod diagnostics;
mod failure;
mod notify;
mod output;
mod progress;
mod tuning;
mod vendor;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory as _, FromArgMatches as _};

use app::Context;
use commands::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  not done, or not wholly (a segment failed, a server is not there, nothing could be imported,
     a notification was not delivered), or 'trawl diff --exit-code' found a difference
  2  your mistake: usage, an expression, an unknown dataset, a file that cannot be read or written

Environment:
  TRAWL_DATA_ROOT   where datasets live, as --data-root; TRAWL_DATA_CACHE, TRAWL_DATA_CACHE_BYTES
  AWS_REGION, AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY   of a bucket s3://, as for Amazon's tools
  GOOGLE_APPLICATION_CREDENTIALS   of gs://; AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY of az://
  TRAWL_BACKEND     as --backend
  TRAWL_CUDA_LIBRARIES   folders with NVIDIA's libraries, looked in first
  TRAWL_LOG         what is logged on stderr, such as info or trawl=debug [default: warn]
  TRAWL_LOG_FORMAT  text or json
  TRAWL_NOTIFY_SECRET   signs what 'trawl scan --notify' posts
  TRAWL_TLS_CA, TRAWL_TLS_CERT, TRAWL_TLS_KEY   as --tls-ca, --tls-cert, --tls-key
  TRAWL_TOKEN_FILE  as --token-file
  TRAWL_METRICS     as --metrics of 'trawl coordinator', 'trawl worker' and 'trawl serve'
  OTEL_EXPORTER_OTLP_ENDPOINT   where traces and servers' metrics go; none are sent without it (OTEL_EXPORTER_OTLP_PROTOCOL,
                    _HEADERS, OTEL_TRACES_SAMPLER and the other standard variables: docs/telemetry.md)
  NO_COLOR          no colours

The scan language: 'trawl help language'.

Examples:
  trawl scan --dataset us5 --as-of 2013-02-22 \\
      --where 'within(crosses_above(sma(close,50), sma(close,200)), 3)'
  trawl data import AAPL.csv IBM.csv --dataset mine
  trawl compute --input AAPL.csv --expr 'rsi(close, 14)'";

/// Scan a whole market at once: give a condition, and every symbol is reported with its status
#[derive(Debug, clap::Parser)]
#[command(name = "trawl", version, after_help = AFTER_HELP, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    data: app::DataArgs,

    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    commands::answer_shell(command_line);
    std::panic::set_hook(Box::new(report_internal_error));
    // A usage error ends the process here, before anything is started.
    let line = command_line();
    let words = match commands::with_words_of_file(&line, std::env::args_os().collect()) {
        Ok(words) => words,
        Err(mistake) => return failure::report(&mistake.into()),
    };
    let matches = line.try_get_matches_from(&words.words).unwrap_or_else(|error| {
        let _ = error.print();
        if let Some(place) = words.place_of(&error) {
            let _ = writeln!(std::io::stderr(), "note: {place}");
        }
        std::process::exit(error.exit_code())
    });
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    std::panic::catch_unwind(AssertUnwindSafe(|| run(cli))).unwrap_or(ExitCode::from(failure::NOT_DONE))
}

/// Parses the command line; the servers' options can come from the environment too.
fn command_line() -> clap::Command {
    let servers = ["coordinator", "worker", "serve"];
    servers.iter().fold(Cli::command(), |line, server| line.mut_subcommand(server, commands::with_variables))
}

/// Logging, configuration, the command. The guard sends the last spans when it is dropped here.
fn run(cli: Cli) -> ExitCode {
    let audit = match cli.command.audit_file() {
        Ok(audit) => audit,
        Err(mistake) => return failure::report(&mistake.into()),
    };
    let _telemetry = trawl_telemetry::init(cli.command.role(), audit);
    let context = Context::new(cli.data);
    cli.command.run(&context).unwrap_or_else(|error| failure::report(&error))
}

/// One line instead of a panic's message and backtrace; only for the first panic, whatever other threads do then.
fn report_internal_error(panic: &PanicHookInfo<'_>) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if trawl_front::output::read::panics_are_reported_elsewhere() {
        return;
    }
    if REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let message = message.lines().next().unwrap_or_default();
    let place = panic.location().map_or_else(String::new, |l| {
        let file = Path::new(l.file()).file_name().unwrap_or_default().to_string_lossy();
        format!(" ({file}:{})", l.line())
    });
    // Not eprintln: it would panic again when stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: internal error: {message}{place}; please report this");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn the_top_level_is_short_and_earlier_spellings_work() {
        let line = command_line();
        let visible: Vec<&str> = line.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name()).collect();
        assert!(visible.len() <= 25, "{visible:?}");
        for (earlier, now) in [
            ("import a.csv --dataset d", "data import"),
            ("synth --symbols 5 --bars 10", "data synth"),
            ("datasets --json", "data list"),
            ("datasets rm d", "data rm"),
            ("inspect d", "data inspect"),
            ("export d -o a.csv", "data export"),
            ("prune d --keep 2", "data prune"),
            ("list", "scans list"),
            ("status s", "scans status"),
            ("trace s", "scans trace"),
            ("watch s", "scans watch"),
            ("results s", "scans results"),
            ("cancel s", "scans cancel"),
        ] {
            let (_, arguments) = earlier.split_once(' ').unwrap_or((earlier, ""));
            let arguments = arguments.strip_prefix("rm ").unwrap_or(arguments);
            for words in [earlier.to_owned(), format!("{now} {arguments}")] {
                let parsed = command_line().try_get_matches_from(format!("trawl {words}").split_whitespace());
                assert!(parsed.is_ok(), "{words}: {:?}", parsed.err());
            }
            assert!(!visible.contains(&earlier.split(' ').next().unwrap_or_default()), "{earlier} is listed");
        }
    }

    #[test]
    #[should_panic(expected = "must be unique")]
    fn clap_checks_the_command_line_in_this_build() {
        // clap's checks are debug assertions; in a profile that switches them off for dependencies the test above
        // checks nothing.
        let group = || clap::ArgGroup::new("twice");
        clap::Command::new("c").group(group()).group(group()).debug_assert();
    }

    #[test]
    fn every_option_of_a_server_has_a_variable_named_after_it() {
        for server in ["coordinator", "worker", "serve"] {
            let line = command_line();
            let command = line.find_subcommand(server).unwrap();
            let options: Vec<&clap::Arg> = command.get_arguments().filter(|a| !a.is_hide_set()).collect();
            assert!(options.len() > 10, "{server}");
            for option in options {
                let long = option.get_long().unwrap();
                let name = match long {
                    "help" => continue,
                    "etcd" => "TRAWL_ETCD_ENDPOINTS".to_owned(),
                    _ => format!("TRAWL_{}", long.to_uppercase().replace('-', "_")),
                };
                assert_eq!(option.get_env().and_then(|e| e.to_str()), Some(name.as_str()), "{server} --{long}");
            }
        }
    }

    #[test]
    fn a_server_reads_the_environment_and_the_command_line_takes_precedence() {
        // Of a command of its own: the environment of this process is shared by all its tests.
        let parse = |words: &[&str]| {
            let option = clap::Arg::new("path").long("path").default_value("none");
            let command = commands::with_variables(clap::Command::new("server").arg(option));
            // By the rule the variable would be PATH, which is set in every environment.
            command.mut_arg("path", |arg| arg.env("PATH")).try_get_matches_from(words).unwrap()
        };
        let of = |matches: &clap::ArgMatches| matches.get_one::<String>("path").cloned().unwrap();
        assert_eq!(of(&parse(&["server"])), std::env::var("PATH").unwrap());
        assert_eq!(of(&parse(&["server", "--path", "x"])), "x");
    }
}
