//! The adapter to the engine. Everything else in the agreement tests uses the reference's types only.

use std::collections::BTreeMap;
use std::sync::Arc;

use trawl_coordinator::local::{self, LocalOptions};
use trawl_coordinator::{NoProgress, PreparedScan, all_bars, prepare_opened};
use trawl_kernels::NoCancel;
use trawl_kernels::stages::Stages;
use trawl_market::Timeframe;
use trawl_market::{Dataset, FactorRow, ListingRow, MemoryMarket, SymbolBars, format_time, memory_dataset};
use trawl_plan::{History, ScanDocument};
use trawl_tests::reference::answer::{Scan, Status};
use trawl_tests::reference::generate::{Grammar, LABELS};
use trawl_tests::reference::market::{COLUMNS, Clock, DAY, Market, Symbol};
use trawl_wire::{AnswerRow, StepInputV1};

/// The parts of the language that the engine supports through this adapter.
pub const GRAMMAR: Grammar = Grammar { frames: true, helpers: true, finite: false, mixed: true };

/// One symbol's row as the engine answers it.
#[derive(Debug, Clone)]
pub struct EngineRow {
    pub symbol: String,
    pub status: Status,
    /// `None` as long as the engine reports no flags.
    pub edge: Option<bool>,
    /// Of matches only; NaN = NA.
    pub rank: Vec<f64>,
    /// Of matches only; NaN = NA.
    pub select: Vec<f64>,
}

/// A document that is ready to run over the market, as of its last day.
///
/// # Errors
/// The engine's refusal, as text.
pub fn prepared(market: &Market, document: &ScanDocument) -> Result<PreparedScan, String> {
    let last = market.days().last().map(|day| day * market.clock.unit());
    prepare_opened(dataset(market)?, document, last).map_err(|e| e.to_string())
}

/// The scan as a user would write it, of a market of this clock.
pub fn document_of(clock: Clock, scan: &Scan) -> ScanDocument {
    let mut document = document(scan);
    let spell = |text: &mut String| *text = clock.spelled(text);
    document.universe.iter_mut().chain([&mut document.condition]).for_each(spell);
    document.rank.iter_mut().chain(&mut document.select).for_each(spell);
    document.defs.values_mut().chain(document.lets.values_mut()).for_each(spell);
    document.max_age = scan.max_age.map(|bars| clock.age(bars));
    document.timeframe = scan.timeframe.then(|| clock.longer().to_owned());
    document
}

/// The scan as a user would write it, of daily bars.
pub fn document(scan: &Scan) -> ScanDocument {
    ScanDocument {
        universe: scan.universe.as_ref().map(|u| u.text()),
        condition: scan.condition.text(),
        rank: scan.rank_text(),
        limit: scan.limit,
        select: scan.select_texts(),
        dataset: Some("market".to_owned()),
        adjust: scan.adjust_text().map(str::to_owned),
        history: scan.history.map(|limit| History { bars: limit.bars, origin: limit.origin }),
        defs: scan.defs.iter().cloned().collect(),
        max_age: scan.max_age_text(),
        timeframe: scan.timeframe.then(|| Clock::Days.longer().to_owned()),
        lets: scan.lets.iter().map(|(name, node)| (name.clone(), node.text())).collect::<BTreeMap<_, _>>(),
        ..ScanDocument::default()
    }
}

/// Days on which a scan with a limited history is evaluated, one by one.
const DAYS_ASKED: usize = 4;

/// The engine's rows at every day of the market, as its answers have them; at some days where the history is limited,
/// because each bar would have a history of its own, and where longer bars are built, which no scan of all bars does.
///
/// # Errors
/// Its refusal of the scan, as text.
pub fn engine_answers(market: &Market, scan: &Scan) -> Result<Vec<(i64, Vec<EngineRow>)>, String> {
    if is_of_some_days(scan) {
        let (days, data) = (market.days(), dataset(market)?);
        let document = document_of(market.clock, scan);
        let mut asked: Vec<i64> = (1..=DAYS_ASKED).map(|i| days[days.len() * i / DAYS_ASKED - 1]).collect();
        asked.dedup();
        let rows = |day: i64| rows_at(&data, &document, day * market.clock.unit());
        let answer = |day: i64| Ok((day, rows(day)?.into_iter().map(engine_row).collect()));
        return asked.into_iter().map(answer).collect();
    }
    let prepared = prepared(market, &document_of(market.clock, scan))?;
    let mut answers = Vec::new();
    let options = LocalOptions { threads: 1, ..LocalOptions::default() };
    // Small chunks, so that their borders are crossed.
    let chunk_bytes_max = 64 << 10;
    all_bars(&prepared, options, None, chunk_bytes_max, &NoCancel, |time, answer| {
        answers.push((time / market.clock.unit(), answer.rows.into_iter().map(engine_row).collect()));
        Ok(())
    })
    .map_err(|e| e.to_string())?;
    Ok(answers)
}

/// Whether [`engine_answers`] has some days of the market alone.
pub fn is_of_some_days(scan: &Scan) -> bool {
    scan.history.is_some() || scan.timeframe
}

/// The market as the engine sees it.
///
/// # Errors
/// Its refusal of the market, as text.
pub fn dataset(market: &Market) -> Result<Dataset, String> {
    memory_dataset(memory_market(market)).map_err(|e| e.to_string())
}

/// The engine's rows at one day, by a scan of that day alone.
///
/// # Errors
/// Its refusal of the scan, as text.
pub fn engine_answer(dataset: &Dataset, document: &ScanDocument, day: i64) -> Result<Vec<EngineRow>, String> {
    Ok(answer_rows(dataset, document, day)?.into_iter().map(engine_row).collect())
}

/// The same as the answer has them, reasons included.
///
/// # Errors
/// The engine's refusal of the scan, as text.
pub fn answer_rows(dataset: &Dataset, document: &ScanDocument, day: i64) -> Result<Vec<AnswerRow>, String> {
    rows_at(dataset, document, day * DAY)
}

/// The rows as of the bar that begins at a time.
fn rows_at(dataset: &Dataset, document: &ScanDocument, time: i64) -> Result<Vec<AnswerRow>, String> {
    let prepared = prepare_opened(dataset.clone(), document, Some(time)).map_err(|e| e.to_string())?;
    let source = prepared.source();
    let references = source.load_references().map_err(|e| e.to_string())?;
    let execute = |segment, step, input: &StepInputV1, stages: &mut Stages| {
        source.execute(segment, step, input, &references, &NoCancel, stages).map_err(|e| (e.kind(), e.to_string()))
    };
    let options = LocalOptions { threads: 1, ..LocalOptions::default() };
    let (answer, _) = local::run(&prepared, options, execute, &NoProgress).map_err(|e| e.to_string())?;
    Ok(answer.rows)
}

fn engine_row(row: AnswerRow) -> EngineRow {
    EngineRow {
        status: status(row.row.status),
        edge: Some(row.row.edge),
        rank: row.row.rank,
        select: row.row.values,
        symbol: row.row.symbol,
    }
}

fn memory_market(market: &Market) -> MemoryMarket {
    let bars = |symbol: &Symbol| SymbolBars {
        symbol: Arc::from(symbol.name.as_str()),
        times: symbol.days.iter().map(|day| day * market.clock.unit()).collect(),
        columns: (0..COLUMNS.len()).map(|c| symbol.bars.iter().map(|row| row[c]).collect()).collect(),
    };
    MemoryMarket {
        name: "market".to_owned(),
        timeframe: match market.clock {
            Clock::Days => Timeframe::DAY,
            Clock::Minutes => "1m".parse().expect("a timeframe"),
        },
        calendar: "XNYS".to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        bars: market.symbols.iter().filter(|s| !s.days.is_empty()).map(bars).collect(),
        symbols: market.symbols.iter().flat_map(|symbol| listings(market.clock, symbol)).chain(every_label()).collect(),
        factors: market.symbols.iter().flat_map(factors).collect(),
        attributes: attributes(market),
        groups: Some(3),
        ..MemoryMarket::default()
    }
}

fn factors(symbol: &Symbol) -> impl Iterator<Item = FactorRow> {
    symbol.events.iter().map(|event| FactorRow {
        symbol: symbol.name.clone(),
        date: event.day * DAY,
        split: event.split,
        dividend: event.dividend,
    })
}

/// The attributes of all symbols, as a user's table; a symbol without bars has each of them, so that every attribute that a
/// scan may name is known.
fn attributes(market: &Market) -> String {
    let mut table = "symbol,date,cap,earnings\nNOBARS0,2020-01-01,1,2020-01-01\n".to_owned();
    for symbol in &market.symbols {
        for (known_on, name, value) in &symbol.attributes {
            let value = if *name == "earnings" { format_time(*value as i64 * DAY) } else { value.to_string() };
            let (cap, earnings) = if *name == "earnings" { ("", value.as_str()) } else { (value.as_str(), "") };
            table += &format!("{},{},{cap},{earnings}\n", symbol.name, format_time(known_on * DAY));
        }
    }
    table
}

/// Symbols without bars, so that every label and value that a scan may name is known.
fn every_label() -> impl Iterator<Item = ListingRow> {
    let values = LABELS.iter().flat_map(|(label, values)| values.iter().map(move |value| (label, value)));
    values.enumerate().map(|(i, (label, value))| ListingRow {
        symbol: format!("NOBARS{i}"),
        labels: BTreeMap::from([((*label).to_owned(), (*value).to_owned())]),
        ..ListingRow::default()
    })
}

/// One row for every stretch of days on which no label changes.
fn listings(clock: Clock, symbol: &Symbol) -> Vec<ListingRow> {
    let mut borders: Vec<i64> = symbol.labels.values().flatten().map(|(day, _)| *day).collect();
    borders.sort_unstable();
    borders.dedup();
    let row = |i: usize| {
        let day = borders[i];
        let value = |label: &String| symbol.label(label, day).map(|v| (label.clone(), v.to_owned()));
        ListingRow {
            symbol: symbol.name.clone(),
            from: day.checked_mul(clock.unit()),
            to: borders.get(i + 1).and_then(|day| day.checked_mul(clock.unit())),
            labels: symbol.labels.keys().filter_map(value).collect(),
            ..ListingRow::default()
        }
    };
    (0..borders.len()).map(row).collect()
}

fn status(status: trawl_wire::Status) -> Status {
    match status {
        trawl_wire::Status::Failed => Status::Failed,
        trawl_wire::Status::Stale => Status::Stale,
        trawl_wire::Status::Outside => Status::Outside,
        trawl_wire::Status::Unknown => Status::Unknown,
        trawl_wire::Status::Matched => Status::Matched,
        trawl_wire::Status::NotMatched => Status::NotMatched,
    }
}

/// Whether the rows come by symbol, not yet merged into an answer.
pub const SORTED_BY_SYMBOL: bool = false;
