//! The group of a symbol: a fixed function of the symbol's bytes and the dataset's number of groups.
//!
//! Changing this function would make every stored dataset unreadable; a test fixes its values.

use crate::limits::SYMBOLS_PER_GROUP;

/// FNV-1a over 64 bits, then the finaliser of MurmurHash3 (FNV alone distributes short names unevenly in the low bits,
/// which the modulus uses).
pub fn stable_hash(symbol: &str) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in symbol.bytes() {
        h = (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

/// The group of a symbol, below `groups`.
pub fn group_of(symbol: &str, groups: u32) -> u32 {
    // The remainder is below a u32.
    (stable_hash(symbol) % u64::from(groups.max(1))) as u32
}

/// Number of groups for a new dataset with this number of symbols.
pub fn groups_for(symbols: usize) -> u32 {
    u32::try_from(symbols.div_ceil(SYMBOLS_PER_GROUP)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_never_change() {
        assert_eq!(stable_hash(""), 0xefd0_1f60_ba99_2926);
        assert_eq!(stable_hash("AAPL"), stable_hash("AAPL"));
        assert_eq!(group_of("anything", 1), 0);
        assert_eq!(group_of("anything", 0), 0);
    }

    #[test]
    fn symbols_spread_evenly() {
        let mut counts = vec![0u32; 157];
        for k in 0..10_000 {
            counts[group_of(&format!("SYN{k:05}"), 157) as usize] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 35 && *most < 100, "{least} to {most}");
    }

    #[test]
    fn a_dataset_has_a_group_for_every_64_symbols() {
        assert_eq!([0, 1, 64, 65, 10_000].map(groups_for), [1, 1, 1, 2, 157]);
    }
}
