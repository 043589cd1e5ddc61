//! A leader dies in every writing call of a scan's life, in every way; the next one continues. Whatever was confirmed
//! to the client holds, and the answer is the same as without deaths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use trawl_testing::MemoryStore;

use super::group::{AnswerEnds, Outcome};
use super::ledger::{Acceptance, Ending, Ledger, Term, Written};
use super::records::{End, EndOutcome, Header, Progress, RequestMark};
use super::recovery::{Decision, Situation, decide, missing};
use super::results::{Named, ResultStore};
use super::testing::{Death, Faulty, Fuse, FusedControl, class, header, next_term, stored};
use super::writer::{Writer, WriterLimits};

const SEGMENTS: [u32; 4] = [0, 2, 3, 7];
const STAGES: u32 = 2;

/// The stores, which outlive processes.
#[derive(Default)]
struct World {
    control: Arc<MemoryStore>,
    objects: Arc<InMemory>,
}

/// One coordinator from its election to its death.
struct Life {
    ledger: Ledger<FusedControl>,
    store: ResultStore,
    fuse: Arc<Fuse>,
}

impl World {
    async fn life(&self, term: Term, fuse: Arc<Fuse>) -> Life {
        let control = FusedControl { inner: Arc::clone(&self.control), fuse: Arc::clone(&fuse) };
        let objects = Faulty { inner: Arc::clone(&self.objects), fuse: Some(Arc::clone(&fuse)), ..Faulty::default() };
        let store = ResultStore::over(Arc::new(objects), "memory");
        Life { ledger: Ledger::new(Arc::new(control), "c", term), store, fuse }
    }
}

fn asked(scan: &str) -> Header {
    let request = Some(RequestMark::new("ana", "key", &[b"request"]));
    Header { request, ..header(scan, u32::try_from(SEGMENTS.len()).unwrap()) }
}

/// Digest over all results of a scan.
fn digest(outcomes: &BTreeMap<u32, Outcome>) -> String {
    let payload = |outcome: &Outcome| match outcome {
        Outcome::Result { envelope, .. } => envelope.payload.clone(),
        Outcome::Failed(_) => bytes::Bytes::new(),
    };
    hex::encode(outcomes.values().flat_map(payload).collect::<Vec<u8>>())
}

/// The process died; an error type for `?`.
struct Dead;

impl Life {
    /// Accepts a client's scan; returns the reply to the client unless the process dies first.
    async fn accept(&self, header: &Header) -> Result<Acceptance, Dead> {
        self.store.put_named(&header.scan, Named::Document, b"{}").await.map_err(|_| Dead)?;
        self.ledger.accept(header).await.map_err(|_| Dead)
    }

    /// Decides about and runs every recorded scan.
    async fn run(&self) -> Result<(), Dead> {
        let loaded = self.ledger.load().await.map_err(|_| Dead)?;
        let situation = Situation::Ready { class: class("n1"), plan: "p".into(), segments: SEGMENTS.to_vec() };
        for recorded in loaded.scans {
            let contents = self.store.contents(&recorded.scan, 0).await.map_err(|_| Dead)?;
            let mut kept: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
            for (stage, found) in &contents.stages {
                kept.insert(*stage, found.segments.keys().copied().collect());
            }
            match decide(&recorded, &kept, &situation, 1) {
                Decision::Nothing => {}
                Decision::Resume { stage, .. } => self.resume(&recorded.scan, stage, kept).await?,
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    async fn resume(&self, scan: &str, from: u32, kept: BTreeMap<u32, BTreeSet<u32>>) -> Result<(), Dead> {
        let limits = WriterLimits {
            commit_interval: Duration::from_secs(60),
            // A process that is dead stays so.
            last_put_patience: Duration::ZERO,
            back_off: Duration::ZERO,
            progress_delay: Duration::ZERO,
            progress_interval: Duration::from_secs(60),
            ..WriterLimits::default()
        };
        let present = kept.get(&from).cloned().unwrap_or_default();
        let writer = Writer::start(self.store.clone(), self.ledger.clone(), scan, 0, (from, present), limits);
        for stage in from..STAGES {
            // Two segments a group; the last group is stored with the ends of the answer.
            let left = missing(&SEGMENTS, kept.get(&stage));
            for (at, pair) in left.chunks(2).enumerate() {
                for segment in pair {
                    writer.store(stage, stored(*segment, 8 + stage as usize), None).await.map_err(|_| Dead)?;
                }
                if stage + 1 < STAGES || at + 1 < left.chunks(2).len() {
                    writer.flush().await.map_err(|_| Dead)?;
                }
            }
        }
        // Times of the run differ from leader to leader: the summary that is already stored counts.
        if self.store.ends(scan, 0).await.map_err(|_| Dead)?.is_none() {
            let summary = format!("epoch {}", self.ledger.term().epoch).into_bytes();
            writer.finish(AnswerEnds { accepted: Vec::new(), summary }).await.map_err(|_| Dead)?;
        }
        let last = self.store.stage(scan, 0, STAGES - 1).await.map_err(|_| Dead)?;
        assert_eq!(last.stages[&(STAGES - 1)].segments.keys().copied().collect::<Vec<_>>(), SEGMENTS);
        let answer_digest = digest(&last.stages[&(STAGES - 1)].segments);
        let outcome = EndOutcome::Complete { answer_digest, failed_symbols: 0, disputed: false };
        match self.ledger.end(scan, &End { generation: 0, outcome, ended_us: 9 }).await {
            Ok(Ending::Recorded) => Ok(()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => Err(Dead),
        }
    }
}

/// Checks that a scan ended as it would have without a death.
async fn check(life: &Life, scan: &str) {
    let known = life.ledger.get(scan).await.unwrap().unwrap_or_else(|| panic!("scan {scan} was lost"));
    let whole: BTreeMap<u32, Outcome> =
        SEGMENTS.iter().map(|s| (*s, stored(*s, 8 + STAGES as usize - 1).outcome)).collect();
    let Some(End { outcome: EndOutcome::Complete { answer_digest, .. }, .. }) = known.end else {
        panic!("scan {scan} did not end: {known:?}")
    };
    assert_eq!(answer_digest, digest(&whole));
    assert!(life.store.ends(scan, 0).await.unwrap().is_some());
}

/// One leader after another with the fuses given, then one that lives. Returns whether all of them died.
async fn history(fuses: &[(i64, Death)]) -> bool {
    let world = World::default();
    let mut acknowledged = None;
    let mut all_died = true;
    let mut deposed = Vec::new();
    for (number, (calls, death)) in fuses.iter().enumerate() {
        let life = world.life(next_term(&world.control).await, Fuse::new(*calls, *death)).await;
        if number == 0
            && let Ok(accepted) = life.accept(&asked("a-1")).await
        {
            assert_eq!(accepted, Acceptance::Accepted);
            acknowledged = Some("a-1");
        }
        let _ = life.run().await;
        all_died &= life.fuse.is_dead();
        deposed.push(life.ledger.term().clone());
    }
    let life = world.life(next_term(&world.control).await, Fuse::new(i64::MAX, Death::Before)).await;
    life.run().await.unwrap_or_else(|_| panic!("the living leader died"));
    // The client got no reply, or lost its connection, and asks again.
    let scan = match life.accept(&asked("b-1")).await.unwrap_or_else(|_| panic!("the living leader died")) {
        Acceptance::Existing(header) => header.scan,
        Acceptance::Accepted => {
            assert_eq!(acknowledged, None, "what was accepted was forgotten");
            "b-1".to_owned()
        }
        other => panic!("{other:?}"),
    };
    life.run().await.unwrap_or_else(|_| panic!("the living leader died"));
    check(&life, &scan).await;
    let scans = life.ledger.load().await.unwrap().scans;
    assert_eq!(scans.len(), 1, "one request, one scan: {scans:?}");
    for term in deposed {
        let late = world.life(term, Fuse::new(i64::MAX, Death::Before)).await;
        assert_eq!(late.ledger.progress(&scan, &Progress::default()).await.unwrap(), Written::NotLeader);
        assert_eq!(late.ledger.accept(&header("late-1", 1)).await.unwrap(), Acceptance::NotLeader);
    }
    all_died
}

const DEATHS: [Death; 3] = [Death::Before, Death::After, Death::Torn];
/// More calls than one life makes.
const CALLS_MAX: i64 = 40;

#[tokio::test]
async fn a_leader_may_die_in_any_call_and_the_scan_ends_with_the_same_answer() {
    let mut died = 0;
    for calls in 0..CALLS_MAX {
        for death in DEATHS {
            died += usize::from(history(&[(calls, death)]).await);
        }
    }
    // The document, the acceptance, two groups of two stages, end, and progress now and then.
    assert!(died >= 3 * 7, "{died} deaths");
    assert!(died < 3 * CALLS_MAX as usize, "some lives are long enough");
}

#[tokio::test]
async fn two_leaders_may_die_in_any_two_calls() {
    let mut died = 0;
    for first in 0..12 {
        for second in 0..12 {
            for deaths in [(Death::Before, Death::After), (Death::After, Death::Torn), (Death::Torn, Death::After)] {
                died += usize::from(history(&[(first, deaths.0), (second, deaths.1)]).await);
            }
        }
    }
    // Of seven calls, and those of the next leader up to its own end.
    assert!(died > 40, "{died} histories with two deaths");
}
