//! The faults of a world, with their times and severity: drawn from the seed in advance.

use crate::random::Random;
use crate::world::FAULTS_UNTIL_MS;

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A process dies and is restarted.
    Kill,
    /// Most processes die at once.
    KillMany,
    /// A process is suspended, given up, and resumes unaware: a zombie.
    Stop,
    /// It receives nothing, but its messages arrive.
    Deafen,
    /// It receives everything, but its messages are lost.
    Mute,
    /// It is ten times slower from now on.
    Slow,
    /// A coordinator's clock jumps ahead.
    ClockJump,
    /// A worker leaves on purpose and returns later.
    Drain,
    /// A coordinator dies and is restarted; mostly the leader, here and below.
    KillLeader,
    /// It is suspended past the end of its lease, and resumes unaware: a zombie.
    StopLeader,
    /// It cannot reach the control store.
    CutLeader,
    /// It hands over and is restarted.
    HandOver,
    /// The control store stalls.
    Freeze,
    /// It compacts its history, and all watches break.
    Forget,
    /// It ends all leases, or those of all workers.
    LoseLeases,
    LoseWorkers,
    /// The result store is full.
    FullResults,
    /// Some files of a machine's copy of the data are damaged from now on.
    CorruptCopy,
    /// A file has not arrived anywhere yet.
    LateFile,
    /// A worker's threads are stuck, while it keeps its lease and answers pings.
    Hang,
}

#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub kind: Kind,
    pub machine: usize,
    pub lasts_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Faults {
    pub agenda: Vec<(u64, Fault)>,
    /// Percentage of messages that are late, so that others overtake them.
    pub delay_percent: u64,
    /// Percentage of messages that are duplicated.
    pub twice_percent: u64,
    /// Percentage of pieces that a living worker fails.
    pub failing_percent: u64,
    /// Percentage of calls on a store whose reply is lost.
    pub lost_percent: u64,
    /// Whether the result store is slow.
    pub slow_results: bool,
    /// The leader dies in this commit, before it is answered.
    pub kill_at_commit: Option<u64>,
}

impl Faults {
    pub fn none() -> Self {
        Self {
            agenda: Vec::new(),
            delay_percent: 0,
            twice_percent: 0,
            failing_percent: 0,
            lost_percent: 0,
            slow_results: false,
            kill_at_commit: None,
        }
    }

    pub fn new(random: &mut Random) -> Self {
        const KINDS: [Kind; 20] = [
            Kind::Kill,
            Kind::KillMany,
            Kind::Stop,
            Kind::Deafen,
            Kind::Mute,
            Kind::Slow,
            Kind::ClockJump,
            Kind::Drain,
            Kind::KillLeader,
            Kind::StopLeader,
            Kind::CutLeader,
            Kind::HandOver,
            Kind::Freeze,
            Kind::Forget,
            Kind::LoseLeases,
            Kind::LoseWorkers,
            Kind::FullResults,
            Kind::CorruptCopy,
            Kind::LateFile,
            Kind::Hang,
        ];
        let count = random.within(0, 16);
        let mut fault = |_| {
            let kind = KINDS[random.index(KINDS.len())];
            let (machine, lasts_ms) = (random.index(64), random.within(1, 3_000));
            (random.within(0, FAULTS_UNTIL_MS - 1), Fault { kind, machine, lasts_ms })
        };
        let agenda = (0..count).map(&mut fault).collect();
        let mut some = |most| if random.percent(50) { random.within(0, most) } else { 0 };
        let (delay_percent, twice_percent, failing_percent) = (some(20), some(10), some(15));
        let lost_percent = some(10);
        let slow_results = random.percent(25);
        let kill_at_commit = random.percent(30).then(|| random.within(1, 12));
        Self { agenda, delay_percent, twice_percent, failing_percent, lost_percent, slow_results, kill_at_commit }
    }
}
