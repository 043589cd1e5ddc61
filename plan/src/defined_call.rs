//! Calls of functions that the document defines.
//!
//! A call means the function's text with the arguments in place of its parameters. As with a let, the place of the call decides
//! whose bars the text means, and the place of a parameter whose bars its argument means. Arguments keep the clause that they are
//! written in, for messages, and are resolved once for each place they are read from.

use std::sync::Arc;

use crate::ast::{Arg, Argument, Calls, Expr, ExprKind, Span};
use crate::definitions::{Definition, replaced};
use crate::limits::DEFINED_CALLS_MAX;
use crate::resolve::{Clause, Resolved, Resolver, Stop, Value};

/// A call whose arguments stand in place of the parameters.
pub(crate) struct Expanded {
    definition: Definition,
    pub body: Expr,
    calls: Option<Arc<Calls>>,
}

impl Expanded {
    /// What the body is part of, for messages.
    pub fn clause(&self) -> Clause<'_> {
        Clause { name: &self.definition.clause, text: &self.definition.text }
    }

    /// The functions that the body is the text of.
    pub fn calls(&self) -> Option<Arc<Calls>> {
        self.calls.clone()
    }
}

impl Resolver<'_> {
    /// The value of a call of a defined function; `None` when there is no such function.
    pub(crate) fn defined_call(
        &mut self,
        clause: Clause<'_>,
        name: &str,
        args: &[Arg],
        span: &Span,
    ) -> Resolved<Option<Value>> {
        let Some(expanded) = self.expand(clause, name, args, span)? else { return Ok(None) };
        let before = self.enter_calls(expanded.calls());
        let own = expanded.clause();
        let result = self.value(own, &expanded.body);
        self.enter_calls(before);
        match result {
            Ok(value) => Ok(Some(value)),
            // A function used in several places has its mistake in each.
            Err(Stop::Mistake(diagnostic)) if diagnostic.clause == own.name => {
                if !self.diagnostics.contains(&diagnostic) {
                    self.diagnostics.push(*diagnostic);
                }
                Err(Stop::Reported)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Goes to the text of other functions; gives those before.
    pub(crate) fn enter_calls(&mut self, calls: Option<Arc<Calls>>) -> Option<Arc<Calls>> {
        std::mem::replace(&mut self.calls, calls)
    }

    /// A call of a defined function with its arguments in place; `None` when there is no such function.
    pub(crate) fn expand(
        &mut self,
        clause: Clause<'_>,
        name: &str,
        args: &[Arg],
        span: &Span,
    ) -> Resolved<Option<Expanded>> {
        let Some(definition) = self.definitions.get(name).cloned() else { return Ok(None) };
        let help = || Some(format!("it is called as {}", definition.signature));
        let mut outside = self.calls.as_ref();
        while let Some(calls) = outside {
            if calls.name == name {
                let help = "a function may use other functions, but not itself, and not by way of them";
                return Err(clause.mistake(
                    format!("'{name}' is defined by itself"),
                    span,
                    "a cycle",
                    Some(help.to_owned()),
                ));
            }
            outside = calls.outside.as_ref();
        }
        self.defined_calls += 1;
        if self.defined_calls > DEFINED_CALLS_MAX {
            let message = format!("this scan calls its own functions more than {DEFINED_CALLS_MAX} times");
            return Err(self.past_limit(clause, message, span));
        }
        let mut given: Vec<Option<&Expr>> = vec![None; definition.params.len()];
        for arg in args {
            let at = match &arg.name {
                None => given.iter().position(Option::is_none),
                Some((key, key_span)) => match definition.params.iter().position(|param| param == key) {
                    Some(at) if given[at].is_some() => {
                        return Err(clause.mistake(format!("'{key}' is given twice"), key_span, "again here", help()));
                    }
                    Some(at) => Some(at),
                    None => {
                        let message = format!("{name} has no argument '{key}'");
                        return Err(clause.mistake(message, key_span, "no such argument", help()));
                    }
                },
            };
            let Some(at) = at else {
                let message = format!("{name} has too many arguments");
                return Err(clause.mistake(message, &arg.value.span, "not expected", help()));
            };
            given[at] = Some(&arg.value);
        }
        let mut replacements = Vec::with_capacity(given.len());
        for (param, expr) in definition.params.iter().zip(given) {
            let Some(expr) = expr else {
                return Err(clause.mistake(format!("{name} needs '{param}'"), span, "not given", help()));
            };
            replacements.push((param.as_str(), self.replacement(clause, expr)));
        }
        let Some(body) = &definition.body else { return Err(Stop::Reported) };
        let body = replaced(body, &replacements);
        let calls = Some(Arc::new(Calls { name: name.to_owned(), outside: self.calls.clone() }));
        Ok(Some(Expanded { definition, body, calls }))
    }

    /// What replaces a parameter: a literal or name itself, so that it is legal where only those are; else the argument with the
    /// clause that it is from.
    fn replacement(&self, clause: Clause<'_>, expr: &Expr) -> ExprKind {
        match &expr.kind {
            ExprKind::Number(_)
            | ExprKind::Text(_)
            | ExprKind::Truth(_)
            | ExprKind::Name(_)
            | ExprKind::Argument(_) => expr.kind.clone(),
            _ => ExprKind::Argument(Arc::new(Argument {
                expr: expr.clone(),
                clause: clause.name.to_owned(),
                text: clause.text.to_owned(),
                calls: self.calls.clone(),
            })),
        }
    }

    /// The value of an argument, in the clause that it is from.
    pub(crate) fn argument(&mut self, argument: &Arc<Argument>) -> Resolved<Value> {
        let key = (Arc::as_ptr(argument) as usize, self.scope);
        if let Some((_, value)) = self.arguments.get(&key) {
            return Ok(value.clone());
        }
        let before = self.enter_calls(argument.calls.clone());
        let value = self.value(Clause { name: &argument.clause, text: &argument.text }, &argument.expr);
        self.enter_calls(before);
        let value = value?;
        // The argument is kept, so that no other one gets its address.
        self.arguments.insert(key, (argument.clone(), value.clone()));
        Ok(value)
    }
}
