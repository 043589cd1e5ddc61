//! How often something was asked for lately, approximately and in bounded memory, also of what is not kept. Four counters for each,
//! shared with others by chance; the least of them is the answer. All are halved from time to time, so that what was popular is forgotten.

use twox_hash::XxHash3_64;

/// Counters of a row; a power of two.
const WIDTH: usize = 16_384;
/// Rows.
const ROWS: u64 = 4;
/// A counter goes no further: who is more popular than that does not matter.
const COUNT_MAX: u8 = 15;
/// After so many questions all counters are halved.
pub(super) const HALVED_AFTER: u32 = 2 * WIDTH as u32;

/// Counters of questions.
#[derive(Debug)]
pub(super) struct Popularity {
    counts: Vec<u8>,
    asked: u32,
}

impl Default for Popularity {
    fn default() -> Self {
        Self { counts: vec![0; WIDTH * ROWS as usize], asked: 0 }
    }
}

/// The counters of a column.
fn places(content: &str, column: &str) -> impl Iterator<Item = usize> {
    let hash = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(column.as_bytes()), content.as_bytes());
    (0..ROWS).map(move |row| row as usize * WIDTH + (hash >> (16 * row)) as usize % WIDTH)
}

impl Popularity {
    /// Counts a question for a column.
    pub fn add(&mut self, content: &str, column: &str) {
        self.asked += 1;
        if self.asked == HALVED_AFTER {
            self.asked = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
        let least = self.of(content, column);
        // Those that are higher count others too.
        for place in places(content, column) {
            let count = &mut self.counts[place];
            if *count == least {
                *count = (*count + 1).min(COUNT_MAX);
            }
        }
    }

    /// How often it was asked for lately, at most [`COUNT_MAX`].
    pub fn of(&self, content: &str, column: &str) -> u8 {
        places(content, column).map(|place| self.counts[place]).min().unwrap_or(0)
    }
}
