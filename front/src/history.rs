//! Scans over history as every door asks for them: panels, signals, tensors and studies. The options are checked in one place.
//!
//! The doors write the names of options in different ways; [`Names`] says how, so that a message names what its reader can change.

use trawl_coordinator::features::{FOLDS_MAX, FeatureOptions, SplitBy, WINDOW_MAX};
use trawl_coordinator::local::LocalOptions;
use trawl_coordinator::{HORIZONS_MAX, HorizonStudy, PreparedScan, StudyOptions, study};
use trawl_kernels::Cancel;
use trawl_market::{AsOf, TimeMicros};
use trawl_plan::ScanDocument;

use crate::mistake::{UserMistake, of_market};
use crate::refused::of_study;

/// The furthest horizon, in bars.
pub const HORIZON_MAX: u32 = 100_000;
/// The longest embargo, in bars.
pub const EMBARGO_MAX: u32 = 100_000;

/// How a door writes the names of its options.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// What is in front of each name.
    pub prefix: &'static str,
    /// The first bar of a span.
    pub from: &'static str,
    /// Its last bar.
    pub to: &'static str,
    /// How the test rows are named.
    pub split: &'static str,
}

impl Names {
    /// Options of the command line whose last bar is `--to`.
    pub const OPTIONS: Self = Self { prefix: "--", from: "--from", to: "--to", split: "--split WHEN or --folds K" };
    /// Options of the command line whose last bar is `--as-of`.
    pub const OPTIONS_AS_OF: Self = Self { to: "--as-of", ..Self::OPTIONS };
    /// Keyword arguments of Python.
    pub const PYTHON: Self = Self { prefix: "", from: "start", to: "end", split: "split=WHEN or folds=K" };
    /// Keys of a body of HTTP.
    pub const HTTP: Self =
        Self { prefix: "", from: "from", to: "to", split: "split, a date or a time, or folds, a number" };
}

/// What a panel has, as it is asked for.
#[derive(Debug, Clone, Default)]
pub struct PanelWanted {
    /// The first bar.
    pub from: Option<AsOf>,
    /// Bars ahead of the labels.
    pub forward: Vec<u32>,
    /// Whether only matches are rows.
    pub matches_only: bool,
    /// Where the test rows begin.
    pub split: Option<AsOf>,
    /// Into how many runs of bars the span is cut, each tested once.
    pub folds: Option<u32>,
    /// Bars between training and test rows, besides those that labels read.
    pub embargo: u32,
    /// Bars of a window, for tensors.
    pub window: Option<u32>,
}

impl PanelWanted {
    /// Checks it for a scan.
    ///
    /// # Errors
    /// A [`UserMistake`] that names the option.
    pub fn options(&self, prepared: &PreparedScan, names: Names) -> anyhow::Result<FeatureOptions> {
        let Names { prefix, .. } = names;
        let start = |when: &AsOf| prepared.dataset.manifest.span_start(when).map_err(of_market);
        let split = match (&self.split, self.folds) {
            (Some(_), Some(_)) => {
                let message = format!("{prefix}split and {prefix}folds exclude each other");
                return Err(UserMistake::with_help(message, "give one of them").into());
            }
            (Some(when), None) => Some(SplitBy::Time(start(when)?)),
            (None, folds) => folds.map(|folds| folds_of(folds, names)).transpose()?,
        };
        if self.embargo > 0 && split.is_none() {
            let help = format!("name the test rows with {}", names.split);
            return Err(UserMistake::with_help(format!("{prefix}embargo is for training and test rows"), help).into());
        }
        if self.embargo > EMBARGO_MAX {
            return Err(number("embargo", self.embargo, (0, EMBARGO_MAX), names).into());
        }
        let window = self.window.unwrap_or(0);
        let windows = 1..=WINDOW_MAX as u32;
        if self.window.is_some() && !windows.contains(&window) {
            return Err(number("window", window, (1, WINDOW_MAX as u32), names).into());
        }
        Ok(FeatureOptions {
            horizons: bars_ahead(&self.forward, "forward", names)?,
            from: span_from(prepared, self.from.as_ref(), names)?,
            matches_only: self.matches_only,
            split,
            embargo: self.embargo,
            window: window as usize,
        })
    }
}

/// What a study has, as it is asked for.
#[derive(Debug, Clone)]
pub struct StudyWanted {
    /// Bars ahead.
    pub horizons: Vec<u32>,
    /// A label of the symbols, a period of the bars, or dates with commas, by which matches are grouped.
    pub by: Option<String>,
    /// The first bar at which matches count.
    pub from: Option<AsOf>,
}

impl StudyWanted {
    /// Checks it for a scan.
    ///
    /// # Errors
    /// A [`UserMistake`] that names the option.
    pub fn options(&self, prepared: &PreparedScan, names: Names) -> anyhow::Result<StudyOptions> {
        let horizons = bars_ahead(&self.horizons, "horizons", names)?;
        if horizons.is_empty() {
            let message = format!("{}horizons has no number of bars", names.prefix);
            return Err(UserMistake::with_help(message, "give numbers of bars ahead, such as 1, 5 and 20").into());
        }
        Ok(StudyOptions { horizons, by: self.by.clone(), from: span_from(prepared, self.from.as_ref(), names)? })
    }
}

/// Studies a scan. Blocks.
///
/// # Errors
/// A [`UserMistake`]; a dataset that cannot be read; cancelled.
pub fn studied(
    prepared: &PreparedScan,
    local: LocalOptions,
    options: &StudyOptions,
    cancel: &dyn Cancel,
) -> anyhow::Result<Vec<HorizonStudy>> {
    study(prepared, local, options, cancel).map_err(|error| of_study(error, prepared))
}

/// That a limit does not choose among the matches of each bar.
pub fn unused_limit(document: &ScanDocument) -> Option<&'static str> {
    let unused =
        "the scan's limit is not used: every match of a bar counts; xs_top(x, n) in the condition chooses the n best";
    document.limit.map(|_| unused)
}

/// The first time of a span whose last bar is that of the scan.
///
/// # Errors
/// A [`UserMistake`] for a span that begins after its last bar, and for what is no time.
pub fn span_from(prepared: &PreparedScan, from: Option<&AsOf>, names: Names) -> anyhow::Result<Option<TimeMicros>> {
    let Some(when) = from else { return Ok(None) };
    let start = prepared.dataset.manifest.span_start(when).map_err(of_market)?;
    if start > prepared.as_of {
        let last = prepared.shown_as_of();
        let message = format!("{}: '{when}' is after the last bar of the span, that of {last}", names.from);
        let help = format!("give a time up to {last}, or a later {}", names.to);
        return Err(UserMistake::with_help(message, help).into());
    }
    Ok(Some(start))
}

/// Numbers of bars, ascending, each once.
fn bars_ahead(bars: &[u32], name: &str, names: Names) -> Result<Vec<u32>, UserMistake> {
    let mut bars = bars.to_vec();
    bars.sort_unstable();
    bars.dedup();
    if let Some(wrong) = bars.iter().find(|bars| !(1..=HORIZON_MAX).contains(*bars)) {
        return Err(number(name, *wrong, (1, HORIZON_MAX), names));
    }
    if bars.len() > HORIZONS_MAX {
        let message = format!("{}{name} has {} numbers; at most {HORIZONS_MAX} are taken", names.prefix, bars.len());
        return Err(UserMistake::with_help(message, "ask for the others in a second run"));
    }
    Ok(bars)
}

fn folds_of(folds: u32, names: Names) -> Result<SplitBy, UserMistake> {
    match (2..=FOLDS_MAX).contains(&folds) {
        true => Ok(SplitBy::Folds(folds)),
        false => Err(number("folds", folds, (2, FOLDS_MAX), names)),
    }
}

/// That an option is no number of its range.
fn number(name: &str, found: u32, (least, most): (u32, u32), names: Names) -> UserMistake {
    UserMistake::plain(format!("{}{name}: {found} is not a number from {least} to {most}", names.prefix))
}

#[cfg(test)]
mod tests {
    use trawl_market::Store;

    use super::*;
    use crate::run::prepared;

    fn scan(as_of: &str) -> PreparedScan {
        let document = ScanDocument {
            dataset: Some("us5".to_owned()),
            condition: "close > sma(close, 20)".to_owned(),
            ..ScanDocument::default()
        };
        prepared(&Store::new("/nowhere".into()), &document, AsOf::parse(as_of).unwrap()).unwrap()
    }

    fn time(text: &str) -> Option<AsOf> {
        Some(AsOf::parse(text).unwrap())
    }

    #[test]
    fn a_span_that_begins_after_its_last_bar_is_refused_with_both() {
        // A Saturday after a Friday.
        let scan = scan("2013-02-23");
        let first = span_from(&scan, time("2013-02-22").as_ref(), Names::HTTP).unwrap();
        assert_eq!(first, Some(scan.as_of));
        for (names, from, to) in [
            (Names::HTTP, "from: ", "later to"),
            (Names::PYTHON, "start: ", "later end"),
            (Names::OPTIONS, "--from: ", "later --to"),
        ] {
            let error = span_from(&scan, time("2013-02-23").as_ref(), names).unwrap_err();
            let Some(UserMistake::Plain { message, help: Some(help) }) = error.downcast_ref() else {
                panic!("{error}")
            };
            assert!(
                message.starts_with(from) && message.contains("'2013-02-23'") && message.contains("2013-02-22"),
                "{message}"
            );
            assert!(help.ends_with(to), "{help}");
        }
    }

    #[test]
    fn each_option_has_its_range_and_the_name_of_its_door() {
        let scan = scan("2013-02-22");
        let refused = |wanted: PanelWanted, names| format!("{:#}", wanted.options(&scan, names).unwrap_err());
        let plain = PanelWanted::default;
        let cases = [
            (PanelWanted { forward: vec![0], ..plain() }, "forward: 0 is not a number from 1 to 100000"),
            (PanelWanted { forward: (1..=17).collect(), ..plain() }, "forward has 17 numbers"),
            (PanelWanted { folds: Some(1), ..plain() }, "folds: 1 is not a number from 2 to 100"),
            (PanelWanted { window: Some(0), ..plain() }, "window: 0 is not a number from 1 to 10000"),
            (PanelWanted { embargo: 3, ..plain() }, "embargo is for training and test rows"),
            (PanelWanted { embargo: 200_000, folds: Some(2), ..plain() }, "embargo: 200000 is not"),
            (
                PanelWanted { folds: Some(2), split: time("2013-01-02"), ..plain() },
                "split and folds exclude each other",
            ),
        ];
        for (wanted, why) in cases {
            let message = refused(wanted.clone(), Names::HTTP);
            assert!(message.contains(why), "{message}");
            assert!(refused(wanted, Names::OPTIONS).starts_with("--"));
        }
        let taken = PanelWanted { forward: vec![5, 1, 5], folds: Some(2), embargo: 3, window: Some(4), ..plain() };
        let taken = taken.options(&scan, Names::HTTP).unwrap();
        assert_eq!((taken.horizons, taken.window, taken.split), (vec![1, 5], 4, Some(SplitBy::Folds(2))));
        let study = StudyWanted { horizons: Vec::new(), by: None, from: None };
        assert!(study.options(&scan, Names::PYTHON).unwrap_err().to_string().starts_with("horizons has no"));
    }
}
