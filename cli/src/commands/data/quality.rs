//! What is doubtful about a dataset's bars, in words: `trawl data inspect --quality`.

use std::fmt::Write as _;

use trawl_market::{DayCoverage, Quality, TimeMicros, format_time};

use super::jumps::jumps;
use trawl_front::human::{counted, thousands};

/// Items of each list in the text; JSON has more.
const SHOWN: usize = 10;
/// Days with a smaller share of the symbols that have bars before and after are listed.
const THIN: f64 = 0.9;

/// Adds the report.
pub fn quality_text(text: &mut String, quality: &Quality) {
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let dates = |count: u64, dates: &[TimeMicros]| {
        let shown: Vec<String> = dates.iter().take(SHOWN).map(|date| format_time(*date)).collect();
        match count.saturating_sub(shown.len() as u64) {
            0 => shown.join(", "),
            more => format!("{} and {} more", shown.join(", "), thousands(more)),
        }
    };
    if quality.sessions > 0 {
        let without = quality.sessions_without_bars;
        let list = match without {
            0 => String::new(),
            _ => format!(": {}", dates(without, &quality.sessions_without_bars_listed)),
        };
        line(format!("sessions: {}, {} without any bar{list}", thousands(quality.sessions), thousands(without)));
    }
    if quality.bars_without_session > 0 {
        line(format!(
            "{} on dates without a session: {}",
            counted(quality.bars_without_session as usize, "bar"),
            dates(quality.dates_without_session, &quality.dates_without_session_listed)
        ));
    }
    if quality.bars_outside_sessions > 0 {
        line(format!("{} outside regular sessions", counted(quality.bars_outside_sessions as usize, "bar")));
    }
    coverage(&mut line, &quality.days);
    if quality.short_sessions > 0 {
        let sessions = counted(quality.short_sessions as usize, "session");
        line(format!("short: {sessions} with less than half of the bars that are usual around them"));
        for short in quality.short_sessions_listed.iter().take(SHOWN) {
            let bars = counted(short.bars as usize, "bar");
            line(format!("  {}: {bars}, usually {}", format_time(short.date), thousands(short.usual)));
        }
    }
    if !quality.missing_cells.is_empty() {
        let columns: Vec<String> =
            quality.missing_cells.iter().map(|(column, cells)| format!("{} of {column}", thousands(*cells))).collect();
        line(format!("cells without a number: {}", columns.join(", ")));
    }
    let symbols = counted(quality.symbols_with_gaps as usize, "symbol");
    let sessions = counted(quality.gaps as usize, "session");
    line(format!("gaps: {sessions} of {symbols} without a bar, between others that have one"));
    for gap in quality.gaps_listed.iter().take(SHOWN) {
        line(format!(
            "  {}: {} after {} and before {}",
            gap.symbol,
            counted(gap.sessions as usize, "session"),
            format_time(gap.after),
            format_time(gap.before)
        ));
    }
    if quality.ended > 0 {
        line(format!("ended: {}, as the table of symbols has it", counted(quality.ended as usize, "symbol")));
    }
    if quality.stale > 0 {
        line(format!("stale: {} without recent bars", counted(quality.stale as usize, "symbol")));
        for stale in quality.stale_listed.iter().take(SHOWN) {
            let sessions = counted(stale.sessions as usize, "session");
            line(format!("  {}: last on {}, {sessions} ago", stale.symbol, format_time(stale.last)));
        }
    }
    let own: u64 = quality.quarantined.values().sum();
    line(format!("quarantine: {} of the import that made this snapshot", counted(own as usize, "row")));
    for (reason, count) in &quality.quarantined {
        line(format!("  {} {reason}", thousands(*count)));
    }
    if quality.quarantined_in_all != quality.quarantined {
        let all: u64 = quality.quarantined_in_all.values().sum();
        line(format!("  {} of all imports whose snapshots are kept", counted(all as usize, "row")));
        for (reason, count) in &quality.quarantined_in_all {
            line(format!("    {} {reason}", thousands(*count)));
        }
    }
    jumps(text, quality.jumps, &quality.jumps_listed);
}

/// The days with the smallest share of symbols.
fn coverage(line: &mut impl FnMut(String), days: &[DayCoverage]) {
    let share = |day: &DayCoverage| day.symbols as f64 / day.expected.max(1) as f64;
    let mut thin: Vec<&DayCoverage> = days.iter().filter(|day| share(day) < THIN).collect();
    thin.sort_by(|a, b| share(a).total_cmp(&share(b)).then(a.date.cmp(&b.date)));
    let mean = days.iter().map(share).sum::<f64>() / days.len().max(1) as f64;
    line(format!(
        "coverage: {:.1} % of the symbols on {} on average, below {:.0} % on {}",
        100.0 * mean,
        counted(days.len(), "date"),
        100.0 * THIN,
        thin.len()
    ));
    for day in thin.into_iter().take(SHOWN) {
        let symbols = thousands(day.symbols);
        line(format!(
            "  {}: {symbols} of {}, {}",
            format_time(day.date),
            counted(day.expected as usize, "symbol"),
            counted(day.bars as usize, "bar")
        ));
    }
}
