//! Random markets.

use std::collections::BTreeMap;

use super::generate::LABELS;
use super::market::{Clock, Event, Market, Symbol, new_york_minutes, new_york_sessions};
use super::random::Random;

/// Minutes of a session, whole days.
const MINUTES_A_SESSION: usize = 390;

/// 2 to 12 symbols over 40 to 160 sessions: some begin late, some end early, some miss sessions or single values;
/// equal values, few distinct prices, flat stretches, bars without volume, labels that are missing or change, splits and
/// dividends.
pub fn market(random: &mut Random) -> Market {
    over(random, Clock::Days, new_york_sessions())
}

/// The same over minutes; without splits, dividends and attributes, which are those of days.
pub fn minutes(random: &mut Random) -> Market {
    let mut market = over(random, Clock::Minutes, new_york_minutes());
    for symbol in &mut market.symbols {
        symbol.events.clear();
        symbol.attributes.clear();
    }
    market
}

fn over(random: &mut Random, clock: Clock, sessions: Vec<i64>) -> Market {
    let count = random.between(40, 160) as usize;
    let first = random.between(5, (sessions.len() - count - 10) as u64) as usize;
    // Of minutes, half of the markets have the end of a session inside.
    let first = match clock {
        Clock::Minutes if random.once_in(2) => MINUTES_A_SESSION * random.between(1, 4) as usize - count / 2,
        Clock::Days | Clock::Minutes => first,
    };
    let span = &sessions[first..first + count];
    // Half of the markets have a coarse grid: many ties within and between symbols.
    let step = random.pick(&[0.01, 0.01, 0.25, 1.0]);
    let dirt = random.pick(&[0u64, 0, 100, 30, 10]);
    let most = if random.once_in(6) { 6 } else { 400 };
    let eventful = random.once_in(2);
    let mut symbols: Vec<Symbol> = Vec::new();
    for i in 0..random.between(2, 12) {
        let name = if i == 0 { "SPY".to_owned() } else { format!("S{i:02}") };
        let mut symbol = symbol(random, name, span, (step, most), dirt, symbols.last());
        if eventful {
            symbol.events = events(random, span, step);
        }
        symbols.push(symbol);
    }
    symbols.sort_by(|a, b| a.name.cmp(&b.name));
    Market { clock, symbols, sessions }
}

/// Up to three events, some without effect, some that leave no price.
fn events(random: &mut Random, span: &[i64], step: f64) -> Vec<Event> {
    let mut days: Vec<i64> = (0..random.below(4)).map(|_| random.pick(span)).collect();
    days.sort_unstable();
    days.dedup();
    let event = |day| {
        let split = random.pick(&[1.0, 1.0, 2.0, 3.0, 1.5, 0.5, 0.1]);
        let dividend = if random.once_in(2) { 0.0 } else { random.between(1, 40) as f64 * step };
        Event { day, split, dividend }
    };
    days.into_iter().map(event).collect()
}

fn symbol(
    random: &mut Random,
    name: String,
    span: &[i64],
    (step, most): (f64, i64),
    dirt: u64,
    other: Option<&Symbol>,
) -> Symbol {
    let late = if random.once_in(3) { random.below(span.len() as u64 / 2) as usize } else { 0 };
    let early = if random.once_in(5) { random.below(20) as usize } else { 0 };
    let gaps = random.pick(&[0u64, 0, 40, 8]);
    let mut symbol = Symbol { name, ..Symbol::default() };
    let mut price = (random.between(20, 400) as i64).min(most);
    let mut flat = 0;
    for &day in &span[late..span.len() - early] {
        if gaps > 0 && random.once_in(gaps) {
            continue;
        }
        let mut row = if flat > 0 {
            flat -= 1;
            let still = price as f64 * step;
            [still, still, still, still, 0.0]
        } else {
            // With few prices the steps are small too.
            let reach = if most < 20 { 1 } else { 6 };
            let open = (price + random.below(5).min(2 * reach) as i64 - 2).max(1);
            price = (price + random.below(2 * reach + 1) as i64 - reach as i64).max(1);
            if most < 20 {
                price = price.min(most);
            }
            let high = open.max(price) + random.below(4) as i64;
            let low = (open.min(price) - random.below(4) as i64).max(1);
            let volume = if random.once_in(10) { 0.0 } else { random.between(1, 50) as f64 * 130.0 };
            if random.once_in(25) {
                flat = random.between(2, 15);
            }
            [open as f64 * step, high as f64 * step, low as f64 * step, price as f64 * step, volume]
        };
        // Sometimes the same bar as another symbol's.
        if let Some(other) = other.filter(|_| random.once_in(12))
            && let Ok(at) = other.days.binary_search(&day)
        {
            row = other.bars[at];
        }
        if dirt > 0 {
            for value in &mut row {
                if random.once_in(dirt) {
                    *value = f64::NAN;
                }
            }
        }
        symbol.days.push(day);
        symbol.bars.push(row);
    }
    if symbol.days.is_empty() {
        symbol.days.push(span[span.len() - 1]);
        symbol.bars.push([step; 5]);
    }
    symbol.labels = labels(random, span);
    symbol.attributes = attributes(random, span);
    symbol
}

fn labels(random: &mut Random, span: &[i64]) -> BTreeMap<String, Vec<(i64, Option<String>)>> {
    let mut labels = BTreeMap::new();
    for (label, values) in LABELS {
        let mut value = || (!random.once_in(5)).then(|| random.pick(values).to_owned());
        let mut spans = vec![(i64::MIN, value())];
        let change = value();
        if random.once_in(4) {
            spans.push((random.pick(span), change));
        }
        labels.insert(label.to_owned(), spans);
    }
    labels
}

/// Up to four values, some of them known before the first bar or on a day without a session.
fn attributes(random: &mut Random, span: &[i64]) -> Vec<(i64, &'static str, f64)> {
    let mut days: Vec<i64> =
        (0..random.below(5)).map(|_| random.pick(span) + random.between(0, 6) as i64 - 3).collect();
    days.sort_unstable();
    days.dedup();
    let value = |day| match random.once_in(2) {
        true => (day, "cap", random.pick(&[0.0, 0.5, 3.0, 10.0, 250.0])),
        false => (day, "earnings", (day + random.between(0, 90) as i64 - 30) as f64),
    };
    days.into_iter().map(value).collect()
}
