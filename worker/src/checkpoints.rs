//! States of a scan's symbols that are kept for its next run, and their encoding.
//!
//! A checkpoint is the state of one piece of the plan for one symbol, with a digest of the series that entered it. It
//! is used only if those series are unchanged, so it affects how much is computed and never the result. Nothing here
//! knows of files or folders.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use trawl_kernels::{Executable, State};
use trawl_plan::frame::{BarSize, Subject};
use trawl_plan::{FrameProgram, Input, Plan, Stage};
use twox_hash::xxhash3_128::Hasher;

use crate::executable::ExecutablePlan;
use crate::execution_class_in;

/// A checkpoint is taken this many bars before the first wanted one, since the last bars may still be corrected.
pub const OPEN_BARS: usize = 5;
/// Maximum bytes of a state file.
pub const STATE_BYTES_MAX: u64 = 4 << 30;

/// The first bytes of a file, with the version of what follows.
const MAGIC: &[u8; 8] = b"TRAWLST1";
const CHECKSUM_BYTES: usize = 16;

/// Stage, piece within it, symbol.
type Key = (u32, u32, String);

/// A saved state, and a digest of its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Digest of the series that enter the state, up to its bar; see [`digest`].
    pub digest: u128,
    /// The engine's state.
    pub state: State,
}

/// The outcome of a symbol in an update, from the cheapest to the most expensive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It resumed from its state.
    Resumed,
    /// No state was kept: a new listing, or the first run.
    New,
    /// Bars before its state are wanted.
    Earlier,
    /// Bars that entered its state have changed: a correction or a split.
    Changed,
}

impl Outcome {
    /// The name of this variant in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::New => "no state was kept",
            Self::Earlier => "earlier bars are wanted",
            Self::Changed => "its past has changed",
        }
    }
}

/// Why bytes are not a usable state. Without it only time is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Truncated, or changed since it was written.
    #[error("the state is damaged")]
    Damaged,
    /// Written by another version of the program, or for other arithmetic.
    #[error("the state was kept by another engine ({found})")]
    Engine {
        /// The engine that wrote it.
        found: String,
    },
    /// Written for another scan: the caller passed the wrong file.
    #[error("the state is of another {what}: '{found}'")]
    Other {
        /// `scan`, `dataset` or `precision`.
        what: &'static str,
        /// What the state names.
        found: String,
    },
}

/// States of one plan's symbols: those of the previous run and those of this run. Shared by all threads.
#[derive(Debug)]
pub struct Checkpoints {
    plan: String,
    dataset: String,
    /// The engine and its numerics, which upgrades may change.
    engine: String,
    /// Precision of the arithmetic.
    precision: String,
    /// Layout of the states of the plan's pieces.
    layout: String,
    /// `[stage][piece]`: why the piece keeps no state, if it does not.
    refused: Vec<Vec<Option<&'static str>>>,
    before: BTreeMap<Key, Checkpoint>,
    after: Mutex<BTreeMap<Key, Checkpoint>>,
    outcomes: Mutex<BTreeMap<String, Outcome>>,
}

/// A panicked thread only loses its own segment; entries of other threads are still valid.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a piece keeps no state; an empty text if it needs none.
fn refusal(plan: &Plan, piece: &FrameProgram, executable: &Executable) -> Option<&'static str> {
    let frame = &plan.frames[piece.frame.index()];
    let entering = executable.inputs.iter().zip(executable.carried_inputs()).filter(|(_, enters)| **enters);
    let mut entering = entering.map(|(input, _)| input);
    if executable.carried_layout().is_empty() {
        return Some("");
    }
    if plan.history.is_some() {
        return Some("a limited history begins at another bar each time");
    }
    if frame.subject != Subject::Own {
        return Some("bars of a reference");
    }
    if frame.bars != BarSize::Base {
        return Some("bars of a higher timeframe");
    }
    entering.find_map(|input| match input {
        Input::Read { .. } => Some("a running value reads other bars than the symbol's own"),
        Input::Cross(_) => Some("a running value reads a cross-section"),
        _ => None,
    })
}

impl Checkpoints {
    /// Checkpoints without states, for the first run.
    pub fn new(executable: &ExecutablePlan, dataset: &str) -> Self {
        let plan = executable.plan();
        let refused_of = |(number, stage): (usize, &Stage)| {
            let pieces = stage.pieces.iter().zip(executable.stage(number));
            pieces.map(|(piece, executable)| refusal(plan, piece, executable)).collect()
        };
        let refused = plan.stages().iter().enumerate().map(refused_of).collect();
        let layouts: String = executable.pieces().map(|piece| format!("{}|", piece.carried_layout())).collect();
        let class = execution_class_in(executable.precision());
        let engine = [class.engine, class.numerics, class.backend].join(" ");
        let layout = format!("{:032x}", twox_hash::XxHash3_128::oneshot(layouts.as_bytes()));
        Self {
            plan: executable.fingerprint().to_owned(),
            dataset: dataset.to_owned(),
            engine,
            precision: class.precision,
            layout,
            refused,
            before: BTreeMap::new(),
            after: Mutex::default(),
            outcomes: Mutex::default(),
        }
    }

    /// Loads the states of an earlier run of the same plan over the same dataset.
    ///
    /// # Errors
    /// [`StateError`]; `self` is then unchanged.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let damaged = || StateError::Damaged;
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(damaged)?;
        let (content, checksum) = bytes.split_at(end);
        if checksum != twox_hash::XxHash3_128::oneshot(content).to_le_bytes() {
            return Err(StateError::Damaged);
        }
        let mut reader = Reader(content);
        if reader.take(MAGIC.len()).ok_or_else(damaged)? != MAGIC {
            return Err(StateError::Engine { found: "another format".to_owned() });
        }
        let mut text = || reader.text().ok_or_else(damaged);
        let (plan, dataset, engine, precision, layout) = (text()?, text()?, text()?, text()?, text()?);
        if engine != self.engine {
            return Err(StateError::Engine { found: engine });
        }
        if dataset != self.dataset {
            return Err(StateError::Other { what: "dataset", found: dataset });
        }
        if plan != self.plan {
            return Err(StateError::Other { what: "scan", found: plan });
        }
        if precision != self.precision {
            return Err(StateError::Other { what: "precision", found: precision });
        }
        if layout != self.layout {
            return Err(StateError::Engine { found: engine });
        }
        let mut before = BTreeMap::new();
        for _ in 0..reader.u64().ok_or_else(damaged)? {
            let (key, checkpoint) = reader.entry().ok_or_else(damaged)?;
            before.insert(key, checkpoint);
        }
        if !reader.0.is_empty() {
            return Err(StateError::Damaged);
        }
        self.before = before;
        Ok(())
    }

    /// Encodes for [`Self::read`] the states of this run, and earlier states of symbols without a bar in it for which
    /// `exists` returns `true`.
    pub fn write(&self, exists: impl Fn(&str) -> bool) -> Vec<u8> {
        let after = held(&self.after);
        let idle = self.before.iter().filter(|(key, _)| !after.contains_key(*key));
        let all: BTreeMap<&Key, &Checkpoint> = after.iter().chain(idle).filter(|(key, _)| exists(&key.2)).collect();
        let mut bytes = MAGIC.to_vec();
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        let identity = [&self.plan, &self.dataset, &self.engine, &self.precision, &self.layout];
        identity.into_iter().for_each(|t| text(&mut bytes, t));
        bytes.extend((all.len() as u64).to_le_bytes());
        for ((stage, piece, symbol), Checkpoint { digest, state }) in all {
            bytes.extend(stage.to_le_bytes());
            bytes.extend(piece.to_le_bytes());
            text(&mut bytes, symbol);
            bytes.extend(digest.to_le_bytes());
            bytes.extend((state.bars as u64).to_le_bytes());
            bytes.extend((state.words.len() as u64).to_le_bytes());
            state.words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        let checksum = twox_hash::XxHash3_128::oneshot(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Whether a piece of a stage keeps states.
    pub(crate) fn keeps(&self, stage: usize, piece: usize) -> bool {
        self.refused.get(stage).and_then(|pieces| pieces.get(piece)).is_some_and(Option::is_none)
    }

    pub(crate) fn of(&self, stage: usize, piece: usize, symbol: &str) -> Option<&Checkpoint> {
        self.before.get(&(stage as u32, piece as u32, symbol.to_owned()))
    }

    /// Records the outcome of a symbol in one piece; the worst over all pieces counts. Of several states in one run the
    /// earliest is kept, from which all can resume.
    pub(crate) fn keep(&self, stage: usize, piece: usize, symbol: &str, outcome: Outcome, kept: Option<Checkpoint>) {
        let mut outcomes = held(&self.outcomes);
        let known = outcomes.entry(symbol.to_owned()).or_insert(outcome);
        *known = (*known).max(outcome);
        let Some(kept) = kept else { return };
        let mut after = held(&self.after);
        let key = (stage as u32, piece as u32, symbol.to_owned());
        if after.get(&key).is_none_or(|known| kept.state.bars < known.state.bars) {
            after.insert(key, kept);
        }
    }

    /// Number of symbols by outcome, among those with a bar and a state to keep.
    pub fn outcomes(&self) -> BTreeMap<Outcome, u64> {
        let mut counts = BTreeMap::new();
        held(&self.outcomes).values().for_each(|outcome| *counts.entry(*outcome).or_default() += 1);
        counts
    }

    /// Whether no part of the plan has a state: no value runs on from bar to bar.
    pub fn are_needless(&self) -> bool {
        self.refused.iter().flatten().all(|refused| *refused == Some(""))
    }

    /// Why parts of the plan are computed from the first bar every time, each reason once.
    pub fn refusals(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.refused.iter().flatten().flatten().copied().filter(|r| !r.is_empty()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Number of values passed to the hash at a time.
const HASHED_TOGETHER: usize = 256;

/// Digests of the first bars of some series, for ascending numbers of bars. Detects accidental changes, not deliberate
/// collisions.
pub(crate) struct Digests<'a> {
    series: Vec<(&'a [f64], Hasher)>,
    bars: usize,
}

impl<'a> Digests<'a> {
    pub fn new(series: impl Iterator<Item = &'a [f64]>) -> Self {
        Self { series: series.map(|s| (s, Hasher::new())).collect(), bars: 0 }
    }

    /// The digest of the first `bars` bars; `bars` must not decrease between calls.
    pub fn of(&mut self, bars: usize) -> u128 {
        let mut whole = Hasher::new();
        whole.write(&(bars as u64).to_le_bytes());
        for (series, hasher) in &mut self.series {
            let more = series.get(self.bars..bars).unwrap_or_default();
            let mut bytes = [0; 8 * HASHED_TOGETHER];
            for part in more.chunks(HASHED_TOGETHER) {
                for (bytes, x) in bytes.chunks_exact_mut(8).zip(part) {
                    bytes.copy_from_slice(&x.to_le_bytes());
                }
                hasher.write(&bytes[..8 * part.len()]);
            }
            whole.write(&hasher.finish_128().to_le_bytes());
        }
        self.bars = self.bars.max(bars);
        whole.finish_128()
    }
}

/// The unread part of some bytes. All methods return `None` if too few bytes are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.u64()?).ok()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    fn entry(&mut self) -> Option<(Key, Checkpoint)> {
        let key = (self.u32()?, self.u32()?, self.text()?);
        let digest = u128::from_le_bytes(self.take(16)?.try_into().ok()?);
        let bars = usize::try_from(self.u64()?).ok()?;
        let bytes = usize::try_from(self.u64()?).ok()?.checked_mul(8)?;
        let words = self.take(bytes)?.chunks_exact(8).map(|w| w.try_into().map(u64::from_le_bytes));
        let state = State { bars, words: words.collect::<Result<_, _>>().ok()? };
        Some((key, Checkpoint { digest, state }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use trawl_kernels::Precision;
    use trawl_plan::{ScanDocument, Schema, compile_scan};

    fn plan_in(condition: &str, precision: Precision) -> ExecutablePlan {
        let document = ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() };
        let plan = compile_scan(&document, &Schema::of_columns(vec!["close".to_owned()])).unwrap();
        ExecutablePlan::new(Arc::new(plan), precision)
    }

    fn plan(condition: &str) -> ExecutablePlan {
        plan_in(condition, Precision::F64)
    }

    fn filled(plan: &ExecutablePlan) -> Checkpoints {
        let kept = Checkpoints::new(plan, "m");
        for (symbol, bars) in [("A", 7), ("BB", 9)] {
            let state = State { bars, words: vec![1, u64::MAX, bars as u64] };
            kept.keep(0, 0, symbol, Outcome::New, Some(Checkpoint { digest: 5 << 100, state }));
        }
        kept
    }

    #[test]
    fn what_is_written_is_read_by_the_same_scan_alone() {
        let (mine, other) = (plan("ema(close, 5) > 1"), plan("ema(close, 6) > 1"));
        let bytes = filled(&mine).write(|_| true);
        let mut read = Checkpoints::new(&mine, "m");
        read.read(&bytes).unwrap();
        assert_eq!(read.of(0, 0, "BB").map(|c| (c.digest, c.state.bars)), Some((5 << 100, 9)));
        // States of symbols without a bar are kept; those of removed symbols are dropped.
        assert_eq!(read.write(|_| true), bytes);
        assert!(read.write(|s| s != "A").len() < bytes.len());
        let refused = |plan: &ExecutablePlan, dataset: &str| {
            Checkpoints::new(plan, dataset).read(&bytes).unwrap_err().to_string()
        };
        assert!(refused(&other, "m").contains("of another scan"));
        assert_eq!(refused(&mine, "n"), "the state is of another dataset: 'm'");
        let short =
            Checkpoints::new(&plan_in("ema(close, 5) > 1", Precision::F32), "m").read(&bytes).unwrap_err().to_string();
        assert_eq!(short, "the state is of another precision: 'f64'");
    }

    #[test]
    fn no_damage_passes() {
        let plan = plan("ema(close, 5) > 1");
        let bytes = filled(&plan).write(|_| true);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            for damaged in [&damaged[..], &bytes[..at]] {
                let mut kept = Checkpoints::new(&plan, "m");
                assert_eq!(kept.read(damaged), Err(StateError::Damaged));
                assert_eq!(kept.of(0, 0, "A"), None);
            }
        }
    }

    #[test]
    fn counts_that_promise_more_than_there_is_are_damage() {
        let plan = plan("ema(close, 5) > 1");
        let bytes = filled(&plan).write(|_| true);
        let content = &bytes[..bytes.len() - CHECKSUM_BYTES];
        for at in MAGIC.len()..content.len() - 8 {
            let mut damaged = content.to_vec();
            damaged[at..at + 8].fill(0xff);
            let checksum = twox_hash::XxHash3_128::oneshot(&damaged);
            damaged.extend(checksum.to_le_bytes());
            // No panic on any input, and no allocation for missing data.
            let _ = Checkpoints::new(&plan, "m").read(&damaged);
        }
    }

    #[test]
    fn of_several_states_the_earliest_stays() {
        let kept = Checkpoints::new(&plan("ema(close, 5) > 1"), "m");
        for bars in [9, 4, 6] {
            let state = State { bars, words: Vec::new() };
            kept.keep(
                0,
                0,
                "A",
                if bars == 4 { Outcome::Earlier } else { Outcome::Resumed },
                Some(Checkpoint { digest: 0, state }),
            );
        }
        assert_eq!(held(&kept.after).values().map(|c| c.state.bars).collect::<Vec<_>>(), [4]);
        assert_eq!(kept.outcomes(), BTreeMap::from([(Outcome::Earlier, 1)]));
    }

    #[test]
    fn a_digest_tells_every_bar_before_and_none_behind() {
        let series: Vec<f64> = (0..600).map(f64::from).collect();
        let digest = |series: &[f64], bars: &[usize]| {
            let mut digests = Digests::new([series, &[1.0; 600]].into_iter());
            bars.iter().map(|bars| digests.of(*bars)).last()
        };
        let whole = digest(&series, &[500]);
        assert_eq!(whole, digest(&series, &[0, 13, 300, 500]));
        for at in [0, 255, 256, 499, 500, 599] {
            let mut other = series.clone();
            other[at] += 0.01;
            assert_eq!(whole == digest(&other, &[500]), at >= 500, "{at}");
        }
        assert_ne!(whole, digest(&series, &[499]));
    }
}
