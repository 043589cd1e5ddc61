//! The finished plan: a graph and what of it is wanted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::ast::Expr;
use crate::diagnostic::Diagnostic;
use crate::document::ScanDocument;
use crate::graph::{Graph, Kind, Node, NodeId, Op};
use crate::limits::{DIAGNOSTICS_MAX, LETS_MAX, RANK_KEYS_MAX, SELECT_COLUMNS_MAX};
use crate::parse::{RESERVED, Suffix, parse_expression, parse_output, parse_rank};
use crate::resolve::{Clause, Resolver, Stop};

/// What a plan may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Numeric columns in lower case, time excluded, in the dataset's order.
    pub columns: Vec<String>,
    /// As the dataset states it, e.g. `1d`; `None` for a bare CSV.
    pub timeframe: Option<String>,
}

/// Which end of a rank key comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// One key of `rank`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankKey {
    /// What is compared.
    pub node: NodeId,
    /// Which end comes first. NA always comes last.
    pub direction: Direction,
}

/// A named output column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Heading: the text after `as`, else the expression as written.
    pub name: String,
    /// Its value.
    pub node: NodeId,
}

/// A compiled scan (or, from [`compile_expressions`], a bare list of outputs).
#[derive(Debug, Clone)]
pub struct Plan {
    /// Dataset columns the plan reads; `Column` nodes index into this. Load exactly these.
    pub columns: Vec<String>,
    /// Population condition; all symbols when `None`.
    pub universe: Option<NodeId>,
    /// What is looked for; `None` only in plans from [`compile_expressions`].
    pub condition: Option<NodeId>,
    /// Sort keys in order.
    pub rank: Vec<RankKey>,
    /// Rows kept after sorting.
    pub limit: Option<u32>,
    /// Values given for each match.
    pub select: Vec<Output>,
    graph: Graph,
}

impl Plan {
    /// The nodes, inputs before users.
    pub fn nodes(&self) -> &[Node] {
        self.graph.nodes()
    }

    /// Every node that is wanted: universe, condition, rank keys, select columns.
    pub fn outputs(&self) -> impl Iterator<Item = NodeId> + '_ {
        let select = self.select.iter().map(|o| o.node);
        self.universe.into_iter().chain(self.condition).chain(self.rank.iter().map(|k| k.node)).chain(select)
    }

    /// The canonical form: every node by number, then what is wanted. Names, spacing and the order of lets are gone.
    fn canonical(&self) -> String {
        let mut text = String::from("trawl plan 1\n");
        for node in self.nodes() {
            let op = match node.op {
                Op::Column(i) => format!("column({})", self.columns[usize::from(i)]),
                op => op.canonical(),
            };
            let inputs: Vec<String> = node.inputs.iter().map(|i| i.0.to_string()).collect();
            let _ = writeln!(text, "{op} {}", inputs.join(" "));
        }
        let show = |id: Option<NodeId>| id.map_or("-".to_owned(), |id| id.0.to_string());
        let _ = writeln!(text, "universe {}\nwhere {}", show(self.universe), show(self.condition));
        for key in &self.rank {
            let _ = writeln!(text, "rank {} {:?}", key.node.0, key.direction);
        }
        let _ = writeln!(text, "limit {:?}", self.limit);
        for output in &self.select {
            let _ = writeln!(text, "select {} {:?}", output.node.0, output.name);
        }
        text
    }

    /// SHA-256 of the canonical form, 64 hex digits: equal exactly when the same is computed under the same headings.
    pub fn fingerprint(&self) -> String {
        Sha256::digest(self.canonical().as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Bars before the first bar at which every wanted output can be defined.
    pub fn look_back(&self) -> usize {
        let look_backs = self.graph.look_backs();
        self.outputs().map(|id| look_backs[id.index()]).max().unwrap_or(0)
    }

    /// Bars before the first bar at which one node can be defined.
    pub fn look_back_of(&self, id: NodeId) -> usize {
        self.graph.look_backs()[id.index()]
    }

    /// Estimated nanoseconds of one core per symbol and bar, for the cost model.
    pub fn cost_ns_per_bar(&self) -> f64 {
        self.nodes().iter().map(|n| n.op.cost_ns()).sum()
    }

    /// The text that `--explain` prints: outputs, graph with shared parts, look-back and cost of each node.
    pub fn explain(&self) -> String {
        let look_backs = self.graph.look_backs();
        let mut users = vec![0usize; self.nodes().len()];
        for input in self.nodes().iter().flat_map(|n| &n.inputs) {
            users[input.index()] += 1;
        }
        for output in self.outputs() {
            users[output.index()] += 1;
        }
        let mut text = format!("plan {}\n", self.fingerprint());
        let _ = writeln!(text, "columns read: {}", self.columns.join(", "));
        let _ = writeln!(
            text,
            "look-back: {} bars; cost: {:.1} ns per symbol and bar\n",
            self.look_back(),
            self.cost_ns_per_bar()
        );
        let _ = writeln!(text, "{:>5}  {:<34} {:<22} {:>9} {:>7}  uses", "node", "step", "of", "look-back", "ns/bar");
        for (i, node) in self.nodes().iter().enumerate() {
            let step = match node.op {
                Op::Column(c) => self.columns[usize::from(c)].clone(),
                op => op.canonical(),
            };
            let inputs: Vec<String> = node.inputs.iter().map(|i| format!("%{}", i.0)).collect();
            let shared = if users[i] > 1 { format!("{} (computed once)", users[i]) } else { users[i].to_string() };
            let _ = writeln!(
                text,
                "{:>5}  {:<34} {:<22} {:>9} {:>7.1}  {shared}",
                format!("%{i}"),
                step,
                inputs.join(" "),
                look_backs[i],
                node.op.cost_ns()
            );
        }
        text.push('\n');
        if let Some(universe) = self.universe {
            let _ = writeln!(text, "universe  %{}", universe.0);
        }
        if let Some(condition) = self.condition {
            let _ = writeln!(text, "where     %{}", condition.0);
        }
        for key in &self.rank {
            let _ = writeln!(
                text,
                "rank      %{} {}",
                key.node.0,
                if key.direction == Direction::Ascending { "asc" } else { "desc" }
            );
        }
        if let Some(limit) = self.limit {
            let _ = writeln!(text, "limit     {limit}");
        }
        for output in &self.select {
            let _ = writeln!(text, "select    %{} as {}", output.node.0, output.name);
        }
        text
    }
}

/// Collects the mistakes of all clauses.
struct Compiler<'a> {
    resolver: Resolver<'a>,
    mistakes: Vec<Diagnostic>,
}

impl Compiler<'_> {
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
        let result = self.resolver.typed(Clause { name, text }, &expr, Kind::Bool, &format!("'{name}'"));
        self.keep(result)
    }

    fn rank(&mut self, text: &str) -> Vec<RankKey> {
        let Some(keys) = self.parsed(parse_rank("rank", text)) else {
            return Vec::new();
        };
        let clause = Clause { name: "rank", text };
        if keys.len() > RANK_KEYS_MAX {
            let stop = clause.mistake(
                format!("rank has {} keys; at most {RANK_KEYS_MAX} are taken", keys.len()),
                &(0..text.len()),
                "too many",
                None,
            );
            self.keep::<()>(Err(stop));
            return Vec::new();
        }
        let mut out = Vec::with_capacity(keys.len());
        for (expr, suffix) in &keys {
            let result = self.resolver.typed(clause, expr, Kind::Num, "a rank key");
            let direction = if *suffix == Suffix::Ascending { Direction::Ascending } else { Direction::Descending };
            out.extend(self.keep(result).map(|node| RankKey { node, direction }));
        }
        out
    }

    fn output(&mut self, clause: &str, text: &str, taken: &[Output]) -> Option<Output> {
        let (expr, suffix) = self.parsed(parse_output(clause, text))?;
        let place = Clause { name: clause, text };
        let result = self.resolver.series(place, &expr);
        let node = self.keep(result)?;
        let name = match suffix {
            Suffix::As(name) => name,
            _ => text.trim().to_owned(),
        };
        if taken.iter().any(|o| o.name == name) {
            let help = Some("give one of them another name: EXPR as NAME".to_owned());
            let stop = place.mistake(format!("two columns are named '{name}'"), &expr.span, "the second one", help);
            return self.keep(Err(stop));
        }
        Some(Output { name, node })
    }

    fn mistake_in(&mut self, clause: &str, text: &str, message: String, help: Option<String>) {
        let stop = Clause { name: clause, text }.mistake(message, &(0..text.len()), "here", help);
        self.keep::<()>(Err(stop));
    }

    fn finish(mut self, plan: impl FnOnce(Graph, Vec<String>) -> Plan) -> Result<Plan, Vec<Diagnostic>> {
        let mut mistakes = std::mem::take(&mut self.resolver.diagnostics);
        mistakes.append(&mut self.mistakes);
        if mistakes.is_empty() {
            return Ok(plan(self.resolver.graph, self.resolver.columns).pruned());
        }
        mistakes.truncate(DIAGNOSTICS_MAX);
        Err(mistakes)
    }
}

impl Plan {
    /// Drops what no output needs and brings nodes and columns into canonical order.
    fn pruned(mut self) -> Self {
        let roots: Vec<NodeId> = self.outputs().collect();
        let (graph, roots) = self.graph.prune(&roots);
        let mut roots = roots.into_iter();
        let mut take = |id: &mut NodeId| {
            if let Some(root) = roots.next() {
                *id = root;
            }
        };
        self.universe.iter_mut().for_each(&mut take);
        self.condition.iter_mut().for_each(&mut take);
        self.rank.iter_mut().for_each(|k| take(&mut k.node));
        self.select.iter_mut().for_each(|o| take(&mut o.node));
        let mut columns: Vec<String> = Vec::new();
        let graph = graph.map_columns(|i| {
            let name = &self.columns[usize::from(i)];
            let at = columns.iter().position(|c| c == name).unwrap_or_else(|| {
                columns.push(name.clone());
                columns.len() - 1
            });
            at as u16
        });
        self.columns = columns;
        self.graph = graph;
        self
    }
}

/// Compiles a scan.
///
/// # Errors
/// Every mistake found: those in lets first, then in the order of the clauses.
pub fn compile_scan(document: &ScanDocument, schema: &Schema) -> Result<Plan, Vec<Diagnostic>> {
    let mut compiler = Compiler { resolver: Resolver::new(&schema.columns, &document.lets), mistakes: Vec::new() };
    check_lets(&mut compiler, document, schema);
    if let (Some(wanted), Some(has)) = (&document.timeframe, &schema.timeframe)
        && wanted != has
    {
        let help = Some(format!("leave timeframe out or write '{has}'"));
        compiler.mistake_in("timeframe", wanted, format!("this dataset holds {has} bars, not {wanted}"), help);
    }
    let universe = document.universe.as_deref().and_then(|text| compiler.condition("universe", text));
    let condition = compiler.condition("where", &document.condition);
    let rank = document.rank.as_deref().map_or_else(Vec::new, |text| compiler.rank(text));
    let mut select: Vec<Output> = Vec::new();
    if document.select.len() > SELECT_COLUMNS_MAX {
        let message = format!("select has {} columns; at most {SELECT_COLUMNS_MAX} are taken", document.select.len());
        compiler.mistake_in("select", "", message, None);
    } else if document.select.is_empty() {
        select.extend(compiler.resolver.column("close").map(|node| Output { name: "close".to_owned(), node }));
    }
    for (i, text) in document.select.iter().enumerate().take(SELECT_COLUMNS_MAX) {
        let output = compiler.output(&format!("select[{}]", i + 1), text, &select);
        select.extend(output);
    }
    for name in document.lets.keys().take(LETS_MAX) {
        compiler.resolver.check_let(name);
    }
    let limit = document.limit;
    compiler.finish(|graph, columns| Plan { columns, universe, condition, rank, limit, select, graph })
}

fn check_lets(compiler: &mut Compiler<'_>, document: &ScanDocument, schema: &Schema) {
    if document.lets.len() > LETS_MAX {
        let message = format!("{} lets; at most {LETS_MAX} are taken", document.lets.len());
        compiler.mistake_in("let", "", message, None);
    }
    for name in document.lets.keys().take(LETS_MAX) {
        let legal = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let derived = crate::catalogue::DERIVED.iter().any(|d| d.0 == name);
        let clash = if !legal || RESERVED.contains(&name.as_str()) {
            Some(format!("'{name}' cannot be a name"))
        } else if schema.columns.contains(name) || derived {
            Some(format!("'{name}' is a column already"))
        } else {
            None
        };
        if let Some(message) = clash {
            let help = Some("names are letters, digits and '_', and differ from columns and reserved words".to_owned());
            compiler.mistake_in("let", name, message, help);
        }
    }
}

/// Compiles bare expressions, each `expr [as name]`, for `trawl compute`; `clause` names them in messages (`--expr`).
///
/// # Errors
/// Every mistake found.
pub fn compile_expressions(items: &[String], clause: &str, schema: &Schema) -> Result<Plan, Vec<Diagnostic>> {
    let lets = BTreeMap::new();
    let mut compiler = Compiler { resolver: Resolver::new(&schema.columns, &lets), mistakes: Vec::new() };
    let mut select: Vec<Output> = Vec::new();
    if items.len() > SELECT_COLUMNS_MAX {
        compiler.mistake_in(
            clause,
            "",
            format!("{} expressions; at most {SELECT_COLUMNS_MAX} are taken", items.len()),
            None,
        );
    }
    for text in items.iter().take(SELECT_COLUMNS_MAX) {
        let output = compiler.output(clause, text, &select);
        select.extend(output);
    }
    compiler.finish(|graph, columns| Plan {
        columns,
        universe: None,
        condition: None,
        rank: Vec::new(),
        limit: None,
        select,
        graph,
    })
}

/// Parses one expression for tests and tools.
///
/// # Errors
/// The first mistake of the text.
pub fn parse(text: &str) -> Result<Expr, Box<Diagnostic>> {
    parse_expression("expression", text)
}
