//! The implementations of the steps, one file per family. Each is checked against the oracle (`kernels/tests/engine`)
//! and implemented a second time for GPUs in `kernels/cuda`.

pub(super) mod anchored;
pub(super) mod argmax;
pub(super) mod composite;
pub(super) mod count;
pub(super) mod covariance;
pub(super) mod cumulative;
pub(super) mod cycle;
pub(super) mod elementwise;
pub(super) mod order_statistics;
pub(super) mod percent_rank;
pub(super) mod recurrence;
pub(super) mod regression;
pub(super) mod rolling_extremes;
pub(super) mod rolling_sums;
pub(super) mod scalar_step;
pub(super) mod selection;
pub(super) mod stops;
pub(super) mod trend;
