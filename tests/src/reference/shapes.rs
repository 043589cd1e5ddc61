//! How the generator calls indicators: their series, the values of their parameters, their outputs.

/// How an indicator is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) series: &'static [&'static str],
    pub(super) params: &'static [(&'static str, &'static [f64])],
    pub(super) averages: &'static [&'static str],
    pub(super) fields: &'static [&'static str],
}

pub(super) const SHORT: &[f64] = &[2.0, 3.0, 4.0, 5.0, 7.0, 10.0];
const PERIOD: &[(&str, &[f64])] = &[("timeperiod", SHORT)];
const BARS: &[&str] = &["high", "low", "close"];

const fn shape(
    name: &'static str,
    series: &'static [&'static str],
    params: &'static [(&'static str, &'static [f64])],
    fields: &'static [&'static str],
) -> Shape {
    Shape { name, series, params, averages: &[], fields }
}

/// Indicators whose value depends on every bar before it.
pub(super) const RECURSIVE: [&str; 10] =
    ["ema", "kama", "rsi", "macd", "atr", "adx", "obv", "vwap", "chandelier", "crsi"];

pub(super) const INDICATORS: [Shape; 24] = [
    shape("sma", &["real"], PERIOD, &[]),
    shape("ema", &["real"], PERIOD, &[]),
    shape("wma", &["real"], PERIOD, &[]),
    shape("kama", &["real"], PERIOD, &[]),
    shape("rsi", &["real"], PERIOD, &[]),
    shape("roc", &["real"], PERIOD, &[]),
    shape("max", &["real"], PERIOD, &[]),
    shape("min", &["real"], PERIOD, &[]),
    shape("stddev", &["real"], &[("timeperiod", SHORT), ("nbdev", &[1.0, 2.0])], &[]),
    shape(
        "macd",
        &["real"],
        &[("fastperiod", &[3.0, 5.0]), ("slowperiod", &[4.0, 9.0]), ("signalperiod", &[1.0, 3.0])],
        &["line", "signal", "hist", "macd", "macdsignal", "macdhist"],
    ),
    shape("atr", BARS, PERIOD, &[]),
    shape("adx", BARS, PERIOD, &[]),
    shape("cci", BARS, PERIOD, &[]),
    shape("mfi", &["high", "low", "close", "volume"], PERIOD, &[]),
    shape("donchian", &["high", "low"], PERIOD, &["upper", "middle", "lower", "middleband"]),
    shape(
        "ichimoku",
        &["high", "low"],
        &[("conversion", &[2.0, 3.0]), ("base", &[3.0, 5.0]), ("span", &[4.0, 7.0]), ("displacement", &[1.0, 3.0])],
        &["conversion", "tenkan", "base", "kijun", "lead_a", "lead_b", "span_a", "senkou_a", "span_b"],
    ),
    shape("chandelier", BARS, &[("timeperiod", SHORT), ("multiplier", &[0.0, 1.5, 3.0])], &["long", "short"]),
    shape("squeeze", BARS, &[("timeperiod", SHORT), ("nbdev", &[2.0]), ("multiplier", &[1.5])], &["momentum"]),
    shape("crsi", &["real"], &[("timeperiod", SHORT), ("streakperiod", &[2.0, 3.0]), ("rankperiod", &[3.0, 5.0])], &[]),
    shape("obv", &["close", "volume"], &[], &[]),
    shape("vwap", &["high", "low", "close", "volume"], &[], &[]),
    shape("cdlengulfing", &["open", "high", "low", "close"], &[], &[]),
    Shape {
        name: "bbands",
        series: &["real"],
        params: &[("timeperiod", SHORT), ("nbdevup", &[1.0, 2.0]), ("nbdevdn", &[1.5, 2.0])],
        averages: &["matype"],
        fields: &["upper", "middle", "lower", "upperband", "lowerband"],
    },
    Shape {
        name: "stoch",
        series: BARS,
        params: &[("fastk_period", &[1.0, 3.0, 5.0]), ("slowk_period", &[2.0, 3.0]), ("slowd_period", &[2.0, 3.0])],
        averages: &["slowk_matype", "slowd_matype"],
        fields: &["k", "d", "slowk", "slowd"],
    },
];
