//! A chart of one symbol as a picture.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trawl_front::UserMistake;
use trawl_front::chart::draw::{LABELS_PIXELS, Picture, WIDTH};
use trawl_front::chart::layout::Place;
use trawl_front::chart::{BARS_MAX, ChartRequest, Drawing};
use trawl_market::Store;
use trawl_plan::ScanDocument;

use crate::failure::failure;
use crate::scan::{Scan, When, parsed_when};

/// Pixels of a side.
const SIDE_PIXELS: std::ops::RangeInclusive<u32> = 200..=8000;

/// What is drawn, from the keyword arguments of `trawl.chart`.
pub struct Wanted {
    /// Dataset and symbol.
    pub of: (String, String),
    /// Groups of expressions: the argument, the text, and where it is drawn.
    pub groups: Vec<Drawing>,
    /// Whether the volume is drawn.
    pub volume: bool,
    /// How many bars.
    pub bars: u32,
    /// Width and height in pixels.
    pub size: Option<(u32, u32)>,
    /// Last bar.
    pub as_of: Option<When>,
    /// How prices are adjusted.
    pub adjust: Option<String>,
    /// The scan whose matches are marked.
    pub marked: Option<(trawl_coordinator::PreparedScan, String)>,
}

/// The picture as SVG, or as PNG; and warnings.
///
/// # Errors
/// A [`UserMistake`]; bars that cannot be read.
pub fn drawn(store: &Store, wanted: Wanted, png: bool) -> anyhow::Result<(Vec<u8>, Vec<String>)> {
    if !(2..=BARS_MAX).contains(&wanted.bars) {
        return Err(UserMistake::plain(format!("bars={} is not a number from 2 to {BARS_MAX}", wanted.bars)).into());
    }
    if let Some((width, height)) = wanted.size
        && !(SIDE_PIXELS.contains(&width) && SIDE_PIXELS.contains(&height))
    {
        let message = format!("size: each side has {} to {} pixels", SIDE_PIXELS.start(), SIDE_PIXELS.end());
        return Err(UserMistake::plain(message).into());
    }
    let warnings = Mutex::new(Vec::new());
    let warn = |text: &str| {
        if let Ok(mut warnings) = warnings.lock() {
            warnings.push(text.to_owned());
        }
    };
    let (dataset, symbol) = wanted.of;
    let as_of = match &wanted.as_of {
        Some(when) => {
            let is_dated = when.1.is_some() && store.open(&dataset).is_ok_and(|opened| opened.manifest.is_dated());
            parsed_when(when, is_dated)?
        }
        None => trawl_market::AsOf::Newest,
    };
    let mut request = ChartRequest::new(store, (dataset, as_of), wanted.groups, wanted.volume, &warn)?;
    request.adjust = wanted.adjust;
    request.marked = wanted.marked;
    let width = wanted.size.map_or(WIDTH, |(width, _)| width);
    let layout = request.layout(&symbol, wanted.bars as usize, width.saturating_sub(LABELS_PIXELS))?;
    let picture = Picture::One(&layout, wanted.size);
    let bytes = if png { picture.png() } else { picture.svg().map(String::into_bytes) };
    let bytes = bytes.map_err(|why| anyhow::anyhow!("the chart cannot be drawn: {why}"))?;
    drop(request);
    Ok((bytes, warnings.into_inner().unwrap_or_default()))
}

/// The same as Python calls it.
#[pyfunction]
#[pyo3(signature = (engine, dataset, symbol, exprs, panel, overlay, *, volume, bars, size, as_of, adjust, marked, png))]
#[expect(clippy::too_many_arguments, reason = "they are the keyword arguments of trawl.chart")]
pub fn chart<'py>(
    py: Python<'py>,
    engine: &crate::engine::Engine,
    dataset: String,
    symbol: String,
    exprs: Vec<String>,
    panel: Vec<String>,
    overlay: Vec<String>,
    volume: bool,
    bars: u32,
    size: Option<(u32, u32)>,
    as_of: Option<When>,
    adjust: Option<String>,
    marked: Option<PyRef<'py, Scan>>,
    png: bool,
) -> PyResult<(Bound<'py, PyBytes>, Vec<String>)> {
    let of = |name: &'static str, texts: Vec<String>, place: fn() -> Place| {
        texts.into_iter().map(move |text| (name.to_owned(), text, place())).collect::<Vec<Drawing>>()
    };
    let groups = [
        of("exprs", exprs, || Place::ByValues),
        of("panel", panel, || Place::Panel),
        of("overlay", overlay, || Place::Overlay),
    ];
    let name = |document: &ScanDocument| document.name.clone().unwrap_or_else(|| "matches".to_owned());
    let marked = marked.map(|scan| (scan.prepared().clone(), name(&scan.prepared().document)));
    let groups = groups.into_iter().flatten().collect();
    let wanted = Wanted { of: (dataset, symbol), groups, volume, bars, size, as_of, adjust, marked };
    let (bytes, warnings) = py.detach(|| drawn(&engine.store, wanted, png)).map_err(|error| failure(&error))?;
    Ok((PyBytes::new(py, &bytes), warnings))
}
