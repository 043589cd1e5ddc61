//! The control store on etcd.
//!
//! One endpoint at a time: the many-endpoint client keeps sending calls to a dead one. A call that fails or does not
//! answer in time is retried on the next endpoint, a bounded number of times; HTTP/2 keep-alive is always on, since
//! without it a stopped server holds watches and keep-alives for as long as it is stopped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, EventType, GetOptions, KeyValue, PutOptions, Txn, TxnOp,
    WatchOptions,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::{
    Backoff, Change, Committed, ControlError, ControlStore, Entry, Guard, LeaseId, Page, PageRequest, REPLY_BYTES_MAX,
    StoreVersion, WATCH_BACKLOG_MAX, Watch, Write, after, checked,
};
use trawl_security::{Connector, Credentials, Expect};

/// Maximum tries of one call, over the endpoints in turn.
const CALL_TRIES_MAX: u32 = 4;
/// Timeout of one try.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Wait before the second try; doubles with each.
const BACK_OFF: Duration = Duration::from_millis(50);
/// See [`BACK_OFF`].
const BACK_OFF_MAX: Duration = Duration::from_millis(400);
/// Interval and timeout of pings, also on idle connections. etcd disconnects clients that ping more often than every 5
/// s (`--grpc-keepalive-min-time`); a stopped server is detected sooner by unanswered calls.
const HTTP2_KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(2));
/// Maximum age of a watch, after which the keys are listed again: this recovers changes that it missed silently.
const WATCH_AGE_MAX: Duration = Duration::from_secs(60);

/// The control store on etcd.
pub struct EtcdStore {
    /// Endpoints, as `HOST:PORT`.
    endpoints: Vec<String>,
    /// Shared by all connections; keeps the reason of TLS failures.
    connector: Connector,
    connection: Mutex<Connection>,
    /// [`Connection::turn`], for watches: a watch ends when its endpoint is abandoned.
    turned: tokio::sync::watch::Sender<usize>,
}

/// The current connection: replaced when connecting or when it breaks, read by every call.
#[derive(Default)]
struct Connection {
    client: Option<Client>,
    /// Number of endpoints tried; the current one is this number modulo the number of endpoints.
    turn: usize,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// A store at addresses like `http://127.0.0.1:2379`, separated by commas. Does not connect yet.
    ///
    /// # Errors
    /// [`ControlError::Address`].
    pub fn new(addresses: &str) -> Result<Self, ControlError> {
        Self::with_tls(addresses, None)
    }

    /// A store at addresses that all begin with `https://` if `tls` is given, otherwise with `http://`.
    ///
    /// # Errors
    /// [`ControlError::Address`].
    pub fn with_tls(addresses: &str, tls: Option<Arc<Credentials>>) -> Result<Self, ControlError> {
        let malformed = |text: &str| ControlError::Address(text.to_owned());
        let scheme = if tls.is_some() { "https://" } else { "http://" };
        let mut endpoints = Vec::new();
        for address in addresses.split(',').map(str::trim) {
            let host = address.strip_prefix(scheme).ok_or_else(|| malformed(address))?.trim_end_matches('/');
            let port = host.rsplit_once(':').and_then(|(name, port)| (!name.is_empty()).then_some(port));
            if port.and_then(|p| p.parse::<u16>().ok()).is_none() {
                return Err(malformed(address));
            }
            endpoints.push(host.to_owned());
        }
        let connector = Connector::new(tls, Expect::Host);
        let turned = tokio::sync::watch::Sender::new(0);
        Ok(Self { endpoints, connector, connection: Mutex::default(), turned })
    }

    /// Reads the certificates again when they change. Must be called inside a runtime that lives as long as the store.
    pub fn keep_fresh(&self) {
        self.connector.keep_fresh();
    }

    /// The error of TLS, else that of the call. etcd may disconnect a client without a certificate before the alert is
    /// read.
    fn cause_of(&self, error: &Error) -> String {
        match self.connector.reason() {
            Some(reason) => reason,
            None if self.connector.shows_nothing() => format!(
                "{error}; no certificate of this side is shown to it: if it asks for one, give --etcd-cert FILE and \
                 --etcd-key FILE"
            ),
            None => error.to_string(),
        }
    }

    fn unreachable(&self, cause: String) -> ControlError {
        ControlError::Unreachable { endpoints: self.endpoints.join(", "), cause }
    }

    async fn client(&self) -> Result<Client, String> {
        let (client, turn) = {
            let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            (connection.client.clone(), connection.turn)
        };
        if let Some(client) = client {
            return Ok(client);
        }
        let host = &self.endpoints[turn % self.endpoints.len()];
        // The client would wait silently for an absent server: connect first, to be able to report the reason.
        let reached = timeout(CONNECT_TIMEOUT, tokio::net::TcpStream::connect(host)).await;
        reached.map_err(|_| "no connection in time".to_owned())?.map_err(|e| e.to_string())?;
        // The connector decides on TLS, so the endpoint is always `http`.
        let endpoint = Endpoint::from_shared(format!("http://{host}"))
            .map_err(|error| error.to_string())?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(HTTP2_KEEP_ALIVE.0)
            .keep_alive_timeout(HTTP2_KEEP_ALIVE.1)
            .keep_alive_while_idle(true);
        let channel = endpoint.connect_with_connector_lazy(self.connector.clone());
        // A member that lost its peers ends its watches instead of leaving them silent.
        let options = ConnectOptions::new().with_require_leader(true);
        let client = Client::from_channel(etcd_client::Channel::Tonic(channel), Some(options))
            .await
            .map_err(|error| error.to_string())?;
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).client = Some(client.clone());
        Ok(client)
    }

    fn turn(&self) -> usize {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).turn
    }

    /// Drops the connection of `turn`: the next call takes the next endpoint. Has an effect only once, however many
    /// calls failed on it.
    fn disconnect(&self, turn: usize) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.turn == turn {
            connection.client = None;
            connection.turn = turn.wrapping_add(1);
            self.turned.send_replace(connection.turn);
        }
    }

    /// Makes one call, with its retries.
    async fn call<T, F>(&self, operation: impl Fn(Client) -> F + Send + Sync) -> Result<T, ControlError>
    where
        T: Send,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let mut cause = String::new();
        let mut backoff = Backoff::new(BACK_OFF, BACK_OFF_MAX);
        for tried in 0..CALL_TRIES_MAX {
            if tried > 0 {
                backoff.wait().await;
            }
            let unanswered = Unanswered { store: self, turn: self.turn() };
            let attempt = async {
                let client = self.client().await?;
                Ok::<_, String>(operation(client).await)
            };
            match timeout(CALL_TIMEOUT, attempt).await {
                Ok(Ok(Ok(value))) => {
                    unanswered.was_answered();
                    return Ok(value);
                }
                Ok(Ok(Err(error))) if let Some(answer) = answer_of(&error) => {
                    unanswered.was_answered();
                    return Err(answer);
                }
                Ok(Ok(Err(error))) => cause = self.cause_of(&error),
                Ok(Err(error)) => cause = error,
                Err(_) => cause = "no answer in time".to_owned(),
            }
            tracing::debug!(cause, tried, "etcd call failed");
            drop(unanswered);
        }
        Err(self.unreachable(cause))
    }
}

/// A try in progress. Dropping it unanswered drops the connection, also when the caller gives up waiting, so that a
/// hanging server is not used again.
struct Unanswered<'a> {
    store: &'a EtcdStore,
    turn: usize,
}

impl Unanswered<'_> {
    fn was_answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.store.disconnect(self.turn);
    }
}

/// The error if etcd rejected the call deliberately, so that any endpoint would; `None` for errors that may be retried.
fn answer_of(error: &Error) -> Option<ControlError> {
    let status = match error {
        Error::LeaseKeepAliveError(_) => return Some(ControlError::LeaseOver),
        Error::GRpcStatus(status) => status,
        _ => return None,
    };
    let message = status.message();
    match status.code() {
        // etcd returns it for leases only.
        tonic::Code::NotFound => Some(ControlError::LeaseOver),
        tonic::Code::InvalidArgument => Some(ControlError::Refused(message.to_owned())),
        tonic::Code::ResourceExhausted if message.contains("space exceeded") => {
            Some(ControlError::NoSpace(message.to_owned()))
        }
        tonic::Code::OutOfRange if message.contains("compacted") => Some(ControlError::Compacted),
        tonic::Code::OutOfRange if message.contains("future revision") => {
            Some(ControlError::Refused(message.to_owned()))
        }
        // From this side's decoder, or the server's.
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted if message.contains("large") => {
            Some(ControlError::TooLarge(message.to_owned()))
        }
        _ => None,
    }
}

/// The end of the range of all keys that begin with `prefix`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // UTF-8 has no byte 255, so the last one can be counted up.
    match end.last_mut() {
        Some(last) => *last += 1,
        // An end of 0 means up to the last key.
        None => end.push(0),
    }
    end
}

/// Converts a key-value pair; `None` if the key is not valid UTF-8.
fn entry(kv: &KeyValue) -> Option<Entry> {
    let key = kv.key_str().ok()?.to_owned();
    Some(Entry { key, value: kv.value().to_vec(), created: kv.create_revision() })
}

fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> i64 {
    header.map_or(0, etcd_client::ResponseHeader::revision)
}

#[tonic::async_trait]
impl ControlStore for EtcdStore {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        checked(&[], &[Write::Put { key: key.to_owned(), value: value.clone(), lease }])?;
        let options = lease.map(|id| PutOptions::new().with_lease(id));
        let put = |client: Client| {
            let (value, options) = (value.clone(), options.clone());
            async move { client.kv_client().put(key, value, options).await }
        };
        self.call(put).await.map(|_| ())
    }

    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        self.call(|client| async move { client.kv_client().delete(key, None).await }).await.map(|_| ())
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError> {
        let response = self.call(|client| async move { client.kv_client().get(key, None).await }).await?;
        Ok(response.kvs().first().and_then(entry))
    }

    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError> {
        checked(guards, &writes)?;
        let compare = |guard: &Guard| match guard {
            // An absent key has create revision 0.
            Guard::Absent { key } => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            Guard::Created { key, revision } => Compare::create_revision(key.as_str(), CompareOp::Equal, *revision),
        };
        let operation = |write: Write| match write {
            Write::Put { key, value, lease } => {
                TxnOp::put(key, value, lease.map(|id| PutOptions::new().with_lease(id)))
            }
            Write::Delete { key } => TxnOp::delete(key, None),
        };
        let compares: Vec<Compare> = guards.iter().map(compare).collect();
        let operations: Vec<TxnOp> = writes.into_iter().map(operation).collect();
        let transaction = Txn::new().when(compares).and_then(operations);
        let commit = |client: Client| {
            let transaction = transaction.clone();
            async move { client.kv_client().txn(transaction).await }
        };
        let response = self.call(commit).await?;
        Ok(Committed { applied: response.succeeded(), revision: revision_of(response.header()) })
    }

    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        let limit = i64::try_from(asked.limit.max(1)).unwrap_or(i64::MAX);
        let mut options = GetOptions::new().with_range(end_of(&asked.prefix)).with_limit(limit);
        if let Some(revision) = asked.revision {
            options = options.with_revision(revision);
        }
        if asked.keys_only {
            options = options.with_keys_only();
        }
        // No key is empty, so a range that begins there begins at the first.
        let from = if asked.from.is_empty() { vec![0] } else { asked.from.clone() };
        let get = |client: Client| {
            let (from, options) = (from.clone(), Some(options.clone()));
            async move { client.kv_client().max_decoding_message_size(REPLY_BYTES_MAX).get(from, options).await }
        };
        let response = self.call(get).await?;
        let next = response.kvs().last().filter(|_| response.more()).map(|last| after(last.key()));
        let entries = response.kvs().iter().filter_map(entry).collect();
        // The header of a page of an earlier revision contains the current revision.
        let revision = asked.revision.unwrap_or_else(|| revision_of(response.header()));
        Ok(Page { entries, revision, next })
    }

    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        let options = Some(WatchOptions::new().with_prefix().with_start_revision(revision + 1));
        let watch = |client: Client| {
            let options = options.clone();
            async move { client.watch_client().watch(prefix, options).await }
        };
        let mut turned = self.turned.subscribe();
        let mut stream = self.call(watch).await?;
        // The turn of the endpoint that answered.
        let turn = self.turn();
        let (sender, receiver) = mpsc::channel(WATCH_BACKLOG_MAX);
        tokio::spawn(async move {
            let old = tokio::time::sleep(WATCH_AGE_MAX);
            tokio::pin!(old);
            loop {
                let response = tokio::select! {
                    response = stream.message() => response,
                    () = sender.closed() => return,
                    // The store was dropped, or has abandoned this endpoint.
                    _ = turned.wait_for(|now| *now != turn) => return,
                    () = &mut old => return,
                };
                // An error, an end, a compaction: the receiver sees the end of the channel and lists again.
                let Ok(Some(response)) = response else { return };
                if response.canceled() {
                    return;
                }
                for event in response.events() {
                    let Some((kv, entry)) = event.kv().and_then(|kv| Some((kv, entry(kv)?))) else { continue };
                    let change = match event.event_type() {
                        EventType::Put => Change::Put(entry),
                        EventType::Delete => Change::Deleted { key: entry.key, revision: kv.mod_revision() },
                    };
                    if sender.try_send(change).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(receiver)
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError> {
        // Rounded up: never shorter than asked.
        let seconds = i64::try_from(ttl.as_millis().div_ceil(1_000).max(1)).unwrap_or(i64::MAX);
        let response = self.call(|client| async move { client.lease_client().grant(seconds, None).await }).await?;
        Ok(response.id())
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        // One stream per renewal, so that nothing can be left hanging. A TTL of 0 is returned as an error.
        self.call(|client| async move { client.lease_client().keep_alive(lease).await }).await.map(|_| ())
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        match self.call(|client| async move { client.lease_client().revoke(lease).await }).await {
            Ok(_) | Err(ControlError::LeaseOver) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn version(&self, key: &str) -> Result<StoreVersion, ControlError> {
        let response = self.call(|client| async move { client.kv_client().get(key, None).await }).await?;
        let cluster = response.header().map_or(0, etcd_client::ResponseHeader::cluster_id);
        Ok(StoreVersion { cluster, revision: revision_of(response.header()) })
    }

    async fn reconnect(&self) {
        self.disconnect(self.turn());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_anything_is_connected() {
        assert!(EtcdStore::new("http://127.0.0.1:2379, http://[::1]:2381/").is_ok());
        for bad in ["", "127.0.0.1:2379", "https://a:1", "http://a", "http://:1", "http://a:1,", "http://a:x"] {
            assert!(matches!(EtcdStore::new(bad), Err(ControlError::Address(_))), "{bad}");
        }
    }

    #[tokio::test]
    async fn an_etcd_that_is_not_there_is_reported_with_address_and_cause() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let store = EtcdStore::new(&format!("http://{free}")).unwrap();
        let error = store.list("x/").await.unwrap_err().to_string();
        assert!(error.contains(&free.to_string()) && error.contains("refused"), "{error}");
    }
}
