//! Charts as pictures.

use std::sync::Mutex;

use trawl_coordinator::PreparedScan;
use trawl_market::Store;

use super::asked::Asked;
use super::history::warnings_text;
use super::negotiation::Offered;
use super::problem::Problem;
use crate::chart::{ChartWanted, PictureFormat};
use crate::run::CancelFlag;

impl Offered for PictureFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Svg => "image/svg+xml",
            Self::Png => "image/png",
        }
    }
}

/// Formats of pictures; the first is the one for a client that accepts anything.
pub const PICTURES: [PictureFormat; 2] = [PictureFormat::Svg, PictureFormat::Png];

/// What is drawn, checked as far as that needs no dataset.
#[derive(Debug, Clone)]
pub struct ChartQuestion {
    /// The chart, without the scan whose matches are marked.
    pub wanted: ChartWanted,
    /// That scan.
    pub marked: Option<Asked>,
    /// The format of the picture.
    pub format: PictureFormat,
}

/// A picture.
#[derive(Debug)]
pub struct Picture {
    /// Its format.
    pub format: PictureFormat,
    /// The file.
    pub bytes: Vec<u8>,
    /// What whoever looks at it should know.
    pub warnings: Option<String>,
}

impl ChartQuestion {
    /// Draws it, unless `check` refuses its estimated work in nanoseconds of one core. Blocks.
    pub(super) fn drawn(
        self,
        store: &Store,
        marked: Option<PreparedScan>,
        (threads, cancel): (usize, &CancelFlag),
        check: impl FnOnce(f64) -> Result<(), Problem>,
    ) -> Result<Picture, Problem> {
        let failed = |error: anyhow::Error| Problem::of_error(&error);
        let wanted = ChartWanted { marked, ..self.wanted };
        let warnings = Mutex::new(Vec::new());
        let warn = |text: &str| {
            if let Ok(mut warnings) = warnings.lock() {
                warnings.push(text.to_owned());
            }
        };
        let mut request = wanted.begin(store, &warn).map_err(failed)?;
        (request.threads, request.cancel) = (threads, Some(cancel.clone()));
        check(request.work_ns(&wanted.symbol).map_err(failed)?)?;
        let bytes = wanted.drawn(&request, self.format).map_err(failed)?;
        let warnings = warnings.lock().map(|warnings| warnings.clone()).unwrap_or_default();
        Ok(Picture { format: self.format, bytes, warnings: warnings_text(warnings.iter().map(String::as_str)) })
    }
}
