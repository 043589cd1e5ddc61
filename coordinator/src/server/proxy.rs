//! Forwards calls to the coordinator that leads.

use std::sync::{Mutex, PoisonError};

use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use trawl_security::Connector;
use trawl_wire::keda::external_scaler_client::ExternalScalerClient;
use trawl_wire::limits::MESSAGE_BYTES_MAX;
use trawl_wire::loopback::is_loopback;
use trawl_wire::pb::coordinator_client::CoordinatorClient;

use super::attempt::endpoint_of;

/// Metadata key of a forwarded call, which is not forwarded again.
const PASSED_ON_METADATA_KEY: &str = "trawl-passed-on";

/// Bytes that the leader may send on one call, and on all calls of the connection, before they are read here. Clients of
/// this coordinator share the connection: those that do not read hold up their own calls only, as long as the windows of
/// their calls together are smaller than that of the connection.
const WINDOWS: (u32, u32) = (256 << 10, 256 << 20);

/// A connection to the leader, kept as long as it is the same.
pub(crate) struct Proxy {
    connector: Connector,
    encrypted: bool,
    leader: Mutex<Option<(String, Channel)>>,
}

impl Proxy {
    /// `connector` verifies that the peer is a coordinator; `encrypted`: whether it uses TLS.
    pub fn new(connector: Connector, encrypted: bool) -> Self {
        Self { connector, encrypted, leader: Mutex::default() }
    }

    /// Whether a token may be sent there: never in plain text to another machine.
    pub fn may_carry_tokens(&self, address: &str) -> bool {
        self.encrypted || is_loopback(address)
    }

    pub fn client_to(&self, address: &str) -> Result<CoordinatorClient<Channel>, tonic::transport::Error> {
        Ok(CoordinatorClient::new(self.channel_to(address)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// A client for autoscaler requests.
    pub fn scaler_at(&self, address: &str) -> Result<ExternalScalerClient<Channel>, tonic::transport::Error> {
        Ok(ExternalScalerClient::new(self.channel_to(address)?))
    }

    fn channel_to(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        let mut leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        match &*leader {
            Some((known, channel)) if known == address => Ok(channel.clone()),
            _ => {
                let endpoint = endpoint_of(address)?
                    .initial_stream_window_size(WINDOWS.0)
                    .initial_connection_window_size(WINDOWS.1);
                let channel = endpoint.connect_with_connector_lazy(self.connector.clone());
                *leader = Some((address.to_owned(), channel.clone()));
                Ok(channel)
            }
        }
    }

    pub fn mark(metadata: &mut MetadataMap) {
        metadata.insert(PASSED_ON_METADATA_KEY, tonic::metadata::MetadataValue::from_static("1"));
    }

    pub fn is_passed_on(metadata: &MetadataMap) -> bool {
        metadata.contains_key(PASSED_ON_METADATA_KEY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_security::{Expect, Role};

    #[test]
    fn tokens_leave_this_machine_encrypted_or_not_at_all() {
        let proxy = |encrypted| Proxy::new(Connector::new(None, Expect::Role(Role::Coordinator)), encrypted);
        assert!(proxy(false).may_carry_tokens("127.0.0.1:7400"));
        assert!(!proxy(false).may_carry_tokens("10.255.255.1:7400"));
        assert!(proxy(true).may_carry_tokens("10.255.255.1:7400"));
    }
}
