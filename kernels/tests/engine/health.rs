//! The health of devices: what ends their use and what is only reported, with NVML of the test driver and without one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trawl_kernels::Cancel;
use trawl_kernels::cuda::{
    Cache, Executor, ExecutorOptions, Fault, Finding, Fleet, Health, HealthEvent, NoNvml, Nvml, Throttle, Watch,
    look_at_health,
};
use trawl_test_driver::{Driver, TestDevice};

use crate::device::{plan, waits};
use crate::fused::lowered;
use crate::parts::{PARTS, shard};

/// How long a watch may take to see something.
const BOUND: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(2);

/// What a watch reported, as far as tests ask for it.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    NoNvml,
    Found(usize, Finding, bool),
    Over(usize, Finding),
    Probed(usize, String),
}

struct Watched {
    each: Vec<TestDevice>,
    fleet: Arc<Fleet>,
    /// Ordinals of devices that were given up, and how many were left.
    losses: Arc<Mutex<Vec<(usize, usize)>>>,
    slow: Arc<Mutex<Vec<Throttle>>>,
    said: Receiver<Said>,
    _watch: Watch,
}

fn nvml() -> Result<Nvml, NoNvml> {
    Nvml::open(&Driver::built().search())
}

fn no_nvml() -> Result<Nvml, NoNvml> {
    Err(NoNvml::Absent { place: "nowhere".to_owned() })
}

fn fleet(settings: &[&str], options: &ExecutorOptions) -> (Vec<TestDevice>, Arc<Fleet>) {
    let each: Vec<TestDevice> = settings.iter().map(|settings| TestDevice::new(settings)).collect();
    let cache = Arc::new(Cache::in_memory());
    let executor = |device: &TestDevice| {
        Executor::new(Arc::new(device.open()), Arc::clone(&cache), options.clone()).expect("a device")
    };
    let fleet = Fleet::new(each.iter().map(executor).collect()).expect("devices");
    (each, Arc::new(fleet))
}

fn watched(settings: &[&str], open: fn() -> Result<Nvml, NoNvml>) -> Watched {
    let (each, fleet) = fleet(settings, &waits());
    let (losses, slow) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let sink = Arc::clone(&losses);
    fleet.on_lost(move |loss| sink.lock().expect("held shortly").push((loss.ordinal, loss.left)));
    let (sender, said) = channel();
    let slowed = Arc::clone(&slow);
    let watch = Watch::start(Arc::clone(&fleet), open, INTERVAL, move |event| {
        let said = match event {
            HealthEvent::NoNvml(_) => Said::NoNvml,
            HealthEvent::Unknown { device, why } => panic!("{device:?}: {why}"),
            HealthEvent::Found { device, finding, is_quarantined } => {
                Said::Found(device.ordinal, (*finding).clone(), *is_quarantined)
            }
            HealthEvent::Over { device, finding } => Said::Over(device.ordinal, (*finding).clone()),
            HealthEvent::Slow { reason, .. } => return slowed.lock().expect("held shortly").push(*reason),
            HealthEvent::Probed { waiting_for_reset, summary } => {
                Said::Probed(*waiting_for_reset, (*summary).to_owned())
            }
        };
        // Fails only when the test is over.
        let _ = sender.send(said);
    });
    Watched { each, fleet, losses, slow, said, _watch: watch.expect("a thread") }
}

impl Watched {
    /// What was said until this was, which is the last of it; probes that found nothing new are left out.
    #[track_caller]
    fn until(&self, wanted: impl Fn(&Said) -> bool) -> Vec<Said> {
        let (until, mut came) = (Instant::now() + BOUND, Vec::new());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let said = self.said.recv_timeout(left).unwrap_or_else(|_| panic!("it was not said: {came:?}"));
            if wanted(&said) {
                came.push(said);
                return came;
            }
            if !matches!(said, Said::Probed(..)) {
                came.push(said);
            }
        }
    }

    fn probed(&self) -> Vec<Said> {
        self.until(|said| matches!(said, Said::Probed(..)))
    }

    fn launches(&self) -> Vec<u64> {
        self.each.iter().map(|device| device.counts().launches).collect()
    }

    fn ordinal(&self, at: usize) -> usize {
        self.each[at].ordinal()
    }

    fn losses(&self) -> Vec<(usize, usize)> {
        self.losses.lock().expect("held shortly").clone()
    }
}

#[test]
fn a_device_whose_memory_errs_takes_no_more_parts_and_the_others_take_them() {
    let (program, shard) = (plan(), shard());
    let watched = watched(&["", ""], nvml);
    let run = || {
        shard.run_on(&program, 0..PARTS, &|| watched.launches().iter().sum(), &mut |parts, report| {
            watched.fleet.evaluate_parts(&lowered(&program), parts, &trawl_kernels::NoCancel, report);
        })
    };
    assert_eq!(watched.probed(), [Said::Probed(0, "healthy".to_owned())]);
    shard.agrees(&program, &run());
    assert!(watched.launches().iter().all(|launches| *launches > 0));
    watched.each[1].set_health("ecc=3");
    let second = watched.ordinal(1);
    let found = Said::Found(second, Finding::Uncorrected(3), true);
    assert_eq!(watched.until(|said| *said == found), std::slice::from_ref(&found), "once, and nothing else");
    let state = format!("device {second}: quarantined: 3 memory errors that could not be corrected");
    watched.until(|said| *said == Said::Probed(0, state.clone()));
    assert_eq!(watched.losses(), [(second, 1)]);
    let before = watched.launches();
    let came = run();
    assert!(came.failed().is_empty(), "{:?}", came.failed());
    shard.agrees(&program, &came);
    let after = watched.launches();
    assert!(after[1] == before[1] && after[0] > before[0], "{before:?} {after:?}");
    assert!(watched.fleet.lost().is_none());
}

/// Gives a device up in the middle of a request.
struct GivesUp<'a> {
    executor: &'a Executor,
    polls: AtomicUsize,
    at: usize,
}

impl Cancel for GivesUp<'_> {
    fn cancelled(&self) -> bool {
        if self.polls.fetch_add(1, Ordering::Relaxed) == self.at {
            self.executor.quarantine("its memory errs");
        }
        false
    }
}

#[test]
fn what_a_device_computed_when_it_is_given_up_is_not_delivered() {
    let (program, shard) = (plan(), shard());
    for at in [0, 3] {
        // Batches of about two groups.
        let small = ExecutorOptions { batch_bytes_max: Some(1 << 20), ..waits() };
        let (each, fleet) = fleet(&["", ""], &small);
        let launches = || each.iter().map(|device| device.counts().launches).sum();
        // Alone, it delivers nothing from then on.
        let alone = &fleet.executors()[0];
        let cancel = GivesUp { executor: alone, polls: AtomicUsize::new(0), at };
        let came = shard.run_on(&program, 0..PARTS, &launches, &mut |parts, report| {
            alone.evaluate_parts(&lowered(&program), parts, &cancel, report);
        });
        let is_lost =
            |values: &Result<_, Fault>| matches!(values, Err(Fault::Lost(why)) if why.contains("memory errs"));
        let lost = came.parts.values().filter(|values| is_lost(values)).count();
        assert!(lost > 0 && lost == came.failed().len(), "{at}: {:?}", came.failed());
        shard.agrees(&program, &came);
        // Beside another one, that one delivers it.
        let came = shard.run_on(&program, 0..PARTS, &launches, &mut |parts, report| {
            fleet.evaluate_parts(&lowered(&program), parts, &trawl_kernels::NoCancel, report);
        });
        assert!(came.failed().is_empty());
        shard.agrees(&program, &came);
    }
}

#[test]
fn a_batch_that_ends_after_its_device_was_given_up_is_not_delivered() {
    let (program, shard) = (plan(), shard());
    // Every kernel takes longer than the device needs to be given up.
    let (each, fleet) = fleet(&["kernel_us=300000"], &waits());
    let launches = || each[0].counts().launches;
    let came = std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + BOUND;
            while launches() == 0 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            fleet.executors()[0].quarantine("its memory errs");
        });
        shard.run_on(&program, 0..PARTS, &launches, &mut |parts, report| {
            fleet.evaluate_parts(&lowered(&program), parts, &trawl_kernels::NoCancel, report);
        })
    });
    assert!(launches() > 0);
    // All but the part without symbols, which needs no device.
    assert_eq!(came.failed().len(), PARTS - 1);
    shard.agrees(&program, &came);
}

#[test]
fn a_context_that_died_is_noticed_without_a_request_and_without_nvml() {
    for (open, says) in [(nvml as fn() -> _, 0), (no_nvml, 1)] {
        let watched = watched(&["", "fault=cuStreamQuery:3+:214"], open);
        let second = watched.ordinal(1);
        let came = watched.until(|said| matches!(said, Said::Found(_, Finding::Sticky(_), true)));
        let Some(Said::Found(ordinal, Finding::Sticky(why), _)) = came.last() else { panic!("{came:?}") };
        assert!(*ordinal == second && why.contains("ECC"), "{why}");
        // Once, however many probes follow.
        let after = [watched.probed(), watched.probed(), watched.probed()].concat();
        assert!(after.iter().all(|said| matches!(said, Said::Probed(..))), "{after:?}");
        assert_eq!(came.iter().filter(|said| **said == Said::NoNvml).count(), says);
        assert_eq!((watched.losses(), watched.launches()), (vec![(second, 1)], vec![0, 0]));
    }
}

#[test]
fn slowness_and_rows_to_replace_are_reported_and_end_nothing() {
    let watched = watched(&["throttle=hot+slowdown+cap"], nvml);
    let own = watched.ordinal(0);
    let by = |reason| Finding::Throttled(reason);
    let came = watched.until(|said| *said == Said::Found(own, by(Throttle::HotHardware), false));
    assert!(came.contains(&Said::Found(own, by(Throttle::PowerCap), false)), "{came:?}");
    // The limit of power is reached all the time.
    let state = format!("device {own}: slowed by heat beyond what the hardware allows");
    watched.until(|said| *said == Said::Probed(0, state.clone()));
    watched.each[0].set_health("pending=1");
    let came = watched.until(|said| matches!(said, Said::Probed(1, _)));
    assert!(came.contains(&Said::Found(own, Finding::RepairPending, false)), "{came:?}");
    assert!(came.contains(&Said::Over(own, by(Throttle::HotHardware))), "{came:?}");
    assert!(!came.iter().any(|said| matches!(said, Said::Found(_, Finding::Throttled(Throttle::Slowdown), _))));
    let slow = watched.slow.lock().expect("held shortly").clone();
    assert!(slow.contains(&Throttle::HotHardware) && slow.contains(&Throttle::PowerCap), "{slow:?}");
    // An XID of an application, and a device without ECC.
    watched.each[0].set_health("ecc=off xid=31:0");
    watched.until(|said| *said == Said::Found(own, Finding::Xid(31), false));
    assert_eq!(watched.losses(), []);
    watched.each[0].set_health("xid=79:0");
    watched.until(|said| *said == Said::Found(own, Finding::Xid(79), true));
    watched.probed();
    assert_eq!(watched.losses(), [(own, 0)]);
}

#[test]
fn a_slice_answers_for_itself_and_not_for_the_slices_beside_it() {
    let watched = watched(&["slice=1g.10gb:16 memory=10000000 ecc=2 xid=94:0:3"], nvml);
    let own = watched.ordinal(0);
    let facts = watched.fleet.facts();
    assert_eq!((facts.slice.as_deref(), facts.multiprocessors), (Some("1g.10gb"), 16));
    assert!(facts.uuid.starts_with("MIG-") && facts.name.contains(" MIG 1g.10gb"), "{facts:?}");
    let came = watched.until(|said| matches!(said, Said::Probed(..)));
    // The whole GPU's errors are reported; an XID of another instance is not this one's.
    assert_eq!(came[0], Said::Found(own, Finding::Uncorrected(2), false), "{came:?}");
    assert_eq!(came.len(), 2, "{came:?}");
    watched.each[0].set_health("xid=94:0:7");
    watched.until(|said| *said == Said::Found(own, Finding::Xid(94), true));
    watched.probed();
    assert_eq!(watched.losses(), [(own, 0)]);
}

#[test]
fn the_state_of_devices_is_read_once_where_a_user_asks() {
    let (each, fleet) = fleet(&["", "ecc=1 pending=1", "gone=1", "remap_failed=1"], &waits());
    let asked = fleet.executors().iter().map(|executor| (executor.facts().uuid.as_str(), false));
    let states = look_at_health(&Driver::built().search(), asked.chain([("GPU-0", false)])).expect("NVML");
    let of = |at: usize| states[at].as_ref().map(Health::to_string).unwrap_or_else(Clone::clone);
    assert_eq!(of(0), "healthy");
    assert!(of(1).starts_with("quarantined: 1 memory error that could not be corrected; rows"), "{}", of(1));
    assert!(of(2).starts_with("GPU is lost (NVML code 15)"), "{}", of(2));
    assert!(of(3).contains("could not be replaced"), "{}", of(3));
    assert!(of(4).contains("Not Found"), "{}", of(4));
    assert_eq!(each.len(), 4);
}
