//! Workers with a device, which is simulated: scans go to them, give the processors' rows, and survive what a device does.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use trawl_coordinator::client::ScanCall;
use trawl_coordinator::{NoProgress, ShardSpec, client};
use trawl_kernels::Engine;
use trawl_kernels::cuda::{Cache, Executor, ExecutorOptions, Simulated, Simulation};
use trawl_worker::server::ServerError;

use crate::world::{BOUND, World};

struct DeviceWorker {
    device: Arc<Simulated>,
    ended: JoinHandle<Result<(), ServerError>>,
}

impl World {
    async fn device_worker(&mut self, id: &str, simulation: Simulation, options: ExecutorOptions) -> DeviceWorker {
        let device = Arc::new(Simulated::new(Simulation { real_time: true, ..simulation }));
        let executor = Executor::new(device.clone(), Cache::in_memory(), options).unwrap();
        let (_, ended) = self.worker_on(id, Duration::ZERO, Engine::Device(Arc::new(executor))).await;
        DeviceWorker { device, ended }
    }

    /// Scans, and holds the rows to those of one thread of the processors.
    async fn scans_on(&self, backend: &str) {
        let scanned = self.scan(ShardSpec::Automatic).await.unwrap();
        assert_eq!(scanned.answer.identity.backend, backend);
        assert_eq!(scanned.report.backend, backend);
        assert_eq!(scanned.answer.rows, self.expected_answer().rows);
    }
}

fn waits() -> ExecutorOptions {
    ExecutorOptions { wait_for_fused: true, ..ExecutorOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_goes_to_the_workers_with_devices_and_is_of_their_class() {
    let mut world = World::new().await;
    world.real_worker("a").await;
    let worker = world.device_worker("b", Simulation::default(), waits()).await;
    world.wait_for(&["a", "b"]).await;
    world.scans_on("simulated").await;
    let counts = worker.device.counts();
    assert!(counts.launches > 3, "{counts:?}");
    // Bars stay on the device.
    world.scans_on("simulated").await;
    let again = worker.device.counts();
    assert!(again.launches > counts.launches);
    assert!(again.copied_in_bytes - counts.copied_in_bytes < counts.copied_in_bytes / 2, "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_device_does_not_compute_is_the_processors_also_where_all_workers_have_one() {
    let mut world = World::new().await;
    let worker = world.device_worker("a", Simulation::default(), waits()).await;
    world.wait_for(&["a"]).await;
    let mut document = World::document();
    document.precision = Some("f32".to_owned());
    let call = ScanCall { document, ..ScanCall::default() };
    let scanned = client::scan(&world.url, &call, &NoProgress).await.unwrap();
    assert_eq!((scanned.answer.identity.backend.as_str(), scanned.answer.identity.precision.as_str()), ("cpu", "f32"));
    assert_eq!(worker.device.counts().launches, 0);
    world.scans_on("simulated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_device_hands_its_work_back_and_ends_its_worker() {
    let mut world = World::new().await;
    let lost = world.device_worker("a", Simulation { illegal_at: Some(2), ..Simulation::default() }, waits()).await;
    let whole = world.device_worker("b", Simulation::default(), waits()).await;
    world.wait_for(&["a", "b"]).await;
    world.scans_on("simulated").await;
    let ended = tokio::time::timeout(BOUND, lost.ended).await.expect("in time").unwrap();
    let Err(ServerError::DeviceLost(why)) = ended else { panic!("{ended:?}") };
    assert!(why.contains("illegal"), "{why}");
    // It took its record with it, and the other goes on alone.
    world.wait_for(&["b"]).await;
    world.scans_on("simulated").await;
    assert!(whole.device.counts().launches > 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_without_memory_and_one_that_is_late_cost_attempts_and_nothing_else() {
    let mut world = World::new().await;
    let tight = Simulation { memory_bytes: 3 << 20, no_memory_at: Some(3), ..Simulation::default() };
    let late = Simulation { slow_at: Some((1, Duration::from_millis(300))), ..Simulation::default() };
    let hurried = ExecutorOptions { batch_time_max: Duration::from_millis(100), ..waits() };
    let tight = world.device_worker("a", tight, waits()).await;
    let late = world.device_worker("b", late, hurried).await;
    world.wait_for(&["a", "b"]).await;
    world.scans_on("simulated").await;
    assert!(tight.device.counts().launches > 0 && late.device.counts().launches > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_no_device_has_room_for_fails_its_scan_with_the_bytes() {
    let mut world = World::new().await;
    world.device_worker("a", Simulation { memory_bytes: 10_000, ..Simulation::default() }, waits()).await;
    world.wait_for(&["a"]).await;
    let error = world.scan(ShardSpec::Automatic).await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("bytes are needed at once") && told.contains("are free"), "{told}");
    assert!(!error.is_users_mistake());
}
