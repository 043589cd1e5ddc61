//! Jumps of the close, in words.

use std::fmt::Write as _;

use trawl_market::{Jump, format_time};

use trawl_front::human::{counted, readable};

/// Jumps listed in the text; JSON has more.
const JUMPS_SHOWN_MAX: usize = 10;

/// Closes that jump, and the splits that they look like.
pub fn jumps(text: &mut String, count: u64, listed: &[Jump]) {
    if count == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "{} of the close by more than a factor of three, or by the ratio of a split (unadjusted, or real; none is removed):",
        counted(count as usize, "jump")
    );
    for jump in listed.iter().take(JUMPS_SHOWN_MAX) {
        let (before, close) = (readable(jump.before), readable(jump.close));
        let split = jump.split().map_or_else(String::new, |(new, old)| format!(", looks like a split of {new}:{old}"));
        let _ = writeln!(text, "  {} {}: {before} -> {close}{split}", jump.symbol, format_time(jump.time));
    }
    if count > JUMPS_SHOWN_MAX as u64 {
        let _ = writeln!(text, "  ... and {} more", count - JUMPS_SHOWN_MAX as u64);
    }
}
