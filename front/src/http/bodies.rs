//! Bodies of questions about answers, about history and of charts: their types, and what is checked of them before any dataset is opened.

use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answer::Encoding;
use super::asked::Asked;
use super::document::{RawDocument, as_of, asked, first_bar};
use super::history::{HistoryQuestion, Table};
use super::negotiation::chosen;
use super::picture::{ChartQuestion, PICTURES};
use super::problem::{Kind, Problem};
use crate::chart::{BARS, ChartWanted};
use crate::history::{PanelWanted, StudyWanted};

/// Horizons of a study if nothing else is asked for, as those of `trawl study`.
const HORIZONS: [u32; 3] = [1, 5, 20];
/// Maximum symbols of one question.
pub const SYMBOLS_MAX: usize = 64;
/// Pixels of a picture: as many as three bytes each may take in memory.
const PIXELS_MAX: u64 = 16 << 20;

/// A scan, and symbols of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyBody {
    /// The id of a scan that is done, in place of a document: the symbols of its answer are explained, by the bars that it is of.
    scan: Option<String>,
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// As in a scan.
    as_of: Option<String>,
    /// The symbols to explain.
    #[schemars(length(min = 1, max = 64))]
    symbols: Vec<String>,
}

/// What a question is about.
#[derive(Debug)]
pub enum AboutWhat {
    /// A scan that is described: its newest bars, unless it says others.
    Scan(Box<Asked>),
    /// The answer of the scan of this id.
    Answer(String),
}

/// A scan by its id, or by what describes it.
fn about_what(
    scan: Option<String>,
    (document, text, as_of): (Option<RawDocument>, Option<String>, Option<String>),
) -> Result<AboutWhat, Problem> {
    let Some(scan) = scan else {
        return Ok(AboutWhat::Scan(Box::new(asked(document, text, as_of.as_deref(), "as_of")?)));
    };
    if document.is_some() || text.is_some() || as_of.is_some() {
        let problem = Problem::new(Kind::Invalid, "scan: a scan that has run has its document and its bar");
        return Err(problem.help("leave out document, text and as_of"));
    }
    Ok(AboutWhat::Answer(scan))
}

/// A scan whose near misses are asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NearBody {
    /// The id of a scan that is done, in place of a document: that of its answer, by the bars that it is of.
    scan: Option<String>,
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// As in a scan.
    as_of: Option<String>,
    /// On how many terms a symbol fails at most; 1 without it.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    most: u32,
}

fn one() -> u32 {
    1
}

/// A scan whose columns over history are asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PanelBody {
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// The first bar: a date or a time.
    from: Option<String>,
    /// The last bar, as `as_of` of a scan.
    to: Option<String>,
    /// Numbers of bars over whose returns there are labels `forward_N`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    forward: Vec<u32>,
    /// Whether only rows at which the condition is true are given.
    #[serde(default)]
    matches_only: bool,
    /// Test from this date or time on, train before it.
    split: Option<String>,
    /// Cut the span into so many runs of bars and test each once.
    #[schemars(range(min = 2, max = 100))]
    folds: Option<u32>,
    /// Bars between training and test rows, besides those that labels read.
    #[serde(default)]
    #[schemars(range(max = 100_000))]
    embargo: u32,
    /// Whether the features are scaled by their means and deviations over the training rows of `split`.
    #[serde(default)]
    scale: bool,
    /// Bars of a window: for tensors, which need it.
    #[schemars(range(min = 1, max = 10_000))]
    window: Option<u32>,
}

/// A scan whose matches over history are asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalsBody {
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// The first bar: a date or a time.
    from: Option<String>,
    /// The last bar, as `as_of` of a scan.
    to: Option<String>,
    /// A row for each time and a column for each symbol; with `false` a row with time and symbol for each match.
    #[serde(default = "yes")]
    wide: bool,
}

fn yes() -> bool {
    true
}

/// A scan whose matches are studied.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StudyBody {
    /// The document as an object.
    document: Option<RawDocument>,
    /// The document as TOML.
    text: Option<String>,
    /// The first bar whose matches count: a date or a time.
    from: Option<String>,
    /// The last one, as `as_of` of a scan.
    to: Option<String>,
    /// Bars ahead; 1, 5 and 20 without it.
    #[schemars(length(max = 16))]
    horizons: Option<Vec<u32>>,
    /// A label of the symbols, a period of the bars (`year`, `quarter`, `month`, `weekday`), or dates with commas that divide them.
    by: Option<String>,
}

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

fn bars() -> u32 {
    BARS
}

impl WhyBody {
    /// Checks the request.
    pub fn asked(self) -> Result<(AboutWhat, Vec<String>), Problem> {
        if self.symbols.is_empty() || self.symbols.len() > SYMBOLS_MAX {
            let message = format!("symbols: 1 to {SYMBOLS_MAX} are expected, there are {}", self.symbols.len());
            return Err(Problem::new(Kind::Invalid, message));
        }
        Ok((about_what(self.scan, (self.document, self.text, self.as_of))?, self.symbols))
    }
}

impl NearBody {
    /// Checks the request.
    pub fn asked(self) -> Result<(AboutWhat, u32), Problem> {
        if self.most == 0 {
            return Err(Problem::new(Kind::Invalid, "most: a number of terms from 1 is expected"));
        }
        Ok((about_what(self.scan, (self.document, self.text, self.as_of))?, self.most))
    }
}

impl PanelBody {
    /// Checks the request.
    pub fn question(self, table: Table, encoding: Encoding) -> Result<HistoryQuestion, Problem> {
        let is_tensors = table == Table::Tensors;
        if self.window.is_some() != is_tensors {
            let (message, help) = match is_tensors {
                true => ("window: tensors are windows of a number of bars", "give window, such as 60"),
                false => ("window: a panel has no windows", "leave it out, or ask POST /v1/features"),
            };
            return Err(Problem::new(Kind::Invalid, message).help(help));
        }
        if self.scale && self.split.is_none() {
            let problem = Problem::new(Kind::Invalid, "scale: the features are scaled by those of the training rows");
            return Err(problem.help("give split, the date or time from which on rows are tested"));
        }
        let wanted = PanelWanted {
            from: first_bar(self.from.as_deref(), "from")?,
            forward: self.forward,
            matches_only: self.matches_only,
            split: first_bar(self.split.as_deref(), "split")?,
            folds: self.folds,
            embargo: self.embargo,
            window: self.window,
        };
        let asked = asked(self.document, self.text, self.to.as_deref(), "to")?;
        Ok(HistoryQuestion { asked, table, wanted, scaled: self.scale, encoding })
    }
}

impl SignalsBody {
    /// Checks the request.
    pub fn question(self, encoding: Encoding) -> Result<HistoryQuestion, Problem> {
        let from = first_bar(self.from.as_deref(), "from")?;
        let wanted = PanelWanted { from, matches_only: true, ..PanelWanted::default() };
        let asked = asked(self.document, self.text, self.to.as_deref(), "to")?;
        Ok(HistoryQuestion { asked, table: Table::Signals { wide: self.wide }, wanted, scaled: false, encoding })
    }
}

impl StudyBody {
    /// Checks the request.
    pub fn question(self) -> Result<(Asked, StudyWanted), Problem> {
        let horizons = self.horizons.unwrap_or_else(|| HORIZONS.to_vec());
        let wanted = StudyWanted { horizons, by: self.by, from: first_bar(self.from.as_deref(), "from")? };
        Ok((asked(self.document, self.text, self.to.as_deref(), "to")?, wanted))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::PictureFormat;

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
