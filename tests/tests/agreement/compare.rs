//! One scan on one market: the engine's answer compared with the reference's.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use trawl_tests::reference::Market;
use trawl_tests::reference::answer::{Row, Scan, Status, answers_on};

use super::engine::{EngineRow, engine_answers, is_of_some_days};

/// Relative difference of values that agree.
const TOLERANCE: f64 = 1e-9;
/// Disturbed references that are evaluated when a row differs.
const DISTURBED: u64 = 16;
/// Further ones that are evaluated for one row before a disagreement is reported: a sum of decisions that rounding can
/// turn (`obv`, `mfi`), or the place among many near values, has more possible values than sixteen references show.
pub const DISTURBED_MAX: u64 = 4_096;

/// What was compared.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub rows: u64,
    pub matched: u64,
    pub values: u64,
    pub flagged: u64,
    /// Decisions that differ in rows flagged `edge`.
    pub edge_decisions: u64,
    /// Decisions and flags that differ where disturbed arithmetic differs too.
    pub rounded_decisions: u64,
    /// The same for values.
    pub rounded_values: u64,
    /// Of the two, rows that needed more than the first disturbed references.
    pub searched: u64,
    /// Hash of the engine's rows, the same in whichever order scans are added; for comparing builds and machines.
    pub bits: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.matched += other.matched;
        self.values += other.values;
        self.flagged += other.flagged;
        self.edge_decisions += other.edge_decisions;
        self.rounded_decisions += other.rounded_decisions;
        self.rounded_values += other.rounded_values;
        self.searched += other.searched;
        self.bits = self.bits.wrapping_add(other.bits);
    }

    /// Rows that differ and were excused.
    pub fn excused(&self) -> u64 {
        self.edge_decisions + self.rounded_decisions + self.rounded_values
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rows, {} matches, {} values, {} flagged; differing by rounding: {} flagged decisions, {} others, {} values \
             ({} searched for), bits {:016x}",
            self.rows,
            self.matched,
            self.values,
            self.flagged,
            self.edge_decisions,
            self.rounded_decisions,
            self.rounded_values,
            self.searched,
            self.bits
        )
    }
}

/// A disagreement.
#[derive(Debug, Clone)]
pub struct Disagreement {
    /// Refused, rows, status, edge, value, order.
    pub kind: &'static str,
    pub text: String,
}

type Compared<T> = Result<T, Box<Disagreement>>;

fn differ<T>(kind: &'static str, text: String) -> Compared<T> {
    Err(Box::new(Disagreement { kind, text }))
}

/// A reference's rows at every day.
type Answers = Vec<(i64, Vec<Row>)>;

/// References whose arithmetic is disturbed, created when they are first needed.
pub struct Disturbed<'a> {
    market: &'a Market,
    scan: &'a Scan,
    days: Vec<i64>,
    /// References that may be evaluated for one row when the first do not explain it.
    more_max: u64,
    answers: OnceCell<Vec<Answers>>,
}

impl<'a> Disturbed<'a> {
    pub fn new(market: &'a Market, scan: &'a Scan, days: Vec<i64>, more_max: u64) -> Self {
        Self { market, scan, days, more_max, answers: OnceCell::new() }
    }

    /// The same row by each of the first references.
    pub fn rows(&self, day: usize, symbol: usize) -> Vec<&Row> {
        let all = self.answers.get_or_init(|| {
            let of = |seed| answers_on(self.market, self.scan, &self.days, Some(seed));
            (0..DISTURBED).map(of).collect()
        });
        all.iter().map(|answer| &answer[day].1[symbol]).collect()
    }

    /// Whether the row of some disturbed references makes `explains` true: the first ones together, then each of the
    /// further ones.
    fn explain(&self, day: usize, symbol: usize, tally: &mut Tally, explains: &dyn Fn(&[&Row]) -> bool) -> bool {
        if explains(&self.rows(day, symbol)) {
            return true;
        }
        let days = [self.days[day]];
        let explained = (DISTURBED..DISTURBED + self.more_max).any(|seed| {
            let answer = answers_on(self.market, self.scan, &days, Some(seed));
            explains(&[&answer[0].1[symbol]])
        });
        tally.searched += u64::from(explained);
        explained
    }
}

/// Compares every row; the tally of what was compared is returned with a disagreement too.
///
/// `more_max`: disturbed references beyond the first sixteen that may be evaluated for a row.
pub fn compare(market: &Market, scan: &Scan, more_max: u64) -> Result<Tally, (Disagreement, Tally)> {
    let mut tally = Tally::default();
    match compare_all(market, scan, more_max, &mut tally) {
        Ok(()) => Ok(tally),
        Err(disagreement) => Err((*disagreement, tally)),
    }
}

fn compare_all(market: &Market, scan: &Scan, more_max: u64, tally: &mut Tally) -> Compared<()> {
    let engine = match engine_answers(market, scan) {
        Ok(engine) => engine,
        Err(message) => return differ("refused", message),
    };
    tally.bits = bits(&engine);
    let days: Vec<i64> = engine.iter().map(|e| e.0).collect();
    if !is_of_some_days(scan) && days != market.days() {
        return differ("rows", format!("the engine answered {} times, not {}", days.len(), market.days().len()));
    }
    let wanted = answers_on(market, scan, &days, None);
    let disturbed = Disturbed::new(market, scan, days, more_max);
    let disturbed_row = |at, symbol| {
        let disturbed = &disturbed;
        move |tally: &mut Tally, explains: &dyn Fn(&[&Row]) -> bool| disturbed.explain(at, symbol, tally, explains)
    };
    for (at, ((day, got), (_, want))) in engine.iter().zip(&wanted).enumerate() {
        let mut names: Vec<&str> = got.iter().map(|r| r.symbol.as_str()).collect();
        names.sort_unstable();
        if names != market.symbols.iter().map(|s| s.name.as_str()).collect::<Vec<_>>() {
            return differ("rows", format!("day {day}: rows of {names:?}"));
        }
        for row in got {
            let symbol = market.find(&row.symbol).expect("checked above");
            compare_row(*day, row, &want[symbol], &disturbed_row(at, symbol), tally)?;
        }
        order(*day, got, scan)?;
    }
    Ok(())
}

/// A hash of all that the engine said; every NaN is the same.
fn bits(engine: &[(i64, Vec<EngineRow>)]) -> u64 {
    let mut hash = DefaultHasher::new();
    for (day, rows) in engine {
        for row in rows {
            (day, &row.symbol, row.status as u8, row.edge).hash(&mut hash);
            for value in row.rank.iter().chain(&row.select) {
                (if value.is_nan() { f64::NAN } else { *value }).to_bits().hash(&mut hash);
            }
        }
    }
    hash.finish()
}

/// Evaluates the disturbed references for one row.
type Explain<'a> = &'a dyn Fn(&mut Tally, &dyn Fn(&[&Row]) -> bool) -> bool;

fn compare_row(day: i64, got: &EngineRow, want: &Row, disturbed: Explain<'_>, tally: &mut Tally) -> Compared<()> {
    let place = || format!("{} on day {day}", got.symbol);
    tally.rows += 1;
    tally.flagged += u64::from(want.edge.must);
    if let Some(edge) = got.edge
        && ((want.edge.must && !edge) || (edge && !want.edge.may))
    {
        let explains = |rows: &[&Row]| rows.iter().any(|row| row.edge.may == edge || row.edge.must == edge);
        if !disturbed(tally, &explains) {
            let text = format!("{}: the engine's edge is {edge}, the reference's {:?}", place(), want.edge);
            return differ("edge", text);
        }
        tally.rounded_decisions += 1;
    }
    if got.status != want.status {
        if want.edge.may {
            tally.edge_decisions += 1;
        } else if disturbed(tally, &|rows| rows.iter().any(|row| row.status == got.status)) {
            tally.rounded_decisions += 1;
        } else {
            let text = format!("{}: the engine says {:?}, the reference {:?}", place(), got.status, want.status);
            return differ("status", text);
        }
        return Ok(());
    }
    if got.status != Status::Matched {
        return match got.rank.is_empty() && got.select.is_empty() {
            true => Ok(()),
            false => differ("value", format!("{}: values in a row that is not a match", place())),
        };
    }
    tally.matched += 1;
    if got.rank.len() != want.rank.len() || got.select.len() != want.select.len() {
        return differ("value", format!("{}: another number of values", place()));
    }
    let both = |row: &Row| row.rank.iter().chain(&row.select).map(|v| v.unwrap_or(f64::NAN)).collect::<Vec<f64>>();
    let wanted = both(want);
    let want_row = want;
    for (i, (&got, &want)) in got.rank.iter().chain(&got.select).zip(&wanted).enumerate() {
        tally.values += 1;
        if close(got, want, TOLERANCE) {
            continue;
        }
        if want_row.near[i] {
            tally.rounded_values += 1;
            continue;
        }
        let others = |rows: &[&Row]| -> Vec<f64> {
            rows.iter().map(|row| both(row).get(i).copied().unwrap_or(f64::NAN)).collect()
        };
        let first = RefCell::new(Vec::new());
        let explains = |rows: &[&Row]| {
            let others = others(rows);
            let explained = rounding_explains(got, want, &others);
            if first.borrow().is_empty() {
                *first.borrow_mut() = others;
            }
            explained
        };
        if !disturbed(tally, &explains) {
            let others = first.borrow();
            let text = format!("{}: value {i} is {got:?}, the reference has {want:?}, disturbed {others:?}", place());
            return differ("value", text);
        }
        tally.rounded_values += 1;
    }
    Ok(())
}

/// Whether two values are equal, both NA, or differ by rounding alone.
pub fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
}

/// Whether a disturbed reference gives the value, or changes it beyond all bounds: twelve digits in, not six out. So
/// does one with values on both sides of 0, where exact arithmetic may give the 0 by which division is undefined.
fn rounding_explains(got: f64, want: f64, others: &[f64]) -> bool {
    if got.is_nan() && others.iter().any(|o| *o < 0.0) && others.iter().any(|o| *o > 0.0) {
        return true;
    }
    let scatter = others.iter().map(|o| (o - want).abs()).fold(0.0, f64::max);
    others.iter().any(|o| close(got, *o, TOLERANCE) || !close(want, *o, 1e-6)) || (got - want).abs() <= 4.0 * scatter
}

/// Matches are in the order of their rank keys, NA last, ties by symbol; the others by symbol.
fn order(day: i64, rows: &[EngineRow], scan: &Scan) -> Compared<()> {
    if super::engine::SORTED_BY_SYMBOL {
        return Ok(());
    }
    for pair in rows.windows(2) {
        let [a, b] = pair else { continue };
        let right = match (a.status == Status::Matched, b.status == Status::Matched) {
            (true, false) => true,
            (false, true) => false,
            (false, false) => a.symbol < b.symbol,
            (true, true) => before(a, b, scan),
        };
        if !right {
            return differ("order", format!("day {day}: {} comes before {}", a.symbol, b.symbol));
        }
    }
    Ok(())
}

fn before(a: &EngineRow, b: &EngineRow, scan: &Scan) -> bool {
    for ((x, y), (_, ascending)) in a.rank.iter().zip(&b.rank).zip(&scan.rank) {
        match (x.is_nan(), y.is_nan()) {
            (false, true) => return true,
            (true, false) => return false,
            (false, false) if x != y => return (x < y) == *ascending,
            _ => {}
        }
    }
    a.symbol < b.symbol
}
