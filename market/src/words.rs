//! Eight bytes of text at a time, on every machine: what the fast paths of an import share.

/// A byte of one in each byte.
pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;

/// The digit zero in each byte.
pub(crate) const ZEROS: u64 = ONES * b'0' as u64;

/// Whether each byte is at most nine.
#[inline]
pub(crate) fn are_digits(values: u64) -> bool {
    /// The highest bit of each byte.
    const HIGH: u64 = ONES * 0x80;
    (values.wrapping_add(HIGH - 10 * ONES) | values) & HIGH == 0
}

/// The number that eight digits are, the first one in the lowest byte: neighbours are put together, then pairs, then fours. Less than
/// 10^8, if they are digits.
#[inline]
pub(crate) fn number_of(digits: u64) -> u64 {
    const PAIRS: u64 = 0x00ff_00ff_00ff_00ff;
    const FOURS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & PAIRS;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & FOURS;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & u64::from(u32::MAX)
}

/// The highest bit of each byte that is zero.
#[inline]
pub(crate) fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = ONES * 0x7f;
    !(((word & LOW) + LOW) | word | LOW)
}
