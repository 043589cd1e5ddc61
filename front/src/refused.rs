//! Why a scan, a panel or a study was refused: the coordinator's errors, as users' mistakes where the user can correct them.

use trawl_coordinator::features::FeatureError;
use trawl_coordinator::{AllBarsError, NoSymbol, PrepareError, PreparedScan, SeriesError, StudyError, WhyError};
use trawl_market::Store;
use trawl_plan::{Diagnostic, ScanDocument};

use crate::mistake::{UserMistake, of_market};

/// Why a scan could not be prepared.
pub fn of_prepare(error: PrepareError, store: &Store, document: &ScanDocument) -> anyhow::Error {
    match error {
        PrepareError::Plan(mistakes) => drawn(mistakes),
        PrepareError::Dataset(error) => of_market(error),
        PrepareError::NoBar { .. } => {
            let dataset = document.dataset.as_deref().and_then(|name| store.open(name).ok());
            let help =
                dataset.map(|d| format!("its first bar is that of {}", d.manifest.shown_as_of(d.manifest.first_time)));
            UserMistake::Plain { message: error.to_string(), help }.into()
        }
        error => UserMistake::plain(error.to_string()).into(),
    }
}

/// Mistakes in the clauses, with advice on columns that commas join.
pub fn drawn(mut mistakes: Vec<Diagnostic>) -> anyhow::Error {
    for mistake in &mut mistakes {
        let at_comma = mistake.text.get(mistake.span.clone()).is_some_and(|t| t.starts_with(','));
        if at_comma && mistake.help.is_none() && mistake.clause.starts_with("select[") {
            mistake.help = Some("give each column its own --select (in a document: its own string)".to_owned());
        }
    }
    UserMistake::Drawn(mistakes).into()
}

/// A symbol that the dataset does not have.
pub fn of_symbol(error: &NoSymbol) -> UserMistake {
    let help = match &error.near {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("'trawl data inspect {}' lists its symbols", error.dataset),
    };
    UserMistake::with_help(error.to_string(), help)
}

/// Why a symbol could not be explained.
pub fn of_why(error: WhyError) -> anyhow::Error {
    match error {
        WhyError::Series(SeriesError::Symbol(error)) => of_symbol(&error).into(),
        WhyError::Sweep(_) => {
            let help = Some("give each variable one value: --sweep 'n=20'".to_owned());
            UserMistake::Plain { message: error.to_string(), help }.into()
        }
        WhyError::Market(error) => of_market(error),
        error => anyhow::Error::from(error),
    }
}

/// Why a scan could not be run at every bar.
pub fn of_all_bars(error: AllBarsError) -> anyhow::Error {
    match error {
        AllBarsError::History | AllBarsError::Renamed { .. } | AllBarsError::Timeframe { .. } => {
            UserMistake::plain(error.to_string()).into()
        }
        error => anyhow::Error::new(error),
    }
}

/// Why the series of a symbol could not be computed.
pub fn of_series(error: SeriesError) -> anyhow::Error {
    match error {
        SeriesError::Symbol(error) => of_symbol(&error).into(),
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
        FeatureError::Market(error) => of_market(error),
        FeatureError::Sweep(_)
        | FeatureError::NoClose
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
        StudyError::NoLabel(label) => {
            let labels = prepared.dataset.manifest.labels();
            let near = trawl_plan::suggest(&label, labels.iter().map(String::as_str));
            let help = match (near, labels.is_empty()) {
                (Some(near), _) => format!("did you mean '{near}'?"),
                (None, true) => "'trawl data import --symbols' adds labels".to_owned(),
                (None, false) => format!("labels: {}", labels.join(", ")),
            };
            UserMistake::with_help(message, help).into()
        }
        StudyError::Sweep(_) | StudyError::NoClose | StudyError::TooLarge(_) => UserMistake::plain(message).into(),
        StudyError::AllBars(error) => of_all_bars(error),
        StudyError::Market(error) => of_market(error),
    }
}
