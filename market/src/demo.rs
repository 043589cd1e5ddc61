//! Placeholder
use crate::dataset::Dataset;
use crate::error::MarketError;
pub(crate) fn build(name: &str) -> Result<Dataset, MarketError> {
    Err(MarketError::Refused(name.to_owned()))
}
