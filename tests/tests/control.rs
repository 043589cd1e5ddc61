//! The control store on a real etcd: what every process of a cluster relies on, and that the in-memory store, which
//! most other tests use, behaves the same.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use trawl_cluster_store::{
    Change, Committed, ControlError, ControlStore, Entry, EtcdStore, Guard, LeaseId, PageRequest, Pages, Write,
};
use trawl_testing::MemoryStore;
use trawl_tests::cluster::block_on;
use trawl_tests::etcd::{self, OwnEtcd};
use trawl_tests::reference::random::Random;

/// Longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);
/// Random histories that are compared, and calls in each.
const HISTORIES: u64 = 60;
const CALLS: u64 = 80;

fn put(key: &str, value: &str) -> Write {
    Write::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease: None }
}

fn absent(key: &str) -> Guard {
    Guard::Absent { key: key.to_owned() }
}

/// A call, with revisions counted from the beginning of its history and leases by their number in it.
#[derive(Debug, Clone)]
enum Call {
    Get(String),
    List(String),
    /// So many keys at a time.
    Pages(String, usize),
    Commit {
        guards: Vec<Wanted>,
        writes: Vec<Planned>,
    },
    Delete(String),
    Grant,
    KeepAlive(usize),
    Revoke(usize),
}

#[derive(Debug, Clone)]
enum Wanted {
    Absent(String),
    Created(String, i64),
}

#[derive(Debug, Clone)]
enum Planned {
    Put(String, u8, Option<usize>),
    Delete(String),
}

/// The result of a call, in a form in which two stores can be compared.
#[derive(Debug, PartialEq)]
enum Gave {
    Nothing,
    Entries(Vec<Entry>, Option<i64>),
    Committed(Committed),
    LeaseOver,
    Refused,
}

/// One store in one history.
struct Side<'a> {
    store: &'a dyn ControlStore,
    prefix: &'a str,
    began: i64,
    leases: Vec<LeaseId>,
}

impl Side<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn plain(&self, entry: Entry) -> Entry {
        let key = entry.key.strip_prefix(self.prefix).expect("within the history").to_owned();
        Entry { key, created: entry.created - self.began, ..entry }
    }

    async fn make(&mut self, call: &Call) -> Gave {
        let gave = match call {
            Call::Get(key) => {
                let got = self.store.get(&self.key(key)).await;
                got.map(|entry| Gave::Entries(entry.into_iter().map(|e| self.plain(e)).collect(), None))
            }
            Call::List(prefix) => {
                let listing = self.store.list(&self.key(prefix)).await;
                let plain = |l: trawl_cluster_store::Listing| {
                    let entries = l.entries.into_iter().map(|e| self.plain(e)).collect();
                    Gave::Entries(entries, Some(l.revision - self.began))
                };
                listing.map(plain)
            }
            Call::Pages(prefix, limit) => {
                let first = PageRequest { limit: *limit, ..PageRequest::new(&self.key(prefix)) };
                let mut pages = Pages::new(self.store, first);
                let mut gave = Ok((Vec::new(), 0));
                while let Some(page) = pages.next().await.transpose() {
                    gave = gave.and_then(|(mut entries, _)| {
                        let page = page?;
                        entries.extend(page.entries.into_iter().map(|e| self.plain(e)));
                        Ok((entries, page.revision - self.began))
                    });
                }
                gave.map(|(entries, revision)| Gave::Entries(entries, Some(revision)))
            }
            Call::Commit { guards, writes } => {
                let guards: Vec<Guard> = guards
                    .iter()
                    .map(|guard| match guard {
                        Wanted::Absent(key) => absent(&self.key(key)),
                        Wanted::Created(key, at) => Guard::Created { key: self.key(key), revision: self.began + at },
                    })
                    .collect();
                let writes = writes.iter().map(|write| match write {
                    Planned::Put(key, value, lease) => Write::Put {
                        key: self.key(key),
                        value: vec![*value],
                        lease: lease.and_then(|i| self.leases.get(i).copied()),
                    },
                    Planned::Delete(key) => Write::Delete { key: self.key(key) },
                });
                let committed = self.store.commit(&guards, writes.collect()).await;
                let plain = |c: Committed| Gave::Committed(Committed { revision: c.revision - self.began, ..c });
                committed.map(plain)
            }
            Call::Delete(key) => self.store.delete(&self.key(key)).await.map(|()| Gave::Nothing),
            Call::Grant => {
                let granted = self.store.grant(Duration::from_secs(600)).await;
                granted.map(|lease| {
                    self.leases.push(lease);
                    Gave::Nothing
                })
            }
            Call::KeepAlive(i) => match self.leases.get(*i) {
                Some(lease) => self.store.keep_alive(*lease).await.map(|()| Gave::Nothing),
                None => Ok(Gave::Nothing),
            },
            Call::Revoke(i) => match self.leases.get(*i) {
                Some(lease) => self.store.revoke(*lease).await.map(|()| Gave::Nothing),
                None => Ok(Gave::Nothing),
            },
        };
        gave.unwrap_or_else(|error| match error {
            ControlError::LeaseOver => Gave::LeaseOver,
            ControlError::Refused(_) => Gave::Refused,
            other => panic!("{other}"),
        })
    }

    /// Every change of the history, up to the put of `end`.
    async fn changes(&self) -> Vec<Change> {
        self.store.commit(&[], vec![put(&self.key("end"), "")]).await.unwrap();
        let mut watch = self.store.watch(self.prefix, self.began).await.unwrap();
        let mut changes = Vec::new();
        loop {
            let change = tokio::time::timeout(BOUND, watch.recv()).await.expect("in time").expect("unbroken");
            if change.key() == self.key("end") {
                return changes;
            }
            changes.push(match change {
                Change::Put(entry) => Change::Put(self.plain(entry)),
                Change::Deleted { key, revision } => Change::Deleted {
                    key: key.strip_prefix(self.prefix).expect("within the history").to_owned(),
                    revision: revision - self.began,
                },
            });
        }
    }
}

fn call(random: &mut Random) -> Call {
    let key = |random: &mut Random| random.pick(&["a", "a/b", "b", "c"]).to_owned();
    let lease = |random: &mut Random| random.below(4) as usize;
    match random.below(16) {
        0..8 => {
            let guards = (0..random.below(3))
                .map(|_| match random.below(2) {
                    0 => Wanted::Absent(key(random)),
                    _ => Wanted::Created(key(random), random.between(1, 30) as i64),
                })
                .collect();
            let writes = (0..random.below(4))
                .map(|_| match random.below(3) {
                    0 => Planned::Delete(key(random)),
                    _ => {
                        let leased = random.once_in(2).then(|| lease(random));
                        Planned::Put(key(random), random.below(200) as u8, leased)
                    }
                })
                .collect();
            Call::Commit { guards, writes }
        }
        8 => Call::Delete(key(random)),
        9 => Call::Get(key(random)),
        10 => Call::List(random.pick(&["", "a", "b"]).to_owned()),
        11 => Call::Pages(random.pick(&["", "a", "b"]).to_owned(), random.between(1, 3) as usize),
        12 | 13 => Call::Grant,
        14 => Call::KeepAlive(lease(random)),
        _ => Call::Revoke(lease(random)),
    }
}

#[test]
fn the_in_memory_store_behaves_as_etcd_does() {
    // A key of its own, whose revision nothing else changes.
    let own = OwnEtcd::start();
    block_on(async {
        let real = EtcdStore::new(&own.url).unwrap();
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for seed in 0..HISTORIES {
            let memory = MemoryStore::default();
            let prefix = format!("history-{seed}/");
            let began = real.list(&prefix).await.unwrap().revision;
            let mut etcd = Side { store: &real, prefix: &prefix, began, leases: Vec::new() };
            let mut other = Side { store: &memory, prefix: &prefix, began: 0, leases: Vec::new() };
            let mut random = Random::new(seed);
            for at in 0..CALLS {
                let call = call(&mut random);
                let (wanted, got) = (etcd.make(&call).await, other.make(&call).await);
                assert_eq!(got, wanted, "seed {seed}, call {at}: {call:?}");
                *seen
                    .entry(match wanted {
                        Gave::Committed(Committed { applied: true, .. }) => "applied",
                        Gave::Committed(_) => "not applied",
                        Gave::LeaseOver => "lease over",
                        Gave::Refused => "refused",
                        Gave::Entries(..) | Gave::Nothing => "read",
                    })
                    .or_default() += 1;
            }
            assert_eq!(other.changes().await, etcd.changes().await, "seed {seed}: the watches differ");
        }
        println!("{seen:?}");
        assert_eq!(seen.len(), 5, "every kind of answer was compared: {seen:?}");
    });
}

/// Makes etcd compact all revisions before this one, through its JSON gateway.
fn compact(url: &str, revision: i64) {
    let host = url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let body = format!("{{\"revision\":\"{revision}\"}}");
    let head = format!("POST /v3/kv/compaction HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_watch_from_a_compacted_revision_ends_at_once() {
    let own = OwnEtcd::start();
    block_on(async {
        let store = EtcdStore::new(&own.url).unwrap();
        let before = store.list("k").await.unwrap().revision;
        for value in ["1", "2", "3"] {
            store.put("k", value.into(), None).await.unwrap();
        }
        let mut followed = store.watch("k", before).await.unwrap();
        for _ in 0..3 {
            tokio::time::timeout(BOUND, followed.recv()).await.expect("in time").expect("a change");
        }
        let now = store.list("k").await.unwrap().revision;
        compact(&own.url, now);
        let mut forgotten = store.watch("k", before).await.unwrap();
        assert_eq!(tokio::time::timeout(BOUND, forgotten.recv()).await.expect("in time"), None);
        // A watch that had kept up continues.
        store.put("k", b"4".to_vec(), None).await.unwrap();
        let next = tokio::time::timeout(BOUND, followed.recv()).await.expect("in time");
        assert!(matches!(next, Some(Change::Put(entry)) if entry.value == b"4" && entry.created == before + 1));
    });
}

/// Keys of this many bytes, so many that they are twice what one answer may hold.
const LARGE: (usize, usize) = (32 * 1024, 256);

#[test]
fn what_does_not_fit_into_one_answer_is_named_and_read_in_pages_of_one_revision() {
    let own = OwnEtcd::start();
    block_on(async {
        let store = EtcdStore::new(&own.url).unwrap();
        for number in 0..LARGE.1 {
            store.put(&format!("k/{number:03}"), vec![7; LARGE.0], None).await.unwrap();
        }
        let at_once = store.page(&PageRequest::new("k/")).await;
        assert!(matches!(at_once, Err(ControlError::TooLarge(_))), "{:?}", at_once.err());
        let mut pages = Pages::new(&store, PageRequest::new("k/"));
        let first = pages.next().await.unwrap().unwrap();
        store.delete("k/255").await.unwrap();
        store.put("k/000", vec![1], None).await.unwrap();
        let mut all = first.entries;
        while let Some(page) = pages.next().await.unwrap() {
            all.extend(page.entries);
        }
        assert!(all.len() == LARGE.1 && all.iter().all(|entry| entry.value.len() == LARGE.0), "{}", all.len());
        assert_eq!(store.list("k/").await.unwrap().entries.len(), LARGE.1 - 1);
        assert_eq!(store.list_keys("k/").await.unwrap().entries.iter().map(|e| e.value.len()).sum::<usize>(), 0);
        // A revision that is compacted between two pages is named too.
        let mut pages = Pages::new(&store, PageRequest { limit: 1, ..PageRequest::new("k/") });
        pages.next().await.unwrap();
        store.put("k/000", vec![2], None).await.unwrap();
        let now = store.list_keys("k/0").await.unwrap().revision;
        compact(&own.url, now);
        assert_eq!(pages.next().await, Err(ControlError::Compacted));
        assert_eq!(store.list("k/").await.unwrap().entries.len(), LARGE.1 - 1);
    });
}

#[test]
fn an_etcd_whose_quota_is_used_up_is_named_as_such_at_once() {
    // etcd counts pages of its file, so a small quota is used up soon.
    let own = OwnEtcd::start_with_flags(&["--quota-backend-bytes=1000000".to_owned()]);
    block_on(async {
        let store = EtcdStore::new(&own.url).unwrap();
        let lease = store.grant(Duration::from_secs(60)).await.unwrap();
        let full = async {
            for number in 0.. {
                if let Err(error) = store.put(&format!("k/{number}"), vec![7; 32 * 1024], None).await {
                    return error;
                }
            }
            unreachable!("the quota is finite")
        };
        let full = tokio::time::timeout(BOUND, full).await.expect("in time");
        assert!(matches!(full, ControlError::NoSpace(_)), "{full}");
        let asked = std::time::Instant::now();
        assert!(matches!(store.commit(&[], vec![put("k/a", "1")]).await, Err(ControlError::NoSpace(_))));
        assert!(matches!(store.grant(Duration::from_secs(60)).await, Err(ControlError::NoSpace(_))));
        assert_eq!(store.keep_alive(lease).await, Ok(()));
        store.delete("k/0").await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5), "it is not tried again and again");
    });
}

#[test]
fn a_lease_that_is_over_is_reported_as_such_whatever_ended_it() {
    let prefix = etcd::fresh_cluster_name();
    block_on(async {
        let store = EtcdStore::new(&etcd::endpoint()).unwrap();
        let revoked = store.grant(Duration::from_secs(60)).await.unwrap();
        store.keep_alive(revoked).await.unwrap();
        store.revoke(revoked).await.unwrap();
        assert_eq!(store.keep_alive(revoked).await, Err(ControlError::LeaseOver));
        assert_eq!(store.revoke(revoked).await, Ok(()));

        let key = format!("{prefix}/k");
        let expired = store.grant(Duration::from_secs(1)).await.unwrap();
        store.put(&key, vec![1], Some(expired)).await.unwrap();
        let mut watch = store.watch(&key, store.list(&key).await.unwrap().revision).await.unwrap();
        let gone = tokio::time::timeout(BOUND, watch.recv()).await.expect("it ends");
        assert!(matches!(gone, Some(Change::Deleted { .. })));
        assert_eq!(store.keep_alive(expired).await, Err(ControlError::LeaseOver));
        assert_eq!(store.put(&key, vec![2], Some(expired)).await, Err(ControlError::LeaseOver));
    });
}

#[test]
fn a_commit_that_etcd_refuses_is_not_tried_again() {
    let key = format!("{}/k", etcd::fresh_cluster_name());
    block_on(async {
        let store = EtcdStore::new(&etcd::endpoint()).unwrap();
        let twice = store.commit(&[], vec![put(&key, "1"), put(&key, "2")]).await;
        assert!(matches!(twice, Err(ControlError::Refused(_))), "{twice:?}");
        assert_eq!(store.get(&key).await, Ok(None));
    });
}

/// A proxy between a client and etcd. No answers pass on the connections that it [mutes](Self::mute), until they are
/// [cut](Self::cut) and made anew.
struct Proxy {
    url: String,
    counts: Arc<Counts>,
    cut: tokio::sync::broadcast::Sender<()>,
}

#[derive(Default)]
struct Counts {
    /// How often connections were cut.
    cuts: AtomicUsize,
    /// Connections that were made after fewer cuts than this are mute.
    mute_before: AtomicUsize,
}

impl Proxy {
    async fn start(to: &str) -> Self {
        let to = to.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (counts, cut) = (Arc::new(Counts::default()), tokio::sync::broadcast::channel(1).0);
        let (counted, cuts) = (Arc::clone(&counts), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&to).await else { continue };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let (mut cut, mut cut_too) = (cuts.subscribe(), cuts.subscribe());
                let counts = Arc::clone(&counted);
                let born = counts.cuts.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                        _ = cut.recv() => {}
                    }
                });
                tokio::spawn(async move {
                    let mut bytes = vec![0; 16 * 1024];
                    loop {
                        let read = tokio::select! {
                            read = from_server.read(&mut bytes) => read.unwrap_or(0),
                            _ = cut_too.recv() => 0,
                        };
                        let silent = counts.mute_before.load(Ordering::SeqCst) > born;
                        if read == 0 || (!silent && to_client.write_all(&bytes[..read]).await.is_err()) {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, counts, cut }
    }

    /// No answer passes on a connection that is open now or made before the next cut.
    fn mute(&self) {
        self.counts.mute_before.store(self.counts.cuts.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    fn cut(&self) {
        self.counts.cuts.fetch_add(1, Ordering::SeqCst);
        self.cut.send(()).unwrap();
    }
}

#[test]
fn a_commit_whose_answer_is_lost_is_tried_again_and_its_caller_reads_that_it_was_itself() {
    let key = format!("{}/leader", etcd::fresh_cluster_name());
    block_on(async {
        let proxy = Proxy::start(&etcd::endpoint()).await;
        let direct = EtcdStore::new(&etcd::endpoint()).unwrap();
        let store = Arc::new(EtcdStore::new(&proxy.url).unwrap());
        store.list(&key).await.expect("the way through the proxy works");
        proxy.mute();
        let (caller, there) = (Arc::clone(&store), key.clone());
        let committing =
            tokio::spawn(async move { caller.commit(&[absent(&there)], vec![put(&there, "me, campaign 7")]).await });
        let made = async {
            while direct.get(&key).await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, made).await.expect("it is applied although the answer is lost");
        proxy.cut();
        let committed = tokio::time::timeout(BOUND, committing).await.expect("in time").unwrap().unwrap();
        assert!(!committed.applied, "its second try finds what the first one wrote");
        let entry = store.get(&key).await.unwrap().expect("it is there");
        assert_eq!(entry.value, b"me, campaign 7");
        assert!(entry.created <= committed.revision);
    });
}
