//! What the parser makes of a text: a tree with the place of every part. Names are not looked up here.

use std::ops::Range;
use std::sync::Arc;

/// Byte range in the clause's text.
pub type Span = Range<usize>;

/// An expression and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Its form, with its operands.
    pub kind: ExprKind,
    /// Its place in the clause, operands included.
    pub span: Span,
    /// Height of the tree below and including this node; bounded while parsing.
    pub depth: usize,
}

/// What a label or a number may be, after `in`.
#[derive(Debug, Clone, PartialEq)]
pub enum Member {
    /// Without quotes.
    Text(String),
    /// With its sign.
    Number(f64),
}

/// The forms of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A number as written, read as `f64`.
    Number(f64),
    /// A single-quoted string, without its quotes.
    Text(String),
    /// `true` or `false`.
    Truth(bool),
    /// A name without parentheses: a column, a constant, a `let` or a sweep's variable.
    Name(String),
    /// `name(args)`
    Call {
        /// As written.
        name: String,
        /// Place of the name alone.
        name_span: Span,
        /// As written, positional and named ones in order.
        args: Vec<Arg>,
    },
    /// `expr.field`
    Field {
        /// What the field is taken of: a call with several outputs.
        of: Box<Expr>,
        /// Name after the dot.
        field: String,
        /// Place of that name.
        field_span: Span,
    },
    /// `expr[bars]`
    Offset {
        /// The series that is shifted.
        of: Box<Expr>,
        /// How many bars back, not yet checked to be a whole constant.
        bars: Box<Expr>,
    },
    /// `-expr`
    Negate(Box<Expr>),
    /// `not expr`
    Not(Box<Expr>),
    /// From the left: a run of one associative operator is one node however long it is, another operator has two operands.
    Binary {
        /// The one operator between all operands.
        op: BinaryOp,
        /// At least two, from left to right.
        operands: Vec<Expr>,
    },
    /// `label in ('a', 'b')`, `number in (1, 2)`
    In {
        /// The label or the number.
        of: Box<Expr>,
        /// What it may be, each with its place.
        values: Vec<(Member, Span)>,
    },
    /// An argument in place of a parameter of a defined function. Not made by the parser.
    Argument(Arc<Argument>),
    /// `a < b <= c`: operands one more than operators.
    Chain {
        /// At least two, from left to right.
        operands: Vec<Expr>,
        /// `ops[i]` is between operands `i` and `i + 1`.
        ops: Vec<CompareOp>,
    },
}

/// Which defined functions a text is part of, from inside out.
#[derive(Debug, PartialEq)]
pub(crate) struct Calls {
    /// The innermost one.
    pub name: String,
    /// Those whose text calls it.
    pub outside: Option<Arc<Calls>>,
}

/// An argument that a defined function was called with, and where it is written.
#[derive(Debug, PartialEq)]
pub struct Argument {
    /// The argument.
    pub expr: Expr,
    /// Name of the clause that it is written in.
    pub clause: String,
    /// Text of that clause.
    pub text: String,
    /// The functions that the clause is the text of.
    pub(crate) calls: Option<Arc<Calls>>,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    /// `name=` and its place.
    pub name: Option<(String, Span)>,
    /// What is passed.
    pub value: Expr,
}

/// Operators of two operands other than comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
    /// `or`
    Or,
    /// `and`
    And,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
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
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
    /// `==`
    Equal,
    /// `!=`
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
