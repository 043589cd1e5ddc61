//! Calls that change whose bars are looked at: `ref`, `tf`, `xs_*`, `breadth`.

use crate::ast::{Arg, CompareOp, Expr, ExprKind, Span};
use crate::catalogue::{CrossForm, Form, FormKind};
use crate::frame::{BarSize, CrossFunction, CrossSection, Frame, FrameId, Read, Subject};
use crate::graph::{Binary, Kind, NodeId, Op};
use crate::limits::{CROSS_SECTIONS_MAX, FRAMES_MAX, PERIOD_MAX, SWEEP_CROSS_SECTIONS_MAX};
use crate::resolve::{Clause, Resolver, Scope, Stop, Value};
use trawl_terms::{AttributeKind, Clock, suggest};

type Resolved<T> = Result<T, Stop>;

/// What a call of `ref` or `tf` reads.
pub(crate) struct Reading<'t> {
    /// On whose bars.
    pub frame: FrameId,
    pub how: Read,
    /// What is read.
    pub of: &'t Expr,
    /// The symbol or the timeframe.
    pub name: String,
}

/// One call of a form, its arguments sorted by name.
struct FormCall<'t> {
    clause: Clause<'t>,
    form: &'static Form,
    span: &'t Span,
    bound: Vec<(&'static str, Option<&'t Arg>)>,
}

impl<'t> FormCall<'t> {
    fn mistake(&self, message: impl Into<String>, span: &Span, label: &str) -> Stop {
        self.clause.mistake(message, span, label, Some(format!("it is called as {}", self.form.signature)))
    }

    /// Sorts arguments as the form declares them.
    fn bind(clause: Clause<'t>, form: &'static Form, args: &'t [Arg], span: &'t Span) -> Resolved<Self> {
        let (positional, named) = (form.positional, form.named);
        let bound = positional.iter().chain(named).map(|name| (*name, None)).collect();
        let mut call = Self { clause, form, span, bound };
        for arg in args {
            let at = match &arg.name {
                None => (0..positional.len()).find(|&i| call.bound[i].1.is_none()).ok_or_else(|| {
                    let message = match named.is_empty() {
                        true => format!("{} has too many arguments", form.name),
                        false => format!("{} has too many arguments; {} only by name", form.name, named.join(" and ")),
                    };
                    call.mistake(message, &arg.value.span, "not expected")
                })?,
                Some((key, key_span)) => {
                    let known = call.bound.iter().map(|(name, _)| *name);
                    let Some(at) = known.clone().position(|name| name == key) else {
                        let message = match suggest(key, known) {
                            Some(near) => format!("{} has no argument '{key}'; did you mean '{near}'?", form.name),
                            None => format!("{} has no argument '{key}'", form.name),
                        };
                        return Err(call.mistake(message, key_span, "no such argument"));
                    };
                    if call.bound[at].1.is_some() {
                        return Err(call.mistake(format!("'{key}' is given twice"), key_span, "again here"));
                    }
                    at
                }
            };
            call.bound[at].1 = Some(arg);
        }
        Ok(call)
    }

    fn optional(&self, name: &str) -> Option<&'t Expr> {
        self.bound.iter().find(|(n, _)| *n == name).and_then(|(_, arg)| arg.map(|a| &a.value))
    }

    fn required(&self, name: &str) -> Resolved<&'t Expr> {
        let missing = || self.mistake(format!("{} needs '{name}'", self.form.name), self.span, "not given");
        self.optional(name).ok_or_else(missing)
    }

    fn text(&self, name: &str, example: &str) -> Resolved<(&'t str, &'t Span)> {
        let expr = self.required(name)?;
        match &expr.kind {
            ExprKind::Text(text) => Ok((text, &expr.span)),
            _ => {
                let message = format!("{} takes a string first, such as '{example}'", self.form.name);
                Err(self.mistake(message, &expr.span, "expected a string"))
            }
        }
    }
}

impl Resolver<'_> {
    /// A call of a form.
    pub(crate) fn form(
        &mut self,
        clause: Clause<'_>,
        form: &'static Form,
        args: &[Arg],
        span: &Span,
    ) -> Resolved<Value> {
        self.check_not_forming(clause, form, span)?;
        let call = FormCall::bind(clause, form, args, span)?;
        let cross = match form.kind {
            FormKind::Reference => {
                let (frame, how) = self.reference(&call)?;
                return self.read(&call, frame, how);
            }
            FormKind::Timeframe => {
                let (frame, how) = self.timeframe(&call)?;
                return self.read(&call, frame, how);
            }
            FormKind::Days(to) => return self.days(&call, to).map(Value::Series),
            FormKind::Cross(cross) => cross,
        };
        Ok(Value::Series(match cross {
            CrossForm::Of(function) => self.cross(&call, function)?,
            CrossForm::Top => {
                let rank = self.cross(&call, CrossFunction::Rank)?;
                let k = self.constant_between(&call, "k", 1.0, f64::from(PERIOD_MAX), true)?;
                let k = self.graph.num(k);
                let top = self.graph.add(Op::Compare(CompareOp::LessEqual), &[rank, k], Kind::Bool);
                self.decisive.insert(top);
                top
            }
            CrossForm::Quantile => {
                let q = self.constant_between(&call, "q", 0.0, 1.0, false)?;
                self.cross(&call, CrossFunction::Quantile(q.into()))?
            }
        }))
    }

    /// Days from the trading day to a date, or since it.
    fn days(&mut self, call: &FormCall<'_>, to: bool) -> Resolved<NodeId> {
        let expr = call.required("date")?;
        let Value::Date(_, date) = self.value(call.clause, expr)? else {
            let dates = |(name, kind): (&String, &AttributeKind)| (*kind == AttributeKind::Date).then(|| name.clone());
            let names: Vec<String> = self.schema.attributes.iter().filter_map(dates).collect();
            let help = match names.is_empty() {
                true => {
                    "this dataset has no attributes of dates; 'trawl data import --attributes' adds them".to_owned()
                }
                false => format!("attributes of dates: {}", names.join(", ")),
            };
            let message = format!("{} takes an attribute of dates", call.form.name);
            return Err(call.clause.mistake(message, &expr.span, "this is none", Some(help)));
        };
        let today = self.leaf(Op::Clock(Clock::Date), Kind::Num);
        let (later, earlier) = if to { (date, today) } else { (today, date) };
        Ok(self.graph.add(Op::Binary(Binary::Subtract), &[later, earlier], Kind::Num))
    }

    fn is_forming(&self) -> bool {
        matches!(self.frame().bars, BarSize::Higher { forming: true, .. })
    }

    /// A forming bar changes with every base bar, so nothing else can be read along its axis. Days to a date read nothing else.
    fn check_not_forming(&self, clause: Clause<'_>, form: &Form, span: &Span) -> Resolved<()> {
        if !self.is_forming() || matches!(form.kind, FormKind::Days(_)) {
            return Ok(());
        }
        Err(clause.mistake(
            format!("{} cannot stand inside tf(..., partial=true)", form.name),
            span,
            "not here",
            Some("write it outside, or leave partial=true out".to_owned()),
        ))
    }

    /// What `ref` reads, and how.
    fn reference(&mut self, call: &FormCall<'_>) -> Resolved<(Frame, Read)> {
        let (name, span) = call.text("symbol", "SPY")?;
        let Some(directory) = self.schema.directory.clone() else {
            return Err(call.mistake("there are no other symbols here", span, "unknown"));
        };
        let symbol = directory.symbol(name).map_err(|near| {
            let help = near.map(|near| format!("did you mean '{near}'?"));
            call.clause.mistake(format!("this dataset has no symbol '{name}'"), span, "no such symbol", help)
        })?;
        let how = match call.optional("asof") {
            None => Read::Same,
            Some(_) => Read::AsOf(self.constant_between(call, "asof", 0.0, f64::from(PERIOD_MAX), true)? as u32),
        };
        let frame = Frame { subject: Subject::Reference(symbol), bars: self.frame().bars.clone() };
        Ok((frame, how))
    }

    /// What `tf` reads, and how.
    fn timeframe(&mut self, call: &FormCall<'_>) -> Resolved<(Frame, Read)> {
        let (text, span) = call.text("timeframe", "1w")?;
        if self.frame().bars != BarSize::Base {
            let message = match self.home == FrameId::OWN {
                true => "tf cannot stand inside tf: both are built from the dataset's own bars",
                false => "tf cannot stand in a scan of higher bars: both are built from the dataset's own bars",
            };
            return Err(call.mistake(message, call.span, "the inner one"));
        }
        let Some(directory) = self.schema.directory.clone() else {
            return Err(call.mistake("there is no calendar here to build higher bars by", call.span, "not here"));
        };
        let timeframe = directory.higher(text).map_err(|why| {
            call.clause.mistake(why, span, "expected a longer timeframe", Some("such as '1w'".to_owned()))
        })?;
        let forming = match call.optional("partial").map(|e| (&e.kind, &e.span)) {
            None => false,
            Some((ExprKind::Truth(forming), _)) => *forming,
            Some((_, span)) => return Err(call.mistake("'partial' is true or false", span, "expected true or false")),
        };
        let frame = Frame { subject: self.frame().subject.clone(), bars: BarSize::Higher { timeframe, forming } };
        Ok((frame, if forming { Read::Forming } else { Read::Completed }))
    }

    /// What a call of `ref` or `tf` reads; `None` for the other forms.
    pub(crate) fn reading<'t>(
        &mut self,
        clause: Clause<'t>,
        form: &'static Form,
        args: &'t [Arg],
        span: &'t Span,
    ) -> Resolved<Option<Reading<'t>>> {
        let call = FormCall::bind(clause, form, args, span)?;
        let (frame, how) = match form.kind {
            FormKind::Reference => self.reference(&call)?,
            FormKind::Timeframe => self.timeframe(&call)?,
            FormKind::Cross(_) | FormKind::Days(_) => return Ok(None),
        };
        let (name, _) = call.text(form.positional[0], form.signature)?;
        let frame = self.frame_of(&call, frame)?;
        Ok(Some(Reading { frame, how, of: call.required("e")?, name: name.to_owned() }))
    }

    fn frame_of(&mut self, call: &FormCall<'_>, frame: Frame) -> Resolved<FrameId> {
        match self.frame_id(frame) {
            Some(id) => Ok(id),
            None => {
                let message = format!("this scan uses more than {FRAMES_MAX} references and timeframes");
                Err(self.past_limit(call.clause, message, call.span))
            }
        }
    }

    /// The argument `e` on another frame, read on this one; with each of its outputs when it has several.
    fn read(&mut self, call: &FormCall<'_>, frame: Frame, how: Read) -> Resolved<Value> {
        let expr = call.required("e")?;
        let scope = Scope { frame: self.frame_of(call, frame)?, ..self.scope };
        let value = self.within(scope, |r| {
            let value = r.value(call.clause, expr)?;
            Ok(match value {
                Value::Series(node) => Value::Series(r.held(node)),
                Value::Outputs(function, nodes) => {
                    Value::Outputs(function, nodes.into_iter().map(|node| r.held(node)).collect())
                }
                other => other,
            })
        })?;
        match value {
            Value::Series(node) => Ok(Value::Series(self.graph.read(how, node))),
            Value::Outputs(function, nodes) => {
                let nodes = nodes.into_iter().map(|node| self.graph.read(how, node)).collect();
                Ok(Value::Outputs(function, nodes))
            }
            // A string or a label: the message of a series is the right one.
            Value::Date(name, node) => Ok(Value::Date(name, self.graph.read(how, node))),
            Value::Text(_) | Value::Label(_) => self.within(scope, |r| r.series(call.clause, expr)).map(Value::Series),
        }
    }

    /// A constant as a series of the present frame: only where there is a bar has it a value to be read.
    pub(crate) fn held(&mut self, node: NodeId) -> NodeId {
        let found = self.graph.node(node);
        if found.frame != FrameId::ANY {
            return node;
        }
        let kind = found.kind;
        self.graph.add(Op::Lag(0), &[node], kind)
    }

    /// A cross-section of the first argument.
    fn cross(&mut self, call: &FormCall<'_>, function: CrossFunction) -> Resolved<NodeId> {
        let by = call.optional("by").map(|e| self.label_name(call.clause, e)).transpose()?;
        // What every symbol gives, so on its own bars: inside ref, too.
        let own = Frame { subject: Subject::Own, bars: self.frame().bars.clone() };
        let own = Scope { frame: self.frame_of(call, own)?, ..self.scope };
        let given = self.within(own, |r| r.cross_arguments(call, function))?;
        let here = if own == self.scope { given.clone() } else { self.cross_arguments(call, function)? };
        let mask = if self.scope.universe { None } else { self.mask };
        let value = self.within(own, |r| {
            let inside = match mask {
                Some(mask) if own.frame != r.graph.node(mask).frame && r.graph.constant(mask).is_none() => {
                    Some(r.graph.read(Read::Inside, mask))
                }
                mask => mask,
            };
            let mut members = inside;
            for &condition in &given[1..] {
                members = Some(match members {
                    None => condition,
                    Some(before) => r.graph.add(Op::And, &[before, condition], Kind::Bool),
                });
            }
            let na = r.graph.num(f64::NAN);
            let kind = r.graph.node(given[0]).kind;
            let value = members.map_or(given[0], |m| r.graph.add(Op::Select, &[m, given[0], na], kind));
            r.held(value)
        });
        let cross = CrossSection { function, value, frame: own.frame, by };
        let at = self.crosses.iter().position(|c| *c == cross).unwrap_or_else(|| {
            self.crosses.push(cross);
            self.crosses.len() - 1
        });
        let limit = if at >= SWEEP_CROSS_SECTIONS_MAX { SWEEP_CROSS_SECTIONS_MAX } else { CROSS_SECTIONS_MAX };
        if at >= SWEEP_CROSS_SECTIONS_MAX || at >= self.crosses_before + CROSS_SECTIONS_MAX {
            let message = format!("this scan has more than {limit} cross-sections");
            return Err(self.past_limit(call.clause, message, call.span));
        }
        let node = self.leaf(Op::Cross(at as u16), Kind::Num);
        self.cross_arguments.insert(node, here);
        Ok(node)
    }

    /// The value that a cross-section is made of, and the condition of its population if it has one.
    fn cross_arguments(&mut self, call: &FormCall<'_>, function: CrossFunction) -> Resolved<Vec<NodeId>> {
        let name = call.form.positional[0];
        let kind = if function == CrossFunction::Breadth { Kind::Bool } else { Kind::Num };
        let mut nodes = vec![self.typed(call.clause, call.required(name)?, kind, &format!("'{name}'"))?];
        if let Some(condition) = call.optional("where") {
            nodes.push(self.typed(call.clause, condition, Kind::Bool, "'where'")?);
        }
        Ok(nodes)
    }

    fn constant_between(&mut self, call: &FormCall<'_>, name: &str, min: f64, max: f64, whole: bool) -> Resolved<f64> {
        let expr = call.required(name)?;
        let node = self.typed(call.clause, expr, Kind::Num, &format!("'{name}'"))?;
        let legal = |v: f64| v >= min && v <= max && !(whole && v.fract() != 0.0);
        let what = if whole { "a whole number" } else { "a number" };
        let message = match self.graph.constant(node) {
            Some(value) if legal(value) => return Ok(value),
            Some(value) if value.is_nan() => format!("NA is not legal for '{name}' of {}", call.form.name),
            Some(value) => format!("{value} is not legal for '{name}' of {}", call.form.name),
            None => format!("'{name}' of {} must be a constant", call.form.name),
        };
        Err(call.mistake(message, &expr.span, &format!("expected {what} from {min} to {max}")))
    }
}
