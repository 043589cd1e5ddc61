//! Chaos tests: real processes, real faults, real scans, compared with the answer of one process.
//!
//! A seed decides the faults, their targets and their times (`schedule`); `world` is the cluster: two coordinators,
//! three workers, three etcd nodes, where the machine allows it each in a network namespace of its own (`net`). Every
//! fault is proven to have happened, by the kernel or by etcd; one without a target is reported, and a schedule in
//! which none fired fails.

pub mod net;
pub mod schedule;
mod world;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::home::Home;
use crate::process::Background;
use crate::wait;
use schedule::{Act, Fault, Schedule, Victim};
use world::World;

/// Longest that a scan may take after the last fault: leases, reconnections and the work itself on a loaded machine.
const SCAN_BOUND: Duration = Duration::from_secs(150);

/// A scan whose answer is known.
#[derive(Debug, Clone)]
pub struct Question {
    /// Names its files.
    pub name: &'static str,
    /// Its clauses, `--dataset` among them.
    pub clauses: Vec<String>,
    /// The JSON answer of one process.
    pub answer: Vec<u8>,
}

/// The outcome of a schedule.
#[derive(Debug)]
pub struct Outcome {
    /// Each fault with its proof, or why it had no target.
    pub faults: Vec<(Fault, Result<String, String>)>,
    /// Whether a killed worker had work in hand, and a report says that its attempt was lost.
    pub attempt_lost: Option<bool>,
    /// Total duration.
    pub took: Duration,
}

impl Outcome {
    /// Faults that happened.
    pub fn fired(&self) -> usize {
        self.faults.iter().filter(|(_, proof)| proof.is_ok()).count()
    }
}

/// Runs one schedule: submits one scan and waits for it, and one that is detached and watched; injects the faults, and
/// compares the answers.
///
/// # Panics
/// When an answer differs, does not arrive in time, or a scan is listed twice; with the output of all processes.
pub fn run(home: &Home, schedule: &Schedule, questions: [&Question; 2], links: bool) -> Outcome {
    let started = Instant::now();
    let mut world = World::start(home, schedule.seed, links);
    let [waited, detached] = questions;
    let label = |question: &Question, what: &str| format!("{}-{}.{what}", question.name, schedule.seed);
    let (answer, report) = (label(waited, "json"), label(waited, "report.json"));
    let files = ["--output", &answer, "--report", &report, "--quiet"];
    let mut attached = Background::start("scan", &mut world.client(home, &["scan"], waited, &files));
    let id = {
        let submitting =
            Background::start("scan --detach", &mut world.client(home, &["scan", "--detach"], detached, &[]));
        let ended = submitting.wait(SCAN_BOUND).expect_code(0);
        ended.stdout.trim().to_owned()
    };
    let (second, second_report) = (label(detached, "json"), label(detached, "report.json"));
    let watch = ["watch", &id, "--output", &second, "--report", &second_report, "--quiet"];
    let mut watching = Background::start("watch", &mut world.manage(home, &watch));
    let (faults, lost) = play(&mut world, schedule, || attached.running() || watching.running());
    let fail = |world: &World, why: String| -> ! {
        panic!("seed {}: {why}\n{}\n{}", schedule.seed, describe(&faults), world.output())
    };
    let ended = wait_for(attached, SCAN_BOUND).unwrap_or_else(|output| fail(&world, format!("no answer: {output}")));
    if ended.code != Some(0) {
        fail(&world, format!("the scan that was waited for ended with {:?}: {}", ended.code, ended.stderr));
    }
    let ended =
        wait_for(watching, SCAN_BOUND).unwrap_or_else(|output| fail(&world, format!("no answer of {id}: {output}")));
    if ended.code != Some(0) {
        fail(&world, format!("the detached scan {id} ended with {:?}: {}", ended.code, ended.stderr));
    }
    for (question, file) in [(waited, &answer), (detached, &second)] {
        if home.read(file) != question.answer {
            fail(&world, format!("the answer differs from that of one process, in {file}"));
        }
    }
    // One request is one scan, even if it was sent again.
    let listed = wait_for(Background::start("list", &mut world.manage(home, &["list", "--json"])), SCAN_BOUND);
    let scans = listed.map(|ended| ended.stdout.lines().count()).unwrap_or_default();
    if scans != 2 {
        fail(&world, format!("{scans} scans are listed, 2 were submitted"));
    }
    let reports: String =
        [&report, &second_report].map(|file| String::from_utf8_lossy(&home.read(file)).into_owned()).concat();
    // A later leader knows only what happened in its own term.
    let provable = !lost.is_empty() && !schedule.touches_more_than_workers();
    let attempt_lost = provable.then(|| lost.iter().any(|worker| names_lost(&reports, worker)));
    Outcome { faults, attempt_lost, took: started.elapsed() }
}

fn wait_for(mut process: Background, bound: Duration) -> Result<crate::process::Ended, String> {
    match wait::until(bound, || (!process.running()).then_some(())) {
        Some(()) => Ok(process.wait(bound)),
        None => Err(format!("not within {bound:?}; its output:\n{}", process.output())),
    }
}

/// Whether a run's report says that a worker was lost, or that one of its attempts did not end as `done`.
fn names_lost(reports: &str, worker: &str) -> bool {
    // Two JSON documents, one after the other.
    let documents = serde_json::Deserializer::from_str(reports).into_iter::<serde_json::Value>().flatten();
    documents.into_iter().any(|report| {
        let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
        let listed = list("workers_lost").iter().any(|lost| lost.as_str().is_some_and(|l| l.contains(worker)));
        listed || list("shard_runs").iter().any(|run| run["worker"] == worker && run["ending"] != "done")
    })
}

/// The faults of a schedule in a few lines.
pub fn describe(faults: &[(Fault, Result<String, String>)]) -> String {
    faults.iter().fold(String::new(), |mut text, (fault, proof)| {
        let _ = match proof {
            Ok(proof) => writeln!(text, "  {fault}\n    fired: {proof}"),
            Err(why) => writeln!(text, "  {fault}\n    had no target: {why}"),
        };
        text
    })
}

/// A fault in progress, and what ends it.
enum Pending {
    Restart(Victim, usize),
    Resume(Victim, usize, u32),
    Mend(Victim, usize),
    RestartEtcd { node: usize, before: (usize, u64), fault: usize },
    MendPeers { node: usize, before: (usize, u64), fault: usize },
    Nothing,
}

type Played = (Vec<(Fault, Result<String, String>)>, Vec<String>);

/// Injects the faults at their times. Returns them with their proofs, and the workers that were killed with work in
/// hand. Faults after the end of the scans do not count.
fn play(world: &mut World, schedule: &Schedule, mut running: impl FnMut() -> bool) -> Played {
    let started = Instant::now();
    let (mut played, mut lost): Played = (Vec::new(), Vec::new());
    let mut pending: Vec<(Duration, Pending)> = Vec::new();
    let mut coming = schedule.faults.iter().peekable();
    loop {
        pending.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let next_end = pending.last().map(|(at, _)| *at);
        let next_fault = coming.peek().map(|fault| fault.at);
        let Some(at) = next_end.into_iter().chain(next_fault).min() else { return (played, lost) };
        // The only delays are those of the schedule itself.
        std::thread::sleep(at.saturating_sub(started.elapsed()));
        if next_end == Some(at) {
            if let Some((_, ending)) = pending.pop() {
                end(world, ending, &mut played);
            }
        } else if let Some(fault) = coming.next() {
            let proof = begin(world, fault, played.len()).and_then(|(proof, after, ending, hit)| {
                pending.push((started.elapsed() + after, ending));
                lost.extend(hit);
                if running() { Ok(proof) } else { Err(format!("the scans had ended: {proof}")) }
            });
            played.push((*fault, proof));
        }
    }
}

type Begun = (String, Duration, Pending, Option<String>);

fn begin(world: &mut World, fault: &Fault, number: usize) -> Result<Begun, String> {
    if fault.victim == Victim::EtcdLeader {
        if let Act::CutPeers { mend } = fault.act {
            let before = world.etcd.leader().ok_or("etcd has no leader at this moment")?;
            let proof = world.etcd.cut_peers(before.0)?;
            return Ok((proof, mend, Pending::MendPeers { node: before.0, before, fault: number }, None));
        }
        let Act::Kill { restart } = fault.act else { return Err("only killed or cut off".to_owned()) };
        let before = world.etcd.leader().ok_or("etcd has no leader at this moment")?;
        let id = world.etcd.kill(before.0);
        let proof = format!("node n{} with process {id} {}", before.0, gone(id)?);
        let ending = Pending::RestartEtcd { node: before.0, before, fault: number };
        return Ok((proof, restart, ending, None));
    }
    let (index, in_flight) = world.find(fault.victim)?;
    let member = world.member(fault.victim, index);
    let name = member.name.clone();
    let id = member.id().ok_or_else(|| format!("{name} does not run at this moment"))?;
    let (happened, after, ending) = match fault.act {
        Act::Kill { restart } => {
            member.kill();
            (gone(id)?, restart, Pending::Restart(fault.victim, index))
        }
        Act::Stop { resume } => {
            member.signal("STOP");
            let stopped = wait::until(Duration::from_secs(5), || (state_of(id) == Some('T')).then_some(()));
            stopped.ok_or_else(|| format!("{name} is not stopped: {:?}", state_of(id)))?;
            ("is stopped: state T".to_owned(), resume, Pending::Resume(fault.victim, index, id))
        }
        Act::Cut { mend } => (member.cut()?, mend, Pending::Mend(fault.victim, index)),
        Act::Damage => (member.damage()?, Duration::ZERO, Pending::Nothing),
        Act::CutPeers { .. } => return Err("only nodes of etcd have peers".to_owned()),
    };
    let hit = (in_flight > 0 && matches!(fault.act, Act::Kill { .. })).then(|| name.clone());
    Ok((format!("{name} with process {id} and {in_flight} shards in hand {happened}"), after, ending, hit))
}

fn end(world: &mut World, ending: Pending, played: &mut [(Fault, Result<String, String>)]) {
    match ending {
        Pending::Restart(victim, index) => world.member(victim, index).start(),
        Pending::Resume(victim, index, id) => {
            let member = world.member(victim, index);
            // Killed in the meantime; by now the process may be another one.
            if member.id() == Some(id) {
                member.signal("CONT");
            }
        }
        Pending::Mend(victim, index) => world.member(victim, index).mend(),
        Pending::Nothing => {}
        Pending::RestartEtcd { node, before, fault } | Pending::MendPeers { node, before, fault } => {
            let now = world.etcd.new_leader(before);
            if matches!(ending, Pending::RestartEtcd { .. }) {
                world.etcd.restart(node);
            } else {
                world.etcd.mend_peers(node);
            }
            if let Some((_, proof)) = played.get_mut(fault) {
                *proof = match (std::mem::replace(proof, Ok(String::new())), now) {
                    (Ok(text), Some(now)) => {
                        Ok(format!("{text}; n{} leads in term {} after {}", now.0, now.1, before.1))
                    }
                    (_, None) => Err("the other nodes found no leader".to_owned()),
                    (proof, _) => proof,
                };
            }
        }
    }
}

/// The state of a process as the kernel reports it: `R`, `S`, `T` (stopped), `Z` (dead); `None` when it has ended.
fn state_of(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The state comes after the name, which may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

fn gone(id: u32) -> Result<String, String> {
    match state_of(id) {
        None => Ok(format!("is gone: no /proc/{id}")),
        Some(state) => Err(format!("process {id} is still there in state {state}")),
    }
}
