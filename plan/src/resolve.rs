//! Tree to graph: names become columns, lets and functions; types are checked; every part becomes nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::ast::{Argument, Calls, Expr, ExprKind, Span};
use crate::catalogue::{self, Function};
use crate::definitions::{Definition, definitions};
use crate::diagnostic::Diagnostic;
use crate::document::{History, ScanDocument};
use crate::foreign::{NAMESPACES, hint, qualified_hint};
use crate::frame::{BarSize, CrossSection, Frame, FrameId, LabelTest, Read, SYMBOL_LABEL, Subject};
use crate::graph::{Graph, Kind, NodeId, Op, Unary};
use crate::limits::{EXPRESSION_DEPTH_MAX, FRAMES_MAX, PLAN_NODES_MAX, SWEEP_NODES_MAX};
use crate::scan_plan::{Plan, Point};
use crate::schema::Schema;
use crate::sweep::Setting;
use trawl_terms::{AttributeKind, suggest};

/// What an expression means before it has to be one series.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Series(NodeId),
    /// A call with several outputs: one must be chosen.
    Outputs(&'static Function, Vec<NodeId>),
    Text(String),
    /// The name of a label.
    Label(String),
    /// The name of an attribute of dates, and its days since 1970-01-01.
    Date(String, NodeId),
}

/// Where an expression is resolved: the same text means other nodes elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Whose bars names and windows mean.
    pub frame: FrameId,
    /// Inside the universe, where cross-sections see every symbol.
    pub universe: bool,
}

impl Scope {
    pub const OWN: Self = Self { frame: FrameId::OWN, universe: false };
    pub const UNIVERSE: Self = Self { frame: FrameId::OWN, universe: true };
}

/// State of a named expression.
#[derive(Debug, Clone)]
pub(crate) enum Let {
    /// Being resolved: meeting it again is a cycle.
    Active,
    Done(Value),
    /// It has a mistake of its own, already reported.
    Broken,
}

/// Resolves the clauses of one plan into one graph.
pub(crate) struct Resolver<'a> {
    pub graph: Graph,
    /// Columns in the order of first use; `Column` nodes index into it.
    pub columns: Vec<String>,
    /// Tests in the order of first use; `Label` nodes index into it.
    pub labels: Vec<LabelTest>,
    /// Attributes in the order of first use; `Attribute` nodes index into it.
    pub attributes: Vec<String>,
    /// The first is [`Frame::OWN`].
    pub frames: Vec<Frame>,
    /// `Cross` nodes index into it.
    pub crosses: Vec<CrossSection>,
    /// What stands in a cross-section's parentheses, on the frame of the `Cross` node: for the symbol's own comparisons.
    pub cross_arguments: HashMap<NodeId, Vec<NodeId>>,
    /// Comparisons that the user wrote, and those by which indicators decide.
    pub decisive: HashSet<NodeId>,
    /// Whether prices and volumes are adjusted.
    pub adjusted: bool,
    /// Nodes of the points before this one.
    nodes_before: usize,
    /// Cross-sections of the points before this one.
    pub(crate) crosses_before: usize,
    /// Mistakes in lets, reported once however often the let is used.
    pub diagnostics: Vec<Diagnostic>,
    pub(crate) schema: &'a Schema,
    pub(crate) history: Option<History>,
    /// Microseconds (see [`Plan::max_age`]).
    max_age: Option<i64>,
    pub(crate) lets: &'a BTreeMap<String, String>,
    /// Functions of the document.
    pub(crate) definitions: BTreeMap<String, Definition>,
    /// Those whose text is being resolved.
    pub(crate) calls: Option<Arc<Calls>>,
    /// How often they were called.
    pub(crate) defined_calls: usize,
    /// Arguments of their calls by address and scope, and what they mean.
    pub(crate) arguments: HashMap<(usize, Scope), (Arc<Argument>, Value)>,
    /// Values of the sweep's variables.
    pub(crate) settings: BTreeMap<&'a str, Setting>,
    /// Those of them that some clause has named.
    pub(crate) settings_used: BTreeSet<&'a str>,
    pub(crate) states: HashMap<(&'a str, Scope), Let>,
    /// The universe on the own bars; `None` when the scan has none.
    pub(crate) mask: Option<NodeId>,
    /// Whether whole series are wanted and no scan.
    pub(crate) whole: bool,
    /// The function that needs most bars in a history, and how many.
    pub(crate) bars_needed: (&'static str, usize),
    pub(crate) scope: Scope,
    /// The bars that the clauses mean: the own ones, or higher bars built from them.
    pub(crate) home: FrameId,
    depth: usize,
    limit_reported: bool,
}

/// Why a resolution stopped.
pub(crate) enum Stop {
    /// A mistake, to be reported.
    Mistake(Box<Diagnostic>),
    /// It uses a let whose mistake is reported already.
    Reported,
}

pub(crate) type Resolved<T> = Result<T, Stop>;

/// The clause that is being resolved, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Clause<'t> {
    pub name: &'t str,
    pub text: &'t str,
}

impl Clause<'_> {
    pub(crate) fn mistake(
        &self,
        message: impl Into<String>,
        span: &Span,
        label: impl Into<String>,
        help: Option<String>,
    ) -> Stop {
        Stop::Mistake(Box::new(Diagnostic {
            message: message.into(),
            clause: self.name.to_owned(),
            text: self.text.to_owned(),
            span: span.clone(),
            label: label.into(),
            help,
        }))
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Num => "a number",
        Kind::Bool => "a condition",
    }
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(schema: &'a Schema, document: &'a ScanDocument) -> Self {
        let own = higher_bars(schema, document).map(|bars| Frame { subject: Subject::Own, bars });
        Self {
            graph: Graph::default(),
            columns: Vec::new(),
            labels: Vec::new(),
            attributes: Vec::new(),
            home: FrameId(own.iter().len() as u16),
            frames: [Frame::OWN].into_iter().chain(own).collect(),
            crosses: Vec::new(),
            cross_arguments: HashMap::new(),
            decisive: HashSet::new(),
            adjusted: document.adjust.as_deref().is_some_and(|how| !how.trim().starts_with("none")),
            nodes_before: 0,
            crosses_before: 0,
            diagnostics: Vec::new(),
            schema,
            history: document.history,
            max_age: document.max_age_micros(),
            lets: &document.lets,
            definitions: definitions(&document.defs).0,
            calls: None,
            defined_calls: 0,
            arguments: HashMap::new(),
            settings: BTreeMap::new(),
            settings_used: BTreeSet::new(),
            states: HashMap::new(),
            mask: None,
            whole: false,
            bars_needed: ("", 0),
            scope: Scope::OWN,
            depth: 0,
            limit_reported: false,
        }
    }

    /// Begins with the next combination of the sweep's values: lets mean other nodes now.
    pub(crate) fn begin_point(&mut self, settings: BTreeMap<&'a str, Setting>) {
        self.settings = settings;
        self.nodes_before = self.graph.nodes().len();
        self.crosses_before = self.crosses.len();
        self.states.clear();
        self.arguments.clear();
        self.defined_calls = 0;
        self.mask = None;
    }

    /// Goes to another document: its lets and functions, at a point without settings.
    pub(crate) fn begin_document(&mut self, document: &'a ScanDocument) {
        self.lets = &document.lets;
        self.definitions = definitions(&document.defs).0;
        self.begin_point(BTreeMap::new());
    }

    /// Resolves something elsewhere and comes back.
    pub(crate) fn within<T>(&mut self, scope: Scope, resolve: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.enter(scope);
        let result = resolve(self);
        self.enter(before);
        result
    }

    /// Goes to another scope; gives the one before.
    pub(crate) fn enter(&mut self, scope: Scope) -> Scope {
        self.graph.enter(scope.frame);
        std::mem::replace(&mut self.scope, scope)
    }

    /// A plan of what was resolved.
    pub(crate) fn into_plan(self, points: Vec<Point>, headings: Vec<String>) -> Plan {
        let listed = self.labels.iter().filter(|test| test.value.is_none()).map(|test| &test.label);
        let values = |label: &String| (label.clone(), self.schema.labels.get(label).cloned().unwrap_or_default());
        let dates = self.schema.attributes.iter().filter(|(_, kind)| **kind == AttributeKind::Date);
        let plan = Plan {
            label_values: listed.map(values).collect(),
            dates: dates.map(|(name, _)| name.clone()).collect(),
            columns: self.columns,
            labels: self.labels,
            attributes: self.attributes,
            frames: self.frames,
            crosses: self.crosses,
            points,
            headings,
            rank: Vec::new(),
            limit: None,
            history: self.history,
            max_age: self.max_age,
            best: None,
            bars_needed: self.bars_needed.1,
            needed_by: self.bars_needed.0,
            graph: self.graph,
            stages: Vec::new(),
        };
        plan.finished()
    }

    /// The frame that names and windows mean now.
    pub(crate) fn frame(&self) -> &Frame {
        &self.frames[self.scope.frame.index()]
    }

    /// The id of a frame, known or new; `None` when there are too many.
    pub(crate) fn frame_id(&mut self, frame: Frame) -> Option<FrameId> {
        let at = match self.frames.iter().position(|f| *f == frame) {
            Some(at) => at,
            None if self.frames.len() < FRAMES_MAX => {
                self.frames.push(frame);
                self.frames.len() - 1
            }
            None => return None,
        };
        Some(FrameId(at as u16))
    }

    /// The universe on the own bars, where cross-sections see every symbol.
    pub(crate) fn universe(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<NodeId> {
        self.at_home(Scope::UNIVERSE, |r| r.typed(clause, expr, Kind::Bool, "'universe'"))
    }

    /// Resolves something on the bars that the clauses mean; it is read on the own ones, from the last bar that is complete.
    pub(crate) fn at_home(
        &mut self,
        scope: Scope,
        resolve: impl FnOnce(&mut Self) -> Resolved<NodeId>,
    ) -> Resolved<NodeId> {
        let home = self.home;
        let node = self.within(Scope { frame: home, ..scope }, |r| {
            let node = resolve(r)?;
            Ok(if home == FrameId::OWN { node } else { r.held(node) })
        })?;
        Ok(if home == FrameId::OWN { node } else { self.graph.read(Read::Completed, node) })
    }

    /// Makes a node the universe of the cross-sections that follow.
    pub(crate) fn set_mask(&mut self, universe: NodeId) {
        self.mask = Some(universe);
    }

    /// A node without inputs on the present frame.
    pub(crate) fn leaf(&mut self, op: Op, kind: Kind) -> NodeId {
        self.graph.leaf(op, kind)
    }

    /// An expression that must be one series of `kind`.
    pub(crate) fn typed(&mut self, clause: Clause<'_>, expr: &Expr, kind: Kind, expected: &str) -> Resolved<NodeId> {
        let node = self.series(clause, expr)?;
        self.check_kind(clause, node, &expr.span, kind, expected)
    }

    /// `node`, which `span` resolved to, if it is of `kind`.
    pub(crate) fn check_kind(
        &self,
        clause: Clause<'_>,
        node: NodeId,
        span: &Span,
        kind: Kind,
        expected: &str,
    ) -> Resolved<NodeId> {
        let actual = self.graph.node(node).kind;
        if actual == kind {
            return Ok(node);
        }
        let help = match kind {
            Kind::Bool => "compare it: for example '> 0'",
            Kind::Num => "a condition is no number; count(c, n) and since(c) make numbers of conditions",
        };
        Err(clause.mistake(
            format!("{expected} must be {}, and this is {}", kind_name(kind), kind_name(actual)),
            span,
            format!("{} here", kind_name(actual)),
            Some(help.to_owned()),
        ))
    }

    /// An expression that must be one series.
    pub(crate) fn series(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<NodeId> {
        let value = self.value(clause, expr)?;
        self.one_series(clause, expr, value)
    }

    /// The values of a column: a series, the place of a label's value, or a date.
    pub(crate) fn column_of(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<NodeId> {
        match self.text_or_date(clause, expr)? {
            Some(node) => Ok(node),
            None => self.series(clause, expr),
        }
    }

    /// The place of a label's value among all of its, or a date; `None` for what is neither.
    pub(crate) fn text_or_date(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<Option<NodeId>> {
        let ExprKind::Name(_) = expr.kind else { return Ok(None) };
        Ok(match self.value(clause, expr)? {
            Value::Label(name) if name == SYMBOL_LABEL => {
                let help = "answers have a column 'symbol', and equal ranks are ordered by it: leave it out".to_owned();
                return Err(clause.mistake("the symbol is no column of its own", &expr.span, "not needed", Some(help)));
            }
            Value::Label(name) => Some(self.label_number(&name)),
            Value::Date(_, node) => Some(node),
            _ => None,
        })
    }

    fn one_series(&mut self, clause: Clause<'_>, expr: &Expr, value: Value) -> Resolved<NodeId> {
        match value {
            Value::Series(node) => Ok(node),
            Value::Outputs(function, _) => Err(clause.mistake(
                format!("{} has {} outputs; one must be chosen", function.name, function.outputs.len()),
                &expr.span,
                "which one?",
                Some(format!(
                    "write {}{}.{}; outputs: {}",
                    function.name,
                    if function.is_bare { "" } else { "(...)" },
                    short_name(function, 0),
                    output_names(function)
                )),
            )),
            Value::Text(text) => Err(clause.mistake(
                format!("the string '{text}' is no series"),
                &expr.span,
                "a string here",
                Some("strings only fill arguments such as matype='ema' and stand beside labels".to_owned()),
            )),
            Value::Date(name, _) => Err(clause.mistake(
                format!("the attribute '{name}' is a date"),
                &expr.span,
                "a date here",
                Some(format!("write days_to({name}) or days_since({name})")),
            )),
            Value::Label(name) => Err(clause.mistake(
                format!("the label '{name}' is no series"),
                &expr.span,
                "a label here",
                Some(format!("compare it: {name} == '...', or group by it: by={name}")),
            )),
        }
    }

    pub(crate) fn value(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<Value> {
        self.depth += 1;
        let result = if self.depth > EXPRESSION_DEPTH_MAX {
            Err(clause.mistake(
                format!("with its lets written out this expression is nested more than {EXPRESSION_DEPTH_MAX} deep"),
                &expr.span,
                "too deep here",
                Some("split it into several scans".to_owned()),
            ))
        } else {
            self.value_inner(clause, expr)
        };
        self.depth -= 1;
        let nodes = self.graph.nodes().len();
        let mine = nodes - self.nodes_before;
        if result.is_ok() && (mine > PLAN_NODES_MAX || nodes > SWEEP_NODES_MAX) {
            let limit = if mine > PLAN_NODES_MAX { PLAN_NODES_MAX } else { SWEEP_NODES_MAX };
            let message = format!("this scan needs more than {limit} steps");
            return Err(self.past_limit(clause, message, &expr.span));
        }
        result
    }

    /// The first limit that a scan passes; what comes after it passes it too and says nothing new.
    pub(crate) fn past_limit(&mut self, clause: Clause<'_>, message: String, span: &Span) -> Stop {
        if std::mem::replace(&mut self.limit_reported, true) {
            return Stop::Reported;
        }
        clause.mistake(message, span, "passes the limit here", Some("split it into several scans".to_owned()))
    }

    fn value_inner(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<Value> {
        let node = match &expr.kind {
            ExprKind::Number(n) => self.graph.num(*n),
            ExprKind::Truth(t) => self.graph.truth(*t),
            ExprKind::Text(text) => return Ok(Value::Text(text.clone())),
            ExprKind::Name(name) => return self.name(clause, name, &expr.span),
            ExprKind::Call { name, name_span, args } => return self.call(clause, name, name_span, args, &expr.span),
            ExprKind::Field { of, field, field_span } => self.field(clause, of, field, field_span)?,
            ExprKind::Offset { of, bars } => self.offset(clause, of, bars)?,
            ExprKind::Negate(of) => {
                let x = self.typed(clause, of, Kind::Num, "what follows '-'")?;
                self.graph.add(Op::Unary(Unary::Negate), &[x], Kind::Num)
            }
            ExprKind::Not(of) => {
                let x = self.typed(clause, of, Kind::Bool, "what follows 'not'")?;
                self.graph.add(Op::Not, &[x], Kind::Bool)
            }
            ExprKind::Binary { op, operands } => self.binary(clause, *op, operands)?,
            ExprKind::Argument(argument) => return self.argument(argument),
            ExprKind::In { of, values } => self.membership(clause, of, values)?,
            ExprKind::Chain { operands, ops } => match self.label_comparison(clause, operands, ops)? {
                Some(node) => node,
                None => self.chain(clause, operands, ops)?,
            },
        };
        Ok(Value::Series(node))
    }

    /// The mistake about an unknown name, with help where that is another language's namespace: `ta` in `ta.tr`.
    fn of_namespace(&self, stop: Stop, of: &Expr, field: &str) -> Stop {
        match (stop, &of.kind) {
            (Stop::Mistake(mut mistake), ExprKind::Name(name)) if NAMESPACES.contains(&name.as_str()) => {
                mistake.help = Some(match self.schema.columns.iter().any(|column| column == field) {
                    true => format!("write {field}, without what is before it"),
                    false => qualified_hint(&[name], field),
                });
                Stop::Mistake(mistake)
            }
            (stop, _) => stop,
        }
    }

    fn field(&mut self, clause: Clause<'_>, of: &Expr, field: &str, span: &Span) -> Resolved<NodeId> {
        let called = match &of.kind {
            ExprKind::Call { name, .. } => catalogue::find(name),
            ExprKind::Name(name) if self.let_text(name).is_none() => catalogue::find(name).filter(|f| f.is_bare),
            _ => None,
        };
        let value = self.value(clause, of).map_err(|stop| self.of_namespace(stop, of, field))?;
        match (value, called) {
            (Value::Outputs(function, nodes), _) => {
                let named = |o: &catalogue::OutputDecl| o.name == field || o.aliases.contains(&field);
                let at = function.outputs.iter().position(named);
                at.map(|i| nodes[i]).ok_or_else(|| {
                    let names =
                        function.outputs.iter().flat_map(|o| std::iter::once(o.name).chain(o.aliases.iter().copied()));
                    let outputs = output_names(function);
                    let near = suggest(field, names).map(|near| format!("did you mean '.{near}'? outputs: {outputs}"));
                    let help = near.or_else(|| hint(field)).unwrap_or_else(|| format!("outputs: {outputs}"));
                    clause.mistake(
                        format!("{} has no output '{field}'", function.name),
                        span,
                        "no such output",
                        Some(help),
                    )
                })
            }
            // A function's only output may be named, as TA-Lib documents it.
            (Value::Series(node), Some(function)) if function.outputs[0].name == field => Ok(node),
            (_, Some(function)) => {
                let message = format!("{} has one output and needs no field", function.name);
                Err(clause.mistake(message, span, "no field here", Some(format!("leave '.{field}' out"))))
            }
            (_, None) => {
                let help = Some(format!("leave '.{field}' out; a field follows a call, as in macd().line"));
                Err(clause.mistake("only calls with several outputs have fields", span, "no field here", help))
            }
        }
    }
}

/// The bars of a document whose timeframe is longer than the dataset's, if they can be built from the dataset's.
fn higher_bars(schema: &Schema, document: &ScanDocument) -> Option<BarSize> {
    let wanted = document.timeframe.as_deref()?;
    if wanted.parse().ok() == schema.timeframe {
        return None;
    }
    let timeframe = schema.directory.as_ref()?.higher(wanted).ok()?;
    Some(BarSize::Higher { timeframe, forming: false })
}

/// The output names of a function for a message: `line, signal, hist`.
pub(crate) fn output_names(function: &Function) -> String {
    (0..function.outputs.len()).map(|i| format!(".{}", short_name(function, i))).collect::<Vec<_>>().join(", ")
}

fn short_name(function: &Function, i: usize) -> &'static str {
    function.outputs[i].aliases.first().copied().unwrap_or(function.outputs[i].name)
}
