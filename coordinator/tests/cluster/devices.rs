//! Workers with a device of the test driver: scans go to them, give the same rows as the CPU, and survive faults of the device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use trawl_coordinator::client::ScanCall;
use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::{NoProgress, ShardSpec, client, prepare};
use trawl_kernels::cuda::{Cache, Executor, ExecutorOptions, Fleet, GatherOptions, Nccl, Search};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Engine, NoCancel};
use trawl_market::TimeMicros;
use trawl_plan::{History, ScanDocument};
use trawl_security::ClientSecurity;
use trawl_test_driver::{Driver, TestDevice};
use trawl_wire::{AnswerRow, StepInputV1};
use trawl_worker::server::ServerError;
use trawl_worker::{ScanStep, StepKind};

use crate::world::{BOUND, World};

pub struct DeviceWorker {
    device: TestDevice,
    fleet: Arc<Fleet>,
    ended: JoinHandle<Result<(), ServerError>>,
}

impl World {
    /// Starts a worker with a device of these settings of the test driver.
    pub async fn device_worker(&mut self, id: &str, settings: &str, options: ExecutorOptions) -> DeviceWorker {
        let device = TestDevice::new(settings);
        let executor = Executor::new(Arc::new(device.open()), Cache::in_memory(), options).unwrap();
        let fleet = Arc::new(Fleet::from(executor));
        let (_, ended) = self.worker_on(id, Duration::ZERO, Engine::Device(Arc::clone(&fleet))).await;
        DeviceWorker { device, fleet, ended }
    }

    /// Runs a scan, and asserts that its rows equal those of one CPU thread.
    async fn scans_on(&self, backend: &str) {
        let scanned = self.scan(ShardSpec::Automatic).await.unwrap();
        assert_eq!(scanned.answer.identity.backend, backend);
        assert_eq!(scanned.report.backend, backend);
        assert_eq!(scanned.answer.rows, self.expected_answer().rows);
    }

    /// Waits until the cluster shows this state of a worker's devices.
    async fn wait_for_devices(&self, id: &str, is: impl Fn(&str) -> bool) {
        let security = ClientSecurity::default();
        let mut manager = client::Manager::connect(&self.url, &security).await.unwrap();
        let shown = async {
            loop {
                let workers = manager.workers().await.unwrap();
                let worker = workers.iter().find(|worker| worker.id == id);
                if worker.is_some_and(|worker| is(&worker.device_health)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, shown).await.expect("the state is shown in time");
    }

    /// A document's rows, cut into shards as given.
    async fn rows_of(&self, document: &ScanDocument, shards: ShardSpec) -> Vec<AnswerRow> {
        let call = ScanCall { document: document.clone(), shards, ..ScanCall::default() };
        let scanned = client::scan(&self.url, &call, &NoProgress).await.unwrap();
        assert!(scanned.report.is_complete(), "{:?}", scanned.report.failed);
        assert_eq!(scanned.answer.identity.backend, "cuda");
        scanned.answer.rows
    }

    /// What a worker would load of each segment for the first step of a scan: how many values of volume and of close.
    fn loaded_beside(&self, fleet: &Arc<Fleet>, document: &ScanDocument) -> Vec<(usize, usize)> {
        let scan = prepare(&self.store, document, None).unwrap();
        let mut source = scan.source().clone();
        source.engine = Engine::Device(Arc::clone(fleet));
        let step = ScanStep { stage: 0, kind: StepKind::Values };
        let at = |name: &str| source.plan().columns.iter().position(|column| column == name).unwrap();
        let (volume, close) = (at("volume"), at("close"));
        let of_segment = |(segment, _): (u32, u64)| {
            let (input, references) = (StepInputV1::default(), source.load_references().unwrap());
            let bars = source.load_segment_beside(fleet, (segment, None), step, &input, &references).unwrap();
            let count = |column: usize| bars.iter().map(|symbol| symbol.columns[column].len()).sum();
            (count(volume), count(close))
        };
        source.dataset.group_bars().map(of_segment).collect()
    }

    /// A document's rows, computed by one CPU thread.
    fn rows_by_cpu(&self, document: &ScanDocument) -> Vec<AnswerRow> {
        self.rows_by_cpu_as_of(document, None)
    }

    /// The same as of a time, if there is one.
    fn rows_by_cpu_as_of(&self, document: &ScanDocument, as_of: Option<TimeMicros>) -> Vec<AnswerRow> {
        let scan = prepare(&self.store, document, as_of).unwrap();
        let source = scan.source();
        let references = source.load_references().unwrap();
        let execute = |segment, step, input: &StepInputV1, stages: &mut Stages| {
            let done = source.execute(segment, step, input, &references, &NoCancel, stages);
            done.map_err(|e| (e.kind(), e.to_string()))
        };
        let options = LocalOptions { shards: ShardSpec::Count(1), threads: 1, ..LocalOptions::default() };
        local::run(&scan, options, execute, &NoProgress).unwrap().0.rows
    }
}

fn waits() -> ExecutorOptions {
    ExecutorOptions { wait_for_fused: true, ..ExecutorOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_goes_to_the_workers_with_devices_and_is_of_their_class() {
    let mut world = World::new().await;
    world.real_worker("a").await;
    let worker = world.device_worker("b", "", waits()).await;
    world.wait_for(&["a", "b"]).await;
    world.scans_on("cuda").await;
    let counts = worker.device.counts();
    // Six segments in two shards: one launch per shard, not per segment.
    assert_eq!(counts.launches, 2, "{counts:?}");
    // Bars are cached on the device.
    world.scans_on("cuda").await;
    let again = worker.device.counts();
    assert_eq!(again.launches, 4);
    assert!(again.copied_in_bytes - counts.copied_in_bytes < counts.copied_in_bytes / 2, "{again:?}");
}

/// Plans of several pieces: higher bars, whole and forming, references, cross-sections, a sweep, a limited history.
const CONDITIONS: [&str; 7] = [
    "tf('1w', close) > tf('1w', sma(close, 3))",
    "tf('1w', sma(close, 3), partial=true) > sma(close, 9)",
    "close > ref('SYM', sma(close, 5)) and tf('1w', close > ref('SYM', close))",
    "xs_rank(close) <= 9 and breadth(close > sma(close, 5)) > 10",
    "tf('1w', xs_rank(roc(close, 2)) <= 30)",
    "close > sma(close, 20) and rsi(close, 14) > 40",
    "close > 0 and tf('1w', highest(high, 3), partial=true) > ref('SYM', high)",
];

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_a_shard_are_computed_together_and_say_what_each_says_alone() {
    let mut world = World::new().await;
    let worker = world.device_worker("a", "", waits()).await;
    world.wait_for(&["a"]).await;
    let reference = world.prepared().dataset.manifest.symbols[7].symbol.clone();
    for condition in CONDITIONS {
        let condition = condition.replace("SYM", &reference);
        let mut document = ScanDocument { rank: Some("close".to_owned()), ..World::document() };
        document.history = condition.contains("rsi").then_some(History { bars: 5, origin: false });
        document.condition = condition;
        let want = world.rows_by_cpu(&document);
        let mut launches = Vec::new();
        for shards in [ShardSpec::PerSegment, ShardSpec::Count(1), ShardSpec::Count(4)] {
            let before = worker.device.counts().launches;
            assert_eq!(world.rows_of(&document, shards).await, want, "{}", document.condition);
            launches.push(worker.device.counts().launches - before);
        }
        let [each, whole, some] = launches[..] else { panic!("three ways") };
        assert!(whole * 5 <= each && whole <= some && some < each, "{}: {launches:?}", document.condition);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_computes_in_both_precisions_and_its_worker_on_the_cpu_where_that_is_named() {
    let mut world = World::new().await;
    let worker = world.device_worker("a", "", waits()).await;
    world.wait_for(&["a"]).await;
    let document = ScanDocument {
        precision: Some("f32".to_owned()),
        rank: Some("obv() + vwap()".to_owned()),
        ..World::document()
    };
    let want = world.rows_by_cpu(&document);
    assert_ne!(want, world.rows_by_cpu(&ScanDocument { precision: None, ..document.clone() }), "another precision");
    for shards in [ShardSpec::PerSegment, ShardSpec::Count(1), ShardSpec::Count(4)] {
        let before = worker.device.counts().launches;
        let call = ScanCall { document: document.clone(), shards, fresh: true, ..ScanCall::default() };
        let answer = client::scan(&world.url, &call, &NoProgress).await.unwrap().answer;
        assert_eq!((answer.identity.backend.as_str(), answer.identity.precision.as_str()), ("cuda", "f32"));
        assert_eq!(answer.rows, want);
        assert!(worker.device.counts().launches > before);
    }
    let before = worker.device.counts().launches;
    let call = ScanCall { document, backend: Some("cpu".to_owned()), fresh: true, ..ScanCall::default() };
    let scanned = client::scan(&world.url, &call, &NoProgress).await.unwrap();
    assert_eq!((scanned.answer.identity.backend.as_str(), scanned.answer.identity.precision.as_str()), ("cpu", "f32"));
    assert_eq!((scanned.answer.rows, worker.device.counts().launches), (want, before));
    // The same bars, as numbers of the other type.
    world.scans_on("cuda").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_device_hands_its_work_back_and_ends_its_worker() {
    let mut world = World::new().await;
    let lost = world.device_worker("a", "fault=kernel:2:700", waits()).await;
    let whole = world.device_worker("b", "", waits()).await;
    world.wait_for(&["a", "b"]).await;
    world.scans_on("cuda").await;
    let ended = tokio::time::timeout(BOUND, lost.ended).await.expect("in time").unwrap();
    let Err(ServerError::DeviceLost(why)) = ended else { panic!("{ended:?}") };
    assert!(why.contains("illegal"), "{why}");
    // It deleted its record, and the other worker continues alone.
    world.wait_for(&["b"]).await;
    world.scans_on("cuda").await;
    assert!(whole.device.counts().launches > 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_two_devices_goes_on_when_one_is_lost() {
    let mut world = World::new().await;
    let each = ["fault=kernel:2:700", "when=random seed=4"].map(TestDevice::new);
    let executors =
        each.iter().map(|device| Executor::new(Arc::new(device.open()), Cache::in_memory(), waits()).unwrap());
    let fleet = Fleet::new(executors.collect()).unwrap();
    let (_, ended) = world.worker_on("a", Duration::ZERO, Engine::Device(Arc::new(fleet))).await;
    world.wait_for(&["a"]).await;
    for _ in 0..3 {
        world.scans_on("cuda").await;
    }
    let [lost, whole] = each.each_ref().map(|device| device.counts().launches);
    assert!(lost == 2 && whole > 3, "{lost} {whole}");
    assert!(!ended.is_finished(), "the worker goes on with the other one");
}

/// Bars that devices hold are not read again, but for what is passed on as it is; a segment whose device is lost meanwhile is read whole.
#[tokio::test(flavor = "multi_thread")]
async fn bars_that_devices_hold_are_not_read_again_by_their_worker() {
    let mut world = World::new().await;
    let each = ["fault=kernel:3:700", "when=random seed=4"].map(TestDevice::new);
    let executors =
        each.iter().map(|device| Executor::new(Arc::new(device.open()), Cache::in_memory(), waits()).unwrap());
    let fleet = Arc::new(Fleet::new(executors.collect()).unwrap());
    world.worker_on("a", Duration::ZERO, Engine::Device(Arc::clone(&fleet))).await;
    world.wait_for(&["a"]).await;
    let document = |condition: &str| ScanDocument {
        condition: condition.to_owned(),
        select: vec!["close".into()],
        rank: None,
        ..World::document()
    };
    let conditions = ["volume > sma(volume, 5)", "sma(volume, 9) > sma(volume, 3)", "volume > ema(volume, 7)"];
    let loaded = |condition: &str| world.loaded_beside(&fleet, &document(condition));
    assert!(loaded(conditions[0]).iter().all(|(volume, close)| volume > &0 && volume == close));
    for (number, condition) in conditions.iter().enumerate() {
        let document = document(condition);
        assert_eq!(world.rows_of(&document, ShardSpec::Count(1)).await, world.rows_by_cpu(&document), "{condition}");
        let loaded = loaded(condition);
        let held = loaded.iter().filter(|(volume, close)| *volume == 0 && *close > 0).count();
        let whole = loaded.iter().filter(|(volume, close)| volume == close).count();
        assert!(held + whole == loaded.len() && held > loaded.len() / 2, "{condition}: {loaded:?}");
        // The third launch of one device is of bars that the host did not read, and its segments went to the other one.
        assert_eq!(fleet.losses().len(), usize::from(number == 2), "{condition}");
    }
    // As of an earlier bar they are the same bars.
    let times = world.prepared().dataset.times().unwrap();
    let before = each[1].counts().copied_in_bytes;
    let (past, time) = (document(conditions[0]), Some(times[times.len() - 9]));
    let call = ScanCall { document: past.clone(), as_of: time.into(), ..ScanCall::default() };
    let scanned = client::scan(&world.url, &call, &NoProgress).await.unwrap();
    assert_eq!(scanned.answer.identity.backend, "cuda");
    assert_eq!(scanned.answer.rows, world.rows_by_cpu_as_of(&past, time));
    assert_ne!(scanned.answer.rows, world.rows_by_cpu(&past));
    assert!(each[1].counts().copied_in_bytes - before < 30_000, "{before} {:?}", each[1].counts());
}

/// What the host makes for kernels itself is right too where it did not read all bars: labels, clocks, cross-sections, in adjusted prices.
#[tokio::test(flavor = "multi_thread")]
async fn labels_clocks_and_ranks_are_right_where_bars_are_not_read_again() {
    let mut world = World::new().await;
    let worker = world.device_worker("a", "when=random seed=8", waits()).await;
    world.wait_for(&["a"]).await;
    let conditions = [
        "volume > sma(volume, N)",
        "sector == 'Technology' and volume > sma(volume, N)",
        "weekday == 4 and volume > sma(volume, N)",
        "count(weekday == 4 and volume > sma(volume, N), 9) > 1",
        "xs_rank(roc(volume, N)) <= 9",
        "breadth(volume > sma(volume, N), by=sector) > 0.2",
    ];
    for adjust in ["none", "split+dividend"] {
        for condition in conditions {
            let document = |bars: &str| ScanDocument {
                dataset: Some("demo".to_owned()),
                adjust: Some(adjust.to_owned()),
                condition: condition.replace('N', bars),
                select: vec!["close".into()],
                ..World::document()
            };
            for bars in ["5", "7"] {
                let document = document(bars);
                let found = world.rows_of(&document, ShardSpec::Count(1)).await;
                assert_eq!(found, world.rows_by_cpu(&document), "{condition}, {adjust}, {bars}");
                assert!(!found.is_empty(), "{condition}, {adjust}, {bars}");
            }
            let loaded = world.loaded_beside(&worker.fleet, &document("7"));
            assert!(loaded.iter().all(|(volume, _)| *volume == 0), "{condition}, {adjust}: {loaded:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_sections_over_two_devices_are_gathered_by_them_or_by_the_host_with_the_same_rows() {
    for (settings, by_host) in [("", 0), ("stall=1", 1)] {
        let mut world = World::new().await;
        let each = ["when=random seed=6", settings].map(TestDevice::new);
        let executors =
            each.iter().map(|device| Executor::new(Arc::new(device.open()), Cache::in_memory(), waits()).unwrap());
        let mut fleet = Fleet::new(executors.collect()).unwrap();
        let nccl = Nccl::find(&Search { folders: vec![Driver::built().folder().to_path_buf()] }).unwrap();
        let options = GatherOptions { bytes_min: 0, time_max: Duration::from_millis(300) };
        fleet.gather_by(Box::new(nccl), options).unwrap();
        let fleet = Arc::new(fleet);
        world.worker_on("a", Duration::ZERO, Engine::Device(Arc::clone(&fleet))).await;
        world.wait_for(&["a"]).await;
        let conditions = ["breadth(close > sma(close, 5)) > 10", "xs_rank(roc(close, 2)) <= 9"];
        for condition in conditions {
            let document = ScanDocument { condition: condition.to_owned(), ..World::document() };
            let want = world.rows_by_cpu(&document);
            assert_eq!(world.rows_of(&document, ShardSpec::Count(1)).await, want, "{condition}");
        }
        let gathers = fleet.gathers();
        assert_eq!((gathers.by_devices, gathers.by_host), (conditions.len() as u64 - by_host, by_host));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bars_of_the_next_call_are_brought_to_the_device_while_one_is_computed() {
    let mut world = World::new().await;
    // One of them loads the next call.
    world.worker_threads = 2;
    // Calls of a quarter of the memory, and kernels that take longer than loading.
    let device = TestDevice::new("kernel_us=400000");
    let options = ExecutorOptions { device_memory_bytes: Some(400_000), ..waits() };
    let executor = Executor::new(Arc::new(device.open()), Cache::in_memory(), options).unwrap();
    let fleet = Arc::new(Fleet::from(executor));
    world.worker_on("a", Duration::ZERO, Engine::Device(Arc::clone(&fleet))).await;
    world.wait_for(&["a"]).await;
    let document = ScanDocument { condition: "close > sma(close, 5)".to_owned(), ..World::document() };
    let want = world.rows_by_cpu(&document);
    assert_eq!(world.rows_of(&document, ShardSpec::Count(1)).await, want);
    let prefetches = fleet.prefetches();
    assert!(prefetches.brought_bytes > 0 && prefetches.read_bytes == prefetches.brought_bytes, "{prefetches:?}");
    assert!(prefetches.hidden_share() > 0.3, "{prefetches:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bars_of_a_new_snapshot_are_there_before_scans_like_the_last_ones_ask_for_them() {
    let mut world = World::new().await;
    let worker = world.device_worker("a", "copy_bytes_per_s=4000000", waits()).await;
    world.wait_for(&["a"]).await;
    let scan = |condition: &str, adjust: Option<&str>| ScanDocument {
        condition: condition.to_owned(),
        adjust: adjust.map(str::to_owned),
        ..World::document()
    };
    let last = [scan("close > sma(close, 5)", None), scan("high > sma(low, 5)", Some("split"))];
    // Of an earlier bar, and of a snapshot by its id: nothing like them is asked of the next one.
    let snapshot = &world.prepared().dataset.manifest.snapshot;
    let dataset = Some(format!("market@{snapshot}"));
    let pinned = ScanDocument { dataset, condition: "open > sma(open, 5)".to_owned(), ..World::document() };
    let times = world.prepared().dataset.times().unwrap();
    let past = ScanCall {
        document: scan("volume > sma(volume, 5)", None),
        as_of: Some(times[times.len() - 2]).into(),
        ..ScanCall::default()
    };
    let scan_all = async |world: &World| {
        let begun = Instant::now();
        for document in &last {
            assert_eq!(world.rows_of(document, ShardSpec::Automatic).await, world.rows_by_cpu(document));
        }
        begun.elapsed()
    };
    let took = scan_all(&world).await;
    let needed = worker.fleet.prefetches().copied_bytes;
    world.rows_of(&pinned, ShardSpec::Automatic).await;
    client::scan(&world.url, &past, &NoProgress).await.unwrap();
    assert_eq!(worker.fleet.prefetches().brought_bytes, 0, "there is nothing new");
    let alone = worker.device.counts().copied_in_bytes;
    world.publish(61);
    let brought = async |least: u64| {
        let brought = async {
            while worker.fleet.prefetches().brought_bytes < least {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, brought).await.expect("they are brought in time");
    };
    // Three columns with a bar more.
    let expected = needed / 60 * 61;
    brought(expected).await;
    let before = worker.device.counts().copied_in_bytes;
    let ahead = scan_all(&world).await;
    let (prefetches, copied) = (worker.fleet.prefetches(), worker.device.counts().copied_in_bytes - before);
    println!("scans over bars that are copied {took:?}, over those that were brought ahead {ahead:?}; {prefetches:?}");
    assert_eq!((prefetches.brought_bytes, prefetches.read_bytes), (expected, expected), "and nothing else is");
    assert!(copied < alone / 10, "only arguments: {copied} of {alone}");
    // A scan that comes meanwhile goes first; then it goes on where it was.
    world.publish(62);
    brought(expected + 1).await;
    let again = ScanCall { document: pinned, fresh: true, ..ScanCall::default() };
    client::scan(&world.url, &again, &NoProgress).await.unwrap();
    let expected = expected + needed / 60 * 62;
    brought(expected).await;
    scan_all(&world).await;
    let prefetches = worker.fleet.prefetches();
    assert_eq!((prefetches.brought_bytes, prefetches.read_bytes), (expected, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_whose_memory_errs_is_given_up_and_shown_and_the_worker_goes_on() {
    let mut world = World::new().await;
    let each = ["", "when=random seed=4"].map(TestDevice::new);
    let executors =
        each.iter().map(|device| Executor::new(Arc::new(device.open()), Cache::in_memory(), waits()).unwrap());
    let fleet = Fleet::new(executors.collect()).unwrap();
    let (_, ended) = world.worker_on("a", Duration::ZERO, Engine::Device(Arc::new(fleet))).await;
    world.wait_for(&["a"]).await;
    world.scans_on("cuda").await;
    world.wait_for_devices("a", |health| health == "healthy").await;
    each[0].set_health("throttle=thermal pending=1");
    world.wait_for_devices("a", |health| health.contains("slowed by heat") && health.contains("next reset")).await;
    world.scans_on("cuda").await;
    each[0].set_health("ecc=1");
    let first = each[0].ordinal();
    let state = format!("device {first}: quarantined: 1 memory error that could not be corrected");
    world.wait_for_devices("a", |health| health == state).await;
    let before = each.each_ref().map(|device| device.counts().launches);
    for _ in 0..2 {
        world.scans_on("cuda").await;
    }
    let after = each.each_ref().map(|device| device.counts().launches);
    assert!(after[0] == before[0] && after[1] > before[1], "{before:?} {after:?}");
    assert!(!ended.is_finished(), "the worker goes on with the other one");
    // An error of the last one ends it, without a scan.
    each[1].set_health("xid=79:0");
    let ended = tokio::time::timeout(BOUND, ended).await.expect("in time").unwrap();
    let Err(ServerError::DeviceLost(why)) = ended else { panic!("{ended:?}") };
    assert!(why.contains("XID 79"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_without_memory_and_one_that_is_late_cost_attempts_and_nothing_else() {
    let mut world = World::new().await;
    let (tight, late) = ("memory=3145728 fault=cuMemAllocAsync:3:2", "slow=1:300");
    let hurried = ExecutorOptions { batch_time_max: Duration::from_millis(100), ..waits() };
    let tight = world.device_worker("a", tight, waits()).await;
    let late = world.device_worker("b", late, hurried).await;
    world.wait_for(&["a", "b"]).await;
    world.scans_on("cuda").await;
    assert!(tight.device.counts().launches > 0 && late.device.counts().launches > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_no_device_has_room_for_fails_its_scan_with_the_bytes() {
    let mut world = World::new().await;
    world.device_worker("a", "memory=10000", waits()).await;
    world.wait_for(&["a"]).await;
    let error = world.scan(ShardSpec::Automatic).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("bytes are needed at once") && message.contains("are free"), "{message}");
    assert!(!error.is_users_mistake());
}
