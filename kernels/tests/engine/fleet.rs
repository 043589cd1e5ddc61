//! Several devices as one: the same bits for every number of them, bars that stay where they are, and the loss of one.

use std::sync::{Arc, Mutex};

use trawl_kernels::cuda::{Cache, Connect, DeviceLoss, Executor, ExecutorOptions, Fault, Fleet, GatherOptions, Tuning};
use trawl_kernels::stages::Stages;
use trawl_kernels::{NoCancel, evaluate_from};
use trawl_plan::Program;
use trawl_test_driver::TestDevice;

use crate::device::{bits, last_of, plan, waits};
use crate::fused::{inputs, lowered, market};
use crate::parts::{Came, PARTS, Shard, shard};

/// Batches of about two groups, so that a share takes several.
fn small() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() }
}

pub struct Devices {
    each: Vec<TestDevice>,
    fleet: Fleet,
    losses: Arc<Mutex<Vec<DeviceLoss>>>,
}

pub fn devices(settings: &[&str], options: &ExecutorOptions) -> Devices {
    let each: Vec<TestDevice> = settings.iter().map(|settings| TestDevice::new(settings)).collect();
    let cache = Arc::new(Cache::in_memory());
    let executor = |device: &TestDevice| {
        Executor::new(Arc::new(device.open()), Arc::clone(&cache), options.clone()).expect("a device")
    };
    let fleet = Fleet::new(each.iter().map(executor).collect()).expect("devices");
    let losses = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&losses);
    fleet.on_lost(move |loss| sink.lock().expect("held shortly").push(loss.clone()));
    Devices { each, fleet, losses }
}

impl Devices {
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub fn each(&self) -> &[TestDevice] {
        &self.each
    }

    /// The same devices, which gather cross-sections.
    pub fn gathering(mut self, connect: Box<dyn Connect>, options: GatherOptions) -> Self {
        self.fleet.gather_by(connect, options).expect("a thread");
        self
    }

    pub fn run(&self, shard: &Shard, program: &Program) -> Came {
        shard.run_on(program, 0..PARTS, &|| self.launches().iter().sum(), &mut |parts, report| {
            self.fleet.evaluate_parts(&lowered(program), parts, &NoCancel, report);
        })
    }

    fn launches(&self) -> Vec<u64> {
        self.each.iter().map(|device| device.counts().launches).collect()
    }

    fn bytes_in(&self) -> Vec<u64> {
        self.each.iter().map(|device| device.counts().copied_in_bytes).collect()
    }

    fn losses(&self) -> Vec<DeviceLoss> {
        self.losses.lock().expect("held shortly").clone()
    }
}

#[test]
fn any_number_of_devices_gives_the_same_bits_and_each_does_its_part() {
    let (program, shard) = (plan(), shard());
    let four = ["when=late", "when=early", "when=random seed=4", "when=random seed=5 order=reverse"];
    for settings in [&four[..1], &four[..2], &four[..]] {
        let devices = devices(settings, &small());
        let came = devices.run(&shard, &program);
        assert!(came.failed().is_empty());
        shard.agrees(&program, &came);
        let bytes = devices.bytes_in();
        let mean = bytes.iter().sum::<u64>() / bytes.len() as u64;
        // Parts are divided whole, here about six for each of four devices.
        assert!(bytes.iter().all(|own| *own * 2 > mean && *own < mean * 2), "{bytes:?}");
        // Numbers of batches are distinct, and no stage is left out.
        let mut batches: Vec<_> = came.stages.spans().iter().map(|span| (span.part, span.stage)).collect();
        let all = batches.len();
        batches.sort_unstable_by_key(|(part, stage)| (*part, stage.name()));
        batches.dedup();
        assert_eq!(all, batches.len());
        let launches: u64 = devices.launches().iter().sum();
        assert_eq!(all as u64, 3 * launches, "in, kernel, out of each batch");
    }
}

#[test]
fn bars_stay_on_the_device_that_has_them() {
    let (program, shard) = (plan(), shard());
    let devices = devices(&["", "", ""], &waits());
    devices.run(&shard, &program);
    let first = devices.bytes_in();
    shard.agrees(&program, &devices.run(&shard, &program));
    for (once, twice) in first.iter().zip(devices.bytes_in()) {
        assert!(twice - once < once / 4, "only arguments: {once} bytes, then {}", twice - once);
    }
    let used: u64 = devices.each.iter().map(|device| device.counts().used_bytes).sum();
    assert_eq!(used, devices.fleet.resident_bytes());
    assert_eq!(devices.fleet.name(), "3 x H100 of the test driver (emulated)");
}

#[test]
fn a_lost_device_hands_its_part_to_the_others_whose_bars_stay() {
    let (program, shard) = (plan(), shard());
    // In its second batch of the first request, and between requests.
    for settings in ["fault=kernel:2:700", "fault=cuMemAllocAsync:12+:700"] {
        let devices = devices(&["", settings, ""], &small());
        let mut came = devices.run(&shard, &program);
        for _ in 0..3 {
            assert!(came.failed().is_empty(), "{:?}", came.failed());
            shard.agrees(&program, &came);
            came = devices.run(&shard, &program);
        }
        let losses = devices.losses();
        let [loss] = losses.as_slice() else { panic!("{settings}: one device is lost, once: {losses:?}") };
        assert_eq!((loss.ordinal, loss.left), (devices.each[1].ordinal(), 2));
        assert!(loss.why.contains("illegal"), "{}", loss.why);
        assert_eq!(devices.fleet.lost(), None);
        let before = devices.bytes_in();
        let launches = devices.launches();
        devices.run(&shard, &program);
        let after = devices.bytes_in();
        assert!(after[0] - before[0] < before[0] / 4 && after[2] - before[2] < before[2] / 4, "{before:?} {after:?}");
        assert_eq!(devices.launches()[1], launches[1], "nothing more is tried on it");
    }
}

#[test]
fn when_the_last_device_is_lost_every_part_says_so() {
    let (program, shard) = (plan(), shard());
    let devices = devices(&["fault=kernel:1:700", "fault=kernel:3:719"], &small());
    let came = devices.run(&shard, &program);
    let lost = came.parts.values().filter(|values| matches!(values, Err(Fault::Lost(_)))).count();
    assert!(lost > 0 && lost == came.failed().len(), "{:?}", came.failed());
    shard.agrees(&program, &came);
    let left: Vec<usize> = devices.losses().iter().map(|loss| loss.left).collect();
    assert_eq!(left, [1, 0]);
    assert!(devices.fleet.lost().is_some());
    // Parts without bars need no device, but nobody is there to report them.
    assert_eq!(devices.run(&shard, &program).failed().len(), PARTS);
}

#[test]
fn single_requests_take_turns_and_move_when_a_device_is_lost() {
    let program = plan();
    let bars = market(&[240; 40], 5);
    let symbols = inputs(&program, &bars, &[]);
    let from = last_of(&symbols);
    let want = evaluate_from(&program, &symbols, &from, &NoCancel).expect("not cancelled");
    let devices = devices(&["", "fault=kernel:2:700"], &waits());
    for _ in 0..6 {
        let done =
            devices.fleet.evaluate_from(&lowered(&program), &symbols, &from, None, &NoCancel, &mut Stages::default());
        assert!(bits(&done.expect("a device is left")) == bits(&want));
    }
    let launches = devices.launches();
    assert!(launches[0] >= 4 && launches[1] == 2, "{launches:?}");
    assert_eq!(devices.losses().len(), 1);
}

#[test]
fn every_setting_that_is_tuned_gives_the_same_bits() {
    let (program, shard) = (plan(), shard());
    let mut launches = std::collections::BTreeSet::new();
    for (streams, batches, bytes) in
        [(2, 2, 1 << 18), (3, 4, 1 << 20), (4, 3, 128 << 20), (6, 4, 256 << 20), (6, 2, 1 << 18)]
    {
        let tuning = Tuning { streams, batches_in_flight: batches, batch_in_bytes_max: bytes };
        let devices = devices(&["when=random seed=9"], &tuning.applied(&waits()));
        let came = devices.run(&shard, &program);
        assert!(came.failed().is_empty());
        shard.agrees(&program, &came);
        assert_eq!(devices.fleet.executors()[0].tuning(), tuning);
        launches.insert(devices.launches()[0]);
    }
    assert!(launches.len() > 1, "batches of other sizes: {launches:?}");
}
