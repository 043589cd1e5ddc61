//! The parts of a scan's conditions, each as a column of its own: why a symbol matches or not.
//!
//! The clauses' trees are walked a second time; every part that is a series resolves to the node it already has, so the
//! values are those that the scan computes. A part inside `ref`, `tf` or an offset is read as that reads it.

use crate::ast::{Arg, BinaryOp, Expr, ExprKind, Member, Span};
use crate::catalogue;
use crate::deep::with_room;
use crate::defined_call::Expanded;
use crate::diagnostic::Diagnostic;
use crate::document::ScanDocument;
use crate::frame::{BarSize, FrameId, Read};
use crate::graph::{Kind, NodeId, Op};
use crate::limits::WHY_PARTS_MAX;
use crate::needs::BarsNeeded;
use crate::parse::parse_expression;
use crate::resolve::{Clause, Resolved, Resolver, Scope, Value};
use crate::scan_plan::{Plan, Point};
use crate::schema::Schema;

/// How a part's value follows from the parts right below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Kleene and.
    And,
    /// Kleene or.
    Or,
    /// Kleene negation of the one part below it.
    Not,
    /// Any other way.
    Other,
}

/// One part of a condition.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionPart {
    /// The clause that this part is the whole of.
    pub clause: Option<&'static str>,
    /// As written; `name = text` for a let.
    pub text: String,
    /// Where and when it is looked at, when not on the symbol's own bar: `1 bar ago`, `SPY`, `1w`.
    pub seen: Vec<String>,
    /// How deep it is, 0 for a whole clause.
    pub depth: usize,
    /// A number or a condition.
    pub kind: Kind,
    /// How its value follows from the parts right below it.
    pub role: Role,
    /// Its value's place among the plan's columns.
    pub column: usize,
    /// Bars that it needs before the first value; the own ones are those on which it is looked at.
    pub needed: BarsNeeded,
    /// Bars since it was last true and last false, as places among the plan's columns: of conditions that a window
    /// looks at.
    pub since: Option<[usize; 2]>,
}

/// The parts of a scan in the order in which they are shown, and the plan that gives their values for every symbol that
/// has a bar.
#[derive(Debug, Clone)]
pub struct ConditionParts {
    /// Its columns are the parts' values; every symbol with a bar matches.
    pub plan: Plan,
    /// At most [`WHY_PARTS_MAX`], each before the parts below it.
    pub parts: Vec<ConditionPart>,
    /// The column that tells how many own bars there are.
    pub bars: usize,
    /// Whether there are more parts than are shown.
    pub cut: bool,
}

/// Where a part is looked at, from outside in.
#[derive(Debug, Clone)]
enum Look {
    Back(u32),
    /// Read from the scope that it is in.
    Through {
        how: Read,
        outside: Scope,
        name: String,
    },
}

/// Compiles the parts of `universe` and `where` at the first point of the sweep.
///
/// # Errors
/// Those of [`crate::compile_scan`].
pub fn compile_parts(document: &ScanDocument, schema: &Schema) -> Result<ConditionParts, Vec<Diagnostic>> {
    with_room(document.levels(), || parts_of(document, schema, Detail::Everything))
}

/// Compiles the terms of `where`, which is what `and` joins in it, also inside lets, and the parts right below each. Every term
/// has all of these, whatever the universe or another term shows.
///
/// # Errors
/// Those of [`crate::compile_scan`].
pub fn compile_terms(document: &ScanDocument, schema: &Schema) -> Result<ConditionParts, Vec<Diagnostic>> {
    with_room(document.levels(), || parts_of(document, schema, Detail::Terms))
}

/// What a walk shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// All parts of both clauses; what is shown already is left out.
    Everything,
    /// The terms of the condition, and what each directly looks at.
    Terms,
}

fn parts_of(document: &ScanDocument, schema: &Schema, detail: Detail) -> Result<ConditionParts, Vec<Diagnostic>> {
    let whole = crate::compile_scan(document, schema)?;
    let settings = whole.points.first().map_or(&[][..], |p| p.settings.as_slice());
    let mut resolver = Resolver::new(schema, document);
    resolver.begin_point(settings.iter().map(|(name, value)| (name.as_str(), value.clone())).collect());
    let mut walk = Walk {
        resolver,
        detail,
        parts: Vec::new(),
        joined: Vec::new(),
        nodes: Vec::new(),
        columns: Vec::new(),
        looks: Vec::new(),
        lets: Vec::new(),
    };
    if let Some(text) = &document.universe
        && let Ok(expr) = parse_expression("universe", text)
    {
        walk.universe(Clause { name: "universe", text }, &expr);
    }
    if let Ok(expr) = parse_expression("where", &document.condition) {
        walk.at_home(Scope::OWN, |walk| walk.part(Clause { name: "where", text: &document.condition }, &expr, 0));
    }
    Ok(walk.finish())
}

struct Walk<'a> {
    resolver: Resolver<'a>,
    detail: Detail,
    parts: Vec<ConditionPart>,
    /// Of each part whether it is its whole clause or a term of it: all parts above it are joined by `and`.
    joined: Vec<bool>,
    /// What each part is.
    nodes: Vec<NodeId>,
    /// What each column computes.
    columns: Vec<NodeId>,
    looks: Vec<Look>,
    /// Lets that are shown in full already: their names and where they were looked at.
    lets: Vec<(String, Vec<String>)>,
}

impl<'a> Walk<'a> {
    fn universe(&mut self, clause: Clause<'_>, expr: &Expr) {
        if self.detail == Detail::Everything {
            self.at_home(Scope::UNIVERSE, |walk| walk.part(clause, expr, 0));
        }
        if let Ok(mask) = self.resolver.universe(clause, expr) {
            self.resolver.set_mask(mask);
        }
    }

    /// Walks on the bars that the clauses mean.
    fn at_home(&mut self, scope: Scope, walk: impl FnOnce(&mut Self)) {
        let home = self.resolver.home;
        if home == FrameId::OWN {
            return self.in_scope(scope, walk);
        }
        let name = match &self.resolver.frames[home.index()].bars {
            BarSize::Higher { timeframe, .. } => timeframe.to_string(),
            BarSize::Base => String::new(),
        };
        self.looks.push(Look::Through { how: Read::Completed, outside: scope, name });
        self.in_scope(Scope { frame: home, ..scope }, walk);
        self.looks.pop();
    }

    fn in_scope(&mut self, scope: Scope, walk: impl FnOnce(&mut Self)) {
        let before = self.resolver.enter(scope);
        walk(self);
        self.resolver.enter(before);
    }

    fn seen(&self) -> Vec<String> {
        let name = |look: &Look| match look {
            Look::Back(1) => "1 bar ago".to_owned(),
            Look::Back(n) => format!("{n} bars ago"),
            Look::Through { name, .. } => name.clone(),
        };
        self.looks.iter().map(name).collect()
    }

    /// The column of a node that is where the walk is.
    fn column(&mut self, mut node: NodeId) -> usize {
        for look in self.looks.iter().rev() {
            let graph = &mut self.resolver.graph;
            node = match look {
                Look::Back(n) => {
                    let kind = graph.node(node).kind;
                    graph.add(Op::Lag(*n), &[node], kind)
                }
                Look::Through { how, outside, .. } => {
                    let before = graph.enter(outside.frame);
                    let read = graph.read(*how, node);
                    graph.enter(before);
                    read
                }
            };
        }
        self.columns.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.columns.push(node);
            self.columns.len() - 1
        })
    }

    /// Shows an expression and what is below it.
    fn part(&mut self, clause: Clause<'_>, expr: &Expr, depth: usize) {
        if self.parts.len() >= WHY_PARTS_MAX {
            return;
        }
        let node = match self.resolver.value(clause, expr) {
            Ok(Value::Series(node)) => node,
            // One of several outputs was not chosen, a string, a label: nothing with a value.
            _ => return,
        };
        // Constants add nothing to the text.
        if self.resolver.graph.node(node).frame == FrameId::ANY && depth > 0 {
            return;
        }
        let text = clause.text.get(expr.span.clone()).unwrap_or("").trim().to_owned();
        let kind = self.resolver.graph.node(node).kind;
        let column = self.column(node);
        // The bar's own values are listed once.
        let leaf = matches!(expr.kind, ExprKind::Name(_));
        let once = self.detail == Detail::Everything;
        if leaf && once && self.parts.iter().any(|p| p.column == column && p.text == text) {
            return;
        }
        let clause_name = match clause.name {
            _ if depth > 0 => None,
            "universe" => Some("universe"),
            _ => Some("where"),
        };
        let part = ConditionPart {
            clause: clause_name,
            text,
            seen: self.seen(),
            depth,
            kind,
            role: Role::Other,
            column,
            needed: BarsNeeded::default(),
            since: None,
        };
        let at = self.parts.len();
        let above = self.parts.iter().rposition(|above| above.depth < depth);
        let joined = above.is_none_or(|above| self.joined[above] && self.parts[above].role == Role::And);
        self.nodes.push(node);
        self.parts.push(part);
        self.joined.push(joined);
        match &expr.kind {
            _ if joined || self.detail == Detail::Everything => self.below(clause, expr, at),
            ExprKind::Name(name) => {
                self.title(name, at);
            }
            _ => {}
        }
    }

    /// What is below part `at`, which is `expr`.
    fn below(&mut self, clause: Clause<'_>, expr: &Expr, at: usize) {
        let depth = self.parts[at].depth + 1;
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::Text(_) | ExprKind::Truth(_) => {}
            ExprKind::In { of, values } => {
                // A label has no value of its own.
                if values.iter().any(|(member, _)| matches!(member, Member::Number(_))) {
                    self.part(clause, of, depth);
                }
            }
            ExprKind::Name(name) => self.expand_let(name, at),
            ExprKind::Negate(of) => self.part(clause, of, depth),
            ExprKind::Not(of) => {
                self.parts[at].role = Role::Not;
                self.part(clause, of, depth);
            }
            ExprKind::Binary { op, operands } => {
                self.parts[at].role = match op {
                    BinaryOp::And => Role::And,
                    BinaryOp::Or => Role::Or,
                    _ => Role::Other,
                };
                operands.iter().for_each(|operand| self.part(clause, operand, depth));
            }
            ExprKind::Chain { operands, .. } => operands.iter().for_each(|o| self.part(clause, o, depth)),
            ExprKind::Field { of, .. } => self.below(clause, of, at),
            ExprKind::Offset { of, bars } => {
                let bars = self.resolver.series(clause, bars).ok().and_then(|n| self.resolver.graph.constant(n));
                let bars = bars.unwrap_or(0.0) as u32;
                let look = (bars > 0).then_some(Look::Back(bars));
                let looks = self.looks.len();
                self.looks.extend(look);
                self.same(clause, of, at);
                self.looks.truncate(looks);
            }
            ExprKind::Call { name, args, .. } => match self.resolver.expand(clause, name, args, &expr.span) {
                Ok(Some(expanded)) => self.body(&expanded, at),
                _ => self.arguments(clause, name, args, &expr.span, at),
            },
            ExprKind::Argument(argument) => {
                let calls = self.resolver.enter_calls(argument.calls.clone());
                self.part(Clause { name: &argument.clause, text: &argument.text }, &argument.expr, depth);
                self.resolver.enter_calls(calls);
            }
        }
    }

    /// What is below `expr`, whose own value is that of part `at`.
    fn same(&mut self, clause: Clause<'_>, expr: &Expr, at: usize) {
        match &expr.kind {
            // A let has its text to show, a column nothing.
            ExprKind::Name(name) if self.resolver.let_text(name).is_some() => {
                self.part(clause, expr, self.parts[at].depth + 1);
            }
            _ => self.below(clause, expr, at),
        }
    }

    /// What is below a call of a defined function: the parts of its text.
    fn body(&mut self, expanded: &Expanded, at: usize) {
        let calls = self.resolver.enter_calls(expanded.calls());
        self.same(expanded.clause(), &expanded.body, at);
        self.resolver.enter_calls(calls);
    }

    /// A name that is a let: its text, which becomes part of the part's.
    fn title(&mut self, name: &str, at: usize) -> Option<String> {
        let text = self.resolver.let_text(name).map(str::to_owned)?;
        self.parts[at].text = format!("{name} = {}", text.trim());
        Some(text)
    }

    /// A name that is a let: what it means, the first time that it is met here.
    fn expand_let(&mut self, name: &str, at: usize) {
        let Some(text) = self.title(name, at) else { return };
        let shown = (name.to_owned(), self.parts[at].seen.clone());
        if self.detail == Detail::Everything && self.lets.contains(&shown) {
            return;
        }
        self.lets.push(shown);
        let clause = format!("let.{name}");
        if let Ok(expr) = parse_expression(&clause, &text) {
            self.same(Clause { name: &clause, text: &text }, &expr, at);
        }
    }

    fn arguments(&mut self, clause: Clause<'_>, name: &str, args: &[Arg], span: &Span, at: usize) {
        let depth = self.parts[at].depth + 1;
        let Some(form) = catalogue::find_form(name) else {
            let first = self.parts.len();
            args.iter().for_each(|arg| self.part(clause, &arg.value, depth));
            let watches = catalogue::find(name).is_some_and(|function| function.watches_condition);
            if watches && self.parts.len() > first {
                let _ = self.add_since(clause, args, first);
            }
            return;
        };
        match self.resolver.reading(clause, form, args, span) {
            Ok(Some(reading)) => {
                let outside = self.resolver.scope;
                self.looks.push(Look::Through { how: reading.how, outside, name: reading.name });
                self.in_scope(Scope { frame: reading.frame, ..outside }, |w| w.same(clause, reading.of, at));
                self.looks.pop();
            }
            // A cross-section: the symbol's own share of it.
            _ => args.iter().for_each(|arg| self.part(clause, &arg.value, depth)),
        }
    }

    /// For the condition of a window, shown as part `of`: when it was last true and last false.
    fn add_since(&mut self, clause: Clause<'_>, args: &[Arg], of: usize) -> Resolved<()> {
        let Some(condition) = args.iter().find(|a| a.name.as_ref().is_none_or(|n| n.0 == "c")) else { return Ok(()) };
        let node = self.resolver.series(clause, &condition.value)?;
        let graph = &mut self.resolver.graph;
        let opposite = graph.add(Op::Not, &[node], Kind::Bool);
        let [last_true, last_false] = [node, opposite].map(|c| graph.add(Op::Since, &[c], Kind::Num));
        self.parts[of].since = Some([self.column(last_true), self.column(last_false)]);
        Ok(())
    }

    fn finish(mut self) -> ConditionParts {
        let one = self.resolver.graph.num(1.0);
        let one = self.resolver.graph.add(Op::Lag(0), &[one], Kind::Num);
        let count = self.resolver.graph.add(Op::Cumulative, &[one], Kind::Num);
        let bars = self.column(count);
        let resolver = &self.resolver;
        let needed = resolver.graph.bars_needed(&resolver.frames, &resolver.crosses, &self.nodes);
        for (part, needed) in self.parts.iter_mut().zip(needed) {
            part.needed = needed;
        }
        let cut = self.parts.len() >= WHY_PARTS_MAX;
        let always = self.resolver.graph.truth(true);
        let headings = (1..=self.columns.len()).map(|i| i.to_string()).collect();
        let point = Point { condition: Some(always), select: self.columns, ..Point::default() };
        let plan = self.resolver.into_plan(vec![point], headings);
        ConditionParts { plan, parts: self.parts, bars, cut }
    }
}

/// Which parts are the reason that their clause is not true, given each part's value: of an `and` that is false those
/// that are false, of an `or` that is true those that are true (which matters below a `not`), of either that is NA those
/// that are NA, otherwise all; of anything else that is NA what is NA below it.
pub fn reasons(parts: &[ConditionPart], values: &[f64]) -> Vec<bool> {
    let mut marked = vec![false; parts.len()];
    // Parents stand before what is below them: a part hands its question down, or is the answer.
    let mut asked: Vec<bool> = parts.iter().zip(values).map(|(p, v)| p.depth == 0 && *v != 1.0).collect();
    for at in 0..parts.len() {
        if !asked[at] {
            continue;
        }
        let value = values[at];
        let decides = |i: &usize| match parts[at].role {
            _ if value.is_nan() => values[*i].is_nan(),
            Role::And if value == 0.0 => values[*i] == 0.0,
            Role::Or if value == 1.0 => values[*i] == 1.0,
            Role::And | Role::Or | Role::Not => true,
            Role::Other => false,
        };
        let handed: Vec<usize> = below(parts, at).into_iter().filter(decides).collect();
        marked[at] = handed.is_empty();
        for i in handed {
            asked[i] = true;
        }
    }
    marked
}

/// The parts right below part `at`.
fn below(parts: &[ConditionPart], at: usize) -> Vec<usize> {
    let depth = parts[at].depth;
    let inside = (at + 1..parts.len()).take_while(|i| parts[*i].depth > depth);
    inside.filter(|i| parts[*i].depth == depth + 1).collect()
}
