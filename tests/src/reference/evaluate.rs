//! The value of an expression at every bar of a symbol, by recursion over the tree.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::expression::{Compare, Cross, Expr, Node};
use super::generate::LABELS;
use super::indicators::{Noise, Value, arithmetic, finite, function, known, mean};
use super::market::{Bars, COLUMNS, Clock, Market, base_bars, calendar_word, weekly_bars};
use super::random::Random;

/// Which bars an expression runs along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Daily bars.
    Base,
    /// Whole weeks.
    Week,
    /// Weeks up to a daily bar, the last one as far as it has formed by then.
    Forming(usize),
}

/// Where an expression is evaluated: on which bars, and whether in the clause `universe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    pub axis: Axis,
    /// Inside `universe` the population of a cross-section is every symbol with a bar.
    pub in_universe: bool,
    /// Inside `ref`: the bars of one symbol for all, which a limited history does not cut.
    pub referred: bool,
}

/// Functions whose value always depends on where the history began.
pub const UNBOUNDED: [&str; 8] = ["kama", "obv", "vwap", "since", "valuewhen", "highest_since", "lowest_since", "crsi"];

pub(super) type Key = (*const Expr, usize, Frame);

/// Evaluates expressions over one market.
pub struct Reference<'m> {
    pub market: &'m Market,
    /// The population of cross-sections; every symbol when `None`.
    pub universe: Option<Node>,
    /// Whether the market's prices and volumes are adjusted.
    pub adjusted: bool,
    /// Days that a bar may be older than the day it is read on.
    pub max_age: Option<i64>,
    /// Bars of a limited history, and the day that it ends on.
    pub window: Option<(usize, i64)>,
    values: RefCell<HashMap<Key, Rc<Vec<Value>>>>,
    bars: RefCell<HashMap<(usize, Axis), Rc<Bars>>>,
    pub(super) edges: RefCell<HashMap<Key, Rc<Vec<super::edges::Edge>>>>,
    /// Keeps the trees alive whose addresses are keys.
    kept: RefCell<Vec<Node>>,
    rounding: RefCell<Option<Rounding>>,
    /// The index of each week's last session.
    week_ends: RefCell<HashMap<i64, Option<i64>>>,
    depth: Cell<usize>,
}

/// How a disturbed reference rounds.
#[derive(Debug, Clone)]
enum Rounding {
    /// Drops this number of bits, so that values that are equal but for rounding become equal.
    Coarse(u32),
    /// Adds noise of up to 1e-12.
    Noisy(Random),
    /// One or the other by chance.
    Mixed(Random),
    /// Noise once in eight times; the other values are unchanged, or with bits dropped.
    Rare(Random, bool),
}

/// Drops low bits of the mantissa.
fn coarse(x: f64, bits: u32) -> f64 {
    let scale = x * f64::from(1u32 << bits);
    // Adding and subtracting a multiple rounds the low bits off.
    (x + scale) - scale
}

fn noisy(x: f64, random: &mut Random) -> f64 {
    x * (1.0 + 1e-12 * random.sign_unit())
}

impl Noise for Reference<'_> {
    fn round(&self, x: f64) -> f64 {
        match &mut *self.rounding.borrow_mut() {
            _ if !x.is_finite() || x.abs() > 1e300 => x,
            None => x,
            Some(Rounding::Coarse(bits)) => coarse(x, *bits),
            Some(Rounding::Noisy(random)) => noisy(x, random),
            Some(Rounding::Mixed(random)) => {
                if random.once_in(2) {
                    coarse(x, 13)
                } else {
                    noisy(x, random)
                }
            }
            Some(Rounding::Rare(random, drop_bits)) => match (random.once_in(8), drop_bits) {
                (true, _) => noisy(x, random),
                (false, true) => coarse(x, 13),
                (false, false) => x,
            },
        }
    }

    fn by_sums(&self) -> bool {
        matches!(*self.rounding.borrow(), Some(Rounding::Coarse(13..)))
    }
}

impl<'m> Reference<'m> {
    /// Plain arithmetic.
    pub fn new(market: &'m Market, universe: Option<Node>) -> Self {
        Self {
            market,
            universe,
            adjusted: false,
            max_age: None,
            window: None,
            values: RefCell::default(),
            bars: RefCell::default(),
            edges: RefCell::default(),
            kept: RefCell::default(),
            rounding: RefCell::default(),
            week_ends: RefCell::default(),
            depth: Cell::new(0),
        }
    }

    /// Every result of arithmetic is rounded to 12 digits (seeds 0 to 3), is up to 1e-12 off (differently for each odd
    /// seed), or one of the two by chance (even ones); from seed 16 on, every second one has noise in few places only.
    /// What such a reference answers differently depends on rounding, not on meaning (Monte Carlo arithmetic).
    pub fn disturbed(market: &'m Market, universe: Option<Node>, seed: u64) -> Self {
        let reference = Self::new(market, universe);
        *reference.rounding.borrow_mut() = Some(match seed {
            0..=3 => Rounding::Coarse(11 + seed as u32),
            rare if rare >= 16 && rare % 4 >= 2 => Rounding::Rare(Random::new(rare), rare % 4 == 2),
            odd if odd % 2 == 1 => Rounding::Noisy(Random::new(odd)),
            even => Rounding::Mixed(Random::new(even)),
        });
        reference
    }

    /// The bars of a symbol along an axis.
    pub fn bars(&self, symbol: usize, axis: Axis) -> Rc<Bars> {
        if let Some(bars) = self.bars.borrow().get(&(symbol, axis)) {
            return Rc::clone(bars);
        }
        let of = &self.market.symbols[symbol];
        let bars = Rc::new(match axis {
            Axis::Base => base_bars(of),
            Axis::Week => weekly_bars(self.market.clock, of, of.days.len()),
            Axis::Forming(last) => weekly_bars(self.market.clock, of, last + 1),
        });
        self.bars.borrow_mut().insert((symbol, axis), Rc::clone(&bars));
        bars
    }

    /// The value of `node` at each of a symbol's bars. A condition is 1, 0 or NA.
    pub fn series(&self, node: &Node, symbol: usize, frame: Frame) -> Rc<Vec<Value>> {
        let key = (Rc::as_ptr(node), symbol, frame);
        if let Some(values) = self.values.borrow().get(&key) {
            return Rc::clone(values);
        }
        self.depth.set(self.depth.get() + 1);
        assert!(self.depth.get() < 200, "the reference recurses without end");
        let values = Rc::new(self.evaluate(node, symbol, frame));
        self.depth.set(self.depth.get() - 1);
        self.kept.borrow_mut().push(Rc::clone(node));
        self.values.borrow_mut().insert(key, Rc::clone(&values));
        values
    }

    fn evaluate(&self, node: &Node, symbol: usize, frame: Frame) -> Vec<Value> {
        let bars = self.bars(symbol, frame.axis);
        let count = bars.keys.len();
        let of = |node: &Node| self.series(node, symbol, frame);
        let zip = |a: &Node, b: &Node, f: &dyn Fn(Value, Value) -> Value| {
            let (a, b) = (of(a), of(b));
            (0..count).map(|t| f(a[t], b[t])).collect::<Vec<Value>>()
        };
        let label = |label: &str, value: &dyn Fn(&str) -> f64| {
            let symbol = &self.market.symbols[symbol];
            let of = |day| if label == SYMBOL { Some(symbol.name.as_str()) } else { symbol.label(label, day) };
            let at = |key: &i64| of(self.label_day(frame.axis, *key)).map(value);
            bars.keys.iter().map(at).collect::<Vec<Value>>()
        };
        let truth = |is: bool| f64::from(u8::from(is));
        let days = || bars.keys.iter().map(|key| self.label_day(frame.axis, *key));
        match &**node {
            Expr::Number(n) => vec![known(*n); count],
            Expr::Truth(t) => vec![Some(f64::from(u8::from(*t))); count],
            Expr::Name(name @ ("weekday" | "month")) => {
                days().map(|day| calendar_word(name, self.market.clock.date_of(day))).collect()
            }
            Expr::Name(name @ ("cap" | "earnings" | "days_to(earnings)" | "days_since(earnings)")) => {
                let known = |attribute, day: i64| self.market.symbols[symbol].attribute(attribute, day);
                let at = |day: i64| match *name {
                    "cap" => known("cap", day),
                    "earnings" => known("earnings", day),
                    "days_to(earnings)" => known("earnings", day).map(|date| date - day as f64),
                    _ => known("earnings", day).map(|date| day as f64 - date),
                };
                days().map(at).collect()
            }
            Expr::Name(name) if self.market.clock == Clock::Minutes && is_word_of_sessions(name) => {
                let minutes: Vec<i64> = days().collect();
                (0..count).map(|t| self.session_word(name, &minutes[..=t], &bars.rows)).collect()
            }
            Expr::Name(name) if name.starts_with("avwap") => {
                let minutes: Vec<i64> = days().collect();
                (0..count).map(|t| self.since_the_open(name, &minutes[..=t], &bars.rows)).collect()
            }
            // Of daily bars each is a session.
            Expr::Name(name) if name.contains("session.") => {
                let of = |row: &[f64; 5]| column(name.rsplit('.').next().unwrap_or_default(), row);
                let before = usize::from(name.starts_with("prev_"));
                (0..count).map(|t| t.checked_sub(before).and_then(|then| of(&bars.rows[then]))).collect()
            }
            Expr::Name(name) => {
                bars.rows.iter().map(|row| column(name, row).map(|x| self.round_mean(name, x))).collect()
            }
            Expr::Let(_, inner) => of(inner).to_vec(),
            Expr::Negate(x) => of(x).iter().map(|x| x.map(|x| -x)).collect(),
            Expr::Not(c) => of(c).iter().map(|c| c.map(|c| 1.0 - c)).collect(),
            Expr::And(a, b) => zip(a, b, &kleene_and),
            Expr::Or(a, b) => zip(a, b, &|a, b| kleene_and(a.map(|a| 1.0 - a), b.map(|b| 1.0 - b)).map(|c| 1.0 - c)),
            Expr::Arithmetic(op, a, b) => zip(a, b, &|a, b| arithmetic(*op, a, b).map(|x| self.round(x))),
            Expr::Chain(operands, ops) => {
                let operands: Vec<_> = operands.iter().map(of).collect();
                let at = |t: usize| {
                    let each = ops.iter().enumerate().map(|(i, op)| compare(*op, operands[i][t], operands[i + 1][t]));
                    each.fold(Some(1.0), kleene_and)
                };
                (0..count).map(at).collect()
            }
            Expr::Offset(x, n) => {
                let x = of(x);
                (0..count).map(|t| t.checked_sub(*n as usize).and_then(|then| x[then])).collect()
            }
            Expr::LabelIs { label: name, value, negated } => label(name, &|v| truth((v == value) != *negated)),
            Expr::LabelIn { label: name, values } => label(name, &|v| truth(values.iter().any(|one| one == v))),
            Expr::LabelValue(name) => label(name, &|v| place_of(name, v)),
            Expr::In { of: x, values, .. } => {
                let is_one = |x: &Value| finite(*x).map(|x| truth(values.contains(&x)));
                of(x).iter().map(is_one).collect()
            }
            Expr::Call(call) => {
                let series: Vec<Vec<Value>> = call
                    .series
                    .iter()
                    .map(|(name, given)| match given {
                        Some(node) => of(node).to_vec(),
                        None => {
                            let name = if *name == "real" { "close" } else { name };
                            bars.rows.iter().map(|row| column(name, row).map(|x| self.round_mean(name, x))).collect()
                        }
                    })
                    .collect();
                let first = self.first_bar(call.name, symbol, frame);
                let cut = |series: Vec<Value>| {
                    series.into_iter().enumerate().map(|(t, x)| x.filter(|_| t >= first)).collect::<Vec<Value>>()
                };
                let series: Vec<Vec<Value>> = series.into_iter().map(cut).collect();
                let params: Vec<f64> = call.params.iter().map(|p| p.1).collect();
                let averages: Vec<&str> = call.averages.iter().map(|a| a.1).collect();
                function(call.name, &series, &params, &averages, call.field.unwrap_or(""), self)
            }
            Expr::Ref { symbol: name, of, asof } => {
                let other = self.market.find(name).expect("the generator refers to symbols of the market");
                let values = self.series(of, other, Frame { referred: true, ..frame });
                (0..count).map(|t| values[self.reference_bar(symbol, other, frame.axis, t, *asof)?]).collect()
            }
            Expr::Week { of, partial: false } => {
                let values = self.series(of, symbol, Frame { axis: Axis::Week, ..frame });
                (0..count).map(|t| values[self.complete_week(symbol, t)?]).collect()
            }
            Expr::Week { of, partial: true } => {
                let forming = |t| self.series(of, symbol, Frame { axis: Axis::Forming(t), ..frame }).last().copied();
                (0..count).map(|t| forming(t).flatten()).collect()
            }
            Expr::Cross { kind, of, by, only } => {
                (0..count).map(|t| self.cross(symbol, frame, t, (*kind, of, *by, only.as_ref()))).collect()
            }
        }
    }

    /// The first bar that a function sees: those that never forget begin where a limited history does.
    pub fn first_bar(&self, name: &str, symbol: usize, frame: Frame) -> usize {
        let Some((bars, day)) = self.window.filter(|_| UNBOUNDED.contains(&name) && !frame.referred) else { return 0 };
        let base = self.market.symbols[symbol].days.partition_point(|d| *d <= day).saturating_sub(bars);
        let axis = self.bars(symbol, frame.axis);
        axis.last_base.partition_point(|last| *last < base)
    }

    // Columns are exact, their means are not; with a coarse reference all values are coarse.
    fn round_mean(&self, name: &str, x: f64) -> f64 {
        let exact = COLUMNS.contains(&name) && !matches!(*self.rounding.borrow(), Some(Rounding::Coarse(_)));
        if exact { x } else { self.round(x) }
    }

    /// Rounds the mean of values of this size, which may cancel: relative to their size, not to its own.
    fn round_at(&self, x: f64, size: f64) -> f64 {
        match &*self.rounding.borrow() {
            None => return x,
            Some(Rounding::Coarse(bits)) => {
                // A power of two, so that what is equal to so many bits becomes equal.
                let unit = size.log2().floor().exp2() * f64::from(1u32 << bits) * f64::EPSILON;
                return if unit.is_normal() { (x / unit).round() * unit } else { x };
            }
            Some(_) => {}
        }
        x + (self.round(size) - size)
    }

    /// The bar of `other` that `symbol` reads at its bar `t`: at the same time, or with `asof` the latest one, if at
    /// most that many of this symbol's bars are later than it.
    pub fn reference_bar(&self, symbol: usize, other: usize, axis: Axis, t: usize, asof: Option<u32>) -> Option<usize> {
        let (own, theirs) = (self.bars(symbol, axis), self.bars(other, axis));
        let now = own.keys[t];
        let at = theirs.keys.iter().rposition(|key| *key <= now)?;
        let later = own.keys[..=t].iter().filter(|key| **key > theirs.keys[at]).count();
        match asof {
            None => (theirs.keys[at] == now).then_some(at),
            Some(most) => (later <= most as usize).then_some(at),
        }
    }

    /// The last of the symbol's weeks that is complete when its daily bar `t` has closed: the one whose last session,
    /// by the calendar, is over.
    pub fn complete_week(&self, symbol: usize, t: usize) -> Option<usize> {
        let now = self.market.symbols[symbol].days[t];
        let weeks = self.bars(symbol, Axis::Week);
        weeks.keys.iter().rposition(|week| self.week_end(*week).is_some_and(|end| end <= now))
    }

    fn week_end(&self, week: i64) -> Option<i64> {
        *self.week_ends.borrow_mut().entry(week).or_insert_with(|| self.market.last_session_of(week))
    }

    /// `section` is what is ranked how, by which label, among whom.
    fn cross(
        &self,
        symbol: usize,
        frame: Frame,
        t: usize,
        section: (Cross, &Node, Option<&str>, Option<&Node>),
    ) -> Value {
        let (kind, of, by, only) = section;
        // What each symbol contributes comes from its own bars, wherever it is read.
        let frame = Frame { referred: false, ..frame };
        let key = self.bars(symbol, frame.axis).keys[t];
        let group = match by {
            None => None,
            Some(label) => Some(self.label_at(symbol, frame.axis, t, label)?),
        };
        let mut population: Vec<f64> = Vec::new();
        let mut own = None;
        for other in 0..self.market.symbols.len() {
            let bars = self.bars(other, frame.axis);
            let at = match frame.axis {
                Axis::Base => self.read_at(&bars.keys, key),
                Axis::Week | Axis::Forming(_) => bars.keys.iter().position(|k| *k == key),
            };
            let Some(at) = at else { continue };
            if let Some(label) = by
                && self.label_on(other, self.label_day(frame.axis, key), label) != group
            {
                continue;
            }
            if let Some(universe) = self.universe.as_ref().filter(|_| !frame.in_universe) {
                let inside =
                    self.series(universe, other, Frame { axis: Axis::Base, in_universe: true, referred: false });
                if inside[bars.last_base[at]] != Some(1.0) {
                    continue;
                }
            }
            if only.is_some_and(|only| self.series(only, other, frame)[at] != Some(1.0)) {
                continue;
            }
            let Some(value) = finite(self.series(of, other, frame)[at]) else { continue };
            population.push(value);
            if other == symbol {
                own = Some(value);
            }
        }
        cross_section(kind, own, &population, &|x, size| self.round_at(x, size)).map(|x| match kind {
            Cross::Z | Cross::Demean => self.round(x),
            _ => x,
        })
    }

    /// A word of the session at the last of `minutes`, those at which a symbol's bars begin, as a plain reading of its rows says it.
    fn session_word(&self, name: &str, minutes: &[i64], rows: &[[f64; 5]]) -> Value {
        let clock = self.market.clock;
        let t = minutes.len().checked_sub(1)?;
        let (open, close) = self.market.session_of(minutes[t])?;
        let begin = minutes.partition_point(|at| clock.date_of(*at) < clock.date_of(minutes[t]));
        let extreme = |column: usize, bars: &mut dyn Iterator<Item = usize>| {
            let values = bars.filter_map(|bar| finite(known(rows[bar][column])));
            if column == 1 { values.reduce(f64::max) } else { values.reduce(f64::min) }
        };
        match name {
            "minutes_since_open" => Some((minutes[t] - open) as f64),
            "minutes_to_close" => Some((close - minutes[t]) as f64),
            "time_of_day" => Some((minutes[t] - open + Clock::OPEN) as f64),
            "session_bar" => Some((t - begin + 1) as f64),
            "session.open" => known(rows[begin][0]),
            "session.high" => extreme(1, &mut (begin..=t)),
            "session.low" => extreme(2, &mut (begin..=t)),
            "prev_session.close" => known(rows[begin.checked_sub(1)?][3]),
            name => {
                if let Some(word) = name.strip_prefix("prev_") {
                    return self.session_word(word, &minutes[..begin], rows);
                }
                let (range, side) = name.strip_prefix("opening_range(").and_then(|rest| rest.split_once(")."))?;
                let range: i64 = range.parse().ok()?;
                if minutes[t] - open < range {
                    return None;
                }
                let mut early = (begin..=t).filter(|bar| minutes[*bar] - open < range);
                extreme(if side == "high" { 1 } else { 2 }, &mut early)
            }
        }
    }

    /// `avwap('session')` or a band around it at the last of `minutes`: the mean of the prices of the bars of its session that have
    /// both price and volume, and their deviation from it, both weighted by volume. Of daily bars each is a session.
    fn since_the_open(&self, name: &str, minutes: &[i64], rows: &[[f64; 5]]) -> Value {
        let clock = self.market.clock;
        let t = minutes.len().checked_sub(1)?;
        let begin = minutes.partition_point(|at| clock.date_of(*at) < clock.date_of(minutes[t]));
        let bar = |row: &[f64; 5]| Some((finite(column("hlc3", row))?, finite(known(row[4]))?));
        bar(&rows[t])?;
        let bars: Vec<(f64, f64)> = rows[begin..=t].iter().filter_map(bar).collect();
        let weight: f64 = bars.iter().map(|(_, volume)| volume).sum();
        let mean = |of: &dyn Fn(f64) -> f64| {
            known(bars.iter().map(|(price, volume)| of(*price) * volume).sum::<f64>() / weight)
        };
        let middle = mean(&|price| price).map(|x| self.round(x))?;
        let Some((_, band)) = name.rsplit_once('.') else { return Some(middle) };
        let width = mean(&|price| (price - middle).powi(2))?.sqrt();
        let times: f64 = band[1..].parse().ok()?;
        known(self.round(if band.starts_with('u') { middle + times * width } else { middle - times * width }))
    }

    fn label_at(&self, symbol: usize, axis: Axis, t: usize, label: &str) -> Option<String> {
        self.label_on(symbol, self.label_day(axis, self.bars(symbol, axis).keys[t]), label)
    }

    fn label_on(&self, symbol: usize, day: i64, label: &str) -> Option<String> {
        self.market.symbols[symbol].label(label, day).map(str::to_owned)
    }

    /// The bar of `days` that is read on a day: that of the day, or the newest before it that is not too old.
    pub fn read_at(&self, days: &[i64], day: i64) -> Option<usize> {
        let newest = days.iter().rposition(|d| *d <= day)?;
        (day - days[newest] <= self.max_age.unwrap_or(0)).then_some(newest)
    }

    /// The trading day of a bar, which decides on its labels and attributes: its own, or the first of its week.
    fn label_day(&self, axis: Axis, key: i64) -> i64 {
        match axis {
            Axis::Base => key,
            Axis::Week | Axis::Forming(_) => self.market.clock.first_of(key),
        }
    }
}

/// A number for one member (NA when it is not a member) from the values of all members, its own included; or one for
/// all.
fn cross_section(kind: Cross, own: Option<f64>, population: &[f64], round_at: &dyn Fn(f64, f64) -> f64) -> Value {
    let n = population.len() as f64;
    let larger = |x: f64| population.iter().filter(|v| **v > x).count() as f64;
    let mean = |members: &[f64]| if members.is_empty() { f64::NAN } else { mean(members) };
    let size = population.iter().fold(0.0f64, |size, v| size.max(v.abs()));
    let middle = |members: &[f64]| round_at(mean(members), size);
    match kind {
        Cross::Rank => Some(1.0 + larger(own?)),
        Cross::Top(k) => Some(f64::from(u8::from(1.0 + larger(own?) <= f64::from(k)))),
        Cross::Pct => {
            let own = own?;
            let smaller = population.iter().filter(|v| **v < own).count() as f64;
            let equal = population.iter().filter(|v| **v == own).count() as f64;
            // Equal ones share the mean of their ascending ranks.
            Some((smaller + (equal + 1.0) / 2.0 - 0.5) / n)
        }
        Cross::Z => {
            let own = own?;
            if population.iter().all(|v| *v == own) {
                return None;
            }
            let middle = middle(population);
            let variance = population.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / n;
            known((round_at(own, size) - middle) / variance.sqrt())
        }
        Cross::Demean => known(round_at(own?, size) - middle(population)),
        Cross::Quantile(q) => {
            let mut sorted = population.to_vec();
            sorted.sort_by(f64::total_cmp);
            let place = q * (n - 1.0);
            let below = *sorted.get(place.floor() as usize)?;
            let above = *sorted.get(place.ceil() as usize)?;
            known(below + (above - below) * (place - place.floor()))
        }
        Cross::Breadth => known(mean(population)),
    }
}

/// The word for the symbol's own name, which is tested as a label is.
pub const SYMBOL: &str = "symbol";

/// The place of a label's value among all of them in order.
fn place_of(label: &str, value: &str) -> f64 {
    let (_, values) = LABELS.iter().find(|(name, _)| *name == label).expect("a label of the generator");
    values.iter().filter(|other| **other < value).count() as f64
}

/// Whether a name is one of the words of the exchange's sessions.
fn is_word_of_sessions(name: &str) -> bool {
    ["session.", "session_bar", "minutes_", "time_of_day", "opening_range("].iter().any(|word| name.contains(word))
}

fn column(name: &str, row: &[f64; 5]) -> Value {
    let [open, high, low, close, _] = *row;
    known(match name {
        "hl2" => (high + low) / 2.0,
        "hlc3" => (high + low + close) / 3.0,
        "ohlc4" => (open + high + low + close) / 4.0,
        name => row[COLUMNS.iter().position(|c| *c == name).expect("a column")],
    })
}

fn kleene_and(a: Value, b: Value) -> Value {
    match (a, b) {
        (Some(0.0), _) | (_, Some(0.0)) => Some(0.0),
        (Some(_), Some(_)) => Some(1.0),
        _ => None,
    }
}

fn compare(op: Compare, a: Value, b: Value) -> Value {
    let (a, b) = (finite(a)?, finite(b)?);
    let truth = match op {
        Compare::Less => a < b,
        Compare::LessEqual => a <= b,
        Compare::Greater => a > b,
        Compare::GreaterEqual => a >= b,
        Compare::Equal => a == b,
        Compare::NotEqual => a != b,
    };
    Some(f64::from(u8::from(truth)))
}
