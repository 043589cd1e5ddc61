//! Named sets of columns: one word in `select` or `--expr` stands for all of them.

/// Columns under one name.
#[derive(Debug)]
pub struct NamedSet {
    /// As it is written.
    pub name: &'static str,
    /// One line: what it holds.
    pub summary: &'static str,
    columns: fn() -> Vec<(String, String)>,
}

impl NamedSet {
    /// Heading and expression of each column.
    pub fn columns(&self) -> Vec<(String, String)> {
        (self.columns)()
    }
}

/// All of them.
pub const SETS: [NamedSet; 2] = [
    NamedSet {
        name: "seed111",
        summary: "111 features: averages, momentum, volatility, volume, anchored averages and their bands",
        columns: seed111,
    },
    NamedSet {
        name: "seed_rolling",
        summary: "17 features: volume-weighted averages of 50, 100 and 200 bars, SMA and EMA of 7 to 200",
        columns: seed_rolling,
    },
];

/// The set called `name`.
pub fn find_set(name: &str) -> Option<&'static NamedSet> {
    SETS.iter().find(|s| s.name == name)
}

fn of_periods<'a>(
    heading: &'a str,
    periods: &'a [u32],
    expression: impl Fn(u32) -> String + 'a,
) -> impl Iterator<Item = (String, String)> + 'a {
    periods.iter().map(move |p| (format!("{heading}_{p}"), expression(*p)))
}

fn seed111() -> Vec<(String, String)> {
    let one = |heading: &str, expression: &str| (heading.to_owned(), expression.to_owned());
    let mut all: Vec<(String, String)> = Vec::with_capacity(111);
    all.extend(of_periods("sma", &[10, 20, 50, 200], |p| format!("sma(close, {p})")));
    all.extend(of_periods("ema", &[5, 10, 20, 50, 100, 150, 200, 300, 1000], |p| format!("ema(close, {p})")));
    all.extend(of_periods("rsi", &[7, 9, 14, 21, 25], |p| format!("rsi(close, {p})")));
    for [fast, slow, signal] in [[12, 26, 9], [5, 13, 5], [19, 39, 9], [3, 10, 16]] {
        all.push((format!("macd_{fast}_{slow}_{signal}"), format!("macd(close, {fast}, {slow}, {signal}).line")));
    }
    all.extend(of_periods("atr", &[7, 10, 14, 20, 30], |p| format!("sma(trange(), {p})")));
    // Bands of two sample deviations: the population's, times sqrt(p/(p - 1)).
    let width = |p: u32| format!("4 * stddev(close, {p}) * sqrt({p} / {}) / sma(close, {p})", p - 1);
    all.extend(of_periods("bb_width", &[10, 15, 20, 30, 50], width));
    all.push(one("obv", "obv()"));
    all.push(one("vwap", "vwap()"));
    let (above, below) = ("(highest(high, 50) - close)", "(lowest(low, 50) - close)");
    let nearer = format!("iff({above} <= -{below}, {above}, {below}) / close");
    all.push(("support_resistance_50".to_owned(), nearer));
    let anchors =
        ["session", "daily", "weekly", "monthly", "high", "low", "hvol", "prev_high", "prev_low", "prev_hvol"];
    all.extend(anchors.iter().map(|a| (format!("avwap_{a}"), format!("avwap('{a}')"))));
    let based =
        std::iter::once(("vwap".to_owned(), "history")).chain(anchors.iter().map(|a| (format!("avwap_{a}"), *a)));
    for (heading, anchor) in based {
        let band = |b: &str| (format!("{heading}_{b}"), format!("avwap_bands('{anchor}').{b}"));
        all.extend(["u1", "u2", "u3", "l1", "l2", "l3"].map(band));
    }
    all
}

fn seed_rolling() -> Vec<(String, String)> {
    const PERIODS: [u32; 7] = [7, 9, 14, 20, 50, 100, 200];
    let mut all: Vec<(String, String)> = Vec::with_capacity(17);
    all.extend(of_periods("avwap", &[50, 100, 200], |p| format!("sum(hlc3 * volume, {p}) / sum(volume, {p})")));
    all.extend(of_periods("sma", &PERIODS, |p| format!("sma(close, {p})")));
    all.extend(of_periods("ema", &PERIODS, |p| format!("ema(close, {p})")));
    all
}
