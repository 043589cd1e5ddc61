//! The dataset that comes with the program: `us5`, daily bars of AAPL, FB, GOOG, IBM and MSFT, 2000-03 to 2013-03.
//!
//! Real, public-domain bars: raw prices, and the adjusted close as a column of its own. They pass through the same
//! reading as any import, once per process, and stay in memory.

use std::sync::{Arc, OnceLock};

use crate::arrow_file::SymbolBars;
use crate::csv_file::decompress;
use crate::csv_header::ImportFormat;
use crate::csv_rows::{CsvRules, parse_csv};
use crate::dataset::{Dataset, Files};
use crate::error::MarketError;
use crate::group::{group_of, groups_for};
use crate::import::ORIGIN_IMPORT;
use crate::name::{TimeUnit, Timeframe};
use crate::snapshot::{Heading, MemoryFiles, Sink, assemble, store_group, unite};

/// Name of the bundled dataset; no other may have it.
pub const US5: &str = "us5";

const FILES: [(&str, &[u8]); 5] = [
    ("AAPL", include_bytes!("../data/us5/AAPL.csv.gz")),
    ("FB", include_bytes!("../data/us5/FB.csv.gz")),
    ("GOOG", include_bytes!("../data/us5/GOOG.csv.gz")),
    ("IBM", include_bytes!("../data/us5/IBM.csv.gz")),
    ("MSFT", include_bytes!("../data/us5/MSFT.csv.gz")),
];

/// The bundled dataset, built at the first call.
pub(crate) fn us5() -> Result<Dataset, MarketError> {
    static BUILT: OnceLock<Dataset> = OnceLock::new();
    if let Some(dataset) = BUILT.get() {
        return Ok(dataset.clone());
    }
    // Two threads may build at once; both build the same.
    let dataset = build()?;
    Ok(BUILT.get_or_init(|| dataset).clone())
}

fn build() -> Result<Dataset, MarketError> {
    let timeframe = Timeframe { count: 1, unit: TimeUnit::Day };
    let rules = CsvRules { format: ImportFormat::YahooCsv, map: &[], timeframe, order: None };
    let mut columns = Vec::new();
    let mut bars: Vec<SymbolBars> = Vec::new();
    for (symbol, bytes) in FILES {
        let file = format!("{US5}/{symbol}.csv.gz");
        let parsed = parse_csv(&file, symbol, &decompress(&file, bytes)?, rules)?;
        if let Some(bad) = parsed.bad.first() {
            let why = format!("line {}: {}", bad.line, bad.reason.text());
            return Err(MarketError::Corrupt { file, why });
        }
        columns = parsed.columns;
        bars.extend(parsed.symbols.into_values().map(|rows| rows.bars));
    }
    let groups = groups_for(bars.len());
    let sink = Sink::Memory(MemoryFiles::default());
    let mut stored = Vec::new();
    let mut times = Vec::new();
    for group in 0..groups {
        let members: Vec<SymbolBars> = bars.iter().filter(|b| group_of(&b.symbol, groups) == group).cloned().collect();
        if !members.is_empty() {
            let one = store_group(&sink, group, &columns, &members)?;
            times = unite(times, &one.times);
            stored.push((one.file, one.symbols));
        }
    }
    let heading = Heading {
        name: US5.to_owned(),
        timeframe: timeframe.to_string(),
        synthetic: false,
        origin: ORIGIN_IMPORT.to_owned(),
        groups,
        columns,
    };
    let manifest = assemble(&sink, heading, stored, times)?;
    let Sink::Memory(files) = sink else {
        return Err(MarketError::Refused("the bundled dataset is kept in memory".to_owned()));
    };
    Ok(Dataset::new(Arc::new(manifest), Files::Memory(Arc::new(files))))
}
