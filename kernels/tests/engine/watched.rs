//! A device of the test driver, opened as NVIDIA's are, whose calls a test watches: it can hold the compiler at a kernel, and wait
//! less patiently.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{
    Cuda, Device, Facts, Fault, Function, Kernel, Launch, LaunchGraphs, Lowered, Mark, Memory, Place, Pointers,
    Staging, Stream, Urgency,
};
use trawl_test_driver::{Counts, TestDevice};

/// See the module.
#[derive(Debug)]
pub struct Watched {
    cuda: Cuda,
    test: TestDevice,
    /// The longest wait for a mark.
    patience: Duration,
    has_graphs: bool,
    seen: Mutex<Seen>,
    let_go: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    held: BTreeSet<u128>,
    compiled: u64,
    loaded: u64,
    plain: u64,
    launched: Vec<u128>,
}

impl Watched {
    /// A device with these settings of the test driver.
    pub fn new(settings: &str) -> Self {
        let test = TestDevice::new(settings);
        let (seen, let_go) = (Mutex::default(), Condvar::new());
        Self { cuda: test.open(), test, patience: Duration::MAX, has_graphs: true, seen, let_go }
    }

    /// The same device, of a driver that has no graphs.
    pub fn without_graphs(self) -> Self {
        Self { has_graphs: false, ..self }
    }

    /// The same device, whose waits end after `patience` at the latest.
    pub fn impatient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no test died with it")
    }

    /// What the driver counted.
    pub fn counts(&self) -> Counts {
        self.test.counts()
    }

    /// Number of calls of a function of the driver.
    pub fn calls(&self, function: &str) -> u64 {
        self.test.calls(function)
    }

    /// Number of kernels that were loaded, or are being loaded: their code is in the cache.
    pub fn loaded(&self) -> u64 {
        self.seen().loaded
    }

    /// Number of launches of kernels that are no plan's.
    pub fn plain(&self) -> u64 {
        self.seen().plain
    }

    /// Number of kernels compiled.
    pub fn compiled(&self) -> u64 {
        self.seen().compiled
    }

    /// Fingerprints of the kernels launched since the last call, in order.
    pub fn take_launched(&self) -> Vec<u128> {
        std::mem::take(&mut self.seen().launched)
    }

    /// Makes the compiler wait at this kernel until [`Self::let_go`].
    pub fn hold(&self, fingerprint: u128) {
        self.seen().held.insert(fingerprint);
    }

    /// Releases all waiting compilations.
    pub fn let_go(&self) {
        self.seen().held.clear();
        self.let_go.notify_all();
    }

    /// Releases them when it is dropped: an executor waits for its compilations, also where an assertion fails.
    pub fn letting_go(&self) -> LetGo<'_> {
        LetGo(self)
    }
}

/// See [`Watched::letting_go`].
pub struct LetGo<'d>(&'d Watched);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl Device for Watched {
    fn facts(&self) -> &Facts {
        self.cuda.facts()
    }

    fn now(&self) -> Instant {
        self.cuda.now()
    }

    fn free_bytes(&self) -> Result<u64, Fault> {
        self.cuda.free_bytes()
    }

    fn probe(&self) -> Result<(), Fault> {
        self.cuda.probe()
    }

    fn trim(&self) -> Result<(), Fault> {
        self.cuda.trim()
    }

    fn stream(&self, urgency: Urgency) -> Result<Stream, Fault> {
        self.cuda.stream(urgency)
    }

    fn stage(&self, cells: usize) -> Result<Staging, Fault> {
        self.cuda.stage(cells)
    }

    fn unstage(&self, staging: Staging) {
        self.cuda.unstage(staging);
    }

    fn host_bytes(&self) -> u64 {
        self.cuda.host_bytes()
    }

    fn fill(&self, staging: &mut Staging, at: usize, cells: usize, work: &mut dyn FnMut(&mut [u64])) {
        self.cuda.fill(staging, at, cells, work);
    }

    fn read(&self, staging: &Staging, at: usize, cells: usize, work: &mut dyn FnMut(&[u64])) {
        self.cuda.read(staging, at, cells, work);
    }

    fn allocate(&self, stream: Stream, cells: usize) -> Result<Memory, Fault> {
        self.cuda.allocate(stream, cells)
    }

    fn allocate_shared(&self, place: Place, cells: usize) -> Result<Memory, Fault> {
        self.cuda.allocate_shared(place, cells)
    }

    fn write(&self, memory: &mut Memory, work: &mut dyn FnMut(&mut [u64])) {
        self.cuda.write(memory, work);
    }

    fn prefetch(&self, stream: Stream, memory: &Memory) -> Result<(), Fault> {
        self.cuda.prefetch(stream, memory)
    }

    fn release(&self, stream: Stream, memory: Memory) {
        self.cuda.release(stream, memory);
    }

    fn copy_in(
        &self,
        stream: Stream,
        from: (&Staging, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        self.cuda.copy_in(stream, from, to, cells)
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Staging, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        self.cuda.copy_out(stream, from, to, cells)
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        self.cuda.copy_within(stream, from, to, cells)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault> {
        let mut seen = self.seen();
        while seen.held.contains(&kernel.fingerprint) {
            seen = self.let_go.wait(seen).expect("no test died with it");
        }
        drop(seen);
        let made = self.cuda.compile(kernel)?;
        self.seen().compiled += 1;
        Ok(made)
    }

    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault> {
        self.seen().loaded += 1;
        self.cuda.load(kernel, code)
    }

    fn launch(
        &self,
        stream: Stream,
        function: Function,
        lowered: &Lowered,
        launch: &Launch,
        pointers: &Pointers,
    ) -> Result<(), Fault> {
        self.seen().launched.push(lowered.kernel.fingerprint);
        self.cuda.launch(stream, function, lowered, launch, pointers)
    }

    fn launch_plain(
        &self,
        stream: Stream,
        function: Function,
        size: (usize, usize),
        argument: &[u64],
    ) -> Result<(), Fault> {
        self.seen().plain += 1;
        self.cuda.launch_plain(stream, function, size, argument)
    }

    fn graphs(&self) -> Option<&dyn LaunchGraphs> {
        self.cuda.graphs().filter(|_| self.has_graphs)
    }

    fn mark(&self, stream: Stream) -> Result<Mark, Fault> {
        self.cuda.mark(stream)
    }

    fn wait(&self, mark: &Mark, until: Instant) -> Result<bool, Fault> {
        let until = self.now().checked_add(self.patience).map_or(until, |end| end.min(until));
        self.cuda.wait(mark, until)
    }

    fn time(&self, mark: &Mark) -> Result<Instant, Fault> {
        self.cuda.time(mark)
    }

    fn between(&self, first: &Mark, last: &Mark) -> Result<Duration, Fault> {
        self.cuda.between(first, last)
    }

    fn forget(&self, mark: Mark) {
        self.cuda.forget(mark);
    }
}
