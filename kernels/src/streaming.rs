//! Values that are written past the caches: results larger than them, which nobody reads soon.
//!
//! An ordinary store reads its cache line from memory first and drives another one out. Where whole lines are written once, both are
//! needless: the processor has stores that send full lines to memory.

use std::marker::PhantomData;

/// Bytes that are sent to memory together.
const LINE_BYTES: usize = 64;
/// Values of a line.
const LINE: usize = LINE_BYTES / size_of::<f64>();

/// Copies values past the caches. Of one thread: what it has copied is complete for others when [`streamed`] returns.
#[derive(Debug)]
pub struct Streaming(PhantomData<*mut ()>);

/// Runs `work`, which may copy values past the caches. When this returns, or unwinds, all of them have arrived.
pub fn streamed<R>(work: impl FnOnce(&Streaming) -> R) -> R {
    let streaming = Streaming(PhantomData);
    work(&streaming)
}

impl Streaming {
    /// Copies values: whole lines past the caches, what is left at both ends as usual.
    ///
    /// # Panics
    /// The two have different lengths.
    pub fn copy(&self, to: &mut [f64], values: &[f64]) {
        assert_eq!(to.len(), values.len(), "as many places as values");
        let head = (to.as_ptr().addr().next_multiple_of(LINE_BYTES) - to.as_ptr().addr()) / size_of::<f64>();
        let (first, rest) = to.split_at_mut(head.min(to.len()));
        let (begin, values) = values.split_at(first.len());
        first.copy_from_slice(begin);
        let lines = rest.len() / LINE * LINE;
        let (lines, last) = rest.split_at_mut(lines);
        let (whole, end) = values.split_at(lines.len());
        copy_lines(lines, whole);
        last.copy_from_slice(end);
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // Streamed stores are not ordered with what other threads see, such as the lock that hands the values over.
        // SAFETY: it only waits, and SSE is part of every x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies whole lines; `to` begins at one.
#[cfg(target_arch = "x86_64")]
fn copy_lines(to: &mut [f64], values: &[f64]) {
    use std::arch::x86_64::{_mm_loadu_pd, _mm_stream_pd};

    let pairs = |line: usize| (0..LINE).step_by(2).map(move |at| line + at);
    for line in (0..to.len().min(values.len())).step_by(LINE) {
        for at in pairs(line) {
            // SAFETY: `at` and the value after it are within both slices, whose lengths are equal and multiples of LINE; `to` begins at a
            // multiple of 64 bytes, so that each pair is at a multiple of 16. SSE2 is part of every x86-64. The caller's fence, when
            // `Streaming` is dropped, orders the stores before anything that follows; until then `to` is borrowed by this thread,
            // which sees its own stores in order.
            unsafe { _mm_stream_pd(to.as_mut_ptr().add(at), _mm_loadu_pd(values.as_ptr().add(at))) };
        }
    }
}

/// As usual, on other processors.
#[cfg(not(target_arch = "x86_64"))]
fn copy_lines(to: &mut [f64], values: &[f64]) {
    to.copy_from_slice(values);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_and_place_have_their_bits_and_nothing_else_is_written() {
        let values: Vec<f64> =
            (0..70u64).map(|i| f64::from_bits(0x7ff8_0000_0000_0001 ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        for begin in 0..17 {
            for length in 0..=values.len() {
                let mut to = vec![-1.0; begin + length + 9];
                streamed(|streaming| streaming.copy(&mut to[begin..begin + length], &values[..length]));
                let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&to[begin..begin + length]), bits(&values[..length]), "{begin} {length}");
                assert!(
                    to[..begin].iter().chain(&to[begin + length..]).all(|value| *value == -1.0),
                    "{begin} {length}"
                );
            }
        }
    }

    #[test]
    fn what_was_copied_is_seen_by_another_thread() {
        let values = vec![7.0; 100_000];
        let to = std::thread::scope(|scope| {
            let copied = scope.spawn(|| {
                let mut to = vec![0.0; values.len()];
                streamed(|streaming| to.chunks_mut(33).for_each(|part| streaming.copy(part, &values[..part.len()])));
                to
            });
            copied.join().unwrap()
        });
        assert_eq!(to, values);
    }
}
