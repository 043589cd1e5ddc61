//! `trawl indicators`: the functions of the scan language, from their declarations.

mod describe;
mod pages;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use trawl_front::indicators::{self, Found};

use crate::app::Context;
use crate::failure::UserMistake;

const AFTER_HELP: &str = "\
Examples:
  trawl indicators
  trawl indicators macd
  trawl indicators --search band
  trawl indicators --json";

/// List the functions of the scan language, or describe one
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The function to describe [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// List the functions whose name or description has these words; words of other programs, such as crossover, are known
    #[arg(long, value_name = "WORD", conflicts_with = "name")]
    search: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write the documentation into this folder, one page per group
    #[arg(long, value_name = "DIR", hide = true, conflicts_with_all = ["name", "json", "search"])]
    pages: Option<PathBuf>,
}

/// Prints, or writes pages.
pub fn run(args: Args, _context: &Context) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.pages {
        pages::write(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(words) = &args.search {
        return search(words, args.json);
    }
    let text = match &args.name {
        None if args.json => json(&indicators::all())?,
        None => describe::list(),
        Some(name) => match indicators::find(name)? {
            found if args.json => json(&found.entry())?,
            Found::Function(function) => describe::function(function),
            Found::Form(form) => describe::form(form),
        },
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what a search finds; an error when that is nothing.
fn search(words: &str, as_json: bool) -> anyhow::Result<ExitCode> {
    let found = indicators::search(words);
    let hint = trawl_plan::foreign_hint(words.trim());
    if found.is_empty() && hint.is_none() {
        let help = "try a shorter word; 'trawl indicators' lists all functions";
        return Err(UserMistake::with_help(format!("no function has '{words}' in its description"), help).into());
    }
    let text = match as_json {
        true => json(&found.into_iter().flat_map(|(_, entries)| entries).collect::<Vec<_>>())?,
        false => {
            let hint = hint.map_or_else(String::new, |hint| format!("{}: {hint}\n\n", words.trim()));
            // A hint without functions, such as that there is none, is the whole answer.
            match found.is_empty() {
                true => format!("{}\n", hint.trim_end()),
                false => format!("{hint}{}", describe::lines(&found)),
            }
        }
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}
