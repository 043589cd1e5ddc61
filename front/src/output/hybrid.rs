//! Parquet's hybrid encoding of small numbers, as run lengths and packed bits: indices into dictionaries, and which rows
//! are null. The layout is that of <https://parquet.apache.org/docs/file-format/data-pages/encodings/#RLE>.
//!
//! The crate `parquet` has this encoder too, but only behind its writers, which look up each value of each row first.

/// Values of which one group of packed bits consists.
const GROUP_VALUES: usize = 8;
/// Groups behind one header, so that the header is one byte.
const GROUPS_MAX: usize = 63;
/// Widest values that a group of fits into one register.
const REGISTER_BITS: u32 = 16;

/// Numbers being encoded, each of the same number of bits.
#[derive(Debug)]
pub struct Hybrid {
    /// Bits of a value, at most 32.
    width: u32,
    bytes: Vec<u8>,
}

/// Bits that hold the numbers up to `max`.
pub fn bits_for(max: usize) -> u32 {
    usize::BITS - max.leading_zeros()
}

impl Hybrid {
    /// Starts after `bytes`; values have at most `width` bits, and `width` is at most 32.
    pub fn after(bytes: Vec<u8>, width: u32) -> Self {
        debug_assert!(width <= u32::BITS);
        Self { width, bytes }
    }

    /// Appends the same value `count` times.
    pub fn run(&mut self, value: u32, count: usize) {
        if count == 0 {
            return;
        }
        let mut header = count << 1;
        while header >= 0x80 {
            self.bytes.push(header as u8 | 0x80);
            header >>= 7;
        }
        self.bytes.push(header as u8);
        self.bytes.extend_from_slice(&value.to_le_bytes()[..self.width.div_ceil(8) as usize]);
    }

    /// Appends values.
    pub fn values<T: Copy + PartialEq + Into<u32>>(&mut self, values: &[T]) {
        let (groups, rest) = values.as_chunks::<GROUP_VALUES>();
        let same = |group: &[T; GROUP_VALUES]| group.iter().all(|value| *value == group[0]);
        let mut at = 0;
        while at < groups.len() {
            let from = at;
            if same(&groups[from]) {
                while groups.get(at) == Some(&groups[from]) {
                    at += 1;
                }
                self.run(groups[from][0].into(), (at - from) * GROUP_VALUES);
                continue;
            }
            while at < groups.len() && at - from < GROUPS_MAX && !same(&groups[at]) {
                at += 1;
            }
            self.bytes.push(((at - from) << 1 | 1) as u8);
            for group in &groups[from..at] {
                self.pack(group);
            }
        }
        // Packed bits come in whole groups; what is left is short.
        for same in rest.chunk_by(PartialEq::eq) {
            self.run(same[0].into(), same.len());
        }
    }

    /// The encoded bytes, after those that it started with.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn pack<T: Copy + Into<u32>>(&mut self, group: &[T; GROUP_VALUES]) {
        let width = self.width;
        if width <= REGISTER_BITS {
            // Four values fit into 64 bits. Written out, since a fold over closures is not always one loop.
            let [a, b, c, d, e, f, g, h] = group;
            let bits = |value: &T| -> u64 {
                let value: u32 = (*value).into();
                u64::from(value)
            };
            let low = bits(a) | bits(b) << width | bits(c) << (2 * width) | bits(d) << (3 * width);
            let high = bits(e) | bits(f) << width | bits(g) << (2 * width) | bits(h) << (3 * width);
            let bits = u128::from(low) | u128::from(high) << (4 * width);
            // A copy of fixed length is one instruction; what is too much is cut off.
            let end = self.bytes.len() + width as usize;
            self.bytes.extend_from_slice(&bits.to_le_bytes());
            self.bytes.truncate(end);
            return;
        }
        let (mut bits, mut pending) = (0u64, 0);
        for value in group {
            let value: u32 = (*value).into();
            bits |= u64::from(value) << pending;
            pending += width;
            while pending >= 8 {
                self.bytes.push(bits as u8);
                bits >>= 8;
                pending -= 8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the encoding by its definition, bit by bit.
    fn decoded(bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        let mut at = 0;
        while values.len() < count {
            let (mut header, mut shift) = (0usize, 0);
            loop {
                let byte = bytes[at];
                at += 1;
                header |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            if header & 1 == 0 {
                let mut value = 0u32;
                for i in 0..width.div_ceil(8) {
                    value |= u32::from(bytes[at]) << (8 * i);
                    at += 1;
                }
                values.extend(std::iter::repeat_n(value, header >> 1));
            } else {
                let groups = header >> 1;
                for i in 0..groups * 8 {
                    let bit = |j: usize| u32::from(bytes[at + j / 8] >> (j % 8) & 1);
                    let from = i * width as usize;
                    values.push((0..width as usize).fold(0, |value, j| value | bit(from + j) << j));
                }
                at += groups * width as usize;
            }
        }
        assert_eq!(at, bytes.len(), "nothing is left");
        assert_eq!(values.len(), count);
        values
    }

    #[test]
    fn values_of_every_width_are_read_back_by_the_definition() {
        for width in 0..=32u32 {
            let mask = if width == 32 { u32::MAX } else { (1 << width) - 1 };
            for count in [0usize, 1, 7, 8, 9, 63, 64, 505, 512, 513, 4000] {
                let mut state = 1u64;
                let values: Vec<u32> = (0..count)
                    .map(|i| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        // Stretches of equal values between others; later on, more others than one header allows.
                        if i < 600 && i / 50 % 3 == 1 { mask } else { (state >> 32) as u32 & mask }
                    })
                    .collect();
                let mut hybrid = Hybrid::after(vec![7], width);
                hybrid.values(&values);
                let bytes = hybrid.into_bytes();
                assert_eq!(bytes[0], 7);
                assert_eq!(decoded(&bytes[1..], width, count), values, "{width} bits, {count} values");
            }
        }
    }

    #[test]
    fn runs_and_values_may_alternate() {
        let mut hybrid = Hybrid::after(Vec::new(), 3);
        hybrid.run(5, 1000);
        hybrid.run(1, 0);
        hybrid.values(&[1u8, 2, 3]);
        hybrid.run(7, 1);
        hybrid.values(&[0u8, 1, 2, 3, 4, 5, 6, 7, 0]);
        let expected: Vec<u32> =
            [vec![5; 1000], vec![1, 2, 3, 7], (0..8).collect(), vec![0]].into_iter().flatten().collect();
        assert_eq!(decoded(&hybrid.into_bytes(), 3, expected.len()), expected);
    }

    #[test]
    fn long_runs_take_a_few_bytes() {
        let mut hybrid = Hybrid::after(Vec::new(), 20);
        hybrid.values(&[123_456u32; 100_000]);
        assert_eq!(hybrid.into_bytes().len(), 3 + 3);
    }

    #[test]
    fn as_many_bits_as_the_largest_number_needs() {
        assert_eq!([0, 1, 2, 3, 4, 255, 256].map(bits_for), [0, 1, 2, 2, 3, 8, 9]);
    }
}
