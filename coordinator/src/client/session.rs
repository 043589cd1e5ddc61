//! Connections that are kept between calls: connecting, and above all a TLS handshake, takes longer than many scans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::transport::Channel;
use trawl_security::{ClientSecurity, Connector};
use trawl_wire::pb::coordinator_client::CoordinatorClient;

use super::{ClientError, Following, ScanCall, Scanned, connect};
use crate::report::Progress;

/// A client, and the connector, which knows why a TLS handshake failed.
pub(super) type Connected = (CoordinatorClient<Channel>, Connector);

/// At most one connection to each coordinator; scans at the same time share it.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Option<Connected>>>>>);

impl Connections {
    fn of(&self, url: &str) -> Arc<tokio::sync::Mutex<Option<Connected>>> {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(connections.entry(url.to_owned()).or_default())
    }

    /// The connection to a coordinator, which is made if there is none. Calls at the same time wait for the first of them.
    ///
    /// # Errors
    /// Those of [`connect::connect`].
    pub async fn get(&self, url: &str, security: &ClientSecurity) -> Result<Connected, ClientError> {
        let connection = self.of(url);
        let mut connection = connection.lock().await;
        if let Some(connected) = &*connection {
            return Ok(connected.clone());
        }
        Ok(connection.insert(connect::connect(url, security).await?).clone())
    }

    /// Forgets a connection on which a stream broke.
    pub async fn forget(&self, url: &str) {
        *self.of(url).lock().await = None;
    }
}

/// Scans through connections that are kept. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Session {
    urls: String,
    security: ClientSecurity,
    connections: Arc<Connections>,
}

impl Session {
    /// For the coordinators with these addresses, separated by commas; connects with the first scan.
    pub fn new(urls: &str, security: ClientSecurity) -> Self {
        Self { urls: urls.to_owned(), security, connections: Arc::default() }
    }

    /// As [`scan`](super::scan), with the session's credentials instead of the call's.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scan(&self, call: &ScanCall, progress: &dyn Progress) -> Result<Scanned, ClientError> {
        Following::with(&self.urls, &self.security, progress, Arc::clone(&self.connections)).submit(call).await
    }
}
