//! `trawl completions`: completion scripts for shells.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

const AFTER_HELP: &str = "\
Install, once:
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
    shell: Shell,
}

/// Prints the script.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Generated into memory first: written straight to a pipe that closes early, the generator would panic.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "trawl", &mut script);
    io::stdout().write_all(&script).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
