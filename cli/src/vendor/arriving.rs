//! Copies that are read as they arrive: an import reads those that are whole while the next ones are fetched.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use trawl_market::{Arrivals, MarketError};

/// Which copies are still to come.
#[derive(Debug)]
pub struct Arriving {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    awaited: BTreeSet<PathBuf>,
    /// Files that were asked for.
    asked: BTreeSet<PathBuf>,
    /// Those of them that were there while others were awaited.
    early: usize,
    /// Nothing more arrives.
    failed: bool,
    /// Nothing is read any more.
    over: bool,
}

impl Arriving {
    /// Of copies none of which is there yet.
    pub fn of(copies: impl IntoIterator<Item = PathBuf>) -> Self {
        let (awaited, asked) = (copies.into_iter().collect(), BTreeSet::new());
        Self {
            state: Mutex::new(State { awaited, asked, early: 0, failed: false, over: false }),
            changed: Condvar::new(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        done
    }

    /// A copy is whole.
    pub fn arrived(&self, copy: &Path) {
        self.change(|state| state.awaited.remove(copy));
    }

    /// The others do not arrive: who waits for one is refused.
    pub fn fail(&self) {
        self.change(|state| state.failed = true);
    }

    /// Nothing is read any more: what has not begun to arrive need not.
    pub fn end(&self) {
        self.change(|state| state.over = true);
    }

    /// Whether nothing is read any more.
    pub fn is_over(&self) -> bool {
        self.change(|state| state.over)
    }

    /// How many files were begun to be read while others had not arrived.
    pub fn read_early(&self) -> usize {
        self.change(|state| state.early)
    }
}

impl Arrivals for Arriving {
    fn wait(&self, file: &Path) -> Result<(), MarketError> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_away = |state: &mut State| state.awaited.contains(file) && !state.failed;
        let mut state = self.changed.wait_while(state, is_away).unwrap_or_else(PoisonError::into_inner);
        if state.awaited.contains(file) {
            return Err(MarketError::Refused("a file could not be fetched".to_owned()));
        }
        let others_are_away = !state.awaited.is_empty();
        if state.asked.insert(file.to_owned()) && others_are_away {
            state.early += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_is_there_and_refused_when_it_cannot_come() {
        let [one, two, three] = ["one", "two", "three"].map(PathBuf::from);
        let arriving = Arriving::of([one.clone(), two.clone(), three.clone()]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| arriving.wait(&one));
            arriving.arrived(&one);
            waits.join().unwrap().unwrap();
            // The same one once more is no other file.
            arriving.wait(&one).unwrap();
            assert_eq!(arriving.read_early(), 1);
            arriving.arrived(&two);
            arriving.wait(&two).unwrap();
            let never = scope.spawn(|| arriving.wait(&three));
            arriving.fail();
            assert!(never.join().unwrap().is_err());
        });
        assert_eq!(arriving.read_early(), 2);
        arriving.arrived(&three);
        arriving.wait(&three).unwrap();
        assert_eq!(arriving.read_early(), 2, "it was the last one");
        // What is no copy is there.
        arriving.wait(Path::new("other")).unwrap();
        assert!(!arriving.is_over());
        arriving.end();
        assert!(arriving.is_over());
    }
}
