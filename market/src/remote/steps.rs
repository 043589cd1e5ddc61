//! The calls of one machine to a store in memory: it can be stopped before each of them, killed, or lose the answer.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use super::testing::MemoryObjects;
use super::{CacheOptions, Deadline, ListedFolder, Objects, ObjectsError};
use crate::error::MarketError;
use crate::store::Store;

#[derive(Debug, Default)]
struct State {
    /// Calls that have begun, numbered from 1.
    calls: usize,
    /// Everything waits when this call begins, until it is released.
    stop_before: Option<usize>,
    is_stopped: bool,
    is_released: bool,
    has_ended: bool,
    /// From this call on nothing happens any more.
    dies_before: Option<usize>,
    /// This call is done, and fails.
    loses: Option<usize>,
}

/// A machine with a cache of its own.
#[derive(Debug)]
pub struct Steps {
    objects: Arc<MemoryObjects>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A machine, and its data root.
pub struct Machine {
    pub steps: Arc<Steps>,
    pub store: Store,
    _cache: tempfile::TempDir,
}

impl Machine {
    pub fn new(objects: &Arc<MemoryObjects>) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let options = CacheOptions::new(cache.path().to_owned(), 1 << 30);
        let steps = Steps { objects: Arc::clone(objects), state: Mutex::default(), changed: Condvar::new() };
        let steps = Arc::new(steps);
        let store = Store::in_objects(Arc::clone(&steps) as Arc<dyn Objects>, &options).unwrap();
        Self { steps, store, _cache: cache }
    }

    /// It stops before this call.
    pub fn stopping(self, call: usize) -> Self {
        self.steps.state.lock().unwrap().stop_before = Some(call);
        self
    }

    /// It is killed before this call.
    pub fn dying(self, call: usize) -> Self {
        self.steps.state.lock().unwrap().dies_before = Some(call);
        self
    }

    /// The answer to this call is lost.
    pub fn losing(self, call: usize) -> Self {
        self.steps.state.lock().unwrap().loses = Some(call);
        self
    }

    /// How many calls it has made.
    pub fn calls(&self) -> usize {
        self.steps.state.lock().unwrap().calls
    }
}

/// Runs two things on two machines: `a` up to where it stops, then `b` up to where that stops, then the rest of `a`, then that of `b`.
pub fn interleaved<A: Send, B: Send>(
    (on_a, a): (&Machine, impl FnOnce(&Store) -> Result<A, MarketError> + Send),
    (on_b, b): (&Machine, impl FnOnce(&Store) -> Result<B, MarketError> + Send),
) -> (Result<A, MarketError>, Result<B, MarketError>) {
    std::thread::scope(|scope| {
        let a = scope.spawn(|| on_a.steps.until_end(|| a(&on_a.store)));
        on_a.steps.wait();
        let b = scope.spawn(|| on_b.steps.until_end(|| b(&on_b.store)));
        on_b.steps.wait();
        on_a.steps.release();
        let a = a.join().unwrap();
        on_b.steps.release();
        (a, b.join().unwrap())
    })
}

impl Steps {
    fn until_end<T>(&self, work: impl FnOnce() -> T) -> T {
        let done = work();
        self.state.lock().unwrap().has_ended = true;
        self.changed.notify_all();
        done
    }

    /// Waits until it is stopped, or has ended.
    fn wait(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.is_stopped && !state.has_ended).unwrap());
    }

    fn release(&self) {
        self.state.lock().unwrap().is_released = true;
        self.changed.notify_all();
    }

    fn step<T>(&self, call: impl FnOnce(&MemoryObjects) -> Result<T, ObjectsError>) -> Result<T, ObjectsError> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let number = state.calls;
        if state.stop_before == Some(number) {
            state.is_stopped = true;
            self.changed.notify_all();
        }
        state = self.changed.wait_while(state, |state| state.is_stopped && !state.is_released).unwrap();
        if state.dies_before.is_some_and(|dies| number >= dies) {
            return Err(ObjectsError::Store("killed".to_owned()));
        }
        let loses = state.loses == Some(number);
        drop(state);
        let done = call(&self.objects);
        if loses { Err(ObjectsError::Store("the answer was lost".to_owned())) } else { done }
    }
}

impl Objects for Steps {
    fn address(&self) -> &str {
        self.objects.address()
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        self.step(|objects| objects.read(path))
    }

    fn fetch(&self, path: &str, to: &mut dyn Write) -> Result<bool, ObjectsError> {
        self.step(|objects| objects.fetch(path, to))
    }

    fn fetch_ranges(&self, path: &str, ranges: &[Range<u64>], to: &mut dyn Write) -> Result<bool, ObjectsError> {
        self.step(|objects| objects.fetch_ranges(path, ranges, to))
    }

    fn list(&self, folder: &str) -> Result<ListedFolder, ObjectsError> {
        self.step(|objects| objects.list(folder))
    }

    fn create(&self, path: &str, bytes: &[u8]) -> Result<bool, ObjectsError> {
        self.step(|objects| objects.create(path, bytes))
    }

    fn put(&self, path: &str, file: &File) -> Result<(), ObjectsError> {
        self.step(|objects| objects.put(path, file))
    }

    fn delete(&self, path: &str, until: Deadline) -> Result<(), ObjectsError> {
        self.step(|objects| objects.delete(path, until))
    }
}
