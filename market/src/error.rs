//! Errors of market data. Files are named relative to the data root, so that a message is the same on every machine and
//! may become part of an answer.

use std::io;
use trawl_terms::TimeframeError;

/// Who can correct an error, and whether a retry may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarketErrorKind {
    /// The user's mistake: a name, an option, an input file.
    Invalid,
    /// Stored data are damaged or missing: every attempt gives the same result.
    Permanent,
    /// Reading or writing failed, or another import is running: a retry may help.
    Retryable,
}

/// What can go wrong with market data; [`MarketError::kind`] decides retry.
#[derive(Debug, thiserror::Error)]
pub enum MarketError {
    /// The dataset does not exist; contains the nearest name.
    #[error("no dataset '{name}' under {root}{}", did_you_mean(suggestion))]
    UnknownDataset {
        /// What was asked for.
        name: String,
        /// The data root.
        root: String,
        /// Nearest existing name.
        suggestion: Option<String>,
    },
    /// A text that is not a length of a bar.
    #[error(transparent)]
    Timeframe(#[from] TimeframeError),
    /// A text that is not a valid name of a dataset, a snapshot or a symbol.
    #[error("'{text}' is not a {what}: {expected}")]
    BadName {
        /// The text, shortened.
        text: String,
        /// What it should have been.
        what: &'static str,
        /// What is expected instead.
        expected: String,
    },
    /// The dataset has no such snapshot.
    #[error("dataset '{dataset}' has no snapshot '{prefix}'")]
    UnknownSnapshot {
        /// Name.
        dataset: String,
        /// What was asked for.
        prefix: String,
    },
    /// Several snapshots begin with these digits.
    #[error("dataset '{dataset}' has {count} snapshots that begin with '{prefix}': give more digits")]
    AmbiguousSnapshot {
        /// Name.
        dataset: String,
        /// What was asked for.
        prefix: String,
        /// How many there are.
        count: usize,
    },
    /// The snapshot has no such column.
    #[error("dataset '{dataset}' has no column '{column}' (it has {}){}", available.join(", "), did_you_mean(suggestion))]
    UnknownColumn {
        /// Name.
        dataset: String,
        /// What was asked for.
        column: String,
        /// The columns there are.
        available: Vec<String>,
        /// Nearest of them.
        suggestion: Option<String>,
    },
    /// The snapshot has no such symbol.
    #[error("dataset '{dataset}' has no symbol '{symbol}'{}", did_you_mean(suggestion))]
    UnknownSymbol {
        /// Name.
        dataset: String,
        /// What was asked for.
        symbol: String,
        /// Nearest of them.
        suggestion: Option<String>,
    },
    /// The snapshot has no such group.
    #[error("dataset '{dataset}' has {groups} groups: there is no group {group}")]
    UnknownGroup {
        /// Name.
        dataset: String,
        /// What was asked for.
        group: u32,
        /// How many there are.
        groups: u32,
    },
    /// The content of a file is not what was written.
    #[error("{file} is damaged: its sha256 should be {expected}, but is {found}")]
    Checksum {
        /// Relative to the data root.
        file: String,
        /// From the manifest.
        expected: String,
        /// Of the file's current content.
        found: String,
    },
    /// A file has invalid content.
    #[error("{file} is invalid: {why}")]
    Corrupt {
        /// Relative to the data root.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {file}")]
    Io {
        /// A verb.
        action: &'static str,
        /// Relative to the data root.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A disk has no room for a file, or this user's share of it has none, or files may not be as long.
    #[error(
        "cannot {action} {file}: its disk is full; the dataset is as it was before: free space on that disk, such as with 'trawl data \
         prune', and try again"
    )]
    Full {
        /// A verb.
        action: &'static str,
        /// Relative to the data root.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The object store of the data root failed, or refused.
    #[error("cannot {action} {file} at {address}: {why}")]
    DataRoot {
        /// A verb.
        action: &'static str,
        /// Relative to the data root.
        file: String,
        /// The data root, without credentials.
        address: String,
        /// Why.
        why: String,
    },
    /// An object store does not have a file that a snapshot names.
    #[error(
        "{file} is no longer at {address}: its snapshot was deleted by 'trawl data rm' or 'trawl data prune' after it was opened, or \
         something else deleted the object"
    )]
    Gone {
        /// Relative to the data root.
        file: String,
        /// The data root, without credentials.
        address: String,
    },
    /// An input file that the user named cannot be read.
    #[error("cannot {action} {file}")]
    Input {
        /// A verb.
        action: &'static str,
        /// As the user named it.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process is writing to the dataset.
    #[error("another import into dataset '{dataset}' is running")]
    Busy {
        /// Name.
        dataset: String,
    },
    /// Another process is writing the dataset's appended bars as part of its groups.
    #[error("a compaction of dataset '{dataset}' is running")]
    Compacting {
        /// Name.
        dataset: String,
    },
    /// A removal is deleting files that this writer needs.
    #[error(
        "a removal of dataset '{dataset}' is deleting files that this needs: try again; if that removal was interrupted, \
         'trawl data prune {dataset} --keep N' ends it a day after it began"
    )]
    Removing {
        /// Name.
        dataset: String,
    },
    /// The input cannot become part of the dataset.
    #[error("{0}")]
    Refused(String),
    /// A CSV file that cannot be imported.
    #[error("{file}: {why}; expected {expected}")]
    BadCsv {
        /// As the user named it.
        file: String,
        /// What is wrong.
        why: String,
        /// What is expected.
        expected: String,
    },
    /// A named limit was exceeded.
    #[error("{what}: {found}, at most {limit} are supported")]
    Limit {
        /// What is limited.
        what: String,
        /// The number found.
        found: u64,
        /// The limit.
        limit: u64,
    },
}

impl MarketError {
    /// Who can correct it.
    pub fn kind(&self) -> MarketErrorKind {
        match self {
            Self::UnknownDataset { .. }
            | Self::BadName { .. }
            | Self::Timeframe(_)
            | Self::UnknownSnapshot { .. }
            | Self::AmbiguousSnapshot { .. }
            | Self::UnknownColumn { .. }
            | Self::UnknownSymbol { .. }
            | Self::UnknownGroup { .. }
            | Self::Refused(_)
            | Self::Input { .. }
            | Self::BadCsv { .. }
            | Self::Limit { .. } => MarketErrorKind::Invalid,
            Self::Checksum { .. } | Self::Corrupt { .. } | Self::Gone { .. } => MarketErrorKind::Permanent,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => MarketErrorKind::Permanent,
            Self::Io { .. }
            | Self::Full { .. }
            | Self::DataRoot { .. }
            | Self::Busy { .. }
            | Self::Compacting { .. }
            | Self::Removing { .. } => MarketErrorKind::Retryable,
        }
    }

    pub(crate) fn io(action: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| match is_full(source.kind()) {
            true => Self::Full { action, file, source },
            false => Self::Io { action, file, source },
        }
    }

    pub(crate) fn input(action: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| Self::Input { action, file, source }
    }
}

/// Whether a file could not be written for want of room.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|s| format!(" (did you mean '{s}'?)")).unwrap_or_default()
}
