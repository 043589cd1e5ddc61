//! Eight bytes of text at a time, on every machine: what the fast paths of an import share.

/// A byte of one in each byte.
pub(crate) const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte that is zero.
#[inline]
pub(crate) fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = ONES * 0x7f;
    !(((word & LOW) + LOW) | word | LOW)
}
