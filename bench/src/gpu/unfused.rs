//! A device whose compiler refuses some kernels. With a plan's fused ones refused, the plan is computed a primitive at a time for
//! as long as one likes: a new plan's first answers come from these kernels.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{
    Device, Facts, Fault, Function, Kernel, Launch, LaunchGraphs, Lowered, Mark, Memory, Place, Pointers, Sequence,
    Staging, Stream, Urgency,
};
use trawl_plan::Program;

/// See the module.
#[derive(Debug)]
pub(super) struct Unfused {
    device: Arc<dyn Device>,
    refused: Mutex<HashSet<u128>>,
}

fn kernels(sequence: &Sequence) -> BTreeSet<u128> {
    sequence.calls.iter().map(|call| call.lowered.kernel.fingerprint).collect()
}

impl Unfused {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, refused: Mutex::default() }
    }

    /// Refuses the fused kernels of a program from now on. False where there are none: its kernels are those of its primitives.
    ///
    /// # Errors
    /// A program that has no kernels.
    pub(super) fn refuse_fused(&self, program: &Program) -> Result<bool, Fault> {
        let apart = kernels(&Sequence::apart(program)?);
        let fused = kernels(&Sequence::fused(program)?);
        let refused: Vec<u128> = fused.difference(&apart).copied().collect();
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).extend(&refused);
        Ok(!refused.is_empty())
    }
}

impl Device for Unfused {
    fn facts(&self) -> &Facts {
        self.device.facts()
    }

    fn now(&self) -> Instant {
        self.device.now()
    }

    fn free_bytes(&self) -> Result<u64, Fault> {
        self.device.free_bytes()
    }

    fn probe(&self) -> Result<(), Fault> {
        self.device.probe()
    }

    fn trim(&self) -> Result<(), Fault> {
        self.device.trim()
    }

    fn stream(&self, urgency: Urgency) -> Result<Stream, Fault> {
        self.device.stream(urgency)
    }

    fn stage(&self, cells: usize) -> Result<Staging, Fault> {
        self.device.stage(cells)
    }

    fn unstage(&self, staging: Staging) {
        self.device.unstage(staging);
    }

    fn host_bytes(&self) -> u64 {
        self.device.host_bytes()
    }

    fn fill(&self, staging: &mut Staging, at: usize, cells: usize, work: &mut dyn FnMut(&mut [u64])) {
        self.device.fill(staging, at, cells, work);
    }

    fn read(&self, staging: &Staging, at: usize, cells: usize, work: &mut dyn FnMut(&[u64])) {
        self.device.read(staging, at, cells, work);
    }

    fn allocate(&self, stream: Stream, cells: usize) -> Result<Memory, Fault> {
        self.device.allocate(stream, cells)
    }

    fn allocate_shared(&self, place: Place, cells: usize) -> Result<Memory, Fault> {
        self.device.allocate_shared(place, cells)
    }

    fn write(&self, memory: &mut Memory, work: &mut dyn FnMut(&mut [u64])) {
        self.device.write(memory, work);
    }

    fn prefetch(&self, stream: Stream, memory: &Memory) -> Result<(), Fault> {
        self.device.prefetch(stream, memory)
    }

    fn release(&self, stream: Stream, memory: Memory) {
        self.device.release(stream, memory);
    }

    fn copy_in(
        &self,
        stream: Stream,
        from: (&Staging, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        self.device.copy_in(stream, from, to, cells)
    }

    fn copy_out(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Staging, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        self.device.copy_out(stream, from, to, cells)
    }

    fn copy_within(
        &self,
        stream: Stream,
        from: (&Memory, usize),
        to: (&Memory, usize),
        cells: usize,
    ) -> Result<(), Fault> {
        self.device.copy_within(stream, from, to, cells)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Vec<u8>, Fault> {
        if self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&kernel.fingerprint) {
            return Err(Fault::Failed("a fused kernel, which is not wanted here".to_owned()));
        }
        self.device.compile(kernel)
    }

    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault> {
        self.device.load(kernel, code)
    }

    fn launch(
        &self,
        stream: Stream,
        function: Function,
        lowered: &Lowered,
        launch: &Launch,
        pointers: &Pointers,
    ) -> Result<(), Fault> {
        self.device.launch(stream, function, lowered, launch, pointers)
    }

    fn launch_plain(
        &self,
        stream: Stream,
        function: Function,
        size: (usize, usize),
        argument: &[u64],
    ) -> Result<(), Fault> {
        self.device.launch_plain(stream, function, size, argument)
    }

    fn graphs(&self) -> Option<&dyn LaunchGraphs> {
        self.device.graphs()
    }

    fn mark(&self, stream: Stream) -> Result<Mark, Fault> {
        self.device.mark(stream)
    }

    fn wait(&self, mark: &Mark, until: Instant) -> Result<bool, Fault> {
        self.device.wait(mark, until)
    }

    fn time(&self, mark: &Mark) -> Result<Instant, Fault> {
        self.device.time(mark)
    }

    fn between(&self, first: &Mark, last: &Mark) -> Result<Duration, Fault> {
        self.device.between(first, last)
    }

    fn forget(&self, mark: Mark) {
        self.device.forget(mark);
    }
}
