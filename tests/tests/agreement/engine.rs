//! The seam: how the engine is asked. Everything else of the agreement tests knows the reference's types only.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_kernels::NoCancel;
use trawl_market::SymbolBars;
use trawl_plan::{Plan, ScanDocument, Schema, compile_scan};
use trawl_tests::reference::answer::{Scan, Status};
use trawl_tests::reference::generate::Grammar;
use trawl_tests::reference::market::{COLUMNS, DAY, Market};

/// What of the language the engine has behind this seam.
pub const GRAMMAR: Grammar = Grammar { frames: false, helpers: false };

/// One symbol's row as the engine answers it.
#[derive(Debug, Clone)]
pub struct EngineRow {
    pub symbol: String,
    pub status: Status,
    /// `None` while the engine tells no flags.
    pub edge: Option<bool>,
    /// Of matches only; NaN = NA.
    pub rank: Vec<f64>,
    /// Of matches only; NaN = NA.
    pub select: Vec<f64>,
}

fn document(scan: &Scan) -> ScanDocument {
    ScanDocument {
        universe: scan.universe.as_ref().map(|u| u.text()),
        condition: scan.condition.text(),
        rank: scan.rank_text(),
        limit: scan.limit,
        select: scan.select_texts(),
        lets: scan.lets.iter().map(|(name, node)| (name.clone(), node.text())).collect::<BTreeMap<_, _>>(),
        ..ScanDocument::default()
    }
}

/// The engine's rows at every day of the market, in the engine's order.
///
/// # Errors
/// Its refusal of the scan, as text.
pub fn engine_answers(market: &Market, scan: &Scan) -> Result<Vec<(i64, Vec<EngineRow>)>, String> {
    let schema = Schema { columns: COLUMNS.map(str::to_owned).to_vec(), timeframe: Some("1d".to_owned()) };
    let plan = compile_scan(&document(scan), &schema).map_err(|all| all[0].to_string())?;
    let bars = bars(market, &plan);
    market.days().into_iter().map(|day| Ok((day, at(&plan, &bars, day)?))).collect()
}

fn bars(market: &Market, plan: &Plan) -> Vec<SymbolBars> {
    let column = |name: &String| COLUMNS.iter().position(|c| c == name).expect("a column of the market");
    let of = |symbol: &trawl_tests::reference::market::Symbol| SymbolBars {
        symbol: Arc::from(symbol.name.as_str()),
        times: symbol.days.iter().map(|day| day * DAY).collect(),
        columns: plan.columns.iter().map(|c| symbol.bars.iter().map(|row| row[column(c)]).collect()).collect(),
    };
    market.symbols.iter().map(of).collect()
}

fn at(plan: &Plan, bars: &[SymbolBars], day: i64) -> Result<Vec<EngineRow>, String> {
    let result = trawl_worker::evaluate_segment(plan, bars, day * DAY, 0, &NoCancel).map_err(|e| e.to_string())?;
    let row = |row: trawl_protocol::SymbolRow| EngineRow {
        status: status(row.status),
        edge: None,
        rank: row.rank,
        select: row.values,
        symbol: row.symbol,
    };
    Ok(result.rows.into_iter().map(row).collect())
}

fn status(status: trawl_protocol::Status) -> Status {
    match status {
        trawl_protocol::Status::Failed => Status::Failed,
        trawl_protocol::Status::Stale => Status::Stale,
        trawl_protocol::Status::Outside => Status::Outside,
        trawl_protocol::Status::Unknown => Status::Unknown,
        trawl_protocol::Status::Matched => Status::Matched,
        trawl_protocol::Status::NotMatched => Status::NotMatched,
    }
}

/// Whether the rows come by symbol, not yet merged into an answer.
pub const SORTED_BY_SYMBOL: bool = true;
