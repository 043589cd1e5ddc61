//! Streams for states that stay on a device, used again by later ones.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cuda::device::{Device, Fault, Stream, Urgency};

/// Streams that are kept for later states.
const IDLE_STREAMS_MAX: usize = 16;

/// Streams that no states use. A stream lives as long as its device.
#[derive(Debug, Default)]
pub(super) struct StateStreams(Mutex<Vec<Stream>>);

impl StateStreams {
    pub fn take(&self, device: &Arc<dyn Device>) -> Result<Stream, Fault> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| device.stream(Urgency::Interactive), Ok)
    }

    pub fn give_back(&self, stream: Stream) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_STREAMS_MAX {
            idle.push(stream);
        }
    }
}
