//! The result of a removal, of a directory (`removal`) or an object store (`remote::removal`), and the reasons against one.

use std::time::Duration;

use crate::error::MarketError;
use crate::pin_files::PinFound;
use crate::time::{TimeMicros, format_time};

/// How long files of an object store stay after the last snapshot that names them was removed, unless the user says otherwise. Whoever
/// opened the snapshot before may read it for so long.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(24 * 3600);
/// The longest that the user may ask for.
pub const GRACE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct RemovalReport {
    /// Name.
    pub dataset: String,
    /// The dataset was deleted, with all of its snapshots.
    pub whole: bool,
    /// Snapshots that were deleted.
    pub removed: Vec<String>,
    /// Snapshots that were to be deleted but are in use.
    pub kept_in_use: Vec<InUse>,
    /// Number of remaining snapshots.
    pub snapshots: usize,
    /// Files that were deleted.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Files of an object store that no snapshot needs, and that are still too young to be deleted.
    pub pending: Option<Pending>,
}

/// Files that a later removal deletes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Pending {
    /// How many.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// When all of them may be deleted, by the store's clock.
    pub until: String,
}

impl Pending {
    pub(crate) fn new(files: u64, bytes: u64, until: TimeMicros) -> Self {
        // Whole seconds, and not too early.
        let until = until.saturating_add((-until).rem_euclid(1_000_000));
        Self { files, bytes, until: format_time(until) }
    }
}

/// A snapshot that cannot be deleted now.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct InUse {
    /// Its id.
    pub snapshot: String,
    /// What uses it.
    pub why: String,
}

/// The error for the last snapshot of a dataset.
pub(crate) fn only_one(name: &str, snapshot: &str) -> MarketError {
    MarketError::Refused(format!(
        "{name}@{} is the only snapshot of dataset '{name}': 'trawl data rm {name}' deletes the dataset",
        short(snapshot)
    ))
}

/// Why a pinned snapshot is kept.
pub(crate) fn pinned_until(pin: &PinFound) -> InUse {
    let holder = pin.holder();
    let why = match pin.until {
        TimeMicros::MAX => format!("a scan of a cluster pins it, by a pin that cannot be read (of {holder})"),
        // Whole seconds are precise enough.
        until => {
            let until = format_time(until - until.rem_euclid(1_000_000));
            format!("a scan of a cluster pins it until {until} at most (the pin of {holder})")
        }
    };
    InUse { snapshot: pin.snapshot.clone(), why }
}

fn short(snapshot: &str) -> &str {
    snapshot.get(..12).unwrap_or(snapshot)
}

/// The error for snapshots in use.
pub(crate) fn refusal(name: &str, used: &[InUse]) -> MarketError {
    let each: Vec<String> = used.iter().map(|u| format!("{name}@{}: {}", short(&u.snapshot), u.why)).collect();
    MarketError::Refused(format!("nothing was deleted, because it is in use: {}", each.join("; ")))
}
