//! Options of servers from a TOML file.
//!
//! A key is an option's name without `--`. The file only adds words to the command line, where neither the command line
//! nor the environment sets the option, so that both take precedence and every check is the same.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use toml::{Spanned, Value};
use trawl_plan::suggest;

use crate::failure::UserMistake;

/// Commands that read a file.
const SERVERS: [&str; 3] = ["coordinator", "worker", "serve"];
/// The option that names the file.
const OPTION: &str = "config";
/// Options of all commands, which may come before the command; each has a value.
const GLOBAL: [&str; 3] = ["--data-root", "--data-cache", "--data-cache-bytes"];
/// Options that are not read from the file.
const NOT_IN_FILE: [&str; 3] = [OPTION, "help", "version"];
/// Maximum bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A command line with the options of a file.
#[derive(Debug)]
pub struct Words {
    /// What to parse.
    pub words: Vec<OsString>,
    file: PathBuf,
    /// Lines of the options from the file.
    lines: BTreeMap<String, usize>,
}

impl Words {
    /// Where the file sets the option that an error of the parser is about.
    pub fn place_of(&self, error: &clap::Error) -> Option<String> {
        let ContextValue::String(shown) = error.get(ContextKind::InvalidArg)? else { return None };
        let (key, line) = self.lines.iter().find(|(key, _)| shown.split(' ').next() == Some(&format!("--{key}")))?;
        Some(format!("{}:{line} sets --{key}", self.file.display()))
    }
}

/// The command line with the options of the file that it or the environment names, if it runs a server.
///
/// # Errors
/// The file cannot be read, or contains a mistake: with file and line.
pub fn with_words_of_file(line: &Command, words: Vec<OsString>) -> Result<Words, UserMistake> {
    let unchanged = |words| Ok(Words { words, file: PathBuf::new(), lines: BTreeMap::new() });
    let Some((at, server)) = server_in(&words) else { return unchanged(words) };
    let mut line = line.clone();
    line.build();
    let Some(server) = line.find_subcommand(server) else { return unchanged(words) };
    let variable = option(server, OPTION).and_then(|arg| std::env::var_os(arg.get_env()?)).filter(|v| !v.is_empty());
    let Some(file) = value_of(&words, OPTION).or(variable).map(PathBuf::from) else {
        return unchanged(words);
    };
    let (mut added, mut lines) = (Vec::new(), BTreeMap::new());
    for (key, value) in read(&file)? {
        let place = |what: &str| format!("{}:{}: {what}", file.display(), value.line);
        let Some(arg) = option(server, &key).filter(|_| !NOT_IN_FILE.contains(&key.as_str())) else {
            let known = server.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
            let near = suggest(&key, known).map(|near| format!("did you mean '{near}'?"));
            let help = near.unwrap_or_else(|| format!("'trawl {} --help' lists the options", server.get_name()));
            let what = format!("'{key}' is not an option of 'trawl {}'", server.get_name());
            return Err(UserMistake::with_help(place(&what), help));
        };
        let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
        let text = text_of(&value.value, is_flag).map_err(|expected| {
            UserMistake::with_help(place(&format!("{key}: {expected} is expected")), "docs/cluster.md shows a file")
        })?;
        let elsewhere = arg.get_env().is_some_and(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()))
            || words.iter().skip(at).any(|word| names(word, &key));
        let Some(text) = text.filter(|_| !elsewhere) else { continue };
        added.push(OsString::from(if is_flag { format!("--{key}") } else { format!("--{key}={text}") }));
        lines.insert(key, value.line);
    }
    let mut words = words;
    words.splice(at..at, added);
    Ok(Words { words, file, lines })
}

/// The server that a command line runs, and where its options begin.
fn server_in(words: &[OsString]) -> Option<(usize, &'static str)> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if GLOBAL.iter().any(|option| word == option) {
            at += 2;
        } else if word.to_str().is_some_and(|word| word.starts_with('-')) {
            at += 1;
        } else {
            let server = SERVERS.into_iter().find(|server| word == server)?;
            return Some((at + 1, server));
        }
    }
    None
}

fn option<'a>(server: &'a Command, long: &str) -> Option<&'a Arg> {
    server.get_arguments().find(|arg| arg.get_long() == Some(long) && !arg.is_hide_set())
}

/// Whether a word is an option, with or without its value.
fn names(word: &OsString, long: &str) -> bool {
    let rest = word.to_str().and_then(|word| word.strip_prefix("--")?.strip_prefix(long));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

fn value_of(words: &[OsString], long: &str) -> Option<OsString> {
    let at = words.iter().position(|word| names(word, long))?;
    match words[at].to_str()?.split_once('=') {
        Some((_, value)) => Some(value.into()),
        None => words.get(at + 1).cloned(),
    }
}

/// A value and its line, from 1.
struct Placed {
    value: Value,
    line: usize,
}

/// The keys and values of a file.
fn read(file: &Path) -> Result<BTreeMap<String, Placed>, UserMistake> {
    let shown = file.display();
    let unreadable = |error: std::io::Error| UserMistake::plain(format!("--config {shown}: cannot read it: {error}"));
    if std::fs::metadata(file).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(UserMistake::plain(format!("--config {shown}: it has more than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let line_of = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let found: BTreeMap<String, Spanned<Value>> = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        UserMistake::with_help(
            format!("{shown}:{line}: {}", error.message()),
            "KEY = VALUE is expected, as TOML writes it",
        )
    })?;
    let placed = |(key, value): (String, Spanned<Value>)| {
        let line = line_of(value.span().start);
        (key, Placed { value: value.into_inner(), line })
    };
    Ok(found.into_iter().map(placed).collect())
}

/// A value as a word of the command line; `None` for a flag that is off.
fn text_of(value: &Value, is_flag: bool) -> Result<Option<String>, &'static str> {
    match value {
        Value::Boolean(on) if is_flag => Ok(on.then(|| "true".to_owned())),
        _ if is_flag => Err("true or false"),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Integer(number) => Ok(Some(number.to_string())),
        Value::Float(number) => Ok(Some(number.to_string())),
        Value::Array(values) => {
            let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            texts.map(|texts| Some(texts.join(","))).ok_or("a list of texts")
        }
        Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => Err("a text, a number or a list of texts"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Command {
        let server = Command::new("worker")
            .arg(Arg::new("config").long("config").num_args(1))
            .arg(Arg::new("etcd").long("etcd").num_args(1).value_delimiter(','))
            .arg(Arg::new("threads").long("threads").value_parser(clap::value_parser!(u8).range(1..)))
            .arg(Arg::new("shared").long("shared").action(ArgAction::SetTrue))
            // Set in every environment.
            .arg(Arg::new("path").long("path").env("PATH"));
        Command::new("trawl").arg(Arg::new("data-root").long("data-root").global(true)).subcommand(server)
    }

    fn words(file: &str, more: &[&str]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("worker.toml");
        std::fs::write(&path, file).unwrap();
        let given = ["trawl", "--data-root", "worker", "worker", "--config"].map(OsString::from);
        let given = given.into_iter().chain([path.clone().into_os_string()]).chain(more.iter().map(OsString::from));
        let shown = |mistake: UserMistake| mistake.to_string().replace(&path.display().to_string(), "FILE");
        let words = with_words_of_file(&line(), given.collect()).map_err(shown)?;
        if let Err(error) = line().try_get_matches_from(&words.words) {
            return Err(words.place_of(&error).unwrap().replace(&path.display().to_string(), "FILE"));
        }
        let added = words.words.into_iter().skip(4).take_while(|word| word != "--config");
        Ok(added.map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn options_of_the_file_are_added_unless_they_are_given_elsewhere() {
        let file = "etcd = ['a', 'b']\nthreads = 4\nshared = true\npath = 'x'\ndata-root = 'd'\n";
        assert_eq!(words(file, &[]).unwrap(), ["--data-root=d", "--etcd=a,b", "--shared", "--threads=4"]);
        assert_eq!(words(file, &["--threads", "2", "--etcd=c"]).unwrap(), ["--data-root=d", "--shared"]);
        assert_eq!(words("shared = false", &[]).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn mistakes_are_shown_with_file_and_line() {
        for (file, expected) in [
            ("threads = 4\nthread = 4", "FILE:2: 'thread' is not an option of 'trawl worker'"),
            ("config = 'x'", "FILE:1: 'config' is not an option of 'trawl worker'"),
            ("\n\nthreads = 0", "FILE:3 sets --threads"),
            ("threads = 2000-01-01", "FILE:1: threads: a text, a number or a list of texts is expected"),
            ("shared = 'yes'", "FILE:1: shared: true or false is expected"),
            ("threads 4", "FILE:1: key with no value, expected `=`"),
        ] {
            assert_eq!(words(file, &[]).unwrap_err(), expected);
        }
    }

    #[test]
    fn other_commands_read_no_file() {
        let given: Vec<OsString> = ["trawl", "scan", "--config", "/nowhere"].map(OsString::from).into();
        assert_eq!(with_words_of_file(&line(), given.clone()).unwrap().words, given);
        let missing: Vec<OsString> = ["trawl", "worker", "--config", "/nowhere"].map(OsString::from).into();
        let error = with_words_of_file(&line(), missing).unwrap_err().to_string();
        assert!(error.starts_with("--config /nowhere: cannot read it"), "{error}");
    }
}
