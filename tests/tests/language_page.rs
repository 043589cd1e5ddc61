//! The pages of the language, run: every example of docs/language.md and docs/language/ gives the result that it shows,
//! and every function of the language and every clause of the document has an example.
//!
//! A block ```` ```scan DATASET [SYMBOL] [AS-OF] ```` has an expression in each line, with its result after `# =>`:
//! with a symbol its value there, otherwise the symbols that match. A block ```` ```toml scan [AS-OF] ```` is a
//! document, with lines `# =>` for the matches kept, counts by status, one symbol's columns, the matches at a point of
//! a sweep. Blocks ```` ```csv DATASET bars|attributes ```` are imported as a dataset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::{NoProgress, PrepareError, PreparedScan, prepare};
use trawl_kernels::NoCancel;
use trawl_kernels::stages::Stages;
use trawl_market::{ImportOptions, Store, TimeMicros, import_files, parse_time};
use trawl_plan::catalogue::{FORMS, functions};
use trawl_plan::document::MemberScan;
use trawl_plan::graph;
use trawl_plan::{Best, History, ScanDocument, Setting, SweepValues};
use trawl_tests::executable::repository;
use trawl_wire::{Answer, Status, StepInputV1};

/// Symbols that are listed; if there are more, they are counted.
const LISTED_MAX: usize = 8;

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Expressions with their results.
    Expressions,
    /// A document with its results.
    Document,
    /// A file of a dataset.
    Table,
}

/// A fenced block with its place.
struct Block {
    place: String,
    kind: Kind,
    words: Vec<String>,
    as_of: Option<TimeMicros>,
    lines: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let docs = repository().join("docs");
    let mut pages: Vec<PathBuf> = std::fs::read_dir(docs.join("language"))
        .expect("docs/language/")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.push(docs.join("language.md"));
    pages.sort();
    pages
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let mut lines = text.lines().enumerate();
        while let Some((i, line)) = lines.next() {
            let Some(fence) = line.strip_prefix("```") else { continue };
            let inside: Vec<String> =
                lines.by_ref().map(|(_, l)| l.to_owned()).take_while(|l| !l.starts_with("```")).collect();
            let kinds = [("toml scan", Kind::Document), ("scan", Kind::Expressions), ("csv ", Kind::Table)];
            let found = kinds.into_iter().find_map(|(begin, kind)| Some((fence.strip_prefix(begin)?, kind)));
            let Some((rest, kind)) = found else { continue };
            let (dates, words): (Vec<&str>, Vec<&str>) =
                rest.split_whitespace().partition(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            let as_of = dates.first().map(|date| parse_time(date).expect("a date"));
            let place = format!("{}:{}", page.file_name().unwrap_or_default().to_string_lossy(), i + 1);
            let words = words.into_iter().map(str::to_owned).collect();
            blocks.push(Block { place, kind, words, as_of, lines: inside });
        }
    }
    blocks
}

/// The datasets whose files the pages show, in a folder.
fn datasets(blocks: &[Block], folder: &Path) -> Store {
    let store = Store::new(folder.join("data"));
    let tables = || blocks.iter().filter(|block| block.kind == Kind::Table);
    let written = |block: &Block| {
        let path = folder.join(format!("{}.csv", block.words.join("-")));
        std::fs::write(&path, format!("{}\n", block.lines.join("\n"))).expect("a file");
        path
    };
    for bars in tables().filter(|block| block.words[1] == "bars") {
        let dataset = &bars.words[0];
        let attributes = tables().find(|block| block.words == [dataset, "attributes"]).map(written);
        let options = ImportOptions {
            dataset: dataset.clone(),
            files: vec![written(bars)],
            attributes,
            strict: true,
            ..ImportOptions::default()
        };
        import_files(&store, &options).unwrap_or_else(|error| panic!("{}: {error}", bars.place));
    }
    store
}

/// Prepares and runs a scan; the error is its first mistake.
fn run(store: &Store, document: &ScanDocument, as_of: Option<TimeMicros>) -> Result<(PreparedScan, Answer), String> {
    let prepared = prepare(store, document, as_of).map_err(|error| match error {
        PrepareError::Plan(mistakes) => mistakes[0].message.clone(),
        other => other.to_string(),
    })?;
    let source = prepared.source();
    let references = source.load_references().map_err(|e| e.to_string())?;
    let execute = |segment, step, input: &StepInputV1, stages: &mut Stages| {
        source.execute(segment, step, input, &references, &NoCancel, stages).map_err(|e| (e.kind(), e.to_string()))
    };
    let options = LocalOptions { threads: 1, ..LocalOptions::default() };
    let (answer, _) = local::run(&prepared, options, execute, &NoProgress).map_err(|e| e.to_string())?;
    Ok((prepared, answer))
}

/// `AAPL, IBM`, `12 match` or `none`: the matches that are kept, in their order.
fn matches(answer: &Answer, point: u32) -> String {
    let rows = answer.rows.iter().filter(|r| r.row.point == point && r.place.is_some());
    let symbols: Vec<&str> = rows.map(|r| r.row.symbol.as_str()).collect();
    match symbols.len() {
        0 => "none".to_owned(),
        n if n > LISTED_MAX => format!("{n} match"),
        _ => symbols.join(", "),
    }
}

/// Whether a number equals the written one: to the last decimal written, whole numbers but for rounding.
fn is_written(value: f64, written: &str) -> bool {
    if value.is_nan() || value.is_infinite() {
        return written == if value.is_nan() { "NA" } else { "inf" };
    }
    let Ok(wanted) = written.parse::<f64>() else { return false };
    let tolerance = match written.split_once('.') {
        Some((_, decimals)) => 0.5001 * 10f64.powi(-(decimals.len() as i32)),
        None => 1e-9 * wanted.abs().max(1.0),
    };
    (value - wanted).abs() <= tolerance
}

/// The value of an expression for one symbol; a condition is written as one.
fn value(store: &Store, block: &Block, expression: &str, written: &str) -> Result<(), String> {
    let document = ScanDocument {
        dataset: Some(block.words[0].clone()),
        condition: "true".to_owned(),
        select: vec![format!("{expression} as value")],
        ..ScanDocument::default()
    };
    let (prepared, answer) = run(store, &document, block.as_of)?;
    let column = prepared.plan.points[0].select[0];
    let symbol = &block.words[1];
    let row = answer.rows.iter().find(|r| r.row.symbol == *symbol).ok_or("no such symbol")?;
    let value = *row.row.values.first().ok_or("the symbol has no bar")?;
    let right = match prepared.plan.nodes()[column.index()].kind {
        graph::Kind::Bool if value == 1.0 => written == "true",
        graph::Kind::Bool if value == 0.0 => written == "false",
        _ => is_written(value, written),
    };
    if right { Ok(()) } else { Err(format!("it is {value}")) }
}

fn found(store: &Store, block: &Block, condition: &str, written: &str) -> Result<(), String> {
    let (dataset, condition) = (Some(block.words[0].clone()), condition.to_owned());
    let (_, answer) = run(store, &ScanDocument { dataset, condition, ..ScanDocument::default() }, block.as_of)?;
    let found = matches(&answer, 0);
    if found == written { Ok(()) } else { Err(format!("it finds {found}")) }
}

/// Compares a result with what is written, where an error is a result too.
fn outcome(written: &str, result: Result<(), String>) -> Result<(), String> {
    match (written.strip_prefix("error: "), result) {
        (None, result) => result,
        (Some(wanted), Err(message)) if message.starts_with(wanted) => Ok(()),
        (Some(_), Err(message)) => Err(format!("the error is: {message}")),
        (Some(_), Ok(())) => Err("it is not an error".to_owned()),
    }
}

/// `close = 10.5, up = 1`
fn columns(answer: &Answer, symbol: &str, written: &str) -> Result<(), String> {
    let row = answer.rows.iter().find(|r| r.row.symbol == symbol).ok_or_else(|| format!("there is no {symbol}"))?;
    // Column by column, because a heading may contain commas.
    let mut rest = written;
    for (at, (heading, value)) in answer.select.iter().zip(&row.row.values).enumerate() {
        let shown = rest.strip_prefix(heading.as_str()).and_then(|rest| rest.strip_prefix(" = "));
        let shown = shown.ok_or_else(|| format!("{heading} is {value}"))?;
        let (number, more) = shown.split_once(", ").unwrap_or((shown, ""));
        let text = answer.kinds.get(at).and_then(|kind| kind.text(*value));
        if text != Some(number) && !is_written(*value, number) {
            return Err(format!("{heading} is {}", text.map_or_else(|| value.to_string(), str::to_owned)));
        }
        rest = more;
    }
    match rest.is_empty() && !row.row.values.is_empty() {
        true => Ok(()),
        false => Err(format!("the columns are {:?}", answer.select)),
    }
}

/// One line `# =>` of a document.
fn check_line_of_document(answer: &Answer, written: &str) -> Result<(), String> {
    if let Some((before, after)) = written.split_once(": ") {
        if !before.contains('=') {
            return columns(answer, before, after);
        }
        let settings = |point: &Vec<(String, Setting)>| {
            point.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
        };
        let point = answer.points.iter().position(|p| settings(p) == before).ok_or("there is no such point")?;
        let found = matches(answer, point as u32);
        return if found == after { Ok(()) } else { Err(format!("{before} finds {found}")) };
    }
    let found = if written.starts_with(|c: char| c.is_ascii_digit()) {
        let of = |status: Status| {
            let count = answer.counts()[status as usize];
            (count > 0).then(|| format!("{count} {}", status.name()))
        };
        let order =
            [Status::Matched, Status::NotMatched, Status::Unknown, Status::Outside, Status::Stale, Status::Failed];
        order.into_iter().filter_map(of).collect::<Vec<_>>().join(", ")
    } else {
        matches(answer, 0)
    };
    if found == written { Ok(()) } else { Err(format!("it is {found}")) }
}

/// The mistakes in a block, by line.
fn check(store: &Store, block: &Block) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut note = |line: &str, result: Result<(), String>| {
        wrong.extend(result.err().map(|why| format!("{}: {line}: {why}", block.place)));
    };
    if block.kind == Kind::Expressions {
        for line in &block.lines {
            let Some((expression, written)) = line.split_once("# => ") else {
                note(line, Err("it has no '# =>'".to_owned()));
                continue;
            };
            let (expression, written) = (expression.trim(), written.trim());
            let result = match block.words.len() {
                1 => found(store, block, expression, written),
                2 => value(store, block, expression, written),
                _ => Err("a block names a dataset, and perhaps a symbol".to_owned()),
            };
            note(line, outcome(written, result));
        }
        return wrong;
    }
    let answer = ScanDocument::from_toml(&block.lines.join("\n"))
        .map_err(|mistake| mistake.message)
        .and_then(|document| run(store, &document, block.as_of));
    let lines: Vec<&str> = block.lines.iter().filter_map(|line| line.strip_prefix("# => ")).collect();
    if lines.is_empty() {
        note("the document", Err("it has no '# =>'".to_owned()));
    }
    for line in lines {
        let result = answer.as_ref().map_err(Clone::clone).and_then(|(_, answer)| check_line_of_document(answer, line));
        note(line, outcome(line, result));
    }
    wrong
}

#[test]
fn every_example_gives_the_result_that_it_shows() {
    let (tables, blocks): (Vec<Block>, Vec<Block>) = blocks().into_iter().partition(|b| b.kind == Kind::Table);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let store = datasets(&tables, folder.path());
    let examples: usize = blocks.iter().map(|b| if b.kind == Kind::Document { 1 } else { b.lines.len() }).sum();
    assert!(blocks.len() > 30 && examples > 200, "{} blocks, {examples} examples", blocks.len());
    let wrong: Vec<String> = blocks.iter().flat_map(|block| check(&store, block)).collect();
    assert!(wrong.is_empty(), "{} of {examples} examples:\n{}", wrong.len(), wrong.join("\n"));
}

/// The code of all examples that are not errors, without their results.
fn code() -> String {
    let keeps = |line: &&String| !line.starts_with("# =>") && !line.contains("# => error:");
    let lines: Vec<String> = blocks()
        .iter()
        .filter(|block| block.kind != Kind::Table)
        .flat_map(|block| block.lines.iter().filter(keeps).map(|l| l.split("# =>").next().unwrap_or("").to_owned()))
        .collect();
    lines.join("\n")
}

#[test]
fn every_function_of_the_language_has_an_example() {
    let code = code();
    let own = functions().filter(|f| f.reference == "scan language");
    let own = own.map(|f| (f.name, if f.is_bare { f.name.to_owned() } else { format!("{}(", f.name) }));
    let forms = FORMS.iter().map(|f| (f.name, format!("{}(", f.name)));
    let missing: Vec<&str> = own
        .chain(forms)
        .filter(|(_, written)| {
            let called = |(at, _)| !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            !code.match_indices(written).any(called)
        })
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "without an example on the pages of the language: {missing:?}");
    let signs = [
        " + ",
        " - ",
        " * ",
        " / ",
        " % ",
        "-7",
        "+close",
        " < ",
        " <= ",
        " > ",
        " >= ",
        " == ",
        " != ",
        " and ",
        " or ",
        "not ",
        " in (",
        "[1]",
        ".line",
        "'",
        "1_000",
        "2e6",
        " asc",
        " desc",
        " as ",
        "by=",
        "where=",
        "asof=",
        "partial=true",
        "length=",
        "matype=",
        "hl2",
        "hlc3",
        "ohlc4",
        "true",
        "@",
    ];
    let missing: Vec<&&str> = signs.iter().filter(|sign| !code.contains(**sign)).collect();
    assert!(missing.is_empty(), "without an example on the pages of the language: {missing:?}");
}

#[test]
fn every_key_of_the_document_has_an_example() {
    let text = |text: &str| Some(text.to_owned());
    // Every field by name, so that a new one does not compile until it is listed here.
    let whole = ScanDocument {
        name: text("a"),
        dataset: text("a"),
        timeframe: text("a"),
        adjust: text("a"),
        precision: text("a"),
        forming: true,
        max_age: text("5m"),
        history: Some(History { bars: 1, origin: true }),
        universe: text("a"),
        condition: "a".to_owned(),
        rank: text("a"),
        limit: Some(1),
        select: vec!["a".to_owned()],
        lets: BTreeMap::from([("a".to_owned(), "a".to_owned())]),
        defs: BTreeMap::from([("f(a)".to_owned(), "a".to_owned())]),
        include: vec!["a".to_owned()],
        scans: vec![MemberScan { name: "a".to_owned(), condition: "a".to_owned(), ..MemberScan::default() }],
        sweep: BTreeMap::from([("b".to_owned(), SweepValues::List(vec![1.0.into()]))]),
        sweep_where: text("a"),
        best: Some(Best { by: "a".to_owned(), keep: 1 }),
    };
    let json: serde_json::Value = serde_json::from_str(&whole.to_json()).expect("JSON");
    let keys: Vec<String> = json.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(keys.len(), 20);
    let documents: Vec<Block> = blocks().into_iter().filter(|b| b.kind == Kind::Document).collect();
    let used = |key: &str| {
        let mut lines = documents.iter().flat_map(|b| &b.lines);
        lines.any(|l| {
            *l == format!("[{key}]")
                || *l == format!("[[{key}]]")
                || l.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
        })
    };
    let missing: Vec<&String> = keys.iter().filter(|key| !used(key)).collect();
    assert!(missing.is_empty(), "no document on the pages of the language uses {missing:?}");
    let all: String = documents.iter().flat_map(|b| b.lines.clone()).collect::<Vec<_>>().join("\n");
    for inner in ["bars = ", "origin = ", "from = ", "to = ", "step = ", "by = ", "keep = ", " = ["] {
        assert!(all.contains(inner), "no document uses '{inner}'");
    }
}
