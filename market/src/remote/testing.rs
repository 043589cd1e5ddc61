//! An object store in memory, with faults.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::{CacheEvent, Deadline, ListedFolder, ListedObject, Objects, ObjectsError};
use crate::time::TimeMicros;

/// What happened, and what is to go wrong.
#[derive(Default)]
pub struct Log {
    pub objects: BTreeMap<String, Vec<u8>>,
    /// When they were written; 0 for those that a test puts there.
    pub modified: BTreeMap<String, TimeMicros>,
    /// The time, which a test sets. Like that of Amazon's store it counts in whole seconds, unless it goes on by `tick`.
    pub clock: TimeMicros,
    /// How much later each write is than the last one. Other stores count as finely.
    pub tick: TimeMicros,
    pub events: Vec<CacheEvent>,
    /// Paths that were fetched.
    pub fetched: Vec<String>,
    /// So many next calls fail.
    pub fail: usize,
    /// So many next fetches give another byte.
    pub damage: usize,
    /// How long a fetch takes.
    pub slow: Duration,
    /// Fetches that have begun and not ended, and the most of them at one time.
    pub under_way: usize,
    pub most_under_way: usize,
    /// Runs once, before a head is made.
    pub before_head: Option<Box<dyn FnOnce() + Send>>,
    /// Whoever makes an object learns that there is one already.
    pub lose_answers: bool,
}

impl Log {
    fn write(&mut self, path: &str, content: Vec<u8>) {
        self.objects.insert(path.to_owned(), content);
        self.clock += self.tick;
        let counted = if self.tick > 0 { 1 } else { 1_000_000 };
        self.modified.insert(path.to_owned(), self.clock - self.clock.rem_euclid(counted));
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.objects.keys())
    }
}

/// Objects in memory.
#[derive(Debug, Default)]
pub struct MemoryObjects(Mutex<Log>);

impl MemoryObjects {
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap()
    }

    pub fn counted(&self, event: CacheEvent) -> usize {
        self.log().events.iter().filter(|other| **other == event).count()
    }

    /// Fails if it is to.
    fn call(&self) -> Result<MutexGuard<'_, Log>, ObjectsError> {
        let mut log = self.log();
        if log.fail > 0 {
            log.fail -= 1;
            return Err(ObjectsError::Store("it is away".to_owned()));
        }
        Ok(log)
    }
}

impl Objects for MemoryObjects {
    fn address(&self) -> &str {
        "s3://memory"
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        Ok(self.call()?.objects.get(path).cloned())
    }

    fn fetch(&self, path: &str, to: &mut dyn Write) -> Result<bool, ObjectsError> {
        self.fetch_ranges(path, std::slice::from_ref(&(0..u64::MAX)), to)
    }

    fn fetch_ranges(&self, path: &str, ranges: &[Range<u64>], to: &mut dyn Write) -> Result<bool, ObjectsError> {
        let (content, slow) = {
            let mut log = self.call()?;
            let Some(content) = log.objects.get(path) else { return Ok(false) };
            let within =
                |range: &Range<u64>| content.len().min(range.start as usize)..content.len().min(range.end as usize);
            let mut content: Vec<u8> = ranges.iter().flat_map(|range| content[within(range)].to_vec()).collect();
            log.fetched.push(path.to_owned());
            log.under_way += 1;
            log.most_under_way = log.most_under_way.max(log.under_way);
            if log.damage > 0 {
                log.damage -= 1;
                let middle = content.len() / 2;
                content[middle] ^= 1;
            }
            (content, log.slow)
        };
        std::thread::sleep(slow);
        self.log().under_way -= 1;
        to.write_all(&content)?;
        Ok(true)
    }

    fn list(&self, folder: &str) -> Result<ListedFolder, ObjectsError> {
        let log = self.call()?;
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut listed = ListedFolder::default();
        for (path, content) in &log.objects {
            let Some(rest) = path.strip_prefix(&prefix) else { continue };
            match rest.split_once('/') {
                Some((name, _)) if listed.folders.last().is_some_and(|last| last == name) => {}
                Some((name, _)) => listed.folders.push(name.to_owned()),
                None => {
                    let bytes = content.len() as u64;
                    let modified = log.modified.get(path).copied().unwrap_or(0);
                    listed.objects.push(ListedObject { name: rest.to_owned(), bytes, modified });
                }
            }
        }
        Ok(listed)
    }

    fn create(&self, path: &str, bytes: &[u8]) -> Result<bool, ObjectsError> {
        let hook = if path.contains("/heads/") { self.log().before_head.take() } else { None };
        if let Some(hook) = hook {
            hook();
        }
        let mut log = self.call()?;
        if log.objects.contains_key(path) {
            return Ok(false);
        }
        log.write(path, bytes.to_vec());
        Ok(!log.lose_answers)
    }

    fn put(&self, path: &str, mut file: &File) -> Result<(), ObjectsError> {
        let mut content = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut content)?;
        self.call()?.write(path, content);
        Ok(())
    }

    fn delete(&self, path: &str, until: Deadline) -> Result<(), ObjectsError> {
        let mut log = self.call()?;
        if until.has_passed() {
            return Err(ObjectsError::Store("the time in which it may be deleted is over".to_owned()));
        }
        log.objects.remove(path);
        log.modified.remove(path);
        Ok(())
    }

    fn noted(&self, event: CacheEvent, _file: &str) {
        self.log().events.push(event);
    }
}
