//! The generator of `demo`: one market factor, one factor per sector, and each company's own noise.
//!
//! As in `synth`, the arithmetic uses only + - * / and square roots, so that every machine computes the same bits.
//! Prices are generated in the terms after the split and converted to raw terms at the end. The last sessions are
//! generated minute by minute, and their daily bars are aggregated from the minutes.

use super::symbols::{COMPANIES, DELISTED, HALTED, LISTED_LATE, PAYERS, SECTORS, SPLIT, THIN, UNCORRELATED};
use crate::calendar::{Calendar, Session};
use crate::draws::{Draws, cents, growth};
use crate::reference::FactorRow;
use crate::time::{MINUTE, TimeMicros, month_index, parse_time};

const SEED: u64 = 20_241_206;
const FIRST_DAY: &str = "2021-01-04";
const LAST_DAY: &str = "2024-12-06";
/// First session with minute bars.
const FIRST_MINUTE_DAY: &str = "2024-11-22";
/// Streams of the factors, beyond those of companies.
const STREAM_MARKET: u32 = 1_000;
const STREAM_SECTORS: u32 = 1_001;
const STREAM_INDEX: u32 = 2_000;
const INDEX_START: f64 = 370.0;
const INDEX_VOLUME: f64 = 70e6;

/// Open, high, low, close, volume.
pub(super) type Bar = [f64; 5];

/// Raw bars of one symbol.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    pub days: Vec<(TimeMicros, Bar)>,
    pub minutes: Vec<(TimeMicros, Bar)>,
}

/// The whole market: companies in the order of [`COMPANIES`], then the index.
pub(super) struct Market {
    pub series: Vec<Series>,
    pub factors: Vec<FactorRow>,
}

struct Company {
    draws: Draws,
    sector: usize,
    market_share: f64,
    sector_share: f64,
    noise: f64,
    drift: f64,
    volume: f64,
    first: TimeMicros,
    last: TimeMicros,
    halt: (TimeMicros, TimeMicros),
    thin: bool,
    close: f64,
}

/// A move of the whole market on one day.
struct Factors {
    market: f64,
    sectors: [f64; SECTORS.len()],
}

fn date(text: &str) -> TimeMicros {
    parse_time(text).unwrap_or(0)
}

fn company(k: usize) -> Company {
    // At most sixty.
    let mut draws = Draws::new(SEED, k as u32);
    let alone = UNCORRELATED.contains(&k);
    let thin = THIN.contains(&k);
    let sector = SECTORS.iter().position(|s| *s == COMPANIES[k].1).unwrap_or(0);
    let price = cents(45.0 * growth(0.7 * draws.normal()));
    let scale = if thin { 60_000.0 } else { 1_500_000.0 };
    Company {
        sector,
        market_share: if alone { 0.0 } else { 0.6 + 0.8 * draws.uniform() },
        sector_share: if alone { 0.0 } else { 0.5 + 0.8 * draws.uniform() },
        noise: 0.009 + 0.012 * draws.uniform(),
        drift: 0.0003 + 0.0006 * draws.normal(),
        volume: scale * growth(0.6 * draws.normal()),
        first: LISTED_LATE.iter().find(|(c, _)| *c == k).map_or(TimeMicros::MIN, |(_, d)| date(d)),
        last: if DELISTED.0 == k { date(DELISTED.1) } else { TimeMicros::MAX },
        halt: HALTED.iter().find(|h| h.0 == k).map_or((0, -1), |h| (date(h.1), date(h.2))),
        thin,
        close: price,
        draws,
    }
}

/// Generates everything, session by session.
pub(super) fn generate() -> Market {
    let mut companies: Vec<Company> = (0..COMPANIES.len()).map(company).collect();
    let mut market = Market { series: vec![Series::default(); COMPANIES.len() + 1], factors: Vec::new() };
    let mut factor_draws = FactorDraws::new();
    let mut index = Index { draws: Draws::new(SEED, STREAM_INDEX), close: INDEX_START };
    let mut paid_month = 0;
    let (minutes_from, last) = (date(FIRST_MINUTE_DAY), date(LAST_DAY));
    let mut next = Calendar::XNYS.session_on(date(FIRST_DAY));
    while let Some(session) = next.filter(|s| s.date <= last) {
        let factors = factor_draws.draw();
        let month = month_index(session.date);
        // The first session of the last month of a quarter.
        let pays = month % 3 == 2 && month != paid_month && session.date < minutes_from;
        if pays {
            paid_month = month;
        }
        let mut ratios = Ratios::new(&session);
        for (k, company) in companies.iter_mut().enumerate() {
            if session.date < company.first || session.date > company.last {
                continue;
            }
            let before = company.close;
            if (company.halt.0..=company.halt.1).contains(&session.date) {
                ratios.quiet();
                continue;
            }
            let mut base = before;
            if pays && PAYERS.contains(&k) {
                let dividend = cents(before * 0.007);
                base = cents(before - dividend);
                let symbol = COMPANIES[k].0.to_owned();
                market.factors.push(FactorRow { symbol, date: session.date, split: 1.0, dividend });
            }
            let day = company.day(base, &factors);
            let bar = if session.date < minutes_from {
                ratios.day(&day, before);
                day
            } else {
                let minutes = company.minutes(&session, base, &day);
                ratios.minutes(&session, &minutes, before);
                let regular = minutes.iter().filter(|(t, _)| *t >= session.open).map(|(_, b)| *b);
                let whole = regular.reduce(join).unwrap_or(day);
                market.series[k].minutes.extend(minutes);
                whole
            };
            company.close = bar[3];
            market.series[k].days.push((session.date, bar));
        }
        let of_index = &mut market.series[COMPANIES.len()];
        if session.date < minutes_from {
            of_index.days.push((session.date, index.day(&ratios)));
        } else {
            let minutes = index.minutes(&session, &ratios);
            if let Some(day) = minutes.iter().map(|(_, b)| *b).reduce(join) {
                of_index.days.push((session.date, day));
            }
            of_index.minutes.extend(minutes);
        }
        next = Calendar::XNYS.next_session(session.date);
    }
    split(&mut market);
    market
}

/// Converts the bars before the split to raw terms.
fn split(market: &mut Market) {
    let (k, day, ratio) = (SPLIT.0, date(SPLIT.1), SPLIT.2);
    for (time, bar) in &mut market.series[k].days {
        if *time < day {
            let [open, high, low, close, volume] = *bar;
            let raw = |price: f64| cents(price * ratio);
            *bar = [raw(open), raw(high), raw(low), raw(close), (volume / ratio).floor().max(1.0)];
        }
    }
    let symbol = COMPANIES[k].0.to_owned();
    market.factors.push(FactorRow { symbol, date: day, split: ratio, dividend: 0.0 });
}

/// Two consecutive bars merged into one.
fn join(a: Bar, b: Bar) -> Bar {
    [a[0], a[1].max(b[1]), a[2].min(b[2]), b[3], a[4] + b[4]]
}

/// A bar around its open and close.
fn bar(open: f64, close: f64, above: f64, below: f64, volume: f64) -> Bar {
    let (top, bottom) = (open.max(close), open.min(close));
    let high = cents(top * (1.0 + above)).max(top);
    let low = cents(bottom * (1.0 - below)).min(bottom);
    [open, high, low, close, volume.floor().max(1.0)]
}

struct FactorDraws {
    market: Draws,
    sectors: Vec<Draws>,
    variance: f64,
}

impl FactorDraws {
    fn new() -> Self {
        let sectors = (0..SECTORS.len()).map(|s| Draws::new(SEED, STREAM_SECTORS + s as u32)).collect();
        Self { market: Draws::new(SEED, STREAM_MARKET), sectors, variance: 0.009 * 0.009 }
    }

    /// Volatility of the market comes in clusters.
    fn draw(&mut self) -> Factors {
        const USUAL: f64 = 0.009;
        let market = self.variance.sqrt() * self.market.normal();
        self.variance = 0.04 * USUAL * USUAL + 0.1 * market * market + 0.86 * self.variance;
        let mut sectors = [0.0; SECTORS.len()];
        for (to, draws) in sectors.iter_mut().zip(&mut self.sectors) {
            *to = 0.006 * draws.normal();
        }
        Factors { market: (market + 0.0004).clamp(-0.05, 0.05), sectors }
    }
}

impl Company {
    /// The day's bar, starting from the previous close.
    fn day(&mut self, base: f64, factors: &Factors) -> Bar {
        let common = self.market_share * factors.market + self.sector_share * factors.sectors[self.sector];
        let own = self.noise * self.draws.normal();
        // News at the open, on one day in 120.
        let news = if self.draws.uniform() < 1.0 / 120.0 { 0.06 * self.draws.normal() } else { 0.0 };
        let gap = 0.3 * common + 0.25 * self.noise * self.draws.normal() + news;
        // Mean reversion from the extremes.
        let pull = if base < 8.0 {
            0.004
        } else if base > 400.0 {
            -0.004
        } else {
            0.0
        };
        let open = cents(base * (1.0 + gap.clamp(-0.25, 0.25)));
        let close = cents(open * (1.0 + (0.7 * common + own + self.drift + pull).clamp(-0.2, 0.2)));
        let [above, below] = [0, 1].map(|_| 0.5 * self.noise * self.draws.uniform());
        let activity = ((own + common).abs() / self.noise + 20.0 * news.abs()).min(6.0);
        let volume = self.volume * growth(0.3 * self.draws.normal() + 0.25 * activity);
        bar(open, close, above, below, volume)
    }

    /// The day minute by minute, from its open to its close; for companies with much trading also some bars before the
    /// open.
    fn minutes(&mut self, session: &Session, base: f64, day: &Bar) -> Vec<(TimeMicros, Bar)> {
        let count = ((session.close - session.open) / MINUTE) as usize;
        let mut bars = Vec::with_capacity(count);
        if !self.thin && self.volume > 2_000_000.0 {
            for ahead in [45, 20, 6] {
                let at = session.open - (ahead + self.draws.below(10) as i64) * MINUTE;
                let open = cents(base + (day[0] - base) * self.draws.uniform());
                let close = cents(open * (1.0 + 0.0005 * self.draws.normal()));
                bars.push((at, bar(open, close, 0.0002, 0.0002, 2e-4 * day[4])));
            }
            bars.sort_by_key(|b| b.0);
            bars.dedup_by_key(|b| b.0);
        }
        let step = 0.6 * self.noise / (count as f64).sqrt();
        let mut walk = Vec::with_capacity(count + 1);
        walk.push(0.0);
        for k in 0..count {
            walk.push(walk[k] + step * self.draws.normal());
        }
        let n = count as f64;
        // A Brownian bridge between the day's open and close.
        let price = |k: usize| {
            let u = k as f64 / n;
            cents((day[0] + (day[3] - day[0]) * u) * (1.0 + walk[k] - u * walk[count]))
        };
        for k in 0..count {
            let idle = self.thin && self.draws.uniform() < 0.5;
            let [above, below, shape] = [0, 1, 2].map(|_| self.draws.uniform());
            if idle {
                continue;
            }
            // More at the open and the close than at noon.
            let u = 2.0 * k as f64 / n - 1.0;
            let volume = day[4] / n * (0.6 + 1.2 * u * u) * (0.4 + 1.2 * shape);
            let minute = bar(price(k), price(k + 1), step * above, step * below, volume);
            bars.push((session.open + k as i64 * MINUTE, minute));
        }
        bars
    }
}

/// Ratios of prices to the previous closes, summed over the listed companies.
struct Ratios {
    count: f64,
    /// At the open and the close of the day, where there are no minutes.
    day: [f64; 2],
    /// At the open, and at the end of each minute.
    minutes: Vec<f64>,
}

impl Ratios {
    fn new(session: &Session) -> Self {
        let minutes = ((session.close - session.open) / MINUTE) as usize + 1;
        Self { count: 0.0, day: [0.0; 2], minutes: vec![0.0; minutes] }
    }

    /// A company without a trade keeps its price.
    fn quiet(&mut self) {
        self.count += 1.0;
        self.day.iter_mut().chain(&mut self.minutes).for_each(|sum| *sum += 1.0);
    }

    fn day(&mut self, bar: &Bar, before: f64) {
        self.count += 1.0;
        self.day[0] += bar[0] / before;
        self.day[1] += bar[3] / before;
    }

    fn minutes(&mut self, session: &Session, bars: &[(TimeMicros, Bar)], before: f64) {
        self.count += 1.0;
        let mut regular = bars.iter().filter(|(t, _)| *t >= session.open).peekable();
        let mut last = regular.peek().map_or(before, |(_, b)| b[0]);
        for (k, sum) in self.minutes.iter_mut().enumerate() {
            // The price at the end of minute k - 1.
            let end = session.open + k as i64 * MINUTE;
            while let Some((_, b)) = regular.next_if(|(t, _)| *t < end) {
                last = b[3];
            }
            *sum += last / before;
        }
    }
}

/// The index: its previous close times the mean of the companies' ratios.
struct Index {
    draws: Draws,
    close: f64,
}

impl Index {
    fn day(&mut self, ratios: &Ratios) -> Bar {
        let [open, close] = ratios.day.map(|sum| cents(self.close * sum / ratios.count));
        let [above, below] = [0, 1].map(|_| 0.003 * self.draws.uniform());
        self.close = close;
        bar(open, close, above, below, INDEX_VOLUME * growth(0.25 * self.draws.normal()))
    }

    fn minutes(&mut self, session: &Session, ratios: &Ratios) -> Vec<(TimeMicros, Bar)> {
        let before = self.close;
        let price = |k: usize| cents(before * ratios.minutes[k] / ratios.count);
        let count = ratios.minutes.len() - 1;
        let mut bars = Vec::with_capacity(count);
        for k in 0..count {
            let [above, below, shape] = [0, 1, 2].map(|_| self.draws.uniform());
            let volume = INDEX_VOLUME / count as f64 * (0.5 + shape);
            let minute = bar(price(k), price(k + 1), 0.0001 * above, 0.0001 * below, volume);
            bars.push((session.open + k as i64 * MINUTE, minute));
        }
        self.close = price(count);
        bars
    }
}
