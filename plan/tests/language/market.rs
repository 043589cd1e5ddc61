//! A small market that plans of tests may refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_plan::{AttributeKind, Directory, Schema, Timeframe, suggest};

struct Market;

impl Directory for Market {
    fn symbol(&self, name: &str) -> Result<String, Option<String>> {
        let known = ["SPY", "QQQ", "IBM"];
        match known.contains(&name) {
            true => Ok(name.to_owned()),
            false => Err(suggest(name, known).map(str::to_owned)),
        }
    }

    fn higher(&self, timeframe: &str) -> Result<Timeframe, String> {
        match timeframe {
            "1w" | "1mo" => timeframe.parse().map_err(|_| unreachable!()),
            _ => Err(format!("bars of {timeframe} cannot be built from bars of 1d")),
        }
    }
}

/// Daily bars, two labels, three symbols.
pub fn schema() -> Schema {
    let values = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    Schema {
        columns: values(&["open", "high", "low", "close", "volume"]),
        timeframe: Some(Timeframe::DAY),
        labels: BTreeMap::from([
            ("sector".to_owned(), values(&["Energy", "Tech"])),
            ("industry".to_owned(), values(&["Chips"])),
        ]),
        attributes: BTreeMap::from([
            ("cap".to_owned(), AttributeKind::Number),
            ("earnings".to_owned(), AttributeKind::Date),
        ]),
        directory: Some(Arc::new(Market)),
    }
}
