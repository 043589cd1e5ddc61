//! Sets of groups of a snapshot as bits: of group g, bit g % 8 of byte g / 8. What is beyond the last byte is not in the set.

/// Bits of a byte.
const BYTE_BITS: u32 = u8::BITS;

/// The set of these groups, in any order.
pub fn pack(groups: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bits = Vec::new();
    for group in groups {
        let at = byte_of(group);
        if bits.len() <= at {
            bits.resize(at + 1, 0);
        }
        bits[at] |= 1 << (group % BYTE_BITS);
    }
    bits
}

/// The byte that has the bit of a group.
pub fn byte_of(group: u32) -> usize {
    (group / BYTE_BITS) as usize
}

/// Whether a group is in the set.
pub fn contains(bits: &[u8], group: u32) -> bool {
    bits.get(byte_of(group)).is_some_and(|byte| byte >> (group % BYTE_BITS) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_groups_that_it_was_made_of() {
        let bits = pack([9, 0, 23]);
        assert_eq!(bits, [0b1, 0b10, 0b1000_0000]);
        assert_eq!((0..100).filter(|group| contains(&bits, *group)).collect::<Vec<_>>(), [0, 9, 23]);
        assert!(pack([]).is_empty() && !contains(&[], 0) && !contains(&bits, u32::MAX));
    }
}
