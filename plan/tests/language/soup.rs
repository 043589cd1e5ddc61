//! Random documents that mean nothing: soups of words, mutated legal scans, very long and very deep texts.
//!
//! Shared by the tests and by `cargo run -p trawl-plan --example fuzz`; the same seed gives the same documents.

use trawl_plan::{Diagnostic, ScanDocument, Schema, compile_scan};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Scans of the language's own examples, some of them over parts that a given build may not have yet.
const LEGAL: [&str; 20] = [
    "within(crosses_above(sma(close,50), sma(close,200)), 3)",
    "rsi(close,14) < 30 and close > sma(close,200)",
    "close > highest(high,252)[1] and volume > 2*sma(volume,50)[1]",
    "percentrank(stddev(close,20)/sma(close,20), 126) <= 5",
    "crosses_above(macd(close,12,26,9).line, macd(close,12,26,9).signal) and macd(close,12,26,9).line < 0",
    "open > 1.03*close[1] and close > open",
    "xs_pct(rs) >= 0.9 and roc(close, 63) > roc(ref('SPY', close), 63)",
    "tf('1w', rsi(close,14)) > 50 and crosses_above(close, ema(close,20))",
    "streak(close > close[1], 5)",
    "adx(14) > 25 and close > ema(close,50)",
    "crosses_above(close, avwap('session')) and streak(close[1] < avwap('session')[1], 3)",
    "cdlengulfing() > 0 and roc(close,5)[1] < 0",
    "abs(correl(roc(close,1), roc(ref('SPY',close),1), 60)) < 0.2 and xs_pct(sma(close*volume,20)) > 0.5",
    "zscore(close,20) < -2 and xs_z(roc(close,20), by=sector) > -1",
    "20 < rsi() < 30 or not (close % 5 == 0)",
    "sector in ('Tech', 'Energy') and breadth(close > sma(close, 50), where=sector != 'Banks') > 0.5",
    "ref('SPY', close, asof=3) > tf('1w', highest(high, 4), partial=true)[2]",
    "bbands(close, 20, nbdevup=2.5, matype='ema').upper < close",
    "iff(close > open, close, nz(open, -1)) >= xs_quantile(close, 0.5, by=sector)",
    "valuewhen(within(xs_rank(x) <= 10, 3), clamp(close, -1, +1)) != since(xs_top(close, 5))",
];

const WORDS: [&str; 92] = [
    "close",
    "open",
    "high",
    "volume",
    "hl2",
    "rs",
    "x",
    "v0",
    "rsi",
    "macd",
    "sma",
    "ema",
    "bbands",
    "stoch",
    "within",
    "streak",
    "count",
    "since",
    "valuewhen",
    "crosses_above",
    "iff",
    "nz",
    "zscore",
    "percentrank",
    "correl",
    "ref",
    "tf",
    "xs_rank",
    "xs_pct",
    "xs_top",
    "xs_quantile",
    "breadth",
    "avwap",
    "sector",
    "by",
    "where",
    "asof",
    "partial",
    "timeperiod",
    "length",
    "n",
    "matype",
    "(",
    "(",
    "(",
    ")",
    ")",
    ")",
    "[",
    "]",
    ",",
    ",",
    ".",
    "line",
    "1",
    "14",
    "0.5",
    "2e6",
    "-",
    "+",
    "*",
    "/",
    "%",
    "<",
    "<=",
    ">",
    "==",
    "!=",
    "=",
    "and",
    "or",
    "not",
    "as",
    "asc",
    "desc",
    "in",
    "true",
    "false",
    "'ema'",
    "'SPY'",
    "'1w'",
    "'Tech'",
    "é",
    "1e400",
    "_",
    "#",
    "\"",
    "'",
    "\0",
    "&&",
    "💥",
    "99999999999999999999",
];

/// Numbers and characters that break careless code.
const ODD: [&str; 18] = [
    "1e308",
    "1e-320",
    "18446744073709551616",
    "-0",
    "100000",
    "100001",
    "0.30000000000000004",
    "1_0_0",
    "1__",
    ".5",
    "5.",
    "1e",
    "\u{0}",
    "\u{202e}",
    "é",
    "\u{1F4A5}",
    "''",
    "'\u{301}'",
];

fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in text.chars() {
        let word = c.is_alphanumeric() || matches!(c, '_' | '.' | '\'');
        match all.last_mut() {
            Some(last) if word && in_word => last.push(c),
            _ => all.push(c.to_string()),
        }
        in_word = word;
    }
    all
}

fn mutated(random: &mut Random) -> String {
    let mut tokens = tokens(random.pick(&LEGAL));
    for _ in 0..=random.below(5) {
        if tokens.is_empty() {
            break;
        }
        let (at, other) = (random.below(tokens.len()), random.below(tokens.len()));
        match random.below(7) {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[other].clone()),
            2 => tokens.swap(at, other),
            3 => tokens[at] = random.pick(&WORDS).to_owned(),
            4 => tokens[at] = random.pick(&ODD).to_owned(),
            5 => tokens.insert(at, random.pick(&WORDS).to_owned()),
            // A part of another scan in place of a token.
            _ => tokens[at] = format!("({})", random.pick(&LEGAL)),
        }
    }
    let mut text = tokens.concat();
    if random.below(12) == 0 {
        let mut cut = random.below(text.len() + 1);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        text.truncate(cut);
    }
    text
}

fn clause(random: &mut Random) -> String {
    match random.below(4) {
        0 => {
            let words: Vec<&str> = (0..random.below(25)).map(|_| random.pick(&WORDS)).collect();
            words.join(if random.below(2) == 0 { " " } else { "" })
        }
        1 => random.pick(&LEGAL).to_owned(),
        _ => mutated(random),
    }
}

/// A random document, the same for the same seed.
pub fn document(seed: u64) -> ScanDocument {
    let random = &mut Random(seed);
    let mut document = ScanDocument { condition: clause(random), ..ScanDocument::default() };
    document.universe = (random.below(3) == 0).then(|| clause(random));
    document.rank = (random.below(3) == 0).then(|| format!("{} desc, {}", clause(random), clause(random)));
    document.select = (0..random.below(3)).map(|_| clause(random)).collect();
    for name in ["rs", "x", "v0", "and", "é"] {
        if random.below(3) == 0 {
            document.lets.insert(name.to_owned(), clause(random));
        }
    }
    document
}

/// Compiles a document and checks what holds whatever the text is.
///
/// # Panics
/// When it does not.
pub fn check(document: &ScanDocument, schema: &Schema) -> Result<(), Vec<Diagnostic>> {
    match compile_scan(document, schema) {
        Ok(plan) => {
            assert!(plan.nodes().len() <= trawl_plan::limits::PLAN_NODES_MAX);
            assert!(!plan.explain().is_empty());
            let again = compile_scan(document, schema).expect("what compiled once compiles");
            assert_eq!(plan.fingerprint(), again.fingerprint());
            Ok(())
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty() && mistakes.len() <= trawl_plan::limits::DIAGNOSTICS_MAX);
            for d in &mistakes {
                assert!(d.text.get(d.span.clone()).is_some(), "{d:?} points outside its text");
                assert!(!d.to_string().is_empty() && !d.message.is_empty() && !d.message.ends_with('.'), "{d:?}");
            }
            Err(mistakes)
        }
    }
}

/// Texts of about `bytes` bytes that go as deep, as long or as wide as they can.
pub fn long_texts(bytes: usize) -> Vec<String> {
    let fill = |before: &str, part: &str, after: &str| {
        format!("{before}{}{after}", part.repeat((bytes - before.len() - after.len()) / part.len()))
    };
    let pair = |open: &str, middle: &str, close: &str| {
        let n = bytes / (open.len() + close.len());
        format!("{}{middle}{}", open.repeat(n), close.repeat(n))
    };
    vec![
        fill("", "(", ""),
        fill("", ")", ""),
        pair("(", "close > 1", ")"),
        fill("", "not ", "close > 1"),
        fill("", "-", "close > 1"),
        fill("", "- +", "1"),
        fill("close", "[1]", " > 1"),
        fill("close", "[", ""),
        fill("close", "+close", " > 1"),
        fill("close", "*1", " > 1"),
        fill("1", "<2", ""),
        fill("close > 1", " and close > 1", ""),
        fill("close > 1", " or not close > 1", ""),
        pair("abs(", "close", ")"),
        pair("sma(", "close", ",2)"),
        pair("xs_rank(", "close", ")"),
        pair("ref('SPY',", "close", ")"),
        pair("tf('1w',", "close", ")"),
        pair("iff(close>1,", "close", ",1)"),
        pair("xs_rank(close,where=", "close>1", "<5)"),
        fill("max(close", ",close", ")"),
        fill("sma(", "real=close,", "2)"),
        fill("close", ".line", ""),
        fill("sector in (", "'a',", "'b')"),
        fill("'", "a", ""),
        fill("'", "é", "'"),
        fill("", "9", ""),
        fill("", "a", ""),
        fill("#", "x", ""),
        fill("close > 1 ", " ", ""),
        fill("", "\n", "close"),
        fill("", "é", ""),
        fill("", "1 ", ""),
        fill("", "close ", ""),
        fill("", "''", ""),
        fill("rsi()", ",rsi()", ""),
        fill("", "a=b,", ""),
        fill("sma(", "x[sma(", ""),
        fill("", "f(1,", ""),
    ]
}
