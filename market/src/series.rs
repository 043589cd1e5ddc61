//! Values of one column along the bars of a symbol, shared without copying.
//!
//! The columns of a group are read into one buffer each, of which every symbol has a range. Buffers are recycled by the
//! thread that drops them: a scan reads group after group into memory that is mapped, and in the CPU's cache.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::thread::LocalKey;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of a time or a value.
pub(crate) const VALUE_BYTES: u64 = 8;
/// Buffers of one kind that a thread keeps for its next group.
const RECYCLED_MAX: usize = 16;
/// Bytes of the buffers of one kind that a thread keeps.
const RECYCLED_BYTES_MAX: usize = 64 << 20;
/// A recycled buffer may be this many times longer than needed.
const RECYCLED_EXCESS: usize = 2;
/// Buffers are longer than asked for by up to this share of the next power of two: groups of a dataset are of about the
/// same length, and a buffer that is a little too short for the next one would be followed by memory that has to be
/// cleared first.
const ROUNDED_TO: usize = 8;

/// Buffers that a thread may use again.
pub type Recycled<T> = RefCell<Vec<Vec<T>>>;

/// A number of eight bytes in a column.
pub trait Value:
    Copy + Default + PartialEq + fmt::Debug + Send + Sync + FromBytes + IntoBytes + Immutable + 'static
{
    /// The calling thread's buffers.
    fn recycled() -> &'static LocalKey<Recycled<Self>>;
    /// Converts from the byte order of files, which is little-endian.
    fn in_native_order(self) -> Self;
}

macro_rules! value {
    ($type:ty, $convert:expr) => {
        impl Value for $type {
            fn recycled() -> &'static LocalKey<Recycled<Self>> {
                thread_local!(static RECYCLED: Recycled<$type> = const { RefCell::new(Vec::new()) });
                &RECYCLED
            }

            fn in_native_order(self) -> Self {
                $convert(self)
            }
        }
    };
}

value!(i64, i64::from_le);
value!(f64, |value: f64| f64::from_bits(u64::from_le(value.to_bits())));

/// A buffer that returns to the thread that drops it.
pub(crate) struct Buffer<T: Value> {
    values: Vec<T>,
}

impl<T: Value> Buffer<T> {
    /// A buffer of at least `len` values. Their content is arbitrary: the caller overwrites all that it shares.
    pub fn of(len: usize) -> Self {
        let rounded = len.next_multiple_of((len.next_power_of_two() / ROUNDED_TO).max(1));
        let fits = |values: &Vec<T>| (len..=rounded.saturating_mul(RECYCLED_EXCESS)).contains(&values.len());
        let recycled = T::recycled().try_with(|kept| {
            let kept = &mut *kept.borrow_mut();
            kept.iter().rposition(fits).map(|at| kept.swap_remove(at))
        });
        Self { values: recycled.ok().flatten().unwrap_or_else(|| vec![T::default(); rounded]) }
    }

    /// A buffer of zeros; what is not written takes no memory.
    pub fn zeros(len: usize) -> Self {
        Self { values: vec![T::default(); len] }
    }

    /// The values to be overwritten.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T: Value> Drop for Buffer<T> {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        let bytes = |values: &Vec<T>| values.len() * size_of::<T>();
        // Fails only while the thread ends.
        let _ = T::recycled().try_with(|kept| {
            let kept = &mut *kept.borrow_mut();
            if values.is_empty() || bytes(&values) > RECYCLED_BYTES_MAX {
                return;
            }
            let mut held: usize = kept.iter().map(bytes).sum();
            // Shorter buffers make room: they would serve fewer groups.
            while kept.len() >= RECYCLED_MAX || held + bytes(&values) > RECYCLED_BYTES_MAX {
                let shortest = kept.iter().enumerate().min_by_key(|(_, values)| values.len());
                let Some((at, _)) = shortest.filter(|(_, shortest)| shortest.len() < values.len()) else { return };
                held -= bytes(&kept.swap_remove(at));
            }
            kept.push(values);
        });
    }
}

/// Values of one column along a symbol's bars. Cheap to clone; reads as a slice.
#[derive(Clone)]
pub struct Series<T: Value> {
    buffer: Arc<Buffer<T>>,
    range: Range<usize>,
}

impl<T: Value> Series<T> {
    /// A part of a shared buffer; empty if the buffer does not contain the range.
    pub(crate) fn of(buffer: &Arc<Buffer<T>>, range: Range<usize>) -> Self {
        let range = if range.end <= buffer.values.len() { range } else { 0..0 };
        Self { buffer: Arc::clone(buffer), range }
    }

    /// A part of the series; empty if it does not contain the range.
    pub fn part(&self, range: Range<usize>) -> Self {
        let (from, len) = (self.range.start, self.len());
        let inside = range.start <= range.end && range.end <= len;
        let range = if inside { from + range.start..from + range.end } else { 0..0 };
        Self { buffer: Arc::clone(&self.buffer), range }
    }

    /// Whether both are the same part of the same buffer.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && self.range == other.range
    }

    /// The values to be changed; copied first if they are shared.
    pub fn to_mut(&mut self) -> &mut [T] {
        let whole = self.range == (0..self.buffer.values.len());
        if !whole || Arc::get_mut(&mut self.buffer).is_none() {
            *self = Self::from(self.to_vec());
        }
        match Arc::get_mut(&mut self.buffer) {
            Some(buffer) => &mut buffer.values,
            None => unreachable!("nobody else has the buffer: it was just made, or found to be unshared"),
        }
    }
}

impl<T: Value> Deref for Series<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // The range was checked when the series was made.
        self.buffer.values.get(self.range.clone()).unwrap_or_default()
    }
}

impl<T: Value> From<Vec<T>> for Series<T> {
    fn from(values: Vec<T>) -> Self {
        let range = 0..values.len();
        Self { buffer: Arc::new(Buffer { values }), range }
    }
}

impl<T: Value> FromIterator<T> for Series<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::from(values.into_iter().collect::<Vec<T>>())
    }
}

impl<T: Value> Default for Series<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T: Value> PartialEq for Series<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Value> fmt::Debug for Series<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T: Value> IntoIterator for &'a Series<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_shared_and_a_changed_series_is_its_own() {
        let whole: Series<f64> = vec![1.0, 2.0, 3.0, 4.0].into();
        let mut part = whole.part(1..3);
        assert_eq!(*part, [2.0, 3.0]);
        assert!(Arc::ptr_eq(&whole.buffer, &part.buffer));
        part.to_mut()[0] = 9.0;
        assert_eq!((&*part, &*whole), (&[9.0, 3.0][..], &[1.0, 2.0, 3.0, 4.0][..]));
        assert!(whole.part(3..5).is_empty() && whole.part(5..5).is_empty());
        let before = part.as_ptr();
        part.to_mut()[1] = 8.0;
        assert_eq!((part.as_ptr(), part[1]), (before, 8.0), "its own values are changed in place");
    }

    #[test]
    fn a_dropped_buffer_is_used_again_by_its_thread_for_a_similar_length_only() {
        std::thread::spawn(|| {
            let first = Buffer::<i64>::of(1_000);
            let at = first.values.as_ptr();
            drop(first);
            assert_eq!(Buffer::<i64>::of(1_001).values.as_ptr(), at, "a little longer");
            let longer = Buffer::<i64>::of(1_100);
            assert_ne!(longer.values.as_ptr(), at);
            let shorter = Buffer::<i64>::of(100);
            assert_ne!(shorter.values.as_ptr(), at, "ten times too long");
            assert_eq!(Buffer::<i64>::of(600).values.as_ptr(), at);
            for _ in 0..3 * RECYCLED_MAX {
                T::fill();
            }
            assert!(i64::recycled().with(|kept| kept.borrow().len()) <= RECYCLED_MAX);
            // A thread full of short buffers still keeps a longer one, within its bounds.
            let long = Buffer::<i64>::of(50_000);
            let at = long.values.as_ptr();
            drop(long);
            assert_eq!(Buffer::<i64>::of(50_000).values.as_ptr(), at);
            drop([Buffer::<i64>::of(5 << 20), Buffer::of(6 << 20), Buffer::of(9 << 20)]);
            let lengths = || i64::recycled().with(|kept| kept.borrow().iter().map(Vec::len).collect::<Vec<_>>());
            let held = lengths().into_iter().sum::<usize>() * size_of::<i64>();
            assert!(lengths().contains(&(6 << 20)) && held <= RECYCLED_BYTES_MAX, "{:?}", lengths());
        })
        .join()
        .unwrap();
    }

    /// Many buffers alive at once.
    struct T;
    impl T {
        fn fill() {
            let many: Vec<Buffer<i64>> = (0..2 * RECYCLED_MAX).map(|_| Buffer::of(10)).collect();
            drop(many);
        }
    }
}
