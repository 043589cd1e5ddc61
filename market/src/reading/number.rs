//! Numbers as files write them, and the probable cause when a cell is not a number.

use crate::words::{ONES, ZEROS, are_digits, number_of, zero_bytes};

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// May be infinite, never NaN.
    Number(f64),
    Missing,
    Text,
}

/// Parses a cell; with `comma` the decimal sign is a comma, and dots separate groups of three digits.
pub(super) fn parse_number(cell: &str, comma: bool) -> Cell {
    if let (false, Some(value)) = (comma, plain_decimal(cell.as_bytes())) {
        return Cell::Number(value);
    }
    let cell = cell.trim();
    let value = match comma {
        true if cell.contains([',', '.']) => match plain_of_comma(cell) {
            Some(plain) => plain.parse(),
            None => return Cell::Text,
        },
        _ => cell.parse::<f64>(),
    };
    match value {
        Ok(value) if value.is_nan() => Cell::Missing,
        Ok(value) => Cell::Number(value),
        _ if ["", "null", "na", "n/a", "none", "-"].iter().any(|na| cell.eq_ignore_ascii_case(na)) => Cell::Missing,
        _ => Cell::Text,
    }
}

/// Powers of ten that are exact.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The nearest number to a plain decimal such as `123.45`: its digits are a whole number below 2^53 and the power of ten below
/// 10^23, both exact, so that one division rounds once. `None` for any other notation: the caller decides.
fn plain_decimal(cell: &[u8]) -> Option<f64> {
    /// Digits and a point: no more digits than a whole number of 64 bits holds.
    const BYTES_MAX: usize = 19;
    if cell.len() > BYTES_MAX {
        return None;
    }
    let (mut digits, mut point) = (0u64, None);
    for (at, &byte) in cell.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            digits = digits * 10 + u64::from(digit);
        } else if byte == b'.' && point.is_none() && at > 0 {
            point = Some(at);
        } else {
            return None;
        }
    }
    let last = cell.len().checked_sub(1)?;
    let decimals = point.map_or(0, |point| last - point);
    quotient(digits, decimals)
}

/// Digits with so many of them behind the point; `None` where they are not exact.
#[inline]
fn quotient(digits: u64, decimals: usize) -> Option<f64> {
    if digits >> 53 != 0 {
        return None;
    }
    POWERS.get(decimals).map(|power| digits as f64 / power)
}

/// [`plain_decimal`] of the cell at a place of a text. Eight bytes are looked at together, or sixteen, where the text has as many
/// before the end of the cell: what comes before the cell is replaced by zeros in front.
#[inline]
pub(super) fn plain_decimal_at(text: &[u8], start: usize, end: usize) -> Option<f64> {
    let (length, before) = (end.checked_sub(start)?, text.get(..end)?);
    match length {
        1..=8 => {
            if let Some(bytes) = before.last_chunk::<8>() {
                return short_decimal(u64::from_le_bytes(*bytes), length);
            }
        }
        9..=16 => {
            if let Some(bytes) = before.last_chunk::<16>() {
                return long_decimal(u128::from_le_bytes(*bytes), length);
            }
        }
        _ => {}
    }
    plain_decimal(&before[start..])
}

/// The point in each byte, once the digit zero is taken off.
const POINTS: u64 = ONES * (b'.' ^ b'0') as u64;

/// The decimal in the last `length` bytes, of which there are one to eight.
#[inline]
fn short_decimal(bytes: u64, length: usize) -> Option<f64> {
    let first = 64 - 8 * length as u32;
    let values = (bytes ^ ZEROS) & (u64::MAX << first);
    let points = zero_bytes(values ^ POINTS);
    let (values, decimals) = match points {
        0 => (values, 0),
        _ => {
            // What comes before the point moves to its place.
            let at = points.trailing_zeros() & !7;
            if at == first {
                return None;
            }
            let below = (1 << at) - 1;
            ((values & below) << 8 | values & !(below << 8 | 0xff), 7 - at as usize / 8)
        }
    };
    are_digits(values).then(|| quotient(number_of(values), decimals)).flatten()
}

/// The decimal in the last `length` bytes, of which there are nine to sixteen.
#[inline]
fn long_decimal(bytes: u128, length: usize) -> Option<f64> {
    let both = |word: u64| u128::from(word) << 64 | u128::from(word);
    // The halves in the order of the text.
    let halves = |values: u128| (values as u64, (values >> 64) as u64);
    let first = 128 - 8 * length as u32;
    let values = (bytes ^ both(ZEROS)) & (u128::MAX << first);
    let (front, back) = halves(values ^ both(POINTS));
    let points = u128::from(zero_bytes(back)) << 64 | u128::from(zero_bytes(front));
    let (values, decimals) = match points {
        0 => (values, 0),
        _ => {
            let at = points.trailing_zeros() & !7;
            if at == first {
                return None;
            }
            let below = (1 << at) - 1;
            ((values & below) << 8 | values & !(below << 8 | 0xff), 15 - at as usize / 8)
        }
    };
    let (front, back) = halves(values);
    let digits = number_of(front) * 100_000_000 + number_of(back);
    (are_digits(front) && are_digits(back)).then(|| quotient(digits, decimals)).flatten()
}

/// `1.234,50` as `1234.50`; `None` where the dots cannot separate thousands, as in `1.5`.
fn plain_of_comma(cell: &str) -> Option<String> {
    let (whole, decimals) = cell.split_once(',').unwrap_or((cell, ""));
    let digits = whole.trim_start_matches(['-', '+']);
    let mut groups = digits.split('.');
    let first = groups.next().unwrap_or_default();
    let mut rest = groups.peekable();
    if rest.peek().is_some()
        && (!(1..=3).contains(&first.len()) || first.starts_with('0') || rest.any(|group| group.len() != 3))
    {
        return None;
    }
    if decimals.contains(['.', ',']) { None } else { Some(format!("{}.{decimals}", whole.replace('.', ""))) }
}

/// What the cells of a file show about its decimal sign, with the first cell that shows it.
#[derive(Debug, Clone, Default)]
pub(super) struct DecimalSign {
    comma: Sighted,
    point: Sighted,
    /// `1,234`: a number with three decimals, or thousands.
    open: Sighted,
}

#[derive(Debug, Clone, Default)]
struct Sighted {
    count: usize,
    first: String,
}

impl Sighted {
    fn add(&mut self, cell: &str) {
        if self.count == 0 {
            self.first = cell.to_owned();
        }
        self.count += 1;
    }
}

impl DecimalSign {
    pub fn look(&mut self, cell: &str) {
        let cell = cell.trim().trim_start_matches(['-', '+']);
        if !cell.contains([',', '.']) || !cell.bytes().all(|c| c.is_ascii_digit() || c == b',' || c == b'.') {
            return;
        }
        // No group of thousands begins with a zero, or has more than three digits.
        let may_group = |whole: &str| (1..=3).contains(&whole.len()) && !whole.starts_with('0');
        let Some((whole, decimals)) = cell.rsplit_once(',') else {
            let decimal = cell.rsplit_once('.').is_some_and(|(whole, d)| d.len() != 3 || !may_group(whole));
            if decimal && cell.matches('.').count() == 1 {
                self.point.add(cell);
            }
            return;
        };
        if decimals.contains('.') || whole.contains(',') {
            // Commas before a point, or several, separate thousands.
            self.point.add(cell);
        } else if decimals.len() == 3 && may_group(whole) {
            self.open.add(cell);
        } else if !decimals.is_empty() {
            self.comma.add(cell);
        }
    }

    /// Whether the decimal sign is a comma. `likely` where commas do not separate the cells of the file.
    ///
    /// # Errors
    /// Why that cannot be decided.
    pub fn is_comma(&self, likely: bool) -> Result<bool, String> {
        let (comma, point, open) = (&self.comma, &self.point, &self.open);
        if comma.count > point.count && point.count > 0 {
            return Err(format!("'{}' has a decimal comma, and '{}' a decimal point", comma.first, point.first));
        }
        if comma.count == 0 && point.count == 0 && likely && open.count > 0 {
            let whole = open.first.replace(',', "");
            return Err(format!("'{}' may be {whole} or have a decimal comma, and no cell shows which", open.first));
        }
        // Where points are in the majority, a decimal comma is not a number, and its row is reported.
        Ok(comma.count > point.count)
    }
}

/// The probable cause when a cell is not a number.
pub(super) fn likely_cause(cell: &str) -> &'static str {
    let cell = cell.trim();
    let (comma, point) = (cell.find(','), cell.find('.'));
    let digits = cell.bytes().any(|c| c.is_ascii_digit());
    match (comma, point) {
        _ if !digits => "",
        _ if cell.starts_with(['$', '€', '£', '¥']) => ": a currency sign? write the number alone",
        _ if cell.ends_with('%') => ": a percentage? write the number alone",
        _ if cell.ends_with(['k', 'K', 'm', 'M', 'b', 'B']) => ": a suffix for thousands or millions? write them out",
        (Some(comma), Some(point)) if comma < point => {
            ": commas that separate thousands? write the number without them"
        }
        (Some(_), _) => ": a decimal comma? write a point, or separate the cells by semicolons",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plain_decimal_is_the_number_that_rust_reads(cell in "[0-9]{0,12}[.]?[0-9]{0,12}") {
            match plain_decimal(cell.as_bytes()) {
                Some(value) => prop_assert_eq!(value.to_bits(), cell.parse::<f64>().unwrap().to_bits()),
                None => {
                    let plain = cell.len() <= 15 && cell.starts_with(|c: char| c.is_ascii_digit());
                    prop_assert!(!plain, "{}", cell);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_plain_decimal_is_read_alike_wherever_it_is_in_a_text(
            before in "[0-9.,a-z]{0,20}", cell in "([0-9]{0,11}[.]?[0-9]{0,11})|[0-9.:/\\-e ]{0,18}|.{0,9}", after in "[0-9,]{0,3}",
        ) {
            let text = format!("{before}{cell}{after}");
            let place = before.len()..before.len() + cell.len();
            let read = plain_decimal_at(text.as_bytes(), place.start, place.end);
            prop_assert_eq!(read.map(f64::to_bits), plain_decimal(cell.as_bytes()).map(f64::to_bits), "{}", cell);
        }
    }

    #[test]
    fn every_byte_beside_digits_is_no_digit_at_any_place() {
        for length in 1..=16 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = [b'7'; 24];
                    text[24 - length + at] = byte;
                    let read = plain_decimal_at(&text, 24 - length, 24);
                    let expected = plain_decimal(&text[24 - length..]);
                    assert_eq!(read.map(f64::to_bits), expected.map(f64::to_bits), "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn numbers_are_read_with_either_decimal_sign() {
        assert_eq!(parse_number(" 1.5 ", false), Cell::Number(1.5));
        assert_eq!(parse_number("1.234,50", true), Cell::Number(1234.5));
        assert_eq!(parse_number("1.234.567", true), Cell::Number(1_234_567.0));
        assert_eq!(parse_number("1,5", false), Cell::Text);
        for missing in ["", "NaN", "n/a", "null", "-", "None"] {
            assert_eq!(parse_number(missing, true), Cell::Missing, "{missing}");
        }
    }

    #[test]
    fn with_a_decimal_comma_dots_separate_groups_of_three_digits() {
        for cell in ["1.5", "0.123", "12.34,5", "1234.567,8", ".123", "1,2,3", "1,5.5"] {
            assert_eq!(parse_number(cell, true), Cell::Text, "{cell}");
        }
        assert_eq!(parse_number("-1.234,5", true), Cell::Number(-1234.5));
        assert_eq!(parse_number(",5", true), Cell::Number(0.5));
    }

    fn sign(cells: &[&str], likely: bool) -> Result<bool, String> {
        let mut sign = DecimalSign::default();
        cells.iter().for_each(|cell| sign.look(cell));
        sign.is_comma(likely)
    }

    #[test]
    fn the_decimal_sign_is_inferred_from_all_cells_together() {
        assert_eq!(sign(&["1.234,50", "12,5", "1000", "10.000"], true), Ok(true));
        assert_eq!(sign(&["151,234"], false), Ok(false));
        assert_eq!(sign(&["1,234.50", "1.5"], true), Ok(false));
        assert_eq!(sign(&["1,234,567", "1.5"], true), Ok(false));
        assert_eq!(sign(&["1.234", "1"], true), Ok(false));
        assert_eq!(sign(&["0,123", "1,085"], true), Ok(true), "thousands do not begin with a zero");
        assert_eq!(sign(&["1234,567"], true), Ok(true), "thousands are groups of three digits");
        assert_eq!(sign(&["1.5", "2.5", "1,5"], true), Ok(false), "one cell of many is an error of its row");
    }

    #[test]
    fn a_decimal_sign_that_no_cell_shows_or_that_cells_contradict_is_refused() {
        let why = sign(&["1,234", "123,400"], true).unwrap_err();
        assert!(why.contains("'1,234' may be 1234 or have a decimal comma"), "{why}");
        let why = sign(&["1.085", "12,345"], true).unwrap_err();
        assert!(why.contains("'12,345' may be 12345"), "{why}");
        let why = sign(&["12,50", "1,5", "1.5"], true).unwrap_err();
        assert_eq!(why, "'12,50' has a decimal comma, and '1.5' a decimal point");
    }

    #[test]
    fn a_cell_that_is_not_a_number_is_explained() {
        for (cell, expected) in
            [("1,234.50", "thousands"), ("1234,50", "decimal comma"), ("1.25M", "suffix"), ("$5", "sign")]
        {
            assert!(likely_cause(cell).contains(expected), "{cell}");
        }
        assert_eq!(likely_cause("eleven"), "");
    }
}
