//! Tokens to a tree, by precedence climbing. Depth and length are bounded, so no input can exhaust the stack.

use crate::ast::{Arg, BinaryOp, CompareOp, Expr, ExprKind, Member, Span};
use crate::diagnostic::Diagnostic;
use crate::lex::{LexError, Token, TokenKind, lex};
use crate::limits::{CLAUSE_BYTES_MAX, EXPRESSION_DEPTH_MAX, LABEL_VALUES_MAX};
use trawl_terms::suggest;

/// What a message shows of a clause that is too long.
const SHOWN_BYTES: usize = 60;

/// Words with a meaning of their own; not usable as names.
pub(crate) const RESERVED: [&str; 9] = ["and", "or", "not", "as", "asc", "desc", "in", "true", "false"];

/// One element of `select` or `rank` after its expression: `as NAME`, `asc`, `desc` or nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Suffix {
    None,
    /// The name, and where it is written.
    As(String, Span),
    Ascending,
    Descending,
}

/// Parses a whole clause that is one expression.
pub(crate) fn parse_expression(clause: &str, text: &str) -> Result<Expr, Box<Diagnostic>> {
    let mut parser = Parser::new(clause, text)?;
    let expr = parser.expression(0)?;
    parser.end("an operator or the end")?;
    Ok(expr)
}

/// Parses `expr [as name]`.
pub(crate) fn parse_output(clause: &str, text: &str) -> Result<(Expr, Suffix), Box<Diagnostic>> {
    let mut parser = Parser::new(clause, text)?;
    let expr = parser.expression(0)?;
    let suffix = if parser.take_word("as") {
        let token = parser.next();
        match token.kind {
            TokenKind::Name(name) | TokenKind::Text(name) if !RESERVED.contains(&name.as_str()) && !name.is_empty() => {
                Suffix::As(name, token.span)
            }
            other => {
                return Err(parser.error(
                    format!("{} cannot be a column's name", other.describe()),
                    token.span,
                    "a name goes here",
                    Some("anything else goes between single quotes: close as 'last price'".to_owned()),
                ));
            }
        }
    } else {
        Suffix::None
    };
    parser.end("'as NAME' or the end")?;
    Ok((expr, suffix))
}

/// Parses `expr [asc|desc]{, expr [asc|desc]}`.
pub(crate) fn parse_rank(clause: &str, text: &str) -> Result<Vec<(Expr, Suffix)>, Box<Diagnostic>> {
    let mut parser = Parser::new(clause, text)?;
    let mut keys = Vec::new();
    loop {
        let expr = parser.expression(0)?;
        let suffix = if parser.take_word("asc") {
            Suffix::Ascending
        } else if parser.take_word("desc") {
            Suffix::Descending
        } else {
            Suffix::None
        };
        keys.push((expr, suffix));
        if !parser.take(",") {
            break;
        }
    }
    parser.end("'asc', 'desc', ',' or the end")?;
    Ok(keys)
}

struct Parser<'a> {
    clause: &'a str,
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn new(clause: &'a str, text: &'a str) -> Result<Self, Box<Diagnostic>> {
        let fail = |message: String, span: Span, help: Option<String>| {
            let (clause, text, label) = (clause.to_owned(), text.to_owned(), "here".to_owned());
            Box::new(Diagnostic { message, clause, text, span, label, help })
        };
        if text.len() > CLAUSE_BYTES_MAX {
            let message = format!("this clause has {} bytes; at most {CLAUSE_BYTES_MAX} are read", text.len());
            // Nobody wants all of it back in a message.
            let mut end = text.len().min(SHOWN_BYTES);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let mut diagnostic = fail(message, 0..end, Some("name parts with let".to_owned()));
            diagnostic.text.truncate(end);
            diagnostic.label = "begins here".to_owned();
            return Err(diagnostic);
        }
        let tokens = lex(text).map_err(|LexError { message, span, help }| fail(message, span, help))?;
        Ok(Self { clause, text, tokens, at: 0, nesting: 0 })
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn take(&mut self, mark: &str) -> bool {
        let hit = matches!(&self.peek().kind, TokenKind::Mark(m) if *m == mark);
        self.at += usize::from(hit);
        hit
    }

    fn take_word(&mut self, word: &str) -> bool {
        let hit = matches!(&self.peek().kind, TokenKind::Name(n) if n == word);
        self.at += usize::from(hit);
        hit
    }

    fn error(&self, message: String, span: Span, label: &str, help: Option<String>) -> Box<Diagnostic> {
        let (clause, text, label) = (self.clause.to_owned(), self.text.to_owned(), label.to_owned());
        Box::new(Diagnostic { message, clause, text, span, label, help })
    }

    fn end(&self, expected: &str) -> Result<(), Box<Diagnostic>> {
        let token = self.peek();
        if token.kind == TokenKind::End {
            return Ok(());
        }
        let help = match &token.kind {
            TokenKind::Mark("=") => Some("compare with '=='; '=' only names an argument inside a call".to_owned()),
            TokenKind::Name(word) => self.word_in_place(word, self.at + 1),
            TokenKind::Mark("(") => self.foreign_call(self.at),
            _ => None,
        };
        Err(self.error(token.kind.unexpected(), token.span.clone(), &format!("expected {expected}"), help))
    }

    /// What to write for a word where an operator or the end was expected; `next` is the token behind it.
    fn word_in_place(&self, written: &str, next: usize) -> Option<String> {
        let is_next = |word: &str| matches!(self.tokens.get(next).map(|token| &token.kind), Some(TokenKind::Name(n)) if n == word);
        match written.to_lowercase().as_str() {
            word if word != written && RESERVED.contains(&word) => Some(format!("write '{word}' in small letters")),
            "asc" | "desc" => Some("only the keys of rank are followed by 'asc' or 'desc'".to_owned()),
            "as" => Some("only the columns of select are named with 'as'".to_owned()),
            "not" if is_next("in") => Some("'not' is in front of the condition: not x in (1, 2)".to_owned()),
            "not" if is_next("between") => Some("write not (a <= x <= b)".to_owned()),
            "not" => Some("join conditions by 'and' or 'or' first: a and not b".to_owned()),
            word => crate::foreign::hint(word)
                .or_else(|| suggest(word, ["and", "or"]).map(|near| format!("did you mean '{near}'?"))),
        }
    }

    /// What to write for a call whose name, before the parenthesis at the token `open`, is written as a field: `ta.rsi(14)`.
    fn foreign_call(&self, open: usize) -> Option<String> {
        let name = |at: usize| match &self.tokens.get(at)?.kind {
            TokenKind::Name(name) => Some(name.as_str()),
            _ => None,
        };
        let is_dot = |at: usize| self.tokens.get(at).is_some_and(|token| token.kind == TokenKind::Mark("."));
        let mut at = open.checked_sub(1)?;
        let word = name(at)?;
        let mut before = Vec::new();
        while let Some(dot) = at.checked_sub(1).filter(|dot| is_dot(*dot)) {
            // What is no name, such as a call, ends the names.
            let Some(prefix) = dot.checked_sub(1).and_then(name) else {
                return Some(crate::foreign::qualified_hint(&before, word));
            };
            before.insert(0, prefix);
            at = dot - 1;
        }
        (!before.is_empty()).then(|| crate::foreign::qualified_hint(&before, word))
    }

    fn make(&self, kind: ExprKind, span: Span, depth: usize) -> Result<Expr, Box<Diagnostic>> {
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        Ok(Expr { kind, span, depth })
    }

    fn too_deep(&self, span: Span) -> Box<Diagnostic> {
        let start = span.start;
        self.error(
            format!("this expression is nested more than {EXPRESSION_DEPTH_MAX} deep"),
            start..span.end.min(start + 1),
            "begins here",
            Some("name parts of it with let".to_owned()),
        )
    }

    /// `min` is the loosest level still accepted: 0 or, 1 and, 2 not, 3 comparison, 4 sum, 5 product.
    fn expression(&mut self, min: u8) -> Result<Expr, Box<Diagnostic>> {
        self.nesting += 1;
        if self.nesting > EXPRESSION_DEPTH_MAX {
            return Err(self.too_deep(self.peek().span.clone()));
        }
        let result = self.expression_inner(min);
        self.nesting -= 1;
        result
    }

    fn expression_inner(&mut self, min: u8) -> Result<Expr, Box<Diagnostic>> {
        let mut left = if min <= 2 && matches!(&self.peek().kind, TokenKind::Name(n) if n == "not") {
            let start = self.next().span.start;
            let of = self.expression(2)?;
            let (span, depth) = (start..of.span.end, of.depth + 1);
            self.make(ExprKind::Not(Box::new(of)), span, depth)?
        } else {
            self.unary()?
        };
        loop {
            let (level, op) = match &self.peek().kind {
                TokenKind::Name(n) if n == "or" => (0, Some(BinaryOp::Or)),
                TokenKind::Name(n) if n == "and" => (1, Some(BinaryOp::And)),
                TokenKind::Name(n) if n == "in" && min <= 3 => {
                    self.next();
                    left = self.membership(left)?;
                    continue;
                }
                TokenKind::Mark(m) => match *m {
                    "+" => (4, Some(BinaryOp::Add)),
                    "-" => (4, Some(BinaryOp::Subtract)),
                    "*" => (5, Some(BinaryOp::Multiply)),
                    "/" => (5, Some(BinaryOp::Divide)),
                    "%" => (5, Some(BinaryOp::Remainder)),
                    m if compare_op(m).is_some() => (3, None),
                    _ => break,
                },
                _ => break,
            };
            if level < min {
                break;
            }
            left = match op {
                Some(op) => {
                    self.next();
                    let right = self.expression(level + 1)?;
                    self.binary(op, left, right)?
                }
                None => self.chain(left)?,
            };
        }
        Ok(left)
    }

    /// `left op right`; a run of one operator grows longer, not deeper.
    fn binary(&self, op: BinaryOp, left: Expr, right: Expr) -> Result<Expr, Box<Diagnostic>> {
        let span = left.span.start..right.span.end;
        let (operands, depth) = match left.kind {
            ExprKind::Binary { op: before, mut operands } if before == op && op.runs() => {
                let depth = left.depth.max(right.depth + 1);
                operands.push(right);
                (operands, depth)
            }
            kind => {
                let depth = left.depth.max(right.depth) + 1;
                (vec![Expr { kind, ..left }, right], depth)
            }
        };
        self.make(ExprKind::Binary { op, operands }, span, depth)
    }

    fn chain(&mut self, first: Expr) -> Result<Expr, Box<Diagnostic>> {
        let mut operands = vec![first];
        let mut ops: Vec<CompareOp> = Vec::new();
        let mut direction = 0;
        while let TokenKind::Mark(m) = &self.peek().kind {
            let Some(op) = compare_op(m) else { break };
            let span = self.next().span;
            // What is before is in order already: the last direction tells them all, and a `!=` is alone.
            let mixed = direction * op.direction() < 0;
            if !ops.is_empty() && (mixed || op == CompareOp::NotEqual || ops[0] == CompareOp::NotEqual) {
                return Err(self.error(
                    "a chain of comparisons goes in one direction only, and without '!='".to_owned(),
                    span,
                    "breaks the chain",
                    Some("write two comparisons joined by 'and'".to_owned()),
                ));
            }
            direction = if op.direction() == 0 { direction } else { op.direction() };
            ops.push(op);
            operands.push(self.expression(4)?);
        }
        let span = operands[0].span.start..operands[operands.len() - 1].span.end;
        // A chain lowers to a chain of `and`s, one level an operator.
        let depth = operands.iter().map(|o| o.depth).max().unwrap_or(0) + ops.len();
        self.make(ExprKind::Chain { operands, ops }, span, depth)
    }

    /// `of in ('a', 'b')`, `of in (1, 2)`, after `in`.
    fn membership(&mut self, of: Expr) -> Result<Expr, Box<Diagnostic>> {
        let help = || Some("write label in ('A', 'B'), or number in (1, 2)".to_owned());
        let open = self.next();
        if open.kind != TokenKind::Mark("(") {
            return Err(self.error(open.kind.unexpected(), open.span, "expected '(' and strings or numbers", help()));
        }
        let mut values = Vec::new();
        loop {
            let mut token = self.next();
            let start = token.span.start;
            let negative = token.kind == TokenKind::Mark("-");
            if negative {
                token = self.next();
            }
            let member = match token.kind {
                TokenKind::Text(value) if !negative => Member::Text(value),
                TokenKind::Number(value) => Member::Number(if negative { -value } else { value }),
                kind => return Err(self.error(kind.unexpected(), token.span, "expected a string or a number", help())),
            };
            values.push((member, start..token.span.end));
            if values.len() > LABEL_VALUES_MAX {
                let message = format!("more than {LABEL_VALUES_MAX} values after 'in'; at most that many are taken");
                return Err(self.error(message, token.span, "one too many", None));
            }
            let token = self.next();
            match token.kind {
                TokenKind::Mark(")") => {
                    // It lowers to a chain of `or`s, one level a value.
                    let (span, depth) = (of.span.start..token.span.end, of.depth + 1);
                    return self.make(ExprKind::In { of: Box::new(of), values }, span, depth);
                }
                TokenKind::Mark(",") => {}
                _ => return Err(self.unclosed(&token, open.span)),
            }
        }
    }

    fn unary(&mut self) -> Result<Expr, Box<Diagnostic>> {
        let mut signs = Vec::new();
        while matches!(&self.peek().kind, TokenKind::Mark("-" | "+")) {
            let token = self.next();
            if token.kind == TokenKind::Mark("-") {
                signs.push(token.span.start);
            }
        }
        let mut expr = self.postfix()?;
        for start in signs.into_iter().rev() {
            let (span, depth) = (start..expr.span.end, expr.depth + 1);
            expr = match expr.kind {
                ExprKind::Number(n) => Expr { kind: ExprKind::Number(-n), span, depth: expr.depth },
                kind => {
                    let inner = Expr { kind, span: expr.span, depth: expr.depth };
                    self.make(ExprKind::Negate(Box::new(inner)), span, depth)?
                }
            };
        }
        Ok(expr)
    }

    fn postfix(&mut self) -> Result<Expr, Box<Diagnostic>> {
        let mut expr = self.primary()?;
        loop {
            if self.take(".") {
                let token = self.next();
                let TokenKind::Name(field) = token.kind else {
                    return Err(self.error(
                        token.kind.unexpected(),
                        token.span,
                        "expected the name of an output",
                        Some("such as macd().line".to_owned()),
                    ));
                };
                let (span, depth) = (expr.span.start..token.span.end, expr.depth + 1);
                expr = self.make(ExprKind::Field { of: Box::new(expr), field, field_span: token.span }, span, depth)?;
            } else if self.take("[") {
                let open = self.tokens[self.at - 1].span.start;
                let bars = self.expression(0)?;
                let close = self.next();
                if close.kind != TokenKind::Mark("]") {
                    let help = Some(format!("the bracket at column {} is still open", open + 1));
                    return Err(self.error(close.kind.unexpected(), close.span, "expected ']'", help));
                }
                let (span, depth) = (expr.span.start..close.span.end, expr.depth.max(bars.depth) + 1);
                expr = self.make(ExprKind::Offset { of: Box::new(expr), bars: Box::new(bars) }, span, depth)?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, Box<Diagnostic>> {
        let token = self.next();
        let span = token.span.clone();
        let leaf = |kind| Ok(Expr { kind, span: token.span.clone(), depth: 1 });
        match token.kind {
            TokenKind::Number(n) => leaf(ExprKind::Number(n)),
            TokenKind::Text(ref t) => leaf(ExprKind::Text(t.clone())),
            TokenKind::Mark("(") => {
                let inner = self.expression(0)?;
                let close = self.next();
                if close.kind != TokenKind::Mark(")") {
                    return Err(self.unclosed(&close, span));
                }
                Ok(Expr { span: span.start..close.span.end, ..inner })
            }
            TokenKind::Name(ref n) if n == "true" || n == "false" => leaf(ExprKind::Truth(n == "true")),
            TokenKind::Name(ref n) if RESERVED.contains(&n.as_str()) => {
                Err(self.error(format!("'{n}' cannot stand here"), span, "expected a value", None))
            }
            TokenKind::Name(name) => {
                if !self.take("(") {
                    return Ok(Expr { kind: ExprKind::Name(name), span, depth: 1 });
                }
                let open = self.tokens[self.at - 1].span.clone();
                let (args, end) = self.arguments(&open)?;
                let depth = args.iter().map(|a: &Arg| a.value.depth).max().unwrap_or(0) + 1;
                self.make(ExprKind::Call { name, name_span: span.clone(), args }, span.start..end, depth)
            }
            other => Err(self.error(other.unexpected(), span, "expected a value", None)),
        }
    }

    fn unclosed(&self, at: &Token, open: Span) -> Box<Diagnostic> {
        let help = match &at.kind {
            TokenKind::Mark("=") => Some("compare with '=='".to_owned()),
            // That token has been taken.
            TokenKind::Name(word) => self.word_in_place(word, self.at),
            TokenKind::Mark("(") => self.at.checked_sub(1).and_then(|here| self.foreign_call(here)),
            _ => None,
        };
        let help = help.unwrap_or_else(|| format!("the parenthesis at column {} is still open", open.start + 1));
        self.error(at.kind.unexpected(), at.span.clone(), "expected ')' or ','", Some(help))
    }

    fn arguments(&mut self, open: &Span) -> Result<(Vec<Arg>, usize), Box<Diagnostic>> {
        let mut args = Vec::new();
        if matches!(self.peek().kind, TokenKind::Mark(")")) {
            return Ok((args, self.next().span.end));
        }
        loop {
            let named = matches!(&self.peek().kind, TokenKind::Name(_))
                && matches!(self.tokens.get(self.at + 1).map(|t| &t.kind), Some(TokenKind::Mark("=")));
            let name = if named {
                let token = self.next();
                self.next();
                match token.kind {
                    TokenKind::Name(n) => Some((n, token.span)),
                    _ => None,
                }
            } else {
                None
            };
            args.push(Arg { name, value: self.expression(0)? });
            let token = self.next();
            match token.kind {
                TokenKind::Mark(")") => return Ok((args, token.span.end)),
                TokenKind::Mark(",") => {}
                _ => return Err(self.unclosed(&token, open.clone())),
            }
        }
    }
}

fn compare_op(mark: &str) -> Option<CompareOp> {
    Some(match mark {
        "<" => CompareOp::Less,
        "<=" => CompareOp::LessEqual,
        ">" => CompareOp::Greater,
        ">=" => CompareOp::GreaterEqual,
        "==" => CompareOp::Equal,
        "!=" => CompareOp::NotEqual,
        _ => return None,
    })
}
