//! Who counts as a member of the cluster: `step(event, now) -> changes`, from the records in the control store.
//!
//! Pure: no I/O, no clock. `server::membership` feeds it what it lists and watches.
//!
//! A worker whose record disappears is gone: it deleted the record, or its lease expired. But when most of the fleet's
//! leases end at about the same time, the likelier cause is the store: it lost them, or the workers cannot reach it.
//! Those workers become suspects: they remain members as long as they answer on the data path, for a bounded time.

use std::collections::{BTreeMap, VecDeque};

use trawl_wire::WorkerRecord;
use trawl_wire::record::DeviceRecord;

/// Window in milliseconds within which lost leases count as simultaneous: a usual time to live plus etcd's interval of
/// checking for expired leases. Renewals are spread over it, so the ends are too.
pub const LOSS_WINDOW_MS: u64 = 6_000;
/// Minimum number of losses for a mass loss.
pub const MASS_LOSS_MIN: usize = 2;
/// How long a suspect is kept without a record, in milliseconds. A worker that reaches the store registers again within
/// a fraction of it.
pub const SUSPECT_MAX_MS: u64 = 60_000;

/// A change of membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// A worker's record exists: it registered, or returned.
    Here(WorkerRecord),
    /// A worker's record is marked as draining.
    Draining {
        /// Its id.
        id: String,
        /// Boot id of the process.
        boot: String,
    },
    /// What a worker's record says of its devices has changed.
    Devices {
        /// Its id.
        id: String,
        /// Boot id of the process.
        boot: String,
        /// What it says now.
        devices: Option<DeviceRecord>,
    },
    /// A worker's record disappeared together with most others. It remains a member, even if it was just reported as
    /// gone; the caller has to check whether it answers. `Gone` follows unless its record returns, which is not
    /// reported.
    Suspect(WorkerRecord),
    /// A worker is gone.
    Gone {
        /// Its id.
        id: String,
        /// Boot id of the process.
        boot: String,
    },
}

/// An event of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
// Handled one at a time, never stored.
#[allow(clippy::large_enum_variant)]
pub enum Event {
    /// All records by key; a record that cannot be decoded is `None`.
    Listed(BTreeMap<String, Option<WorkerRecord>>),
    /// One record was put, for the first time or again.
    Put(String, Option<WorkerRecord>),
    /// One record was deleted.
    Deleted(String),
    /// The store could not be read, or its watch ended: workers may be unable to register until the next listing.
    Away,
    /// Time has passed.
    Tick,
}

#[derive(Debug)]
struct Known {
    record: WorkerRecord,
    /// Since when it is kept without a record, in milliseconds.
    suspect_since_ms: Option<u64>,
}

/// A lease that ended recently.
#[derive(Debug)]
struct Loss {
    at_ms: u64,
    key: String,
    record: WorkerRecord,
}

/// The members of one cluster; see the module's header.
#[derive(Debug, Default)]
pub struct Roster {
    known: BTreeMap<String, Known>,
    /// Losses within the window, oldest first.
    losses: VecDeque<Loss>,
    /// Since [`Event::Away`], until the next listing.
    away: bool,
}

impl Roster {
    /// Handles one event and returns the changes, in order. `now_ms` never decreases.
    pub fn step(&mut self, event: Event, now_ms: u64) -> Vec<Member> {
        let mut changes = Vec::new();
        let out = &mut changes;
        while self.losses.front().is_some_and(|loss| loss.at_ms + LOSS_WINDOW_MS < now_ms) {
            self.losses.pop_front();
        }
        match event {
            Event::Listed(there) => {
                let gone = self.known.keys().filter(|key| !there.contains_key(*key)).cloned().collect();
                self.lose(gone, now_ms, out);
                for (key, record) in there {
                    self.learn(key, record, out);
                }
                // Workers could not register while the store was unavailable: restart the suspects' time limit. A listing
                // beside a watch that works restarts nothing.
                if std::mem::take(&mut self.away) {
                    for since in self.known.values_mut().filter_map(|k| k.suspect_since_ms.as_mut()) {
                        *since = now_ms;
                    }
                }
            }
            Event::Put(key, record) => self.learn(key, record, out),
            Event::Deleted(key) => self.lose(vec![key], now_ms, out),
            Event::Away => self.away = true,
            Event::Tick => {}
        }
        if self.away {
            return changes;
        }
        let over = |k: &Known| k.suspect_since_ms.is_some_and(|since| since + SUSPECT_MAX_MS <= now_ms);
        let over: Vec<String> = self.known.iter().filter(|(_, k)| over(k)).map(|(key, _)| key.clone()).collect();
        over.into_iter().for_each(|key| self.forget(&key, out));
        changes
    }

    /// Time at which the next tick has something to do.
    pub fn wake_ms(&self) -> Option<u64> {
        if self.away {
            return None;
        }
        self.known.values().filter_map(|k| k.suspect_since_ms).min().map(|since| since + SUSPECT_MAX_MS)
    }

    /// Number of members with a record, and number of suspects.
    pub fn counts(&self) -> (usize, usize) {
        let suspects = self.known.values().filter(|k| k.suspect_since_ms.is_some()).count();
        (self.known.len() - suspects, suspects)
    }

    fn learn(&mut self, key: String, record: Option<WorkerRecord>, out: &mut Vec<Member>) {
        self.losses.retain(|loss| loss.key != key);
        let Some(record) = record else { return self.forget(&key, out) };
        if let Some(before) = self.known.get_mut(&key) {
            before.suspect_since_ms = None;
            if before.record == record {
                return;
            }
            let WorkerRecord { draining, device, .. } = record.clone();
            let only_begins = draining || !before.record.draining;
            if only_begins && (WorkerRecord { draining, device, ..before.record.clone() }) == record {
                let before = std::mem::replace(&mut before.record, record.clone());
                let (id, boot) = (record.id, record.boot);
                if before.device != record.device {
                    out.push(Member::Devices { id: id.clone(), boot: boot.clone(), devices: record.device });
                }
                if draining && !before.draining {
                    out.push(Member::Draining { id, boot });
                }
                return;
            }
        }
        // The same id with another boot: the worker was restarted, and the previous process is gone.
        self.forget(&key, out);
        self.known.insert(key, Known { record: record.clone(), suspect_since_ms: None });
        out.push(Member::Here(record));
    }

    fn forget(&mut self, key: &str, out: &mut Vec<Member>) {
        if let Some(Known { record, .. }) = self.known.remove(key) {
            out.push(Member::Gone { id: record.id, boot: record.boot });
        }
    }

    /// Handles records that disappeared.
    fn lose(&mut self, keys: Vec<String>, now_ms: u64, out: &mut Vec<Member>) {
        for key in keys {
            let Some(known) = self.known.get(&key).filter(|k| k.suspect_since_ms.is_none()) else { continue };
            // A draining worker leaves on purpose, and is not evidence of a mass loss.
            if !known.record.draining {
                self.losses.push_back(Loss { at_ms: now_ms, key: key.clone(), record: known.record.clone() });
            }
            self.forget(&key, out);
        }
        let (present, _) = self.counts();
        let lost = self.losses.len();
        if lost < MASS_LOSS_MIN || lost <= present {
            return;
        }
        for loss in &self.losses {
            let known = Known { record: loss.record.clone(), suspect_since_ms: Some(now_ms) };
            if !self.known.contains_key(&loss.key) {
                self.known.insert(loss.key.clone(), known);
                // Retract the `Gone` of this step; one of an earlier step is not retracted.
                out.retain(
                    |m| !matches!(m, Member::Gone { id, boot } if *id == loss.record.id && *boot == loss.record.boot),
                );
                out.push(Member::Suspect(loss.record.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_wire::record::ExecutionClass;

    fn record(id: &str, boot: &str) -> WorkerRecord {
        let word = String::new;
        WorkerRecord {
            id: id.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            boot: boot.to_owned(),
            protocol_version: 1,
            protocol_oldest: 0,
            result_schema: word(),
            result_schemas_earlier: Vec::new(),
            class: ExecutionClass { engine: word(), numerics: word(), backend: word(), precision: word() },
            threads: 1,
            cache_bytes: 0,
            device: None,
            draining: false,
        }
    }

    fn put(id: &str, boot: &str) -> Event {
        Event::Put(id.to_owned(), Some(record(id, boot)))
    }

    fn deleted(id: &str) -> Event {
        Event::Deleted(id.to_owned())
    }

    fn here(id: &str) -> Member {
        Member::Here(record(id, "a"))
    }

    fn suspect(id: &str) -> Member {
        Member::Suspect(record(id, "a"))
    }

    fn gone(id: &str) -> Member {
        Member::Gone { id: id.to_owned(), boot: "a".to_owned() }
    }

    fn listed(ids: &[&str]) -> Event {
        Event::Listed(ids.iter().map(|id| ((*id).to_owned(), Some(record(id, "a")))).collect())
    }

    fn roster(ids: &[&str]) -> Roster {
        let mut roster = Roster::default();
        assert_eq!(roster.step(listed(ids), 0), ids.iter().map(|id| here(id)).collect::<Vec<_>>());
        roster
    }

    #[test]
    fn nobody_at_the_start_is_no_mass_loss() {
        let mut roster = roster(&[]);
        assert_eq!(roster.step(listed(&[]), 10), []);
        assert_eq!(roster.step(listed(&["w1"]), 20), [here("w1")]);
        assert_eq!(roster.step(deleted("w1"), 30), [gone("w1")], "one alone is none either");
    }

    #[test]
    fn a_worker_whose_devices_change_is_the_same_worker_and_one_that_stops_draining_is_another() {
        let mut roster = roster(&["w1", "w2"]);
        let devices = |health: &str| {
            Some(DeviceRecord {
                name: "d".to_owned(),
                memory_bytes: 1,
                count: 1,
                multiprocessors: 1,
                has_few_f64_units: false,
                health: health.to_owned(),
            })
        };
        let says = |health, draining| {
            let record = WorkerRecord { device: devices(health), draining, ..record("w1", "a") };
            Event::Put("w1".to_owned(), Some(record))
        };
        let changed = |health| Member::Devices { id: "w1".to_owned(), boot: "a".to_owned(), devices: devices(health) };
        assert_eq!(roster.step(says("healthy", false), 10), [changed("healthy")]);
        assert_eq!(roster.step(says("healthy", false), 20), [], "nothing new");
        let drains = Member::Draining { id: "w1".to_owned(), boot: "a".to_owned() };
        assert_eq!(roster.step(says("hot", true), 30), [changed("hot"), drains]);
        assert_eq!(roster.step(says("healthy", true), 40), [changed("healthy")]);
        let again = WorkerRecord { device: devices("healthy"), ..record("w1", "a") };
        assert_eq!(roster.step(says("healthy", false), 50), [gone("w1"), Member::Here(again)]);
    }

    #[test]
    fn a_worker_that_goes_alone_is_gone_at_once() {
        let mut roster = roster(&["w1", "w2", "w3", "w4"]);
        assert_eq!(roster.step(deleted("w1"), 10), [gone("w1")]);
        assert_eq!(roster.step(deleted("w2"), 20), [gone("w2")], "half of the fleet is not most of it");
        assert_eq!(roster.step(deleted("w3"), 21 + LOSS_WINDOW_MS), [gone("w3")], "the others went long before");
    }

    #[test]
    fn when_most_go_together_they_are_suspects_also_those_that_were_reported_gone() {
        let mut roster = roster(&["w1", "w2", "w3", "w4"]);
        assert_eq!(roster.step(deleted("w1"), 1_000), [gone("w1")]);
        assert_eq!(roster.step(deleted("w2"), 2_000), [gone("w2")]);
        assert_eq!(roster.step(deleted("w3"), 1_000 + LOSS_WINDOW_MS), [suspect("w1"), suspect("w2"), suspect("w3")]);
        assert_eq!(roster.counts(), (1, 3));
        assert_eq!(roster.step(deleted("w4"), 7_500), [suspect("w4")]);
    }

    #[test]
    fn a_listing_without_anybody_makes_suspects_of_all() {
        let mut roster = roster(&["w1", "w2"]);
        assert_eq!(roster.step(listed(&[]), 10), [suspect("w1"), suspect("w2")]);
        assert_eq!(roster.step(listed(&[]), 20), [], "reported once");
    }

    #[test]
    fn a_suspect_whose_record_comes_back_was_never_away() {
        let mut roster = roster(&["w1", "w2"]);
        roster.step(listed(&[]), 10);
        assert_eq!(roster.step(put("w1", "a"), 20), []);
        let anew = [gone("w2"), Member::Here(record("w2", "b"))];
        assert_eq!(roster.step(put("w2", "b"), 30), anew, "another life is another worker");
        assert_eq!(roster.wake_ms(), None);
        assert_eq!(roster.step(Event::Tick, 10 + SUSPECT_MAX_MS), []);
        assert_eq!(roster.step(deleted("w1"), 40 + SUSPECT_MAX_MS), [gone("w1")]);
    }

    #[test]
    fn a_suspect_is_kept_for_a_bounded_time_that_counts_from_when_the_store_was_back() {
        let mut roster = roster(&["w1", "w2"]);
        roster.step(listed(&[]), 10);
        assert_eq!(roster.wake_ms(), Some(10 + SUSPECT_MAX_MS));
        assert_eq!(roster.step(Event::Away, 20), []);
        assert_eq!(roster.wake_ms(), None);
        assert_eq!(roster.step(Event::Tick, 400_000), [], "it is away");
        assert_eq!(roster.step(listed(&[]), 500_000), [], "it was away");
        assert_eq!(roster.step(Event::Tick, 499_999 + SUSPECT_MAX_MS), []);
        assert_eq!(roster.step(Event::Tick, 500_000 + SUSPECT_MAX_MS), [gone("w1"), gone("w2")]);
        assert_eq!(roster.wake_ms(), None);
    }

    #[test]
    fn looking_again_does_not_keep_a_suspect_for_longer() {
        let mut roster = roster(&["w1", "w2"]);
        roster.step(listed(&[]), 10);
        assert_eq!(roster.step(listed(&[]), 30_010), []);
        assert_eq!(roster.wake_ms(), Some(10 + SUSPECT_MAX_MS));
        assert_eq!(roster.step(listed(&[]), 10 + SUSPECT_MAX_MS), [gone("w1"), gone("w2")]);
    }

    #[test]
    fn workers_that_leave_on_purpose_or_start_anew_are_no_losses() {
        let mut roster = roster(&["w1", "w2", "w3"]);
        for id in ["w1", "w2"] {
            let leaving = WorkerRecord { draining: true, ..record(id, "a") };
            let expected = Member::Draining { id: id.to_owned(), boot: "a".to_owned() };
            assert_eq!(roster.step(Event::Put(id.to_owned(), Some(leaving)), 10), [expected]);
            assert_eq!(roster.step(deleted(id), 11), [gone(id)]);
        }
        assert_eq!(roster.step(put("w3", "b"), 12), [gone("w3"), Member::Here(record("w3", "b"))]);
        assert_eq!(roster.step(Event::Put("w3".to_owned(), None), 13).len(), 1, "a record that cannot be read");
        assert_eq!(roster.counts(), (0, 0));
    }

    mod whatever_happens {
        use super::*;
        use proptest::collection::{btree_set, vec};
        use proptest::prelude::*;
        use std::collections::BTreeSet;

        proptest! {
            /// Applied one by one, the changes always yield the registered and the suspected workers.
            #[test]
            fn what_is_reported_adds_up(
                steps in vec((0..4u8, 0..6usize, btree_set(0..6usize, 0..6), 0..4_000u64), 1..60),
            ) {
                let mut roster = Roster::default();
                let (mut there, mut members) = (BTreeSet::new(), BTreeSet::new());
                let mut now_ms = 0;
                let name = |i: usize| format!("w{i}");
                for (kind, one, some, later_ms) in steps {
                    now_ms += later_ms;
                    let event = match kind {
                        0 => { there.insert(name(one)); put(&name(one), "a") }
                        1 => { there.remove(&name(one)); deleted(&name(one)) }
                        2 => Event::Away,
                        _ => {
                            there = some.into_iter().map(name).collect();
                            listed(&there.iter().map(String::as_str).collect::<Vec<_>>())
                        }
                    };
                    for member in roster.step(event, now_ms) {
                        match member {
                            Member::Here(record) => prop_assert!(members.insert(record.id)),
                            Member::Gone { id, .. } => prop_assert!(members.remove(&id)),
                            Member::Suspect(record) => { members.insert(record.id); }
                            Member::Draining { .. } | Member::Devices { .. } => {}
                        }
                    }
                    prop_assert!(members.is_superset(&there));
                    prop_assert_eq!(roster.counts(), (there.len(), members.len() - there.len()));
                }
                roster.step(listed(&there.iter().map(String::as_str).collect::<Vec<_>>()), now_ms);
                roster.step(Event::Tick, now_ms + SUSPECT_MAX_MS);
                prop_assert_eq!(roster.counts(), (there.len(), 0), "suspects are not kept for ever");
            }
        }
    }
}
