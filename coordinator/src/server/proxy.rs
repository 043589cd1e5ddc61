//! Forwards calls to the coordinator that leads.

use std::sync::{Mutex, PoisonError};

use bytes::{BufMut as _, BytesMut};
use http_body_util::Full;
use prost::Message;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::{self, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
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

/// Bytes in front of a message of gRPC.
const FRAME_HEAD_BYTES: usize = 5;

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

    pub fn leader_at(&self, address: &str) -> Result<RemoteLeader, tonic::transport::Error> {
        let channel = self.channel_to(address)?;
        let calls = CoordinatorClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(RemoteLeader { calls, channel })
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

/// The coordinator that leads, if it is another one.
pub(super) struct RemoteLeader {
    /// Calls whose replies are one message.
    pub calls: CoordinatorClient<Channel>,
    channel: Channel,
}

impl RemoteLeader {
    /// Forwards a call whose reply is a stream; returns the reply's body, whose bytes are passed on as they come: a message
    /// of theirs is never whole here.
    ///
    /// # Errors
    /// The leader's status, or that it cannot be reached.
    pub async fn stream<M: Message>(mut self, path: &'static str, request: Request<M>) -> Result<Body, Status> {
        let (metadata, _, message) = request.into_parts();
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(FRAME_HEAD_BYTES + length);
        bytes.put_u8(0);
        // Requests are bounded by REQUEST_BYTES_MAX.
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        message.encode(&mut bytes).map_err(|error| Status::internal(error.to_string()))?;
        let mut call = http::Request::new(Body::new(Full::new(bytes.freeze())));
        (*call.method_mut(), *call.version_mut()) = (http::Method::POST, http::Version::HTTP_2);
        *call.uri_mut() = http::Uri::from_static(path);
        let headers = call.headers_mut();
        *headers = metadata.into_headers();
        headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        std::future::poll_fn(|cx| self.channel.poll_ready(cx)).await.map_err(unreachable)?;
        let reply = self.channel.call(call).await.map_err(unreachable)?;
        match Status::from_header_map(reply.headers()) {
            Some(status) if status.code() != Code::Ok => Err(status),
            _ if reply.status() != http::StatusCode::OK => {
                Err(Status::unavailable(format!("the reply has the status {}", reply.status())))
            }
            _ => Ok(reply.into_body()),
        }
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
