//! Which faults strike a world, when and how badly: drawn from the seed before it begins.

use crate::random::Random;
use crate::world::FAULTS_UNTIL_MS;

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A process dies and is started anew.
    Kill,
    /// Most of them at once.
    KillMany,
    /// A process stops, is given up, and goes on as if nothing had been: a zombie.
    Stop,
    /// Nothing reaches it, what it says is heard.
    Deafen,
    /// It hears everything, nothing it says gets out.
    Mute,
    /// It is ten times slower from now on.
    Slow,
    /// A coordinator's clock jumps ahead.
    ClockJump,
    /// A worker leaves on purpose and comes back later.
    Drain,
    /// A coordinator dies and is started anew; mostly the one that leads, here and below.
    KillLeader,
    /// It stops past the end of its lease, and goes on as if nothing had been: a zombie.
    StopLeader,
    /// It cannot reach the control store.
    CutLeader,
    /// It hands over and is started anew.
    HandOver,
    /// The control store stands still.
    Freeze,
    /// It forgets its history, and every watch breaks.
    Forget,
    /// It ends every lease, or every worker's.
    LoseLeases,
    LoseWorkers,
    /// The result store takes nothing.
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
    /// Messages that are late, so that others overtake them.
    pub delay_percent: u64,
    /// Messages that come twice.
    pub twice_percent: u64,
    /// Pieces that a living worker fails.
    pub failing_percent: u64,
    /// Calls on a store whose answer is lost.
    pub lost_percent: u64,
    /// Whether the result store takes its time.
    pub slow_results: bool,
    /// The leader dies in that commit, before it is answered.
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
