//! Work on threads of its own, where much of it is waiting for files: threads of the pool would wait with their cores idle.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What `work` gives for each number below `count`, in their order, on so many threads.
pub(super) fn in_parallel<T: Send>(count: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let one = work(at);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, one));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, one)| one).collect()
}

/// The same for work that may fail: after a failure no more of it is begun.
pub(super) fn try_in_parallel<T: Send, E: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let failed = AtomicBool::new(false);
    let done = in_parallel(count, threads, |at| {
        let begins = !failed.load(Ordering::Relaxed);
        let one = begins.then(|| work(at));
        failed.fetch_or(matches!(one, Some(Err(_))), Ordering::Relaxed);
        one
    });
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_nothing_is_begun_after_a_failure() {
        assert_eq!(in_parallel(100, 7, |at| at * at), (0..100).map(|at| at * at).collect::<Vec<_>>());
        assert_eq!(try_in_parallel(5, 2, Ok::<_, ()>), Ok(vec![0, 1, 2, 3, 4]));
        for threads in [1, 3] {
            let begun = AtomicUsize::new(0);
            let fail = |at: usize| {
                begun.fetch_add(1, Ordering::Relaxed);
                if at == 0 { Err("full") } else { Ok(()) }
            };
            // The others may be slower to begin than it is to fail, never the other way round for long.
            assert_eq!(try_in_parallel(10_000, threads, fail), Err("full"));
            assert!(threads > 1 || begun.load(Ordering::Relaxed) == 1, "{begun:?}");
        }
    }
}
