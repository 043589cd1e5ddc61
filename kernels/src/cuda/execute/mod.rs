//! Runs programs on a device: requests cut into batches, streams and pinned memory, columns cached in the device's
//! memory, and the choice of a scan's lowering (docs/adr/0018).

pub(super) mod batch;
pub(super) mod cells;
pub(super) mod column_cache;
pub(super) mod device_laying;
pub(super) mod device_queue;
pub(super) mod fleet;
pub(super) mod gather;
mod gather_queue;
pub(super) mod gatherer;
pub(super) mod graphs;
pub(super) mod held;
pub(super) mod over_chunks;
pub(super) mod paying;
pub(super) mod placement;
pub(super) mod policy;
pub(super) mod prefetch;
pub(super) mod programs;
pub(super) mod request;
pub(super) mod sequence;
mod state_streams;
pub(super) mod states;
pub(super) mod table;
pub(super) mod tensors;
pub(super) mod transfer;
pub(super) mod tuning;
