//! A progress bar on stderr, for people who wait: only on a terminal, and only when the wait is noticeable.

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use trawl_coordinator::Progress;

/// Shorter runs show nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the bar is redrawn at most.
const REDRAWS_PER_SECOND: u8 = 10;

/// Shows how many of a scan's segments have ended, from [`PATIENCE`] after its creation until it is dropped.
#[derive(Debug)]
pub struct Waiting {
    start: Instant,
    wanted: bool,
    /// Segments of the scan; 0 until it is accepted.
    segments: AtomicUsize,
    bar: OnceLock<ProgressBar>,
}

impl Waiting {
    /// A `quiet` one never shows.
    pub fn new(quiet: bool) -> Self {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Self { start: Instant::now(), wanted, segments: AtomicUsize::new(0), bar: OnceLock::new() }
    }

    fn new_bar(&self) -> ProgressBar {
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} segments, {eta} left");
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_elapsed(self.start.elapsed())
    }
}

impl Progress for Waiting {
    fn accepted(&self, segments: usize, _symbols: usize) {
        self.segments.store(segments, Ordering::Relaxed);
    }

    fn segment_ended(&self, _segment: u32, done: usize) {
        if !self.wanted || self.start.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| self.new_bar());
        bar.set_length(self.segments.load(Ordering::Relaxed).max(done) as u64);
        bar.set_position(done as u64);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
