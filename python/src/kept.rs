//! Memory of large results that Python has dropped, kept for a moment for the next results of that size.
//!
//! Memory that the system hands out is cleared first, which takes longer than computing what goes into it. Whoever computes in a loop drops
//! results of one size and asks for such ones again.

use std::fs;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use arrow_buffer::{Buffer, ScalarBuffer};
use trawl_kernels::advise_large_pages;

/// Bytes from which on memory is kept: smaller pieces are the allocator's own to keep.
const KEPT_BYTES_MIN: usize = 4 << 20;
/// Bytes that are kept at most, in all.
const KEPT_BYTES_MAX: usize = 2 << 30;
/// The part of the memory that this process may have which is kept at most.
const PART_OF_MEMORY: u64 = 8;
/// How often the lock is tried before memory is neither taken from here nor kept.
const LOCK_TRIES: usize = 1000;
/// How long memory is kept.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// A result that is in use, in memory that is kept when it is dropped.
struct Lent(Vec<f64>);

impl Drop for Lent {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}

/// What is kept, the oldest first.
#[derive(Default)]
struct Kept {
    pieces: Vec<(Instant, Vec<f64>)>,
    /// The process whose thread gives it back to the system: a child of `fork` has no such thread.
    watched_by: u32,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { pieces: Vec::new(), watched_by: 0 });
static CHANGED: Condvar = Condvar::new();

/// Without waiting for ever: in a child of `fork`, the thread that had the lock may not exist.
fn lock() -> Option<MutexGuard<'static, Kept>> {
    for _ in 0..LOCK_TRIES {
        match KEPT.try_lock() {
            Ok(kept) => return Some(kept),
            Err(TryLockError::Poisoned(kept)) => return Some(kept.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

/// Memory for so many results. It holds anything: every value has to be written.
pub fn take(values: usize) -> Vec<f64> {
    let kept = (bytes_of(values) >= KEPT_BYTES_MIN).then(lock).flatten();
    let found = kept.and_then(|mut kept| {
        let at = kept.pieces.iter().rposition(|(_, piece)| piece.len() == values)?;
        Some(kept.pieces.remove(at).1)
    });
    found.unwrap_or_else(|| {
        let mut new = vec![0.0; values];
        advise_large_pages(&mut new);
        new
    })
}

/// Results as a buffer of Arrow's, without a copy.
pub fn buffer(values: Vec<f64>) -> ScalarBuffer<f64> {
    if bytes_of(values.len()) < KEPT_BYTES_MIN {
        return values.into();
    }
    let bytes = bytes_of(values.len());
    let lent = Arc::new(Lent(values));
    let Some(begin) = NonNull::new(lent.0.as_ptr().cast_mut().cast::<u8>()) else { return ScalarBuffer::default() };
    // SAFETY: the memory is that of the vector in `lent`, which has so many bytes, is not moved or changed while the buffer owns it,
    // and is aligned for f64.
    let buffer = unsafe { Buffer::from_custom_allocation(begin, bytes, lent) };
    ScalarBuffer::from(buffer)
}

fn bytes_of(values: usize) -> usize {
    values.saturating_mul(size_of::<f64>())
}

/// Keeps the memory of a result that nobody has any more.
fn give_back(values: Vec<f64>) {
    let bytes = bytes_of(values.len());
    let Some(mut kept) = lock().filter(|_| bytes >= KEPT_BYTES_MIN && bytes <= limit()) else { return };
    let mut too_many = Vec::new();
    while kept.bytes() + bytes > limit() {
        too_many.push(kept.pieces.remove(0));
    }
    kept.pieces.push((Instant::now(), values));
    if kept.watched_by != std::process::id() {
        kept.watched_by = std::process::id();
        if thread::Builder::new().name("trawl-kept".to_owned()).spawn(watch).is_err() {
            kept.watched_by = 0;
            too_many.append(&mut kept.pieces);
        }
    }
    drop(kept);
    CHANGED.notify_one();
}

impl Kept {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| bytes_of(piece.len())).sum()
    }
}

/// Gives what was kept for long enough back to the system, and ends when nothing is kept.
fn watch() {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some((since, _)) = kept.pieces.first() else { break };
        let left = KEPT_FOR.saturating_sub(since.elapsed());
        if left.is_zero() {
            let old = kept.pieces.remove(0);
            drop(kept);
            drop(old);
            kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        } else {
            kept = CHANGED.wait_timeout(kept, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    kept.watched_by = 0;
}

/// Bytes that this process may keep.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
        });
        let container =
            fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
        let memory = machine.into_iter().chain(container).min().unwrap_or(0);
        usize::try_from(memory / PART_OF_MEMORY).unwrap_or(usize::MAX).min(KEPT_BYTES_MAX)
    })
}
