//! Every kind of mistake in the scan language, as the terminal shows it: one snapshot for each family.
//!
//! An entry is what a user wrote and what the executable printed. Refreshed only by `just bless`, like
//! [`super::messages`].

use std::fmt::Write as _;

use trawl_tests::home::Home;

/// Characters of an input that a snapshot repeats.
const SHOWN_MAX: usize = 200;

/// One input: what is run, and the text that identifies it.
struct Input {
    text: String,
    arguments: Vec<String>,
}

fn condition(text: &str) -> Input {
    let arguments = ["scan", "--dataset", "demo", "--where", text].map(str::to_owned).to_vec();
    Input { text: text.to_owned(), arguments }
}

/// A document with these lines beside a dataset and, unless it has its own, a condition.
fn document(home: &Home, text: &str) -> Input {
    let condition = if text.contains("where") { "" } else { "where = 'close > 1'\n" };
    // Tables end a document, so what is added comes first.
    home.write("scan.toml", &format!("dataset = 'demo'\n{condition}{text}\n"));
    Input { text: text.to_owned(), arguments: ["scan", "--file", "scan.toml"].map(str::to_owned).to_vec() }
}

/// An expression over the bars of one CSV file that has nothing but closes.
fn expression(home: &Home, text: &str) -> Input {
    home.write("bars.csv", "date,close\n2020-01-02,10\n2020-01-03,11\n");
    let arguments = ["compute", "--input", "bars.csv", "--expr", text].map(str::to_owned).to_vec();
    Input { text: text.to_owned(), arguments }
}

/// The output for an input: exit code 2, and every drawing has place, expectation and suggestion.
fn output_of(home: &Home, input: &Input) -> String {
    let arguments: Vec<&str> = input.arguments.iter().map(String::as_str).collect();
    let ended = home.trawl(&arguments).expect_code(2);
    assert!(!ended.panicked(), "{}", ended.stderr);
    let errors = ended.stderr.lines().filter(|l| l.starts_with("error: ")).count();
    assert_eq!(errors, 1, "one mistake, reported once: {}\n{}", input.text, ended.stderr);
    assert!(ended.stderr.contains(" --> "), "it has a place: {}\n{}", input.text, ended.stderr);
    let mut shown: String = input.text.chars().take(SHOWN_MAX).collect();
    if shown.len() < input.text.len() {
        shown.push_str(" ...");
    }
    let mut text = format!("{:=<80}\n{shown}\n{:-<80}\n", "", "");
    for line in home.plain(&ended.stderr).lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn snapshot(family: &str, text: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true },
        { insta::assert_snapshot!(format!("mistakes_{family}"), text) });
}

fn conditions(family: &str, texts: &[&str]) {
    let home = Home::new();
    snapshot(family, &texts.iter().map(|text| output_of(&home, &condition(text))).collect::<String>());
}

fn documents(family: &str, texts: &[String]) {
    let home = Home::new();
    snapshot(family, &texts.iter().map(|text| output_of(&home, &document(&home, text))).collect::<String>());
}

/// `count` pieces, joined.
fn many(count: usize, by: &str, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect::<Vec<_>>().join(by)
}

#[test]
fn mistakes_of_words_and_signs() {
    conditions(
        "of_signs",
        &[
            "close > 5x",
            "close > 1e999",
            "sector == 'abc",
            "close > 1 && open > 1",
            "close > 1 || open > 1",
            "close > 1 & open > 1",
            "close > 1 | open > 1",
            "close > \"a\"",
            "!close > 1",
            "close ^ 2 > 1",
            "close ≤ 1",
            "close ≥ 1",
            "close ≠ 1",
            "close − open > 1",
            "close × 2 > 1",
            "close ÷ 2 > 1",
            "sector == ‘Energy’",
            "close ~ 2",
        ],
    );
}

#[test]
fn mistakes_of_grammar() {
    conditions(
        "of_grammar",
        &[
            "# nothing but a comment",
            "close >",
            "close > )",
            "and > 5",
            "close = 5",
            "(close = 5)",
            "close > 5 AND open > 1",
            "close > 5 adn open > 1",
            "close > 5 open",
            "close > 5 20",
            "close > 5 'a'",
            "close > 1 desc",
            "close > 1 as x",
            "close > 1 not open > 1",
            "20 < close > 30",
            "1 != close != 3",
            "sector in 'Energy'",
            "sector in (Energy)",
            "sector in ('Energy' 'Health')",
            "macd(). > 1",
            "close[1 > 1",
            "(close > 5",
            "sma(close, 20 > 1",
            "rsi(close, 14",
        ],
    );
}

#[test]
fn mistakes_of_types() {
    conditions(
        "of_types",
        &[
            "close",
            "close and open > 1",
            "close > 1 or open",
            "(close > 1) + 1 > 0",
            "-(close > 1) > 0",
            "not close",
            "(close > 1) > 0",
            "sma(close > 1, 5) > 0",
            "sma(real=close > 1) > 0",
            "within(close, 3)",
            "within(close > 1, close > 2)",
            "macd() > 0",
            "close == 'SPY'",
            "close[-1] > 1",
            "close[1.5] > 1",
            "close[200000] > 1",
            "close[open] > 1",
            "close[close > 1] > 1",
            "macd().lin > 0",
            "macd().zzz > 0",
            "rsi().x > 0",
            "close.x > 1",
        ],
    );
}

#[test]
fn mistakes_of_names() {
    conditions(
        "of_names",
        &["clsoe > 1", "zzz > 1", "rsi > 5", "ref > 5", "smaa(close) > 1", "zzz(close) > 1", "close(5) > 1"],
    );
}

#[test]
fn mistakes_of_classifications() {
    conditions(
        "of_classifications",
        &[
            "atc() > 0",
            "atc(len=6).signal > 0",
            "atc(lsma_len=7, robustness='Wide').trend == 1",
            "atc(robustness='wide', hma_len=4).trend == 1",
            "atc(robustness='loose').trend == 1",
            "atc(la=1/0).signal > 0",
            "atc(la=1e40).signal > 0",
            "atc(de=101).signal > 0",
            "atc(ema_w=0).signal > 0",
            "atc(cutout=2.5).signal > 0",
            "atc(long=0.1, short=0.1).signal > 0",
            "atc(short=0.2).signal > 0",
            "atc(strategy_mode=1).signal > 0",
            "atc(close=open).signal > 0",
            "atc(close, open).signal > 0",
            "atc(hull_len=20).signal > 0",
            "atc().hull > 0",
        ],
    );
    let home = Home::new();
    let short = ["where = 'atc().signal > 0'\nhistory = { bars = 20, origin = true }".to_owned()];
    snapshot(
        "of_short_classifications",
        &short.iter().map(|text| output_of(&home, &document(&home, text))).collect::<String>(),
    );
}

#[test]
fn mistakes_of_calls() {
    conditions(
        "of_calls",
        &[
            "rsi(close, 14, 15) > 1",
            "rsi(close, open) > 1",
            "abs(close, open) > 1",
            "obv(5) > 1",
            "since(close > 1, 5) > 1",
            "atr(14, close) > 1",
            "bbands(20, 'ema').upper > 1",
            "sma(close, real=open) > 1",
            "rsi(14, timeperiod=5) > 1",
            "rsi(period=5) > 1",
            "macd(fastperoid=5).line > 1",
            "rsi(zzz=5) > 1",
            "rsi(close, 1) > 30",
            "sma(close, 2.5) > 1",
            "sma(close, 1/0) > 1",
            "sma(close, timeperiod=open) > 1",
            "bbands(nbdevup=1e300).upper > 1",
            "bbands(matype='xyz').upper > 1",
            "bbands(matype=99).upper > 1",
            "mavp(close, 5, minperiod=9, maxperiod=3) > 1",
            "crosses_above(close)",
            "within(n=3)",
            "within(close > 1)",
            "streak(close > 1, 0)",
        ],
    );
}

#[test]
fn mistakes_of_other_bars() {
    conditions(
        "of_other_bars",
        &[
            "ref('SPX', close) > 1",
            "ref('NOSUCHTHING', close) > 1",
            "ref(SPY, close) > 1",
            "ref('SPY') > 1",
            "ref('SPY', close, 3) > 1",
            "ref('SPY', close, asof=-1) > 1",
            "ref('SPY', close, asof=open) > 1",
            "ref('SPY', close, asof=close > 1) > 1",
            "ref('SPY', close, as_of=3) > 1",
            "ref('SPY', close, zzz=3) > 1",
            "ref('SPY', close, asof=1, asof=2) > 1",
            "ref('SPY', sector) > 1",
            "ref('SPY', 'a') > 1",
            "tf('1x', close) > 1",
            "tf('5m', close) > 1",
            "tf('99h', close) > 1",
            "tf(1, close) > 1",
            "tf('1w', tf('1mo', close)) > 1",
            "tf('1w', close, partial=1) > 1",
            "tf('1w', ref('SPY', close), partial=true) > 1",
            "tf('1w', xs_rank(close), partial=true) > 1",
        ],
    );
}

#[test]
fn mistakes_of_cross_sections_and_labels() {
    conditions(
        "of_cross_sections",
        &[
            "xs_rank() > 1",
            "xs_rank(close > 1) > 1",
            "xs_rank(close, 5) > 1",
            "xs_rank(close, by=5) > 1",
            "xs_rank(close, by=close) > 1",
            "xs_rank(close, by='sector') > 1",
            "xs_rank(close, by=sectr) > 1",
            "xs_rank(close, where=open) > 1",
            "xs_top(close)",
            "xs_top(close, 0)",
            "xs_top(close, open)",
            "xs_quantile(close, 2) > 1",
            "xs_quantile(close, 1/0) > 1",
            "breadth(close) > 1",
            "sector",
            "sector + 1 > 0",
            "sector == 'Enrgy'",
            "sector == 'Zoology'",
            "sector in ('Energy', 'Zoology')",
            "sector > 'Energy'",
            "sector == 'Energy' == 'Health'",
            "sector == close",
            "close in ('a')",
        ],
    );
}

#[test]
fn mistakes_of_documents() {
    documents(
        "of_documents",
        &[
            "where = close > 1",
            "where = 'close > 1'\nwhere = 'open > 1'",
            "limt = 5",
            "limit = 'five'",
            "limit = -1",
            "select = 'close'",
            "name = 5",
            "forming = 'yes'",
            "history = 500",
            "history = {}",
            "history = { bar = 5 }",
            "history = { bars = 0 }",
            "history = { bars = 200000 }",
            "where = 'obv() > 1'\nhistory = { bars = 20 }",
            "where = \"bbands(matype='kama').upper > 1\"\nhistory = { bars = 20 }",
            "timeframe = '1h'",
            "precision = 'F32'",
            "precision = 'half'",
            "rank = 'close > 1'",
            "rank = 'close down'",
            "rank = 'close desc,'",
            "rank = 'asc'",
            "rank = 'close as x'",
            "select = ['close as x', 'open as x']",
            "select = ['close as and']",
            "select = ['close as 5']",
            "select = ['close desc']",
            "select = ['macd()']",
            "universe = 'close'",
            "universe = 'clsoe > 1'",
        ]
        .map(str::to_owned),
    );
}

#[test]
fn mistakes_of_lets_and_sweeps() {
    documents(
        "of_lets_and_sweeps",
        &[
            "let = 5",
            "[let]\na = [5]",
            "[let]\nclose = 'open'",
            "[let]\nhl2 = 'open'",
            "[let]\nsector = 'open'",
            "[let]\nand = 'open'",
            "[let]\n1a = 'open'",
            "[let]\nn = 'open'\n[sweep]\nn = [1]",
            "[let]\na = 'b + 1'\nb = 'a + 1'",
            "[let]\na = 'opne'",
            "[sweep]\nn = 'a'",
            "[sweep]\nn = { from = 1, until = 3 }",
            "[sweep]\nn = { from = 1, to = 5, step = 0 }",
            "[sweep]\nn = { from = 5, to = 1 }",
            "[sweep]\nn = { from = 1, to = 50000 }",
            "[sweep]\nn = []",
            "[sweep]\nn = [1, inf]",
            "[sweep]\nn = { from = 1, to = 200 }\nm = { from = 1, to = 200 }",
            "[sweep]\nn = ['']",
            "[sweep]\nk = [1, 2]",
            "where = 'close > kind'\n[sweep]\nkind = ['sma', 'ema']",
            "where = 'close > ma(close, 9, matype=kind)'\n[sweep]\nkind = ['sma', 'emma']",
            "where = 'close > 1'\nsweep_where = 'n > 1'",
            "where = 'close > n'\nsweep_where = 'n > 5'\n[sweep]\nn = [1, 2]",
            "where = 'close > n'\nsweep_where = 'close > n'\n[sweep]\nn = [1, 2]",
            "where = 'close > n'\nsweep_where = 'n + 1'\n[sweep]\nn = [1, 2]",
            "sweep_where = 'n < m'\nwhere = 'close > n'\n[sweep]\nn = [1, 2]\nm = [1, 2]",
            "best = { by = 'close' }",
            "best = 'close'\n[sweep]\nn = [1]",
            "best = { of = 'close' }\n[sweep]\nn = [1]",
            "best = { by = 'clsoe' }\n[sweep]\nn = [1]",
            "best = { by = 'close > 1' }\n[sweep]\nn = [1]",
            "best = { by = 'close, open' }\n[sweep]\nn = [1]",
            "best = { by = 'close', keep = 0 }\n[sweep]\nn = [1]",
            "select = ['open as best']\nbest = { by = 'close' }\n[sweep]\nn = [1]",
        ]
        .map(str::to_owned),
    );
}

#[test]
fn mistakes_of_size() {
    let lets = |count: usize, text: &dyn Fn(usize) -> String| many(count, "\n", |i| format!("x{i} = '{}'", text(i)));
    documents(
        "of_size",
        &[
            format!("where = '{}true'", "close > 1 and ".repeat(5000)),
            format!("where = '{}close{} > 1'", "(".repeat(300), ")".repeat(300)),
            format!("where = 'x29 > 1'\n[let]\n{}", {
                let wrapped = |i: usize| if i == 0 { "close".to_owned() } else { format!("x{}", i - 1) };
                lets(30, &|i| format!("{}{}{}", "abs(".repeat(10), wrapped(i), ")".repeat(10)))
            }),
            format!(
                "where = 'x199 > 1'\n[let]\n{}",
                lets(200, &|i| many(30, " + ", |j| format!("sma({})", i * 30 + j + 1)))
            ),
            format!("where = 'close{} > 1'", "[100000]".repeat(11)),
            format!("where = \"sector in ({})\"", many(257, ", ", |_| "'Energy'".to_owned())),
            format!(
                "where = 'true'\n[let]\n{}",
                lets(20, &|i| many(20, " + ", |j| format!("xs_rank(close[{}])", i * 20 + j)))
            ),
            format!("where = \"{}\"", many(70, " or ", |i| format!("tf('{}d', close) > 1", i + 2))),
            format!("rank = '{}'", many(17, ", ", |_| "close".to_owned())),
            format!("select = [{}]", many(257, ", ", |i| format!("'close[{i}]'"))),
            format!("[let]\n{}", lets(257, &|_| "close".to_owned())),
            format!("[sweep]\n{}", many(9, "\n", |i| format!("n{i} = [1]"))),
            format!(
                "where = '{} > n'\n[sweep]\nn = {{ from = 1, to = 16000 }}",
                many(70, " + ", |i| format!("sma(n + {i}) * n"))
            ),
        ],
    );
}

#[test]
fn mistakes_where_there_is_one_symbol_only() {
    let home = Home::new();
    let texts = [
        "ref('SPY', close)",
        "tf('1w', close)",
        "sector == 'Energy'",
        "xs_rank(close, by=sector)",
        "xs_rank(close, by='sector')",
        "atr()",
        "hl2",
        "ohlc4",
        "volume",
    ];
    snapshot("of_one_symbol", &texts.iter().map(|text| output_of(&home, &expression(&home, text))).collect::<String>());
    let columns: Vec<String> = (0..257).flat_map(|i| ["--expr".to_owned(), format!("close + {i}")]).collect();
    let arguments = [["compute", "--input", "bars.csv"].map(str::to_owned).to_vec(), columns].concat();
    let text = "compute with 257 expressions".to_owned();
    snapshot("of_many_columns", &output_of(&home, &Input { text, arguments }));
}
