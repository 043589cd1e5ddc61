//! One chart as programs ask for it: Python, and HTTP. The command line draws sheets too, and checks its options itself.

use trawl_coordinator::PreparedScan;
use trawl_market::{AsOf, Store};

use super::draw::{LABELS_PIXELS, Picture, WIDTH};
use super::layout::Place;
use super::{BARS_MAX, ChartRequest, Drawing, SIDE_PIXELS};
use crate::mistake::UserMistake;

/// Formats of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureFormat {
    /// Lines and text.
    Svg,
    /// Pixels.
    Png,
}

/// What is drawn.
#[derive(Debug, Clone)]
pub struct ChartWanted {
    /// `NAME` or `NAME@SNAPSHOT`.
    pub dataset: String,
    /// The symbol.
    pub symbol: String,
    /// Expressions that are drawn where their values fit.
    pub exprs: Vec<String>,
    /// Expressions in panels of their own.
    pub panel: Vec<String>,
    /// Expressions over the price.
    pub overlay: Vec<String>,
    /// Whether the volume is drawn.
    pub volume: bool,
    /// How many bars.
    pub bars: u32,
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
    /// The last bar.
    pub as_of: AsOf,
    /// How prices are adjusted.
    pub adjust: Option<String>,
    /// The scan whose matches are marked.
    pub marked: Option<PreparedScan>,
}

impl ChartWanted {
    /// Checks what needs no dataset.
    ///
    /// # Errors
    /// A [`UserMistake`].
    pub fn check(&self) -> Result<(), UserMistake> {
        if !(2..=BARS_MAX).contains(&self.bars) {
            return Err(UserMistake::plain(format!("bars: {} is not a number from 2 to {BARS_MAX}", self.bars)));
        }
        if let Some((width, height)) = self.size
            && !(SIDE_PIXELS.contains(&width) && SIDE_PIXELS.contains(&height))
        {
            let (least, most) = (SIDE_PIXELS.start(), SIDE_PIXELS.end());
            return Err(UserMistake::plain(format!("size: each side has {least} to {most} pixels")));
        }
        Ok(())
    }

    /// Opens the dataset. `warn` receives what whoever looks at the chart should know.
    ///
    /// # Errors
    /// A [`UserMistake`]; a dataset that cannot be read.
    pub fn begin<'a>(&self, store: &'a Store, warn: &'a dyn Fn(&str)) -> anyhow::Result<ChartRequest<'a>> {
        self.check()?;
        let of = |name: &'static str, texts: &[String], place: fn() -> Place| {
            texts.iter().map(|text| (name.to_owned(), text.clone(), place())).collect::<Vec<Drawing>>()
        };
        let groups = [
            of("exprs", &self.exprs, || Place::ByValues),
            of("panel", &self.panel, || Place::Panel),
            of("overlay", &self.overlay, || Place::Overlay),
        ];
        let of = (self.dataset.clone(), self.as_of.clone());
        let mut request = ChartRequest::new(store, of, groups.concat(), self.volume, warn)?;
        request.adjust.clone_from(&self.adjust);
        if let Some(scan) = &self.marked {
            if let Err(many) = scan.check_one() {
                let message = format!("{many}, and the matches of one scan are marked");
                return Err(UserMistake::with_help(message, many.help()).into());
            }
            let name = scan.document.name.clone().unwrap_or_else(|| "matches".to_owned());
            request.marked = Some((scan.clone(), name));
        }
        Ok(request)
    }

    /// The picture. Blocks.
    ///
    /// # Errors
    /// A [`UserMistake`]; bars that cannot be read; cancelled.
    pub fn drawn(&self, request: &ChartRequest<'_>, format: PictureFormat) -> anyhow::Result<Vec<u8>> {
        let width = self.size.map_or(WIDTH, |(width, _)| width);
        let layout = request.layout(&self.symbol, self.bars as usize, width.saturating_sub(LABELS_PIXELS))?;
        let picture = Picture::One(&layout, self.size);
        let bytes = match format {
            PictureFormat::Svg => picture.svg().map(String::into_bytes),
            PictureFormat::Png => picture.png(),
        };
        bytes.map_err(|why| anyhow::anyhow!("the chart cannot be drawn: {why}"))
    }
}
