//! Planted bugs, at least one for each invariant: between the scheduler and the world, as a broken scheduler would act, and
//! where a coordinator, its records or a worker would be broken.

use trawl_coordinator::scheduler::{AttemptId, Command, Event, Outcome, Purpose};
use trawl_wire::ErrorKind;

use crate::ledger::Invariant;

/// A bug, and what it needs to remember.
#[derive(Debug, Clone)]
pub struct Sabotage {
    pub bug: Bug,
    seen: u64,
    kept: Option<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Every tenth result is taken and not counted.
    LosesAResult,
    /// A result counts twice.
    CountsTwice,
    /// A piece that failed is dispatched again and again.
    NeverGivesUp,
    /// Attempts of a scan that ended run on.
    LetsAttemptsRun,
    /// Workers are thought to have more slots than they have.
    Overfills,
    /// A suspect runs beside other work.
    ForgetsIsolation,
    /// Workers of any class get the work of any scan.
    MixesClasses,
    /// Workers that leave are given work.
    IgnoresDrain,
    /// The end of an attempt is not heard.
    ForgetsAttempts,
    /// Results are not compared.
    BelievesEverybody,
    /// A failure is final at once.
    FailsTooSoon,
    /// Whoever contradicts another is quarantined, right or wrong.
    QuarantinesTheHonest,
    /// Deadlines are not looked at.
    ForgetsDeadlines,
    /// A leader thinks that its lease lives twice as long as it does.
    BelievesItsLeaseLonger,
    /// A leader does not look at the clock before it acts.
    ActsWithoutLooking,
    /// A leader's writes are not guarded by its key.
    ForgetsTheGuard,
    /// Workers take work of any epoch.
    WorkersTakeAnyEpoch,
    /// A new leader takes nothing over.
    ForgetsToTakeOver,
    /// The end of a scan is recorded before its results are stored.
    EndsBeforeItStored,
    /// What a client calls its request is not recorded.
    ForgetsTheRequest,
    /// Everything that is recorded is read in one answer.
    ReadsInOneAnswer,
    /// An attempt that says nothing is waited for.
    ForgetsSilentAttempts,
    /// What one host says of a file is believed when there is nobody else to ask.
    BelievesOneHost,
}

impl Bug {
    pub const ALL: [Self; 23] = [
        Self::LosesAResult,
        Self::CountsTwice,
        Self::NeverGivesUp,
        Self::LetsAttemptsRun,
        Self::Overfills,
        Self::ForgetsIsolation,
        Self::MixesClasses,
        Self::IgnoresDrain,
        Self::ForgetsAttempts,
        Self::BelievesEverybody,
        Self::FailsTooSoon,
        Self::QuarantinesTheHonest,
        Self::ForgetsDeadlines,
        Self::BelievesItsLeaseLonger,
        Self::ActsWithoutLooking,
        Self::ForgetsTheGuard,
        Self::WorkersTakeAnyEpoch,
        Self::ForgetsToTakeOver,
        Self::EndsBeforeItStored,
        Self::ForgetsTheRequest,
        Self::ReadsInOneAnswer,
        Self::ForgetsSilentAttempts,
        Self::BelievesOneHost,
    ];

    /// What has to notice it.
    pub fn noticed_by(self) -> Invariant {
        match self {
            Self::LosesAResult | Self::CountsTwice => Invariant::EverySymbolOnce,
            Self::NeverGivesUp => Invariant::AttemptsWithinLimits,
            Self::LetsAttemptsRun => Invariant::NothingAfterTheEnd,
            Self::Overfills | Self::ForgetsIsolation => Invariant::InFlightBounded,
            Self::MixesClasses | Self::IgnoresDrain => Invariant::RightWorkers,
            Self::ForgetsAttempts => Invariant::Progress,
            Self::BelievesEverybody => Invariant::SameBytes,
            Self::FailsTooSoon | Self::QuarantinesTheHonest => Invariant::Reasons,
            Self::ForgetsDeadlines => Invariant::Deadlines,
            Self::BelievesItsLeaseLonger | Self::ActsWithoutLooking => Invariant::OneLeader,
            Self::ForgetsTheGuard | Self::WorkersTakeAnyEpoch => Invariant::StaleEpochs,
            Self::ForgetsToTakeOver => Invariant::AcceptedScansEnd,
            Self::EndsBeforeItStored => Invariant::RecordedAnswer,
            Self::ForgetsTheRequest => Invariant::OneScanPerRequest,
            Self::ReadsInOneAnswer => Invariant::LeadersBegin,
            Self::ForgetsSilentAttempts => Invariant::EveryAttemptEnds,
            Self::BelievesOneHost => Invariant::OneHostIsNoProof,
        }
    }
}

impl Sabotage {
    pub fn new(bug: Bug) -> Self {
        Self { bug, seen: 0, kept: None }
    }

    fn every(&mut self, times: u64) -> bool {
        self.seen += 1;
        self.seen.is_multiple_of(times)
    }

    /// What the scheduler hears of an event.
    pub fn event(&mut self, event: Event) -> Option<Event> {
        Some(match (self.bug, event) {
            (Bug::Overfills, Event::WorkerJoined { worker, host, class, slots }) => {
                Event::WorkerJoined { worker, host, class, slots: slots * 3 }
            }
            (Bug::MixesClasses, Event::WorkerJoined { worker, host, slots, .. }) => {
                Event::WorkerJoined { worker, host, class: 0, slots }
            }
            (Bug::MixesClasses, Event::Submitted { scan, mut request }) => {
                request.class = 0;
                Event::Submitted { scan, request }
            }
            (Bug::ForgetsDeadlines, Event::Submitted { scan, mut request }) => {
                request.deadline_ms = None;
                Event::Submitted { scan, request }
            }
            (Bug::BelievesEverybody, Event::PieceDone { scan, attempt, host, piece, .. }) => {
                Event::PieceDone { scan, attempt, host, piece, digest: [0; 32] }
            }
            (Bug::FailsTooSoon, Event::PieceFailed { attempt, piece, kind }) if kind.is_retried() => {
                Event::PieceFailed { attempt, piece, kind: ErrorKind::Invalid }
            }
            (Bug::IgnoresDrain, Event::WorkerDraining { .. }) => return None,
            (Bug::ForgetsAttempts, Event::AttemptEnded { .. }) if self.every(3) => return None,
            (_, event) => event,
        })
    }

    /// What the world hears of the scheduler's commands.
    pub fn commands(&mut self, commands: &mut Vec<Command>) {
        match self.bug {
            Bug::LosesAResult => {
                if commands.iter().any(|c| matches!(c, Command::Accept { .. })) && self.every(10) {
                    commands.retain(|c| !matches!(c, Command::Accept { .. }));
                }
            }
            Bug::CountsTwice => {
                if let Some(accept) = commands.iter().find(|c| matches!(c, Command::Accept { .. })).cloned()
                    && self.every(10)
                {
                    commands.insert(0, accept);
                }
            }
            Bug::NeverGivesUp => {
                // The same work over and over, as new attempts.
                if let Some(Command::Dispatch { scan, worker, pieces, purpose, .. }) =
                    commands.iter().find(|c| matches!(c, Command::Dispatch { .. })).cloned()
                {
                    for _ in 0..12 {
                        self.seen += 1;
                        let attempt = AttemptId::MAX - self.seen;
                        let pieces = pieces.clone();
                        commands.push(Command::Dispatch { attempt, scan, worker, pieces, purpose });
                    }
                }
            }
            Bug::LetsAttemptsRun => {
                if commands.iter().any(|c| matches!(c, Command::End { .. })) {
                    commands.retain(|c| !matches!(c, Command::Stop { .. }));
                }
            }
            Bug::ForgetsIsolation => {
                // Work that was given meanwhile goes beside the suspect.
                for command in commands.iter_mut() {
                    match command {
                        Command::Dispatch { purpose: Purpose::Isolation, .. } => self.kept = Some(command.clone()),
                        Command::Dispatch { worker, .. } => {
                            if let Some(Command::Dispatch { worker: alone, .. }) = self.kept.take() {
                                *worker = alone;
                            }
                        }
                        _ => {}
                    }
                }
            }
            Bug::BelievesOneHost => {
                for command in commands.iter_mut() {
                    if let Command::Check { scan, piece } = *command {
                        *command = Command::Fail { scan, piece, kind: ErrorKind::Permanent, attempts: 1 };
                    }
                }
            }
            Bug::QuarantinesTheHonest => {
                for command in commands.iter_mut() {
                    if let Command::Quarantine { host, .. } = command {
                        *host += 1_000;
                    }
                }
            }
            Bug::FailsTooSoon
            | Bug::Overfills
            | Bug::MixesClasses
            | Bug::IgnoresDrain
            | Bug::ForgetsAttempts
            | Bug::BelievesEverybody
            | Bug::ForgetsDeadlines
            // Not of the scheduler: the world asks for them where they act.
            | Bug::BelievesItsLeaseLonger
            | Bug::ActsWithoutLooking
            | Bug::ForgetsTheGuard
            | Bug::WorkersTakeAnyEpoch
            | Bug::ForgetsToTakeOver
            | Bug::EndsBeforeItStored
            | Bug::ForgetsTheRequest
            | Bug::ReadsInOneAnswer
            | Bug::ForgetsSilentAttempts => {}
        }
        // A scan that ends for another reason than the bug is no concern of it.
        if commands.iter().any(|c| matches!(c, Command::End { outcome: Outcome::Cancelled, .. })) {
            self.kept = None;
        }
    }
}
