//! Scans that this worker has prepared: everything of a shard's request that depends on the scan alone. It is done once, and all
//! shards, steps and repetitions of the scan share it.
//!
//! A request names its scan by a [`PlanKey`], and has the scan's document or not. With a document, a prepared scan is used if it was
//! made from the same one; without, if the key is the same. Either way nothing but time depends on what is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use trawl_market::LoadedBars;
use trawl_wire::plan_key::PlanKey;
use trawl_wire::{Failure, pb};

use crate::execute::{ExecuteError, References, ScanSource};

/// Maximum number of prepared scans; dropped least recently used first.
const SCANS_MAX: usize = 64;
/// Maximum bytes of all prepared scans except the newest, which is kept regardless of its size: its shards are still coming.
const BYTES_MAX: usize = 256 << 20;
/// Bytes of a symbol in a manifest, about.
const SYMBOL_BYTES: usize = 128;
/// Bytes of a time or of a value of a bar.
pub(crate) const BAR_VALUE_BYTES: u64 = 8;

/// A scan, ready to run any of its segments.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub key: PlanKey,
    pub document: String,
    pub source: ScanSource,
    pub references: References,
    /// Names of the columns that the plan reads.
    pub columns: Arc<[String]>,
}

impl Prepared {
    /// The scan of a request, whose document was compiled to the plan of `source`. Reads the bars of the symbols that it refers to.
    ///
    /// # Errors
    /// Those of [`ScanSource::load_references`].
    pub fn new(request: &pb::ShardRequest, source: ScanSource) -> Result<Self, ExecuteError> {
        Ok(Self {
            key: PlanKey::of(request),
            document: request.document_json.clone(),
            references: source.load_references()?,
            columns: Arc::from(source.plan().columns.clone()),
            source,
        })
    }

    /// Bytes that it takes in memory beside the manifest, about.
    fn bytes(&self) -> usize {
        let bars = |bars: &LoadedBars| bars.times.len() * (bars.columns.len() + 1) * BAR_VALUE_BYTES as usize;
        self.document.len() + self.source.executable.bytes() + self.references.values().map(bars).sum::<usize>()
    }

    fn is(&self, asked: &Asked<'_>) -> bool {
        self.key == asked.key && (asked.document.is_empty() || asked.document == self.document)
    }
}

/// What a request says of its scan.
struct Asked<'a> {
    key: PlanKey,
    /// Empty if it was left out.
    document: &'a str,
}

impl<'a> Asked<'a> {
    fn of(request: &'a pb::ShardRequest) -> Self {
        Self { key: PlanKey::of(request), document: &request.document_json }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Most recently used last.
    kept: VecDeque<Arc<Prepared>>,
    /// Keys and documents of the scans that are being prepared; at most one for each request that a worker takes at once.
    preparing: Vec<(PlanKey, String)>,
}

impl State {
    fn known(&mut self, asked: &Asked<'_>) -> Option<Arc<Prepared>> {
        let at = self.kept.iter().rposition(|prepared| prepared.is(asked))?;
        let found = self.kept.remove(at)?;
        self.kept.push_back(Arc::clone(&found));
        Some(found)
    }

    fn keep(&mut self, prepared: Arc<Prepared>, bytes_max: usize) {
        self.kept.retain(|kept| kept.key != prepared.key || kept.document != prepared.document);
        self.kept.push_back(prepared);
        while self.kept.len() > 1 && (self.kept.len() > SCANS_MAX || self.bytes() > bytes_max) {
            self.kept.pop_front();
        }
    }

    /// Scans of the same open snapshot share its manifest.
    fn bytes(&self) -> usize {
        let mut manifests: Vec<_> = self.kept.iter().map(|prepared| &prepared.source.dataset.manifest).collect();
        manifests.sort_unstable_by_key(|manifest| Arc::as_ptr(manifest));
        manifests.dedup_by_key(|manifest| Arc::as_ptr(manifest));
        let manifests = manifests.iter().map(|manifest| manifest.symbols.len() * SYMBOL_BYTES);
        manifests.chain(self.kept.iter().map(|prepared| prepared.bytes())).sum()
    }
}

/// The scans that are kept; shared by all requests.
#[derive(Debug)]
pub(crate) struct PreparedScans {
    bytes_max: usize,
    state: Mutex<State>,
    /// Notified when a scan was prepared, or could not be.
    over: Condvar,
}

impl Default for PreparedScans {
    fn default() -> Self {
        Self { bytes_max: BYTES_MAX, state: Mutex::default(), over: Condvar::new() }
    }
}

/// Removes a scan from those that are being prepared, also if that panics.
struct Preparing<'a> {
    scans: &'a PreparedScans,
    what: (PlanKey, String),
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.scans.state().preparing.retain(|what| *what != self.what);
        self.scans.over.notify_all();
    }
}

impl PreparedScans {
    /// A thread that panicked has left it as it was.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scan of a request, if it is kept. Does not block.
    pub fn known(&self, request: &pb::ShardRequest) -> Option<Arc<Prepared>> {
        self.state().known(&Asked::of(request))
    }

    /// The scan of a request with a document; `prepare` is called if it is not kept. Requests for one scan that come at the same time
    /// wait for the first of them, and share what it prepares. Blocks.
    ///
    /// # Errors
    /// Those of `prepare`. The requests that wait then try for themselves.
    pub fn prepared(
        &self,
        request: &pb::ShardRequest,
        prepare: impl FnOnce() -> Result<Prepared, Failure>,
    ) -> Result<Arc<Prepared>, Failure> {
        let asked = Asked::of(request);
        let what = (asked.key.clone(), asked.document.to_owned());
        let mut state = self.state();
        while state.preparing.contains(&what) {
            state = self.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(known) = state.known(&asked) {
            return Ok(known);
        }
        state.preparing.push(what.clone());
        drop(state);
        let _preparing = Preparing { scans: self, what };
        let prepared = Arc::new(prepare()?);
        self.state().keep(Arc::clone(&prepared), self.bytes_max);
        Ok(prepared)
    }
}

#[cfg(test)]
#[path = "prepared_tests.rs"]
mod tests;
