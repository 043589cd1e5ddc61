//! A chart of one symbol as a picture.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trawl_front::chart::{ChartWanted, PictureFormat};
use trawl_market::{AsOf, Store};

use crate::failure::failure;
use crate::scan::{Scan, When, parsed_when};

/// The picture, and warnings.
fn drawn(
    store: &Store,
    mut wanted: ChartWanted,
    as_of: Option<&When>,
    format: PictureFormat,
) -> anyhow::Result<(Vec<u8>, Vec<String>)> {
    if let Some(when) = as_of {
        // A name that is none is refused below.
        let is_dated = when.1.is_some() && store.open(&wanted.dataset).is_ok_and(|opened| opened.manifest.is_dated());
        wanted.as_of = parsed_when(when, is_dated)?;
    }
    let warnings = Mutex::new(Vec::new());
    let warn = |text: &str| {
        if let Ok(mut warnings) = warnings.lock() {
            warnings.push(text.to_owned());
        }
    };
    let bytes = wanted.drawn(&wanted.begin(store, &warn)?, format)?;
    Ok((bytes, warnings.into_inner().unwrap_or_default()))
}

/// The picture as SVG, or as PNG; and warnings.
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
    let marked = marked.map(|scan| scan.prepared().clone());
    let as_of_now = AsOf::Newest;
    let wanted =
        ChartWanted { dataset, symbol, exprs, panel, overlay, volume, bars, size, as_of: as_of_now, adjust, marked };
    let format = if png { PictureFormat::Png } else { PictureFormat::Svg };
    let made = py.detach(|| drawn(&engine.store, wanted, as_of.as_ref(), format));
    let (bytes, warnings) = made.map_err(|error| failure(&error))?;
    Ok((PyBytes::new(py, &bytes), warnings))
}
