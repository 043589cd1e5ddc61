//! Fetching the files of a data root in an object store ahead of the threads that compute with them. Without it each of these
//! threads would fetch, then compute, then fetch: the network idles while the CPU works, and the other way round.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use trawl_market::{Dataset, FetchedGroup, MarketError};

/// Threads that fetch for one shard. They wait for the network, not for a core.
const FETCHING: usize = 4;
/// Segments that are fetched before the newest one that was begun: more would evict from a small cache what is not read yet.
const AHEAD: usize = 8;

/// The segments of one shard, in the order in which they are begun.
#[derive(Debug)]
pub struct Order<'a> {
    segments: &'a [u32],
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: usize,
    fetched: usize,
    over: bool,
}

impl Order<'_> {
    /// The next segment to compute; `None` after the last.
    pub fn begin(&self) -> Option<u32> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let segment = self.segments.get(state.begun).copied();
        state.begun += 1;
        self.changed.notify_all();
        segment
    }

    /// The next segment to fetch, once it is near enough; `None` after the last, and when nothing is computed any more.
    fn fetch(&self) -> Option<u32> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let far = |state: &mut State| !state.over && state.fetched.max(state.begun) >= state.begun + AHEAD;
        let mut state = self.changed.wait_while(state, far).unwrap_or_else(PoisonError::into_inner);
        // Those that were begun fetch for themselves.
        let at = state.fetched.max(state.begun);
        state.fetched = at + 1;
        self.segments.get(at).copied().filter(|_| !state.over)
    }

    /// Fetches one segment after the other, until there is no room for one: what is not kept would be fetched twice. One that
    /// cannot be fetched says nothing about the next ones.
    fn fetch_with(&self, fetch: impl Fn(u32) -> Result<FetchedGroup, MarketError>) {
        while let Some(segment) = self.fetch() {
            if matches!(catch_unwind(AssertUnwindSafe(|| fetch(segment))), Ok(Ok(FetchedGroup::NoRoom))) {
                return;
            }
        }
    }

    fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.changed.notify_all();
    }
}

/// Runs `compute`, which takes the segments of a shard in order, while `fetch` brings what the next ones read to this machine. What
/// cannot be fetched is left to the thread that needs it, which reports why.
pub fn ahead(
    dataset: &Dataset,
    segments: &[u32],
    fetch: impl Fn(u32) -> Result<FetchedGroup, MarketError> + Sync,
    compute: impl FnOnce(&Order<'_>),
) {
    let order = Order { segments, state: Mutex::default(), changed: Condvar::new() };
    if !dataset.is_in_objects() {
        return compute(&order);
    }
    // Also when it panics.
    struct Over<'a, 'b>(&'a Order<'b>);
    impl Drop for Over<'_, '_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    thread::scope(|scope| {
        let _over = Over(&order);
        for _ in 0..FETCHING.min(segments.len().saturating_sub(1)) {
            // Without a thread the segments are fetched when they are needed.
            let _ =
                thread::Builder::new().name("trawl-fetch".to_owned()).spawn_scoped(scope, || order.fetch_with(&fetch));
        }
        compute(&order);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_begun_in_order_and_fetched_not_too_far_ahead() {
        let segments: Vec<u32> = (10..40).collect();
        let order = Order { segments: &segments, state: Mutex::default(), changed: Condvar::new() };
        let fetched: Vec<Option<u32>> = (0..AHEAD).map(|_| order.fetch()).collect();
        assert_eq!(fetched, (10..18).map(Some).collect::<Vec<_>>());
        thread::scope(|scope| {
            let waits = scope.spawn(|| order.fetch());
            assert_eq!(order.begin(), Some(10));
            assert_eq!(waits.join().unwrap(), Some(18), "as soon as one more was begun");
            for at in 11..25 {
                assert_eq!(order.begin(), Some(at));
            }
            assert_eq!(order.fetch(), Some(25), "not what was begun meanwhile");
            for at in 25..40 {
                assert_eq!(order.begin(), Some(at));
            }
            assert_eq!((order.begin(), order.fetch()), (None, None));
        });
        let order = Order { segments: &segments, state: Mutex::default(), changed: Condvar::new() };
        (0..AHEAD).for_each(|_| assert!(order.fetch().is_some()));
        thread::scope(|scope| {
            let waits = scope.spawn(|| order.fetch());
            order.end();
            assert_eq!(waits.join().unwrap(), None, "nobody computes any more");
        });
    }

    #[test]
    fn a_segment_that_cannot_be_fetched_does_not_end_the_fetching_and_one_without_room_does() {
        let segments: Vec<u32> = (0..6).collect();
        let asked = |fetch: &dyn Fn(u32) -> Result<FetchedGroup, MarketError>| {
            let order = Order { segments: &segments, state: Mutex::default(), changed: Condvar::new() };
            let asked = Mutex::new(Vec::new());
            order.fetch_with(|segment| {
                asked.lock().unwrap().push(segment);
                fetch(segment)
            });
            asked.into_inner().unwrap()
        };
        let away = |segment: u32| match segment {
            0 | 3 => Err(MarketError::Refused("it is away".to_owned())),
            1 => panic!("a defect"),
            4 => Ok(FetchedGroup::TooLarge),
            _ => Ok(FetchedGroup::Here),
        };
        assert_eq!(asked(&away), [0, 1, 2, 3, 4, 5]);
        let room = |segment| if segment < 2 { FetchedGroup::Here } else { FetchedGroup::NoRoom };
        assert_eq!(asked(&|segment| Ok(room(segment))), [0, 1, 2]);
    }
}
