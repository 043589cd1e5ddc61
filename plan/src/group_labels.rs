//! Conditions on labels: `sector == 'Tech'`, `sector != 'Tech'`, `sector in ('Tech', 'Energy')`.

use crate::ast::{CompareOp, Expr, ExprKind, Member, Span};
use crate::frame::{LabelTest, SYMBOL_LABEL};
use crate::graph::{Kind, NodeId, Op};
use crate::lex::quoted;
use crate::resolve::{Clause, Resolver, Stop, Value};
use trawl_terms::suggest;

type Resolved<T> = Result<T, Stop>;

/// Label values that a message lists.
const VALUES_LISTED_MAX: usize = 12;

impl Resolver<'_> {
    /// A comparison of a label with a string; `None` when neither side is a label.
    pub(crate) fn label_comparison(
        &mut self,
        clause: Clause<'_>,
        operands: &[Expr],
        ops: &[CompareOp],
    ) -> Resolved<Option<NodeId>> {
        let Some(at) = operands.iter().position(|o| self.is_label(o)) else { return Ok(None) };
        let Value::Label(label) = self.value(clause, &operands[at])? else { return Ok(None) };
        let span = operands[0].span.start..operands[operands.len() - 1].span.end;
        let example = self.example(&label);
        let ([op @ (CompareOp::Equal | CompareOp::NotEqual)], [_, _]) = (ops, operands) else {
            let message = format!("the label '{label}' takes only '==', '!=' and 'in'");
            return Err(clause.mistake(message, &span, "this comparison", Some(example)));
        };
        let other = &operands[1 - at];
        let ExprKind::Text(value) = &other.kind else {
            let message = format!("the label '{label}' is compared with a string");
            return Err(clause.mistake(message, &other.span, "expected a string", Some(example)));
        };
        let test = self.label_test(clause, &label, value, &other.span)?;
        Ok(Some(match op {
            CompareOp::NotEqual => self.graph.add(Op::Not, &[test], Kind::Bool),
            _ => test,
        }))
    }

    /// `label in ('a', 'b')`, `number in (1, 2)`: as the comparisons with '==', joined by 'or'.
    pub(crate) fn membership(&mut self, clause: Clause<'_>, of: &Expr, values: &[(Member, Span)]) -> Resolved<NodeId> {
        let of = match self.value(clause, of)? {
            Value::Label(label) => Err(label),
            _ => Ok(self.typed(clause, of, Kind::Num, "what 'in' follows")?),
        };
        let mut any = None;
        for (member, span) in values {
            let test = match (&of, member) {
                (Err(label), Member::Text(value)) => self.label_test(clause, label, value, span)?,
                (Err(label), Member::Number(_)) => {
                    let message = format!("the label '{label}' is compared with strings");
                    return Err(clause.mistake(message, span, "expected a string", Some(self.example(label))));
                }
                (Ok(number), Member::Number(value)) => {
                    let value = self.graph.num(*value);
                    self.check_clock(clause, (*number, value), span, true)?;
                    self.equal(*number, value)
                }
                (Ok(number), Member::Text(text)) => {
                    let value = self.clock_number(clause, *number, text, span)?;
                    self.equal(*number, value)
                }
            };
            any = Some(match any {
                None => test,
                Some(before) => self.graph.add(Op::Or, &[before, test], Kind::Bool),
            });
        }
        any.ok_or(Stop::Reported)
    }

    /// The name of a label that groups a cross-section.
    pub(crate) fn label_name(&mut self, clause: Clause<'_>, expr: &Expr) -> Resolved<String> {
        match &expr.kind {
            ExprKind::Name(_) => match self.value(clause, expr)? {
                Value::Label(label) if label == SYMBOL_LABEL => {
                    let message = "every symbol would be a group of its own";
                    return Err(clause.mistake(message, &expr.span, "not a label of groups", None));
                }
                Value::Label(label) => return Ok(label),
                _ => {}
            },
            ExprKind::Text(text) if self.schema.labels.contains_key(text) => {
                let help = Some(format!("write it without quotes: by={text}"));
                return Err(clause.mistake("'by' takes a label, not a string", &expr.span, "a string here", help));
            }
            _ => {}
        }
        let labels: Vec<&str> = self.schema.labels.keys().map(String::as_str).collect();
        let help = match labels.is_empty() {
            true => "this dataset has no labels; 'trawl data import --symbols' adds them".to_owned(),
            false => format!("labels: {}", labels.join(", ")),
        };
        Err(clause.mistake("'by' takes the name of a label", &expr.span, "this is no label", Some(help)))
    }

    fn is_label(&self, expr: &Expr) -> bool {
        // Through a let, too: `let s = "sector"`.
        let mut name = match &expr.kind {
            ExprKind::Name(name) => name.as_str(),
            _ => return false,
        };
        // As many steps as there are lets: a longer way is a cycle, which is reported elsewhere.
        for _ in 0..=self.let_count() {
            match self.let_text(name) {
                Some(text) => name = text.trim(),
                None => return self.is_label_name(name) && !self.schema.columns.iter().any(|c| c == name),
            }
        }
        false
    }

    /// Whether `name` is a label, or the word for the symbol's own name.
    pub(crate) fn is_label_name(&self, name: &str) -> bool {
        self.schema.labels.contains_key(name) || (name == SYMBOL_LABEL && self.schema.directory.is_some())
    }

    /// The node of a test of the symbol's own name.
    fn symbol_test(&mut self, clause: Clause<'_>, name: &str, span: &Span) -> Resolved<NodeId> {
        let Some(directory) = &self.schema.directory else { return Err(Stop::Reported) };
        match directory.symbol(name) {
            Ok(symbol) => Ok(self.test_node(SYMBOL_LABEL, &symbol)),
            Err(near) => {
                let help = near.map(|near| format!("did you mean '{near}'?"));
                Err(clause.mistake(format!("this dataset has no symbol '{name}'"), span, "no such symbol", help))
            }
        }
    }

    fn label_test(&mut self, clause: Clause<'_>, label: &str, value: &str, span: &Span) -> Resolved<NodeId> {
        if label == SYMBOL_LABEL && !self.schema.labels.contains_key(SYMBOL_LABEL) {
            return self.symbol_test(clause, value, span);
        }
        let known = self.schema.labels.get(label).map_or(&[][..], Vec::as_slice);
        if !known.iter().any(|k| k == value) {
            let listed: Vec<String> = known.iter().take(VALUES_LISTED_MAX).map(|k| quoted(k)).collect();
            let more = if known.len() > VALUES_LISTED_MAX { ", ..." } else { "" };
            let help = match suggest(value, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None => format!("values of {label}: {}{more}", listed.join(", ")),
            };
            return Err(clause.mistake(format!("no symbol's {label} is '{value}'"), span, "no such value", Some(help)));
        }
        Ok(self.test_node(label, value))
    }

    fn test_node(&mut self, label: &str, value: &str) -> NodeId {
        let at = self.label_at(LabelTest { label: label.to_owned(), value: Some(value.to_owned()) });
        self.leaf(Op::Label(at), Kind::Bool)
    }

    /// The node of the number of a label's value: a column of texts.
    pub(crate) fn label_number(&mut self, label: &str) -> NodeId {
        let at = self.label_at(LabelTest { label: label.to_owned(), value: None });
        self.leaf(Op::Label(at), Kind::Num)
    }

    fn label_at(&mut self, test: LabelTest) -> u16 {
        let at = self.labels.iter().position(|t| *t == test).unwrap_or_else(|| {
            self.labels.push(test);
            self.labels.len() - 1
        });
        at as u16
    }

    fn example(&self, label: &str) -> String {
        if label == SYMBOL_LABEL && !self.schema.labels.contains_key(SYMBOL_LABEL) {
            return "write symbol == 'AAPL' or symbol in ('AAPL', ...)".to_owned();
        }
        let value = self.schema.labels.get(label).and_then(|v| v.first()).map_or("...", String::as_str);
        let value = quoted(value);
        format!("write {label} == {value} or {label} in ({value}, ...)")
    }
}
