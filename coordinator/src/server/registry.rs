//! The registered coordinators: each keeps a key under a lease for as long as it lives.
//!
//! A hint for people and for two decisions that may briefly be wrong without harm: whether a result store that is a
//! directory is rejected, and whether there is another coordinator to hand over to. The leader is elected elsewhere
//! (`leadership`).

use std::sync::Arc;
use std::time::Duration;

use trawl_cluster_store::{ControlError, ControlStore, LeaseId};
use trawl_wire::record::coordinators_prefix;

/// Time to live of the key.
const LEASE_TTL: Duration = Duration::from_secs(5);
/// Renewals of the lease within its time to live.
const RENEWALS_PER_TTL: u32 = 3;
/// Timeout of leaving.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The registration of this coordinator.
pub(crate) struct Registered {
    control: Arc<dyn ControlStore>,
    prefix: String,
    key: String,
    task: tokio::task::JoinHandle<()>,
}

async fn put(control: &dyn ControlStore, key: &str, address: &str) -> Result<LeaseId, ControlError> {
    let lease = control.grant(LEASE_TTL).await?;
    control.put(key, address.as_bytes().to_vec(), Some(lease)).await?;
    Ok(lease)
}

/// Registers this coordinator, and keeps the key until [`Registered::leave`].
///
/// # Errors
/// The control store's error.
pub(crate) async fn register(
    control: Arc<dyn ControlStore>,
    cluster_name: &str,
    id: &str,
    address: &str,
) -> Result<Registered, ControlError> {
    let prefix = coordinators_prefix(cluster_name);
    let key = format!("{prefix}{id}");
    let mut lease = put(&*control, &key, address).await?;
    let (kept, address) = ((Arc::clone(&control), key.clone()), address.to_owned());
    let task = tokio::spawn(async move {
        let (control, key) = kept;
        loop {
            tokio::time::sleep(LEASE_TTL / RENEWALS_PER_TTL).await;
            match control.keep_alive(lease).await {
                Ok(()) => {}
                Err(ControlError::LeaseOver) => match put(&*control, &key, &address).await {
                    Ok(fresh) => lease = fresh,
                    Err(error) => tracing::debug!(%error, "this coordinator is not registered"),
                },
                Err(error) => tracing::debug!(%error, "this coordinator's lease was not renewed"),
            }
        }
    });
    Ok(Registered { control, prefix, key, task })
}

impl Registered {
    /// Number of registered coordinators, including this one.
    pub async fn count(&self) -> Result<usize, ControlError> {
        let listed = self.control.list(&self.prefix).await?;
        Ok(listed.entries.iter().filter(|entry| entry.key != self.key).count() + 1)
    }

    /// Removes the key, bounded in time.
    pub async fn leave(self) {
        self.task.abort();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.control.delete(&self.key)).await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.task.abort();
    }
}
