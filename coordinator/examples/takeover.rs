//! Measures how long a new leader takes over 100,000 ended and 4,096 waiting scans in a real etcd.
//!
//! `takeover ETCD-URL [ENDED] [WAITING]` records them as an earlier leader would have, then starts a coordinator and
//! prints when it leads, when it has read the waiting scans, and when it has read all scans. It starts no worker, so
//! waiting scans keep waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use trawl_cluster_store::{ControlStore as _, EtcdStore};
use trawl_coordinator::client::Manager;
use trawl_coordinator::durable::records::{DocumentPlace, Level, Shards};
use trawl_coordinator::durable::{Acceptance, End, EndOutcome, Header, Ledger, RetentionPolicy, Term};
use trawl_coordinator::server::{self, leadership};
use trawl_coordinator::{PreparedScan, prepare};
use trawl_market::{Store, SynthOptions, synthesise};
use trawl_plan::ScanDocument;
use trawl_security::{ClientSecurity, ServerSecurity};
use trawl_wire::record::leader_key;

/// Default numbers of scans, and the target times for them.
const ENDED: usize = 100_000;
const WAITING: usize = 4_096;
const GOAL: Duration = Duration::from_secs(2);
/// Number of records written concurrently.
const WRITES_AT_ONCE: usize = 64;
/// Wait between two polls of the coordinator.
const POLL: Duration = Duration::from_millis(5);

type Error = Box<dyn std::error::Error + Send + Sync>;

fn header(scan: &str, prepared: &PreparedScan) -> Header {
    Header {
        scan: scan.to_owned(),
        generation: 0,
        owner: "local".to_owned(),
        document: DocumentPlace::Inline(prepared.document.to_json()),
        dataset: prepared.dataset_reference(),
        as_of_us: prepared.as_of,
        adjustment: prepared.identity.adjustment.clone(),
        class: prepared.class(),
        placed: true,
        backend: None,
        plan: prepared.identity.plan.clone(),
        segments: u32::try_from(prepared.segments.len()).unwrap_or(u32::MAX),
        symbols: prepared.symbol_count() as u64,
        shards: Shards::Automatic,
        priority: Level::Normal,
        submitted_us: 1,
        deadline_us: None,
        allow_partial: false,
        request: None,
        trace: None,
    }
}

/// Records a scan, and its end if it has one.
async fn record(ledger: &Ledger<EtcdStore>, header: &Header, ended_us: Option<i64>) -> Result<(), Error> {
    if ledger.accept(header).await? != Acceptance::Accepted {
        return Err("a scan was not accepted".into());
    }
    if let Some(ended_us) = ended_us {
        let outcome = EndOutcome::Complete { answer_digest: "0".repeat(64), failed_symbols: 0, disputed: false };
        ledger.end(&header.scan, &End { generation: 0, outcome, ended_us }).await?;
    }
    Ok(())
}

async fn seed(etcd: &str, cluster: &str, prepared: &PreparedScan, ended: usize, waiting: usize) -> Result<(), Error> {
    let control = Arc::new(EtcdStore::new(etcd)?);
    let key = leader_key(cluster);
    control.put(&key, b"takeover".to_vec(), None).await?;
    let epoch = control.get(&key).await?.map_or(0, |entry| entry.created);
    let ledger = Ledger::new(Arc::clone(&control), cluster, Term { key: key.clone(), epoch });
    let began = Instant::now();
    let now_us = i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros())?;
    let writes = futures::stream::iter(0..ended + waiting).map(|number| {
        let (ledger, scan) = (ledger.clone(), format!("s-{number}"));
        async move { record(&ledger, &header(&scan, prepared), (number < ended).then_some(now_us)).await }
    });
    let mut writes = writes.buffer_unordered(WRITES_AT_ONCE);
    while let Some(written) = writes.next().await {
        written?;
    }
    control.delete(&key).await?;
    println!("{ended} ended and {waiting} waiting scans recorded in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Polls until the result is `true`.
async fn until<E>(mut asked: impl AsyncFnMut() -> Result<bool, E>) {
    while !matches!(asked().await, Ok(true)) {
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let etcd = arguments.next().ok_or("takeover ETCD-URL [ENDED] [WAITING]")?;
    let mut number = |usual| arguments.next().map_or(Ok(usual), |text| text.parse::<usize>());
    let (ended, waiting) = (number(ENDED)?, number(WAITING)?);
    let data = tempfile::tempdir()?;
    let store = Store::new(data.path().to_owned());
    let (name, timeframe) = ("market".to_owned(), trawl_market::Timeframe::DAY);
    synthesise(&store, &SynthOptions { name, symbols: 300, bars: 60, seed: 1, timeframe })?;
    let document = ScanDocument {
        dataset: Some("market".to_owned()),
        condition: "close > sma(close, 20)".to_owned(),
        ..ScanDocument::default()
    };
    let prepared = prepare(&store, &document, None)?;
    let cluster = format!("takeover-{}", std::process::id());
    seed(&etcd, &cluster, &prepared, ended, waiting).await?;

    let options = server::Options {
        listen: "127.0.0.1:0".parse()?,
        security: ServerSecurity::default(),
        scans: server::ScanLimits::default(),
        quotas: server::QuotaLimits::default(),
        cluster_name: cluster,
        boot: "boot".to_owned(),
        id: "c1".to_owned(),
        advertise: None,
        results: data.path().join(".results").display().to_string(),
        results_shared: true,
        spool: (std::env::temp_dir(), server::SPOOL_BYTES),
        retention: RetentionPolicy::default(),
        leader_lease_ttl: leadership::LEADER_LEASE_TTL_DEFAULT,
        store: store.clone(),
        no_worker_timeout: Duration::from_secs(15),
        default_backend: None,
        watched_datasets: Vec::new(),
        data_care: trawl_coordinator::server::DataCare::default(),
        class_patience: trawl_coordinator::server::CLASS_PATIENCE,
        start_timeout: Duration::from_secs(5),
        drain_timeout: Duration::from_secs(1),
    };
    let (ready, bound) = tokio::sync::oneshot::channel();
    let (control, election) = (EtcdStore::new(&etcd)?, EtcdStore::new(&etcd)?);
    let serving = tokio::spawn(async move {
        let ready = Box::new(|address, _| {
            // Fails only when the receiver is dropped.
            let _ = ready.send(address);
        });
        server::run(options, Arc::new(control), Arc::new(election), ready, Box::pin(std::future::pending())).await
    });
    let Ok(address) = bound.await else { return Err(serving.await?.err().map_or("it ended".into(), Error::from)) };
    let security = ClientSecurity::default();
    let mut manager = Manager::connect(&format!("http://{address}"), &security).await?;
    // Does not depend on scans: answered as soon as there is a leader.
    until(async || manager.workers().await.map(|_| true)).await;
    let leads = Instant::now();
    let last = format!("s-{}", ended + waiting - 1);
    until(async || manager.status(&last).await.map(|_| true)).await;
    let waits = leads.elapsed();
    until(async || manager.list(trawl_wire::pb::ListScansRequest::default()).await.map(|_| true)).await;
    let all = leads.elapsed();
    println!(
        "after it leads: knows a scan that waits in {:.2} s, every scan in {:.2} s",
        waits.as_secs_f64(),
        all.as_secs_f64()
    );
    serving.abort();
    if waits > GOAL {
        return Err(format!("more than {} s", GOAL.as_secs()).into());
    }
    Ok(())
}
