//! The clauses of a scan: from a TOML document, from flags, or from both; flags take precedence.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use trawl_market::AsOf;
use trawl_plan::{Best, Diagnostic, History, ScanDocument, Setting, SweepRange, SweepValues};

use super::several::Several;
use super::watchlist::Watchlist;
use crate::failure::UserMistake;
use trawl_front::document::{cannot_read, document_at, function_name, place_name, shown};
use trawl_front::include::included;

/// Flags that are clauses of the scan.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Clauses")]
pub struct Clauses {
    /// Read the scan from a TOML document, '-' for standard input; flags on the command line replace its clauses
    #[arg(long, short, value_name = "FILE.toml")]
    pub file: Option<PathBuf>,

    /// The text of that document.
    #[arg(skip)]
    text: OnceLock<String>,

    /// The list of symbols in front of the universe.
    #[arg(skip)]
    watched: OnceLock<Watchlist>,

    /// Several scans in place of that document.
    #[arg(skip)]
    pub several: Option<Several>,

    /// Dataset to scan: NAME, or NAME@SNAPSHOT with at least 8 digits of a snapshot's id
    #[arg(long, short, value_name = "NAME")]
    pub dataset: Option<String>,

    /// The condition to look for, such as 'rsi(close, 14) < 30'
    #[arg(long = "where", short = 'w', value_name = "EXPR", allow_hyphen_values = true)]
    pub condition: Option<String>,

    /// Condition that a symbol must fulfil to be scanned at all [default: every symbol]
    #[arg(long, short, value_name = "EXPR", allow_hyphen_values = true)]
    pub universe: Option<String>,

    /// Scan only the symbols of this file: one in a line, or the first column of a CSV file; '#' begins a comment
    #[arg(long, value_name = "FILE")]
    pub watchlist: Option<PathBuf>,

    /// Order of the matches: 'EXPR [asc|desc]', several with commas; NA comes last [default: by symbol; desc]
    #[arg(long, short, value_name = "KEYS", allow_hyphen_values = true)]
    pub rank: Option<String>,

    /// Keep the first N matches of that order
    #[arg(long, short, value_name = "N", allow_negative_numbers = true)]
    pub limit: Option<u32>,

    /// Column to show for each match: 'EXPR' or 'EXPR as NAME'; may be given several times [default: close]
    #[arg(long, short, value_name = "EXPR", allow_hyphen_values = true)]
    pub select: Vec<String>,

    /// Give an expression a name that every clause may use; may be given several times
    #[arg(long = "let", value_name = "NAME=EXPR")]
    pub lets: Vec<String>,

    /// Define a function that every clause may call, such as "rs(n)=roc(n) - ref('SPY', roc(n))"; may be given several times
    #[arg(long = "def", value_name = "NAME(ARGS)=EXPR")]
    pub defs: Vec<String>,

    /// Give a name several values, and scan for every combination; may be given several times
    #[arg(long, value_name = "NAME=FROM:TO:STEP|A,B,C")]
    pub sweep: Vec<String>,

    /// Of a sweep's combinations scan those at which this holds, such as 'fast < slow'
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub sweep_where: Option<String>,

    /// Of a sweep, keep for each symbol the combination with the largest value: 'EXPR [asc|desc]'
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub best: Option<String>,

    /// With --best: how many combinations each symbol keeps [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep: Option<u32>,

    /// Adjust prices for the splits and dividends known at the as-of: split, split+dividend or none; @DATE uses that
    /// date instead
    #[arg(long, value_name = "HOW[@DATE]")]
    pub adjust: Option<String>,

    /// Number type of the arithmetic: f64 or f32, which is faster and less exact (docs/precision.md) [default: f64]
    #[arg(long, value_name = "TYPE")]
    pub precision: Option<String>,

    /// Use only the last N bars of each symbol, and before them the warm-up bars that windows and filters need
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub history: Option<u32>,

    /// With --history: functions that depend on their first bar for ever start at the first of its bars
    #[arg(long, requires = "history")]
    pub origin: bool,

    /// Read a symbol without a bar at the as-of at its newest bar, if that is at most this much older, such as 5m or 3d; without it
    /// such a symbol is stale
    #[arg(long, value_name = "AGE")]
    pub max_age: Option<String>,

    /// Include the newest bar even when it is not closed yet; its rows are marked provisional
    #[arg(long)]
    pub forming: bool,

    /// Scan bars of this timeframe, such as 1d or 5m: those of the dataset, or built from them as tf() builds them
    #[arg(long, short, value_name = "TIMEFRAME")]
    pub timeframe: Option<String>,
}

impl Clauses {
    /// Those of a document, with another dataset and adjustment where they are given.
    pub fn of_document(file: PathBuf, dataset: Option<String>, adjust: Option<String>) -> Self {
        Self { file: Some(file), dataset, adjust, ..Self::default() }
    }

    /// The document that results from the flags and the file.
    ///
    /// # Errors
    /// A [`UserMistake`]: an unreadable file, a mistake in it, no dataset or no condition.
    pub fn document(&self) -> Result<ScanDocument, UserMistake> {
        let mut document = match (&self.file, &self.several) {
            (Some(path), _) => self.read(path)?,
            (None, Some(several)) => several.document.clone(),
            (None, None) => ScanDocument::default(),
        };
        self.replace_shared(&mut document);
        replace(&mut document.universe, &self.universe);
        if let Some(path) = &self.watchlist {
            let watched = Watchlist::read(path)?;
            document.universe = Some(watched.before(document.universe.as_deref()));
            let _ = self.watched.set(watched);
        }
        replace(&mut document.rank, &self.rank);
        replace(&mut document.sweep_where, &self.sweep_where);
        for text in &self.sweep {
            let (name, values) = sweep_variable(text)?;
            document.sweep.insert(name, values);
        }
        match (&self.best, self.keep, &mut document.best) {
            (Some(by), keep, best) => *best = Some(Best { by: by.clone(), keep: keep.unwrap_or(1) }),
            (None, Some(keep), Some(best)) => best.keep = keep,
            (None, Some(_), None) => {
                let help = "add --best with the value to choose by, such as --best 'roc(close, n)'";
                return Err(UserMistake::with_help("--keep needs --best", help));
            }
            (None, None, _) => {}
        }
        if let Some(condition) = &self.condition {
            document.condition.clone_from(condition);
        }
        if self.limit.is_some() {
            document.limit = self.limit;
        }
        if !self.select.is_empty() {
            document.select.clone_from(&self.select);
        }
        for text in &self.defs {
            let (signature, expr) = split_name(text, "--def", "\"rs(n)=roc(n) - ref('SPY', roc(n))\"")?;
            // A flag takes precedence, whatever its parameters are called.
            document.defs.retain(|other, _| function_name(other) != function_name(signature));
            document.defs.insert(signature.to_owned(), expr.to_owned());
        }
        let mut given: Vec<&str> = Vec::new();
        for text in &self.lets {
            let (name, expr) = split_name(text, "--let", "'trend=sma(close, 200)'")?;
            if given.contains(&name) {
                return Err(UserMistake::plain(format!("--let gives '{name}' twice")));
            }
            given.push(name);
            document.lets.insert(name.to_owned(), expr.to_owned());
        }
        if document.dataset.as_deref().unwrap_or("").trim().is_empty() {
            return Err(UserMistake::with_help(
                "which dataset is to be scanned?",
                "name it with --dataset; 'trawl data list' lists them; 'us5' and 'demo' are always available",
            ));
        }
        if document.condition.trim().is_empty() && document.scans.is_empty() {
            return Err(match &self.file {
                Some(path) => UserMistake::with_help(
                    format!("{} has no condition", shown(path)),
                    "add one, such as: where = 'rsi(close, 14) < 30'; or give it with --where",
                ),
                None => UserMistake::with_help(
                    "the scan has no condition",
                    "give the condition with --where, such as --where 'rsi(close, 14) < 30'",
                ),
            });
        }
        // Once it is known what the clauses are, flags included.
        if let Some(path) = &self.file {
            included(&mut document, path)?;
        }
        Ok(document)
    }

    /// Replaces what says which bars are read, on which the scans of one run must agree.
    pub fn replace_shared(&self, document: &mut ScanDocument) {
        replace(&mut document.dataset, &self.dataset);
        replace(&mut document.timeframe, &self.timeframe);
        replace(&mut document.adjust, &self.adjust);
        replace(&mut document.precision, &self.precision);
        replace(&mut document.max_age, &self.max_age);
        document.forming |= self.forming;
        if let Some(bars) = self.history {
            document.history = Some(History { bars, origin: self.origin });
        }
    }

    fn read(&self, path: &Path) -> Result<ScanDocument, UserMistake> {
        let (document, text) = document_at(path, |why| cannot_read(path, &why))?;
        let _ = self.text.set(text);
        Ok(document)
    }

    /// Mistakes in clauses of the document, with their positions in it.
    pub fn placed(&self, error: anyhow::Error) -> anyhow::Error {
        let place = |mistake: Diagnostic| {
            let mistake = match self.watched.get() {
                Some(watched) => watched.placed(mistake),
                None => mistake,
            };
            match (&self.file, self.text.get(), &self.several) {
                (Some(path), Some(text), _) => ScanDocument::placed(mistake, &place_name(path), text),
                (.., Some(several)) => several.placed(mistake),
                _ => mistake,
            }
        };
        match error.downcast::<UserMistake>() {
            Ok(UserMistake::Drawn(mistakes)) => {
                let placed = mistakes.into_iter().map(place);
                UserMistake::Drawn(placed.collect()).into()
            }
            Ok(other) => other.into(),
            Err(error) => error,
        }
    }
}

/// A flag takes precedence over a clause of the document.
fn replace(clause: &mut Option<String>, flag: &Option<String>) {
    if flag.is_some() {
        clause.clone_from(flag);
    }
}

/// `NAME=EXPR`, as `flag` was given it.
fn split_name<'t>(text: &'t str, flag: &str, example: &str) -> Result<(&'t str, &'t str), UserMistake> {
    let (name, expr) = text.split_once('=').map_or(("", ""), |(n, e)| (n.trim(), e.trim()));
    if name.is_empty() || expr.is_empty() {
        return Err(UserMistake::with_help(
            format!("{flag} '{text}' is not of the form NAME=EXPR"),
            format!("an example: {flag} {example}"),
        ));
    }
    Ok((name, expr))
}

/// A number or a word.
fn setting(text: &str) -> Option<Setting> {
    let text = text.trim();
    match text.parse::<f64>() {
        Ok(number) => Some(Setting::Number(number)),
        Err(_) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => Some(Setting::Text(text.to_owned())),
        Err(_) => None,
    }
}

/// `n=10:30:5`, `n=10,20,30` or `r=narrow,wide`.
fn sweep_variable(text: &str) -> Result<(String, SweepValues), UserMistake> {
    let wrong = || {
        UserMistake::with_help(
            format!("--sweep '{text}' gives a name no values"),
            "write NAME=FROM:TO:STEP, such as --sweep n=10:30:5, or NAME=A,B,C",
        )
    };
    let (name, values) = text.split_once('=').ok_or_else(wrong)?;
    let number = |part: &str| part.trim().parse::<f64>().map_err(|_| wrong());
    let values = match values.split(':').collect::<Vec<_>>()[..] {
        [from, to] => SweepValues::Range(SweepRange { from: number(from)?, to: number(to)?, step: 1.0 }),
        [from, to, step] => {
            SweepValues::Range(SweepRange { from: number(from)?, to: number(to)?, step: number(step)? })
        }
        [list] => {
            SweepValues::List(list.split(',').map(|part| setting(part).ok_or_else(wrong)).collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong()),
    };
    if name.trim().is_empty() {
        return Err(wrong());
    }
    Ok((name.trim().to_owned(), values))
}

/// The value of `--as-of`; the newest closed bar when there is none.
///
/// # Errors
/// A [`UserMistake`] that lists the accepted forms.
pub fn as_of(text: Option<&str>) -> Result<AsOf, UserMistake> {
    let Some(text) = text else { return Ok(AsOf::Newest) };
    AsOf::parse(text).map_err(|mistake| UserMistake::with_help(format!("--as-of: {mistake}"), mistake.help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_front::document::unused_lets;

    fn clauses(file: Option<&str>) -> (tempfile::TempDir, Clauses) {
        let folder = tempfile::tempdir().unwrap();
        let file = file.map(|text| {
            let path = folder.path().join("scan.toml");
            std::fs::write(&path, text).unwrap();
            path
        });
        (folder, Clauses { file, ..Clauses::default() })
    }

    #[test]
    fn flags_take_precedence_over_the_clauses_of_a_document() {
        let (_folder, mut clauses) = clauses(Some(
            "dataset = 'a'\nwhere = 'close > 1'\nlimit = 5\nselect = ['open']\n[let]\nx = 'close'\ny = 'open'\n",
        ));
        let plain = clauses.document().unwrap();
        assert_eq!((plain.condition.as_str(), plain.limit), ("close > 1", Some(5)));
        clauses.condition = Some("close > 2".to_owned());
        clauses.lets = vec!["x = high == 1".to_owned()];
        clauses.limit = Some(7);
        let document = clauses.document().unwrap();
        assert_eq!(document.condition, "close > 2");
        assert_eq!(document.limit, Some(7));
        assert_eq!(document.select, ["open"]);
        assert_eq!(document.lets["x"], "high == 1");
        assert_eq!(document.lets["y"], "open");
    }

    #[test]
    fn a_let_is_used_by_a_clause_or_by_a_let_that_is() {
        let text = "dataset = 'a'\nwhere = 'close > a*2'\nselect = ['e as x']\n[let]\na = 'b + 1'\nb = 'open'\nc = 'd'\nd = 'c1'\ne = '1'\nx = '2'\n";
        let document = ScanDocument::from_toml(text).unwrap();
        // 'x' is a heading; that it is a let too makes no difference.
        assert_eq!(unused_lets(&document).iter().map(ToString::to_string).collect::<Vec<_>>(), ["'c'", "'d'"]);
    }

    #[test]
    fn a_document_without_a_condition_needs_one_from_the_flags() {
        let (_folder, mut clauses) = clauses(Some("dataset = 'a'\n"));
        assert!(clauses.document().unwrap_err().to_string().contains("scan.toml' has no condition"));
        clauses.condition = Some("close > 2".to_owned());
        assert_eq!(clauses.document().unwrap().condition, "close > 2");
    }

    #[test]
    fn a_watchlist_is_a_condition_of_the_universe() {
        let (folder, mut clauses) = clauses(Some("dataset = 'a'\nwhere = 'true'\nuniverse = 'close > 1'\n"));
        let path = folder.path().join("list.csv");
        std::fs::write(&path, "Symbol,weight\nIBM,3\n# mine\nAAPL,1 # large\n\nIBM,2\n").unwrap();
        clauses.watchlist = Some(path.clone());
        let universe = clauses.document().unwrap().universe;
        assert_eq!(universe.as_deref(), Some("symbol in ('AAPL', 'IBM') and (close > 1)"));
        std::fs::write(&path, "# none\n").unwrap();
        assert!(clauses.document().unwrap_err().to_string().contains("lists no symbol"));
        let many: Vec<String> = (0..257).map(|n| format!("S{n}")).collect();
        std::fs::write(&path, many.join("\n")).unwrap();
        assert!(clauses.document().unwrap_err().to_string().contains("lists 257 symbols; at most 256"));
    }

    #[test]
    fn missing_clauses_are_reported() {
        let (_folder, mut clauses) = clauses(None);
        assert!(clauses.document().unwrap_err().to_string().contains("which dataset"));
        clauses.dataset = Some("us5".to_owned());
        assert!(clauses.document().unwrap_err().to_string().contains("no condition"));
        clauses.condition = Some("close > 1".to_owned());
        clauses.lets = vec!["x".to_owned()];
        assert!(clauses.document().unwrap_err().to_string().contains("--let 'x'"));
        clauses.lets = vec!["x=1".to_owned(), "x=2".to_owned()];
        assert!(clauses.document().unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn a_mistake_in_a_clause_is_drawn_where_the_document_has_it() {
        let text = "select = ['open', 'clsoe']\nwhere = \"\"\"\nclose > 1\n  and smaa(5) > a\"\"\"\n[let]\na = \"\\u0063lse\"\n[sweep]\nclose = [1]\n";
        let (_folder, mut clauses) = clauses(Some(text));
        clauses.dataset = Some("us5".to_owned());
        clauses.rank = Some("clsoe".to_owned());
        let document = clauses.document().unwrap();
        let schema = trawl_plan::Schema::of_columns(vec!["open".to_owned(), "close".to_owned()]);
        let mistakes = trawl_plan::compile_scan(&document, &schema).unwrap_err();
        let placed = clauses.placed(UserMistake::Drawn(mistakes).into());
        let Ok(UserMistake::Drawn(mistakes)) = placed.downcast::<UserMistake>() else { panic!("not drawn") };
        let mut places: Vec<(bool, &str)> =
            mistakes.iter().map(|m| (m.clause.ends_with("scan.toml"), &m.text[m.span.clone()])).collect();
        places.sort_unstable();
        let expected = [(false, "clsoe"), (true, "\"\\u0063lse\""), (true, "close"), (true, "clsoe"), (true, "smaa")];
        assert_eq!(places, expected, "the order is a flag's, a let with an escape is shown whole");
        let line = |m: &trawl_plan::Diagnostic| m.text[..m.span.start].lines().count();
        assert_eq!(mistakes.iter().find(|m| m.message.contains("smaa")).map(line), Some(4));
    }

    #[test]
    fn a_mistake_in_a_document_is_drawn_in_it() {
        let (_folder, clauses) = clauses(Some("dataset = 'a'\nwheer = 'close > 1'\n"));
        let UserMistake::Drawn(mistakes) = clauses.document().unwrap_err() else { panic!("not drawn") };
        assert!(mistakes[0].clause.ends_with("scan.toml"));
        assert_eq!(mistakes[0].help.as_deref(), Some("did you mean 'where'?"));
    }
}
