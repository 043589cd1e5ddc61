//! Words of Pine, pandas and other scan languages, and what to write for them here. They are for messages alone.

use crate::catalogue;

/// The word, and what it is in this language.
const WORDS: [(&str, &str); 109] = [
    ("ago", "x[1] is x one bar before"),
    ("alert", "--notify posts the matches of a scan"),
    ("alertcondition", "--notify posts the matches of a scan"),
    ("avg", "write sma(x, n) for a mean over time, (a + b) / 2 for one of values"),
    (
        "bar_index",
        "no word counts the bars from the first one: since(c) counts those since c was true, session_bar those of a session",
    ),
    ("bars_since", "write since(c)"),
    ("barssince", "write since(c)"),
    ("barstate", "leave it out: an answer is about the last bar"),
    ("bb", "write bbands(x, n, k).upper, .middle or .lower"),
    ("between", "write a <= x <= b"),
    ("bollinger", "write bbands(x, n).upper"),
    ("change", "write x - x[1], or roc(x, n) in percent"),
    ("clip", "write clamp(x, low, high)"),
    ("corr", "write correl(a, b, n)"),
    ("correlation", "write correl(a, b, n)"),
    ("cov", "write correl(a, b, n)*stddev(a, n)*stddev(b, n), the population's covariance; there is no function of it"),
    ("cross", "write crosses_above(a, b) or crosses_below(a, b)"),
    ("crossabove", "write crosses_above(a, b)"),
    ("crossbelow", "write crosses_below(a, b)"),
    ("crossed_above", "write crosses_above(a, b)"),
    ("crossed_below", "write crosses_below(a, b)"),
    ("crossover", "write crosses_above(a, b)"),
    ("crossunder", "write crosses_below(a, b)"),
    ("cum", "write cumsum(x)"),
    (
        "cummax",
        "no function looks at all bars so far: highest(x, n) looks at n bars, highest_since(x, c) at those since c",
    ),
    (
        "cummin",
        "no function looks at all bars so far: lowest(x, n) looks at n bars, lowest_since(x, c) at those since c",
    ),
    (
        "date",
        "--from, --to and --as-of choose the time; days_to(x) and days_since(x) are of an attribute that is a date",
    ),
    ("day", "write weekday == 'friday'; tf('1d', x) is x on daily bars"),
    ("dayofmonth", "no word is the day of the month; weekday and month are there"),
    ("dayofweek", "write weekday: 1 for Monday, or weekday == 'friday'"),
    ("dayofyear", "no word is the day of the year; month and weekday are there"),
    ("delay", "x[n] is x n bars before"),
    ("delta", "write x - x[n]"),
    ("dev", "write avgdev(x, n)"),
    ("diff", "write x - x[1]"),
    ("dmi", "write plus_di(n), minus_di(n) or adx(n)"),
    ("dropna", "nothing is left out: what is compared with NA is NA, and no match; nz(x, value) replaces NA"),
    ("ewm", "write ema(x, n)"),
    ("ewma", "write ema(x, n)"),
    ("expanding", "no function looks at all bars so far: highest(x, n) looks at n bars; cumsum(x) adds up"),
    ("falling", "write streak(x < x[1], n)"),
    ("ffill", "write valuewhen(x == x, x): the last value that is there"),
    ("fillna", "write nz(x, 0)"),
    ("fixnan", "write valuewhen(x == x, x): the last value that is there"),
    ("fshift", "x[1] is x one bar before"),
    ("groupby", "write xs_rank(x, by=sector): functions over symbols take by="),
    ("hhv", "write highest(x, n)"),
    ("hl", "hl2 is (high + low)/2"),
    ("hour", "write time_of_day: minutes since midnight, or time_of_day >= '10:30'"),
    ("if", "write iff(c, a, b)"),
    ("iloc", "x[1] is x one bar before"),
    ("index", "write time_of_day, weekday or month for the parts of a bar's time"),
    ("input", "write a let, such as [let] n = 20, or a variable of a sweep"),
    ("is", "compare with '=='; x == x is NA where x is: nz(x, value) replaces NA"),
    ("isfirstbar", "write session_bar == 1"),
    ("isin", "write symbol in ('AAPL', 'IBM'), or another label in place of symbol"),
    ("islast", "leave it out: an answer is about the last bar"),
    ("isna", "x == x is NA where x is: nz(x, value) replaces NA"),
    ("isnull", "x == x is NA where x is: nz(x, value) replaces NA"),
    ("kurt", "there is no function of the kurtosis"),
    ("kurtosis", "there is no function of the kurtosis"),
    ("llv", "write lowest(x, n)"),
    (
        "mad",
        "write avgdev(x, n) for the mean absolute deviation; there is no function of the median absolute deviation",
    ),
    ("mean", "write sma(x, n) for a mean over time, (a + b) / 2 for one of values"),
    ("minute", "write time_of_day: minutes since midnight, or time_of_day >= '10:30'"),
    ("mstd", "write stddev(x, n)"),
    ("na", "nz(x, value) replaces NA"),
    ("nancumsum", "write cumsum(x)"),
    ("notna", "x == x is true where x is there: nz(x, value) replaces NA"),
    ("notnull", "x == x is true where x is there: nz(x, value) replaces NA"),
    ("pct_change", "write roc(x, n), in percent, or rocp(x, n)"),
    ("pivothigh", "write fractal(leftbars=n, rightbars=m).high: 100 on the bar that confirms a swing high"),
    ("pivotlow", "write fractal(leftbars=n, rightbars=m).low: 100 on the bar that confirms a swing low"),
    ("plot", "write it in select; 'trawl chart --expr' draws it"),
    ("quantile", "write percentile(x, n, percent) over time, xs_quantile(x, q) over symbols"),
    ("rank", "write percentrank(x, n) over time, xs_rank(x) or xs_pct(x) over symbols"),
    ("request", "write ref('SPY', x) for another symbol, tf('1w', x) for another timeframe"),
    ("resample", "write tf('1w', x) for another timeframe"),
    ("rising", "write streak(x > x[1], n)"),
    ("roll_max", "write highest(x, n)"),
    ("roll_min", "write lowest(x, n)"),
    ("rolling", "every window has a function of its own: sma(x, n), highest(x, n), stddev(x, n)"),
    ("rolling_corr", "write correl(a, b, n)"),
    ("rolling_max", "write highest(x, n)"),
    ("rolling_mean", "write sma(x, n)"),
    ("rolling_median", "write median(x, n)"),
    ("rolling_min", "write lowest(x, n)"),
    ("rolling_quantile", "write percentile(x, n, percent)"),
    ("rolling_std", "write stddev(x, n)"),
    ("rolling_sum", "write sum(x, n)"),
    ("rolling_var", "write var(x, n)"),
    ("security", "write ref('SPY', x) for another symbol, tf('1w', x) for another timeframe"),
    ("sem", "write stddev(x, n)/sqrt(n); there is no function of the standard error"),
    ("shift", "x[1] is x one bar before"),
    ("skew", "there is no function of the skewness"),
    ("skewness", "there is no function of the skewness"),
    ("std", "write stddev(x, n)"),
    ("stdev", "write stddev(x, n)"),
    ("strategy", "'trawl study' says what followed the matches of a scan"),
    ("syminfo", "write symbol == 'AAPL' or symbol in ('AAPL', 'IBM')"),
    ("ticker", "write symbol == 'AAPL' or symbol in ('AAPL', 'IBM')"),
    ("timeframe", "write tf('1w', x) for x on longer bars; the option --timeframe is for the whole scan"),
    ("tr", "write trange()"),
    ("true_range", "write trange()"),
    ("variance", "write var(x, n)"),
    ("weekofyear", "no word is the week of the year; month and weekday are there"),
    ("where", "write iff(c, a, b)"),
    ("wpr", "write willr(n)"),
    (
        "year",
        "an expression sees no year: --from, --to and --as-of choose the time, and 'trawl study --by year' divides it",
    ),
];

/// Functions of other languages that have a namesake here with another meaning: after which namespaces, the name, and
/// what it is in this language. The namespace `SERIES` is that of a method.
const NAMESAKES: [(&[&str], &str, &str); 8] = [
    (&["ta"], "highestbars", "write highestbars(x, n): it counts bars back, and Pine's is negative"),
    (&["ta"], "lowestbars", "write lowestbars(x, n): it counts bars back, and Pine's is negative"),
    (
        &["ta"],
        "valuewhen",
        "write valuewhen(c, x, n), where n begins at 1: the last bar at which c was true is 1, in Pine 0",
    ),
    (&["math", "np"], "max", "write maximum(a, b) for the larger of two values; max(x, n) is the largest of n bars"),
    (&["math", "np"], "min", "write minimum(a, b) for the smaller of two values; min(x, n) is the smallest of n bars"),
    (&["vbt"], "ma", "write sma(x, n), or ema(x, n)"),
    (&["ta", "pd", "df", "vbt", SERIES], "max", "no function looks at all bars so far: highest(x, n) looks at n bars"),
    (&["ta", "pd", "df", "vbt", SERIES], "min", "no function looks at all bars so far: lowest(x, n) looks at n bars"),
];

/// In [`NAMESAKES`], what is before a method: a series, not a namespace.
const SERIES: &str = "";

/// Namespaces that other languages write before their functions.
pub(crate) const NAMESPACES: [&str; 7] = ["ta", "talib", "math", "np", "pd", "df", "vbt"];

/// The method that computes an indicator of vectorbt, as in `vbt.RSI.run(close)`.
const RUN: &str = "run";

/// What to write for a word of another language.
pub fn hint(word: &str) -> Option<String> {
    let lower = word.to_lowercase();
    WORDS.iter().find(|(theirs, _)| *theirs == lower).map(|(_, ours)| (*ours).to_owned())
}

/// Functions of this language that a hint names.
pub fn hinted_functions(hint: &str) -> Vec<&'static str> {
    let words = hint.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let called = words.filter(|word| hint.contains(&format!("{word}(")));
    called
        .filter_map(|name| catalogue::find(name).map(|f| f.name).or_else(|| catalogue::find_form(name).map(|f| f.name)))
        .collect()
}

/// What to write for `word` behind the names `before` and a dot each, as `rsi` in `ta.rsi(14)`.
pub(crate) fn qualified_hint(before: &[&str], word: &str) -> String {
    let (before, word) = match before {
        [namespaces @ .., indicator] if word == RUN => (namespaces, *indicator),
        _ => (before, word),
    };
    let lower = word.to_lowercase();
    let root = before.first().copied().filter(|root| NAMESPACES.contains(root));
    let namespace = root.unwrap_or(SERIES);
    let namesake = NAMESAKES.iter().find(|(of, theirs, _)| *theirs == lower && of.contains(&namespace));
    if let Some((.., ours)) = namesake {
        return (*ours).to_owned();
    }
    if let Some(ours) = hint(&lower) {
        return ours;
    }
    let function = catalogue::find(&lower);
    match function.map(|f| f.name).or_else(|| catalogue::find_form(&lower).map(|f| f.name)) {
        Some(name) if function.is_some_and(|f| f.is_bare) => format!("write {name}, without what is before it"),
        Some(name) if root.is_some() => format!("write {name}(...), without what is before it"),
        Some(name) => format!("write {name}(x, ...): the series goes between the parentheses"),
        // What is before it may be the word, as in `input.int` and `strategy.entry`.
        None => before.first().and_then(|word| hint(word)).unwrap_or_else(|| {
            format!(
                "there is no function '{lower}': 'trawl indicators --search {lower}' looks for it, and \
                 docs/language/words.md lists the words of other tools"
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hint_is_of_a_word_unknown_here_and_names_functions_that_are_there() {
        let known = |name: &str| catalogue::find(name).is_some() || catalogue::find_form(name).is_some();
        for (word, _) in WORDS {
            assert!(!known(word), "{word}");
        }
        for (_, word, _) in NAMESAKES {
            assert!(known(word), "{word}");
        }
        for (word, ours) in WORDS.into_iter().chain(NAMESAKES.map(|(_, word, ours)| (word, ours))) {
            for before in ours.split('(').rev().skip(1) {
                let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or("");
                assert!(name.is_empty() || known(name), "{word}: {name}");
            }
        }
        assert!(WORDS.is_sorted());
        assert!(qualified_hint(&["input"], "int").contains("write a let"));
        assert_eq!(
            hinted_functions("write crosses_above(a, b) or tf('1w', x): since is meant"),
            ["crosses_above", "tf"]
        );
        assert!(qualified_hint(&["ta"], "nosuch").contains("there is no function 'nosuch'"));
    }
}
