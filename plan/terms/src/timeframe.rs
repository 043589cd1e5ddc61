//! Lengths of bars.

use std::fmt;
use std::str::FromStr;

/// Characters of a text that an error repeats.
const SHOWN_CHARS_MAX: usize = 80;

/// Unit of a [`Timeframe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimeUnit {
    /// `m`
    Minute,
    /// `h`
    Hour,
    /// `d`
    Day,
    /// `w`
    Week,
    /// `mo`
    Month,
}

/// Length of a bar, written `<int><m|h|d|w|mo>`: `1d`, `15m`, `1h`, `1w`, `1mo`. Two spellings of one length (`60m`,
/// `1h`) are two timeframes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timeframe {
    /// The unit.
    pub unit: TimeUnit,
    /// 1 to 9999.
    pub count: u32,
}

/// A text is not a [`Timeframe`]. Holds the beginning of the text, escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a timeframe: expected a number from 1 to 9999 and a unit of m, h, d, w or mo, such as 1d or 15m")]
pub struct TimeframeError(pub String);

impl Timeframe {
    /// Bars of one trading day.
    pub const DAY: Self = Self { count: 1, unit: TimeUnit::Day };
    /// Bars of one minute.
    pub const MINUTE: Self = Self { count: 1, unit: TimeUnit::Minute };

    /// Whether bars are labelled by a date alone.
    pub fn is_dated(self) -> bool {
        matches!(self.unit, TimeUnit::Day | TimeUnit::Week | TimeUnit::Month)
    }

    /// Microseconds from one time to another that is this much later, a day being 24 hours; `None` for months, which differ.
    pub fn elapsed(self) -> Option<i64> {
        let minutes = match self.unit {
            TimeUnit::Minute => 1,
            TimeUnit::Hour => 60,
            TimeUnit::Day => 24 * 60,
            TimeUnit::Week => 7 * 24 * 60,
            TimeUnit::Month => return None,
        };
        Some(i64::from(self.count) * minutes * 60_000_000)
    }

    /// Minutes of an intraday bar; `None` for dated ones.
    pub fn minutes(self) -> Option<i64> {
        match self.unit {
            TimeUnit::Minute => Some(i64::from(self.count)),
            TimeUnit::Hour => Some(i64::from(self.count) * 60),
            TimeUnit::Day | TimeUnit::Week | TimeUnit::Month => None,
        }
    }
}

impl Default for Timeframe {
    fn default() -> Self {
        Self::DAY
    }
}

impl FromStr for Timeframe {
    type Err = TimeframeError;

    fn from_str(text: &str) -> Result<Self, TimeframeError> {
        let bad = || {
            let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
            if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
                shown.push_str("...");
            }
            TimeframeError(shown)
        };
        let letters = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(letters);
        let unit = match unit {
            "m" => TimeUnit::Minute,
            "h" => TimeUnit::Hour,
            "d" => TimeUnit::Day,
            "w" => TimeUnit::Week,
            "mo" => TimeUnit::Month,
            _ => return Err(bad()),
        };
        let plain = (1..=4).contains(&digits.len()) && !digits.starts_with('0');
        let count = if plain { digits.parse().ok() } else { None };
        Ok(Self { unit, count: count.ok_or_else(bad)? })
    }
}

impl fmt::Display for Timeframe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            TimeUnit::Minute => "m",
            TimeUnit::Hour => "h",
            TimeUnit::Day => "d",
            TimeUnit::Week => "w",
            TimeUnit::Month => "mo",
        };
        write!(f, "{}{unit}", self.count)
    }
}

impl TryFrom<String> for Timeframe {
    type Error = TimeframeError;

    fn try_from(text: String) -> Result<Self, TimeframeError> {
        text.parse()
    }
}

impl From<Timeframe> for String {
    fn from(timeframe: Timeframe) -> Self {
        timeframe.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeframes_are_a_count_and_a_unit() {
        for good in ["1d", "15m", "4h", "1w", "1mo", "9999m"] {
            assert_eq!(good.parse::<Timeframe>().unwrap().to_string(), good);
        }
        for bad in ["", "d", "0d", "01d", "1", "1 d", "1D", "-1d", "10000d", "1y", "1é", "1mon", "mo"] {
            assert!(bad.parse::<Timeframe>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_repeats_only_the_beginning_of_a_long_text() {
        let error = "é".repeat(500).parse::<Timeframe>().unwrap_err();
        assert_eq!(error.0, format!("{}...", "é".repeat(SHOWN_CHARS_MAX)));
    }
}
