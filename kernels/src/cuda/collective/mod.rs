//! Blocks of several devices of this process, gathered on each of them: the interface, and NCCL as its implementation.
//!
//! A collective works on all devices at once or not at all: one that waits for another for ever is ended from outside, by
//! [`Collective::abort`]. Deadlines, order and repetition are up to the caller. Deliberately absent: reductions.
//! Their sums would be in the order of devices, not of symbols.

pub(super) mod nccl;

use std::fmt::Debug;

use crate::cuda::device::{Memory, Stream};

/// What one device gives to a gathering, and where it gets all.
#[derive(Debug, Clone, Copy)]
pub struct RankPart<'a> {
    /// The device's stream.
    pub stream: Stream,
    /// Its own block.
    pub send: &'a Memory,
    /// Place for the blocks of all devices, one after the other in the order of their ranks.
    pub receive: &'a Memory,
}

/// Devices that are connected: a communicator. Errors are sentences; after one, nothing but [`Self::abort`] is allowed.
pub trait Collective: Send + Sync + Debug {
    /// Enqueues the gathering of `cells` cells of each device, in the order of ranks.
    ///
    /// # Errors
    /// A sentence.
    fn all_gather(&self, parts: &[RankPart<'_>], cells: usize) -> Result<(), String>;

    /// Whether it still works, as far as it knows.
    ///
    /// # Errors
    /// A sentence.
    fn check(&self) -> Result<(), String>;

    /// Ends what is under way, whose memory is then undefined. May be called while another thread is in a call. The
    /// communicator is of no use afterwards.
    fn abort(&self);
}

/// Connects devices.
pub trait Connect: Send + Sync + Debug {
    /// A communicator of the devices with these numbers of the driver; their ranks are their positions.
    ///
    /// # Errors
    /// A sentence.
    fn connect(&self, ordinals: &[usize]) -> Result<Box<dyn Collective>, String>;
}
