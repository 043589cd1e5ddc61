//! The required properties of the planner, on random scans and fleets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trawl_coordinator::planner::{
    Assignment, Holdings, LOAD_BOUND_PERCENT, SHARD_NS_MIN, SHARDS_PER_DEVICE, SHARDS_PER_WORKER, SegmentCost, Shard,
    ShardSpec, WorkerSeat, name_key, plan_shards, preferred,
};
use trawl_wire::group_bits;

fn costs() -> impl Strategy<Value = Vec<SegmentCost>> {
    proptest::collection::btree_map(0u32..2000, 1u64..1_000_000, 0..200)
        .prop_map(|m| m.into_iter().map(|(segment, cost)| SegmentCost { segment, cost }).collect())
}

fn fleet(count: u64) -> Vec<WorkerSeat<'static>> {
    (0..count)
        .map(|i| WorkerSeat {
            worker: i + 10,
            key: name_key(&format!("worker-{i}")),
            device: false,
            capacity: 1,
            holds: Holdings::default(),
        })
        .collect()
}

fn specs() -> impl Strategy<Value = ShardSpec> {
    prop_oneof![Just(ShardSpec::Automatic), Just(ShardSpec::PerSegment), (0u32..300).prop_map(ShardSpec::Count)]
}

fn wanted(segments: &[SegmentCost]) -> Vec<u32> {
    segments.iter().map(|s| s.segment).collect()
}

fn planned(shards: &[Shard]) -> Vec<u32> {
    let mut all: Vec<u32> = shards.iter().flat_map(|s| s.segments.clone()).collect();
    all.sort_unstable();
    all
}

proptest! {
    #[test]
    fn every_segment_is_in_exactly_one_shard(segments in costs(), workers in 0u64..9, spec in specs()) {
        let shards = plan_shards(&segments, &fleet(workers), spec, 7);
        prop_assert_eq!(planned(&shards), wanted(&segments));
        for shard in &shards {
            prop_assert!(!shard.segments.is_empty());
            prop_assert!(shard.segments.is_sorted());
            let cost: u64 = segments.iter().filter(|s| shard.segments.contains(&s.segment)).map(|s| s.cost).sum();
            prop_assert_eq!(shard.cost, cost);
            prop_assert_eq!(shard.preferred.is_some(), workers > 0);
        }
    }

    #[test]
    fn the_number_of_shards_is_the_one_asked_for(segments in costs(), count in 1u32..300) {
        let shards = plan_shards(&segments, &fleet(3), ShardSpec::Count(count), 7);
        prop_assert_eq!(shards.len(), (count as usize).min(segments.len()));
        let one_each = plan_shards(&segments, &fleet(3), ShardSpec::PerSegment, 7);
        prop_assert_eq!(one_each.len(), segments.len());
    }

    #[test]
    fn the_order_of_segments_and_workers_changes_nothing(
        (segments, shuffled) in costs().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        (workers, turned) in (1u64..9).prop_flat_map(|n| (Just(fleet(n)), Just(fleet(n)).prop_shuffle())),
        spec in specs(),
    ) {
        prop_assert_eq!(plan_shards(&segments, &workers, spec, 7), plan_shards(&shuffled, &turned, spec, 7));
    }

    #[test]
    fn a_worker_that_leaves_moves_only_its_own_segments(segment in any::<u32>(), workers in 2u64..20, gone in 0u64..20) {
        let all = fleet(workers);
        let gone = gone % workers + 10;
        let left: Vec<WorkerSeat<'_>> = all.iter().copied().filter(|w| w.worker != gone).collect();
        let before = preferred(segment, &all, 7).unwrap();
        let after = preferred(segment, &left, 7).unwrap();
        prop_assert!(before == gone || before == after);
    }

    #[test]
    fn what_is_held_stays_where_it_is_within_the_bound(
        segments in costs(), held in proptest::collection::vec(0usize..4, 2000), workers in 1usize..5, spec in specs(),
    ) {
        // Worker 3, if there is one, claims to hold everything.
        let of = |at: usize| group_bits::pack((0u32..).zip(&held).filter(|(_, by)| **by == at || at == 3).map(|(s, _)| s));
        let bits: Vec<Vec<u8>> = (0..workers).map(of).collect();
        let holds = |at: usize| match at % 2 {
            0 => Holdings { memory: &bits[at], disk: &[] },
            _ => Holdings { memory: &[], disk: &bits[at] },
        };
        let mut seats = fleet(workers as u64);
        (0..workers).for_each(|at| seats[at].holds = holds(at));
        let shards = plan_shards(&segments, &seats, spec, 7);
        prop_assert_eq!(planned(&shards), wanted(&segments));
        let total: u64 = segments.iter().map(|s| s.cost).sum();
        let bound = total * LOAD_BOUND_PERCENT / (100 * workers as u64) + segments.iter().map(|s| s.cost).max().unwrap_or(0);
        for seat in &seats {
            let its: Vec<&Shard> = shards.iter().filter(|s| s.preferred == Some(seat.worker)).collect();
            let load: u64 = its.iter().map(|s| s.cost).sum();
            prop_assert!(spec != ShardSpec::Automatic || load <= bound, "a claim gets a worker no more than its bound");
            if spec == ShardSpec::PerSegment {
                let tier = |s: &&Shard| seats.iter().map(|other| other.holds.tier(s.segments[0])).max();
                prop_assert!(its.iter().all(|s| Some(seat.holds.tier(s.segments[0])) == tier(s)));
            }
        }
    }

    #[test]
    fn no_worker_is_given_more_than_its_bound(segments in costs(), workers in 1u64..9) {
        let shards = plan_shards(&segments, &fleet(workers), ShardSpec::Automatic, 7);
        let mut loads: BTreeMap<u64, u64> = BTreeMap::new();
        for shard in &shards {
            *loads.entry(shard.preferred.unwrap()).or_default() += shard.cost;
        }
        let total: u64 = segments.iter().map(|s| s.cost).sum();
        let largest = segments.iter().map(|s| s.cost).max().unwrap_or(0);
        let bound = total * LOAD_BOUND_PERCENT / (100 * workers) + largest;
        prop_assert!(loads.values().all(|&load| load <= bound), "{:?} over {}", loads, bound);
        prop_assert!(shards.len() <= workers as usize * SHARDS_PER_WORKER);
    }

    #[test]
    fn shards_of_equal_segments_differ_by_one_at_most(segments in 1u32..500, count in 1u32..50) {
        let segments: Vec<SegmentCost> = (0..segments).map(|segment| SegmentCost { segment, cost: 5 }).collect();
        let shards = plan_shards(&segments, &[], ShardSpec::Count(count), 7);
        let sizes: Vec<usize> = shards.iter().map(|s| s.segments.len()).collect();
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{:?}", sizes);
    }
}

#[test]
fn a_worker_that_joins_takes_from_those_that_hold_the_data_only_what_is_over_their_bound() {
    let segments: Vec<SegmentCost> = (0..100).map(|segment| SegmentCost { segment, cost: 100 }).collect();
    let halves = [group_bits::pack(0..50), group_bits::pack(50..100)];
    let mut seats = fleet(3);
    for (seat, memory) in seats.iter_mut().zip(&halves) {
        seat.holds = Holdings { memory, disk: &[] };
    }
    let count = |seats: &[WorkerSeat<'_>], worker: u64| -> usize {
        let shards = plan_shards(&segments, seats, ShardSpec::Automatic, 7);
        shards.iter().filter(|s| s.preferred == Some(worker)).map(|s| s.segments.len()).sum()
    };
    assert_eq!([10, 11].map(|worker| count(&seats[..2], worker)), [50, 50], "whatever the hash says");
    assert_eq!([10, 11, 12].map(|worker| count(&seats, worker)), [41, 41, 18]);
}

#[test]
fn a_device_is_given_its_segments_in_as_many_shards_as_it_has_in_flight() {
    let segments: Vec<SegmentCost> = (0..60).map(|segment| SegmentCost { segment, cost: SHARD_NS_MIN }).collect();
    let count = |device: bool| {
        let seats: Vec<WorkerSeat<'_>> = fleet(3).into_iter().map(|seat| WorkerSeat { device, ..seat }).collect();
        let shards = plan_shards(&segments, &seats, ShardSpec::Automatic, 7);
        assert_eq!(planned(&shards), wanted(&segments));
        shards.len()
    };
    assert_eq!((count(true), count(false)), (3 * SHARDS_PER_DEVICE, 3 * SHARDS_PER_WORKER));
}

#[test]
fn what_is_computed_in_a_moment_is_not_cut_further() {
    let shards = |cost: u64, capacity: u32| {
        let segments: Vec<SegmentCost> = (0..40).map(|segment| SegmentCost { segment, cost }).collect();
        let seats: Vec<WorkerSeat<'_>> = fleet(1).into_iter().map(|seat| WorkerSeat { capacity, ..seat }).collect();
        plan_shards(&segments, &seats, ShardSpec::Automatic, 7).len()
    };
    let part = SHARD_NS_MIN / 40;
    assert_eq!([1, part, 2 * part, 3 * part, 4 * part, 100 * part].map(|cost| shards(cost, 1)), [1, 1, 2, 3, 4, 4]);
    assert_eq!([4 * part, 16 * part, 64 * part].map(|cost| shards(cost, 16)), [1, 1, 4], "its threads share it");
}

#[test]
fn who_is_assigned_what_does_not_depend_on_the_unit_of_costs() {
    let sizes: Vec<SegmentCost> =
        (0..500).map(|segment| SegmentCost { segment, cost: 1 + u64::from(segment * 7_919 % 100) }).collect();
    let assignment = Assignment::of(&sizes, &fleet(7), 7);
    let of_each = |shards: Vec<Shard>| {
        let mut each: BTreeMap<Option<u64>, Vec<u32>> = BTreeMap::new();
        shards.into_iter().for_each(|shard| each.entry(shard.preferred).or_default().extend(shard.segments));
        each
    };
    let expected = of_each(plan_shards(&sizes, &fleet(7), ShardSpec::Automatic, 7));
    for per_unit in [1, 1_000, 1_000_000_000] {
        let shards = assignment.shards(|size| size * per_unit);
        assert_eq!(planned(&shards), wanted(&sizes));
        let cost: u64 = shards.iter().map(|shard| shard.cost).sum();
        assert_eq!(cost, per_unit * sizes.iter().map(|size| size.cost).sum::<u64>());
        assert_eq!(of_each(shards), expected);
    }
}

#[test]
fn segments_spread_over_workers() {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for segment in 0..1000 {
        *counts.entry(preferred(segment, &fleet(4), name_key("us5")).unwrap()).or_default() += 1;
    }
    assert!(counts.len() == 4 && counts.values().all(|n| (180..320).contains(n)), "{counts:?}");
}

#[test]
fn another_dataset_is_spread_otherwise() {
    let place = |name: &str| (0..50).map(|s| preferred(s, &fleet(4), name_key(name))).collect::<Vec<_>>();
    assert_ne!(place("us5"), place("eu50"));
}

/// One line per shard.
fn text_of(title: &str, shards: &[Shard]) -> String {
    let mut text = format!("{title}\n");
    for (number, shard) in shards.iter().enumerate() {
        let segments: Vec<String> = shard.segments.iter().map(ToString::to_string).collect();
        let place = shard.preferred.map_or_else(|| "anywhere".to_owned(), |worker| format!("worker {worker}"));
        let cost_ms = shard.cost / 1_000_000;
        text.push_str(&format!("  shard {number}: segments {} cost {cost_ms} on {place}\n", segments.join(" ")));
    }
    text
}

/// Plans as text, so that changes of placement are deliberate. Regenerated with `TRAWL_BLESS=1`.
#[test]
fn plans_are_the_ones_that_were_written_down() {
    let ms = 1_000_000;
    let even: Vec<SegmentCost> = (0..16).map(|segment| SegmentCost { segment, cost: 100 * ms }).collect();
    let short: Vec<SegmentCost> = (0..16).map(|segment| SegmentCost { segment, cost: ms }).collect();
    let mut uneven = even.clone();
    (uneven[3].cost, uneven[11].cost) = (1_500 * ms, 700 * ms);
    let cases = [
        ("16 equal segments, nobody there", &even, 0, ShardSpec::Automatic),
        ("16 equal segments, one worker", &even, 1, ShardSpec::Automatic),
        ("16 equal segments, three workers", &even, 3, ShardSpec::Automatic),
        ("16 equal segments, four workers: one more moves its own alone", &even, 4, ShardSpec::Automatic),
        ("two of 16 segments are large, three workers", &uneven, 3, ShardSpec::Automatic),
        ("16 short segments, three workers", &short, 3, ShardSpec::Automatic),
        ("16 equal segments in five shards", &even, 3, ShardSpec::Count(5)),
        ("a shard for each segment", &even, 3, ShardSpec::PerSegment),
    ];
    let text: String = cases
        .into_iter()
        .map(|(title, segments, workers, spec)| {
            text_of(title, &plan_shards(segments, &fleet(workers), spec, name_key("market")))
        })
        .collect();
    if std::env::var_os("TRAWL_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plans.txt"), &text).unwrap();
    }
    assert_eq!(text, include_str!("plans.txt"), "TRAWL_BLESS=1 writes it down anew");
}

#[test]
fn a_worker_gets_work_by_its_capacity() {
    let segments: Vec<SegmentCost> = (0..2_000).map(|segment| SegmentCost { segment, cost: 100 }).collect();
    for capacities in [[1, 1, 1], [4, 4, 16], [1, 2, 128], [0, 3, 0]] {
        let seats: Vec<WorkerSeat<'_>> =
            fleet(3).into_iter().zip(capacities).map(|(seat, capacity)| WorkerSeat { capacity, ..seat }).collect();
        let smallest = capacities.iter().copied().min().unwrap_or(1).max(1);
        let shares: Vec<u64> = capacities.iter().map(|c| u64::from((c.max(&1) / smallest).min(8))).collect();
        for spec in [ShardSpec::Automatic, ShardSpec::PerSegment] {
            let shards = plan_shards(&segments, &seats, spec, 7);
            let cost = |worker: u64| shards.iter().filter(|s| s.preferred == Some(worker)).map(|s| s.cost).sum::<u64>();
            for (seat, share) in seats.iter().zip(&shares) {
                let fair = 200_000 * share / shares.iter().sum::<u64>();
                let got = cost(seat.worker);
                assert!(got * 10 >= fair * 7 && got * 10 <= fair * 13, "{capacities:?} {spec:?}: {got} of {fair}");
            }
        }
    }
}
