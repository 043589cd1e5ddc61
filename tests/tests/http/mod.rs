//! The door for programs: the same answers as the command line, from `trawl serve` and from a cluster, and what strangers get.

mod hostile;
mod life;
mod load;
mod operations;

use serde_json::{Value, json};
use trawl_tests::home::Home;

/// A market with several groups.
const SYMBOLS: u32 = 300;
const BARS: u32 = 2000;
/// A scan of it that decides something.
const CONDITION: &str = "rsi(close, 14) < 45 and xs_rank(close) > 0.3";

fn market() -> Home {
    let home = Home::new();
    home.synth("market", SYMBOLS, BARS);
    home
}

fn scan() -> Value {
    json!({ "document": { "dataset": "market", "where": CONDITION, "select": ["close", "rsi(close, 14) as rsi"] } })
}

/// A scan that takes long enough to be watched and cancelled: a sweep over many combinations.
fn long_scan() -> Value {
    let sweep = json!({ "n": { "from": 5, "to": 240, "step": 1 }, "m": { "from": 2, "to": 15, "step": 1 } });
    json!({ "document": {
        "dataset": "market",
        "where": "close > kama(close, n) and stddev(close, m) > linreg(close, m) - close",
        "sweep": sweep,
        "best": { "by": "roc(close, n)", "keep": 1 },
    } })
}
