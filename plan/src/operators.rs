//! Operators: arithmetic, comparisons and their chains, words of the calendar beside numbers and texts, offsets.

use crate::ast::{BinaryOp, CompareOp, Expr, ExprKind, Span};
use crate::graph::{Binary, Kind, NodeId, Op};
use crate::limits::PERIOD_MAX;
use crate::resolve::{Clause, Resolved, Resolver, Stop};
use trawl_terms::Clock;

impl Resolver<'_> {
    pub(crate) fn binary(&mut self, clause: Clause<'_>, op: BinaryOp, operands: &[Expr]) -> Resolved<NodeId> {
        let (kind, primitive) = match op {
            BinaryOp::Or => (Kind::Bool, Op::Or),
            BinaryOp::And => (Kind::Bool, Op::And),
            BinaryOp::Add => (Kind::Num, Op::Binary(Binary::Add)),
            BinaryOp::Subtract => (Kind::Num, Op::Binary(Binary::Subtract)),
            BinaryOp::Multiply => (Kind::Num, Op::Binary(Binary::Multiply)),
            BinaryOp::Divide => (Kind::Num, Op::Binary(Binary::Divide)),
            BinaryOp::Remainder => (Kind::Num, Op::Binary(Binary::Remainder)),
        };
        let expected = format!("each side of '{}'", op.symbol());
        let mut all = None;
        for operand in operands {
            let one = self.typed(clause, operand, kind, &expected)?;
            all = Some(match all {
                None => one,
                Some(before) => self.graph.add(primitive, &[before, one], kind),
            });
        }
        all.ok_or(Stop::Reported)
    }

    pub(crate) fn chain(&mut self, clause: Clause<'_>, operands: &[Expr], ops: &[CompareOp]) -> Resolved<NodeId> {
        let mut nodes = Vec::with_capacity(operands.len());
        for operand in operands {
            let node = match &operand.kind {
                ExprKind::Text(text) => self.clock_text(clause, text, operand, operands)?,
                _ => None,
            };
            nodes.push(match node {
                Some(node) => node,
                None => self.typed(clause, operand, Kind::Num, "each side of a comparison")?,
            });
        }
        let mut all = None;
        for (i, op) in ops.iter().enumerate() {
            let is_equality = matches!(op, CompareOp::Equal | CompareOp::NotEqual);
            for (word, number) in [(i, i + 1), (i + 1, i)] {
                self.check_clock(clause, (nodes[word], nodes[number]), &operands[number].span, is_equality)?;
            }
            let one = self.graph.add(Op::Compare(*op), &[nodes[i], nodes[i + 1]], Kind::Bool);
            self.decisive.insert(one);
            all = Some(match all {
                None => one,
                Some(before) => self.graph.add(Op::And, &[before, one], Kind::Bool),
            });
        }
        all.ok_or(Stop::Reported)
    }

    /// A text beside a word of the calendar: `time_of_day < '10:30'`. `None` when there is no such word beside it.
    fn clock_text(
        &mut self,
        clause: Clause<'_>,
        text: &str,
        expr: &Expr,
        operands: &[Expr],
    ) -> Resolved<Option<NodeId>> {
        for other in operands.iter().filter(|other| !matches!(other.kind, ExprKind::Text(_))) {
            let node = self.series(clause, other)?;
            if matches!(self.graph.node(node).op, Op::Clock(_)) {
                return self.clock_number(clause, node, text, &expr.span).map(Some);
            }
        }
        Ok(None)
    }

    /// The number that a text means for a word of the calendar.
    pub(crate) fn clock_number(
        &mut self,
        clause: Clause<'_>,
        word: NodeId,
        text: &str,
        span: &Span,
    ) -> Resolved<NodeId> {
        let Op::Clock(clock) = self.graph.node(word).op else {
            let help = Some("numbers are compared with numbers".to_owned());
            return Err(clause.mistake("a number is compared with a string", span, "a string here", help));
        };
        match clock.number_of(text) {
            Ok(number) => Ok(self.graph.num(number)),
            Err(expected) => Err(clause.mistake(format!("'{text}' is not {expected}"), span, "not understood", None)),
        }
    }

    /// Refuses a number that a word of the calendar never is: other languages count days from 0, or write 930 for half past nine.
    pub(crate) fn check_clock(
        &self,
        clause: Clause<'_>,
        (word, number): (NodeId, NodeId),
        span: &Span,
        is_equality: bool,
    ) -> Resolved<()> {
        let Op::Clock(clock) = self.graph.node(word).op else { return Ok(()) };
        let (Some((name, range, expected)), Some(value)) = (clock.numbers(), self.graph.constant(number)) else {
            return Ok(());
        };
        let is_possible = range.contains(&value) && value.fract() == 0.0;
        // 'weekday < 8' has a meaning; a time beyond midnight is no time.
        let is_checked = is_equality || (clock == Clock::TimeOfDay && !range.contains(&value));
        if is_possible || !is_checked {
            return Ok(());
        }
        let help = Some(format!("{name} is {expected}"));
        Err(clause.mistake(format!("{name} is never {value}"), span, "never reached", help))
    }

    /// Whether two numbers are equal.
    pub(crate) fn equal(&mut self, one: NodeId, other: NodeId) -> NodeId {
        let test = self.graph.add(Op::Compare(CompareOp::Equal), &[one, other], Kind::Bool);
        self.decisive.insert(test);
        test
    }

    pub(crate) fn offset(&mut self, clause: Clause<'_>, of: &Expr, bars: &Expr) -> Resolved<NodeId> {
        let x = self.series(clause, of)?;
        let n = self.typed(clause, bars, Kind::Num, "an offset")?;
        let legal = self.graph.constant(n).filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= f64::from(PERIOD_MAX));
        let Some(n) = legal else {
            let help = match self.graph.constant(n) {
                Some(n) if n < 0.0 => "an offset looks back; no expression can look into the future".to_owned(),
                Some(_) => format!("a whole number of bars from 0 to {PERIOD_MAX}"),
                None => "the number of bars must be a constant".to_owned(),
            };
            return Err(clause.mistake(
                "this is no legal offset",
                &bars.span,
                "expected a constant number of bars",
                Some(help),
            ));
        };
        let kind = self.graph.node(x).kind;
        if n == 0.0 {
            return Ok(x);
        }
        Ok(self.graph.add(Op::Lag(n as u32), &[x], kind))
    }
}
