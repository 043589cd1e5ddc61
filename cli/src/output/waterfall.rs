//! A profile as text: phases, stages, and for each shard a bar along the time of the run.
//!
//! It draws what `trawl_coordinator::profile` found; the causes of delays are decided there.

use trawl_coordinator::profile::{Profile, ShardLine, duration_text as duration};

use trawl_front::human::thousands;

/// Columns of a page when the width is not known.
const WIDTH_DEFAULT: usize = 100;
/// Widths outside this range are clamped to it.
const WIDTH_RANGE: std::ops::RangeInclusive<usize> = 60..=200;
/// Shards that are drawn by default.
const SHARDS_SHOWN: usize = 20;
/// Stragglers that are listed by default.
const STRAGGLERS_SHOWN: usize = 10;
/// Characters of a worker's name or of a reason.
const NAME_CHARS_MAX: usize = 20;
/// Letters of stages, in the order in which a shard goes through them.
const LETTERS: [(&str, char); 8] = [
    ("receive", 'r'),
    ("queue", 'q'),
    ("load", 'l'),
    ("h2d", 'h'),
    ("kernel", 'k'),
    ("d2h", 'd'),
    ("encode", 'e'),
    ("send", 's'),
];
/// Waiting for a worker.
const WAITS: char = '.';
/// At a worker, without further detail.
const RUNS: char = '-';

/// How a profile is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Columns of the page.
    pub width: usize,
    /// Every shard and every straggler.
    pub all: bool,
    /// How to see more of them; empty when that is not possible.
    pub more: &'static str,
}

/// Columns of the terminal, or the value of `COLUMNS`, or a usual width.
pub fn width() -> usize {
    let terminal = console::Term::stdout();
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let seen = terminal.size_checked().map(|(_, columns)| usize::from(columns));
    within(columns.or(seen).unwrap_or(WIDTH_DEFAULT))
}

fn within(width: usize) -> usize {
    width.clamp(*WIDTH_RANGE.start(), *WIDTH_RANGE.end())
}

/// The whole page.
pub fn render(profile: &Profile, options: Options) -> String {
    let width = within(options.width);
    let mut text = String::new();
    head(profile, width, &mut text);
    stages(profile, width, &mut text);
    workers(profile, width, &mut text);
    shards(profile, width, options, &mut text);
    stragglers(profile, width, options.all, &mut text);
    text
}

fn head(profile: &Profile, width: usize, text: &mut String) {
    let what = if profile.scan.is_empty() { "scan".to_owned() } else { format!("scan {}", clean(&profile.scan, 50)) };
    let size = format!("{} symbols, {} bars", thousands(profile.symbols), thousands(profile.bars));
    let all = format!("{what} ({}): {size}, {}", clean(&profile.mode, 20), duration(profile.total_ms));
    text.push_str(&wrapped(&all, width, ""));
    let phases: Vec<String> = profile.phases.iter().map(|p| format!("{} {}", p.phase, duration(p.ms))).collect();
    text.push_str(&wrapped(&phases.join(" | "), width, "  "));
    if !profile.answer_of.is_empty() {
        let of = clean(&profile.answer_of, 50);
        text.push_str(&wrapped(
            &format!("an earlier answer with the same identity ({of}): --fresh computes it"),
            width,
            "  ",
        ));
    }
    if !profile.trace.is_empty() {
        text.push_str(&format!("  trace {}\n", clean(&profile.trace, 32)));
    }
}

fn stages(profile: &Profile, width: usize, text: &mut String) {
    if profile.stages.is_empty() {
        return;
    }
    text.push_str("\ntime by stage, summed over threads\n");
    let room = width.saturating_sub(30).min(50);
    let mut sums: Vec<_> = profile.stages.iter().collect();
    sums.sort_by_key(|sum| place(&sum.stage));
    for sum in sums {
        let bar = "█".repeat(share_of(room, sum.share));
        let line =
            format!("  {:8} {:>9} {:>4.0}%  {bar}", clean(&sum.stage, 8), duration(sum.busy_ms), sum.share * 100.0);
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn workers(profile: &Profile, width: usize, text: &mut String) {
    if profile.workers.len() < 2 {
        return;
    }
    text.push_str("\nworkers\n");
    let longest = profile.workers.iter().map(|w| name_of(&w.worker).chars().count()).max().unwrap_or(0);
    for worker in &profile.workers {
        let late = match worker.stragglers {
            0 => String::new(),
            n => format!(", {n} late"),
        };
        let line = format!(
            "  {:longest$}  {} shards, {} bars, {}{late}",
            name_of(&worker.worker),
            worker.shards,
            thousands(worker.bars),
            duration(worker.took_ms)
        );
        text.push_str(&cut(&line, width));
        text.push('\n');
    }
}

fn shards(profile: &Profile, width: usize, options: Options, text: &mut String) {
    let shown = if options.all { profile.shards.len() } else { SHARDS_SHOWN.min(profile.shards.len()) };
    let Some(lines) = profile.shards.get(..shown).filter(|lines| !lines.is_empty()) else { return };
    let rest = match profile.shards.len() - shown {
        0 => String::new(),
        more => format!(", {more} more{}", options.more),
    };
    text.push_str(&format!("\nshards, the slowest first{rest}\n"));
    let mut rows: Vec<[String; 6]> = vec![["ATTEMPT", "WORKER", "BARS", "CACHE", "WAITED", "TOOK"].map(str::to_owned)];
    rows.extend(lines.iter().map(|line| {
        let bars = if line.bars > 0 { thousands(line.bars) } else { "?".to_owned() };
        let cache = line.cache.unwrap_or("?").to_owned();
        let attempt = line.attempt.to_string();
        [attempt, name_of(&line.worker), bars, cache, duration(line.queued_ms), duration(line.took_ms)]
    }));
    let widths: Vec<usize> = (0..6).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let table: usize = widths.iter().map(|w| w + 2).sum();
    let room = width.saturating_sub(table + 4);
    let end = lines.iter().map(|line| line.started_ms + line.took_ms).fold(0.0, f64::max);
    for (i, row) in rows.iter().enumerate() {
        let mut line = String::from(" ");
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.chars().count());
            // Numbers are aligned to the end of their column, words to its beginning.
            let (before, after) = if matches!(at, 1 | 3) { ("", padding.as_str()) } else { (padding.as_str(), "") };
            line.push_str(&format!(" {before}{cell}{after} "));
        }
        match i.checked_sub(1).and_then(|i| lines.get(i)) {
            Some(shard) if room >= 10 => line.push_str(&format!(" |{}|", bar(shard, end, room))),
            None if room >= 10 => line.push_str(&format!(" 0{:>room$}", duration(end))),
            _ => {}
        }
        text.push_str(cut(line.trim_end(), width).as_str());
        text.push('\n');
    }
    let letters: Vec<String> = LETTERS.iter().map(|(stage, letter)| format!("{letter} {stage}")).collect();
    let legend = format!("  {WAITS} waits  {RUNS} runs  {}", letters.join("  "));
    text.push_str(&cut(&legend, width));
    text.push('\n');
}

/// A shard along the run: each cell shows the stage that was busiest in it.
fn bar(line: &ShardLine, end_ms: f64, room: usize) -> String {
    let cell = end_ms / room as f64;
    (0..room)
        .map(|i| {
            let (from, to) = (i as f64 * cell, (i + 1) as f64 * cell);
            let touches = |a: f64, b: f64| a < to && b > from;
            let began = line.started_ms;
            let mut best: Option<(f64, char)> = None;
            for stage in &line.stages {
                let Some(&(_, letter)) = LETTERS.iter().find(|(name, _)| *name == stage.stage) else { continue };
                let (a, b) = (began + stage.started_ms, began + stage.ended_ms);
                if !touches(a, b) {
                    continue;
                }
                let covered = b.min(to) - a.max(from);
                let busy = covered * stage.busy_ms / (b - a).max(f64::MIN_POSITIVE);
                if best.is_none_or(|(most, _)| busy > most) {
                    best = Some((busy, letter));
                }
            }
            match best {
                Some((_, letter)) => letter,
                None if touches(began, began + line.took_ms) => RUNS,
                None if touches(began - line.queued_ms, began) => WAITS,
                None => ' ',
            }
        })
        .collect()
}

fn stragglers(profile: &Profile, width: usize, all: bool, text: &mut String) {
    let late: Vec<_> = profile.stragglers().collect();
    if late.is_empty() {
        if !profile.shards.is_empty() {
            text.push_str("\nno stragglers\n");
        }
        return;
    }
    let shown = if all { late.len() } else { STRAGGLERS_SHOWN.min(late.len()) };
    text.push_str("\nstragglers, and what probably delayed them\n");
    for (line, straggler) in late.iter().take(shown) {
        let why = clean(&straggler.why, 400);
        let line = format!("attempt {} on {}: {}: {why}", line.attempt, name_of(&line.worker), straggler.cause.name());
        text.push_str(&wrapped(&line, width, "  "));
    }
    if late.len() > shown {
        text.push_str(&format!("  and {} more\n", late.len() - shown));
    }
}

fn place(stage: &str) -> usize {
    LETTERS.iter().position(|(name, _)| *name == stage).unwrap_or(LETTERS.len())
}

fn share_of(room: usize, share: f64) -> usize {
    (room as f64 * share.clamp(0.0, 1.0)).round() as usize
}

/// Names chosen by others, made safe for a terminal.
fn clean(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

fn name_of(worker: &str) -> String {
    clean(worker, NAME_CHARS_MAX)
}

fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

/// Broken between words; lines after the first are indented by four columns.
fn wrapped(line: &str, width: usize, indent: &str) -> String {
    let mut text = String::from(indent);
    let mut used = indent.len();
    let mut begins = true;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if !begins && used + 1 + length > width {
            text.push_str("\n    ");
            used = 4;
        } else if !begins {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length;
        begins = false;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use trawl_coordinator::RunReport;

    use super::*;

    fn profile() -> Profile {
        let run = |attempt: u64, worker: &str, started: f64, ended: f64, timings: &str| {
            format!(
                r#"{{"attempt":{attempt},"worker":"{worker}","segments":[{attempt}],"started_ms":{started},
                "ended_ms":{ended},"ending":"done","queued_ms":1,"slow_after_ms":250{timings}}}"#
            )
        };
        let timings = r#","timings":{"total_ms":40,"symbols":64,"bars":16000,"bytes":1,"from_device":0,"from_memory":1,
            "from_disk":0,"device":"cpu","stages":[
            {"stage":"load","started_ms":0,"ended_ms":10,"busy_ms":10,"count":1},
            {"stage":"kernel","started_ms":10,"ended_ms":38,"busy_ms":28,"count":1}]}"#;
        let runs = [
            run(1, "w1", 1.0, 41.0, timings),
            run(2, "w2", 1.0, 41.0, timings),
            run(3, "w3", 1.0, 401.0, ""),
            run(4, "w1", 42.0, 80.0, timings),
        ];
        let report = serde_json::to_value(RunReport::default()).unwrap();
        let mut report: serde_json::Map<String, serde_json::Value> = report.as_object().unwrap().clone();
        report["mode"] = "cluster".into();
        report["run_ms"] = 401.0.into();
        report["shard_runs"] = serde_json::from_str(&format!("[{}]", runs.join(","))).unwrap();
        Profile::of(&serde_json::from_value(report.into()).unwrap())
    }

    #[test]
    fn every_line_fits_the_page() {
        for width in [1, 60, 80, 133, 200, 9999] {
            let text = render(&profile(), Options { width, all: false, more: "" });
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width.clamp(60, 200), "{width}: {widest}\n{text}");
        }
    }

    #[test]
    fn the_slow_worker_is_first_and_is_named() {
        let text = render(&profile(), Options { width: 100, all: false, more: "" });
        let first = text.lines().skip_while(|l| !l.contains("ATTEMPT")).nth(1).unwrap();
        assert!(first.contains(" 3  w3") && first.contains("400 ms") && first.contains("|-----"), "{text}");
        assert!(
            text.contains("attempt 3 on w3: slow-worker: w3 did not answer within 400 ms, others took 40 ms"),
            "{text}"
        );
        let other = text.lines().find(|l| l.contains("  1  w1")).unwrap();
        assert!(other.contains("|l") && other.contains('k'), "{text}");
    }

    #[test]
    fn names_chosen_by_others_cannot_control_the_terminal() {
        let mut profile = profile();
        profile.shards[0].worker = "w\u{1b}[31m".to_owned();
        profile.workers[0].worker = "w\u{1b}[31m".to_owned();
        assert!(!render(&profile, Options { width: 100, all: true, more: "" }).contains('\u{1b}'));
    }

    #[test]
    fn a_run_without_shards_has_a_page_too() {
        let text = render(&Profile::of(&RunReport::default()), Options { width: 80, all: false, more: "" });
        assert!(text.starts_with("scan (): 0 symbols, 0 bars"), "{text}");
    }
}
