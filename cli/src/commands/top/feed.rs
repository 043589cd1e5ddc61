//! Asks a coordinator, again and again, in a thread of its own: the terminal never waits for the network.
//!
//! News are handed over through a channel that holds one: what nobody has looked at yet is replaced, so that nothing piles up. A
//! coordinator that goes away is asked again for ever, with longer and longer waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use trawl_cluster_store::Backoff;
use trawl_coordinator::RunReport;
use trawl_coordinator::client::{ClientError, Manager};
use trawl_coordinator::profile::Profile;
use trawl_security::ClientSecurity;
use trawl_wire::{ErrorKind, pb};

use super::rows;

/// How long all questions of one refresh may take together.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits for a coordinator that went away.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
/// Scans that wait or run which are asked for; more are counted as "at least".
const ACTIVE_MAX: u32 = 1000;

/// What the terminal wants to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Time between two refreshes.
    pub interval: Duration,
    /// The scan whose shards are shown.
    pub scan: Option<String>,
    /// Whether nothing is to be asked for.
    pub paused: bool,
    /// Raised to ask at once.
    pub now: u64,
}

/// A reply, or why the coordinator refused this question alone.
pub type Part<T> = Result<T, String>;

/// Everything that one refresh brought.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When, since the start of this process.
    pub at: Duration,
    /// When, in microseconds since 1970-01-01 UTC.
    pub now_us: i64,
    /// The coordinators by which it was asked for.
    pub urls: String,
    /// Scans: those that wait or run first, each group newest first.
    pub scans: Part<Scans>,
    /// Workers.
    pub workers: Part<Vec<pb::WorkerInfo>>,
    /// Coordinators.
    pub coordinators: Part<Vec<pb::CoordinatorInfo>>,
    /// The shards of the scan that was wanted, with its id.
    pub shards: Option<(String, Part<Shards>)>,
}

/// The scans of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Scans {
    /// Those that are listed.
    pub listed: Vec<pb::ScanInfo>,
    /// How many wait.
    pub queued: usize,
    /// How many run.
    pub running: usize,
    /// Whether there are more that wait or run.
    pub more_active: bool,
    /// How many of those listed ended within the last minute.
    pub ended_lately: usize,
    /// Whether older ones, which are not listed, may have ended within it too.
    pub more_lately: bool,
}

/// The shards of one scan.
#[derive(Debug, Clone)]
pub struct Shards {
    /// The scan's state.
    pub state: pb::ScanState,
    /// Where its time went.
    pub profile: Profile,
}

/// What the terminal learns.
#[derive(Debug, Clone)]
pub enum News {
    /// Nothing yet.
    Nothing,
    /// The newest state.
    Snapshot(Arc<Snapshot>),
    /// No coordinator answered.
    Away {
        /// Why.
        why: String,
        /// When they are asked again.
        again: Instant,
    },
    /// This process was asked to stop.
    Stop,
}

/// Where to ask.
#[derive(Debug, Clone)]
pub struct Target {
    /// Coordinators, separated by commas.
    pub urls: String,
    /// How to connect.
    pub security: ClientSecurity,
    /// Scans that are listed at most.
    pub scans_max: u32,
}

/// One refresh.
///
/// # Errors
/// No coordinator answered. What one refused is in the snapshot.
pub async fn ask(
    manager: &mut Manager<'_>,
    target: &Target,
    started: Instant,
    scan: Option<&str>,
) -> Result<Snapshot, ClientError> {
    let asked = async {
        let wanted = |limit, active| pb::ListScansRequest { limit, active, ..pb::ListScansRequest::default() };
        let active = part(manager.list(wanted(ACTIVE_MAX, true)).await)?;
        let all = part(manager.list(wanted(target.scans_max, false)).await)?;
        let workers = part(manager.workers().await)?;
        let coordinators = part(manager.coordinators().await)?;
        let shards = match scan {
            None => None,
            Some(scan) => Some((scan.to_owned(), part(manager.trace(scan).await)?.and_then(shards))),
        };
        let now_us = now_us_of_clock();
        let scans = match (active, all) {
            (Ok(active), Ok(all)) => Ok(scans_of(active, all, now_us, target.scans_max as usize)),
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        let urls = target.urls.clone();
        Ok(Snapshot { at: started.elapsed(), now_us, urls, scans, workers, coordinators, shards })
    };
    tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", ASK_TIMEOUT.as_secs());
        Err(ClientError::Broken { url: target.urls.clone(), why })
    })
}

/// Separates what the coordinator refused from what did not reach one, or one that cannot answer at present.
fn part<T>(answer: Result<T, ClientError>) -> Result<Part<T>, ClientError> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(ClientError::Refused(failure)) if failure.kind != ErrorKind::Retryable => Ok(Err(failure.message)),
        Err(error) => Err(error),
    }
}

fn shards(reply: pb::TraceReply) -> Part<Shards> {
    let state = reply.scan.as_ref().map_or(pb::ScanState::Unspecified, pb::ScanInfo::state);
    if reply.report_json.is_empty() {
        return Err(match state {
            pb::ScanState::Queued => "it waits for its turn, and has not begun",
            pb::ScanState::Running => "it has only just started",
            _ => "it has ended, and this coordinator does not have its timings",
        }
        .to_owned());
    }
    let report: RunReport =
        serde_json::from_str(&reply.report_json).map_err(|error| format!("its report cannot be read: {error}"))?;
    Ok(Shards { state, profile: Profile::of(&report) })
}

/// Those that wait or run first, then the others, each newest first as the coordinator lists them.
fn scans_of(active: pb::ListScansReply, all: pb::ListScansReply, now_us: i64, listed_max: usize) -> Scans {
    const MINUTE_US: i64 = 60_000_000;
    let minute_ago = now_us.saturating_sub(MINUTE_US);
    let in_state = |state: pb::ScanState| active.scans.iter().filter(|info| info.state() == state).count();
    let ended: Vec<pb::ScanInfo> = all.scans.iter().filter(|info| !rows::is_active(info)).cloned().collect();
    // A scan that was submitted before the oldest one listed can have ended as lately as any.
    let more_lately = all.more && all.scans.last().is_some_and(|oldest| oldest.submitted_us >= minute_ago);
    let (queued, running) = (in_state(pb::ScanState::Queued), in_state(pb::ScanState::Running));
    let ended_lately = ended.iter().filter(|info| info.ended_us.is_some_and(|ended| ended >= minute_ago)).count();
    let more_active = active.more;
    let mut listed = active.scans;
    listed.extend(ended);
    listed.truncate(listed_max);
    Scans { listed, queued, running, more_active, ended_lately, more_lately }
}

/// Microseconds since 1970-01-01 UTC.
fn now_us_of_clock() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|time| i64::try_from(time.as_micros()).ok()).unwrap_or_default()
}

/// Asks until the terminal is gone or `stop` completes.
pub async fn run(
    target: Target,
    started: Instant,
    mut wanted: watch::Receiver<Wanted>,
    news: watch::Sender<News>,
    stop: impl Future<Output = ()>,
) {
    tokio::select! {
        () = stop => { news.send_replace(News::Stop); }
        () = ask_for_ever(&target, started, &mut wanted, &news) => {}
    }
}

async fn ask_for_ever(
    target: &Target,
    started: Instant,
    wanted: &mut watch::Receiver<Wanted>,
    news: &watch::Sender<News>,
) {
    let mut manager: Option<Manager<'_>> = None;
    let mut backoff = RETRY;
    loop {
        let Wanted { interval, scan, paused, .. } = wanted.borrow_and_update().clone();
        let mut wait = interval;
        if !paused {
            match refresh(&mut manager, target, started, scan.as_deref()).await {
                Ok(snapshot) => {
                    backoff.reset();
                    news.send_replace(News::Snapshot(Arc::new(snapshot)));
                }
                Err(error) => {
                    manager = None;
                    wait = backoff.next_wait();
                    news.send_replace(News::Away { why: error.to_string(), again: Instant::now() + wait });
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

async fn refresh<'a>(
    manager: &mut Option<Manager<'a>>,
    target: &'a Target,
    started: Instant,
    scan: Option<&str>,
) -> Result<Snapshot, ClientError> {
    let connected = match manager {
        Some(connected) => connected,
        None => manager.insert(Manager::connect(&target.urls, &target.security).await?),
    };
    ask(connected, target, started, scan).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: &str, state: pb::ScanState, submitted_us: i64, ended_us: Option<i64>) -> pb::ScanInfo {
        let mut info = pb::ScanInfo { scan_id: id.to_owned(), submitted_us, ended_us, ..pb::ScanInfo::default() };
        info.set_state(state);
        info
    }

    #[test]
    fn scans_that_wait_or_run_are_listed_first_however_old_they_are() {
        use pb::ScanState::{Done, Failed, Queued, Running};
        let (now, minute) = (1_000_000_000, 60_000_000);
        let old = info("old", Running, 0, None);
        let active = vec![info("q", Queued, now, None), old];
        let all = vec![
            info("q", Queued, now, None),
            info("d", Done, now - minute, Some(now - minute / 2)),
            info("f", Failed, now - 2 * minute, Some(now - 2 * minute + 1)),
        ];
        let reply = |scans: &[pb::ScanInfo], more| pb::ListScansReply { scans: scans.to_vec(), more };
        let scans = scans_of(reply(&active, false), reply(&all, true), now, 3);
        let ids: Vec<&str> = scans.listed.iter().map(|info| info.scan_id.as_str()).collect();
        assert_eq!(ids, ["q", "old", "d"], "none twice, and no more than wanted");
        assert_eq!((scans.queued, scans.running, scans.ended_lately), (1, 1, 1));
        assert!(!scans.more_lately, "the oldest one listed is older than a minute");
        let more = scans_of(reply(&active, true), reply(&all[..2], true), now, 9);
        assert!(more.more_lately && more.more_active);
        let whole = scans_of(reply(&active, false), reply(&all[..2], false), now, 9);
        assert!(!whole.more_lately && !whole.more_active, "there are no others");
    }

    #[test]
    fn a_scan_without_timings_says_why_it_has_none() {
        let said = |state| {
            let scan = Some(info("s", state, 0, None));
            shards(pb::TraceReply { scan, ..pb::TraceReply::default() }).unwrap_err()
        };
        assert!(said(pb::ScanState::Queued).contains("waits for its turn"));
        assert!(said(pb::ScanState::Running).contains("only just started"));
        assert!(said(pb::ScanState::Done).contains("does not have its timings"));
        let unreadable = pb::TraceReply { report_json: "{".to_owned(), ..pb::TraceReply::default() };
        assert!(shards(unreadable).unwrap_err().contains("cannot be read"));
    }

    #[tokio::test]
    async fn a_coordinator_is_asked_at_once_when_a_key_says_so_and_not_while_paused() {
        /// Longest that a refused connection may take to be known, on a loaded machine.
        const KNOWN_BOUND: Duration = Duration::from_secs(30);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let target = Target { urls: format!("http://{free}"), security: ClientSecurity::default(), scans_max: 10 };
        let hour = Duration::from_secs(3600);
        let (wish, wishes) = watch::channel(Wanted { interval: hour, scan: None, paused: true, now: 0 });
        let (teller, mut news) = watch::channel(News::Nothing);
        let feed = tokio::spawn(run(target, Instant::now(), wishes, teller, std::future::pending()));
        assert!(tokio::time::timeout(Duration::from_millis(300), news.changed()).await.is_err(), "it is paused");
        wish.send_modify(|wanted| wanted.paused = false);
        let mut agains: Vec<Instant> = Vec::new();
        let mut early = 0;
        for _ in 0..6 {
            tokio::time::timeout(KNOWN_BOUND, news.changed()).await.expect("it is asked").unwrap();
            let News::Away { why, again } = news.borrow_and_update().clone() else { panic!("nobody is there") };
            assert!(why.contains("no coordinator answers"), "{why}");
            early += u32::from(agains.last().is_some_and(|planned| Instant::now() < *planned));
            agains.push(again);
            wish.send_modify(|wanted| wanted.now += 1);
        }
        // Waits grow, and none was waited for.
        assert!(agains[5] > Instant::now() + Duration::from_secs(5), "{agains:?}");
        assert!(early >= 3, "{early} of 5 questions came before their time");
        drop(wish);
        tokio::time::timeout(KNOWN_BOUND, feed).await.expect("it ends with the terminal").unwrap();
    }

    #[test]
    fn a_refusal_is_shown_in_its_place_and_a_coordinator_that_cannot_answer_counts_as_away() {
        use trawl_wire::Failure;
        let refused = |kind| Err::<(), _>(ClientError::Refused(Failure::new(kind, "why")));
        assert_eq!(part(refused(ErrorKind::Invalid)).unwrap(), Err("why".to_owned()));
        assert!(part(refused(ErrorKind::Retryable)).is_err());
        let gone = ClientError::Unreachable { url: "u".to_owned(), why: "w".to_owned() };
        assert!(part(Err::<(), _>(gone)).is_err());
    }
}
