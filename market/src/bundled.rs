//! The bundled datasets: `us5`, daily bars of AAPL, FB, GOOG, IBM and MSFT, 2000-03 to 2013-03, and `demo` and
//! `demo-1m`, an invented market (see `demo`).
//!
//! `us5` has real, public-domain bars: raw prices, and the adjusted close as a column of its own. They are read by the
//! same code as any import. Each dataset is built once per process and stays in memory.

use std::sync::OnceLock;

use crate::arrow_file::SymbolBars;
use crate::bundled_names::{BUNDLED, US5};
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::demo;
use crate::error::MarketError;
use crate::import::{Labels, bars_of};
use crate::limits::SERIES_ROWS_MAX;
use crate::manifest::ORIGIN_IMPORT;
use crate::memory::{MemoryMarket, build as build_memory};
use crate::reading::{ImportFormat, Policy, ReadOptions, RowBudget, read_rows};
use crate::sources::Content;
use trawl_terms::{TimeUnit, Timeframe};

const FILES: [(&str, &[u8]); 5] = [
    ("AAPL", include_bytes!("../data/us5/AAPL.csv.gz")),
    ("FB", include_bytes!("../data/us5/FB.csv.gz")),
    ("GOOG", include_bytes!("../data/us5/GOOG.csv.gz")),
    ("IBM", include_bytes!("../data/us5/IBM.csv.gz")),
    ("MSFT", include_bytes!("../data/us5/MSFT.csv.gz")),
];

/// A bundled dataset, built at its first use; `None` for other names.
pub(crate) fn open(name: &str) -> Option<Result<Dataset, MarketError>> {
    static BUILT: [OnceLock<Dataset>; BUNDLED.len()] = [const { OnceLock::new() }; BUNDLED.len()];
    let at = BUNDLED.iter().position(|b| *b == name)?;
    if let Some(dataset) = BUILT[at].get() {
        return Some(Ok(dataset.clone()));
    }
    // Two threads may build at once; both build the same.
    let built = if name == US5 { us5() } else { demo::build(name) };
    Some(built.map(|dataset| BUILT[at].get_or_init(|| dataset).clone()))
}

fn us5() -> Result<Dataset, MarketError> {
    let timeframe = Timeframe { count: 1, unit: TimeUnit::Day };
    let how = ReadOptions { format: ImportFormat::Yfinance, ..ReadOptions::default() };
    let labels = Labels { timeframe, zone: None, calendar: Calendar::XNYS };
    let budget = RowBudget::new(SERIES_ROWS_MAX);
    let mut columns = Vec::new();
    let mut bars: Vec<SymbolBars> = Vec::new();
    for (symbol, bytes) in FILES {
        let file = format!("{US5}/{symbol}.csv.gz");
        let mut rows =
            read_rows(&file, symbol, &Content::of_bytes(bytes.into(), &file)?, &how, Policy::Quarantine, &budget)?;
        if let Some(bad) = rows.facts.bad.first() {
            let why = format!("line {}: {}", bad.line, bad.reason.text());
            return Err(MarketError::Corrupt { file, why });
        }
        columns = std::mem::take(&mut rows.facts.columns);
        bars.extend(bars_of(rows, labels));
    }
    build_memory(
        ORIGIN_IMPORT,
        MemoryMarket {
            name: US5.to_owned(),
            timeframe,
            calendar: Calendar::XNYS.name().to_owned(),
            columns,
            bars,
            ..MemoryMarket::default()
        },
    )
}
