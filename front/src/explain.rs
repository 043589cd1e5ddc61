//! What a scan means for a dataset: how many bars it needs, which symbols have too few, what it reads and costs. Only the
//! manifest is read, and nothing is run.

use schemars::JsonSchema;
use serde::Serialize;
use trawl_coordinator::{NearQuestion, PreparedScan, WhyError};
use trawl_market::{SymbolEntry, Timeframe};
use trawl_plan::frame::{BarSize, Frame, Subject};
use trawl_plan::graph::NodeId;
use trawl_plan::{BarsNeeded, Point};

/// Bytes of one value or time.
const VALUE_BYTES: u64 = 8;

/// What a scan needs, reads and costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The scan's name, if it has one.
    pub name: Option<String>,
    /// `NAME@SNAPSHOT`.
    pub dataset: String,
    /// Timeframe of its bars, such as `1d`.
    pub timeframe: String,
    /// Whether it is a generated market.
    pub synthetic: bool,
    /// The bar, on the exchange's clock.
    pub as_of: String,
    /// The bar's time in UTC.
    pub time: String,
    /// What the user should know about the answer.
    pub warnings: Vec<String>,
    /// Combinations of a sweep; 1 without one.
    pub combinations: u64,
    /// Whether these are several scans in place of a sweep.
    pub scans: bool,
    /// Rows of the answer at most.
    pub rows_max: u64,
    /// Bytes of the answer in memory at most, about.
    pub answer_bytes: u64,
    /// Fewest and most bars of a symbol before the condition has a value, over the combinations.
    pub bars_needed: (u64, u64),
    /// Most bars that it needs of longer timeframes and of other symbols.
    pub bars_needed_of: Vec<NeededElsewhere>,
    /// Most bars of a symbol before the universe has a value; 0 without a universe.
    pub universe_needs: u64,
    /// The terms of the condition, and the bars that each needs; empty for a single term or a sweep.
    pub terms: Vec<TermNeeds>,
    /// Symbols that are scanned.
    pub symbols: u64,
    /// Symbols of the snapshot.
    pub symbols_stored: u64,
    /// Symbols with too few bars for every combination, those with the fewest first.
    pub too_short: Vec<ShortSymbol>,
    /// Symbols with too few bars for some combinations of a sweep, or for some of several scans; those with the fewest first.
    pub too_short_for_some: Vec<PartlyShortSymbol>,
    /// Whether there may be more: of bars that reach beyond the as-of, and of longer bars that are built, it is not known how many
    /// there are.
    pub too_short_at_least: bool,
    /// Segments of the scan.
    pub segments: u64,
    /// Bars of all symbols.
    pub bars: u64,
    /// Columns that are read.
    pub columns: Vec<String>,
    /// Bytes that are read.
    pub read_bytes: u64,
    /// Symbols that every process reads beside its segments.
    pub references: Vec<String>,
    /// Bytes of these.
    pub reference_bytes: u64,
    /// Cross-sections over all symbols.
    pub cross_sections: u64,
    /// Bytes that are gathered for each time at which they are read.
    pub cross_bytes: u64,
    /// Working memory of each thread in bytes, besides the bars.
    pub workspace_bytes: u64,
    /// Estimated nanoseconds of one core, without reading.
    pub cost_ns: f64,
    /// Number type of the arithmetic.
    pub precision: String,
    /// Fingerprint of the plan, 64 hex digits.
    pub plan: String,
    /// Number of its steps.
    pub steps: u64,
}

/// A term of a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TermNeeds {
    /// As written.
    pub term: String,
    /// Bars before its first value.
    pub bars: u64,
    /// Bars of longer timeframes and of other symbols.
    pub bars_of: Vec<NeededElsewhere>,
}

/// Bars that are needed of a longer timeframe or of another symbol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NeededElsewhere {
    /// Whose: `1w`, `SPY`, `SPY 1w`.
    pub of: String,
    /// How many, at least.
    pub bars: u64,
}

impl NeededElsewhere {
    fn all(needed: &BarsNeeded) -> Vec<Self> {
        needed.others.iter().map(|(of, bars)| Self { of: of.title(), bars: *bars as u64 }).collect()
    }
}

/// A symbol with too few bars.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct ShortSymbol {
    /// Its bars.
    pub bars: u64,
    /// Its name.
    pub symbol: String,
}

/// A symbol with too few bars for some of the combinations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct PartlyShortSymbol {
    /// Its bars.
    pub bars: u64,
    /// Its name.
    pub symbol: String,
    /// Combinations for which they are too few.
    pub combinations: u64,
}

impl Explanation {
    /// Of a prepared scan.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn of(prepared: &PreparedScan) -> anyhow::Result<Self> {
        let mut explanation = Self::without_terms(prepared);
        if explanation.combinations == 1 {
            // Of a condition with too many terms to list none is listed.
            let question = match NearQuestion::new(prepared) {
                Err(WhyError::Terms) => return Ok(explanation),
                question => question?,
            };
            if question.terms() > 1 {
                let needs = |(term, needed): (&str, &BarsNeeded)| TermNeeds {
                    term: term.to_owned(),
                    bars: needed.own as u64,
                    bars_of: NeededElsewhere::all(needed),
                };
                explanation.terms = question.needs().map(needs).collect();
            }
        }
        Ok(explanation)
    }

    fn without_terms(prepared: &PreparedScan) -> Self {
        let manifest = &prepared.dataset.manifest;
        let needs = Needs::of(prepared);
        let conditions = || needs.points.iter().map(|point| &point.condition);
        let own = || conditions().map(|needed| needed.own as u64);
        let bars_needed = (own().min().unwrap_or(1), own().max().unwrap_or(1));
        let mut bars_needed_of: Vec<NeededElsewhere> = Vec::new();
        for needed in conditions().flat_map(NeededElsewhere::all) {
            match bars_needed_of.iter_mut().find(|known| known.of == needed.of) {
                Some(known) => known.bars = known.bars.max(needed.bars),
                None => bars_needed_of.push(needed),
            }
        }
        let is_scanned = |group: &u32| prepared.segments.contains(group);
        let scanned: Vec<_> = manifest.symbols.iter().filter(|entry| is_scanned(&entry.group)).collect();
        let (mut too_short, mut too_short_for_some) = (Vec::new(), Vec::new());
        for entry in &scanned {
            let (bars, symbol) = (visible_bars(prepared, entry), entry.symbol.clone());
            match needs.too_many_for(prepared, entry) {
                0 => {}
                all if all == needs.points.len() => too_short.push(ShortSymbol { bars, symbol }),
                some => too_short_for_some.push(PartlyShortSymbol { bars, symbol, combinations: some as u64 }),
            }
        }
        too_short.sort_unstable();
        too_short_for_some.sort_unstable();
        let is_built = prepared.plan.frames.iter().any(|frame| matches!(frame.bars, BarSize::Higher { .. }));
        let columns = prepared.plan.columns.len() as u64;
        let references: Vec<String> = prepared.plan.references().iter().map(ToString::to_string).collect();
        let rows = |name: &String| manifest.symbol(name).map_or(0, |entry| entry.rows);
        let reference_rows: u64 = references.iter().map(rows).sum();
        let crosses = prepared.plan.crosses.len() as u64;
        let bars = prepared.bar_count();
        Self {
            name: prepared.document.name.clone(),
            dataset: prepared.dataset_reference(),
            timeframe: manifest.timeframe.to_string(),
            synthetic: manifest.synthetic,
            as_of: prepared.shown_as_of(),
            time: prepared.identity.as_of.clone(),
            warnings: prepared.warnings.clone(),
            combinations: prepared.plan.points.len() as u64,
            scans: !prepared.document.scans.is_empty(),
            rows_max: prepared.answer_rows(),
            answer_bytes: prepared.answer_bytes(),
            bars_needed,
            bars_needed_of,
            universe_needs: needs
                .points
                .iter()
                .filter_map(|point| point.universe.as_ref())
                .map(|of| of.own as u64)
                .max()
                .unwrap_or(0),
            terms: Vec::new(),
            symbols: scanned.len() as u64,
            symbols_stored: prepared.symbol_count() as u64,
            too_short,
            too_short_for_some,
            too_short_at_least: is_built || scanned.iter().any(|entry| entry.last_time > prepared.as_of),
            segments: prepared.segments.len() as u64,
            bars,
            columns: prepared.plan.columns.clone(),
            read_bytes: bars * (columns + 1) * VALUE_BYTES,
            references,
            reference_bytes: reference_rows * (columns + 1) * VALUE_BYTES,
            cross_sections: crosses,
            cross_bytes: crosses * prepared.symbol_count() as u64 * VALUE_BYTES,
            workspace_bytes: prepared.workspace_bytes(),
            cost_ns: bars as f64 * prepared.plan.cost_ns_per_bar(),
            precision: prepared.identity.precision.clone(),
            plan: prepared.identity.plan.clone(),
            steps: prepared.plan.nodes().len() as u64,
        }
    }
}

/// Days of the shortest month.
const MONTH_DAYS: i64 = 28;
/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

/// What the combinations of a sweep need.
struct Needs {
    points: Vec<PointNeeds>,
    /// With so many bars of its own a symbol has enough for every combination; `None` if they need other bars too.
    enough: Option<u64>,
}

/// What one combination needs.
struct PointNeeds {
    condition: BarsNeeded,
    /// `None` without a universe.
    universe: Option<BarsNeeded>,
}

impl PointNeeds {
    fn both(&self) -> impl Iterator<Item = &BarsNeeded> {
        std::iter::once(&self.condition).chain(&self.universe)
    }
}

impl Needs {
    fn of(prepared: &PreparedScan) -> Self {
        let points = &prepared.plan.points;
        let of_clause = |clause: fn(&Point) -> Option<NodeId>| {
            let wanted: Vec<NodeId> = points.iter().filter_map(clause).collect();
            prepared.plan.bars_needed_by(&wanted).into_iter()
        };
        let (mut conditions, mut universes) = (of_clause(|point| point.condition), of_clause(|point| point.universe));
        let needs = |point: &Point| PointNeeds {
            condition: point.condition.and_then(|_| conditions.next()).unwrap_or_default(),
            universe: point.universe.and_then(|_| universes.next()),
        };
        let points: Vec<PointNeeds> = points.iter().map(needs).collect();
        let all = || points.iter().flat_map(PointNeeds::both);
        let enough = all().all(|needed| needed.others.is_empty()).then(|| all().map(|needed| needed.own as u64).max());
        Self { enough: enough.flatten(), points }
    }

    /// Number of combinations for which a symbol certainly has too few bars.
    fn too_many_for(&self, prepared: &PreparedScan, entry: &SymbolEntry) -> usize {
        // Of many combinations and symbols nearly all end here.
        if self.enough.is_some_and(|enough| visible_bars(prepared, entry) >= enough) {
            return 0;
        }
        let lacks = |point: &&PointNeeds| point.both().any(|needed| is_too_short(prepared, entry, needed));
        self.points.iter().filter(lacks).count()
    }
}

/// Bars of a symbol, as far as the manifest says.
fn visible_bars(prepared: &PreparedScan, entry: &SymbolEntry) -> u64 {
    if entry.first_time > prepared.as_of { 0 } else { entry.rows }
}

/// Whether a symbol certainly has too few bars.
fn is_too_short(prepared: &PreparedScan, entry: &SymbolEntry, needed: &BarsNeeded) -> bool {
    let lacks = |(frame, bars): &(Frame, usize)| {
        let of = match &frame.subject {
            Subject::Own => Some(entry),
            Subject::Reference(symbol) => prepared.dataset.manifest.symbol(symbol),
        };
        let Some(of) = of else { return false };
        let most = match &frame.bars {
            BarSize::Base => visible_bars(prepared, of),
            BarSize::Higher { timeframe, .. } => periods_at_most(prepared, of, *timeframe),
        };
        most < *bars as u64
    };
    visible_bars(prepared, entry) < needed.own as u64 || needed.others.iter().any(lacks)
}

/// Most bars of a longer timeframe between a symbol's first bar and its last one before the as-of.
fn periods_at_most(prepared: &PreparedScan, entry: &SymbolEntry, timeframe: Timeframe) -> u64 {
    if entry.first_time > prepared.as_of {
        return 0;
    }
    let length = timeframe.elapsed().unwrap_or(i64::from(timeframe.count) * MONTH_DAYS * DAY_US);
    // The first and the last may be there in part.
    let whole = (entry.last_time.min(prepared.as_of) - entry.first_time) / length.max(1);
    u64::try_from(whole + 2).unwrap_or(u64::MAX).min(visible_bars(prepared, entry))
}
