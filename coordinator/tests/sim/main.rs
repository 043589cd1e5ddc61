//! The real election, membership, records, planner and scheduler of several coordinators in a simulated cluster: time,
//! network, workers, stores and faults come from a seed.
//!
//! Every invariant (`ledger`) is checked after every event; the answers of a disturbed run are compared with the run of
//! the same seed without faults. `just sim 100000` runs many seeds, `just sim-seed N` one of them with a trace.

mod control;
mod coordinators;
mod facts;
mod faults;
mod following;
mod laws;
mod leader_term;
mod ledger;
mod machines;
mod members;
mod random;
mod results;
mod sabotage;
mod scans_of_a_term;
mod store_faults;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ledger::{Invariant, Violation};
use sabotage::{Bug, Sabotage};
use world::World;

/// Seeds of a default run, which ends earlier when its time is up.
const SEEDS: u64 = 2_000;
const TIME: Duration = Duration::from_secs(90);
/// Number of seeds within which a planted bug has to be detected.
const SABOTAGE_SEEDS: u64 = 3_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Runs a seed with its faults and without, and compares the answers. Returns counts of events by kind.
fn run(seed: u64, traced: bool) -> Result<BTreeMap<&'static str, u64>, Violation> {
    let mut disturbed = World::new(seed, false, None);
    disturbed.traced = traced;
    disturbed.run()?;
    if !disturbed.has_liars() {
        let mut quiet = World::new(seed, true, None);
        quiet.run()?;
        let wanted = quiet.answered_rows();
        for (scan, rows) in disturbed.answered_rows() {
            let Some(wanted) = wanted.get(&scan) else { continue };
            // A symbol that failed has a reason, which the ledger checked.
            let same = rows.len() == wanted.len()
                && rows
                    .iter()
                    .zip(wanted)
                    .all(|(a, b)| (a.0, a.1) == (b.0, b.1) && (a.2 == b.2 || a.2.is_none() || b.2.is_none()));
            if !same {
                let what = format!("scan {scan} does not answer what it answers without faults");
                return Err(Violation { invariant: Invariant::SameBytes, what });
            }
        }
    }
    Ok(disturbed.counts)
}

#[test]
fn whatever_happens_every_invariant_holds() {
    if let Some(seed) = number("TRAWL_SIM_SEED") {
        let counts = run(seed, true).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        println!("seed {seed}: {counts:?}");
        return;
    }
    let asked = number("TRAWL_SIM_SEEDS");
    let first = number("TRAWL_SIM_FIRST").unwrap_or(0);
    let started = Instant::now();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut seeds = 0;
    for seed in first..first + asked.unwrap_or(SEEDS) {
        if asked.is_none() && started.elapsed() > TIME {
            break;
        }
        match run(seed, false) {
            Ok(seen) => seen.into_iter().for_each(|(what, n)| *counts.entry(what).or_default() += n),
            Err(violation) => panic!("seed {seed}: {violation}\n  replay it with: just sim-seed {seed}"),
        }
        seeds += 1;
    }
    println!("{seeds} seeds in {:.1} s: {counts:?}", started.elapsed().as_secs_f64());
    // The seeds cover these events.
    for what in [
        "complete",
        "hedged",
        "isolated",
        "poisoned",
        "votes",
        "replaced",
        "quarantined",
        "disputed",
        "deadline",
        "taken over",
        "failed at take-over",
        "terms that were taken",
        "hand-overs",
        "suspended terms",
        "resumed terms",
        "refused as stale",
        "answers lost",
        "killed by a commit",
        "existing",
        "suspects",
        "full",
        "distrusted",
        "checks",
        "files that were late",
        "left by their watchdog",
        "out of space",
        "isolated nodes",
        "keep-alives of isolated nodes",
        "silent watches",
        "restored stores",
        "upgrades",
        "begun anew",
        "left a restored store",
        "not read for lack of room",
        "malformed",
    ] {
        assert!(counts.contains_key(what), "nothing was ever {what}: {counts:?}");
    }
}

#[test]
fn every_planted_bug_is_noticed_by_its_invariant() {
    for bug in Bug::ALL {
        let noticed = (0..SABOTAGE_SEEDS).find_map(|seed| {
            let found = World::new(seed, false, Some(Sabotage::new(bug))).run().err()?;
            (found.invariant == bug.noticed_by()).then_some((seed, found))
        });
        let (seed, violation) =
            noticed.unwrap_or_else(|| panic!("{bug:?} was never noticed by {:?}", bug.noticed_by()));
        println!("{bug:?} is noticed at seed {seed}: {violation}");
    }
}
