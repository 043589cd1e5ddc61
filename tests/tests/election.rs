//! Coordinators that are candidates in an election in a real etcd: one leads, by its own clock and by etcd's.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use trawl_cluster_store::{
    Committed, ControlError, ControlStore, Entry, EtcdStore, Guard, LeaseId, Page, PageRequest, StoreVersion, Watch,
    Write,
};
use trawl_coordinator::server::leadership::{Candidacy, Candidate, Leadership, Term, WORK_STALL_TIMEOUT, stand};
use trawl_tests::cluster::block_on;
use trawl_tests::etcd;
use trawl_wire::record::leader_key;

/// Longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);
/// The shortest lease that etcd grants.
const TTL: Duration = Duration::from_secs(2);

/// etcd, as one candidate sees it: its leases are known, and its thread can be blocked.
struct Tapped {
    etcd: EtcdStore,
    leases: Arc<Mutex<Vec<LeaseId>>>,
    paused: Arc<(Mutex<bool>, Condvar)>,
}

impl Tapped {
    /// Blocks the whole thread, as a signal would.
    fn stand_still(&self) {
        let (paused, released) = &*self.paused;
        drop(released.wait_while(paused.lock().unwrap(), |paused| *paused).unwrap());
    }
}

#[tonic::async_trait]
impl ControlStore for Tapped {
    async fn put(&self, key: &str, value: Vec<u8>, lease: Option<LeaseId>) -> Result<(), ControlError> {
        self.etcd.put(key, value, lease).await
    }
    async fn delete(&self, key: &str) -> Result<(), ControlError> {
        self.etcd.delete(key).await
    }
    async fn get(&self, key: &str) -> Result<Option<Entry>, ControlError> {
        self.etcd.get(key).await
    }
    async fn commit(&self, guards: &[Guard], writes: Vec<Write>) -> Result<Committed, ControlError> {
        self.etcd.commit(guards, writes).await
    }
    async fn page(&self, asked: &PageRequest) -> Result<Page, ControlError> {
        self.etcd.page(asked).await
    }
    async fn watch(&self, prefix: &str, revision: i64) -> Result<Watch, ControlError> {
        self.etcd.watch(prefix, revision).await
    }
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, ControlError> {
        let lease = self.etcd.grant(ttl).await?;
        self.leases.lock().unwrap().push(lease);
        Ok(lease)
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), ControlError> {
        self.stand_still();
        self.etcd.keep_alive(lease).await
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), ControlError> {
        self.etcd.revoke(lease).await
    }
    async fn version(&self, key: &str) -> Result<StoreVersion, ControlError> {
        self.etcd.version(key).await
    }
}

struct Contender {
    candidate: Candidate,
    leases: Arc<Mutex<Vec<LeaseId>>>,
    paused: Arc<(Mutex<bool>, Condvar)>,
}

impl Contender {
    fn new(cluster_name: &str, id: &str) -> Self {
        let (leases, paused) = (Arc::<Mutex<Vec<LeaseId>>>::default(), Arc::<(Mutex<bool>, Condvar)>::default());
        let etcd = EtcdStore::new(&etcd::endpoint()).unwrap();
        let store = Tapped { etcd, leases: Arc::clone(&leases), paused: Arc::clone(&paused) };
        let candidacy = Candidacy {
            cluster_name: cluster_name.to_owned(),
            id: id.to_owned(),
            boot: format!("{id}-boot"),
            address: format!("{id}:1"),
            lease_ttl: TTL,
            stall_timeout: WORK_STALL_TIMEOUT,
        };
        Self { candidate: stand(store, candidacy).unwrap(), leases, paused }
    }

    fn pause(&self, still: bool) {
        *self.paused.0.lock().unwrap() = still;
        self.paused.1.notify_all();
    }

    fn term(&self) -> Option<Term> {
        match &*self.candidate.leadership().borrow() {
            Leadership::Leading(term) => Some(term.clone()),
            Leadership::Suspended { .. } | Leadership::Standby { .. } => None,
        }
    }

    async fn until(&self, wanted: impl Fn(&Leadership) -> bool) -> Leadership {
        let mut leadership = self.candidate.leadership();
        let seen = tokio::time::timeout(BOUND, leadership.wait_for(|now| wanted(now))).await;
        seen.expect("a change in time").expect("the thread lives").clone()
    }

    async fn follows(&self, id: &str) {
        self.until(|now| matches!(now, Leadership::Standby { leader: Some(record) } if record.id == id)).await;
    }
}

/// The one that leads in a later epoch than `after`.
async fn leader_of(contenders: &[Contender], after: i64) -> (usize, Term) {
    let found = async {
        loop {
            for (i, contender) in contenders.iter().enumerate() {
                if let Some(term) = contender.term().filter(|term| term.epoch > after) {
                    return (i, term);
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, found).await.expect("somebody leads in time")
}

#[test]
fn one_of_three_leads_and_a_leader_without_a_lease_is_followed_by_another_epoch() {
    let name = etcd::fresh_cluster_name();
    block_on(async {
        let mut contenders: Vec<Contender> = ["c1", "c2", "c3"].map(|id| Contender::new(&name, id)).into();
        let (first, term) = leader_of(&contenders, 0).await;
        let id = format!("c{}", first + 1);
        for (i, contender) in contenders.iter().enumerate() {
            if i != first {
                contender.follows(&id).await;
            }
        }
        assert_eq!(contenders.iter().filter(|c| c.term().is_some()).count(), 1);
        let store = EtcdStore::new(&etcd::endpoint()).unwrap();
        let key = leader_key(&name);
        assert_eq!(store.get(&key).await.unwrap().unwrap().created, term.epoch);
        assert!(store.commit(&[term.guard()], vec![]).await.unwrap().applied);

        let leases = contenders[first].leases.lock().unwrap().clone();
        for lease in leases {
            store.revoke(lease).await.unwrap();
        }
        let (second, next) = leader_of(&contenders, term.epoch).await;
        assert!(!store.commit(&[term.guard()], vec![]).await.unwrap().applied, "the old epoch can no longer write");
        assert!(store.commit(&[next.guard()], vec![]).await.unwrap().applied);

        let handed = Instant::now();
        contenders.remove(second).candidate.resign().await;
        let (_, last) = leader_of(&contenders, next.epoch).await;
        let took = handed.elapsed();
        println!("handed over in {took:?}");
        assert!(took < Duration::from_secs(1), "handed over in {took:?}");
        assert!(last.epoch > next.epoch);
        for contender in contenders {
            contender.candidate.resign().await;
        }
        assert_eq!(store.get(&key).await, Ok(None), "nothing is left behind");
    });
}

#[test]
fn a_blocked_leader_writes_nothing_once_another_leads_and_follows_when_it_wakes() {
    let name = etcd::fresh_cluster_name();
    block_on(async {
        let first = Contender::new(&name, "c1");
        first.until(|now| matches!(now, Leadership::Leading(_))).await;
        let second = Contender::new(&name, "c2");
        second.follows("c1").await;
        first.pause(true);
        second.until(|now| matches!(now, Leadership::Leading(_))).await;
        let (asleep, term) = (first.term().expect("it still thinks so"), second.term().expect("it leads"));
        assert!(term.epoch > asleep.epoch);
        let store = EtcdStore::new(&etcd::endpoint()).unwrap();
        assert!(!store.commit(&[asleep.guard()], vec![]).await.unwrap().applied);

        first.pause(false);
        first.follows("c2").await;
        for contender in [first, second] {
            contender.candidate.resign().await;
        }
    });
}
