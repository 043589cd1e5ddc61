//! `trawl completions`: scripts for shells, and the words that they ask this program for.
//!
//! A script calls this program back with the words of the line ([`answer`]). So values are completed too: datasets, symbols,
//! functions and calendars.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use trawl_coordinator::PERIODS;
use trawl_market::{Calendar, Dataset, Store};
use trawl_plan::catalogue;

use crate::app::{Context, DataArgs};

/// The variable by which a shell asks for words.
const VARIABLE: &str = "TRAWL_COMPLETE";
/// Most symbols that are offered.
const SYMBOLS_MAX: usize = 2000;

const AFTER_HELP: &str = "\
Commands, options and values are completed: datasets, symbols, functions, calendars. Install, once:
  bash        trawl completions bash > ~/.local/share/bash-completion/completions/trawl
  zsh         trawl completions zsh > \"${fpath[1]}/_trawl\"
  fish        trawl completions fish > ~/.config/fish/completions/trawl.fish
  elvish      trawl completions elvish >> ~/.config/elvish/rc.elv
  powershell  trawl completions powershell >> $PROFILE

Or for this session alone:
  source <(trawl completions bash)";

/// Print a shell completion script for this command line
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).with_context(|| format!("there is no script for {name}"))?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "trawl", "trawl", "trawl", &mut script)?;
    io::stdout().write_all(&script).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell that asks for words, and ends the process; returns if none asks.
pub fn answer(line: fn() -> Command) {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(|| with_values(line())).var(VARIABLE).complete();
    }
}

/// A command whose arguments know their values.
fn with_values(command: Command) -> Command {
    let is_functions = command.get_name() == "indicators";
    let command = command.mut_args(|arg| {
        let values: fn() -> Vec<String> = match arg.get_id().as_str() {
            "dataset" => datasets,
            "symbol" | "why" => symbols,
            "calendar" => || Calendar::all().map(|calendar| calendar.name().to_owned()).collect(),
            "name" if is_functions => functions,
            "by" => groups,
            "condition" | "where" | "universe" | "rank" | "select" | "lets" | "defs" | "best" | "expr" | "exprs"
            | "panel" | "overlay" => {
                return arg.add(ArgValueCompleter::new(functions_of));
            }
            _ => return arg,
        };
        completed(arg, values)
    });
    command.mut_subcommands(with_values)
}

fn completed(arg: Arg, values: fn() -> Vec<String>) -> Arg {
    arg.add(ArgValueCompleter::new(move |current: &OsStr| -> Vec<CompletionCandidate> {
        let Some(current) = current.to_str() else { return Vec::new() };
        // The last of several with commas.
        let (before, current) = current.rfind(',').map_or(("", current), |at| current.split_at(at + 1));
        let begins =
            |value: &String| value.get(..current.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(current));
        values().into_iter().filter(begins).map(|value| CompletionCandidate::new(format!("{before}{value}"))).collect()
    }))
}

/// What an expression may go on with: the functions that begin as its last word does.
fn functions_of(expression: &OsStr) -> Vec<CompletionCandidate> {
    let Some(expression) = expression.to_str() else { return Vec::new() };
    // A shell passes a quotation mark that is open.
    let expression = expression.trim_start_matches(['\'', '"']);
    let word = expression.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let (before, word) = expression.split_at_checked(word).unwrap_or((expression, ""));
    if word.is_empty() {
        return Vec::new();
    }
    let begin = functions().into_iter().filter(|name| name.starts_with(word));
    begin.map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
}

fn functions() -> Vec<String> {
    let names = catalogue::functions().map(|function| function.name);
    names.chain(catalogue::FORMS.iter().map(|form| form.name)).map(str::to_owned).collect()
}

/// The value of an option among the words of the line.
fn option(names: [&str; 2]) -> Option<String> {
    let words: Vec<String> = std::env::args().collect();
    let joined = words.iter().find_map(|word| names.iter().find_map(|name| word.strip_prefix(&format!("{name}="))));
    let apart = || words.iter().position(|word| names.contains(&word.as_str())).and_then(|at| words.get(at + 1));
    joined.map(str::to_owned).or_else(|| apart().cloned())
}

/// The datasets of this machine; those of a bucket are not asked for while somebody types.
fn store() -> Option<Store> {
    let given = option(["--data-root", "--data-root"]).or_else(|| std::env::var("TRAWL_DATA_ROOT").ok());
    if given.as_deref().is_some_and(|root| root.contains("://")) {
        return None;
    }
    let data =
        DataArgs { data_root: given.map(|root| Path::new(&root).to_owned()), data_cache: None, data_cache_bytes: 0 };
    Context::new(data).store().ok()
}

fn datasets() -> Vec<String> {
    let list = store().and_then(|store| store.list().ok()).unwrap_or_default();
    list.into_iter().map(|dataset| dataset.name).collect()
}

/// What a study may be divided by.
fn groups() -> Vec<String> {
    let labels = || named_dataset()?.symbol_table().ok().map(|table| table.labels().to_vec());
    let periods = PERIODS.iter().map(|period| (*period).to_owned());
    labels().unwrap_or_default().into_iter().chain(periods).collect()
}

/// The symbols of the dataset that the line names.
fn symbols() -> Vec<String> {
    let Some(dataset) = named_dataset() else { return Vec::new() };
    dataset.manifest.symbols.iter().take(SYMBOLS_MAX).map(|entry| entry.symbol.clone()).collect()
}

/// The dataset that the line names.
fn named_dataset() -> Option<Dataset> {
    let store = store()?;
    // Commands of datasets have their name as a word of its own.
    let named = option(["--dataset", "-d"]).or_else(|| {
        let known = datasets();
        std::env::args().find(|word| known.iter().any(|dataset| word.split('@').next() == Some(dataset)))
    });
    store.open(&named?).ok()
}
