//! The reference's own expression tree, and its text form.

use std::fmt::Write as _;
use std::rc::Rc;

/// A shared expression: a let is one tree however often it is used.
pub type Node = Rc<Expr>;

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// Cross-sections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cross {
    Rank,
    Pct,
    Z,
    Demean,
    Top(u32),
    Quantile(f64),
    Breadth,
}

/// A call of a function over one symbol's bars.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: &'static str,
    /// As many as the function has; a missing one is the column that the function's signature names.
    pub series: Vec<(&'static str, Option<Node>)>,
    pub params: Vec<(&'static str, f64)>,
    /// `*matype` parameters with the average's name.
    pub averages: Vec<(&'static str, &'static str)>,
    pub field: Option<&'static str>,
    /// Written with names instead of places.
    pub by_name: bool,
}

impl Call {
    /// Whether a band's middle is asked for and is a simple mean.
    pub fn is_simple_middle(&self) -> bool {
        self.field.is_some_and(|field| field.starts_with("middle"))
            && self.averages.iter().all(|(_, name)| *name == "sma")
    }
}

/// An expression.
#[derive(Debug, Clone)]
pub enum Expr {
    /// Never negative: that is a `Negate`.
    Number(f64),
    Truth(bool),
    /// A column or `hl2`, `hlc3`, `ohlc4`.
    Name(&'static str),
    Let(String, Node),
    Negate(Node),
    Not(Node),
    And(Node, Node),
    Or(Node, Node),
    Arithmetic(Arithmetic, Node, Node),
    Chain(Vec<Node>, Vec<Compare>),
    Offset(Node, u32),
    /// `label == 'value'`, or `!=` when negated.
    LabelIs {
        label: &'static str,
        value: String,
        negated: bool,
    },
    LabelIn {
        label: &'static str,
        values: Vec<String>,
    },
    /// A label as a column of `select` or a key of `rank`: its value's place among all of them in order.
    LabelValue(&'static str),
    /// `x in (1, 2)`, or by names of a word of the calendar: `weekday in ('monday')`. None is negative.
    In {
        of: Node,
        values: Vec<f64>,
        names: Option<&'static [&'static str]>,
    },
    Call(Call),
    Ref {
        symbol: String,
        of: Node,
        asof: Option<u32>,
    },
    Week {
        of: Node,
        partial: bool,
    },
    Cross {
        kind: Cross,
        of: Node,
        by: Option<&'static str>,
        only: Option<Node>,
    },
}

impl Expr {
    /// Whether it is a condition.
    pub fn is_condition(&self) -> bool {
        match self {
            Self::Truth(_)
            | Self::Not(_)
            | Self::And(..)
            | Self::Or(..)
            | Self::Chain(..)
            | Self::LabelIs { .. }
            | Self::LabelIn { .. }
            | Self::In { .. } => true,
            Self::Let(_, of) | Self::Offset(of, _) | Self::Ref { of, .. } | Self::Week { of, .. } => of.is_condition(),
            Self::Call(call) => match call.name {
                "squeeze" => call.field != Some("momentum"),
                name => matches!(name, "crosses_above" | "crosses_below" | "within" | "streak"),
            },
            Self::Cross { kind, .. } => matches!(kind, Cross::Top(_)),
            _ => false,
        }
    }

    /// Whether it is the same number for every bar and symbol, so that a call accepts it as a parameter.
    pub fn is_constant(&self) -> bool {
        match self {
            Self::Number(_) | Self::Truth(_) => true,
            Self::Name(_) | Self::LabelIs { .. } | Self::LabelIn { .. } | Self::LabelValue(_) => false,
            // Whether calls of constants and cross-sections of them are constant is left undecided.
            _ => self.children().iter().all(|c| c.is_constant()) && !self.has_default_series(),
        }
    }

    fn has_default_series(&self) -> bool {
        matches!(self, Self::Call(call) if call.series.iter().any(|s| s.1.is_none()))
    }

    /// The expressions directly inside.
    pub fn children(&self) -> Vec<&Node> {
        match self {
            Self::Number(_)
            | Self::Truth(_)
            | Self::Name(_)
            | Self::LabelIs { .. }
            | Self::LabelIn { .. }
            | Self::LabelValue(_) => Vec::new(),
            Self::In { of, .. }
            | Self::Let(_, of)
            | Self::Negate(of)
            | Self::Not(of)
            | Self::Offset(of, _)
            | Self::Ref { of, .. }
            | Self::Week { of, .. } => vec![of],
            Self::And(a, b) | Self::Or(a, b) | Self::Arithmetic(_, a, b) => vec![a, b],
            Self::Chain(operands, _) => operands.iter().collect(),
            Self::Call(call) => call.series.iter().filter_map(|s| s.1.as_ref()).collect(),
            Self::Cross { of, only, .. } => std::iter::once(of).chain(only).collect(),
        }
    }

    /// Its precedence: loosest `or` 0, then and, not, comparison, sum, product, sign, postfix.
    fn level(&self) -> u8 {
        match self {
            Self::Or(..) => 0,
            Self::And(..) => 1,
            Self::Not(_) => 2,
            Self::Chain(..) | Self::LabelIs { .. } | Self::LabelIn { .. } | Self::In { .. } => 3,
            Self::Arithmetic(Arithmetic::Add | Arithmetic::Subtract, ..) => 4,
            Self::Arithmetic(..) => 5,
            Self::Negate(_) => 6,
            _ => 7,
        }
    }

    /// As a user would write it, with no more parentheses than the grammar needs.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write_at(&self, level: u8, out: &mut String) {
        if self.level() < level {
            out.push('(');
            self.write(out);
            out.push(')');
        } else {
            self.write(out);
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Number(n) => {
                let _ = write!(out, "{n}");
            }
            Self::Truth(t) => {
                let _ = write!(out, "{t}");
            }
            Self::Name(name) => out.push_str(name),
            Self::Let(name, _) => out.push_str(name),
            Self::Negate(of) => {
                out.push('-');
                of.write_at(6, out);
            }
            Self::Not(of) => {
                out.push_str("not ");
                of.write_at(2, out);
            }
            Self::And(a, b) => binary(out, a, " and ", b, 1),
            Self::Or(a, b) => binary(out, a, " or ", b, 0),
            Self::Arithmetic(op, a, b) => {
                let (sign, level) = match op {
                    Arithmetic::Add => (" + ", 4),
                    Arithmetic::Subtract => (" - ", 4),
                    Arithmetic::Multiply => ("*", 5),
                    Arithmetic::Divide => (" / ", 5),
                    Arithmetic::Remainder => (" % ", 5),
                };
                binary(out, a, sign, b, level);
            }
            Self::Chain(operands, ops) => {
                operands[0].write_at(4, out);
                for (op, operand) in ops.iter().zip(&operands[1..]) {
                    out.push_str(match op {
                        Compare::Less => " < ",
                        Compare::LessEqual => " <= ",
                        Compare::Greater => " > ",
                        Compare::GreaterEqual => " >= ",
                        Compare::Equal => " == ",
                        Compare::NotEqual => " != ",
                    });
                    operand.write_at(4, out);
                }
            }
            Self::Offset(of, bars) => {
                of.write_at(7, out);
                let _ = write!(out, "[{bars}]");
            }
            Self::LabelIs { label, value, negated } => {
                let _ = write!(out, "{label} {} '{value}'", if *negated { "!=" } else { "==" });
            }
            Self::LabelIn { label, values } => {
                let values: Vec<String> = values.iter().map(|v| format!("'{v}'")).collect();
                let _ = write!(out, "{label} in ({})", values.join(", "));
            }
            Self::LabelValue(label) => out.push_str(label),
            Self::In { of, values, names } => {
                of.write_at(4, out);
                let value = |value: &f64| match names {
                    Some(names) => format!("'{}'", names[*value as usize - 1]),
                    None => value.to_string(),
                };
                let values: Vec<String> = values.iter().map(value).collect();
                let _ = write!(out, " in ({})", values.join(", "));
            }
            Self::Call(call) => call.write(out),
            Self::Ref { symbol, of, asof } => {
                let _ = write!(out, "ref('{symbol}', {}", of.text());
                if let Some(bars) = asof {
                    let _ = write!(out, ", asof={bars}");
                }
                out.push(')');
            }
            Self::Week { of, partial } => {
                let _ = write!(out, "tf('1w', {}{})", of.text(), if *partial { ", partial=true" } else { "" });
            }
            Self::Cross { kind, of, by, only } => {
                let (name, parameter) = match kind {
                    Cross::Rank => ("xs_rank", None),
                    Cross::Pct => ("xs_pct", None),
                    Cross::Z => ("xs_z", None),
                    Cross::Demean => ("xs_demean", None),
                    Cross::Top(k) => ("xs_top", Some(f64::from(*k))),
                    Cross::Quantile(q) => ("xs_quantile", Some(*q)),
                    Cross::Breadth => ("breadth", None),
                };
                let _ = write!(out, "{name}({}", of.text());
                if let Some(parameter) = parameter {
                    let _ = write!(out, ", {parameter}");
                }
                if let Some(label) = by {
                    let _ = write!(out, ", by={label}");
                }
                if let Some(only) = only {
                    let _ = write!(out, ", where={}", only.text());
                }
                out.push(')');
            }
        }
    }
}

fn binary(out: &mut String, a: &Node, sign: &str, b: &Node, level: u8) {
    a.write_at(level, out);
    out.push_str(sign);
    b.write_at(level + 1, out);
}

impl Call {
    fn write(&self, out: &mut String) {
        let mut args: Vec<String> = Vec::new();
        for (name, series) in &self.series {
            if let Some(series) = series {
                args.push(if self.by_name { format!("{name}={}", series.text()) } else { series.text() });
            }
        }
        for (name, value) in &self.params {
            args.push(if self.by_name { format!("{name}={value}") } else { value.to_string() });
        }
        for (name, average) in &self.averages {
            args.push(format!("{name}='{average}'"));
        }
        let _ = write!(out, "{}({})", self.name, args.join(", "));
        if let Some(field) = self.field {
            let _ = write!(out, ".{field}");
        }
    }
}
