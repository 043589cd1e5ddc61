//! Whether the values of a row can be a bar.

use crate::quarantine::Reason;

/// Checks open, high, low, close and volume as far as a file has them, all of them finite or NaN.
///
/// # Errors
/// Why they cannot be a bar, and which of the five is the cause if it is a single one.
pub(super) fn check_bar(values: [Option<f64>; 5]) -> Result<(), (Reason, Option<usize>)> {
    let [open, high, low, close, volume] = values;
    for (core, price) in [open, high, low, close].into_iter().enumerate() {
        if price.is_some_and(|price| price <= 0.0) {
            return Err((Reason::PriceNotPositive, Some(core)));
        }
    }
    if volume.is_some_and(|v| v < 0.0) {
        return Err((Reason::VolumeNegative, Some(4)));
    }
    let (high, low) = (high.unwrap_or(f64::INFINITY), low.unwrap_or(0.0));
    if high < low {
        return Err((Reason::HighBelowLow, None));
    }
    let outside = |price: Option<f64>| price.is_some_and(|p| p < low || p > high);
    match (outside(open), outside(close)) {
        (true, _) => Err((Reason::OpenOutside, None)),
        (_, true) => Err((Reason::CloseOutside, None)),
        _ => Ok(()),
    }
}
