//! The background passes over stored files: which part of a second they may take, how often they come, what they report.
//! `trawl_market::Scrub` is one pass.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::time;
use trawl_market::{Scrubbed, Store, now, stable_hash};
use trawl_wire::error::text_of;

/// Time from the start of a process, or of a leader's term, to its first pass: what has just started has other things to read.
pub const SCRUB_FIRST_AFTER: Duration = Duration::from_secs(300);
/// Default interval of passes.
pub const SCRUB_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Default of the bytes that a pass reads in a second: about a hundredth of what one core with instructions for SHA-256 hashes.
pub const SCRUB_BYTES_PER_S: u64 = 16 << 20;
/// Longest sleep of a pass; it ends within this time when its process or term does.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// How the files of a data root are checked in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scrubbing {
    /// Time from one start of a pass to the next; `None`: there are no passes.
    pub every: Option<Duration>,
    /// Maximum bytes that a pass reads in a second.
    pub bytes_per_s: u64,
    /// See [`SCRUB_FIRST_AFTER`].
    pub first_after: Duration,
}

impl Default for Scrubbing {
    fn default() -> Self {
        Self { every: Some(SCRUB_EVERY), bytes_per_s: SCRUB_BYTES_PER_S, first_after: SCRUB_FIRST_AFTER }
    }
}

/// What a pass reports, besides its lines in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubEvent {
    /// So many bytes were read.
    Read(u64),
    /// So many files were damaged so far, or datasets could not be opened.
    Damaged(u64),
    /// A pass ended; so many files were damaged, or datasets could not be opened.
    Ended(u64),
}

/// Ends the pass of a future that is dropped.
struct EndsPass(Arc<AtomicBool>);

impl Drop for EndsPass {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes pass after pass; does not end. Dropping it ends the pass.
pub async fn scrub(store: Store, how: Scrubbing, report: impl Fn(ScrubEvent) + Send + Sync + 'static) -> Infallible {
    let Some(every) = how.every else { return std::future::pending().await };
    let ended = EndsPass(Arc::default());
    let report = Arc::new(report);
    time::sleep(how.first_after).await;
    loop {
        let began = time::Instant::now();
        let (store, stop, report) = (store.clone(), Arc::clone(&ended.0), Arc::clone(&report));
        // A panic has been reported; the next pass is the next attempt.
        let _ = tokio::task::spawn_blocking(move || pass(&store, how.bytes_per_s, &stop, &*report)).await;
        time::sleep_until(began + every).await;
    }
}

/// One pass, on the thread that calls it.
fn pass(store: &Store, bytes_per_s: u64, stop: &AtomicBool, report: &impl Fn(ScrubEvent)) {
    let began = Instant::now();
    // Any place will do, as long as it is another one each time.
    let from = format!("{:016x}", stable_hash(&now().to_string()));
    let (mut scrub, unreadable) = store.scrub(&from);
    unreadable.iter().for_each(|error| tracing::error!(error = text_of(error), "a dataset cannot be checked"));
    let (mut files, mut bytes, mut damaged) = (0u64, 0u64, unreadable.len() as u64);
    report(ScrubEvent::Damaged(damaged));
    let mut pause = |read: u64| {
        bytes += read;
        report(ScrubEvent::Read(read));
        let due = began + Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(1) as f64);
        while !stop.load(Ordering::Relaxed) {
            match due.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::sleep(left.min(SLEEP_MAX)),
                _ => return true,
            }
        }
        false
    };
    while let Some(one) = scrub.next(&mut pause) {
        match one {
            Scrubbed::Intact(_) => files += 1,
            Scrubbed::Gone => {}
            Scrubbed::Damaged(error) | Scrubbed::Unreadable(error) => {
                damaged += 1;
                tracing::error!(error = text_of(&error), "a stored file is damaged");
                report(ScrubEvent::Damaged(damaged));
            }
        }
    }
    if !stop.load(Ordering::Relaxed) {
        report(ScrubEvent::Ended(damaged));
        let seconds = began.elapsed().as_secs();
        tracing::info!(files, bytes, damaged, seconds, "compared stored files with their checksums");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A data root with one dataset, and one file of it.
    fn root() -> (tempfile::TempDir, Store, std::path::PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().to_path_buf());
        let options = trawl_market::SynthOptions {
            name: "market".to_owned(),
            symbols: 70,
            bars: 40,
            seed: 1,
            timeframe: trawl_market::Timeframe::DAY,
        };
        trawl_market::synthesise(&store, &options).unwrap();
        let manifest = store.open("market").unwrap().manifest;
        let file = root.path().join("market/files").join(format!("{}.arrow", manifest.files[0].sha256));
        (root, store, file)
    }

    fn wait(done: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < until, "nothing happened for 20 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn passes_come_again_and_report_what_is_damaged_until_it_is_whole() {
        let (_root, store, file) = root();
        let intact = std::fs::read(&file).unwrap();
        let mut damaged = intact.clone();
        damaged[intact.len() / 2] ^= 4;
        std::fs::write(&file, &damaged).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let how =
            Scrubbing { every: Some(Duration::from_millis(10)), bytes_per_s: u64::MAX, first_after: Duration::ZERO };
        let task = runtime.spawn(scrub(store, how, move |event| seen.lock().unwrap().push(event)));
        let has = |event: ScrubEvent| events.lock().unwrap().contains(&event);
        wait(|| has(ScrubEvent::Ended(1)));
        assert!(has(ScrubEvent::Damaged(1)) && !has(ScrubEvent::Ended(0)));
        std::fs::write(&file, &intact).unwrap();
        wait(|| has(ScrubEvent::Ended(0)));
        task.abort();
    }

    #[test]
    fn a_pass_keeps_its_pace_and_ends_when_it_is_dropped() {
        let (_root, store, _) = root();
        let read = Arc::new(Mutex::new((0u64, 0u64)));
        let seen = Arc::clone(&read);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // The first file alone would take minutes.
        let how = Scrubbing { every: Some(Duration::ZERO), bytes_per_s: 1, first_after: Duration::ZERO };
        let task = runtime.spawn(scrub(store, how, move |event| {
            let mut seen = seen.lock().unwrap();
            match event {
                ScrubEvent::Read(bytes) => seen.0 += bytes,
                ScrubEvent::Ended(_) => seen.1 += 1,
                ScrubEvent::Damaged(_) => {}
            }
        }));
        wait(|| read.lock().unwrap().0 > 0);
        let first = read.lock().unwrap().0;
        std::thread::sleep(3 * SLEEP_MAX);
        assert_eq!(*read.lock().unwrap(), (first, 0), "it waits before it reads on");
        task.abort();
        // The blocking thread ends: the runtime waits for it here.
        let began = Instant::now();
        drop(runtime);
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(*read.lock().unwrap(), (first, 0), "nothing was read after it, and it did not end as a whole pass");
    }
}
