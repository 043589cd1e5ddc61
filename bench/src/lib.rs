//! Benchmarks: how long this machine takes for fixed workloads. They only measure; scripts compare with other programs
//! (`just bench screen`).
//!
//! This library is what `trawl bench gpu`, `devices` and `pipeline` need, which users run on their own device and bucket; the program `trawl-bench` of this
//! crate has the rest and is not shipped.

#![forbid(unsafe_code)]

pub mod devices;
pub mod gpu;
pub mod pipeline;

use serde::Serialize;

/// What a report says about the machine that it was measured on.
#[derive(Serialize)]
pub struct Machine {
    /// Of its instructions, such as `x86_64`.
    pub architecture: &'static str,
    /// The CPU as it names itself.
    pub processor: String,
    /// Threads that can run at the same time.
    pub cores: usize,
}

/// The same market in every run.
const SEED: u64 = 0x5eed;

/// The screen W1: name, and the outputs that are computed.
pub const SCREEN: [(&str, &[&str]); 15] = [
    ("SMA", &["sma(close, 20)"]),
    ("EMA", &["ema(close, 20)"]),
    ("WMA", &["wma(close, 20)"]),
    ("RSI", &["rsi(close, 14)"]),
    ("MACD", &["macd(close, 12, 26, 9).line", "macd(close, 12, 26, 9).signal", "macd(close, 12, 26, 9).hist"]),
    ("BBANDS", &["bbands(close, 20, 2).upper", "bbands(close, 20, 2).middle", "bbands(close, 20, 2).lower"]),
    ("ATR", &["atr(14)"]),
    ("STOCH", &["stoch(14, 3, 3).k", "stoch(14, 3, 3).d"]),
    ("ADX", &["adx(14)"]),
    ("CCI", &["cci(20)"]),
    ("OBV", &["obv()"]),
    ("VWAP", &["vwap()"]),
    ("MFI", &["mfi(14)"]),
    ("KAMA", &["kama(close, 10)"]),
    ("DONCHIAN", &["donchian(20).upper", "donchian(20).middle", "donchian(20).lower"]),
];

/// Columns of the synthetic markets, in the order of [`walk`].
pub const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// One symbol's bars in the order of [`COLUMNS`], each `bars` long: a seeded walk on a cent grid.
pub fn walk(symbol: u64, bars: usize) -> [Vec<f64>; 5] {
    let mut state = (SEED ^ symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % below) as i64
    };
    let mut columns: [Vec<f64>; 5] = std::array::from_fn(|_| Vec::with_capacity(bars));
    let mut cents = 5_000 + random(10_000);
    for _ in 0..bars {
        let open = cents;
        cents = (cents + random(201) - 100).max(100);
        let (high, low) = (open.max(cents) + random(80), (open.min(cents) - random(80)).max(1));
        let volume = (random(900_000) + 100_000) as f64;
        let bar = [open as f64 / 100.0, high as f64 / 100.0, low as f64 / 100.0, cents as f64 / 100.0, volume];
        for (column, value) in columns.iter_mut().zip(bar) {
            column.push(value);
        }
    }
    columns
}

/// This machine.
pub fn machine() -> Machine {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|l| l.strip_prefix("model name").and_then(|l| l.split(':').nth(1)));
    Machine {
        architecture: std::env::consts::ARCH,
        processor: name.map_or_else(|| "unknown processor".to_owned(), |n| n.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    }
}
