//! `demo` and `demo-1m`: an invented, seeded market that is bundled with the program, so that every kind of scan has
//! something to run on: sectors, an index named SPY, a split, dividends, a rename, late listings, a delisting, halts,
//! thin symbols, pre-market bars and a half day.
//!
//! `demo` has daily bars on the calendar of New York, 2021-01-04 to 2024-12-06; `demo-1m` the minutes of the ten
//! sessions from 2024-11-22 on, which add up to the daily bars. Marked as synthetic wherever it is shown; it says
//! nothing about any real market. Generated in memory at its first use.

mod market;
mod symbols;

use std::collections::BTreeMap;

use self::market::{Bar, generate};
use self::symbols::{COMPANIES, INDEX, RENAMED};
use crate::arrow_file::SymbolBars;
use crate::bundled_names::DEMO;
use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::memory::{MemoryMarket, build as build_memory};
use crate::reference::ListingRow;
use crate::time::{TimeMicros, parse_time};
use trawl_terms::Timeframe;

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
/// Version of the generator: part of the snapshot id.
const GENERATOR: &str = "demo-1";

/// More groups than this number of symbols needs, so that a scan of them can be divided into shards.
const GROUPS: u32 = 8;

/// Generates `demo`, or the minutes for any other name.
pub(crate) fn build(name: &str) -> Result<Dataset, MarketError> {
    let market = generate();
    let daily = name == DEMO;
    let symbols = COMPANIES.iter().map(|c| c.0).chain([INDEX]);
    let bars = symbols.zip(market.series).map(|(symbol, s)| columns(symbol, if daily { s.days } else { s.minutes }));
    build_memory(
        GENERATOR,
        MemoryMarket {
            name: name.to_owned(),
            timeframe: if daily { Timeframe::DAY } else { Timeframe::MINUTE },
            calendar: Calendar::XNYS.name().to_owned(),
            synthetic: true,
            columns: COLUMNS.map(str::to_owned).to_vec(),
            bars: bars.collect(),
            symbols: listing(),
            factors: market.factors,
            groups: Some(GROUPS),
            ..MemoryMarket::default()
        },
    )
}

fn columns(symbol: &str, bars: Vec<(TimeMicros, Bar)>) -> SymbolBars {
    let columns = (0..COLUMNS.len()).map(|c| bars.iter().map(|(_, b)| b[c]).collect()).collect();
    SymbolBars { symbol: symbol.into(), times: bars.iter().map(|(t, _)| *t).collect(), columns }
}

fn listing() -> Vec<ListingRow> {
    let labels = |sector: &str, industry: &str| {
        BTreeMap::from([("sector".to_owned(), sector.to_owned()), ("industry".to_owned(), industry.to_owned())])
    };
    let mut rows =
        vec![ListingRow { symbol: INDEX.to_owned(), labels: labels("Index", "Index"), ..ListingRow::default() }];
    let renamed = parse_time(RENAMED.2);
    for (k, (symbol, sector, industry)) in COMPANIES.into_iter().enumerate() {
        let row = ListingRow { symbol: symbol.to_owned(), labels: labels(sector, industry), ..ListingRow::default() };
        if k == RENAMED.0 {
            rows.push(ListingRow { ticker: Some(RENAMED.1.to_owned()), to: renamed, ..row.clone() });
            rows.push(ListingRow { from: renamed, ..row });
        } else {
            rows.push(row);
        }
    }
    rows
}
