//! Trawl as its users meet it: the real executable, real files, a real etcd.
//!
//! One binary, so that it links once. `./test` runs it with a shared etcd; `cargo test` alone works too.

mod agreement;
mod answers;
mod as_of;
mod attributes;
mod best;
mod chaos;
mod chart;
mod cluster;
mod compute;
mod control;
mod data_root;
mod dataset_care;
mod datasets;
mod deploy;
mod devices;
mod diff;
mod election;
mod examples;
mod formats;
mod full_disk;
mod gpu_script;
mod helm;
mod holders;
mod http;
mod independent;
mod indicators;
mod language_page;
mod live;
mod messages;
mod metrics;
mod mistakes;
mod notify;
mod operating;
mod probes;
mod promql;
mod scaling;
mod security;
mod sources;
mod streams;
mod top;
mod traces;
mod update;
mod vendors;
