//! Planted bugs, at least one for each invariant: between the scheduler and the world, acting as a broken scheduler,
//! and in coordinators, records and workers.

use trawl_coordinator::scheduler::{AttemptId, Command, Event, Outcome, Purpose};
use trawl_wire::ErrorKind;

use crate::ledger::Invariant;

/// A bug and its state.
#[derive(Debug, Clone)]
pub struct Sabotage {
    pub bug: Bug,
    seen: u64,
    kept: Option<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Every tenth result is dropped.
    LosesAResult,
    /// A result counts twice.
    CountsTwice,
    /// A failed piece is dispatched without limit.
    NeverGivesUp,
    /// Attempts of an ended scan continue.
    LetsAttemptsRun,
    /// Workers are assumed to have more slots than they have.
    Overfills,
    /// A suspect runs beside other work.
    ForgetsIsolation,
    /// Workers of any class receive work of any scan.
    MixesClasses,
    /// Draining workers receive work.
    IgnoresDrain,
    /// The end of an attempt is ignored.
    ForgetsAttempts,
    /// Results are not compared.
    BelievesEverybody,
    /// A failure is final at once.
    FailsTooSoon,
    /// A host that contradicts another is quarantined, right or wrong.
    QuarantinesTheHonest,
    /// Deadlines are ignored.
    ForgetsDeadlines,
    /// A leader assumes twice the lifetime of its lease.
    BelievesItsLeaseLonger,
    /// A leader that stepped down goes on.
    GoesOnAfterItsTerm,
    /// A leader's writes are not guarded by its key.
    ForgetsTheGuard,
    /// Workers accept work of any epoch.
    WorkersTakeAnyEpoch,
    /// A new leader takes over no scans.
    ForgetsToTakeOver,
    /// The end of a scan is recorded before its results are stored.
    EndsBeforeItStored,
    /// A client's idempotency key is not recorded.
    ForgetsTheRequest,
    /// All records are read in one reply.
    ReadsInOneAnswer,
    /// A silent attempt is awaited without limit.
    ForgetsSilentAttempts,
    /// One host's report about a file is accepted when there is no other host to ask.
    BelievesOneHost,
    /// Watches are believed to report everything.
    TrustsSilentWatches,
    /// Nobody compares the store's version with earlier ones.
    ForgetsHistory,
    /// A bug of the store: its new leader does not extend the leases.
    StoreShortensLeases,
    /// The end of a scan is taken for recorded when the store does not answer, or refuses it.
    BelievesUnanswered,
    /// A scan goes on in another class with the results that it has.
    ResumesInAnotherClass,
    /// Workers are read although results wait to be stored.
    ReadsWithoutRoom,
    /// A reply that cannot be a result is taken for a failure.
    ForgivesTheMalformed,
}

impl Bug {
    pub const ALL: [Self; 30] = [
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
        Self::GoesOnAfterItsTerm,
        Self::ForgetsTheGuard,
        Self::WorkersTakeAnyEpoch,
        Self::ForgetsToTakeOver,
        Self::EndsBeforeItStored,
        Self::ForgetsTheRequest,
        Self::ReadsInOneAnswer,
        Self::ForgetsSilentAttempts,
        Self::BelievesOneHost,
        Self::TrustsSilentWatches,
        Self::ForgetsHistory,
        Self::StoreShortensLeases,
        Self::BelievesUnanswered,
        Self::ResumesInAnotherClass,
        Self::ReadsWithoutRoom,
        Self::ForgivesTheMalformed,
    ];

    /// The invariant that has to detect it.
    pub fn noticed_by(self) -> Invariant {
        match self {
            Self::LosesAResult | Self::CountsTwice => Invariant::EverySymbolOnce,
            Self::NeverGivesUp => Invariant::AttemptsWithinLimits,
            Self::LetsAttemptsRun => Invariant::NothingAfterTheEnd,
            Self::Overfills | Self::ForgetsIsolation => Invariant::InFlightBounded,
            Self::MixesClasses | Self::IgnoresDrain => Invariant::RightWorkers,
            Self::ForgetsAttempts | Self::BelievesUnanswered => Invariant::Progress,
            Self::BelievesEverybody => Invariant::SameBytes,
            Self::FailsTooSoon | Self::QuarantinesTheHonest => Invariant::Reasons,
            Self::ForgetsDeadlines => Invariant::Deadlines,
            Self::BelievesItsLeaseLonger | Self::GoesOnAfterItsTerm | Self::StoreShortensLeases => Invariant::OneLeader,
            Self::ForgetsTheGuard | Self::WorkersTakeAnyEpoch => Invariant::StaleEpochs,
            Self::ForgetsToTakeOver => Invariant::AcceptedScansEnd,
            Self::EndsBeforeItStored => Invariant::RecordedAnswer,
            Self::ForgetsTheRequest => Invariant::OneScanPerRequest,
            Self::ReadsInOneAnswer => Invariant::LeadersBegin,
            Self::ForgetsSilentAttempts => Invariant::EveryAttemptEnds,
            Self::BelievesOneHost => Invariant::OneHostIsNoProof,
            Self::TrustsSilentWatches => Invariant::RegistrationsAreSeen,
            Self::ResumesInAnotherClass => Invariant::OneClassPerAnswer,
            Self::ReadsWithoutRoom => Invariant::HeldIsBounded,
            Self::ForgetsHistory => Invariant::RestoresAreNoticed,
            Self::ForgivesTheMalformed => Invariant::MalformedIsAFault,
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

    /// The event as passed to the scheduler.
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
            (Bug::ForgivesTheMalformed, Event::PieceMalformed { attempt, piece }) => {
                Event::PieceFailed { attempt, piece, kind: ErrorKind::Retryable }
            }
            (Bug::IgnoresDrain, Event::WorkerDraining { .. }) => return None,
            (Bug::ForgetsAttempts, Event::AttemptEnded { .. }) if self.every(3) => return None,
            (_, event) => event,
        })
    }

    /// The commands as passed to the world.
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
                // Work assigned meanwhile runs beside the suspect.
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
            // Not in the scheduler: the world checks for these bugs where they act.
            | Bug::BelievesItsLeaseLonger
            | Bug::GoesOnAfterItsTerm
            | Bug::ForgetsTheGuard
            | Bug::WorkersTakeAnyEpoch
            | Bug::ForgetsToTakeOver
            | Bug::EndsBeforeItStored
            | Bug::ForgetsTheRequest
            | Bug::ReadsInOneAnswer
            | Bug::ForgetsSilentAttempts
            | Bug::TrustsSilentWatches
            | Bug::ForgetsHistory
            | Bug::StoreShortensLeases
            | Bug::BelievesUnanswered
            | Bug::ResumesInAnotherClass
            | Bug::ReadsWithoutRoom
            | Bug::ForgivesTheMalformed => {}
        }
        // A scan that ends for another reason is unaffected.
        if commands.iter().any(|c| matches!(c, Command::End { outcome: Outcome::Cancelled, .. })) {
            self.kept = None;
        }
    }
}
