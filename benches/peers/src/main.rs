//! vector-ta's half of the screen W1: nanoseconds per bar of each indicator, one thread, as JSON.
//!
//!     peers --symbols N --bars N --repeats N
//!
//! The functions that write into given buffers are called, once per symbol, so that only their own allocations are
//! measured. If the library needs the typical price, computing it is part of the time.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use vector_ta::indicators::adx::{AdxInput, AdxParams, adx_into};
use vector_ta::indicators::atr::{AtrInput, AtrParams, atr_into};
use vector_ta::indicators::bollinger_bands::{BollingerBandsInput, BollingerBandsParams, bollinger_bands_into};
use vector_ta::indicators::cci::{CciInput, CciParams, cci_into};
use vector_ta::indicators::donchian::{DonchianInput, DonchianParams, donchian_into};
use vector_ta::indicators::macd::{MacdInput, MacdParams, macd_into};
use vector_ta::indicators::mfi::{MfiInput, MfiParams, mfi_into};
use vector_ta::indicators::moving_averages::ema::{EmaInput, EmaParams, ema_into};
use vector_ta::indicators::moving_averages::kama::{KamaInput, KamaParams, kama_into};
use vector_ta::indicators::moving_averages::sma::{SmaInput, SmaParams, sma_into};
use vector_ta::indicators::moving_averages::vwap::{VwapInput, VwapParams, vwap_into};
use vector_ta::indicators::moving_averages::wma::{WmaInput, WmaParams, wma_into};
use vector_ta::indicators::obv::{ObvInput, ObvParams, obv_into};
use vector_ta::indicators::rsi::{RsiInput, RsiParams, rsi_into};
use vector_ta::indicators::stoch::{StochInput, StochParams, stoch_into};

type Outcome = Result<(), Box<dyn Error>>;

/// One symbol's bars.
struct Bars {
    high: Vec<f64>,
    low: Vec<f64>,
    close: Vec<f64>,
    volume: Vec<f64>,
}

/// Output buffers, and inputs besides the bars.
struct Buffers {
    out: [Vec<f64>; 3],
    typical: Vec<f64>,
    /// Milliseconds within one day: its volume-weighted price starts over every day.
    times: Vec<i64>,
}

type Call = fn(&Bars, &mut Buffers) -> Outcome;

const SCREEN: [(&str, Call); 15] = [
    ("SMA", |b, to| Ok(sma_into(&SmaInput::from_slice(&b.close, SmaParams { period: Some(20) }), &mut to.out[0])?)),
    ("EMA", |b, to| Ok(ema_into(&EmaInput::from_slice(&b.close, EmaParams { period: Some(20) }), &mut to.out[0])?)),
    ("WMA", |b, to| Ok(wma_into(&WmaInput::from_slice(&b.close, WmaParams { period: Some(20) }), &mut to.out[0])?)),
    ("RSI", |b, to| Ok(rsi_into(&RsiInput::from_slice(&b.close, RsiParams { period: Some(14) }), &mut to.out[0])?)),
    ("MACD", |b, to| {
        let ma_type = Some("ema".to_owned());
        let params = MacdParams { fast_period: Some(12), slow_period: Some(26), signal_period: Some(9), ma_type };
        let [line, signal, hist] = &mut to.out;
        Ok(macd_into(&MacdInput::from_slice(&b.close, params), line, signal, hist)?)
    }),
    ("BBANDS", |b, to| {
        let matype = Some("sma".to_owned());
        let (devup, devdn) = (Some(2.0), Some(2.0));
        let params = BollingerBandsParams { period: Some(20), devup, devdn, matype, devtype: Some(0) };
        let [upper, middle, lower] = &mut to.out;
        Ok(bollinger_bands_into(&BollingerBandsInput::from_slice(&b.close, params), upper, middle, lower)?)
    }),
    ("ATR", |b, to| {
        let input = AtrInput::from_slices(&b.high, &b.low, &b.close, AtrParams { length: Some(14) });
        Ok(atr_into(&input, &mut to.out[0])?)
    }),
    ("STOCH", |b, to| {
        let simple = || Some("sma".to_owned());
        let params = StochParams {
            fastk_period: Some(14),
            slowk_period: Some(3),
            slowk_ma_type: simple(),
            slowd_period: Some(3),
            slowd_ma_type: simple(),
        };
        let [k, d, _] = &mut to.out;
        Ok(stoch_into(&StochInput::from_slices(&b.high, &b.low, &b.close, params), k, d)?)
    }),
    ("ADX", |b, to| {
        let input = AdxInput::from_slices(&b.high, &b.low, &b.close, AdxParams { period: Some(14) });
        Ok(adx_into(&input, &mut to.out[0])?)
    }),
    ("CCI", |b, to| {
        typical(b, &mut to.typical);
        Ok(cci_into(&CciInput::from_slice(&to.typical, CciParams { period: Some(20) }), &mut to.out[0])?)
    }),
    ("OBV", |b, to| Ok(obv_into(&ObvInput::from_slices(&b.close, &b.volume, ObvParams), &mut to.out[0])?)),
    ("VWAP", |b, to| {
        typical(b, &mut to.typical);
        let params = VwapParams { anchor: Some("1d".to_owned()) };
        Ok(vwap_into(&VwapInput::from_slice(&to.times, &b.volume, &to.typical, params), &mut to.out[0])?)
    }),
    ("MFI", |b, to| {
        typical(b, &mut to.typical);
        let input = MfiInput::from_slices(&to.typical, &b.volume, MfiParams { period: Some(14) });
        Ok(mfi_into(&input, &mut to.out[0])?)
    }),
    ("KAMA", |b, to| Ok(kama_into(&KamaInput::from_slice(&b.close, KamaParams { period: Some(10) }), &mut to.out[0])?)),
    ("DONCHIAN", |b, to| {
        let input = DonchianInput::from_slices(&b.high, &b.low, DonchianParams { period: Some(20) });
        let [upper, middle, lower] = &mut to.out;
        Ok(donchian_into(&input, upper, middle, lower)?)
    }),
];

fn typical(bars: &Bars, out: &mut [f64]) {
    for (((out, high), low), close) in out.iter_mut().zip(&bars.high).zip(&bars.low).zip(&bars.close) {
        *out = (high + low + close) / 3.0;
    }
}

/// A seeded walk on a cent grid.
fn walk(symbol: u64, bars: usize) -> Bars {
    let mut state = (0x5eed ^ symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % below) as i64
    };
    let mut made = Bars { high: Vec::new(), low: Vec::new(), close: Vec::new(), volume: Vec::new() };
    let mut cents = 5_000 + random(10_000);
    for _ in 0..bars {
        let open = cents;
        cents = (cents + random(201) - 100).max(100);
        made.high.push((open.max(cents) + random(80)) as f64 / 100.0);
        made.low.push((open.min(cents) - random(80)).max(1) as f64 / 100.0);
        made.close.push(cents as f64 / 100.0);
        made.volume.push((random(900_000) + 100_000) as f64);
    }
    made
}

/// The whole number after `name`.
fn argument(name: &str) -> Result<usize, Box<dyn Error>> {
    let mut words = std::env::args().skip_while(|word| word != name);
    Ok(words.nth(1).ok_or_else(|| format!("peers: {name} N is missing"))?.parse()?)
}

fn main() -> Outcome {
    let (symbols, bars, repeats) = (argument("--symbols")?, argument("--bars")?, argument("--repeats")?);
    let market: Vec<Bars> = (0..symbols).map(|symbol| walk(symbol as u64, bars)).collect();
    let series = || vec![0.0; bars];
    let times = (0..bars as i64).collect();
    let mut buffers = Buffers { out: [series(), series(), series()], typical: series(), times };
    let mut rows = Vec::new();
    for (name, call) in SCREEN {
        let mut best = f64::INFINITY;
        for _ in 0..repeats {
            let start = Instant::now();
            for one in &market {
                call(one, &mut buffers)?;
                black_box(&buffers.out);
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        let ns = best * 1e9 / (symbols * bars) as f64;
        rows.push(format!("{{\"name\": \"{name}\", \"ns_per_bar\": {ns}}}"));
    }
    println!("{{\"library\": \"vector-ta\", \"version\": \"0.3.1\", \"rows\": [{}]}}", rows.join(", "));
    Ok(())
}
