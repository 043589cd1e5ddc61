//! Servers on free loopback ports, real and misbehaving workers, and a small synthetic market.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};
use trawl_cluster_store::ControlStore as _;
use trawl_coordinator::client::{ClientError, ScanCall, Scanned, scan};
use trawl_coordinator::durable::RetentionPolicy;
use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::server::leadership;
use trawl_coordinator::{NoProgress, PreparedScan, ShardSpec, answer_digest, prepare, server};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Engine, NoCancel};
use trawl_market::{Store, SynthOptions, synthesise};
use trawl_plan::ScanDocument;
use trawl_security::ServerSecurity;
use trawl_testing::MemoryStore;
use trawl_wire::error::other_plan;
use trawl_wire::limits::{CACHE_REPORT_BYTES_MAX, PROTOCOL_VERSION};
use trawl_wire::plan_key::{PlanAtWorker, unknown_plan};
use trawl_wire::record::worker_key;
use trawl_wire::{
    Answer, ErrorKind, Failure, SegmentOutput, SegmentResultV1, StepInputV1, SymbolRow, SymbolRowV1, WorkerRecord,
    envelope, pb,
};
use trawl_worker::{References, ScanStep, StepKind, execution_class};

/// Timeout of every wait in these tests.
pub const BOUND: Duration = Duration::from_secs(120);
pub const CLUSTER: &str = "test";

pub struct World {
    pub url: String,
    pub control: Arc<MemoryStore>,
    pub store: Store,
    pub data: TempDir,
    /// Folders of workers with their own copy of the data.
    copies: Vec<TempDir>,
    /// Compute threads of workers that are started.
    pub worker_threads: usize,
    /// Dropping them stops the servers.
    stops: Vec<oneshot::Sender<()>>,
    /// Stops the first coordinator.
    leader: Option<oneshot::Sender<()>>,
}

/// Copies a folder; `bars` are the copies of the files of bars.
fn copy_files(from: &std::path::Path, to: &std::path::Path, bars: &mut Vec<std::path::PathBuf>) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            // Workers do not need results of scans.
            if entry.file_name() != ".results" {
                copy_files(&source, &target, bars);
            }
            continue;
        }
        std::fs::copy(&source, &target).unwrap();
        if target.extension().is_some_and(|extension| extension == "arrow") {
            bars.push(target);
        }
    }
}

/// How often workers probe their devices here.
const HEALTH_INTERVAL: Duration = Duration::from_millis(20);

impl World {
    /// A coordinator without workers, over a market of 300 symbols.
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// As [`Self::new`], with other options.
    pub async fn with(change: impl FnOnce(&mut server::Options)) -> Self {
        let data = TempDir::new().unwrap();
        let store = Store::new(data.path().to_owned());
        let (name, timeframe) = ("market".to_owned(), trawl_market::Timeframe::DAY);
        synthesise(&store, &SynthOptions { name, symbols: 300, bars: 60, seed: 1, timeframe }).unwrap();
        let control = Arc::new(MemoryStore::default());
        let mut world = Self {
            url: String::new(),
            control,
            store,
            data,
            copies: Vec::new(),
            worker_threads: 1,
            stops: Vec::new(),
            leader: None,
        };
        let (url, stop) = world.start("c1", change).await.unwrap();
        (world.url, world.leader) = (url, Some(stop));
        world
    }

    /// Gives the market a snapshot with so many bars, which is the newest one from then on.
    pub fn publish(&self, bars: u32) {
        let other = TempDir::new().unwrap();
        let (name, timeframe) = ("market".to_owned(), trawl_market::Timeframe::DAY);
        let options = SynthOptions { name, symbols: 300, bars, seed: 1, timeframe };
        synthesise(&Store::new(other.path().to_owned()), &options).unwrap();
        let [from, to] = [&other, &self.data].map(|root| root.path().join("market"));
        // As an import does it: the file that names the newest snapshot comes last, and at once.
        let (head, coming) = (other.path().join("HEAD"), to.join("HEAD.coming"));
        std::fs::rename(from.join("HEAD"), &head).unwrap();
        copy_files(&from, &to, &mut Vec::new());
        std::fs::copy(&head, &coming).unwrap();
        std::fs::rename(coming, to.join("HEAD")).unwrap();
    }

    /// Starts another coordinator; returns its URL.
    pub async fn coordinator(&mut self, id: &str, change: impl FnOnce(&mut server::Options)) -> String {
        let (url, stop) = self.start(id, change).await.unwrap();
        self.stops.push(stop);
        url
    }

    /// Tries to start another coordinator.
    pub async fn try_coordinator(
        &self,
        id: &str,
        change: impl FnOnce(&mut server::Options),
    ) -> Result<String, server::ServerError> {
        self.start(id, change).await.map(|(url, _)| url)
    }

    async fn start(
        &self,
        id: &str,
        change: impl FnOnce(&mut server::Options),
    ) -> Result<(String, oneshot::Sender<()>), server::ServerError> {
        let mut options = self.options(id);
        change(&mut options);
        self.run(options).await
    }

    fn options(&self, id: &str) -> server::Options {
        server::Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            security: ServerSecurity::default(),
            scans: server::ScanLimits::default(),
            quotas: server::QuotaLimits::default(),
            cluster_name: CLUSTER.to_owned(),
            boot: format!("boot-{id}"),
            id: id.to_owned(),
            advertise: None,
            results: self.data.path().join(".results").display().to_string(),
            results_shared: true,
            spool: (std::env::temp_dir(), server::SPOOL_BYTES),
            retention: RetentionPolicy::default(),
            leader_lease_ttl: leadership::LEADER_LEASE_TTL_DEFAULT,
            store: trawl_market::Store::new(self.data.path().to_owned()),
            no_worker_timeout: Duration::from_millis(700),
            default_backend: None,
            watched_datasets: Vec::new(),
            data_care: server::DataCare::default(),
            class_patience: server::CLASS_PATIENCE,
            start_timeout: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(10),
        }
    }

    /// Not generic, as what it starts is large.
    async fn run(&self, options: server::Options) -> Result<(String, oneshot::Sender<()>), server::ServerError> {
        let (ready, bound) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let (control, election) = (Arc::clone(&self.control), Arc::clone(&self.control));
        let running = tokio::spawn(async move {
            let ready = Box::new(|address, _| ready.send(address).unwrap());
            server::run(options, control, election, ready, Box::pin(async { drop(stopped.await) })).await
        });
        let address: SocketAddr = match bound.await {
            Ok(address) => address,
            // It ended before it was ready.
            Err(_) => return Err(running.await.unwrap().unwrap_err()),
        };
        Ok((format!("http://{address}"), stop))
    }

    /// Stops the first coordinator.
    pub fn stop_coordinator(&mut self) {
        self.leader = None;
    }

    /// Keys of all records of scans.
    pub async fn records(&self) -> Vec<String> {
        let listed = self.control.list(&format!("{CLUSTER}/")).await.unwrap();
        let keys = listed.entries.into_iter().map(|entry| entry.key);
        keys.filter(|key| ["/scans/", "/ended/"].iter().any(|part| key.contains(part))).collect()
    }

    pub fn document() -> ScanDocument {
        ScanDocument {
            dataset: Some("market".to_owned()),
            condition: "close > sma(close, 20)".to_owned(),
            rank: Some("close".to_owned()),
            limit: Some(7),
            ..ScanDocument::default()
        }
    }

    pub fn prepared(&self) -> PreparedScan {
        prepare(&self.store, &Self::document(), None).unwrap()
    }

    /// Digest of the answer of one thread.
    pub fn expected(&self) -> String {
        answer_digest(&self.expected_answer())
    }

    /// The digest of this answer as it is shown.
    pub fn expected_tree(&self) -> String {
        self.expected_answer().digest
    }

    /// The answer computed by one thread.
    pub fn expected_answer(&self) -> Answer {
        let scan = self.prepared();
        let execute = |segment, step, input: &StepInputV1, stages: &mut Stages| {
            let source = scan.source();
            source
                .execute(segment, step, input, &References::new(), &NoCancel, stages)
                .map_err(|e| (e.kind(), e.to_string()))
        };
        let options = LocalOptions { shards: ShardSpec::Count(1), threads: 1, ..LocalOptions::default() };
        let (answer, report) = local::run(&scan, options, execute, &NoProgress).unwrap();
        assert!(report.is_complete() && report.segments > 3, "{report:?}");
        answer
    }

    pub async fn scan(&self, shards: ShardSpec) -> Result<Scanned, ClientError> {
        self.call(ScanCall { shards, ..ScanCall::default() }).await
    }

    /// Computes the default document, with other settings as given.
    pub async fn call(&self, call: ScanCall) -> Result<Scanned, ClientError> {
        let call = ScanCall { document: Self::document(), fresh: true, ..call };
        tokio::time::timeout(BOUND, scan(&self.url, &call, &NoProgress)).await.expect("the scan ends in time")
    }

    pub async fn client(&self) -> pb::coordinator_client::CoordinatorClient<tonic::transport::Channel> {
        pb::coordinator_client::CoordinatorClient::connect(self.url.clone()).await.unwrap()
    }

    /// Waits until exactly these workers receive work.
    pub async fn wait_for(&self, ids: &[&str]) {
        let mut client = self.client().await;
        let seen = async {
            loop {
                let reply = client.list_workers(pb::ListWorkersRequest::default()).await.unwrap().into_inner();
                let found: Vec<&str> = reply.workers.iter().map(|w| w.id.as_str()).collect();
                if found == ids {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, seen).await.expect("the workers are seen in time");
    }

    /// Starts a real worker; returns its address.
    pub async fn real_worker(&mut self, id: &str) -> String {
        self.slow_worker(id, Duration::ZERO).await
    }

    /// Stops the worker started last.
    pub fn stop_the_last(&mut self) {
        drop(self.stops.pop());
    }

    /// Starts a real worker that sleeps before each segment.
    pub async fn slow_worker(&mut self, id: &str, fault_delay: Duration) -> String {
        let (address, running) = self.worker_on(id, fault_delay, Engine::Cpu).await;
        tokio::spawn(async move { running.await.unwrap().unwrap() });
        address
    }

    /// Starts a real worker with its own copy of the data, in which every second file of bars is damaged.
    pub async fn worker_with_damaged_files(&mut self, id: &str) {
        let copy = TempDir::new().unwrap();
        let mut files = Vec::new();
        copy_files(self.data.path(), copy.path(), &mut files);
        files.sort();
        assert!(files.len() > 3, "{files:?}");
        for file in files.iter().step_by(2) {
            // One bit in each stretch of 64 bytes, so that whatever a scan reads of the file is damaged.
            let mut bytes = std::fs::read(file).unwrap();
            bytes.iter_mut().skip(1).step_by(64).for_each(|byte| *byte ^= 0x40);
            std::fs::write(file, bytes).unwrap();
        }
        let (_, running) = self.worker_at(copy.path().to_owned(), id, Duration::ZERO, Engine::Cpu).await;
        self.copies.push(copy);
        tokio::spawn(async move { running.await.unwrap().unwrap() });
    }

    /// Starts a real worker that computes on `engine`; returns its address, and a handle to its result.
    pub async fn worker_on(
        &mut self,
        id: &str,
        fault_delay: Duration,
        engine: Engine,
    ) -> (String, JoinHandle<Result<(), trawl_worker::server::ServerError>>) {
        self.worker_at(self.data.path().to_owned(), id, fault_delay, engine).await
    }

    async fn worker_at(
        &mut self,
        data_root: std::path::PathBuf,
        id: &str,
        fault_delay: Duration,
        engine: Engine,
    ) -> (String, JoinHandle<Result<(), trawl_worker::server::ServerError>>) {
        let options = trawl_worker::server::Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            security: ServerSecurity::default(),
            cluster_name: CLUSTER.to_owned(),
            id: id.to_owned(),
            boot: format!("{id}-boot"),
            store: trawl_market::Store::new(data_root),
            threads: self.worker_threads,
            cache_bytes: 1 << 20,
            engine,
            lease_ttl: Duration::from_secs(5),
            start_timeout: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(10),
            stall_timeout: trawl_worker::STALL_TIMEOUT,
            health_interval: HEALTH_INTERVAL,
            look_interval: HEALTH_INTERVAL,
            scrubbing: trawl_worker::scrub::Scrubbing::default(),
            fault_delay,
        };
        let (ready, bound) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&self.control);
        let running = tokio::spawn(async move {
            let ready = Box::new(|address| ready.send(address).unwrap());
            trawl_worker::server::run(options, shared, ready, Box::pin(async { drop(stopped.await) })).await
        });
        self.stops.push(stop);
        (bound.await.unwrap().to_string(), running)
    }

    /// Starts a worker with the given misbehaviour; `change` may modify its record.
    pub async fn odd_worker(&mut self, id: &str, oddity: Oddity, change: impl Fn(&mut WorkerRecord)) -> Arc<Seen> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut record = WorkerRecord {
            id: id.to_owned(),
            address: listener.local_addr().unwrap().to_string(),
            boot: format!("{id}-boot"),
            protocol_version: PROTOCOL_VERSION,
            protocol_oldest: 0,
            result_schema: format!("{:016x}", envelope::schema_fingerprint()),
            result_schemas_earlier: Vec::new(),
            class: execution_class(),
            threads: 1,
            cache_bytes: 0,
            device: None,
            draining: false,
        };
        change(&mut record);
        self.serve_odd(listener, record, oddity).await
    }

    /// Not generic, as what it starts is large.
    async fn serve_odd(&mut self, listener: TcpListener, record: WorkerRecord, oddity: Oddity) -> Arc<Seen> {
        let seen = Arc::new(Seen::default());
        let scan = Arc::new(self.prepared());
        let worker = OddWorker { boot: record.boot.clone(), oddity, seen: Arc::clone(&seen), scan };
        let (stop, stopped) = oneshot::channel::<()>();
        self.stops.push(stop);
        let server = pb::worker_server::WorkerServer::new(worker);
        tokio::spawn(tonic::transport::Server::builder().serve_with_incoming_shutdown(
            server,
            TcpListenerStream::new(listener),
            async { drop(stopped.await) },
        ));
        let value = serde_json::to_vec(&record).unwrap();
        self.control.put(&worker_key(CLUSTER, &record.id), value, None).await.unwrap();
        seen
    }
}

/// How a worker misbehaves.
#[derive(Debug, Clone, Copy)]
pub enum Oddity {
    /// Every envelope has a byte changed.
    Corrupt,
    /// Every result is cut off in the middle, under a checksum of what is left.
    Truncated,
    /// The first bytes of every result are in another order, under a checksum of theirs.
    Reordered,
    /// Every result has more bytes than its columns, under a checksum of all.
    Oversized,
    /// Every row that matches has one value more than was asked for.
    ExtraValue,
    /// Answers with the result of another segment.
    OtherSegment,
    /// Leaves out a symbol.
    LosesSymbol,
    /// Ends the stream without a reply.
    SaysNothing,
    /// Rejects every shard.
    Refuses,
    /// Fails every segment with this kind.
    Fails(ErrorKind),
    /// Breaks the stream as a dead connection does, the first time only.
    BreaksOnce,
    /// Never replies.
    Hangs,
    /// Returns a wrong result for its first segment on demand, and nothing for the others.
    Lies,
    /// Sends results of the previous version.
    SpeaksV1,
    /// Sends rows where columns are asked for, as workers did before there were any.
    SendsRows,
    /// Says that it keeps plans, and does.
    KeepsPlans,
    /// Says that it keeps plans, and asks for the document of each that it is named.
    ForgetsPlans,
    /// Its connection breaks whenever it receives this symbol.
    DiesOf(&'static str),
    /// Claims to hold every group of the snapshot, and groups that there are none of, and to have waited for ages.
    ClaimsToHoldAll,
    /// What it claims to hold exceeds the limits of a report.
    ClaimsTooMuch,
}

/// What the worker observed.
#[derive(Debug, Default)]
pub struct Seen {
    pub shards: AtomicUsize,
    /// Requests that named a plan without its document.
    pub named: AtomicUsize,
    /// Streams that were dropped by the coordinator.
    pub dropped: AtomicUsize,
    /// Triggers the reply of a lying worker.
    pub speak: tokio::sync::Notify,
}

/// Puts another payload into an envelope, with its length and checksum.
fn reseal(envelope: &mut pb::Envelope, payload: Vec<u8>) {
    envelope.length = payload.len() as u64;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&envelope.version.to_le_bytes());
    hasher.update(&envelope.schema.to_le_bytes());
    hasher.update(&envelope.length.to_le_bytes());
    hasher.update(&payload);
    envelope.checksum = hasher.finalize();
    envelope.payload = payload.into();
}

struct OddWorker {
    boot: String,
    oddity: Oddity,
    seen: Arc<Seen>,
    scan: Arc<PreparedScan>,
}

impl OddWorker {
    fn cache_report(&self) -> Option<pb::CacheReport> {
        let bytes = match self.oddity {
            Oddity::ClaimsToHoldAll => 8 * 1024,
            Oddity::ClaimsTooMuch => 4 * CACHE_REPORT_BYTES_MAX,
            _ => return None,
        };
        let groups =
            pb::HeldGroups { dataset: self.scan.dataset_reference(), memory: vec![u8::MAX; bytes], disk: Vec::new() };
        let loads = pb::CacheLoads { memory: u64::MAX, disk: u64::MAX, data_root: 1, fetch_us: 1, wait_us: u64::MAX };
        Some(pb::CacheReport { held: vec![groups], loads: Some(loads) })
    }

    fn reply(&self, segment: u32, part: Option<Range<usize>>, columns: bool) -> Result<pb::SegmentReply, Status> {
        let execute = |segment| {
            let (step, input) = (ScanStep { stage: 0, kind: StepKind::Values }, StepInputV1::default());
            let bars = self.scan.source().load_segment(segment).unwrap();
            let bars = part.clone().map_or(&bars[..], |part| &bars[part]);
            self.scan
                .source()
                .evaluate(segment, step, &input, bars, &References::new(), &NoCancel, &mut Stages::default())
                .unwrap()
                .into_v2()
                .unwrap()
        };
        let mut result = execute(segment);
        if let Oddity::OtherSegment = self.oddity {
            let other = self.scan.segments.iter().copied().find(|s| *s != segment).unwrap();
            result = execute(other);
            result.segment = segment;
        }
        if let (Oddity::LosesSymbol, SegmentOutput::Rows(rows)) = (&self.oddity, &mut result.output) {
            rows.pop();
        }
        if let (Oddity::ExtraValue, SegmentOutput::Rows(rows)) = (self.oddity, &mut result.output) {
            let matched = rows.iter_mut().filter(|row| row.status == trawl_wire::Status::Matched);
            matched.for_each(|row| row.values.push(1.0));
        }
        if let (Oddity::Lies, SegmentOutput::Rows(rows)) = (self.oddity, &mut result.output) {
            rows[0].status = trawl_wire::Status::Unknown;
            rows[0].reason = "a lie".to_owned();
            rows[0].rank.clear();
            rows[0].values.clear();
        }
        if let (Oddity::DiesOf(symbol), SegmentOutput::Rows(rows)) = (self.oddity, &result.output)
            && rows.iter().any(|row| row.symbol == symbol)
        {
            return Err(Status::unknown("connection reset"));
        }
        let mut envelope = match (self.oddity, &result.output) {
            (Oddity::SpeaksV1, SegmentOutput::Rows(rows)) => {
                let old = |row: &SymbolRow| SymbolRowV1 {
                    symbol: row.symbol.clone(),
                    status: row.status,
                    reason: row.reason.clone(),
                    rank: row.rank.clone(),
                    values: row.values.clone(),
                };
                envelope::encode_v1(&SegmentResultV1 { segment, rows: rows.iter().map(old).collect() }).unwrap()
            }
            (Oddity::SendsRows, _) => envelope::encode(&result).unwrap(),
            _ if columns => envelope::encode_columns(result.clone()).unwrap(),
            _ => envelope::encode(&result).unwrap(),
        };
        if let Oddity::Corrupt = self.oddity {
            let mut payload = envelope.payload.to_vec();
            payload[0] ^= 1;
            envelope.payload = payload.into();
        }
        let payload = &envelope.payload;
        let forged = match self.oddity {
            Oddity::Truncated => Some(payload[..payload.len() / 2].to_vec()),
            Oddity::Reordered => Some([&payload[8..16], &payload[..8], &payload[16..]].concat()),
            Oddity::Oversized => Some([&[0; 64 << 10][..], payload].concat()),
            _ => None,
        };
        if let Some(payload) = forged {
            reseal(&mut envelope, payload);
        }
        let outcome = match self.oddity {
            Oddity::Fails(kind) => pb::segment_reply::Outcome::Failure(Failure::new(kind, "as configured").into()),
            _ => pb::segment_reply::Outcome::Result(envelope),
        };
        let cache = self.cache_report();
        // Loads that took ages make others wait for a holder; not for longer than the bound.
        let timings =
            cache.is_some().then(|| pb::SegmentTimings { load_us: u64::MAX, bars: 1, ..pb::SegmentTimings::default() });
        Ok(pb::SegmentReply { segment, outcome: Some(outcome), timings, shard: None, more: Vec::new(), cache })
    }
}

#[tonic::async_trait]
impl pb::worker_server::Worker for OddWorker {
    type ExecuteStream = ReceiverStream<Result<pb::SegmentReply, Status>>;

    async fn execute(&self, request: Request<pb::ShardRequest>) -> Result<Response<Self::ExecuteStream>, Status> {
        let request = request.into_inner();
        let (first, count) = (request.part_first as usize, request.part_count as usize);
        let part = (count > 0).then_some(first..first + count);
        if request.plan_fingerprint.is_empty() {
            let message = other_plan("", &self.scan.identity.plan);
            return Err(Failure::new(ErrorKind::Invalid, message).to_status());
        }
        if request.document_json.is_empty() {
            self.seen.named.fetch_add(1, Ordering::SeqCst);
            if let Oddity::ForgetsPlans = self.oddity {
                return Err(unknown_plan());
            }
        }
        let before = self.seen.shards.fetch_add(1, Ordering::SeqCst);
        let (segments, columns) = (request.segments, request.columns);
        let (sender, receiver) = mpsc::channel(segments.len() + 1);
        match self.oddity {
            Oddity::Refuses => return Err(Failure::new(ErrorKind::Retryable, "as configured").to_status()),
            Oddity::SaysNothing => {}
            Oddity::BreaksOnce if before == 0 => {
                sender.send(Err(Status::unknown("connection reset"))).await.unwrap();
            }
            Oddity::Hangs => {
                let seen = Arc::clone(&self.seen);
                tokio::spawn(async move {
                    sender.closed().await;
                    seen.dropped.fetch_add(1, Ordering::SeqCst);
                });
            }
            Oddity::Lies => {
                let (lie, seen) = (self.reply(segments[0], part, columns), Arc::clone(&self.seen));
                tokio::spawn(async move {
                    seen.speak.notified().await;
                    let _ = sender.send(lie).await;
                    sender.closed().await;
                });
            }
            _ => {
                for segment in segments {
                    sender.send(self.reply(segment, part.clone(), columns)).await.unwrap();
                }
            }
        }
        let mut response = Response::new(ReceiverStream::new(receiver));
        if let Oddity::KeepsPlans | Oddity::ForgetsPlans = self.oddity {
            PlanAtWorker::Kept.mark(response.metadata_mut());
        }
        Ok(response)
    }

    async fn drain(&self, _request: Request<pb::DrainRequest>) -> Result<Response<pb::DrainReply>, Status> {
        Err(Status::unimplemented("it does as it likes"))
    }

    async fn ping(&self, _request: Request<pb::PingRequest>) -> Result<Response<pb::PingReply>, Status> {
        Ok(Response::new(pb::PingReply { boot: self.boot.clone(), cache: self.cache_report() }))
    }
}
