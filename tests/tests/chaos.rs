//! Processes that die, stop or are cut off at random moments of real scans change no byte of an answer, and lose no
//! scan.

use trawl_tests::chaos::net::Net;
use trawl_tests::chaos::schedule::Schedule;
use trawl_tests::chaos::{Question, describe, run};
use trawl_tests::home::Home;

use crate::answers::CLAUSES;

/// Schedules of a usual run: one for each kind of fault to begin with.
const SEEDS: u64 = 10;
/// Symbols and bars of the market: about twenty groups, and so about twenty moments at which a worker may die.
const MARKET: (u32, u32) = (1200, 120);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not '{text}'")))
}

/// The answer of one process.
fn question(home: &Home, name: &'static str, clauses: &[&str]) -> Question {
    let clauses = [&["--dataset", "market"], clauses].concat();
    let output = format!("{name}.json");
    home.trawl(&[&["scan", "--quiet", "--output", &output], &clauses[..]].concat()).expect_code(0);
    Question { name, clauses: clauses.into_iter().map(str::to_owned).collect(), answer: home.read(&output) }
}

/// `TRAWL_CHAOS_SEEDS` schedules from `TRAWL_CHAOS_FIRST` on, or the one of `TRAWL_CHAOS_SEED`.
#[test]
fn whatever_dies_stops_or_is_cut_off_no_scan_is_lost_and_no_byte_changes() {
    let links = match Net::new() {
        Ok(_) => true,
        Err(why) => {
            println!("NOT TESTED: links cannot be cut on this machine ({why}); processes are stopped instead");
            false
        }
    };
    let home = Home::new();
    home.synth("market", MARKET.0, MARKET.1);
    let simple = question(&home, "simple", &["--where", "rsi(close, 14) < 45", "--rank", "close desc"]);
    let stages = question(&home, "stages", &CLAUSES);
    let seeds = match number("TRAWL_CHAOS_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("TRAWL_CHAOS_FIRST").unwrap_or(0);
            first..first + number("TRAWL_CHAOS_SEEDS").unwrap_or(SEEDS)
        }
    };
    let mut failed = Vec::new();
    // In a whole round of seeds at least one report must show that an attempt was lost.
    let mut shown = seeds.clone().count() < SEEDS as usize;
    for seed in seeds {
        let schedule = Schedule::of(seed, links);
        // Each of them is waited for in turn, while the other is detached.
        let questions = if seed % 2 == 0 { [&stages, &simple] } else { [&simple, &stages] };
        let played = std::panic::catch_unwind(|| run(&home, &schedule, questions, links));
        match played {
            Ok(outcome) if outcome.fired() > 0 && outcome.attempt_lost != Some(false) => {
                shown |= outcome.attempt_lost == Some(true);
                let took = outcome.took.as_secs_f64();
                let lost = if outcome.attempt_lost == Some(true) { ", an attempt was lost and repeated" } else { "" };
                println!("seed {seed}: the same answers after {took:.1} s{lost}\n{}", describe(&outcome.faults));
            }
            Ok(outcome) => {
                println!("seed {seed}: nothing happened that could be proven\n{}", describe(&outcome.faults));
                failed.push(seed);
            }
            // The panic itself has printed the details.
            Err(_) => failed.push(seed),
        }
    }

    assert!(failed.is_empty(), "{failed:?} failed; one of them again: just chaos-seed {}", failed[0]);
    assert!(shown, "no report contains an attempt that was lost");
}
