//! The reference itself: rules of the specification worked out by hand, and properties of every scan.

use std::rc::Rc;

use trawl_tests::reference::expression::{Call, Compare, Cross, Expr, Node};
use trawl_tests::reference::generate::{Grammar, scan};
use trawl_tests::reference::generate_market::market;
use trawl_tests::reference::indicators::Value;
use trawl_tests::reference::market::{Symbol, day_number, new_york_sessions};
use trawl_tests::reference::random::Random;
use trawl_tests::reference::{Market, Reference, Scan, answers};

fn name(name: &'static str) -> Node {
    Rc::new(Expr::Name(name))
}

fn number(n: f64) -> Node {
    Rc::new(Expr::Number(n))
}

fn call(name: &'static str, series: &[&Node], n: Option<f64>) -> Node {
    let series = series.iter().map(|s| ("x", Some(Rc::clone(s)))).collect();
    let params = n.map(|n| ("n", n)).into_iter().collect();
    Rc::new(Expr::Call(Call { name, series, params, averages: Vec::new(), field: None, by_name: false }))
}

fn over(of: &Node, n: f64) -> Node {
    Rc::new(Expr::Chain(vec![Rc::clone(of), number(n)], vec![Compare::Greater]))
}

fn cross(kind: Cross, of: &Node) -> Node {
    Rc::new(Expr::Cross { kind, of: Rc::clone(of), by: None, only: None })
}

/// Symbols A, B, ... with these closes (NaN = NA; `None` = no bar) on consecutive sessions from Monday 2013-07-01 on:
/// Thursday the 4th has none.
fn closes(rows: &[&[Option<f64>]]) -> Market {
    let sessions = new_york_sessions();
    let first = sessions.iter().position(|d| *d == day_number(2013, 7, 1)).expect("a session");
    let symbol = |(i, row): (usize, &&[Option<f64>])| {
        let mut symbol = Symbol { name: char::from(b'A' + i as u8).to_string(), ..Symbol::default() };
        for (at, close) in row.iter().enumerate() {
            if let Some(close) = close {
                symbol.days.push(sessions[first + at]);
                symbol.bars.push([*close, *close, *close, *close, 100.0]);
            }
        }
        symbol
    };
    Market { symbols: rows.iter().enumerate().map(symbol).collect(), sessions, ..Market::default() }
}

/// The values of `node` at each bar of a symbol.
fn values(market: &Market, node: &Node, symbol: usize, universe: Option<Node>) -> Vec<Value> {
    let scan = Scan {
        universe: universe.clone(),
        condition: Rc::new(Expr::Truth(true)),
        rank: Vec::new(),
        limit: None,
        select: vec![Rc::clone(node)],
        lets: Vec::new(),
        defs: Vec::new(),
        adjust: None,
        history: None,
        max_age: None,
        timeframe: false,
    };
    let all = answers(&Reference::new(market, universe), &scan);
    all.iter().filter_map(|(_, rows)| rows[symbol].select.first().copied()).collect()
}

const NA: Option<f64> = Some(f64::NAN);

#[test]
fn conditions_over_bars_are_kleene_and_a_bar_before_the_first_is_na() {
    let market = closes(&[&[Some(1.0), Some(9.0), NA, Some(1.0), Some(1.0)]]);
    let high = over(&name("close"), 5.0);
    let of = |function, n| values(&market, &call(function, &[&high], n), 0, None);
    assert_eq!(of("within", Some(2.0)), [None, Some(1.0), Some(1.0), None, Some(0.0)]);
    assert_eq!(of("streak", Some(2.0)), [Some(0.0), Some(0.0), None, Some(0.0), Some(0.0)]);
    assert_eq!(of("count", Some(2.0)), [None, Some(1.0), None, None, Some(0.0)]);
    assert_eq!(of("since", None), [None, Some(0.0), None, None, None]);
    let when = call("valuewhen", &[&high, &name("close")], None);
    assert_eq!(values(&market, &when, 0, None), [None, Some(9.0), None, None, None]);
    let crosses = call("crosses_above", &[&name("close"), &number(5.0)], None);
    assert_eq!(values(&market, &crosses, 0, None), [None, Some(1.0), None, None, Some(0.0)]);
}

#[test]
fn windows_wait_for_whole_ones_and_recurrences_hold() {
    let market = closes(&[&[NA, Some(1.0), Some(3.0), NA, Some(5.0), Some(7.0)]]);
    let of = |function| values(&market, &call(function, &[&name("close")], Some(2.0)), 0, None);
    assert_eq!(of("sma"), [None, None, Some(2.0), None, None, Some(6.0)]);
    // Seeded with (1 + 3)/2, then two thirds of the way at each value.
    let ema = of("ema");
    assert_eq!(ema[..5], [None, None, Some(2.0), None, Some(4.0)]);
    assert!((ema[5].expect("a value") - 6.0).abs() < 1e-12);
    // Two values before the current one: no run of three is whole.
    assert_eq!(of("percentrank"), [None; 6]);
    assert_eq!(of("zscore"), [None, None, Some(1.0), None, None, Some(1.0)]);
}

#[test]
fn a_week_is_read_when_its_last_session_is_over() {
    // Mon Tue Wed (Thu is a holiday) Fri | Mon ... Fri: no bar on the second Friday.
    let week: Vec<Option<f64>> = (1..=10).map(|i| (i != 9).then_some(f64::from(i))).collect();
    let market = closes(&[&week]);
    let of = |partial| Rc::new(Expr::Week { of: name("close"), partial });
    let whole = values(&market, &of(false), 0, None);
    // On the Friday itself 4 is known; the next week is complete on the Monday after, without a bar on its Friday.
    let four = Some(4.0);
    assert_eq!(whole, [None, None, None, four, four, four, four, four, Some(8.0)]);
    let forming = values(&market, &of(true), 0, None);
    let wanted: Vec<Value> = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0].map(Some).to_vec();
    assert_eq!(forming, wanted);
    let before: Node = Rc::new(Expr::Week { of: Rc::new(Expr::Offset(name("close"), 1)), partial: true });
    assert_eq!(values(&market, &before, 0, None)[8], Some(8.0));
}

#[test]
fn references_match_exactly_or_are_at_most_so_many_own_bars_old() {
    let one = |i: i32| Some(f64::from(i));
    let market = closes(&[&[one(1), one(2), one(3), one(4), one(5)], &[one(10), None, None, None, one(50)]]);
    let of = |asof| Rc::new(Expr::Ref { symbol: "B".to_owned(), of: name("close"), asof });
    let (ten, fifty) = (Some(10.0), Some(50.0));
    assert_eq!(values(&market, &of(None), 0, None), [ten, None, None, None, fifty]);
    assert_eq!(values(&market, &of(Some(2)), 0, None), [ten, ten, ten, None, fifty]);
    // Offsets outside count this symbol's bars, offsets inside the other one's.
    let inside = Rc::new(Expr::Ref { symbol: "B".to_owned(), of: Rc::new(Expr::Offset(name("close"), 1)), asof: None });
    assert_eq!(values(&market, &inside, 0, None)[4], ten);
    assert_eq!(values(&market, &(Rc::new(Expr::Offset(of(None), 4)) as Node), 0, None)[4], ten);
}

#[test]
fn cross_sections_are_over_the_universe_and_every_symbol_sees_market_values() {
    let rows: Vec<[Option<f64>; 1]> = [9.0, 5.0, 5.0, 1.0, f64::NAN, 100.0].map(|x| [Some(x)]).to_vec();
    let market = closes(&rows.iter().map(<[_; 1]>::as_slice).collect::<Vec<_>>());
    let below = Rc::new(Expr::Chain(vec![name("close"), number(50.0)], vec![Compare::Less]));
    let all = |kind| {
        let node = cross(kind, &name("close"));
        (0..6).map(|s| values(&market, &node, s, Some(Rc::clone(&below) as Node))[0]).collect::<Vec<Value>>()
    };
    assert_eq!(all(Cross::Rank), [Some(1.0), Some(2.0), Some(2.0), Some(4.0), None, None]);
    assert_eq!(all(Cross::Pct), [Some(0.875), Some(0.5), Some(0.5), Some(0.125), None, None]);
    assert_eq!(all(Cross::Top(2)), [Some(1.0), Some(1.0), Some(1.0), Some(0.0), None, None]);
    assert_eq!(all(Cross::Demean), [Some(4.0), Some(0.0), Some(0.0), Some(-4.0), None, None]);
    assert_eq!(all(Cross::Quantile(0.5)), [Some(5.0); 6]);
    assert_eq!(all(Cross::Quantile(0.9)), [Some(5.0 + 4.0 * (2.7 - 2.0)); 6]);
    let breadth = cross(Cross::Breadth, &over(&name("close"), 4.0));
    assert_eq!(values(&market, &breadth, 5, Some(below))[0], Some(0.75));
}

/// Later bars change nothing: rules 1, 2, 11 and 14, over the whole grammar.
#[test]
fn expressions_never_look_into_the_future() {
    let grammar = Grammar { frames: true, helpers: true, finite: false, mixed: false };
    for seed in 0..400u64 {
        let whole = market(&mut Random::new(seed / 4));
        let scan = scan(&mut Random::new(seed.wrapping_mul(0x9e37_79b9)), grammar, &whole);
        let days = whole.days();
        let cut = days[Random::new(seed).below(days.len() as u64) as usize];
        let short = whole.cut(cut);
        let full = answers(&Reference::new(&whole, scan.universe.clone()), &scan);
        let seen = answers(&Reference::new(&short, scan.universe.clone()), &scan);
        for (full, seen) in full.iter().zip(&seen) {
            assert_eq!(full, seen, "seed {seed}: what comes after day {cut} changes day {}\n{}", seen.0, scan.text());
        }
    }
}
