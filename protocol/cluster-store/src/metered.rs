//! A store whose calls are counted and timed, without changing them.

use std::time::{Duration, Instant};

use trawl_telemetry::metrics::catalogue::process::{ETCD_CALL_DURATION, ETCD_CALL_FAILURES, EtcdCall, EtcdFailure};
use trawl_telemetry::metrics::current_trace;

use crate::{
    Committed, ControlError, ControlStore, Entry, Guard, LeaseId, Page, PageRequest, StoreVersion, Watch, Write,
};

/// A store with metrics.
#[derive(Debug)]
pub struct Metered<S>(pub S);

async fn metered<T>(call: EtcdCall, answer: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    let asked = Instant::now();
    let answer = answer.await;
    ETCD_CALL_DURATION.observe(call, asked.elapsed(), current_trace());
    let failure = match &answer {
        Ok(_) => return answer,
        Err(ControlError::Unreachable { .. }) => EtcdFailure::Unreachable,
        Err(ControlError::LeaseOver) => EtcdFailure::LeaseOver,
        Err(ControlError::NoSpace(_)) => EtcdFailure::NoSpace,
        Err(ControlError::TooLarge(_)) => EtcdFailure::TooLarge,
        Err(ControlError::Compacted) => EtcdFailure::Compacted,
        Err(ControlError::Refused(_) | ControlError::Address(_)) => EtcdFailure::Refused,
    };
    ETCD_CALL_FAILURES.of(failure).inc();
    answer
}

#[tonic::async_trait]
impl<S: ControlStore> ControlStore for Metered<S> {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        metered(EtcdCall::Put, self.0.put(key, value, lease)).await
    }
    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        metered(EtcdCall::Delete, self.0.delete(key)).await
    }
    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError> {
        metered(EtcdCall::Get, self.0.get(key)).await
    }
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError> {
        metered(EtcdCall::Commit, self.0.commit(guards, writes)).await
    }
    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        metered(EtcdCall::List, self.0.page(asked)).await
    }
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        metered(EtcdCall::Watch, self.0.watch(prefix, revision)).await
    }
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError> {
        metered(EtcdCall::Grant, self.0.grant(ttl)).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        metered(EtcdCall::KeepAlive, self.0.keep_alive(lease)).await
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        metered(EtcdCall::Revoke, self.0.revoke(lease)).await
    }
    async fn version(&self, key: &str) -> Result<StoreVersion, ControlError> {
        metered(EtcdCall::Get, self.0.version(key)).await
    }
    async fn reconnect(&self) {
        self.0.reconnect().await;
    }
}
