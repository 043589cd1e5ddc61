//! Functions that a document defines: `[def] "rs(n)" = "roc(n) - ref('SPY', roc(n))"`.
//!
//! What a call of one means is in `defined_call`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Arg, Expr, ExprKind, Span};
use crate::catalogue;
use crate::diagnostic::Diagnostic;
use crate::parse::{RESERVED, parse_expression};

/// One defined function.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    /// Its clause in messages: `def.rs(n)`.
    pub clause: String,
    /// As it is called.
    pub signature: String,
    pub params: Vec<String>,
    pub text: String,
    /// Its text as a tree; `None` when it has a mistake, which is reported.
    pub body: Option<Arc<Expr>>,
}

/// The functions of a document by name, and the mistakes in their declarations.
pub(crate) fn definitions(defs: &BTreeMap<String, String>) -> (BTreeMap<String, Definition>, Vec<Diagnostic>) {
    let mut all = BTreeMap::new();
    let mut mistakes = Vec::new();
    for (signature, text) in defs {
        match declared(signature, &all) {
            Err(mistake) => mistakes.push(*mistake),
            Ok((name, params)) => {
                let clause = format!("def.{signature}");
                let body = parse_expression(&clause, text).map(Arc::new).map_err(|mistake| mistakes.push(*mistake));
                let (signature, text) = (signature.clone(), text.clone());
                all.insert(name, Definition { clause, signature, params, text, body: body.ok() });
            }
        }
    }
    (all, mistakes)
}

/// Name and parameters of `rs(n)`.
fn declared(signature: &str, others: &BTreeMap<String, Definition>) -> Result<(String, Vec<String>), Box<Diagnostic>> {
    let mistake = |message: String, span: &Span, help: &str| {
        let (clause, text, label) = ("def".to_owned(), signature.to_owned(), "here".to_owned());
        Box::new(Diagnostic { message, clause, text, span: span.clone(), label, help: Some(help.to_owned()) })
    };
    let form = "a function is declared by its name and its parameters: \"rs(n)\" = \"roc(n) - ref('SPY', roc(n))\"";
    let whole = 0..signature.len();
    let Ok(Expr { kind: ExprKind::Call { name, name_span, args }, .. }) = parse_expression("def", signature) else {
        return Err(mistake(format!("'{signature}' declares no function"), &whole, form));
    };
    if catalogue::find(&name).is_some() || catalogue::find_form(&name).is_some() {
        return Err(mistake(format!("'{name}' is a function of the language"), &name_span, "give it another name"));
    }
    if others.contains_key(&name) {
        return Err(mistake(
            format!("'{name}' is defined twice"),
            &name_span,
            "functions differ by name, not by parameters",
        ));
    }
    let mut params: Vec<String> = Vec::new();
    for arg in &args {
        match (&arg.name, &arg.value.kind) {
            (None, ExprKind::Name(param)) if params.contains(param) => {
                return Err(mistake(format!("'{name}' has two parameters '{param}'"), &arg.value.span, form));
            }
            (None, ExprKind::Name(param)) if !RESERVED.contains(&param.as_str()) => params.push(param.clone()),
            _ => return Err(mistake("a parameter is a name".to_owned(), &arg.value.span, form)),
        }
    }
    Ok((name, params))
}

/// `expr` with replacements for names.
pub(crate) fn replaced(expr: &Expr, by: &[(&str, ExprKind)]) -> Expr {
    let one = |expr: &Expr| Box::new(replaced(expr, by));
    let all = |exprs: &[Expr]| exprs.iter().map(|expr| replaced(expr, by)).collect();
    let kind = match &expr.kind {
        ExprKind::Name(name) => match by.iter().find(|(param, _)| param == name) {
            Some((_, kind)) => kind.clone(),
            None => expr.kind.clone(),
        },
        ExprKind::Number(_) | ExprKind::Text(_) | ExprKind::Truth(_) | ExprKind::Argument(_) => expr.kind.clone(),
        ExprKind::Call { name, name_span, args } => ExprKind::Call {
            name: name.clone(),
            name_span: name_span.clone(),
            args: args.iter().map(|arg| Arg { name: arg.name.clone(), value: replaced(&arg.value, by) }).collect(),
        },
        ExprKind::Field { of, field, field_span } => {
            ExprKind::Field { of: one(of), field: field.clone(), field_span: field_span.clone() }
        }
        ExprKind::Offset { of, bars } => ExprKind::Offset { of: one(of), bars: one(bars) },
        ExprKind::Negate(of) => ExprKind::Negate(one(of)),
        ExprKind::Not(of) => ExprKind::Not(one(of)),
        ExprKind::Binary { op, operands } => ExprKind::Binary { op: *op, operands: all(operands) },
        ExprKind::In { of, values } => ExprKind::In { of: one(of), values: values.clone() },
        ExprKind::Chain { operands, ops } => ExprKind::Chain { operands: all(operands), ops: ops.clone() },
    };
    Expr { kind, span: expr.span.clone(), depth: expr.depth }
}
