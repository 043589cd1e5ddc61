//! How the bars of a scan are adjusted: from its document, and as text in identities and requests.

use trawl_market::{Adjustment, AdjustmentMode, Manifest, MarketError, TimeMicros, format_time};
use trawl_plan::ScanDocument;

/// The adjustment of a scan as of a bar.
///
/// # Errors
/// [`MarketError::BadName`] for a way to adjust that there is not.
pub fn adjustment_of(
    document: &ScanDocument,
    manifest: &Manifest,
    as_of: TimeMicros,
) -> Result<Adjustment, MarketError> {
    let asked = Adjustment::parse(document.adjust.as_deref().unwrap_or("none"))?;
    Ok(asked.on(manifest.calendar(), manifest.timeframe).known_at(as_of))
}

/// The text of an adjustment in the identity and in requests to workers.
pub fn adjustment_text(adjustment: Adjustment) -> String {
    let date = format_time(adjustment.as_of);
    match adjustment.mode {
        AdjustmentMode::None => "none".to_owned(),
        AdjustmentMode::Split => format!("split@{date}"),
        AdjustmentMode::SplitAndDividend => format!("split+dividend@{date}"),
    }
}
