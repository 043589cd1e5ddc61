//! What coordinators reply, as rows: scans, workers, and the shards of one scan.

use trawl_coordinator::profile::{Profile, ShardLine, duration_text};
use trawl_front::human::{bytes, thousands};
use trawl_front::records::{LoadsLine, state_name};
use trawl_wire::pb;

use super::rates::Rates;
use super::sheet::{Cell, Column, Row, Tone};

/// Shards of a scan that are listed, the slowest ones.
const SHARDS_MAX: usize = 500;
/// Digits of a snapshot that are shown.
const SNAPSHOT_DIGITS: usize = 8;

const fn words(title: &'static str, width_max: u16, rank: u8) -> Column {
    Column { title, number: false, width_max: Some(width_max), rank }
}

const fn number(title: &'static str, width_max: u16, rank: u8) -> Column {
    Column { title, number: true, width_max: Some(width_max), rank }
}

const fn rest(title: &'static str, rank: u8) -> Column {
    Column { title, number: false, width_max: None, rank }
}

/// Columns of scans.
pub static SCANS: [Column; 9] = [
    words("STATE", 9, 0),
    words("PROGRESS", 20, 1),
    number("AGE", 8, 3),
    number("TOOK", 8, 4),
    words("OWNER", 20, 6),
    words("PRIORITY", 8, 7),
    words("DATASET", 28, 5),
    words("SCAN", 24, 2),
    rest("CONDITION", 0),
];

/// Columns of workers.
pub static WORKERS: [Column; 11] = [
    words("WORKER", 24, 0),
    words("STATE", 11, 0),
    number("SHARDS", 9, 1),
    number("SEG/S", 8, 2),
    number("HIT", 5, 3),
    number("HIT EVER", 8, 5),
    number("DISK", 9, 6),
    number("DATA ROOT", 9, 7),
    number("HIDDEN", 6, 8),
    number("CACHE", 10, 9),
    rest("COMPUTES ON", 4),
];

/// Columns of shards.
pub static SHARDS: [Column; 9] = [
    words("WORKER", 20, 0),
    number("SHARD", 6, 3),
    number("SEGMENTS", 8, 4),
    number("BARS", 14, 5),
    words("BARS FROM", 9, 6),
    number("WAITED", 8, 2),
    number("TOOK", 8, 0),
    words("ENDING", 20, 7),
    rest("WHY IT IS LATE", 1),
];

/// A duration in milliseconds that is no more than seconds, minutes, hours or days.
fn age_text(ms: f64) -> String {
    match ms / 1e3 {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

fn percent(share: f64) -> Cell {
    Cell::number(format!("{:.0}%", share * 100.0), share)
}

fn count(value: u64) -> Cell {
    Cell::number(thousands(value), value as f64)
}

fn tone_of(state: pb::ScanState) -> Tone {
    match state {
        pb::ScanState::Running => Tone::Good,
        pb::ScanState::Queued => Tone::Warn,
        pb::ScanState::Failed => Tone::Bad,
        pb::ScanState::Cancelled => Tone::Quiet,
        _ => Tone::Plain,
    }
}

/// Whether a scan waits or runs.
pub fn is_active(info: &pb::ScanInfo) -> bool {
    matches!(info.state(), pb::ScanState::Queued | pb::ScanState::Running)
}

fn progress(info: &pb::ScanInfo) -> Cell {
    let share = f64::from(info.segments_ended) / f64::from(info.segments.max(1));
    match info.state() {
        pb::ScanState::Running if !info.waits_for.is_empty() => {
            let text = format!("{}/{} no workers", info.segments_ended, info.segments);
            Cell { tone: Tone::Bad, ..Cell::number(text, share) }
        }
        pb::ScanState::Running => {
            let step = if info.step > 1 { format!("step {} ", info.step) } else { String::new() };
            Cell::number(format!("{step}{}/{} {:.0}%", info.segments_ended, info.segments, share * 100.0), share)
        }
        pb::ScanState::Done if info.failed_symbols > 0 => {
            Cell { tone: Tone::Bad, ..Cell::number(format!("{} failed", thousands(info.failed_symbols)), 1.0) }
        }
        pb::ScanState::Done => Cell::number(String::new(), 1.0),
        _ => Cell { text: String::new(), ..Cell::unknown() },
    }
}

/// A dataset with the first digits of its snapshot.
fn dataset_text(dataset: &str) -> String {
    match dataset.rsplit_once('@') {
        Some((name, snapshot)) => format!("{name}@{}", snapshot.chars().take(SNAPSHOT_DIGITS).collect::<String>()),
        None => dataset.to_owned(),
    }
}

/// The row of a scan. `now_us`: the time, in microseconds since 1970-01-01 UTC.
pub fn scan(info: &pb::ScanInfo, now_us: i64) -> Row {
    let ms = |from: i64, to: i64| to.saturating_sub(from).max(0) as f64 / 1e3;
    let age = ms(info.submitted_us, now_us);
    let took = info.ended_us.map_or_else(Cell::unknown, |ended| {
        let took = ms(info.submitted_us, ended);
        Cell::number(duration_text(took), took)
    });
    let priority = match info.priority() {
        pb::Priority::Normal => Cell::text("normal").tone(Tone::Quiet),
        pb::Priority::Low => Cell::text("low"),
        pb::Priority::High => Cell::text("high"),
    };
    let failure = info.failure.as_ref().filter(|_| info.state() == pb::ScanState::Failed);
    let condition = match failure {
        Some(failure) => Cell::text(&format!("{}: {}", info.condition, failure.message)),
        None => Cell::text(&info.condition),
    };
    let cells = vec![
        Cell::text(state_name(info.state())).tone(tone_of(info.state())),
        progress(info),
        Cell::number(age_text(age), age),
        took,
        Cell::text(&info.owner),
        priority,
        Cell::text(&dataset_text(&info.dataset)),
        Cell::text(&info.scan_id).tone(Tone::Quiet),
        condition,
    ];
    Row { id: info.scan_id.clone(), cells }
}

/// The row of a worker.
pub fn worker(info: &pb::WorkerInfo, rates: &Rates) -> Row {
    let state = match info.state.as_str() {
        "serving" => Tone::Good,
        "draining" | "suspect" => Tone::Warn,
        _ => Tone::Bad,
    };
    let load = f64::from(info.shards_in_flight) / f64::from(info.threads.max(1));
    let shards = Cell::number(format!("{}/{}", info.shards_in_flight, info.threads), load);
    let rate = rates.of(&info.id);
    let speed = rate
        .map_or_else(Cell::unknown, |rate| Cell::number(format!("{:.0}", rate.segments_per_s), rate.segments_per_s));
    let hit = rate.and_then(|rate| rate.from_memory).map_or_else(Cell::unknown, percent);
    let loads = info.loads.as_ref().map(LoadsLine::of);
    let of = |cell: fn(&LoadsLine) -> Option<Cell>| loads.as_ref().and_then(cell).unwrap_or_else(Cell::unknown);
    let ever = |loads: &LoadsLine| {
        let all = loads.memory.saturating_add(loads.disk).saturating_add(loads.data_root);
        (all > 0).then(|| percent(loads.memory as f64 / all as f64))
    };
    let device = match (info.device.as_str(), info.device_memory_bytes) {
        ("", _) => "CPU".to_owned(),
        (device, memory) if info.device_health.is_empty() => format!("{device}, {}", bytes(memory)),
        (device, memory) => format!("{device}, {}, {}", bytes(memory), info.device_health),
    };
    let computes = format!("{device}  {}  {}", info.execution_class, info.address);
    let cells = vec![
        Cell::text(&info.id),
        Cell::text(&info.state).tone(state),
        if load > 1.0 { shards.tone(Tone::Warn) } else { shards },
        speed,
        hit,
        of(ever),
        of(|loads| Some(count(loads.disk))),
        of(|loads| Some(count(loads.data_root))),
        of(|loads| loads.hidden.map(percent)),
        if info.cache_bytes > 0 {
            Cell::number(bytes(info.cache_bytes), info.cache_bytes as f64)
        } else {
            Cell::unknown()
        },
        Cell::text(&computes),
    ];
    Row { id: info.id.clone(), cells }
}

/// The rows of a scan's shards, the slowest first.
pub fn shards(profile: &Profile) -> Vec<Row> {
    profile.shards.iter().take(SHARDS_MAX).map(shard).collect()
}

fn shard(line: &ShardLine) -> Row {
    let ms = |ms: f64| Cell::number(duration_text(ms), ms);
    let late = line.straggler.as_ref();
    let why = late.map_or_else(
        || Cell::text(""),
        |late| Cell::text(&format!("{}: {}", late.cause.name(), late.why)).tone(Tone::Bad),
    );
    let bars = if line.bars > 0 { count(line.bars) } else { Cell::unknown() };
    let took = ms(line.took_ms);
    let cells = vec![
        Cell::text(&line.worker),
        Cell::number(line.shard.to_string(), f64::from(line.shard)),
        Cell::number(line.segments.to_string(), f64::from(line.segments)),
        bars,
        line.cache.map_or_else(Cell::unknown, Cell::text),
        ms(line.queued_ms),
        if late.is_some() { took.tone(Tone::Bad) } else { took },
        Cell::text(if line.ending.is_empty() { "runs" } else { &line.ending }),
        why,
    ];
    Row { id: line.attempt.to_string(), cells }
}

/// The line above a scan's shards.
pub fn shards_title(state: pb::ScanState, profile: &Profile) -> String {
    let phases: Vec<String> =
        profile.phases.iter().map(|phase| format!("{} {}", phase.phase, duration_text(phase.ms))).collect();
    let late = profile.stragglers().count();
    let late = if late > 0 { format!(", {late} late") } else { String::new() };
    let of = if profile.answer_of.is_empty() { "" } else { ", an earlier answer" };
    format!("{}{of}: {}; {} shards{late}", state_name(state), phases.join(", "), profile.shards.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn texts(row: &Row) -> Vec<&str> {
        row.cells.iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        assert_eq!(scan(&pb::ScanInfo::default(), 0).cells.len(), SCANS.len());
        assert_eq!(worker(&pb::WorkerInfo::default(), &Rates::default()).cells.len(), WORKERS.len());
        for columns in [&SCANS[..], &WORKERS[..], &SHARDS[..]] {
            assert_eq!(columns.iter().filter(|column| column.width_max.is_none()).count(), 1);
        }
    }

    #[test]
    fn a_scan_says_how_far_it_is_and_what_it_waits_for() {
        let mut info =
            pb::ScanInfo { segments: 8, segments_ended: 2, submitted_us: 5_000_000, ..pb::ScanInfo::default() };
        info.set_state(pb::ScanState::Running);
        info.dataset = "us@0123456789abcdef".to_owned();
        let row = scan(&info, 95_000_000);
        assert_eq!(texts(&row)[..4], ["running", "2/8 25%", "90 s", "-"]);
        assert_eq!(texts(&row)[6], "us@01234567");
        info.waits_for = "another class".to_owned();
        assert_eq!(
            scan(&info, 0).cells[1],
            Cell { tone: Tone::Bad, ..Cell::number("2/8 no workers".to_owned(), 0.25) }
        );
        assert_eq!(scan(&info, 0).cells[2].text, "0 s", "clocks that differ show no negative age");
        info.set_state(pb::ScanState::Done);
        (info.ended_us, info.failed_symbols) = (Some(5_250_000), 3);
        assert_eq!(texts(&scan(&info, 3_605_000_000))[..4], ["done", "3 failed", "60 min", "250 ms"]);
    }

    #[test]
    fn a_scan_says_why_it_failed_at_which_step_it_is_and_how_much_it_counts() {
        let mut info = pb::ScanInfo { segments: 4, segments_ended: 1, step: 2, ..pb::ScanInfo::default() };
        info.condition = "close > 1".to_owned();
        info.set_state(pb::ScanState::Running);
        assert_eq!(scan(&info, 0).cells[1].text, "step 2 1/4 25%");
        for (priority, word) in
            [(pb::Priority::Low, "low"), (pb::Priority::Normal, "normal"), (pb::Priority::High, "high")]
        {
            info.set_priority(priority);
            assert_eq!(scan(&info, 0).cells[5].text, word);
        }
        info.failure = Some(pb::Failure { message: "a disk is full".to_owned(), ..pb::Failure::default() });
        assert_eq!(scan(&info, 0).cells[8].text, "close > 1", "it goes on");
        info.set_state(pb::ScanState::Failed);
        info.ended_us = Some(-5_000_000);
        let row = scan(&info, 0);
        assert_eq!((row.cells[8].text.as_str(), row.cells[0].tone), ("close > 1: a disk is full", Tone::Bad));
        assert_eq!(row.cells[3], Cell::number("0 µs".to_owned(), 0.0), "clocks that differ show no negative time");
        let tones = [pb::ScanState::Queued, pb::ScanState::Cancelled, pb::ScanState::Done].map(tone_of);
        assert_eq!(tones, [Tone::Warn, Tone::Quiet, Tone::Plain]);
        let ages = [119_000.0, 121_000.0, 7_300_000.0, 172_900_000.0].map(age_text);
        assert_eq!(ages, ["119 s", "2 min", "2 h", "2 d"]);
    }

    #[test]
    fn shards_are_few_enough_to_list_and_what_is_late_stands_out() {
        let run = |attempt: u64, worker: &str, ms: f64, ending: &str| {
            serde_json::json!({
                "attempt": attempt, "worker": worker, "segments": [attempt], "started_ms": 1.0, "ended_ms": 1.0 + ms,
                "ending": ending, "queued_ms": 1.0, "slow_after_ms": 250.0,
            })
        };
        let profile = |runs: Vec<serde_json::Value>| {
            let mut report = serde_json::to_value(trawl_coordinator::RunReport::default()).unwrap();
            (report["mode"], report["shard_runs"]) = ("cluster".into(), runs.into());
            Profile::of(&serde_json::from_value(report).unwrap())
        };
        let mut few = profile(vec![run(1, "w1", 40.0, "done"), run(2, "w2", 400.0, ""), run(3, "w1", 40.0, "done")]);
        let rows = shards(&few);
        assert_eq!((rows[0].cells[0].text.as_str(), rows[0].cells[6].tone), ("w2", Tone::Bad));
        assert_eq!((rows[1].cells[6].tone, rows[1].cells[8].text.as_str()), (Tone::Plain, ""));
        assert_eq!((rows[0].cells[7].text.as_str(), rows[1].cells[7].text.as_str()), ("runs", "done"));
        assert!(shards_title(pb::ScanState::Running, &few).ends_with("3 shards, 1 late"));
        few.answer_of = "s0".to_owned();
        assert!(shards_title(pb::ScanState::Done, &few).starts_with("done, an earlier answer: "));
        let many = profile((0..700).map(|attempt| run(attempt, "w", 1.0, "done")).collect());
        assert_eq!(shards(&many).len(), SHARDS_MAX);
    }

    #[test]
    fn a_worker_says_on_what_it_computes_and_how_much_of_its_fetching_was_hidden() {
        let mut info =
            pb::WorkerInfo { state: "serving".to_owned(), threads: 4, shards_in_flight: 4, ..Default::default() };
        info.loads = Some(pb::CacheLoads { fetch_us: 4_000_000, wait_us: 1_000_000, ..pb::CacheLoads::default() });
        let row = worker(&info, &Rates::default());
        assert_eq!((row.cells[2].tone, row.cells[8].text.as_str()), (Tone::Plain, "75%"), "as many shards as threads");
        assert!(row.cells[10].text.starts_with("CPU "), "{:?}", row.cells[10]);
        (info.device, info.device_memory_bytes) = ("H100".to_owned(), 80 << 30);
        assert!(worker(&info, &Rates::default()).cells[10].text.starts_with("H100, 80"));
        let tone = |state: &str| {
            worker(&pb::WorkerInfo { state: state.to_owned(), ..Default::default() }, &Rates::default()).cells[1].tone
        };
        assert_eq!(
            ["serving", "draining", "suspect", "lost"].map(tone),
            [Tone::Good, Tone::Warn, Tone::Warn, Tone::Bad]
        );
    }

    #[test]
    fn a_worker_shows_its_hit_rate_now_and_since_it_was_started() {
        let loads = |memory, disk| Some(pb::CacheLoads { memory, disk, ..pb::CacheLoads::default() });
        let mut info = pb::WorkerInfo {
            id: "w".to_owned(),
            state: "serving".to_owned(),
            threads: 4,
            shards_in_flight: 6,
            ..pb::WorkerInfo::default()
        };
        info.loads = loads(0, 100);
        let mut rates = Rates::default();
        rates.take(Duration::ZERO, std::slice::from_ref(&info));
        info.loads = loads(100, 100);
        rates.take(Duration::from_secs(10), std::slice::from_ref(&info));
        let row = worker(&info, &rates);
        assert_eq!(texts(&row)[..7], ["w", "serving", "6/4", "10", "100%", "50%", "100"]);
        assert_eq!(row.cells[2].tone, Tone::Warn, "more shards than threads");
        assert_eq!(row.cells[8].text, "-", "nothing was fetched");
    }
}
