//! Numbers as text: exact for files, readable for tables.
//!
//! Files get the shortest digits that read back as the same bits, as in JSON. Tables get rounded numbers for people,
//! which should not be used for computing.

use std::fmt::Write as _;

/// Appends `value` as in files: empty for NA, `inf`, `-inf`, else the shortest text that reads back as the same bits,
/// with an exponent below 1e-5 and from 1e16 on.
pub fn push_exact(text: &mut String, value: f64) {
    if value.is_nan() {
        return;
    }
    // Volumes, booleans and counts are mostly whole numbers.
    let _ =
        if value.fract() == 0.0 && value.abs() < 1e16 { write!(text, "{value}") } else { write!(text, "{value:?}") };
}

/// `value` as in tables: `NA`, whole numbers without decimals, else about six significant digits and at least two
/// decimals.
pub fn readable(value: f64) -> String {
    if value.is_nan() {
        return "NA".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:.5e}");
    }
    if value.fract() == 0.0 {
        return format!("{}", value as i64);
    }
    let decimals = (5 - size.log10().floor() as i32).clamp(2, 9) as usize;
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count of bytes in binary units: `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} {}", UNITS[0]) } else { format!("{size:.1} {}", UNITS[unit]) }
}

/// A count with its thousands separated: `10 000 000`.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A duration in the unit that suits it: `12.3 ms`.
pub fn duration_ns(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

/// `1 symbol`, `2 symbols`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact(value: f64) -> String {
        let mut text = String::new();
        push_exact(&mut text, value);
        text
    }

    #[test]
    fn files_hold_the_shortest_digits_that_read_back() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (21.1, "21.1"),
            (4_216_300.0, "4216300"),
            (100.5, "100.5"),
            (1e-4, "0.0001"),
            (34.83, "34.83"),
            (1e-5, "1e-5"),
            (1e15, "1000000000000000"),
            (1e16, "1e16"),
            (1e17, "1e17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e17"),
            (1.5e300, "1.5e300"),
            (5e-324, "5e-324"),
            (-2.5e-10, "-2.5e-10"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, ""),
        ] {
            assert_eq!(exact(value), text, "{value:?}");
        }
    }

    #[test]
    fn tables_show_what_people_read() {
        for (value, text) in [
            (201.09, "201.09"),
            (0.5, "0.5"),
            (0.123_456_789, "0.123457"),
            (7_521_000.0, "7521000"),
            (1_234_567.891, "1234567.89"),
            (1e20, "1.00000e20"),
            (0.000_012_3, "1.23000e-5"),
            (f64::NAN, "NA"),
            (f64::NEG_INFINITY, "-inf"),
            (0.0, "0"),
        ] {
            assert_eq!(readable(value), text, "{value:?}");
        }
        assert_eq!(thousands(1_234_567), "1 234 567");
        assert_eq!(thousands(999), "999");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(counted(1, "bar"), "1 bar");
    }

    proptest! {
        #[test]
        fn any_finite_number_is_read_back_as_the_same_bits(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let read: f64 = exact(value).parse().unwrap();
            prop_assert_eq!(read.to_bits(), value.to_bits());
        }

        #[test]
        fn readable_never_panics_and_is_never_empty(bits in any::<u64>()) {
            prop_assert!(!readable(f64::from_bits(bits)).is_empty());
        }
    }
}
