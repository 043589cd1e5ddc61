//! Random scans over the whole grammar, typed so that they are valid.

use std::rc::Rc;

use super::answer::{Limit, Scan};
use super::evaluate::{SYMBOL, UNBOUNDED};
use super::expression::{Arithmetic, Call, Compare, Cross, Expr, Node};
use super::market::{Clock, Market};
use super::minimise::map_children;
use super::random::Random;
use super::shapes::{INDICATORS, RECURSIVE, SHORT, Shape};

/// Which parts of the language may be used.
#[derive(Debug, Clone, Copy)]
pub struct Grammar {
    /// `ref`, `tf`, `xs_*`, `breadth`, labels.
    pub frames: bool,
    /// `iff`, `nz`, `zscore`, `percentrank`, `correl`, `median`, `alma`, `valuewhen`, `weekday`, `month`.
    pub helpers: bool,
    /// Windows only: no function that depends on bars before every window.
    pub finite: bool,
    /// Attributes, functions of `[def]`, words of the session, averages since its open, columns of labels and dates; adjusted scans, scans
    /// of longer bars, and scans with a limited history: of windows, and of functions that never forget, with an origin.
    pub mixed: bool,
}

/// The values that labels take.
pub const LABELS: [(&str, &[&str]); 2] = [("sector", &["Tech", "Energy", "Banks"]), ("size", &["big", "small"])];

/// Attributes, as the market's generator has them.
const ATTRIBUTES: [&str; 3] = ["cap", "days_to(earnings)", "days_since(earnings)"];
/// Words of the session that daily bars have.
const SESSION: [&str; 7] = [
    "session.open",
    "session.high",
    "session.low",
    "prev_session.open",
    "prev_session.high",
    "prev_session.low",
    "prev_session.close",
];
/// Words that bars within a day have besides: of the clock, and of the session, which never forget.
const CLOCK: [&str; 3] = ["minutes_since_open", "minutes_to_close", "time_of_day"];
const WITHIN_SESSION: [&str; 4] =
    ["session_bar", "opening_range(5).high", "opening_range(30).high", "opening_range(30).low"];
/// Averages since the session's open, which never forget.
const SINCE_OPEN: [&str; 4] =
    ["avwap('session')", "avwap_bands('session').u1", "avwap_bands('session').l2", "avwap_bands('session').u3"];
/// Names of the words of the calendar.
const WEEKDAYS: &[&str] = &["monday", "tuesday", "wednesday", "thursday", "friday"];
const MONTHS: &[&str] = &["january", "february", "march", "april", "may", "june"];
/// The parameter of a function.
const PARAMETER: &str = "p";

const COMPARES: [Compare; 6] =
    [Compare::Less, Compare::LessEqual, Compare::Greater, Compare::GreaterEqual, Compare::Equal, Compare::NotEqual];

/// Makes scans.
pub struct Generator<'r> {
    random: &'r mut Random,
    grammar: Grammar,
    /// Whether functions that never forget have an origin to begin at.
    origin: bool,
    symbols: Vec<String>,
    /// Whether bars are within a day.
    of_minutes: bool,
    lets: Vec<(String, Node)>,
    /// Functions of one parameter: their name, and their text, in which [`PARAMETER`] is it.
    defs: Vec<(String, Node)>,
    /// Whether every clause means longer bars.
    of_weeks: bool,
    /// Inside `tf`, where another `tf` is illegal.
    in_week: bool,
    /// Inside a forming `tf`, where nothing but the symbol's own bars is legal.
    in_forming: bool,
}

/// A random scan for a market with these symbols.
pub fn scan(random: &mut Random, grammar: Grammar, market: &Market) -> Scan {
    let symbols = market.symbols.iter().map(|s| s.name.clone()).collect();
    let adjust = if grammar.mixed && random.once_in(3) { Some(random.once_in(2)) } else { None };
    let history = if grammar.mixed && random.once_in(4) {
        Some(Limit { bars: random.pick(&[1, 2, 5, 30, 200]), origin: random.once_in(2) })
    } else {
        None
    };
    let of_weeks = grammar.mixed && history.is_none() && random.once_in(8);
    let grammar = Grammar { finite: grammar.finite || history.is_some(), ..grammar };
    let origin = history.is_some_and(|limit| limit.origin);
    let mut g = Generator {
        random,
        grammar,
        origin,
        symbols,
        of_minutes: market.clock == Clock::Minutes,
        lets: Vec::new(),
        defs: Vec::new(),
        of_weeks,
        in_week: of_weeks,
        in_forming: false,
    };
    for i in 0..g.random.below(4) {
        let depth = g.random.between(1, 2) as u32;
        let node = if g.random.once_in(3) { g.condition(depth) } else { g.number(depth) };
        g.lets.push((format!("v{i}"), node));
    }
    if grammar.mixed && g.random.once_in(3) {
        let body = if g.random.once_in(3) { g.condition(2) } else { g.number(2) };
        // Somewhere it has the parameter.
        let column = Rc::new(Expr::Name(g.random.pick(&["close", "high", "open"])));
        let body = replaced(&body, &column, &(Rc::new(Expr::Name(PARAMETER)) as Node));
        g.defs.push(("f0".to_owned(), body));
    }
    let universe = g.random.once_in(2).then(|| {
        let depth = g.random.between(0, 2) as u32;
        g.condition(depth)
    });
    let depth = g.random.between(1, 3) as u32;
    // Values are reported for matches only, so half of the scans match everywhere.
    let condition = if g.random.once_in(2) { Rc::new(Expr::Truth(true)) } else { g.condition(depth) };
    let rank = (0..g.random.below(3)).map(|_| (g.shown(2), g.random.once_in(2))).collect();
    let limit = g.random.once_in(3).then(|| g.random.between(1, 5) as u32);
    let select =
        (0..g.random.between(1, 3)).map(|_| if g.random.once_in(4) { g.condition(3) } else { g.shown(3) }).collect();
    let defs = g.defs.iter().map(|(name, body)| (format!("{name}({PARAMETER})"), body.text())).collect();
    let (lets, random) = (g.lets, g.random);
    // Weekends are longer than a day.
    let max_age = (grammar.mixed && random.once_in(4)).then(|| random.between(1, 9) as i64);
    Scan { universe, condition, rank, limit, select, lets, defs, adjust, history, max_age, timeframe: of_weeks }
}

/// An expression with another one in place of a name.
fn replaced(node: &Node, name: &Node, by: &Node) -> Node {
    match (&**node, &**name) {
        (Expr::Name(one), Expr::Name(other)) if one == other => Rc::clone(by),
        // Its text is elsewhere.
        (Expr::Let(..), _) => Rc::clone(node),
        _ => Rc::new(map_children(node, &mut |child| replaced(child, name, by))),
    }
}

/// `number`, or beside a word of the calendar one that this word may be: others are refused.
fn possible(number: &Node, beside: &Node) -> Node {
    let mut word = beside;
    while let Expr::Let(_, of) = &**word {
        word = of;
    }
    let is_word = matches!(&**word, Expr::Name("weekday" | "month" | "time_of_day"));
    if is_word && number.is_constant() { Rc::new(Expr::Number(3.0)) } else { Rc::clone(number) }
}

impl Generator<'_> {
    /// Whether functions that never forget are legal here although the history is limited.
    fn may_begin(&self) -> bool {
        self.origin && !self.in_forming
    }

    fn number(&mut self, depth: u32) -> Node {
        Rc::new(self.number_expr(depth))
    }

    /// A column of `select` or a key of `rank`: a number, or a text or a date, which are nothing else.
    fn shown(&mut self, depth: u32) -> Node {
        if !self.grammar.mixed || !self.random.once_in(10) {
            return self.number(depth);
        }
        Rc::new(match self.random.below(3) {
            0 if !self.of_minutes => Expr::Name("earnings"),
            _ => Expr::LabelValue(self.random.pick(&LABELS).0),
        })
    }

    /// A number that is not a constant.
    fn series(&mut self, depth: u32) -> Node {
        let node = self.number(depth);
        if node.is_constant() { self.column() } else { node }
    }

    fn column(&mut self) -> Node {
        let mut names = vec!["open", "high", "low", "close", "close", "volume", "hl2", "hlc3", "ohlc4"];
        if self.grammar.helpers && !self.in_week && !self.in_forming && self.random.once_in(12) {
            names = vec!["weekday", "month"];
            if self.grammar.mixed {
                names.extend(ATTRIBUTES);
                if !self.grammar.finite {
                    names.extend(SESSION);
                    names.extend(SINCE_OPEN);
                }
                if self.of_minutes {
                    names.extend(CLOCK);
                    names.extend(WITHIN_SESSION.iter().filter(|_| !self.grammar.finite));
                }
            }
        }
        Rc::new(Expr::Name(self.random.pick(&names)))
    }

    fn constant(&mut self) -> Expr {
        Expr::Number(self.random.pick(&[0.0, 0.5, 1.0, 2.0, 3.0, 9.5, 10.0, 50.0, 100.0]))
    }

    fn named(&mut self, condition: bool) -> Option<Node> {
        // A let may contain what is illegal inside a week.
        if self.in_week && !self.of_weeks || self.in_forming {
            return None;
        }
        if !self.defs.is_empty() && self.random.once_in(2) {
            let (name, body) = self.random.pick(&self.defs.clone());
            if body.is_condition() == condition {
                // Compared with numbers that a word of the calendar never is.
                let argument = match self.column() {
                    of if matches!(&*of, Expr::Name("weekday" | "month" | "time_of_day")) => {
                        Rc::new(Expr::Name("close"))
                    }
                    of => of,
                };
                let parameter: Node = Rc::new(Expr::Name(PARAMETER));
                let value = replaced(&body, &parameter, &argument);
                return Some(Rc::new(Expr::Let(format!("{name}({})", argument.text()), value)));
            }
        }
        let fitting: Vec<_> = self.lets.iter().filter(|l| l.1.is_condition() == condition).cloned().collect();
        if fitting.is_empty() {
            return None;
        }
        let (name, node) = self.random.pick(&fitting);
        Some(Rc::new(Expr::Let(name, node)))
    }

    fn number_expr(&mut self, depth: u32) -> Expr {
        if depth == 0 || self.random.once_in(6) {
            if self.random.once_in(4) {
                return self.constant();
            }
            if self.random.once_in(4)
                && let Some(node) = self.named(false)
            {
                return (*node).clone();
            }
            return (*self.column()).clone();
        }
        let below = depth - 1;
        match self.random.below(if self.grammar.frames { 17 } else { 12 }) {
            0 | 1 => {
                let ops = [
                    Arithmetic::Add,
                    Arithmetic::Subtract,
                    Arithmetic::Multiply,
                    Arithmetic::Divide,
                    Arithmetic::Remainder,
                ];
                Expr::Arithmetic(self.random.pick(&ops), self.number(below), self.series(below))
            }
            2 => Expr::Negate(self.series(below)),
            3 => Expr::Offset(self.series(below), self.random.pick(&[0, 1, 1, 2, 5])),
            4 => self.element_wise(below),
            5..=8 => self.indicator(below),
            9 => self.of_condition(below),
            10 | 11 => self.window(below),
            12 => self.reference(below, false),
            13 => self.week(below, false),
            _ => self.cross(below, false),
        }
    }

    fn condition(&mut self, depth: u32) -> Node {
        Rc::new(self.condition_expr(depth))
    }

    fn condition_expr(&mut self, depth: u32) -> Expr {
        if depth == 0 || self.random.once_in(4) {
            if self.grammar.frames && !self.in_forming && self.random.once_in(5) {
                return self.label_test();
            }
            if self.random.once_in(4)
                && let Some(node) = self.named(true)
            {
                return (*node).clone();
            }
            return self.comparison(depth);
        }
        let below = depth - 1;
        match self.random.below(if self.grammar.frames { 16 } else { 12 }) {
            0 | 1 => Expr::And(self.condition(below), self.condition(below)),
            2 | 3 => Expr::Or(self.condition(below), self.condition(below)),
            4 => Expr::Not(self.condition(below)),
            5 => Expr::Offset(self.condition(below), self.random.pick(&[0, 1, 2])),
            6 if self.random.once_in(4) => Expr::Call(Call {
                name: "squeeze",
                series: ["high", "low", "close"].map(|name| (name, None)).to_vec(),
                params: vec![("timeperiod", self.random.pick(SHORT)), ("nbdev", 2.0), ("multiplier", 1.5)],
                averages: Vec::new(),
                field: Some(self.random.pick(&["on", "fired"])),
                by_name: self.random.once_in(3),
            }),
            6 | 7 => {
                let name = self.random.pick(&["crosses_above", "crosses_below"]);
                let b = if self.random.once_in(3) { Rc::new(self.constant()) } else { self.series(below) };
                let a = self.series(below);
                self.call(name, vec![("a", Some(a)), ("b", Some(b))], vec![])
            }
            8 | 9 => {
                let n = self.random.between(1, 5) as f64;
                let c = self.condition(below);
                let name = self.random.pick(&["within", "streak"]);
                self.call(name, vec![("c", Some(c))], vec![("n", n)])
            }
            12 => self.reference(below, true),
            13 => self.week(below, true),
            14 | 15 => self.cross(below, true),
            _ => self.comparison(depth),
        }
    }

    fn comparison(&mut self, depth: u32) -> Expr {
        let below = depth.saturating_sub(1);
        if self.random.once_in(5) {
            let up = self.random.once_in(2);
            let strict = if up { Compare::Less } else { Compare::Greater };
            let loose = if up { Compare::LessEqual } else { Compare::GreaterEqual };
            let operands = vec![self.number(below), self.series(below), self.series(below)];
            return Expr::Chain(operands, vec![strict, loose]);
        }
        let (a, b) = (self.series(below), self.number(below));
        let (a, b) = (possible(&a, &b), possible(&b, &a));
        Expr::Chain(vec![a, b], vec![self.random.pick(&COMPARES)])
    }

    fn label_test(&mut self) -> Expr {
        if self.grammar.helpers && self.random.once_in(4) {
            return self.membership();
        }
        if self.random.once_in(4) {
            let mut names: Vec<String> =
                (0..self.random.between(1, 3)).map(|_| self.random.pick(&self.symbols.clone())).collect();
            return match self.random.below(3) {
                0 => Expr::LabelIs { label: SYMBOL, value: names.remove(0), negated: self.random.once_in(2) },
                _ => Expr::LabelIn { label: SYMBOL, values: names },
            };
        }
        let (label, values) = self.random.pick(&LABELS);
        let value = self.random.pick(values).to_owned();
        match self.random.below(3) {
            0 => Expr::LabelIs { label, value, negated: true },
            1 => Expr::LabelIs { label, value, negated: false },
            _ => {
                let mut both = vec![value, values[0].to_owned()];
                both.dedup();
                Expr::LabelIn { label, values: both }
            }
        }
    }

    /// `x in (...)`, over numbers and words of the calendar.
    fn membership(&mut self) -> Expr {
        let count = self.random.between(1, 3);
        let values: Vec<f64> = (0..count).map(|_| self.random.between(1, 5) as f64).collect();
        if !self.in_week && self.random.once_in(3) {
            let (word, names) = self.random.pick(&[("weekday", WEEKDAYS), ("month", MONTHS)]);
            let names = self.random.once_in(2).then_some(names);
            return Expr::In { of: Rc::new(Expr::Name(word)), values, names };
        }
        let of = match self.random.below(3) {
            // What is often one of a few whole numbers.
            0 => {
                let of = self.column();
                Rc::new(Expr::Cross { kind: Cross::Rank, of, by: None, only: None })
            }
            1 => {
                let x = self.series(1);
                let days = Rc::new(Expr::Arithmetic(Arithmetic::Remainder, x, Rc::new(Expr::Number(3.0))));
                Rc::new(self.call("round", vec![("x", Some(days))], vec![]))
            }
            _ => self.series(1),
        };
        Expr::In { of, values, names: None }
    }

    fn call(
        &mut self,
        name: &'static str,
        series: Vec<(&'static str, Option<Node>)>,
        params: Vec<(&'static str, f64)>,
    ) -> Expr {
        // By place only when the series that are given come first.
        let gap = series.iter().skip_while(|s| s.1.is_some()).any(|s| s.1.is_some());
        let by_name = gap || self.random.once_in(3);
        Expr::Call(Call { name, series, params, averages: Vec::new(), field: None, by_name })
    }

    fn element_wise(&mut self, depth: u32) -> Expr {
        let one = ["abs", "sqrt", "log", "exp", "sign", "round"];
        let two = ["maximum", "minimum", "pow"];
        match self.random.below(4) {
            0 | 1 => {
                let name = self.random.pick(&one);
                let mut x = self.series(depth);
                if name == "exp" {
                    // Either moderate, or infinite on every bar with volume: a window that sums values twenty decades
                    // apart loses digits, which another test covers.
                    let (volume, thousand) = (Rc::new(Expr::Name("volume")), Rc::new(Expr::Number(1000.0)));
                    let (low, high) = (Rc::new(Expr::Negate(self.ten())), self.ten());
                    x = if self.random.once_in(4) {
                        Rc::new(Expr::Arithmetic(Arithmetic::Multiply, volume, thousand))
                    } else {
                        let series = vec![("x", Some(x)), ("low", Some(low)), ("high", Some(high))];
                        Rc::new(self.call("clamp", series, vec![]))
                    };
                }
                // TA-Lib's own functions use its name for a series.
                let series = if matches!(name, "sqrt" | "exp") { "real" } else { "x" };
                self.call(name, vec![(series, Some(x))], vec![])
            }
            2 => {
                let name = self.random.pick(&two);
                let a = self.series(depth);
                let b = match name {
                    // A power of a power must stay far below the largest double.
                    "pow" => Rc::new(Expr::Number(self.random.pick(&[0.0, 0.5, 1.0, 2.0, 3.0]))),
                    _ => self.number(depth),
                };
                self.call(name, vec![("a", Some(a)), ("b", Some(b))], vec![])
            }
            _ => {
                let series = vec![
                    ("x", Some(self.series(depth))),
                    ("low", Some(self.number(depth))),
                    ("high", Some(self.number(depth))),
                ];
                self.call("clamp", series, vec![])
            }
        }
    }

    fn ten(&self) -> Node {
        Rc::new(Expr::Number(10.0))
    }

    fn window(&mut self, depth: u32) -> Expr {
        let n = self.random.between(2, 9) as f64;
        let x = self.series(depth);
        match self.random.below(if self.grammar.helpers { 7 } else { 2 }) {
            0 => self.call("highest", vec![("x", Some(x))], vec![("n", n)]),
            1 => self.call("lowest", vec![("x", Some(x))], vec![("n", n)]),
            2 => self.call("zscore", vec![("x", Some(x))], vec![("n", n)]),
            3 => self.call("percentrank", vec![("real", Some(x))], vec![("timeperiod", n)]),
            4 => self.call("median", vec![("real", Some(x))], vec![("timeperiod", n)]),
            5 => {
                let (offset, sigma) = (self.random.pick(&[0.0, 0.5, 0.85, 1.0]), self.random.pick(&[1.0, 6.0]));
                let params = vec![("timeperiod", n), ("offset", offset), ("sigma", sigma)];
                self.call("alma", vec![("real", Some(x))], params)
            }
            _ => {
                let y = self.series(depth);
                self.call("correl", vec![("real0", Some(x)), ("real1", Some(y))], vec![("timeperiod", n)])
            }
        }
    }

    fn of_condition(&mut self, depth: u32) -> Expr {
        let c = self.condition(depth);
        let finite = self.grammar.finite && !self.may_begin();
        match self.random.below(if self.grammar.helpers { 5 } else { 2 }) {
            which if which == 0 || (finite && which <= 2) => {
                let n = self.random.between(1, 6) as f64;
                self.call("count", vec![("c", Some(c))], vec![("n", n)])
            }
            1 => self.call("since", vec![("c", Some(c))], vec![]),
            2 => {
                let x = self.series(depth);
                match self.random.below(4) {
                    0 => self.call("highest_since", vec![("x", Some(x)), ("c", Some(c))], vec![]),
                    1 => self.call("lowest_since", vec![("x", Some(x)), ("c", Some(c))], vec![]),
                    _ => {
                        let n = self.random.between(1, 3) as f64;
                        self.call("valuewhen", vec![("c", Some(c)), ("x", Some(x))], vec![("n", n)])
                    }
                }
            }
            3 => {
                let (a, b) = (self.number(depth), self.number(depth));
                self.call("iff", vec![("c", Some(c)), ("a", Some(a)), ("b", Some(b))], vec![])
            }
            _ => {
                let (x, value) = (self.series(depth), self.random.pick(&[0.0, 1.0, -2.0]));
                self.call("nz", vec![("x", Some(x))], vec![("value", value)])
            }
        }
    }

    fn indicator(&mut self, depth: u32) -> Expr {
        let finite = self.grammar.finite;
        let begins = |name| self.may_begin() && UNBOUNDED.contains(&name);
        let legal = |shape: &Shape| !finite || !RECURSIVE.contains(&shape.name) || begins(shape.name);
        let shapes: Vec<Shape> = INDICATORS.into_iter().filter(legal).collect();
        let shape = self.random.pick(&shapes);
        // As many leading series as chance gives; the others are the columns of the signature.
        let given = self.random.below(shape.series.len() as u64 + 1) as usize;
        let mut series: Vec<(&'static str, Option<Node>)> = Vec::new();
        for (i, name) in shape.series.iter().enumerate() {
            // Over a window that is flat but for rounding, cci gives noise, as in TA-Lib: keep that to columns.
            let depth = if shape.name == "cci" { 0 } else { depth };
            let node = (i < given).then(|| self.series(depth));
            series.push((name, node));
        }
        let params = shape.params.iter().map(|(name, values)| (*name, self.random.pick(values))).collect();
        let kinds: &[&str] = if finite { &["sma", "wma"] } else { &["sma", "sma", "ema", "wma", "kama"] };
        let averages = shape.averages.iter().map(|name| (*name, self.random.pick(kinds))).collect();
        let field = if shape.fields.is_empty() { None } else { Some(self.random.pick(shape.fields)) };
        Expr::Call(Call { name: shape.name, series, params, averages, field, by_name: self.random.once_in(3) })
    }

    fn reference(&mut self, depth: u32, condition: bool) -> Expr {
        if self.in_forming {
            return self.plain(condition);
        }
        let of = if condition { self.condition(depth) } else { self.series(depth) };
        let of = if of.is_constant() { self.column() } else { of };
        let asof = if self.random.once_in(2) { Some(self.random.below(4) as u32) } else { None };
        Expr::Ref { symbol: self.random.pick(&self.symbols.clone()), of, asof }
    }

    fn week(&mut self, depth: u32, condition: bool) -> Expr {
        if self.in_week || self.in_forming {
            return self.plain(condition);
        }
        let partial = self.random.once_in(3);
        (self.in_week, self.in_forming) = (true, partial);
        let of = if condition { self.condition(depth) } else { self.series(depth) };
        let of = if of.is_constant() { self.column() } else { of };
        (self.in_week, self.in_forming) = (false, false);
        Expr::Week { of, partial }
    }

    fn cross(&mut self, depth: u32, condition: bool) -> Expr {
        if self.in_forming {
            return self.plain(condition);
        }
        let kind = if condition {
            Cross::Top(self.random.between(1, 4) as u32)
        } else {
            let quantile = Cross::Quantile(self.random.pick(&[0.0, 0.1, 0.5, 0.75, 1.0]));
            self.random.pick(&[Cross::Rank, Cross::Pct, Cross::Z, Cross::Demean, quantile, Cross::Breadth])
        };
        let of = if kind == Cross::Breadth { self.condition(depth) } else { self.series(depth) };
        let of = if of.is_constant() && kind != Cross::Breadth { self.column() } else { of };
        let by = if self.random.once_in(3) { Some(self.random.pick(&LABELS).0) } else { None };
        let only = self.random.once_in(3).then(|| self.condition(depth.min(1)));
        Expr::Cross { kind, of, by, only }
    }

    fn plain(&mut self, condition: bool) -> Expr {
        if condition { self.comparison(0) } else { (*self.column()).clone() }
    }
}
