//! Makes a failing case smaller while it still fails: fewer clauses, smaller trees, fewer symbols, fewer bars.

use std::rc::Rc;

use super::answer::Scan;
use super::expression::{Expr, Node};
use super::market::Market;

/// Attempts before the case is taken as it is.
const ATTEMPTS_MAX: usize = 3_000;

/// The smallest case found for which `fails` holds; it must hold for the given one.
pub fn minimise(mut market: Market, mut scan: Scan, fails: impl Fn(&Market, &Scan) -> bool) -> (Market, Scan) {
    let mut attempts = 0;
    loop {
        let mut smaller = false;
        for candidate in smaller_scans(&scan) {
            attempts += 1;
            if attempts < ATTEMPTS_MAX && fails(&market, &candidate) {
                (scan, smaller) = (candidate, true);
                break;
            }
        }
        if smaller {
            continue;
        }
        for candidate in smaller_markets(&market, &scan) {
            attempts += 1;
            if attempts < ATTEMPTS_MAX && fails(&candidate, &scan) {
                (market, smaller) = (candidate, true);
                break;
            }
        }
        if !smaller {
            return (market, scan);
        }
    }
}

fn smaller_scans(scan: &Scan) -> Vec<Scan> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scan)| {
        let mut smaller = scan.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    if scan.universe.is_some() {
        with(&|s| s.universe = None);
    }
    if scan.limit.is_some() {
        with(&|s| s.limit = None);
    }
    if scan.adjust.is_some() {
        with(&|s| s.adjust = None);
    }
    if scan.history.is_some() {
        with(&|s| s.history = None);
    }
    if scan.max_age.is_some() {
        with(&|s| s.max_age = None);
    }
    if scan.timeframe {
        with(&|s| s.timeframe = false);
    }
    for i in 0..scan.rank.len() {
        with(&|s| drop(s.rank.remove(i)));
    }
    if scan.select.len() > 1 {
        for i in 0..scan.select.len() {
            with(&|s| drop(s.select.remove(i)));
        }
    }
    if !matches!(*scan.condition, Expr::Truth(true)) {
        with(&|s| s.condition = Rc::new(Expr::Truth(true)));
    }
    for i in 0..scan.defs.len() {
        let name = scan.defs[i].0.split('(').next().unwrap_or_default().to_owned() + "(";
        if scan.text().matches(&name).nth(1).is_none() {
            with(&|s| drop(s.defs.remove(i)));
        }
    }
    // Replaces lets where they are used; unused ones are dropped.
    for i in 0..scan.lets.len() {
        let used = scan.roots().into_iter().chain(scan.lets.iter().map(|l| &l.1)).any(|n| uses(n, &scan.lets[i].0));
        if !used {
            with(&|s| drop(s.lets.remove(i)));
        }
    }
    if let Some(universe) = &scan.universe {
        for node in smaller_trees(universe) {
            with(&|s| s.universe = Some(Rc::clone(&node)));
        }
    }
    for node in smaller_trees(&scan.condition) {
        with(&|s| s.condition = Rc::clone(&node));
    }
    for i in 0..scan.select.len() {
        for node in smaller_trees(&scan.select[i]) {
            with(&|s| s.select[i] = Rc::clone(&node));
        }
    }
    for i in 0..scan.rank.len() {
        for node in smaller_trees(&scan.rank[i].0) {
            with(&|s| s.rank[i].0 = Rc::clone(&node));
        }
    }
    all
}

fn uses(node: &Node, name: &str) -> bool {
    matches!(&**node, Expr::Let(n, _) if n == name) || node.children().iter().any(|c| uses(c, name))
}

/// Trees of the same type that are smaller by one step somewhere.
fn smaller_trees(node: &Node) -> Vec<Node> {
    let mut all: Vec<Node> = Vec::new();
    // A part of the same type in place of the whole; not out of a forming week, which would only hide it.
    for child in node.children() {
        if child.is_condition() == node.is_condition() && !child.is_constant() {
            all.push(Rc::clone(child));
        }
    }
    if !node.is_condition() && !matches!(**node, Expr::Name(_) | Expr::Number(_)) {
        all.push(Rc::new(Expr::Name("close")));
    }
    let children: Vec<Node> = node.children().into_iter().cloned().collect();
    for (i, child) in children.iter().enumerate() {
        for smaller in smaller_trees(child) {
            let mut next = 0;
            let swapped = map_children(node, &mut |c| {
                next += 1;
                if next == i + 1 { Rc::clone(&smaller) } else { Rc::clone(c) }
            });
            // A let's text is elsewhere: write out the smaller tree.
            all.push(match swapped {
                Expr::Let(_, inner) => inner,
                other => Rc::new(other),
            });
        }
    }
    if let Expr::Cross { kind, of, by, only } = &**node {
        if by.is_some() {
            all.push(Rc::new(Expr::Cross { kind: *kind, of: Rc::clone(of), by: None, only: only.clone() }));
        }
        if only.is_some() {
            all.push(Rc::new(Expr::Cross { kind: *kind, of: Rc::clone(of), by: *by, only: None }));
        }
    }
    all
}

/// The same expression over other parts.
pub(super) fn map_children(node: &Node, f: &mut dyn FnMut(&Node) -> Node) -> Expr {
    match &**node {
        Expr::Let(name, of) => Expr::Let(name.clone(), f(of)),
        Expr::Negate(of) => Expr::Negate(f(of)),
        Expr::Not(of) => Expr::Not(f(of)),
        Expr::In { of, values, names } => Expr::In { of: f(of), values: values.clone(), names: *names },
        Expr::Offset(of, n) => Expr::Offset(f(of), *n),
        Expr::Ref { symbol, of, asof } => Expr::Ref { symbol: symbol.clone(), of: f(of), asof: *asof },
        Expr::Week { of, partial } => Expr::Week { of: f(of), partial: *partial },
        Expr::And(a, b) => Expr::And(f(a), f(b)),
        Expr::Or(a, b) => Expr::Or(f(a), f(b)),
        Expr::Arithmetic(op, a, b) => Expr::Arithmetic(*op, f(a), f(b)),
        Expr::Chain(operands, ops) => Expr::Chain(operands.iter().map(f).collect(), ops.clone()),
        Expr::Call(call) => {
            let mut call = call.clone();
            for series in call.series.iter_mut().filter_map(|s| s.1.as_mut()) {
                *series = f(series);
            }
            Expr::Call(call)
        }
        Expr::Cross { kind, of, by, only } => {
            Expr::Cross { kind: *kind, of: f(of), by: *by, only: only.as_ref().map(f) }
        }
        leaf => leaf.clone(),
    }
}

fn refers_to(scan: &Scan, name: &str) -> bool {
    fn within(node: &Node, name: &str) -> bool {
        matches!(&**node, Expr::Ref { symbol, .. } if symbol == name) || node.children().iter().any(|c| within(c, name))
    }
    scan.roots().into_iter().chain(scan.lets.iter().map(|l| &l.1)).any(|node| within(node, name))
}

fn smaller_markets(market: &Market, scan: &Scan) -> Vec<Market> {
    let mut all = Vec::new();
    for i in 0..market.symbols.len() {
        if market.symbols.len() > 1 && !refers_to(scan, &market.symbols[i].name) {
            let mut smaller = market.clone();
            smaller.symbols.remove(i);
            all.push(smaller);
        }
    }
    if market.symbols.iter().any(|s| !s.events.is_empty()) {
        let mut smaller = market.clone();
        smaller.symbols.iter_mut().for_each(|s| s.events.clear());
        all.push(smaller);
    }
    let days = market.days();
    for keep in [days.len() / 2, days.len().saturating_sub(5), days.len().saturating_sub(1)] {
        for front in [true, false] {
            let kept = if front { &days[..keep] } else { &days[days.len() - keep..] };
            let mut smaller = market.clone();
            for symbol in &mut smaller.symbols {
                let rows = symbol.days.iter().zip(&symbol.bars).filter(|(day, _)| kept.contains(day));
                let (d, b): (Vec<i64>, Vec<[f64; 5]>) = rows.map(|(d, b)| (*d, *b)).unzip();
                (symbol.days, symbol.bars) = (d, b);
            }
            if smaller.symbols.iter().all(|s| !s.days.is_empty()) {
                all.push(smaller);
            }
        }
    }
    all
}
