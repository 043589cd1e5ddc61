//! Where the time of a batch went: stages with their start and end, as an engine saw them.
//!
//! An engine records, whoever runs it reads: nothing here logs, exports or decides. What is recorded is bounded
//! ([`STAGES_MAX`]); past it, stages are counted and left out.

use std::time::Instant;

/// Most stages that one recorder keeps: a batch has a few of each kind, a shard a few dozen batches.
pub const STAGES_MAX: usize = 1024;

/// A part of a batch's way through an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineStage {
    /// Bars from disk, or from where they are kept, into the layout of the engine.
    Load,
    /// Bars to the memory of a device.
    HostToDevice,
    /// Computing: a kernel of a device, or a fusion group of the CPU engine.
    Kernel,
    /// Results from the memory of a device.
    DeviceToHost,
    /// Results into the form that is sent.
    Encode,
}

impl EngineStage {
    /// As it is named in traces and metrics.
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
    /// What was done.
    pub stage: EngineStage,
    /// Which fusion group or batch, counted from 0.
    pub part: u32,
    /// Bytes read, copied or written; 0 where nobody counted.
    pub bytes: u64,
    /// When it began, by the host's clock. Stages of a device are anchored to it.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// Stages as they were recorded, in order of recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stages {
    spans: Vec<StageSpan>,
    left_out: u64,
}

impl Stages {
    /// Keeps `span`, or counts it once [`STAGES_MAX`] are kept.
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

    /// Takes over what `other` recorded.
    pub fn extend(&mut self, other: &Self) {
        for span in &other.spans {
            self.record(*span);
        }
        self.left_out += other.left_out;
    }

    /// What was kept.
    pub fn spans(&self) -> &[StageSpan] {
        &self.spans
    }

    /// How many were recorded and not kept.
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
