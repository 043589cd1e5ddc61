//! What a bare name means: a let, a sweep variable, a column, a label, a derived column; each looked for in that order.

use crate::ast::Span;
use crate::catalogue;
use crate::foreign::{NAMESPACES, hint};
use crate::graph::{Binary, Kind, NodeId, Op};
use crate::parse::parse_expression;
use crate::resolve::{Clause, Let, Resolved, Resolver, Stop, Value};
use crate::sweep::Setting;
use trawl_terms::{AttributeKind, suggest};

impl<'a> Resolver<'a> {
    pub(crate) fn name(&mut self, clause: Clause<'_>, name: &str, span: &Span) -> Resolved<Value> {
        if let Some((key, text)) = self.lets.get_key_value(name) {
            return self.named_let(clause, key, text, span);
        }
        if let Some((name, value)) = self.settings.get_key_value(name) {
            self.settings_used.insert(name);
            return Ok(match value {
                Setting::Number(value) => Value::Series(self.graph.num(*value)),
                Setting::Text(text) => Value::Text(text.clone()),
            });
        }
        if let Some(node) = self.column(name) {
            return Ok(Value::Series(node));
        }
        if self.is_label_name(name) {
            return Ok(Value::Label(name.to_owned()));
        }
        if let Some(kind) = self.schema.attributes.get(name) {
            let node = self.attribute(name);
            return Ok(match kind {
                AttributeKind::Number => Value::Series(node),
                AttributeKind::Date => Value::Date(name.to_owned(), node),
            });
        }
        if let Some((_, needs)) = catalogue::DERIVED.iter().find(|(n, _)| *n == name) {
            if let Some(node) = self.derived(needs) {
                return Ok(Value::Series(node));
            }
            let missing: Vec<&str> =
                needs.iter().copied().filter(|c| !self.schema.columns.iter().any(|k| k == c)).collect();
            let message = format!(
                "'{name}' needs the column{} {}",
                if missing.len() == 1 { "" } else { "s" },
                missing.join(", ")
            );
            return Err(clause.mistake(message, span, "not in this dataset", Some(self.column_help())));
        }
        if catalogue::find(name).is_some_and(|function| function.is_bare) {
            return self.call(clause, name, span, &[], span);
        }
        let is_function = catalogue::find(name).is_some() || catalogue::find_form(name).is_some();
        if is_function || self.definitions.contains_key(name) {
            return Err(clause.mistake(
                format!("'{name}' is a function"),
                span,
                "a call was expected",
                Some(format!("write {name}(...)")),
            ));
        }
        let columns = self.schema.columns.iter().chain(self.schema.labels.keys()).chain(self.schema.attributes.keys());
        let columns = columns.map(String::as_str);
        let named = self.lets.keys().map(String::as_str).chain(self.settings.keys().copied());
        let words = catalogue::functions().filter(|f| f.is_bare).map(|f| f.name);
        let names = columns.chain(named).chain(catalogue::DERIVED.iter().map(|d| d.0)).chain(words);
        let near = suggest(name, names).map(|near| format!("did you mean '{near}'?"));
        let help = match NAMESPACES.contains(&name) {
            true => format!("functions have no prefix: leave '{name}.' out"),
            // A word of another tool is no slip of the pen, however near it is to a name.
            false => hint(name).or(near).unwrap_or_else(|| self.column_help()),
        };
        Err(clause.mistake(format!("unknown name '{name}'"), span, "no column, let or label of this name", Some(help)))
    }

    fn column_help(&self) -> String {
        let mut help = format!("columns: {}", self.schema.columns.join(", "));
        if !self.schema.labels.is_empty() {
            let labels: Vec<&str> = self.schema.labels.keys().map(String::as_str).collect();
            help.push_str(&format!("; labels: {}", labels.join(", ")));
        }
        if !self.schema.attributes.is_empty() {
            let attributes: Vec<&str> = self.schema.attributes.keys().map(String::as_str).collect();
            help.push_str(&format!("; attributes: {}", attributes.join(", ")));
        }
        help
    }

    /// The node of a dataset column.
    pub(crate) fn column(&mut self, name: &str) -> Option<NodeId> {
        if !self.schema.columns.iter().any(|c| c == name) {
            return None;
        }
        let at = self.columns.iter().position(|c| c == name).unwrap_or_else(|| {
            self.columns.push(name.to_owned());
            self.columns.len() - 1
        });
        Some(self.leaf(Op::Column(at as u16), Kind::Num))
    }

    /// The node of an attribute of symbols.
    fn attribute(&mut self, name: &str) -> NodeId {
        let at = self.attributes.iter().position(|a| a == name).unwrap_or_else(|| {
            self.attributes.push(name.to_owned());
            self.attributes.len() - 1
        });
        self.leaf(Op::Attribute(at as u16), Kind::Num)
    }

    /// The mean of several columns.
    fn derived(&mut self, needs: &[&str]) -> Option<NodeId> {
        let mut sum = self.column(needs.first()?)?;
        for name in &needs[1..] {
            let next = self.column(name)?;
            sum = self.graph.add(Op::Binary(Binary::Add), &[sum, next], Kind::Num);
        }
        let divisor = self.graph.num(needs.len() as f64);
        Some(self.graph.add(Op::Binary(Binary::Divide), &[sum, divisor], Kind::Num))
    }

    fn named_let(&mut self, clause: Clause<'_>, name: &'a str, text: &'a str, span: &Span) -> Resolved<Value> {
        let key = (name, self.scope);
        match self.states.get(&key) {
            Some(Let::Done(value)) => return Ok(value.clone()),
            Some(Let::Broken) => return Err(Stop::Reported),
            Some(Let::Active) => {
                return Err(clause.mistake(
                    format!("'{name}' is defined by itself"),
                    span,
                    "a cycle",
                    Some("a let may use other lets, but not itself, and not by way of them".to_owned()),
                ));
            }
            _ => {}
        }
        self.states.insert(key, Let::Active);
        let clause_name = format!("let.{name}");
        let result = match parse_expression(&clause_name, text) {
            Ok(expr) => self.value(Clause { name: &clause_name, text }, &expr),
            Err(diagnostic) => Err(Stop::Mistake(diagnostic)),
        };
        match result {
            Ok(value) => {
                self.states.insert(key, Let::Done(value.clone()));
                Ok(value)
            }
            Err(stop) => {
                self.states.insert(key, Let::Broken);
                if let Stop::Mistake(diagnostic) = stop {
                    // A let used on several frames has its mistake on each.
                    if !self.diagnostics.contains(&diagnostic) {
                        self.diagnostics.push(*diagnostic);
                    }
                }
                Err(Stop::Reported)
            }
        }
    }

    pub(crate) fn let_text(&self, name: &str) -> Option<&str> {
        self.lets.get(name).map(String::as_str)
    }

    pub(crate) fn let_count(&self) -> usize {
        self.lets.len()
    }

    /// Resolves a let that no clause may have used, so that its mistakes are reported too.
    pub(crate) fn check_let(&mut self, name: &'a str) {
        if let Some((key, text)) = self.lets.get_key_value(name) {
            let nowhere = Clause { name: "let", text: "" };
            if self.states.keys().any(|(known, _)| known == key) {
                return;
            }
            if let Err(Stop::Mistake(diagnostic)) = self.named_let(nowhere, key, text, &(0..0)) {
                self.diagnostics.push(*diagnostic);
            }
        }
    }
}
