//! Timing of a batch: stages with their start and end, as recorded by an engine.
//!
//! An engine records and its caller reads; nothing here logs, exports or decides. At most [`STAGES_MAX`] stages are
//! kept; further ones are only counted.

use std::time::Instant;

/// Maximum number of stages kept by one recorder: a batch has a few of each kind, a shard a few dozen batches.
pub const STAGES_MAX: usize = 1024;

/// A phase of a batch in an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineStage {
    /// Loading bars from disk or a cache into the engine's layout.
    Load,
    /// Copying bars to device memory.
    HostToDevice,
    /// Computing: a kernel of a device, or a fusion group of the CPU engine.
    Kernel,
    /// Copying results from device memory.
    DeviceToHost,
    /// Encoding results for transport.
    Encode,
}

impl EngineStage {
    /// The name of this variant in traces and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::HostToDevice => "h2d",
            Self::Kernel => "kernel",
            Self::DeviceToHost => "d2h",
            Self::Encode => "encode",
        }
    }
}

/// One stage of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSpan {
    /// Which phase it is.
    pub stage: EngineStage,
    /// Index of the fusion group or batch, from 0.
    pub part: u32,
    /// Bytes read, copied or written; 0 if not measured.
    pub bytes: u64,
    /// Start, by the host's clock; device timings are anchored to it.
    pub started: Instant,
    /// End, by the same clock.
    pub ended: Instant,
}

/// Kernels of a device, and the calls that launched them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Launches {
    /// Kernels that were launched.
    pub kernels: u64,
    /// Calls that launched them.
    pub calls: u64,
}

impl Launches {
    /// Launches that graphs saved.
    pub fn saved(self) -> u64 {
        self.kernels.saturating_sub(self.calls)
    }
}

/// A request that a lost device had begun, and the device that computed it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceMove {
    /// The driver's number of the lost device.
    pub from: usize,
    /// That of the other one.
    pub to: usize,
}

/// Recorded stages, in order of recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stages {
    spans: Vec<StageSpan>,
    left_out: u64,
    launches: Launches,
    moves: Vec<DeviceMove>,
}

impl Stages {
    /// Keeps `span`, or only counts it once [`STAGES_MAX`] spans are kept.
    pub fn record(&mut self, span: StageSpan) {
        if self.spans.len() < STAGES_MAX {
            self.spans.push(span);
        } else {
            self.left_out += 1;
        }
    }

    /// Runs `work` and records it as `stage`.
    pub fn time<T>(&mut self, stage: EngineStage, part: u32, bytes: u64, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        self.record(StageSpan { stage, part, bytes, started, ended: Instant::now() });
        done
    }

    /// Appends the stages recorded by `other`.
    pub fn extend(&mut self, other: &Self) {
        for span in &other.spans {
            self.record(*span);
        }
        self.left_out += other.left_out;
        self.launched(other.launches);
        other.moves.iter().for_each(|moved| self.moved(*moved));
    }

    /// Keeps that a request was computed again, unless [`STAGES_MAX`] such are kept.
    pub fn moved(&mut self, moved: DeviceMove) {
        if self.moves.len() < STAGES_MAX {
            self.moves.push(moved);
        }
    }

    /// What lost devices had begun, and which computed it again.
    pub fn moves(&self) -> &[DeviceMove] {
        &self.moves
    }

    /// Counts kernels that were launched.
    pub fn launched(&mut self, more: Launches) {
        self.launches.kernels += more.kernels;
        self.launches.calls += more.calls;
    }

    /// The kernels launched, and the calls that it took.
    pub fn launches(&self) -> Launches {
        self.launches
    }

    /// Gives every batch another number.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        self.spans.iter_mut().for_each(|span| span.part = number(span.part));
    }

    /// The stages kept.
    pub fn spans(&self) -> &[StageSpan] {
        &self.spans
    }

    /// Number of stages recorded but not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_counted() {
        let mut stages = Stages::default();
        for part in 0..STAGES_MAX as u32 {
            assert_eq!(stages.time(EngineStage::Kernel, part, 8, || part), part);
        }
        let mut more = Stages::default();
        more.time(EngineStage::Load, 0, 0, || ());
        stages.extend(&more);
        assert_eq!((stages.spans().len(), stages.left_out()), (STAGES_MAX, 1));
        assert!(stages.spans().iter().all(|s| s.stage == EngineStage::Kernel && s.started <= s.ended));
    }
}
