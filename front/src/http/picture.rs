//! Charts as pictures.

use std::sync::Mutex;

use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use trawl_coordinator::PreparedScan;
use trawl_market::Store;

use super::door::Asked;
use super::history::warnings_text;
use super::negotiation::{Offered, chosen};
use super::problem::{Kind, Problem};
use super::request::{RawDocument, as_of};
use crate::chart::{BARS, ChartWanted, PictureFormat};
use crate::run::CancelFlag;

/// Pixels of a picture: as many as three bytes each may take in memory.
const PIXELS_MAX: u64 = 16 << 20;

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

/// A chart of one symbol.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChartBody {
    /// `NAME` or `NAME@SNAPSHOT`.
    dataset: String,
    /// The symbol.
    symbol: String,
    /// Expressions that are drawn where their values fit; those of one text that `;` separates share a panel.
    #[schemars(length(max = 32))]
    #[serde(default)]
    exprs: Vec<String>,
    /// Expressions in panels of their own.
    #[schemars(length(max = 32))]
    #[serde(default)]
    panel: Vec<String>,
    /// Expressions over the price.
    #[schemars(length(max = 32))]
    #[serde(default)]
    overlay: Vec<String>,
    /// The scan whose matches are marked; its dataset, adjustment and last bar are those of the chart.
    marks: Option<RawDocument>,
    /// Whether the volume is drawn.
    #[serde(default = "yes")]
    volume: bool,
    /// How many bars.
    #[serde(default = "bars")]
    #[schemars(range(min = 2, max = 20_000))]
    bars: u32,
    /// Width and height in pixels; as high as the panels need without it.
    size: Option<(u32, u32)>,
    /// The last bar, as in a scan.
    as_of: Option<String>,
    /// Corrections of prices, as in a scan document.
    adjust: Option<String>,
}

fn yes() -> bool {
    true
}

fn bars() -> u32 {
    BARS
}

/// What is drawn, checked as far as that needs no dataset.
#[derive(Debug, Clone)]
pub struct ChartQuestion {
    /// The chart, without the scan whose matches are marked.
    pub wanted: ChartWanted,
    /// That scan.
    pub marked: Option<Asked>,
    format: PictureFormat,
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

impl ChartBody {
    /// Checks the request.
    pub fn question(self, format: Option<&str>, headers: &HeaderMap) -> Result<ChartQuestion, Problem> {
        let format = chosen(&PICTURES, format, headers)?;
        let last = as_of(self.as_of.as_deref(), "as_of")?;
        if let Some((width, height)) = self.size
            && u64::from(width) * u64::from(height) > PIXELS_MAX
        {
            let message = format!("size: {width} x {height} are more than {PIXELS_MAX} pixels");
            return Err(Problem::new(Kind::Invalid, message).help("ask for a smaller picture, or 'trawl chart'"));
        }
        let marked = self.marks.map(RawDocument::read).transpose()?.map(|document| {
            let mut document = document;
            document.dataset = Some(self.dataset.clone());
            document.adjust = self.adjust.clone().or(document.adjust);
            Asked { document, text: None, as_of: last.clone() }
        });
        let wanted = ChartWanted {
            dataset: self.dataset,
            symbol: self.symbol,
            exprs: self.exprs,
            panel: self.panel,
            overlay: self.overlay,
            volume: self.volume,
            bars: self.bars,
            size: self.size,
            as_of: last,
            adjust: self.adjust,
            marked: None,
        };
        wanted.check().map_err(|mistake| Problem::of_mistake(&mistake))?;
        Ok(ChartQuestion { wanted, marked, format })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn question(more: &str) -> Result<ChartQuestion, Problem> {
        let body = format!(r#"{{"dataset": "us5", "symbol": "IBM", "adjust": "split"{more}}}"#);
        serde_json::from_str::<ChartBody>(&body).unwrap().question(None, &HeaderMap::new())
    }

    #[test]
    fn a_chart_has_limits_and_marks_are_of_its_own_bars() {
        for (more, why) in [
            (r#", "bars": 1"#, "bars: 1 is not a number from 2 to 20000"),
            (r#", "size": [100, 900]"#, "each side has 200 to 8000 pixels"),
            (r#", "size": [8000, 8000]"#, "more than 16777216 pixels"),
            (r#", "marks": {"wher": "x"}"#, "unknown field"),
            (r#", "as_of": "soon-ish""#, "as_of: "),
        ] {
            let problem = question(more).unwrap_err();
            assert!(problem.status == 422 && problem.error.message.contains(why), "{more}: {:?}", problem.error);
        }
        let plain = question("").unwrap();
        assert_eq!((plain.format, plain.wanted.bars, plain.wanted.volume), (PictureFormat::Svg, BARS, true));
        let marked =
            question(r#", "marks": {"dataset": "demo", "where": "close > 1"}, "as_of": "2013-02-22""#).unwrap();
        let asked = marked.marked.unwrap();
        assert_eq!(asked.document.dataset.as_deref(), Some("us5"));
        assert_eq!((asked.document.adjust.as_deref(), asked.as_of), (Some("split"), marked.wanted.as_of));
    }
}
