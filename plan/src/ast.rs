//! What the parser makes of a text: a tree with the place of every part. Names are not looked up here.

use std::ops::Range;

/// Byte range in the clause's text.
pub type Span = Range<usize>;

/// An expression and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    /// Height of the tree below and including this node; bounded while parsing.
    pub depth: usize,
}

/// The forms of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    Number(f64),
    /// A single-quoted string, without its quotes.
    Text(String),
    /// `true` or `false`.
    Truth(bool),
    Name(String),
    Call {
        name: String,
        name_span: Span,
        args: Vec<Arg>,
    },
    /// `expr.field`
    Field {
        of: Box<Expr>,
        field: String,
        field_span: Span,
    },
    /// `expr[bars]`
    Offset {
        of: Box<Expr>,
        bars: Box<Expr>,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    /// From the left: a run of one associative operator is one node however long it is, another operator has two operands.
    Binary {
        op: BinaryOp,
        operands: Vec<Expr>,
    },
    /// `label in ('a', 'b')`
    In {
        of: Box<Expr>,
        values: Vec<(String, Span)>,
    },
    /// `a < b <= c`: operands one more than operators.
    Chain {
        operands: Vec<Expr>,
        ops: Vec<CompareOp>,
    },
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    /// `name=` and its place.
    pub name: Option<(String, Span)>,
    pub value: Expr,
}

/// Operators of two operands other than comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
    Or,
    And,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl BinaryOp {
    /// Whether a run of it is one node. Operands are still taken from the left: adding rounds.
    pub(crate) fn runs(self) -> bool {
        match self {
            Self::Or | Self::And | Self::Add | Self::Multiply => true,
            Self::Subtract | Self::Divide | Self::Remainder => false,
        }
    }

    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Or => "or",
            Self::And => "and",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CompareOp {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

impl CompareOp {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// 1 ascending, -1 descending, 0 either.
    pub(crate) fn direction(self) -> i8 {
        match self {
            Self::Less | Self::LessEqual => 1,
            Self::Greater | Self::GreaterEqual => -1,
            Self::Equal | Self::NotEqual => 0,
        }
    }
}
