//! What scans ask of the workers together, computed once until these change: classes, threads, and who is assigned which segments
//! of a snapshot.
//!
//! Hundreds of scans may begin in a second, and each of them would look at every worker; a plan looks at every segment for every
//! worker. [`Roster::changed`] has to be called whenever a worker begins or ceases to receive work.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::State;
use super::holdings::{Seat, SnapshotSeats};
use super::workers::RegisteredWorker;
use crate::planner::{Assignment, SegmentCost, Shard, ShardSpec, WorkerSeat, name_key, plan_shards};
use crate::prepare::PreparedScan;
use crate::scheduler::ClassId;
use crate::worker_class::{ClassNeeds, WorkerClass};

/// Snapshots whose assignments are kept, the newest first: at most 24 bytes a segment.
const SNAPSHOTS_KEPT: usize = 16;
/// What scans need of a class that is kept.
const CHOICES_KEPT: usize = 16;
/// What workers hold changes while they load. An assignment that is out of date in that alone is made again after so many times what making it
/// took, so that the dispatcher has time for other things.
const HELD_PATIENCE: u32 = 20;

/// The assignment of a snapshot's segments.
#[derive(Debug)]
struct SnapshotPlan {
    reference: String,
    class: ClassId,
    device: bool,
    seats: SnapshotSeats,
    assignment: Assignment,
    made: Instant,
    took: Duration,
    /// Whether a worker has reported to hold something else since.
    outdated: bool,
}

impl SnapshotPlan {
    fn new(
        (reference, class, device): (&str, ClassId, bool),
        prepared: &PreparedScan,
        registered: &BTreeMap<String, RegisteredWorker>,
    ) -> Self {
        let made = Instant::now();
        let seat = |worker: &RegisteredWorker| {
            Some(Seat {
                worker: worker.joined?,
                key: name_key(&worker.record.id),
                device,
                // A class has devices only, or none.
                capacity: match &worker.record.device {
                    Some(devices) if device => devices.count.max(1),
                    _ if device => 1,
                    _ => worker.record.threads,
                },
                held: worker.reported.groups_of(reference).map(Arc::clone),
            })
        };
        let mine = registered.values().filter(|worker| worker.serves() && worker.class == class);
        let seats: SnapshotSeats = mine.filter_map(seat).collect();
        let sizes: Vec<SegmentCost> =
            prepared.segment_bars().map(|(segment, bars)| SegmentCost { segment, cost: bars.max(1) }).collect();
        let views: Vec<WorkerSeat<'_>> = seats.all().collect();
        let assignment = Assignment::of(&sizes, &views, name_key(&prepared.identity.dataset));
        drop(views);
        let took = made.elapsed();
        let reference = reference.to_owned();
        Self { reference, class, device, seats, assignment, made, took, outdated: false }
    }

    fn is_for(&self, (reference, class, device): (&str, ClassId, bool)) -> bool {
        self.reference == reference && self.class == class && self.device == device
    }

    fn may_be_used(&self) -> bool {
        !self.outdated || self.made.elapsed() < self.took * HELD_PATIENCE
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Roster {
    threads: Option<u32>,
    choices: VecDeque<(ClassNeeds, Option<WorkerClass>)>,
    classes: VecDeque<(WorkerClass, ClassId)>,
    plans: VecDeque<SnapshotPlan>,
}

/// Keeps `entry` as the newest of at most `most`.
fn keep<T>(kept: &mut VecDeque<T>, entry: T, most: usize) {
    kept.push_front(entry);
    kept.truncate(most);
}

impl Roster {
    /// A worker begins or ceases to receive work.
    pub fn changed(&mut self) {
        *self = Self::default();
    }

    /// A worker holds something else than before.
    pub fn held_changed(&mut self) {
        self.plans.iter_mut().for_each(|plan| plan.outdated = true);
    }

    /// The class for a scan with these needs, `compute`d if it is not known.
    pub fn choice(&mut self, needs: &ClassNeeds, compute: impl FnOnce() -> Option<WorkerClass>) -> Option<WorkerClass> {
        if let Some((_, class)) = self.choices.iter().find(|(known, _)| known == needs) {
            return class.clone();
        }
        let class = compute();
        keep(&mut self.choices, (needs.clone(), class.clone()), CHOICES_KEPT);
        class
    }

    /// Threads of all workers that receive work, `compute`d if they are not known.
    pub fn threads(&mut self, compute: impl FnOnce() -> u32) -> u32 {
        *self.threads.get_or_insert_with(compute)
    }

    /// The number of the workers' class for scans of a class.
    pub fn class(&self, class: &WorkerClass) -> Option<ClassId> {
        self.classes.iter().find(|(known, _)| known == class).map(|(_, id)| *id)
    }

    /// The assignment of the segments of a scan's snapshot.
    fn plan(
        &mut self,
        prepared: &PreparedScan,
        class: ClassId,
        registered: &BTreeMap<String, RegisteredWorker>,
    ) -> &SnapshotPlan {
        let (reference, device) =
            (prepared.dataset_reference(), prepared.identity.backend != trawl_kernels::BACKEND_CPU);
        let wanted = (reference.as_str(), class, device);
        let known = self.plans.iter().position(|plan| plan.is_for(wanted));
        let known = known.and_then(|at| self.plans.remove(at)).filter(SnapshotPlan::may_be_used);
        let plan = known.unwrap_or_else(|| SnapshotPlan::new(wanted, prepared, registered));
        keep(&mut self.plans, plan, SNAPSHOTS_KEPT);
        &self.plans[0]
    }

    /// Keeps what [`Self::class`] returns.
    pub fn keep_class(&mut self, class: WorkerClass, id: ClassId) {
        keep(&mut self.classes, (class, id), CHOICES_KEPT);
    }
}

impl State {
    /// The shards of a step of a scan.
    pub(super) fn shards_of(&mut self, submission: &super::Submission, class: ClassId) -> Vec<Shard> {
        let prepared = &submission.prepared;
        let plan = self.roster.plan(prepared, class, &self.registered);
        let bars = |segment| prepared.size_of(segment).1;
        let mut shards =
            if submission.shards == ShardSpec::Automatic && submission.segments.len() == prepared.segments.len() {
                plan.assignment.shards(prepared.cost_of_bars())
            } else {
                let seats: Vec<WorkerSeat<'_>> = plan.seats.all().collect();
                let mut costs = prepared.segment_costs();
                costs.retain(|cost| submission.segments.contains(&cost.segment));
                plan_shards(&costs, &seats, submission.shards, name_key(&prepared.identity.dataset))
            };
        super::holdings::note_holders(&mut shards, &plan.seats, &self.pace, bars);
        shards
    }
}
