//! Words of Pine, pandas and other scan languages, and what to write for them here. They are for messages alone.

/// The word, and what it is in this language.
const WORDS: [(&str, &str); 52] = [
    ("ago", "x[1] is x one bar before"),
    ("avg", "write sma(x, n) for a mean over time, (a + b) / 2 for one of values"),
    ("bars_since", "write since(c)"),
    ("barssince", "write since(c)"),
    ("bollinger", "write bbands(x, n).upper"),
    ("change", "write x - x[1], or roc(x, n) in percent"),
    ("correlation", "write correl(a, b, n)"),
    ("cross", "write crosses_above(a, b) or crosses_below(a, b)"),
    ("crossabove", "write crosses_above(a, b)"),
    ("crossbelow", "write crosses_below(a, b)"),
    ("crossover", "write crosses_above(a, b)"),
    ("crossunder", "write crosses_below(a, b)"),
    ("cummax", "write highest(x, n)"),
    ("dayofweek", "write weekday: 1 for Monday, or weekday == 'friday'"),
    ("delay", "x[n] is x n bars before"),
    ("delta", "write x - x[n]"),
    ("diff", "write x - x[1]"),
    ("ewm", "write ema(x, n)"),
    ("falling", "write streak(x < x[1], n)"),
    ("fillna", "write nz(x, 0)"),
    ("fixnan", "write valuewhen(x == x, x): the last value that is there"),
    ("hhv", "write highest(x, n)"),
    ("hl", "hl2 is (high + low)/2"),
    ("hour", "write time_of_day: minutes since midnight, or time_of_day >= '10:30'"),
    ("if", "write iff(c, a, b)"),
    ("iloc", "x[1] is x one bar before"),
    ("isna", "x == x is NA where x is: nz(x, value) replaces NA"),
    ("llv", "write lowest(x, n)"),
    ("mean", "write sma(x, n) for a mean over time, (a + b) / 2 for one of values"),
    ("minute", "write time_of_day: minutes since midnight, or time_of_day >= '10:30'"),
    ("na", "nz(x, value) replaces NA"),
    ("nancumsum", "write cumsum(x)"),
    ("pct_change", "write roc(x, n), in percent, or rocp(x, n)"),
    ("quantile", "write percentile(x, n, percent) over time, xs_quantile(x, q) over symbols"),
    ("rank", "write percentrank(x, n) over time, xs_rank(x) or xs_pct(x) over symbols"),
    ("request", "write ref('SPY', x) for another symbol, tf('1w', x) for another timeframe"),
    ("rising", "write streak(x > x[1], n)"),
    ("roll_max", "write highest(x, n)"),
    ("roll_min", "write lowest(x, n)"),
    ("rolling", "every window has a function of its own: sma(x, n), highest(x, n), stddev(x, n)"),
    ("rolling_max", "write highest(x, n)"),
    ("rolling_mean", "write sma(x, n)"),
    ("rolling_min", "write lowest(x, n)"),
    ("rolling_std", "write stddev(x, n)"),
    ("rolling_sum", "write sum(x, n)"),
    ("security", "write ref('SPY', x) for another symbol, tf('1w', x) for another timeframe"),
    ("shift", "x[1] is x one bar before"),
    ("std", "write stddev(x, n)"),
    ("stdev", "write stddev(x, n)"),
    ("tr", "write trange()"),
    ("where", "write iff(c, a, b)"),
    ("wpr", "write willr(n)"),
];

/// Namespaces that other languages write before their functions.
pub(crate) const NAMESPACES: [&str; 5] = ["ta", "talib", "math", "np", "pd"];

/// What to write for a word of another language.
pub fn hint(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    WORDS.iter().find(|(theirs, _)| *theirs == lower).map(|(_, ours)| (*ours).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn every_hint_is_of_a_word_unknown_here_and_names_functions_that_are_there() {
        let known = |name: &str| catalogue::find(name).is_some() || catalogue::find_form(name).is_some();
        for (word, ours) in WORDS {
            assert!(!known(word), "{word}");
            for before in ours.split('(').rev().skip(1) {
                let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or("");
                assert!(name.is_empty() || known(name), "{word}: {name}");
            }
        }
        assert!(WORDS.is_sorted());
    }
}
