//! Arguments of a call: series first, as many as are given, then parameters; a constant fills a parameter, anything
//! else a series. What is not given takes its default.

use std::collections::HashSet;

use crate::ast::{Arg, Expr, ExprKind, Span};
use crate::catalogue::{self, Arguments, Formula, Function, Param, ParamDefault, ParamType};
use crate::foreign::hint;
use crate::frame::{BarSize, Subject};
use crate::graph::{Binary, Kind, NodeId, Op};
use crate::resolve::{Clause, Resolver, Stop, Value};
use crate::sweep::Setting;
use trawl_terms::suggest;

type Resolved<T> = Result<T, Stop>;

/// Characters of a number that are still easy to read.
const SHORT_DIGITS: usize = 8;

/// The legal values of a parameter, for messages and documentation.
pub fn legal_values(kind: ParamType) -> String {
    match kind {
        ParamType::Integer { min, max } => format!("a whole number from {min} to {max}"),
        ParamType::Real { min: f64::MIN_POSITIVE, max } => format!("a number above 0 and up to {}", short(max)),
        ParamType::Real { min, max } => format!("a number from {} to {}", short(min), short(max)),
        ParamType::Average => {
            let names: Vec<String> = catalogue::AVERAGES.iter().map(|(n, i)| format!("'{n}' ({i})")).collect();
            format!("one of {}", names.join(", "))
        }
        ParamType::Choice(words) => format!("one of '{}'", words.join("', '")),
        ParamType::Truth => "true or false".to_owned(),
    }
}

/// With an exponent only where the digits would be many.
fn short(value: f64) -> String {
    let plain = value.to_string();
    if plain.len() > SHORT_DIGITS { format!("{value:e}") } else { plain }
}

/// `sma(real=close, timeperiod=30)`: how a call looks, for messages and documentation.
pub fn signature(function: &Function) -> String {
    let series = function.given_series().map(|(_, s)| match s.default {
        Some(d) if d == s.name => s.name.to_owned(),
        Some(d) => format!("{}={d}", s.name),
        None => s.name.to_owned(),
    });
    let params = function.params.iter().map(|p| match p.default {
        ParamDefault::Required => p.name.to_owned(),
        _ => format!("{}={}", p.name, default_text(p)),
    });
    if function.is_bare {
        return function.name.to_owned();
    }
    format!("{}({})", function.name, series.chain(params).collect::<Vec<_>>().join(", "))
}

/// A parameter's default as it would be written; empty when it must be given.
pub fn default_text(param: &Param) -> String {
    match param.default {
        ParamDefault::Required => String::new(),
        ParamDefault::Value(v) if param.kind == ParamType::Average => {
            let name = catalogue::AVERAGES.iter().find(|a| f64::from(a.1) == v).map_or("sma", |a| a.0);
            format!("'{name}'")
        }
        ParamDefault::Value(v) => match param.kind {
            ParamType::Choice(words) => format!("'{}'", words.get(v as usize).unwrap_or(&"")),
            ParamType::Truth => (v == 1.0).to_string(),
            _ => v.to_string(),
        },
        ParamDefault::SameAs(other) => other.to_owned(),
    }
}

struct FunctionCall<'t> {
    clause: Clause<'t>,
    function: &'static Function,
    series: Vec<Option<NodeId>>,
    params: Vec<Option<f64>>,
    /// Where each parameter was given.
    places: Vec<Option<Span>>,
    /// Whether a parameter has been given by position: no series may follow.
    parameters_began: bool,
}

impl FunctionCall<'_> {
    fn mistake(&self, message: String, span: &Span, label: &str) -> Stop {
        self.clause.mistake(message, span, label, Some(format!("it is called as {}", signature(self.function))))
    }

    fn next_param(&self) -> Option<usize> {
        (0..self.params.len()).find(|&i| self.params[i].is_none() && self.function.params[i].kind != ParamType::Average)
    }
}

impl Resolver<'_> {
    /// A call of a catalogue function.
    pub(crate) fn call(
        &mut self,
        clause: Clause<'_>,
        name: &str,
        name_span: &Span,
        args: &[Arg],
        span: &Span,
    ) -> Resolved<Value> {
        if let Some(value) = self.defined_call(clause, name, args, span)? {
            return Ok(value);
        }
        if let Some(form) = catalogue::find_form(name) {
            return self.form(clause, form, args, span);
        }
        let Some(function) = catalogue::find(name) else {
            let forms = catalogue::FORMS.iter().map(|f| f.name);
            let names = catalogue::functions().flat_map(|f| std::iter::once(f.name).chain(f.aliases.iter().copied()));
            let is_series = self.is_series_name(name);
            let names = names.chain(self.definitions.keys().map(String::as_str));
            let help = if is_series {
                format!("'{name}' is a series: write it without parentheses")
            } else {
                let near = suggest(name, names.chain(forms)).map(|near| format!("did you mean '{near}'?"));
                hint(name).or(near).unwrap_or_else(|| "'trawl indicators' lists them".to_owned())
            };
            return Err(clause.mistake(
                format!("unknown function '{name}'"),
                name_span,
                "no function of this name",
                Some(help),
            ));
        };
        if function.clock.is_some_and(|clock| clock.is_within_day()) {
            self.check_within_day(clause, function, span)?;
        }
        let mut call = FunctionCall {
            clause,
            function,
            series: vec![None; function.series.len()],
            params: vec![None; function.params.len()],
            places: vec![None; function.params.len()],
            parameters_began: false,
        };
        for arg in args {
            match &arg.name {
                Some((key, key_span)) => self.named(&mut call, key, key_span, arg)?,
                None => self.positional(&mut call, arg)?,
            }
        }
        let series = self.fill_series(&call, span)?;
        let params = fill_params(&call, span)?;
        let (mut nodes, mut bars_needed) = self.built(function, series.clone(), params.clone(), None);
        if self.forgets_nothing(&nodes, &series) {
            let (series, window) = self.since_window(&call, &series, span)?;
            (nodes, bars_needed) = self.built(function, series, params, Some(window));
            if let Some(history) = self.history
                && bars_needed > history.bars as usize
            {
                let message =
                    format!("{name} needs {bars_needed} bars, and 'history' begins {} bars back", history.bars);
                let help = format!("such as history = {{ bars = {bars_needed}, origin = true }}");
                return Err(clause.mistake(message, span, "unknown for every symbol", Some(help)));
            }
        }
        if bars_needed > self.bars_needed.1 {
            self.bars_needed = (function.name, bars_needed);
        }
        Ok(match nodes.as_slice() {
            [one] => Value::Series(*one),
            _ => Value::Outputs(function, nodes),
        })
    }

    /// Refuses what days do not have where bars are of a day or longer.
    fn check_within_day(&self, clause: Clause<'_>, function: &Function, span: &Span) -> Resolved<()> {
        let timeframe = match &self.frame().bars {
            BarSize::Base => self.schema.timeframe,
            BarSize::Higher { timeframe, .. } => Some(*timeframe),
        };
        match timeframe.filter(|timeframe| timeframe.is_dated()) {
            None => Ok(()),
            Some(timeframe) => {
                let message = format!("{} needs bars shorter than a day, and these are of {timeframe}", function.name);
                Err(clause.mistake(message, span, "not known of a day", None))
            }
        }
    }

    /// The nodes of a call, and the least bars that it takes.
    fn built(
        &mut self,
        function: &Function,
        series: Vec<NodeId>,
        params: Vec<f64>,
        origin: Option<NodeId>,
    ) -> (Vec<NodeId>, usize) {
        let arguments = Arguments { series, params, origin, whole: self.whole };
        Formula::over(&mut self.graph, &mut self.decisive, arguments, |formula| function.nodes(formula))
    }

    fn positional(&mut self, call: &mut FunctionCall<'_>, arg: &Arg) -> Resolved<()> {
        let span = &arg.value.span;
        if let Some(word) = self.word(&arg.value)
            && let Some(i) = call.next_param()
            && let ParamType::Choice(words) = call.function.params[i].kind
        {
            call.parameters_began = true;
            call.params[i] = Some(chosen(call, words, &word, span)?);
            call.places[i] = Some(span.clone());
            return Ok(());
        }
        let node = self.series_or_text(call, arg)?;
        let open = call.function.given_series().map(|(i, _)| i).find(|i| call.series[*i].is_none());
        let constant = self.graph.constant(node);
        // A constant may stand for a series only where a series must be given, as in crosses_above(close, 100), or where
        // it can be nothing else, as in sqrt(252).
        let alone = call.function.series.len() == 1 && call.function.params.is_empty();
        let as_series = match (constant, open) {
            (None, _) => true,
            (Some(_), Some(i)) => !call.parameters_began && (alone || call.function.series[i].default.is_none()),
            (Some(_), None) => false,
        };
        if as_series {
            if call.parameters_began {
                return Err(call.mistake("a series comes after a parameter".to_owned(), span, "series come first"));
            }
            let Some(i) = open else {
                let message = match call.function.given_series().count() {
                    0 => format!("{} takes no series", call.function.name),
                    n if call.next_param().is_some() => {
                        format!("{} takes {n} series, and its parameters must be constants", call.function.name)
                    }
                    n => format!("{} takes at most {n} series", call.function.name),
                };
                return Err(call.mistake(message, span, "not expected"));
            };
            let declared = &call.function.series[i];
            let expected = format!("'{}'", declared.name);
            call.series[i] = Some(self.check_kind(call.clause, node, span, declared.kind, &expected)?);
            return Ok(());
        }
        let Some(i) = call.next_param() else {
            let message = match call.function.params.len() {
                0 if call.function.series.iter().any(|s| s.default.is_some()) => {
                    format!("{} has no parameters; a constant series goes by name", call.function.name)
                }
                _ => format!("{} has too many arguments", call.function.name),
            };
            return Err(call.mistake(message, span, "not expected"));
        };
        call.parameters_began = true;
        let expected = format!("'{}'", call.function.params[i].name);
        let node = self.check_kind(call.clause, node, span, kind_of(call.function.params[i].kind), &expected)?;
        call.params[i] = Some(self.parameter(call, i, node, span)?);
        call.places[i] = Some(span.clone());
        Ok(())
    }

    /// A positional argument; a bare string gets a message of its own.
    fn series_or_text(&mut self, call: &FunctionCall<'_>, arg: &Arg) -> Resolved<NodeId> {
        if let ExprKind::Text(_) = arg.value.kind {
            return Err(call.mistake(
                "a string goes by name, as in matype='ema'".to_owned(),
                &arg.value.span,
                "not expected",
            ));
        }
        self.series(call.clause, &arg.value)
    }

    fn named(&mut self, call: &mut FunctionCall<'_>, key: &str, key_span: &Span, arg: &Arg) -> Resolved<()> {
        let span = &arg.value.span;
        let function = call.function;
        let param_name = if key == "length" && !function.params.iter().any(|p| p.name == "length") {
            if function.params.iter().any(|p| p.name == "timeperiod") { "timeperiod" } else { "n" }
        } else {
            key
        };
        if let Some((i, _)) = function.given_series().find(|(_, s)| s.name == key) {
            if call.series[i].is_some() {
                return Err(call.mistake(format!("'{key}' is given twice"), key_span, "again here"));
            }
            call.series[i] = Some(self.typed(call.clause, &arg.value, function.series[i].kind, &format!("'{key}'"))?);
            return Ok(());
        }
        if let Some(i) = function.params.iter().position(|p| p.name == param_name) {
            if call.params[i].is_some() {
                return Err(call.mistake(format!("'{key}' is given twice"), key_span, "again here"));
            }
            call.params[i] = Some(match (function.params[i].kind, self.word(&arg.value)) {
                (ParamType::Average, Some(word)) => average_named(call, &word, span)?,
                (ParamType::Choice(words), Some(word)) => chosen(call, words, &word, span)?,
                (kind, _) => {
                    let node = self.typed(call.clause, &arg.value, kind_of(kind), &format!("'{key}'"))?;
                    self.parameter(call, i, node, span)?
                }
            });
            call.places[i] = Some(span.clone());
            return Ok(());
        }
        let names = function.given_series().map(|(_, s)| s.name).chain(function.params.iter().map(|p| p.name));
        // What other libraries call a window's length.
        let length = ["n", "p", "period", "len", "window", "length"].contains(&key);
        let window = function.params.iter().map(|p| p.name).find(|n| length && ["timeperiod", "n"].contains(n));
        let message = match window.or_else(|| suggest(key, names)) {
            Some(near) => format!("{} has no argument '{key}'; did you mean '{near}'?", function.name),
            None => format!("{} has no argument '{key}'", function.name),
        };
        Err(call.mistake(message, key_span, "no such argument"))
    }

    /// A string, written out or the value of a sweep variable.
    fn word(&mut self, expr: &Expr) -> Option<String> {
        match &expr.kind {
            ExprKind::Text(text) => Some(text.clone()),
            ExprKind::Name(name) if !self.lets.contains_key(name) => match self.settings.get_key_value(name.as_str()) {
                Some((name, Setting::Text(text))) => {
                    self.settings_used.insert(name);
                    Some(text.clone())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// A parameter's value, checked against its declared range.
    fn parameter(&self, call: &FunctionCall<'_>, i: usize, node: NodeId, span: &Span) -> Resolved<f64> {
        let param: &Param = &call.function.params[i];
        let Some(value) = self.graph.constant(node) else {
            let message = format!("'{}' must be a constant: windows cannot change from bar to bar", param.name);
            return Err(call.mistake(message, span, "not a constant"));
        };
        let legal = match param.kind {
            ParamType::Integer { min, max } => {
                value.fract() == 0.0 && value >= f64::from(min) && value <= f64::from(max)
            }
            ParamType::Real { min, max } => value >= min && value <= max,
            ParamType::Average => catalogue::AVERAGES.iter().any(|a| f64::from(a.1) == value),
            ParamType::Choice(_) => false,
            ParamType::Truth => true,
        };
        if legal {
            return Ok(value);
        }
        let shown = if value.is_nan() { "NA".to_owned() } else { value.to_string() };
        let message = format!("{shown} is not legal for '{}' of {}", param.name, call.function.name);
        Err(call.mistake(message, span, &format!("expected {}", legal_values(param.kind))))
    }

    fn fill_series(&mut self, call: &FunctionCall<'_>, span: &Span) -> Resolved<Vec<NodeId>> {
        let mut nodes = Vec::with_capacity(call.series.len());
        for (declared, given) in call.function.series.iter().zip(&call.series) {
            let node = match (given, declared.default) {
                (Some(node), _) => *node,
                (None, Some(column)) => self.column(column).ok_or_else(|| {
                    call.mistake(
                        format!("{} needs the column '{column}', which this dataset does not have", call.function.name),
                        span,
                        "needs it",
                    )
                })?,
                (None, None) => {
                    let what = if declared.kind == Kind::Bool { "condition" } else { "series" };
                    return Err(call.mistake(
                        format!("{} needs the {what} '{}'", call.function.name, declared.name),
                        span,
                        "not given",
                    ));
                }
            };
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Whether the history is limited, and a formula between `series` and `nodes` depends on where it begins.
    fn forgets_nothing(&self, nodes: &[NodeId], series: &[NodeId]) -> bool {
        // A reference is seen whole: its span is the calendar's, not a number of its bars.
        if self.history.is_none() || self.frame().subject != Subject::Own {
            return false;
        }
        let mut seen: HashSet<NodeId> = series.iter().copied().collect();
        let mut open: Vec<NodeId> = nodes.to_vec();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let node = self.graph.node(id);
                if node.op.facts().is_unbounded() {
                    return true;
                }
                open.extend(&node.inputs);
            }
        }
        false
    }

    /// The series as they are from the window's first bar on, and the window, if the scan allows it.
    fn since_window(
        &mut self,
        call: &FunctionCall<'_>,
        series: &[NodeId],
        span: &Span,
    ) -> Resolved<(Vec<NodeId>, NodeId)> {
        if !self.history.is_some_and(|h| h.origin) {
            return Err(call.clause.mistake(
                format!("{} depends on where the history begins, and no warm-up is long enough", call.function.name),
                span,
                "needs the whole history",
                Some("leave 'history' out, or add origin = true: it begins at the first of those bars".to_owned()),
            ));
        }
        let window = self.leaf(Op::HistoryMask, Kind::Bool);
        let gated = |r: &mut Self, x: &NodeId| {
            let kind = r.graph.node(*x).kind;
            r.graph.add(Op::Binary(Binary::MaskUndefined), &[*x, window], kind)
        };
        Ok((series.iter().map(|x| gated(self, x)).collect(), window))
    }

    fn is_series_name(&mut self, name: &str) -> bool {
        self.column(name).is_some() || catalogue::DERIVED.iter().any(|d| d.0 == name)
    }
}

/// What an argument for a parameter must be.
fn kind_of(param: ParamType) -> Kind {
    if param == ParamType::Truth { Kind::Bool } else { Kind::Num }
}

/// The place of a word among those that a parameter takes.
fn chosen(call: &FunctionCall<'_>, words: &'static [&'static str], text: &str, span: &Span) -> Resolved<f64> {
    words.iter().position(|w| w.eq_ignore_ascii_case(text)).map(|at| at as f64).ok_or_else(|| {
        let message = match suggest(text, words.iter().copied()) {
            Some(near) => format!("{} knows no '{text}'; did you mean '{near}'?", call.function.name),
            None => format!("{} knows no '{text}'", call.function.name),
        };
        call.mistake(message, span, &format!("expected {}", legal_values(ParamType::Choice(words))))
    })
}

fn average_named(call: &FunctionCall<'_>, text: &str, span: &Span) -> Resolved<f64> {
    let lower = text.to_lowercase();
    catalogue::AVERAGES.iter().find(|a| a.0 == lower).map(|a| f64::from(a.1)).ok_or_else(|| {
        call.mistake(
            format!("'{text}' is no moving average known here"),
            span,
            &format!("expected {}", legal_values(ParamType::Average)),
        )
    })
}

fn fill_params(call: &FunctionCall<'_>, span: &Span) -> Resolved<Vec<f64>> {
    let mut values: Vec<f64> = Vec::with_capacity(call.params.len());
    for (param, given) in call.function.params.iter().zip(&call.params) {
        let given = given.filter(|v| param.kind != ParamType::Average || *v != catalogue::AVERAGE_DEFAULT);
        let value = match (given, param.default) {
            (Some(value), _) => value,
            (None, ParamDefault::Value(value)) => value,
            (None, ParamDefault::SameAs(other)) => {
                let at = call.function.params.iter().position(|p| p.name == other);
                at.and_then(|i| values.get(i).copied()).unwrap_or(f64::NAN)
            }
            (None, ParamDefault::Required) => {
                return Err(call.mistake(format!("{} needs '{}'", call.function.name, param.name), span, "not given"));
            }
        };
        values.push(value);
    }
    for (less, more) in call.function.at_most {
        let value = |name: &str| call.function.params.iter().position(|p| p.name == name).map(|i| values[i]);
        if let (Some(a), Some(b)) = (value(less), value(more))
            && a > b
        {
            return Err(call.mistake(format!("{less} ({a}) is larger than {more} ({b})"), span, "cannot be"));
        }
    }
    if let Some(conflict) = call.function.conflict(&values) {
        let place = |name: &&str| call.function.params.iter().position(|p| p.name == *name);
        let given = conflict.places.iter().filter_map(place).find_map(|i| call.places[i].clone());
        let span = given.unwrap_or_else(|| span.clone());
        return Err(call.clause.mistake(conflict.message, &span, conflict.label, Some(conflict.help)));
    }
    Ok(values)
}
