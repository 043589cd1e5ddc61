//! A progress bar on stderr, for people who wait: only on a terminal, and only when the wait is noticeable.

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter runs show nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the bar is redrawn at most.
const REDRAWS_PER_SECOND: u8 = 10;

/// Shown from [`PATIENCE`] after its making until it is dropped.
#[derive(Debug)]
pub struct Waiting {
    start: Instant,
    wanted: bool,
    noun: &'static str,
    bar: OnceLock<ProgressBar>,
}

impl Waiting {
    /// `noun` is what is counted, in the plural; a `quiet` one never shows.
    pub fn new(noun: &'static str, quiet: bool) -> Self {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Self {
            start: Instant::now(),
            wanted,
            noun,
            bar: OnceLock::new(),
        }
    }

    /// `done` of `total` are done.
    pub fn at(&self, done: u64, total: u64) {
        if !self.wanted || self.start.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
            let bar = ProgressBar::with_draw_target(Some(total), target);
            let template = format!("{{bar:40}} {{pos}} of {{len}} {} {{eta}} left", self.noun);
            bar.with_style(
                ProgressStyle::with_template(&template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
            .with_elapsed(self.start.elapsed())
        });
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
