//! Numbers and bytes from the front of the small binary files beside bars (`sums`, `tail`), and the numbers of variable length
//! that they are written with.

/// Bits of a number that one byte of a number of variable length holds.
const BITS: u32 = 7;

/// Reads from the front; `None` at the end.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u32(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*taken))
    }

    pub fn u64(&mut self) -> Option<u64> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*taken))
    }

    /// A number that [`put_number`] wrote: in its only form, without superfluous bytes.
    pub fn number(&mut self) -> Option<u64> {
        // Most numbers of an index are small.
        if let [byte @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Some(u64::from(*byte));
        }
        let mut value = 0u64;
        for shift in (0..u64::BITS).step_by(BITS as usize) {
            let (&[byte], rest) = self.0.split_first_chunk()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A count of things of which each takes at least `bytes` bytes of what is left.
    pub fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count.checked_mul(bytes)? <= self.left()).then_some(count)
    }
}

/// Writes a number: seven bits a byte, the lowest first.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= BITS;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_as_they_were_written_and_have_one_form() {
        let bits = (0..u64::BITS).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for value in bits.chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, value);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!((cursor.number(), cursor.is_empty()), (Some(value), true));
            assert_eq!(Cursor::new(&bytes[..bytes.len() - 1]).number(), None, "cut");
        }
        for wrong in
            [&[0x80, 0x00][..], &[0x80], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert_eq!(Cursor::new(wrong).number(), None, "{wrong:?}");
        }
        assert_eq!(Cursor::new(&[200, 1]).count(1), None, "more than bytes are left");
    }
}
