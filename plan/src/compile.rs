//! From the clauses of a document to a plan: every clause is parsed and resolved, every mistake gathered.

use crate::ast::Expr;
use crate::catalogue;
use crate::deep::{levels, with_room};
use crate::definitions::definitions;
use crate::diagnostic::Diagnostic;
use crate::document::{ANSWER_COLUMNS, ANSWER_TIME, ScanDocument};
use crate::edge_flags::Edges;
use crate::exact::Facts;
use crate::frame::FrameId;
use crate::graph::{Kind, NodeId, Op};
use crate::limits::{
    DEFINITIONS_MAX, DIAGNOSTICS_MAX, LETS_MAX, LOOK_BACK_MAX, PERIOD_MAX, RANK_KEYS_MAX, SELECT_COLUMNS_MAX,
    SWEEP_POINTS_MAX, SWEEP_VARIABLES_MAX,
};
use crate::parse::{RESERVED, Suffix, parse_expression, parse_output, parse_rank};
use crate::resolve::{Clause, Resolver, Scope, Stop};
use crate::scan_plan::{Plan, Point};
use crate::schema::Schema;
use crate::several::{self, SCAN_VARIABLE, member_documents};
use crate::sweep::{Best, Choice, Setting};
use trawl_terms::{Direction, Precision, Timeframe, suggest};

/// The clause whose keys may be texts and dates.
const RANK: &str = "rank";

/// Collects the mistakes of all clauses.
struct Compiler<'a> {
    resolver: Resolver<'a>,
    mistakes: Vec<Diagnostic>,
    /// Headings that the answer has beside those of `select`: its own columns and the sweep's variables.
    headings: Vec<&'a str>,
}

impl<'a> Compiler<'a> {
    fn keep<T>(&mut self, result: Result<T, Stop>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(stop) => {
                if let Stop::Mistake(diagnostic) = stop {
                    self.mistakes.push(*diagnostic);
                }
                None
            }
        }
    }

    fn parsed<T>(&mut self, result: Result<T, Box<Diagnostic>>) -> Option<T> {
        self.keep(result.map_err(Stop::Mistake))
    }

    fn condition(&mut self, name: &str, text: &str) -> Option<NodeId> {
        let expr = self.parsed(parse_expression(name, text))?;
        let clause = Clause { name, text };
        let typed = |r: &mut Resolver<'_>| r.typed(clause, &expr, Kind::Bool, &format!("'{name}'"));
        let result = self.resolver.at_home(Scope::OWN, typed);
        self.keep(result)
    }

    /// `EXPR [asc|desc]{, ...}`
    fn keys(&mut self, name: &str, text: &str) -> Vec<(NodeId, Direction)> {
        let Some(keys) = self.parsed(parse_rank(name, text)) else {
            return Vec::new();
        };
        let clause = Clause { name, text };
        if keys.len() > RANK_KEYS_MAX {
            let stop = clause.mistake(
                format!("{name} has {} keys; at most {RANK_KEYS_MAX} are taken", keys.len()),
                &(0..text.len()),
                "too many",
                None,
            );
            self.keep::<()>(Err(stop));
            return Vec::new();
        }
        let mut out = Vec::with_capacity(keys.len());
        for (expr, suffix) in &keys {
            let key = |r: &mut Resolver<'_>| match if name == RANK { r.text_or_date(clause, expr)? } else { None } {
                Some(node) => Ok(node),
                None => r.typed(clause, expr, Kind::Num, &format!("a key of '{name}'")),
            };
            let result = self.resolver.at_home(Scope::OWN, key);
            let direction = if *suffix == Suffix::Ascending { Direction::Ascending } else { Direction::Descending };
            out.extend(self.keep(result).map(|node| (node, direction)));
        }
        out
    }

    /// A column, or those of a named set.
    fn outputs(&mut self, clause: &str, text: &str, select: &mut Vec<(String, NodeId)>) {
        let set = catalogue::find_set(text.trim()).filter(|s| self.resolver.let_text(s.name).is_none());
        let Some(set) = set else {
            let output = self.output(clause, text, select);
            select.extend(output);
            return;
        };
        for (heading, expression) in set.columns() {
            let output = self.output(clause, &format!("{expression} as {heading}"), select);
            select.extend(output);
        }
        if select.len() > SELECT_COLUMNS_MAX {
            let message = format!("with {} more than {SELECT_COLUMNS_MAX} columns are selected", set.name);
            self.mistake_in(clause, text, message, None);
        }
    }

    fn output(&mut self, clause: &str, text: &str, taken: &[(String, NodeId)]) -> Option<(String, NodeId)> {
        let (expr, suffix) = self.parsed(parse_output(clause, text))?;
        let place = Clause { name: clause, text };
        let result = self.resolver.at_home(Scope::OWN, |r| r.column_of(place, &expr));
        let node = self.keep(result)?;
        let (name, span) = match suffix {
            Suffix::As(name, span) => (name, span),
            _ => (text.trim().to_owned(), expr.span.clone()),
        };
        if self.headings.contains(&name.as_str()) {
            let help = Some("give it another name: EXPR as NAME".to_owned());
            let stop = place.mistake(heading_taken(&name), &span, "taken", help);
            return self.keep(Err(stop));
        }
        if taken.iter().any(|o| o.0 == name) {
            let help = Some("give one of them another name: EXPR as NAME".to_owned());
            let stop = place.mistake(format!("two columns are named '{name}'"), &expr.span, "the second one", help);
            return self.keep(Err(stop));
        }
        Some((name, node))
    }

    fn mistake_in(&mut self, clause: &str, text: &str, message: String, help: Option<String>) {
        let stop = Clause { name: clause, text }.mistake(message, &(0..text.len()), "here", help);
        self.keep::<()>(Err(stop));
    }

    /// What the document wants at one point of its sweep.
    fn point(&mut self, document: &'a ScanDocument, settings: Vec<(String, Setting)>) -> Wanted {
        let universe = document.universe.as_deref().and_then(|text| {
            let universe = self.within_universe(text);
            // Cross-sections of the other clauses ask for it again.
            universe.inspect(|node| self.resolver.set_mask(*node))
        });
        let condition = self.condition("where", &document.condition);
        let mut rank = document.rank.as_deref().map_or_else(Vec::new, |text| self.keys(RANK, text));
        let mut select: Vec<(String, NodeId)> = Vec::new();
        if document.select.len() > SELECT_COLUMNS_MAX {
            let message =
                format!("select has {} columns; at most {SELECT_COLUMNS_MAX} are taken", document.select.len());
            self.mistake_in("select", &document.select[SELECT_COLUMNS_MAX], message, None);
        } else if document.select.is_empty() {
            let close = self.resolver.at_home(Scope::OWN, |r| r.column("close").ok_or(Stop::Reported));
            select.extend(close.ok().map(|node| ("close".to_owned(), node)));
        }
        for (i, text) in document.select.iter().enumerate().take(SELECT_COLUMNS_MAX) {
            self.outputs(&format!("select[{}]", i + 1), text, &mut select);
        }
        let mut best_direction = Direction::Descending;
        if let Some((node, direction)) = document.best.as_ref().and_then(|best| self.best(best, &mut select)) {
            best_direction = direction;
            // The best of all symbols come first when no order is asked for.
            if document.rank.is_none() {
                rank.push((node, direction));
            }
        }
        // What only a let without users would use changes nothing.
        let used = self.resolver.settings_used.clone();
        for name in document.lets.keys().take(LETS_MAX) {
            self.resolver.check_let(name);
        }
        self.resolver.settings_used = used;
        let facts = Facts::of(&self.resolver);
        let mut edges = Edges::new(&self.resolver.cross_arguments, &self.resolver.decisive, &facts);
        let graph = &mut self.resolver.graph;
        let flags: Vec<NodeId> = universe.iter().chain(&condition).filter_map(|id| edges.of(graph, *id)).collect();
        let edge = flags.into_iter().reduce(|a, b| graph.add(Op::Or, &[a, b], Kind::Bool));
        let (headings, select) = select.into_iter().unzip();
        let (rank, directions) = rank.into_iter().unzip();
        Wanted {
            point: Point { settings, universe, condition, edge, rank, select },
            headings,
            directions,
            best_direction,
        }
    }

    /// Whether the scan is done at the present point of the sweep.
    fn is_wanted(&mut self, document: &'a ScanDocument) -> bool {
        let Some(text) = document.sweep_where.as_deref() else { return true };
        let help = || Some("compare the sweep's variables, such as fast < slow".to_owned());
        if document.sweep.is_empty() {
            let message = "'sweep_where' chooses among the combinations of a sweep, and there is none".to_owned();
            self.mistake_in("sweep_where", text, message, help());
            return false;
        }
        // A variable that only this uses would still repeat the scan.
        let used = self.resolver.settings_used.clone();
        let holds = self.condition("sweep_where", text);
        self.resolver.settings_used = used;
        match holds.map(|node| self.resolver.graph.constant(node)) {
            Some(Some(value)) => value == 1.0,
            Some(None) => {
                let message = "this depends on bars, and one choice is made for all of them".to_owned();
                self.mistake_in("sweep_where", text, message, help());
                false
            }
            None => false,
        }
    }

    /// What each of several scans wants. A mistake's clause begins with the scan's name.
    fn several(&mut self, document: &ScanDocument, members: &'a [ScanDocument], schema: &Schema) -> Vec<Wanted> {
        if let Some((message, help)) = several::mistake(document) {
            self.mistake_in("scan", &document.scans[0].name, message, Some(help.to_owned()));
            return Vec::new();
        }
        let mut wanted = Vec::new();
        for (scan, member) in document.scans.iter().zip(members) {
            let known = (self.mistakes.len(), self.resolver.diagnostics.len());
            self.resolver.begin_document(member);
            check_names(self, member, schema);
            check_definitions(self, member);
            let name = Setting::Text(scan.name.clone());
            wanted.push(self.point(member, vec![(SCAN_VARIABLE.to_owned(), name)]));
            let new = self.mistakes[known.0..].iter_mut().chain(&mut self.resolver.diagnostics[known.1..]);
            new.for_each(|mistake| mistake.clause = format!("{}: {}", scan.name, mistake.clause));
        }
        wanted
    }

    /// Adds what a sweep's combinations are compared by as the last column.
    fn best(&mut self, best: &Best, select: &mut Vec<(String, NodeId)>) -> Option<(NodeId, Direction)> {
        let keys = self.keys("best.by", &best.by);
        let [(node, direction)] = keys[..] else {
            if keys.len() > 1 {
                let message = format!("'best' compares by one value, and these are {}", keys.len());
                self.mistake_in("best.by", &best.by, message, Some("make one number of them".to_owned()));
            }
            return None;
        };
        if select.iter().any(|column| column.0 == BEST_HEADING) || self.headings.contains(&BEST_HEADING) {
            let message = format!("a column is named '{BEST_HEADING}', as the one of 'best' is");
            self.mistake_in("best.by", &best.by, message, Some("give the other another name: EXPR as NAME".to_owned()));
        }
        select.push((BEST_HEADING.to_owned(), node));
        Some((node, direction))
    }

    fn within_universe(&mut self, text: &str) -> Option<NodeId> {
        let expr = self.parsed(parse_expression("universe", text))?;
        let clause = Clause { name: "universe", text };
        let result = self.resolver.universe(clause, &expr);
        self.keep(result)
    }

    fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty() || !self.resolver.diagnostics.is_empty()
    }

    fn finish(
        mut self,
        points: Vec<Point>,
        headings: Vec<String>,
        rank: Vec<Direction>,
        limit: Option<u32>,
    ) -> Result<Plan, Vec<Diagnostic>> {
        if self.has_mistakes() {
            let mut mistakes = std::mem::take(&mut self.resolver.diagnostics);
            mistakes.append(&mut self.mistakes);
            mistakes.truncate(DIAGNOSTICS_MAX);
            return Err(mistakes);
        }
        Ok(Plan { rank, limit, ..self.resolver.into_plan(points, headings) })
    }
}

/// What one point wants, and under which names.
struct Wanted {
    point: Point,
    headings: Vec<String>,
    directions: Vec<Direction>,
    /// Of `best`.
    best_direction: Direction,
}

fn heading_taken(name: &str) -> String {
    format!("every answer has a column '{name}' already")
}

/// Heading of what a sweep's combinations are compared by.
const BEST_HEADING: &str = "best";

/// Compiles a scan.
///
/// # Errors
/// Every mistake found: those in lets first, then in the order of the clauses.
pub fn compile_scan(document: &ScanDocument, schema: &Schema) -> Result<Plan, Vec<Diagnostic>> {
    with_room(document.levels(), || compile_document(document, schema))
}

fn compile_document(document: &ScanDocument, schema: &Schema) -> Result<Plan, Vec<Diagnostic>> {
    let members = member_documents(document);
    let headings = ANSWER_COLUMNS
        .into_iter()
        .chain([ANSWER_TIME])
        .chain(document.sweep.keys().map(String::as_str))
        .chain((!members.is_empty()).then_some(SCAN_VARIABLE))
        .collect();
    let mut compiler = Compiler { resolver: Resolver::new(schema, document), mistakes: Vec::new(), headings };
    check_names(&mut compiler, document, schema);
    check_definitions(&mut compiler, document);
    if let Some(asked) = document.precision.as_deref().filter(|asked| Precision::named(asked).is_none()) {
        let names = Precision::ALL.map(Precision::name);
        let help = match suggest(asked, names) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("'{}' are there; '{}' is the default", names.join("' and '"), Precision::default().name()),
        };
        compiler.mistake_in("precision", asked, format!("'{asked}' is no precision known here"), Some(help));
    }
    if let (Some(wanted), Some(has)) = (&document.timeframe, schema.timeframe)
        && wanted.parse() != Ok(has)
        && compiler.resolver.home == FrameId::OWN
    {
        let help = Some(format!("leave timeframe out, or write '{has}' or one that consists of whole bars of {has}"));
        let message = match wanted.parse::<Timeframe>() {
            Ok(_) => format!("this dataset holds {has} bars, not {wanted}"),
            Err(error) => error.to_string(),
        };
        compiler.mistake_in("timeframe", wanted, message, help);
    }
    if let Some(history) = document.history
        && !(1..=PERIOD_MAX).contains(&history.bars)
    {
        let message = format!("a history of {} bars; from 1 to {PERIOD_MAX} are taken", history.bars);
        let help = Some("such as history = { bars = 500 }".to_owned());
        compiler.mistake_in("history", &history.bars.to_string(), message, help);
    }
    if let Some(asked) = &document.max_age
        && document.max_age_micros().is_none()
    {
        let message = format!("'{asked}' is no age: a number from 1 to 9999 and a unit of m, h, d or w");
        compiler.mistake_in("max_age", asked, message, Some("such as max_age = \"5m\" or \"3d\"".to_owned()));
    }
    if let Some(best) = &document.best {
        check_best(&mut compiler, document, best);
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    if !members.is_empty() {
        wanted = compiler.several(document, &members, schema);
    }
    let points = if members.is_empty() { sweep_points(&mut compiler, document) } else { Vec::new() };
    for settings in points {
        compiler.resolver.begin_point(settings.iter().cloned().collect());
        if !compiler.is_wanted(document) {
            if compiler.has_mistakes() {
                break;
            }
            continue;
        }
        let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        wanted.push(compiler.point(document, settings));
        // The other points have the same mistakes.
        if compiler.has_mistakes() {
            break;
        }
    }
    if let Some(text) = document.sweep_where.as_ref().filter(|_| wanted.is_empty() && !compiler.has_mistakes()) {
        let message = "no combination of the sweep fulfils this".to_owned();
        compiler.mistake_in("sweep_where", text, message, Some("take more values, or another condition".to_owned()));
    }
    check_used(&mut compiler, document);
    let (mut points, mut headings, mut rank) = (Vec::new(), Vec::new(), Vec::new());
    let mut direction = Direction::Descending;
    for one in wanted {
        points.push(one.point);
        (headings, rank, direction) = (one.headings, one.directions, one.best_direction);
    }
    let best = document.best.as_ref().map(|best| Choice { direction, keep: best.keep as usize });
    let plan = Plan { best, ..compiler.finish(points, headings, rank, document.limit)? };
    let look_back = plan.graph.look_backs().into_iter().max().unwrap_or(0);
    if look_back > LOOK_BACK_MAX {
        let message = format!("this scan looks back {look_back} bars; at most {LOOK_BACK_MAX} are taken");
        let mut mistake = Diagnostic { message, ..Diagnostic::whole("where", &document.condition) };
        mistake.help = Some("use shorter windows and offsets".to_owned());
        return Err(vec![mistake]);
    }
    Ok(plan)
}

fn check_definitions(compiler: &mut Compiler<'_>, document: &ScanDocument) {
    compiler.mistakes.extend(definitions(&document.defs).1);
    if document.defs.len() > DEFINITIONS_MAX {
        let message = format!("{} functions are defined; at most {DEFINITIONS_MAX} are taken", document.defs.len());
        compiler.mistake_in("def", &names(document.defs.keys()), message, None);
    }
    if let Some(path) = document.include.first() {
        let message = "'include' is for the client, which reads the files and sends what is in them".to_owned();
        compiler.mistake_in("include", path, message, Some("copy the lets and functions into the document".to_owned()));
    }
}

fn check_best(compiler: &mut Compiler<'_>, document: &ScanDocument, best: &Best) {
    if document.sweep.is_empty() {
        let help = Some("add one, such as sweep n=10:30:5, or leave 'best' out".to_owned());
        let message = "'best' chooses among the combinations of a sweep, and there is none".to_owned();
        compiler.mistake_in("best.by", &best.by, message, help);
    }
    if !(1..=SWEEP_POINTS_MAX).contains(&(best.keep as usize)) {
        let message = format!("{} combinations to keep; from 1 to {SWEEP_POINTS_MAX} are taken", best.keep);
        compiler.mistake_in("best.keep", &best.keep.to_string(), message, Some("such as keep = 3".to_owned()));
    }
}

/// Every combination of the sweep's values, the last variable fastest; one without settings when there is no sweep.
fn sweep_points<'a>(compiler: &mut Compiler<'_>, document: &'a ScanDocument) -> Vec<Vec<(&'a str, Setting)>> {
    let mut points: Vec<Vec<(&str, Setting)>> = vec![Vec::new()];
    if document.sweep.len() > SWEEP_VARIABLES_MAX {
        let message = format!("{} sweep variables; at most {SWEEP_VARIABLES_MAX} are taken", document.sweep.len());
        let help = Some("split it into several scans".to_owned());
        compiler.mistake_in("sweep", &names(document.sweep.keys()), message, help);
        return Vec::new();
    }
    for (name, values) in &document.sweep {
        let values = match values.values() {
            Ok(values) => values,
            Err(why) => {
                let help = Some("such as n = { from = 10, to = 30, step = 5 } or n = [10, 20, 30]".to_owned());
                compiler.mistake_in(&format!("sweep.{name}"), name, why, help);
                return Vec::new();
            }
        };
        if points.len().saturating_mul(values.len()) > SWEEP_POINTS_MAX {
            let message = format!("the sweep has more than {SWEEP_POINTS_MAX} combinations");
            compiler.mistake_in("sweep", name, message, Some("take larger steps or fewer variables".to_owned()));
            return Vec::new();
        }
        let extended = |point: &Vec<(&'a str, Setting)>| {
            let point = point.clone();
            values.iter().map(move |v| [point.clone(), vec![(name.as_str(), v.clone())]].concat()).collect::<Vec<_>>()
        };
        points = points.iter().flat_map(extended).collect();
    }
    points
}

/// A variable that no clause uses would make every other combination a repetition.
fn check_used(compiler: &mut Compiler<'_>, document: &ScanDocument) {
    if compiler.has_mistakes() {
        return;
    }
    let used = std::mem::take(&mut compiler.resolver.settings_used);
    for name in document.sweep.keys().filter(|name| !used.contains(name.as_str())) {
        let message = format!("no clause uses the sweep's variable '{name}'");
        let help = format!("leave it out, or use it in a clause, such as sma(close, {name})");
        compiler.mistake_in("sweep", name, message, Some(help));
    }
}

/// Names in a row, as far as they help.
fn names<'a>(of: impl Iterator<Item = &'a String>) -> String {
    of.take(SWEEP_VARIABLES_MAX + 1).map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Names of lets and sweep variables: legal, and not taken by anything else.
fn check_names(compiler: &mut Compiler<'_>, document: &ScanDocument, schema: &Schema) {
    if document.lets.len() > LETS_MAX {
        let message = format!("{} lets; at most {LETS_MAX} are taken", document.lets.len());
        compiler.mistake_in("let", &names(document.lets.keys().skip(LETS_MAX)), message, None);
    }
    let lets = document.lets.keys().take(LETS_MAX).map(|name| ("let", name));
    let sweep = document.sweep.keys().take(SWEEP_VARIABLES_MAX).map(|name| ("sweep", name));
    for (clause, name) in lets.chain(sweep) {
        let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let derived = crate::catalogue::DERIVED.iter().any(|d| d.0 == name);
        let clash = if !legal || RESERVED.contains(&name.as_str()) {
            Some(format!("'{name}' cannot be a name"))
        } else if schema.columns.contains(name) || derived {
            Some(format!("'{name}' is a column already"))
        } else if schema.labels.contains_key(name) {
            Some(format!("'{name}' is a label already"))
        } else if schema.attributes.contains_key(name) {
            Some(format!("'{name}' is an attribute already"))
        } else if clause == "sweep" && document.lets.contains_key(name) {
            Some(format!("'{name}' is a let already"))
        } else if clause == "sweep" && (name == ANSWER_TIME || ANSWER_COLUMNS.contains(&name.as_str())) {
            Some(heading_taken(name))
        } else {
            None
        };
        if let Some(message) = clash {
            let help = Some(
                "names are letters, digits and '_', and differ from columns, labels and reserved words".to_owned(),
            );
            compiler.mistake_in(clause, name, message, help);
        }
    }
}

/// Compiles bare expressions, each `expr [as name]`, for `trawl compute`; `clause` names them in messages (`--expr`).
///
/// # Errors
/// Every mistake found.
pub fn compile_expressions(items: &[String], clause: &str, schema: &Schema) -> Result<Plan, Vec<Diagnostic>> {
    with_room(levels(items.iter().map(String::as_str), 0), || compile_items(items, clause, schema))
}

fn compile_items(items: &[String], clause: &str, schema: &Schema) -> Result<Plan, Vec<Diagnostic>> {
    let document = ScanDocument::default();
    let mut compiler =
        Compiler { resolver: Resolver::new(schema, &document), mistakes: Vec::new(), headings: Vec::new() };
    compiler.resolver.whole = true;
    let mut select: Vec<(String, NodeId)> = Vec::new();
    if items.len() > SELECT_COLUMNS_MAX {
        let message = format!("{} expressions; at most {SELECT_COLUMNS_MAX} are taken", items.len());
        compiler.mistake_in(clause, &items[SELECT_COLUMNS_MAX], message, None);
    }
    for text in items.iter().take(SELECT_COLUMNS_MAX) {
        compiler.outputs(clause, text, &mut select);
    }
    let (headings, select) = select.into_iter().unzip();
    compiler.finish(vec![Point { select, ..Point::default() }], headings, Vec::new(), None)
}

/// Parses one expression for tests and tools.
///
/// # Errors
/// The first mistake of the text.
pub fn parse(text: &str) -> Result<Expr, Box<Diagnostic>> {
    with_room(levels([text], 0), || parse_expression("expression", text))
}
