//! The harness of the integration tests: the real executable, real processes, a real etcd.
//!
//! Fixtures clean up when they are dropped, capture the output of their processes, and wait on conditions with a bound.
//! Of Trawl's crates it links the protocol only, to ask a coordinator for its workers: the tests see what a user sees.
//! `reference` is separate: an independent evaluator that `tests/agreement` compares with the engine.
#![forbid(unsafe_code)]

pub mod certs;
pub mod chaos;
pub mod cluster;
pub mod collectors;
pub mod etcd;
pub mod etcd_nodes;
pub mod executable;
pub mod home;
pub mod http;
pub mod jaeger;
pub mod otlp;
pub mod otlp_metrics;
pub mod polygon;
pub mod process;
pub mod receiver;
pub mod reference;
pub mod s3;
pub mod scrape;
pub mod tls_receiver;
pub mod wait;
