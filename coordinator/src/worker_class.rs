//! Classes of workers, as data: which bits a worker gives is stated in its record, not derived from this build.
//!
//! A class is what the workers' records have in common; with a scan's precision and lowering it is the scan's
//! [`ExecutionClass`]. Coordinators and workers of two releases work together: a scan runs in a class that workers
//! serve, whatever this coordinator would compute itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use trawl_kernels::cuda::{BACKEND_CUDA, Lowering};
use trawl_kernels::{BACKEND_CPU, Precision};
use trawl_wire::WorkerRecord;
use trawl_wire::record::ExecutionClass;
use trawl_worker::execution_class;

/// Known backends; workers of others receive no work.
const BACKENDS: [&str; 2] = [BACKEND_CPU, BACKEND_CUDA];
/// Counters by backend: one for each, after one for what concerns any of them; see [`counter_of`].
pub const BACKEND_COUNTERS: usize = BACKENDS.len() + 1;
/// Threads that a device counts as when capacities are compared. The low end of what was measured on an H100: a scan of
/// 10,000 symbols takes a core some hundred times as long (`benches/results`).
pub const DEVICE_THREADS: u64 = 128;
/// Multiprocessors of the H100 on which that was measured: a slice of a GPU (MIG) has fewer and counts as fewer threads.
const DEVICE_MULTIPROCESSORS: u64 = 132;
/// How many times as long a multiprocessor with few units of `f64` takes for a scan in `f64`: what the static model says of an L4
/// beside that H100 for the screen W1 (docs/gpu.md). Modelled, not measured.
const FEW_F64_UNITS_TIMES: u64 = 12;
/// Separates the numerics of a build from those of a lowering.
const LOWERING_MARK: char = '+';

/// A class of workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerClass {
    /// As [`ExecutionClass::engine`].
    pub engine: String,
    /// As [`ExecutionClass::numerics`], without the lowering.
    pub numerics: String,
    /// As [`ExecutionClass::backend`].
    pub backend: String,
}

impl WorkerClass {
    /// The class of a worker, or of a scan, by its execution class.
    pub fn of(class: &ExecutionClass) -> Self {
        let numerics = class.numerics.split(LOWERING_MARK).next().unwrap_or_default();
        Self { engine: class.engine.clone(), numerics: numerics.to_owned(), backend: class.backend.clone() }
    }

    /// The class of this build on a backend.
    pub fn own(backend: &str) -> Self {
        Self::of(&execution_class()).on(backend)
    }

    /// The class of the same build on another backend.
    pub fn on(&self, backend: &str) -> Self {
        Self { backend: backend.to_owned(), ..self.clone() }
    }

    /// Whether it gives the bits of this build's CPU: the coordinator computes with those itself.
    pub fn has_own_numerics(&self) -> bool {
        let own = Self::own(&self.backend);
        (&self.engine, &self.numerics) == (&own.engine, &own.numerics)
    }

    /// The numerics of a scan of this class with a lowering.
    pub fn numerics_of(&self, lowering: Lowering) -> String {
        match lowering.numerics().split_once(LOWERING_MARK) {
            Some((_, suffix)) => format!("{}{LOWERING_MARK}{suffix}", self.numerics),
            None => self.numerics.clone(),
        }
    }

    /// Whether its backend is known here.
    pub fn is_known(&self) -> bool {
        is_backend(&self.backend)
    }
}

impl std::fmt::Display for WorkerClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.engine, self.numerics, self.backend)
    }
}

/// The index of a backend among [`BACKEND_COUNTERS`]; 0 for none, or one that is not known.
pub fn counter_of(backend: Option<&str>) -> usize {
    backend.and_then(|name| BACKENDS.iter().position(|known| *known == name)).map_or(0, |place| place + 1)
}

/// Whether this is the name of a backend.
pub fn is_backend(name: &str) -> bool {
    BACKENDS.contains(&name)
}

/// What a scan asks of the class that it runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassNeeds {
    /// The precision of the scan. Devices of other builds may compute in `f64` only.
    pub precision: Precision,
    /// Whether the coordinator computes a part of the answer, a cross-section: only with its own numerics.
    pub own_numerics: bool,
    /// The only backend to take, if the user or the cluster names one.
    pub backend: Option<String>,
    /// Classes whose workers cannot run the scan's document.
    pub unfit: Vec<WorkerClass>,
}

impl ClassNeeds {
    /// Whether a scan may run in a class.
    pub fn admit(&self, class: &WorkerClass) -> bool {
        let device = class.backend != BACKEND_CPU;
        class.is_known()
            && (self.precision == Precision::F64 || !device || class.has_own_numerics())
            && (!self.own_numerics || class.has_own_numerics())
            && self.backend.as_ref().is_none_or(|wanted| *wanted == class.backend)
            && !self.unfit.contains(class)
    }
}

impl std::fmt::Display for ClassNeeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.backend {
            Some(backend) => write!(f, "backend {backend}")?,
            None => f.write_str("any backend")?,
        }
        if self.own_numerics {
            let own = WorkerClass::own(BACKEND_CPU);
            write!(f, " of {} {}", own.engine, own.numerics)?;
        }
        Ok(())
    }
}

/// Threads that a worker's devices count as: [`DEVICE_THREADS`] each, less if they have fewer multiprocessors, but at least those of
/// its CPU. With few units for the precision they count as what they do, which may be less than its CPU does.
fn threads_of(record: &WorkerRecord, precision: Precision) -> u64 {
    let threads = u64::from(record.threads.max(1));
    let Some(devices) = &record.device else { return threads.max(DEVICE_THREADS) };
    let most = u64::from(devices.count.max(1)) * DEVICE_THREADS;
    let counted = match u64::from(devices.multiprocessors) {
        0 => most,
        multiprocessors => (multiprocessors * DEVICE_THREADS / DEVICE_MULTIPROCESSORS).min(most),
    };
    if devices.has_few_f64_units && precision == Precision::F64 {
        (counted / FEW_F64_UNITS_TIMES).max(1)
    } else {
        counted.max(threads)
    }
}

/// The class in which a scan starts: of those that serve and that it may run in, the one with the most capacity. `None`
/// if none serves. Every worker also computes on its CPU.
pub fn choose<'a>(serving: impl Iterator<Item = &'a WorkerRecord>, needs: &ClassNeeds) -> Option<WorkerClass> {
    let mut capacity: BTreeMap<WorkerClass, u64> = BTreeMap::new();
    for record in serving {
        let class = WorkerClass::of(&record.class);
        let threads = u64::from(record.threads.max(1));
        let cpu = class.on(BACKEND_CPU);
        if class != cpu && needs.admit(&class) {
            *capacity.entry(class).or_default() += threads_of(record, needs.precision);
        }
        if needs.admit(&cpu) {
            *capacity.entry(cpu).or_default() += threads;
        }
    }
    let rank = |class: &WorkerClass| BACKENDS.iter().position(|backend| *backend == class.backend);
    let best = capacity
        .into_iter()
        .max_by_key(|(class, capacity)| (*capacity, class.has_own_numerics(), rank(class), Reverse(class.clone())));
    best.map(|(class, _)| class)
}

#[cfg(test)]
mod tests {
    use trawl_wire::record::DeviceRecord;

    use super::*;

    fn worker(numerics: &str, backend: &str, threads: u32) -> WorkerRecord {
        let class = ExecutionClass { numerics: numerics.to_owned(), backend: backend.to_owned(), ..execution_class() };
        WorkerRecord {
            id: format!("{numerics}{backend}{threads}"),
            address: "127.0.0.1:1".to_owned(),
            boot: "b".to_owned(),
            protocol_version: 1,
            protocol_oldest: 0,
            result_schema: String::new(),
            result_schemas_earlier: Vec::new(),
            class,
            threads,
            cache_bytes: 0,
            device: None,
            draining: false,
        }
    }

    fn needs() -> ClassNeeds {
        ClassNeeds { precision: Precision::F64, own_numerics: false, backend: None, unfit: Vec::new() }
    }

    fn chosen(workers: &[WorkerRecord], needs: &ClassNeeds) -> Option<(String, String)> {
        choose(workers.iter(), needs).map(|class| (class.numerics, class.backend))
    }

    #[test]
    fn the_class_with_the_most_capacity_is_chosen_whatever_build_it_is_of() {
        let own = execution_class().numerics;
        let pair = |numerics: &str, backend: &str| Some((numerics.to_owned(), backend.to_owned()));
        assert_eq!(chosen(&[], &needs()), None);
        let (cpu, cuda) = (worker(&own, "cpu", 16), worker(&own, "cuda", 8));
        assert_eq!(chosen(&[cpu.clone(), cuda.clone()], &needs()), pair(&own, "cuda"), "one device for one CPU");
        let many = [vec![cpu.clone(); 100], vec![cuda.clone()]].concat();
        assert_eq!(chosen(&many, &needs()), pair(&own, "cpu"), "not one device for a hundred CPUs");
        let sixteen = WorkerRecord {
            device: Some(DeviceRecord {
                name: "16 x d".to_owned(),
                memory_bytes: 1,
                count: 16,
                multiprocessors: 0,
                has_few_f64_units: false,
                health: String::new(),
            }),
            ..cuda.clone()
        };
        let many = [vec![cpu.clone(); 100], vec![sixteen]].concat();
        assert_eq!(chosen(&many, &needs()), pair(&own, "cuda"), "but sixteen devices of one worker");
        let of_kind = |multiprocessors, has_few_f64_units| {
            let (name, health) = ("d".to_owned(), String::new());
            Some(DeviceRecord { name, memory_bytes: 1, count: 1, multiprocessors, has_few_f64_units, health })
        };
        let devices = |multiprocessors| of_kind(multiprocessors, false);
        // The CPU of its worker counts beside the other one: 24 threads.
        for (multiprocessors, backend) in [(132, "cuda"), (26, "cuda"), (24, "cpu"), (0, "cuda")] {
            let slice = WorkerRecord { device: devices(multiprocessors), ..cuda.clone() };
            assert_eq!(chosen(&[cpu.clone(), slice], &needs()), pair(&own, backend), "{multiprocessors}");
        }
        // An L4 has the f64 of four threads: less than the CPU beside it, which the class of the CPU has too.
        let l4 = WorkerRecord { device: of_kind(58, true), ..cuda };
        assert_eq!(chosen(std::slice::from_ref(&l4), &needs()), pair(&own, "cpu"));
        let in_f32 = ClassNeeds { precision: Precision::F32, ..needs() };
        assert_eq!(chosen(std::slice::from_ref(&l4), &in_f32), pair(&own, "cuda"));
        let wanted = ClassNeeds { backend: Some("cuda".to_owned()), ..needs() };
        assert_eq!(chosen(&[l4, cpu.clone()], &wanted), pair(&own, "cuda"), "who asks for it gets it");
        let earlier = [worker("n0", "cpu", 16), worker("n0", "cpu", 16), cpu.clone()];
        assert_eq!(chosen(&earlier, &needs()), pair("n0", "cpu"));
        let equal = [worker("n0", "cpu", 16), worker("zz", "cpu", 16), cpu];
        assert_eq!(chosen(&equal, &needs()), pair(&own, "cpu"), "of equal ones this build's");
    }

    #[test]
    fn what_a_scan_needs_is_kept() {
        let own = execution_class().numerics;
        let workers = [worker("n0", "cpu", 64), worker(&own, "cpu", 1), worker(&own, "cuda", 4)];
        let with = |backend: Option<&str>, own_numerics, precision| ClassNeeds {
            precision,
            own_numerics,
            backend: backend.map(str::to_owned),
            unfit: Vec::new(),
        };
        let pair = |numerics: &str, backend: &str| Some((numerics.to_owned(), backend.to_owned()));
        assert_eq!(chosen(&workers, &with(Some("cpu"), false, Precision::F64)), pair("n0", "cpu"));
        assert_eq!(chosen(&workers, &with(Some("cpu"), true, Precision::F64)), pair(&own, "cpu"));
        assert_eq!(chosen(&workers, &with(None, true, Precision::F32)), pair(&own, "cuda"));
        let others = [worker("n0", "cuda", 4)];
        assert_eq!(chosen(&others, &with(None, false, Precision::F64)), pair("n0", "cuda"));
        let may_lack_it = "devices of another build may have no f32";
        assert_eq!(chosen(&others, &with(None, false, Precision::F32)), pair("n0", "cpu"), "{may_lack_it}");
        assert_eq!(chosen(&workers, &with(Some("vulkan"), false, Precision::F64)), None);
        assert_eq!(chosen(&[worker(&own, "vulkan", 4)], &needs()), pair(&own, "cpu"), "its CPU is known");
        let unfit = vec![WorkerClass { numerics: "n0".to_owned(), ..WorkerClass::own("cpu") }];
        assert_eq!(chosen(&workers[..2], &ClassNeeds { unfit, ..needs() }), pair(&own, "cpu"));
    }

    #[test]
    fn the_class_of_a_scan_is_without_its_lowering_and_gets_it_back() {
        let class = ExecutionClass { numerics: Lowering::Chunks.numerics(), ..execution_class() };
        let of = WorkerClass::of(&class);
        assert_eq!(of, WorkerClass::of(&execution_class()));
        assert_eq!(of.numerics_of(Lowering::Chunks), class.numerics);
        assert_eq!(of.numerics_of(Lowering::Serial), execution_class().numerics);
        let other = WorkerClass { numerics: "n0".to_owned(), ..of };
        assert!(other.numerics_of(Lowering::Chunks).starts_with("n0+"));
        assert!(!other.has_own_numerics());
    }
}
