//! A coordinator and workers in one process, around a control store in memory: faults on the wire.
//!
//! Real processes, a real etcd and kills are in the member `tests`; here workers misbehave in ways that a real one
//! cannot be made to.

mod answers;
mod budgets;
mod classes;
mod devices;
mod late_trailers;
mod leaderless;
mod leases;
mod prepared;
mod refusals;
mod scaling;
mod scans;
mod second_opinions;
mod wire;
mod world;
