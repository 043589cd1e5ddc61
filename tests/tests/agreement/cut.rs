//! A past as-of sees neither later bars nor later events, not in reasons and counts either (rule 14): the market cut at
//! a day gives the same bytes as the whole market as of that day.

use trawl_tests::reference::random::Random;
use trawl_wire::{AnswerRow, Status};

use super::engine::{answer_rows, dataset, document};

const SCANS: u64 = 400;

#[test]
fn bars_after_the_as_of_change_no_byte_of_an_answer() {
    let (mut compared, mut stale) = (0, 0);
    for seed in 0..SCANS {
        let (whole, scan) = super::case(seed + 55_000);
        let days = whole.days();
        let day = days[Random::new(seed).below(days.len() as u64) as usize];
        let cut = whole.cut(day);
        let written = document(&scan);
        // A scan may refer to a symbol that does not exist yet.
        let Ok(short) = answer_rows(&dataset(&cut).expect("a market"), &written, day) else { continue };
        let full = answer_rows(&dataset(&whole).expect("a market"), &written, day).expect("what compiles on less");
        // Symbols whose first bar comes later are part of the whole market only.
        let later = |row: &AnswerRow| whole.find(&row.row.symbol).is_none_or(|i| cut.symbols[i].days.is_empty());
        let (later, full): (Vec<AnswerRow>, Vec<AnswerRow>) = full.into_iter().partition(later);
        for row in later {
            assert_eq!((row.row.status, row.row.reason.as_str()), (Status::Stale, "no bar yet"));
        }
        // By their text, which shows every bit and has one NaN.
        let (short, full) = (format!("{short:#?}"), format!("{full:#?}"));
        assert!(short == full, "seed {seed}, day {day}: {short}\ninstead of\n{full}\n{}", scan.text());
        stale += short.matches("no bar since").count();
        compared += 1;
    }
    assert!(compared > SCANS / 2 && stale > 100, "{compared} scans, {stale} stale");
}
