//! The state of one symbol's steps as `u64` words, so that evaluation can resume later, in another tile, lane or
//! process.
//!
//! One function both saves and loads, so that the two cannot disagree; [`carried`] names every field of a state, so
//! that none is forgotten. Only state that depends on all bars since the first is carried: a window that restarts reads
//! its values again and has the same bits.

use crate::cpu::simd::float::Real;
use crate::cpu::simd::vector::RowOf;

/// Loads words into a state, or saves the words of one.
pub(crate) enum Carrier<'a> {
    Save(&'a mut Vec<u64>),
    /// Words to load. Missing words leave the state unchanged; callers check the count first.
    Load(std::slice::Iter<'a, u64>),
}

impl Carrier<'_> {
    pub fn is_saving(&self) -> bool {
        matches!(self, Self::Save(_))
    }

    fn word(&mut self, word: &mut u64) {
        match self {
            Self::Save(words) => words.push(*word),
            Self::Load(words) => *word = words.next().copied().unwrap_or(*word),
        }
    }
}

/// Carries one lane of a row. Exact for both number types.
pub(crate) fn carry_lane<T: Real>(row: &mut RowOf<T>, lane: usize, carrier: &mut Carrier<'_>) {
    let mut x = row.0[lane].wide();
    x.carry(carrier);
    row.0[lane] = T::of(x);
}

/// A state or a part of one. The number of its words is constant.
pub(crate) trait Carry {
    fn carry(&mut self, carrier: &mut Carrier<'_>);
}

/// Upper bound of bar numbers, so that a damaged word cannot cause an overflow.
const BARS_MAX: u64 = 1 << 48;

impl Carry for f64 {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut word = self.to_bits();
        carrier.word(&mut word);
        *self = Self::from_bits(word);
    }
}

impl Carry for usize {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut word = *self as u64;
        carrier.word(&mut word);
        *self = word.min(BARS_MAX) as Self;
    }
}

impl Carry for u32 {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut word = u64::from(*self);
        carrier.word(&mut word);
        *self = Self::try_from(word).unwrap_or(Self::MAX);
    }
}

impl Carry for bool {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut word = u64::from(*self);
        carrier.word(&mut word);
        *self = word == 1;
    }
}

impl<A: Carry, B: Carry> Carry for (A, B) {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        self.0.carry(carrier);
        self.1.carry(carrier);
    }
}

impl<A: Carry + Default> Carry for Option<A> {
    fn carry(&mut self, carrier: &mut Carrier<'_>) {
        let mut there = self.is_some();
        let mut value = self.take().unwrap_or_default();
        there.carry(carrier);
        value.carry(carrier);
        *self = there.then_some(value);
    }
}

/// Implements [`Carry`] for a struct field by field; omitting a field is a compile error.
macro_rules! carried {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::cpu::simd::state_io::Carry for $name {
            fn carry(&mut self, carrier: &mut $crate::cpu::simd::state_io::Carrier<'_>) {
                let Self { $($field),+ } = self;
                $($crate::cpu::simd::state_io::Carry::carry($field, carrier);)+
            }
        }
    };
}
pub(crate) use carried;

/// Implements carrying for a step without carried state: a restart restores it from the inputs.
macro_rules! carries_nothing {
    () => {
        fn carry(&mut self, _lane: usize, _carrier: &mut $crate::cpu::simd::state_io::Carrier<'_>) {}
    };
}
pub(crate) use carries_nothing;
