//! Work of the engine on a thread of its own, while Python's thread shows its progress and looks for Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;
use trawl_coordinator::Progress;
use trawl_front::run::CancelFlag;

use crate::failure::failure;

/// How often signals are looked for and progress is shown.
const TICK: Duration = Duration::from_millis(50);

/// How far the work is.
#[derive(Debug, Default)]
pub struct Counts {
    total: AtomicUsize,
    done: AtomicUsize,
}

impl Progress for Counts {
    fn accepted(&self, segments: usize, _symbols: usize) {
        self.total.store(segments, Ordering::Relaxed);
    }

    fn segment_ended(&self, _segment: u32, done: usize) {
        self.done.store(done, Ordering::Relaxed);
    }
}

/// Runs `work` on another thread, without the lock of the interpreter. `tick(done, total)` is called now and then; what it raises ends
/// the work, as a signal does whose handler raises (Ctrl-C).
///
/// # Errors
/// What a signal's handler or `tick` raised, after the work has stopped.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    tick: Option<&Py<PyAny>>,
    work: impl FnOnce(&CancelFlag, &Counts) -> T + Send + 'static,
) -> PyResult<T> {
    let (cancel, counts) = (CancelFlag::default(), Arc::new(Counts::default()));
    let (sender, receiver) = channel();
    let thread = {
        let (cancel, counts) = (cancel.clone(), Arc::clone(&counts));
        std::thread::Builder::new().name("trawl".to_owned()).spawn(move || {
            // Fails only when nobody waits any more.
            let _ = sender.send(work(&cancel, &counts));
        })?
    };
    let stopped = || failure(&anyhow::anyhow!("internal error: the engine panicked; please report it"));
    let receiver = std::sync::Mutex::new(receiver);
    loop {
        let heard = py.detach(|| receiver.lock().ok().map(|receiver| receiver.recv_timeout(TICK)));
        match heard.ok_or_else(stopped)? {
            Ok(result) => {
                let _ = py.detach(|| thread.join());
                return Ok(result);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(stopped()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let shown = match tick {
            Some(tick) => {
                let (done, total) = (counts.done.load(Ordering::Relaxed), counts.total.load(Ordering::Relaxed));
                tick.call1(py, (done, total)).map(drop)
            }
            None => Ok(()),
        };
        if let Err(raised) = py.check_signals().and(shown) {
            cancel.set();
            let _ = py.detach(|| thread.join());
            return Err(raised);
        }
    }
}
