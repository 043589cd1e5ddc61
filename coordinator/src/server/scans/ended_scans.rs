//! The ended scans, by age, with what they weigh in memory and in the spool: which one has to go next.
//!
//! A scan is weighed when it ends, and not again at the end of each other scan: hundreds may end in a second.

use std::collections::{BTreeMap, BTreeSet};

/// How much of ended scans is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedLimits {
    /// Scans that are not recorded: they are lost when they go.
    pub unrecorded: usize,
    /// Bytes of the events of all of them.
    pub bytes: usize,
}

/// What is known of one.
#[derive(Debug)]
struct Ended {
    name: String,
    bytes: usize,
    recorded: bool,
}

/// What to do to come within the limits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Relief {
    /// Forget this scan, which is not recorded.
    Forget(String),
    /// Unload the events of this scan, which is recorded; then say what it still weighs: [`EndedScans::unloaded`].
    Unload(String),
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct EndedScans {
    /// By the order in which they ended.
    ended: BTreeMap<u64, Ended>,
    numbers: BTreeMap<String, u64>,
    /// Those that are not recorded.
    unrecorded: BTreeSet<u64>,
    /// Those that weigh something.
    loaded: BTreeSet<u64>,
    bytes: usize,
    next: u64,
}

impl EndedScans {
    /// Number of scans.
    pub fn len(&self) -> usize {
        self.ended.len()
    }

    /// Adds a scan that has ended.
    pub fn add(&mut self, name: &str, bytes: usize, recorded: bool) {
        self.remove(name);
        self.next += 1;
        self.numbers.insert(name.to_owned(), self.next);
        if !recorded {
            self.unrecorded.insert(self.next);
        }
        self.ended.insert(self.next, Ended { name: name.to_owned(), bytes: 0, recorded });
        self.weigh(self.next, bytes);
    }

    /// Removes a scan, if it is there.
    pub fn remove(&mut self, name: &str) {
        let Some(number) = self.numbers.remove(name) else { return };
        self.weigh(number, 0);
        self.ended.remove(&number);
        self.unrecorded.remove(&number);
    }

    /// Weighs all of them again: events of some were loaded meanwhile.
    pub fn weigh_again(&mut self, bytes_of: impl Fn(&str) -> usize) {
        let weights: Vec<(u64, usize)> = self.ended.iter().map(|(number, of)| (*number, bytes_of(&of.name))).collect();
        weights.into_iter().for_each(|(number, bytes)| self.weigh(number, bytes));
    }

    /// Notes what a scan weighs from now on.
    pub fn unloaded(&mut self, name: &str, bytes: usize) {
        if let Some(number) = self.numbers.get(name) {
            self.weigh(*number, bytes);
        }
    }

    /// The oldest scan that has to go; `None` within the limits. `passed_over`: those that cannot be unloaded now, because they are read.
    pub fn next_to_go(&self, limits: EndedLimits, passed_over: &BTreeSet<String>) -> Option<Relief> {
        if self.unrecorded.len() > limits.unrecorded
            && let Some(oldest) = self.unrecorded.first().and_then(|number| self.ended.get(number))
        {
            return Some(Relief::Forget(oldest.name.clone()));
        }
        if self.bytes <= limits.bytes {
            return None;
        }
        let mut loaded = self.loaded.iter().filter_map(|number| self.ended.get(number));
        let oldest = loaded.find(|ended| !passed_over.contains(&ended.name))?;
        let name = oldest.name.clone();
        Some(if oldest.recorded { Relief::Unload(name) } else { Relief::Forget(name) })
    }

    fn weigh(&mut self, number: u64, bytes: usize) {
        let Some(ended) = self.ended.get_mut(&number) else { return };
        self.bytes = self.bytes - ended.bytes + bytes;
        ended.bytes = bytes;
        if bytes > 0 {
            self.loaded.insert(number);
        } else {
            self.loaded.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EndedLimits = EndedLimits { unrecorded: 2, bytes: 100 };

    /// Does what is to be done; recorded scans weigh nothing afterwards, except those in `read`.
    fn relieved(scans: &mut EndedScans, read: &[&str]) -> Vec<Relief> {
        let (mut done, mut passed_over) = (Vec::new(), BTreeSet::new());
        while let Some(relief) = scans.next_to_go(LIMITS, &passed_over) {
            match &relief {
                Relief::Forget(name) => scans.remove(name),
                Relief::Unload(name) if read.contains(&name.as_str()) => drop(passed_over.insert(name.clone())),
                Relief::Unload(name) => scans.unloaded(name, 0),
            }
            done.push(relief);
        }
        done
    }

    #[test]
    fn the_oldest_goes_first_and_recorded_scans_are_unloaded() {
        let (forget, unload) =
            (|name: &str| Relief::Forget(name.to_owned()), |name: &str| Relief::Unload(name.to_owned()));
        let mut scans = EndedScans::default();
        scans.add("a", 40, true);
        scans.add("b", 40, false);
        scans.add("c", 20, true);
        assert_eq!(relieved(&mut scans, &[]), [], "just within the limits");
        scans.add("d", 1, false);
        assert_eq!(relieved(&mut scans, &["a"]), [unload("a"), forget("b")], "what is read stays, whatever its age");
        assert_eq!((scans.len(), scans.bytes), (3, 61));
        scans.add("e", 0, false);
        scans.add("f", 0, false);
        assert_eq!(relieved(&mut scans, &[]), [forget("d")], "too many that are not recorded");
        assert_eq!(scans.bytes, 60);
    }

    #[test]
    fn weights_are_those_of_the_scans_that_are_there() {
        let mut scans = EndedScans::default();
        scans.add("a", 40, true);
        scans.add("b", 50, true);
        scans.add("a", 10, true);
        assert_eq!((scans.len(), scans.bytes), (2, 60), "none is there twice");
        scans.remove("b");
        scans.remove("nobody");
        scans.weigh_again(|name| if name == "a" { 300 } else { 7 });
        assert_eq!((scans.len(), scans.bytes), (1, 300));
        assert_eq!(relieved(&mut scans, &[]), [Relief::Unload("a".to_owned())]);
        assert_eq!((scans.bytes, scans.loaded.len()), (0, 0));
    }
}
