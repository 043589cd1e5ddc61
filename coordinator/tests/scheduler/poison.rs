//! Symbols that kill workers.

use std::collections::BTreeMap;

use trawl_coordinator::planner::Shard;
use trawl_coordinator::scheduler::{Command, Event, Outcome, Piece, Purpose};
use trawl_wire::ErrorKind;

use super::{Case, SLOTS, SYMBOLS, request, shard};

/// Workers die of `poison`, symbols of segment 0, until the scan ends. Returns how each symbol ended.
fn bisect(poison: &[u32]) -> (BTreeMap<u32, &'static str>, Outcome, usize) {
    let mut case = Case::one_scan(1, &[&[0]]);
    let (mut ends, mut deaths, mut worker) = (BTreeMap::new(), 0, 1);
    for _ in 0..100 {
        let mut next = case.dispatched();
        let end = case.commands.iter().find_map(|c| match c {
            Command::End { outcome, .. } => Some(*outcome),
            _ => None,
        });
        if let Some(outcome) = end {
            return (ends, outcome, deaths);
        }
        let Some((attempt, host, pieces, purpose)) = next.pop() else {
            // A worker took its work with it: the next one starts.
            worker += 1;
            case.join(worker, 0, SLOTS);
            continue;
        };
        assert!(next.is_empty(), "one worker, one suspect at a time");
        let piece = pieces[0];
        assert_eq!(purpose == Purpose::Isolation, piece.count < SYMBOLS, "{piece:?}");
        let symbols = piece.first..piece.first + piece.count;
        if symbols.clone().any(|s| poison.contains(&s)) {
            deaths += 1;
            let commands = case.died(host).to_vec();
            for command in &commands {
                if let Command::Fail { piece, kind, .. } = command {
                    assert_eq!((*kind, piece.count), (ErrorKind::Poisoned, 1));
                    ends.insert(piece.first, "poisoned");
                }
            }
        } else {
            case.done(attempt, host, piece, 0);
            let ended = case.commands.clone();
            symbols.for_each(|s| assert_eq!(ends.insert(s, "answered"), None));
            if ended.iter().all(|c| !matches!(c, Command::End { .. })) {
                case.step(Event::AttemptEnded { attempt });
            }
        }
    }
    panic!("it never ends: {:?}", case.scheduler);
}

#[test]
fn a_segment_that_kills_workers_is_cut_down_to_the_symbol_that_does_it() {
    for poison in 0..SYMBOLS {
        let (ends, outcome, deaths) = bisect(&[poison]);
        assert_eq!(outcome, Outcome::Complete { disputed: false });
        let wanted = |s| (s, if s == poison { "poisoned" } else { "answered" });
        assert_eq!(ends, (0..SYMBOLS).map(wanted).collect());
        assert_eq!(deaths, 5, "twice whole, once halved, twice alone");
    }
}

#[test]
fn a_scan_of_too_many_poisoned_symbols_ends() {
    let (ends, outcome, _) = bisect(&[0, 1, 3]);
    assert_eq!(outcome, Outcome::Poisoned);
    assert_eq!(ends.values().filter(|end| **end == "poisoned").count(), 2);
}

#[test]
fn a_suspect_runs_with_nothing_beside_it_and_is_not_starved() {
    let mut case = Case::one_scan(3, &[&[0]]);
    case.died(1);
    assert_eq!(case.places(), [(2, vec![0])]);
    // Other scans keep the last worker busy before the second death.
    let shards: Vec<Shard> = (0..9).map(|s| shard(&[s], None)).collect();
    case.step(Event::Submitted { scan: 2, request: request(&shards) });
    case.died(2);
    let half = |first| Piece { segment: 0, first, count: 2 };
    assert!(case.dispatched().iter().all(|d| d.3 != Purpose::Isolation), "worker 3 is busy");
    let mut seen = Vec::new();
    for attempt in 2..12 {
        case.step(Event::AttemptEnded { attempt });
        for (id, worker, pieces, purpose) in case.dispatched() {
            if purpose == Purpose::Isolation {
                assert_eq!(case.scheduler.in_flight(worker), 1, "it runs alone");
                seen.extend(pieces.clone());
                case.done(id, worker, pieces[0], 0);
                case.step(Event::AttemptEnded { attempt: id });
                for (_, _, pieces, purpose) in case.dispatched() {
                    if purpose == Purpose::Isolation {
                        seen.extend(pieces);
                    }
                }
                assert_eq!(seen, [half(0), half(2)]);
                return;
            }
        }
    }
    panic!("the suspect never ran");
}
