//! Cross-sections over several devices: gathered by the devices or by the host, the bits are the same; collectives that fail, wait
//! for ever or do not return end in time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trawl_kernels::NoCancel;
use trawl_kernels::cuda::{Connect, ExecutorOptions, GatherOptions, Gathers, Nccl, Search};
use trawl_plan::Program;
use trawl_test_driver::{Driver, TestDevice};

use crate::device::{plan, waits};
use crate::fleet::{Devices, devices};
use crate::fused::lowered;
use crate::parts::{Came, PARTS, Shard, shard};

/// Batches of about two groups, so that a share takes several.
fn small() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() }
}

/// Small cross-sections too, with a short deadline.
fn all() -> GatherOptions {
    GatherOptions { bytes_min: 0, time_max: Duration::from_millis(300) }
}

pub fn nccl() -> Box<dyn Connect> {
    let search = Search { folders: vec![Driver::built().folder().to_path_buf()] };
    Box::new(Nccl::find(&search).expect("the test driver's"))
}

/// Devices that gather, and what they said of failures.
struct Gathering {
    devices: Devices,
    failures: Arc<Mutex<Vec<String>>>,
}

fn gathering(settings: &[&str], executor: &ExecutorOptions, options: GatherOptions) -> Gathering {
    let devices = devices(settings, executor).gathering(nccl(), options);
    let failures = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&failures);
    devices.fleet().on_gather_failure(move |why| sink.lock().expect("held shortly").push(why.to_owned()));
    Gathering { devices, failures }
}

impl Gathering {
    fn run(&self, shard: &Shard, program: &Program) -> Came {
        shard.run_on(program, 0..PARTS, &|| 0, &mut |parts, report| {
            self.devices.fleet().evaluate_cross_section(&lowered(program), parts, &NoCancel, report);
        })
    }

    fn gathers(&self) -> (u64, u64) {
        let Gathers { by_devices, by_host } = self.devices.fleet().gathers();
        (by_devices, by_host)
    }

    fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("held shortly").clone()
    }

    /// Runs so many times, and asserts that every value is the CPU's.
    fn agrees(&self, shard: &Shard, program: &Program, times: usize) {
        for _ in 0..times {
            let came = self.run(shard, program);
            assert!(came.failed().is_empty(), "{:?}", came.failed());
            shard.agrees(program, &came);
        }
    }
}

#[test]
fn any_number_of_devices_gathers_the_same_bits() {
    let (program, shard) = (plan(), shard());
    let four = ["when=late", "when=early", "when=random seed=4", "when=random seed=5 order=reverse"];
    for settings in [&four[..1], &four[..2], &four[2..], &four[..]] {
        let gathering = gathering(settings, &small(), all());
        gathering.agrees(&shard, &program, 2);
        assert_eq!(gathering.gathers(), (2, 0), "{:?}", gathering.failures());
        let counts: Vec<_> = gathering.devices.each().iter().map(trawl_test_driver::TestDevice::counts).collect();
        assert!(counts.iter().all(|counts| counts.gathers == 2));
        // All values leave through the first device.
        let out: Vec<u64> = counts.iter().map(|counts| counts.copied_out_bytes).collect();
        assert!(out[0] > 0 && out[1..].iter().all(|bytes| *bytes == 0), "{out:?}");
        // Blocks are released with the request.
        let used: u64 = counts.iter().map(|counts| counts.used_bytes).sum();
        assert_eq!(used, gathering.devices.fleet().resident_bytes());
    }
}

#[test]
fn small_cross_sections_are_gathered_by_the_host() {
    let (program, shard) = (plan(), shard());
    let gathering = gathering(&["", ""], &small(), GatherOptions::default());
    gathering.agrees(&shard, &program, 1);
    assert_eq!(gathering.gathers(), (0, 0));
    let calls = gathering.devices.each().iter().map(|device| device.calls("ncclCommInitAll"));
    assert_eq!(calls.sum::<u64>(), 0, "nothing is connected in advance");
}

#[test]
fn whatever_fails_about_a_collective_the_host_gathers_the_same_bits() {
    let (program, shard) = (plan(), shard());
    // Of the second device, and whether the communicator was in use.
    let faults = [
        ("fault=ncclCommInitAll:1:2", "system error"),
        ("fault=ncclAllGather:1:3", "internal error"),
        ("fault=ncclGroupEnd:1:1", "cuda error"),
        ("fault=ncclCommGetAsyncError:1:2 stall=1", "system error"),
        ("stall=1", "in time"),
    ];
    for (fault, why) in faults {
        let gathering = gathering(&["when=random seed=3", fault], &small(), all());
        let began = Instant::now();
        gathering.agrees(&shard, &program, 1);
        let took = began.elapsed();
        assert_eq!(gathering.gathers(), (0, 1), "{fault}");
        let failures = gathering.failures();
        assert!(failures.len() == 1 && failures[0].contains(why), "{fault}: {failures:?}");
        assert!(took < Duration::from_secs(20), "{fault}: {took:?}");
        let aborts: u64 = gathering.devices.each().iter().map(|device| device.calls("ncclCommAbort")).sum();
        assert_eq!(aborts, if fault.contains("Init") { 0 } else { 2 }, "{fault}: each rank");
        // The next one connects anew.
        gathering.agrees(&shard, &program, 2);
        assert_eq!(gathering.gathers(), (2, 1), "{fault}: {:?}", gathering.failures());
        assert!(gathering.devices.fleet().lost().is_none());
    }
}

#[test]
fn devices_that_never_gather_are_not_asked_for_long() {
    let (program, shard) = (plan(), shard());
    let gathering = gathering(&["", "fault=ncclAllGather:1+:3"], &small(), all());
    gathering.agrees(&shard, &program, 6);
    assert_eq!(gathering.gathers(), (0, 4));
    assert_eq!(gathering.failures().len(), 4);
    let over = gathering.devices.fleet().gathering_over().expect("it was given up");
    assert!(over.contains("4 gatherings failed") && over.contains("internal error"), "{over}");
    assert_eq!(gathering.devices.each()[1].calls("ncclAllGather"), 4);
}

#[test]
fn a_call_that_does_not_return_is_aborted_from_outside_and_the_host_gathers() {
    let (program, shard) = (plan(), shard());
    let gathering = gathering(&["", "hang=2"], &small(), all());
    gathering.agrees(&shard, &program, 1);
    assert_eq!(gathering.gathers(), (1, 0));
    let began = Instant::now();
    gathering.agrees(&shard, &program, 2);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(gathering.gathers(), (1, 1), "there is no second attempt");
    let over = gathering.devices.fleet().gathering_over().expect("it was given up");
    assert!(over.contains("did not return"), "{over}");
}

#[test]
fn a_device_that_is_lost_hands_its_part_to_the_others_which_gather_without_it() {
    let (program, shard) = (plan(), shard());
    let gathering = gathering(&["", "fault=kernel:1:700", "when=early"], &small(), all());
    gathering.agrees(&shard, &program, 1);
    assert_eq!(gathering.gathers(), (0, 1), "what the others held");
    gathering.agrees(&shard, &program, 2);
    assert_eq!(gathering.gathers(), (2, 1), "{:?}", gathering.failures());
    assert_eq!(gathering.devices.each()[1].calls("ncclAllGather"), 0);
}

#[test]
fn without_memory_for_the_blocks_the_host_gathers() {
    let (program, shard) = (plan(), shard());
    let tight = ExecutorOptions { device_memory_bytes: Some(1 << 20), ..small() };
    let bytes_min = GatherOptions { bytes_min: 0, ..all() };
    let plenty = gathering(&["", ""], &small(), bytes_min);
    plenty.agrees(&shard, &program, 1);
    assert_eq!(plenty.gathers(), (1, 0));
    let refused = gathering(&["fault=cuMemAllocAsync:1:2", ""], &small(), bytes_min);
    refused.agrees(&shard, &program, 1);
    assert_eq!(refused.gathers(), (0, 0), "nothing was held");
    // Whatever there is room for, the bits are the same.
    gathering(&["", ""], &tight, bytes_min).agrees(&shard, &program, 2);
}

#[test]
fn requests_side_by_side_gather_in_one_order() {
    let (program, shard) = (plan(), shard());
    let patient = GatherOptions { time_max: Duration::from_secs(5), ..all() };
    let gathering = gathering(&["when=random seed=11", "when=random seed=12"], &small(), patient);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| gathering.agrees(&shard, &program, 2));
        }
    });
    assert_eq!(gathering.gathers(), (6, 0), "{:?}", gathering.failures());
}

#[test]
fn a_library_that_is_not_there_or_too_little_is_a_sentence() {
    // Its driver is open in this process, as NVIDIA's is where their NCCL is used.
    let _device = TestDevice::new("");
    let root = std::env::temp_dir().join(format!("trawl-nccl-{}", std::process::id()));
    let [other, none] = ["other", "none"].map(|name| root.join(name));
    [&other, &none].into_iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder"));
    // A library of another kind under its name, and no library.
    std::fs::copy(Driver::built().folder().join("libnvrtc.so.13"), other.join("libnccl.so.2")).expect("a copy");
    let why = Nccl::find(&Search { folders: vec![other] }).expect_err("not NCCL");
    assert!(why.contains("has no nccl"), "{why}");
    std::fs::write(none.join("libnccl.so.2"), "no library").expect("a file");
    // Where another test has opened one, the loader finds that by its name.
    if let Err(why) = Nccl::find(&Search { folders: vec![none] }) {
        assert!(why.contains("libnccl.so.2 does not open"), "{why}");
    }
    std::fs::remove_dir_all(root).expect("it was ours");
    let found =
        Nccl::find(&Search { folders: vec![Driver::built().folder().to_path_buf()] }).expect("the test driver's");
    assert_eq!(found.version(), 22703);
    assert!(found.connect(&[1, 1]).is_err(), "a device twice");
}
