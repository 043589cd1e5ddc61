//! How a term comes to its scans: submitted by clients, taken over from the records, or begun anew in another class
//! because the workers of theirs were upgraded.

use std::collections::{BTreeMap, BTreeSet};

use trawl_coordinator::durable::ledger::{Loaded, Written};
use trawl_coordinator::durable::records::{DocumentPlace, Level, Shards};
use trawl_coordinator::durable::recovery::GENERATIONS_MAX;
use trawl_coordinator::durable::{
    Acceptance, Decision, End, Header, LedgerError, Recorded, RequestMark, Situation, decide,
};
use trawl_coordinator::planner::{Holdings, SHARD_NS_MIN, SegmentCost, ShardSpec, WorkerSeat, name_key, plan_shards};
use trawl_coordinator::scheduler::{ClassId, Event, Request, ScanId, WorkerId};
use trawl_wire::record::ExecutionClass;

use crate::coordinators::Done;
use crate::facts::{RELEASE, run_id};
use crate::laws::{asked_in, class_in};
use crate::leader_term::{RETRY_MS, Run, object_of};
use crate::ledger::Checked;
use crate::sabotage::Bug;
use crate::world::{Happening, World};

/// Interval of looking for scans that are not running.
const CLAIM_INTERVAL_MS: u64 = 1_000;

/// A scan that a term runs, or is about to.
#[derive(Debug, Clone)]
pub struct Begun {
    pub scan: ScanId,
    pub name: String,
    pub generation: u32,
    pub class: ClassId,
}

/// The execution class of a class id.
fn class_of(class: ClassId) -> ExecutionClass {
    let word = |text: &str| text.to_owned();
    ExecutionClass { engine: format!("e{class}"), numerics: word("n"), backend: word("cpu"), precision: word("f64") }
}

impl World {
    /// The class in which a scan of this class runs: the same while the term knows workers of it, else that of the other
    /// release if it knows some of that.
    pub fn class_for(&self, c: usize, class: ClassId) -> ClassId {
        let Some(term) = &self.coordinators[c].term else { return class };
        let serves = |class: ClassId| term.members.values().any(|known| known.serves(class));
        let other = if class < RELEASE { class + RELEASE } else { class - RELEASE };
        if !serves(class) && serves(other) { other } else { class }
    }

    /// A client submits a scan. Returns `false` if the coordinator cannot accept it.
    pub fn submit(&mut self, c: usize, scan: ScanId) -> Result<bool, crate::ledger::Violation> {
        let marked = !self.sabotaged(Bug::ForgetsTheRequest);
        let (now_ms, now_us) = (self.now_ms, self.now_us());
        let class = self.class_for(c, self.facts.scans[&scan].request.class);
        let state = &mut self.coordinators[c];
        if !state.alive || state.stopped_until > now_ms || !state.is_valid(now_ms) {
            return Ok(false);
        }
        let Some(term) = &mut state.term else { return Ok(false) };
        term.names += 1;
        let asked = &self.facts.scans[&scan];
        let after_ms = asked.request.deadline_ms;
        let header = Header {
            scan: format!("s{scan}-{}-{}", term.serial, term.names),
            generation: 0,
            owner: "somebody".to_owned(),
            document: DocumentPlace::Inline(scan.to_string()),
            dataset: "market@1".to_owned(),
            as_of_us: 0,
            adjustment: String::new(),
            class: class_of(class),
            placed: true,
            backend: None,
            plan: "plan".to_owned(),
            segments: asked.segments.len() as u32,
            symbols: asked.request.symbols.values().map(|&n| u64::from(n)).sum(),
            shards: Shards::Automatic,
            priority: Level::from(asked.request.priority),
            submitted_us: now_us,
            deadline_us: after_ms.map(|ms| now_us + ms as i64 * 1_000),
            allow_partial: true,
            request: marked.then(|| RequestMark::new("somebody", &scan.to_string(), &[])),
            trace: None,
        };
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            let acceptance = records.accept(&header).await;
            Done::Accepted { begun: Begun { scan, name: header.scan, generation: 0, class }, acceptance }
        };
        self.spawn(c, Some(epoch), Box::pin(job))?;
        Ok(true)
    }

    pub fn accepted(&mut self, c: usize, begun: Begun, acceptance: Result<Acceptance, LedgerError>) -> Checked {
        let scan = begun.scan;
        let life = self.coordinators[c].life;
        match acceptance {
            Ok(Acceptance::Accepted) => {
                let segments = self.facts.scans[&scan].segments.clone();
                let deadline_ms = self.facts.scans[&scan].request.deadline_ms.map(|ms| self.now_ms + ms);
                self.run_scan(c, begun, segments, deadline_ms)?;
            }
            Ok(Acceptance::Existing(_)) => self.count("existing"),
            Ok(Acceptance::Conflict { scan }) => panic!("{scan} is the same request"),
            // The client retries.
            Ok(Acceptance::NotLeader) | Err(_) => return Ok(()),
        }
        let wait = self.latency();
        self.soon(wait, Happening::Acknowledged { coordinator: c, life, scan });
        Ok(())
    }

    /// Reads the records: at the beginning of a term, and periodically for scans that are not running.
    pub fn load(&mut self, c: usize, wait_ms: u64) -> Checked {
        let handle = self.coordinators[c].handle.clone();
        let Some(term) = &self.coordinators[c].term else { return Ok(()) };
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            handle.sleep(wait_ms).await;
            Done::Loaded(records.open().await)
        };
        self.spawn(c, Some(epoch), Box::pin(job))
    }

    pub fn take_over(&mut self, c: usize, loaded: Result<Loaded, LedgerError>) -> Checked {
        let now_us = self.now_us();
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        let Ok(loaded) = loaded else { return self.load(c, RETRY_MS) };
        term.begun = true;
        let mut running: BTreeSet<String> = term.runs.values().map(|run| run.name.clone()).collect();
        running.extend(term.restarting.iter().cloned());
        let forgets = self.sabotaged(Bug::ForgetsToTakeOver);
        let unclaimed = |recorded: &&Recorded| recorded.is_open() && !running.contains(&recorded.scan);
        for recorded in loaded.scans.iter().filter(unclaimed).filter(|_| !forgets) {
            let header = recorded.header.as_ref().expect("it is open");
            let (scan, name, generation) = (asked_in(header), recorded.scan.clone(), header.generation);
            let (recorded_class, segments) = (class_in(header), self.facts.scans[&scan].segments.clone());
            let class = self.class_for(c, recorded_class);
            let mixes = self.sabotaged(Bug::ResumesInAnotherClass);
            let situation = Situation::Ready {
                class: class_of(if mixes { recorded_class } else { class }),
                plan: "plan".to_owned(),
                segments: segments.clone(),
            };
            let stored = self.results.stored(&object_of(&name, generation));
            let stages = if stored.is_empty() { BTreeMap::new() } else { BTreeMap::from([(0, stored)]) };
            match decide(recorded, &stages, &situation, now_us) {
                Decision::Resume { missing, .. } => {
                    self.count("taken over");
                    let deadline_ms = header.deadline_us.map(|us| us as u64 / 1_000);
                    self.run_scan(c, Begun { scan, name, generation, class }, missing, deadline_ms)?;
                }
                Decision::Fail(failure) => {
                    self.count("failed at take-over");
                    let end = End { generation, outcome: failure.into(), ended_us: now_us };
                    let begun = Begun { scan, name: name.clone(), generation, class };
                    self.claim(c, &begun, BTreeMap::new(), true);
                    self.record_end(c, run_id(scan, generation), name, end)?;
                }
                Decision::Restart { generation, .. } => {
                    self.begin_anew(c, Begun { scan, name, generation, class })?;
                }
                Decision::Nothing => {}
                Decision::Later(failure) => panic!("nothing here waits: {failure}"),
            }
        }
        self.load(c, CLAIM_INTERVAL_MS)
    }

    /// Runs a scan as its next generation, once that is recorded.
    pub fn begin_anew(&mut self, c: usize, begun: Begun) -> Checked {
        let handle = self.coordinators[c].handle.clone();
        let Some(term) = &mut self.coordinators[c].term else { return Ok(()) };
        term.restarting.insert(begun.name.clone());
        let (records, epoch) = (term.records.clone(), term.epoch);
        let job = async move {
            loop {
                match records.get(&begun.name).await {
                    Ok(Some(Recorded { header: Some(header), end: None, .. })) => {
                        let next = Header { generation: begun.generation, class: class_of(begun.class), ..header };
                        match records.restart(&next).await {
                            Ok(Written::Done) => return Done::BegunAnew(begun),
                            Ok(Written::Over | Written::NotLeader) => return Done::Nothing,
                            Err(_) => {}
                        }
                    }
                    Ok(_) => return Done::Nothing,
                    Err(_) => {}
                }
                handle.sleep(RETRY_MS).await;
            }
        };
        self.spawn(c, Some(epoch), Box::pin(job))
    }

    pub fn begun_anew(&mut self, c: usize, begun: Begun) -> Checked {
        self.count("begun anew");
        let asked = &self.facts.scans[&begun.scan];
        let segments = asked.segments.clone();
        if let Some(term) = &mut self.coordinators[c].term {
            term.restarting.remove(&begun.name);
        }
        // Counted from now: the records keep the real one.
        let deadline_ms = asked.request.deadline_ms.map(|ms| self.now_ms + ms);
        self.run_scan(c, begun, segments, deadline_ms)
    }

    /// The same scan in the class of the other release, if no worker of its class is left but some of that one are.
    pub fn in_other_class(&self, c: usize, begun: &Begun) -> Option<Begun> {
        let (class, generation) = (self.class_for(c, begun.class), begun.generation + 1);
        (class != begun.class && generation < GENERATIONS_MAX).then(|| Begun { class, generation, ..begun.clone() })
    }

    fn claim(&mut self, c: usize, begun: &Begun, symbols: BTreeMap<u32, u32>, ending: bool) {
        if let Some(term) = &mut self.coordinators[c].term {
            let run = Run::new(begun.clone(), symbols, ending);
            term.runs.insert(run_id(begun.scan, begun.generation), run);
        }
    }

    /// Plans shards for the present workers, over the segments without a result.
    fn run_scan(&mut self, c: usize, begun: Begun, segments: Vec<u32>, deadline_ms: Option<u64>) -> Checked {
        let (clock, run, scan) = (self.clock(c), run_id(begun.scan, begun.generation), begun.scan);
        let Some(term) = self.coordinators[c].term.as_ref().filter(|r| !r.runs.contains_key(&run)) else {
            return Ok(());
        };
        let asked = &self.facts.scans[&scan].request;
        let symbols: BTreeMap<u32, u32> = segments.iter().map(|s| (*s, asked.symbols[s])).collect();
        let cost = |&segment: &u32| SegmentCost { segment, cost: u64::from(symbols[&segment]) * 1_000 };
        let costs: Vec<SegmentCost> = segments.iter().map(cost).collect();
        let seat = |(m, &worker): (&usize, &WorkerId)| WorkerSeat {
            worker,
            key: name_key(&format!("w{m}")),
            device: false,
            capacity: 1,
            holds: Holdings::default(),
        };
        let seats: Vec<WorkerSeat<'_>> = term.joined.iter().map(seat).collect();
        let spec = if scan.is_multiple_of(2) { ShardSpec::Automatic } else { ShardSpec::Count(6) };
        // As if it took long, except for some that have one shard for each worker.
        let scale = if scan.is_multiple_of(4) { 1 } else { SHARD_NS_MIN };
        let costs: Vec<SegmentCost> = costs.iter().map(|c| SegmentCost { cost: c.cost * scale, ..*c }).collect();
        let mut shards = plan_shards(&costs, &seats, spec, 1);
        shards.iter_mut().for_each(|shard| shard.cost /= scale);
        // Some wait for their worker, some of them for as long as a lying estimate would have it.
        for shard in &mut shards {
            shard.holders = seats.iter().map(|seat| seat.worker).take(shard.segments.len() % 3).collect();
            shard.cold_ms = [0, 0, 300, u64::MAX][(run as usize + shard.segments[0] as usize) % 4];
        }
        let request = Request {
            shards,
            symbols: symbols.clone(),
            class: begun.class,
            deadline_ms: deadline_ms.map(|at| clock + at.saturating_sub(self.now_ms)),
            ..asked.clone()
        };
        self.claim(c, &begun, symbols, false);
        self.step(c, Event::Submitted { scan: run, request })
    }
}
