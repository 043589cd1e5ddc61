//! The calling rules of the catalogue.

use crate::{mistake, plan};

/// Both spellings compute the same.
fn same(a: &str, b: &str) {
    let (a, b) = (format!("{a} > 0"), format!("{b} > 0"));
    assert_eq!(plan(&a).fingerprint(), plan(&b).fingerprint(), "{a} and {b}");
}

#[test]
fn series_and_parameters_have_defaults() {
    same("rsi()", "rsi(close, 14)");
    same("rsi(9)", "rsi(close, timeperiod=9)");
    same("rsi(close, 9)", "rsi(real=close, length=9)");
    same("sma(20)", "sma(close, 20)");
    same("atr(14)", "atr(high, low, close, 14)");
    same("obv()", "obv(close, volume)");
    same("rsi(hl2, timeperiod=9)", "rsi((high+low)/2, 9)");
    same("hlc3", "(high+low+close)/3");
    same("ohlc4", "(open+high+low+close)/4");
}

#[test]
fn average_types_go_by_keyword_and_are_skipped_in_positions() {
    same("stoch(14,3,3).k", "stoch(fastk_period=14, slowk_period=3, slowd_period=3).slowk");
    same("stoch(14,3,3,slowk_matype='ema').d", "stoch(14,3,3,slowk_matype=1).slowd");
    same("bbands(close,20,2).upper", "bbands(close,20,2,2,matype='SMA').upperband");
}

#[test]
fn every_average_of_talib_has_a_name_and_a_number() {
    for (name, number) in trawl_plan::catalogue::AVERAGES {
        same(&format!("ma(9, matype='{name}')"), &format!("ma(9, matype={number})"));
    }
    same("ma(9, matype='default')", "sma(9)");
    same("ma(9, matype='disabled')", "close");
    same("stoch(slowk_matype='default').k", "stoch().k");
    same("ma(5, matype='t3')", "t3(5)");
    same("ma(5, matype='mama')", "mama().mama");
    same("bbands(9, matype='rma').middle", "bbands(9, matype=13).middle");
    // One bar is the series itself, whatever the average.
    same("ma(1, matype='mama')", "close");
}

#[test]
fn a_smallest_period_is_not_larger_than_the_largest() {
    plan("mavp(close, volume, 5, 5) > 0");
    assert!(mistake("mavp(close, volume, 6, 5) > 0").message.contains("minperiod (6) is larger than maxperiod (5)"));
    assert!(mistake("mavp(close, volume, maxperiod=100000, matype='ema') > 0").message.contains("steps"));
    plan("mavp(close, volume, maxperiod=100000) > 0");
}

#[test]
fn the_lower_bands_factor_defaults_to_the_upper_ones() {
    same("bbands(20, 1.5).lower", "bbands(20, nbdevup=1.5, nbdevdn=1.5).lower");
}

#[test]
fn aliases_name_the_same_outputs() {
    same("macd().line", "macd(close,12,26,9).macd");
    same("macd().hist", "macd().macdhist");
    same("macd(26,12).line", "macd(12,26).line");
    same("macdext().hist", "macdext(close,12,26,9).macdhist");
    same("aroon().up", "aroon(high,low,14).aroonup");
    same("stochf().k", "stochf().fastk");
    same("stochrsi().d", "stochrsi(close,14,5,3).fastd");
    same("kdj(9,3,3).j", "kdj(9,3,3,slowk_matype='rma',slowd_matype=13).j");
    same("linreg(close, 20)", "linearreg(20)");
    same("slope(close, 20)", "linearreg_slope(20)");
    same("percentrank(close, 126)", "percentrank(timeperiod=126)");
}

#[test]
fn a_constant_stands_for_a_series_only_where_one_must_be_given() {
    same("maximum(close, 5)", "maximum(a=close, b=5)");
    plan("crosses_above(close, 100)");
    plan("highest(high, 252)[1] < close");
    same("sqrt(252)", "sqrt(real=252)");
    same("sqrt()", "sqrt(close)");
    same("add(close, 5)", "add(real0=close, real1=5)");
    assert!(mistake("obv(5) > 0").message.contains("a constant series goes by name"));
    same("sma(real=5, timeperiod=3)", "sma(3, real=5)");
}

#[test]
fn windows_must_be_constants_but_may_be_computed_ones() {
    same("sma(close, 2*10)", "sma(close, 20)");
    assert!(mistake("sma(close, timeperiod=volume) > 0").message.contains("must be a constant"));
    assert!(mistake("close[volume] > 0").help.is_some_and(|h| h.contains("constant")));
}

#[test]
fn a_single_output_may_be_named_but_needs_no_field() {
    same("rsi().real", "rsi()");
    assert!(mistake("rsi().line > 0").message.contains("one output"));
}

#[test]
fn the_example_of_every_form_is_a_condition() {
    for form in &trawl_plan::catalogue::FORMS {
        assert!(form.example.contains(&format!("{}(", form.name)), "{}", form.name);
        plan(form.example);
    }
}
