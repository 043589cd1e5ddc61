//! Why a panel, a study or a series was refused: the coordinator's errors, as users' mistakes where the user can correct them.

use trawl_coordinator::features::FeatureError;
use trawl_coordinator::{AllBarsError, GroupsError, PERIODS, PreparedScan, SeriesError, StudyError};
use trawl_kernels::Cancelled;
use trawl_kernels::cuda::Fault;
use trawl_worker::ExecuteError;

use crate::mistake::{UserMistake, of_market};
use crate::why::no_symbol;

/// Why a scan could not be run at every bar.
pub fn of_all_bars(error: AllBarsError) -> anyhow::Error {
    match error {
        AllBarsError::History | AllBarsError::Renamed { .. } | AllBarsError::Timeframe { .. } => {
            UserMistake::plain(error.to_string()).into()
        }
        AllBarsError::Execute(ExecuteError::Device(fault)) => of_device(fault),
        error => anyhow::Error::new(error),
    }
}

/// Why a device gave nothing: a lack of its memory is what the user can change.
pub fn of_device(fault: Fault) -> anyhow::Error {
    match fault {
        Fault::OutOfMemory { .. } => {
            let help = "take fewer bars, features or symbols, or tensors in main memory: device='cpu'";
            UserMistake::with_help(fault.to_string(), help).into()
        }
        Fault::Cancelled => Cancelled.into(),
        fault => anyhow::Error::new(fault),
    }
}

/// Why the series of a symbol could not be computed.
pub fn of_series(error: SeriesError) -> anyhow::Error {
    match error {
        SeriesError::Symbol(error) => no_symbol(&error).into(),
        SeriesError::Market(error) => of_market(error),
        SeriesError::AllBars(error) => of_all_bars(error),
        error => anyhow::Error::new(error),
    }
}

/// Why there is no panel.
pub fn of_panel(error: FeatureError) -> anyhow::Error {
    let message = error.to_string();
    match error {
        FeatureError::AllBars(error) => of_all_bars(error),
        FeatureError::Device(fault) => of_device(fault),
        FeatureError::Market(error) => of_market(error),
        FeatureError::Many(many) => UserMistake::with_help(message, many.help()).into(),
        FeatureError::NoClose
        | FeatureError::Name(_)
        | FeatureError::Split(_)
        | FeatureError::Window(_)
        | FeatureError::Folds(_)
        | FeatureError::Empty => UserMistake::plain(message).into(),
    }
}

/// Why there is no study of `prepared`.
pub fn of_study(error: StudyError, prepared: &PreparedScan) -> anyhow::Error {
    let message = error.to_string();
    match error {
        StudyError::Groups(GroupsError::NoLabel(label)) => {
            let labels = prepared.dataset.manifest.labels();
            let near = trawl_plan::suggest(&label, labels.iter().map(String::as_str).chain(PERIODS));
            let others = format!("{}, or dates such as 2020-01-01,2023-01-01", PERIODS.join(", "));
            let help = match (near, labels.is_empty()) {
                (Some(near), _) => format!("did you mean '{near}'?"),
                (None, true) => format!("bars are grouped by {others}; 'trawl data import --symbols' adds labels"),
                (None, false) => format!("labels: {}; bars are grouped by {others}", labels.join(", ")),
            };
            UserMistake::with_help(message, help).into()
        }
        StudyError::Many(many) => UserMistake::with_help(message, many.help()).into(),
        StudyError::NoClose | StudyError::TooLarge(_) | StudyError::Groups(_) => UserMistake::plain(message).into(),
        StudyError::AllBars(error) => of_all_bars(error),
        StudyError::Market(error) => of_market(error),
    }
}
