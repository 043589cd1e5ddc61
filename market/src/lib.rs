//! Bars: import, datasets and snapshots, synthetic markets. Knows nothing of plans, scans or networks.

#![forbid(unsafe_code)]

mod seam;
pub use seam::*;
