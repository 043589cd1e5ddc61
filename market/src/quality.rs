//! What is doubtful about a snapshot's bars: sessions without bars and bars without a session, gaps of symbols, symbols that have ended,
//! jumps, and rows in quarantine. Nothing is changed or decided here; that no trade makes no bar is normal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rayon::prelude::*;

use crate::calendar::Calendar;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::files::Files;
use crate::jumps::{Jump, find_jumps};
use crate::limits::{JUMPS_LISTED_MAX, QUALITY_LISTED_MAX, STALE_SESSIONS};
use crate::quarantine::{QUARANTINE, quarantine_path};
use crate::reference::SymbolTable;
use crate::time::{DAY, TimeMicros};
use trawl_terms::Timeframe;
use twox_hash::XxHash3_128;

/// The quality of a snapshot. Dates are midnights in UTC; lists are bounded, counts are whole.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Quality {
    /// Sessions of the calendar from the first to the last date with a bar; 0 for bars of weeks and months.
    pub sessions: u64,
    /// Of these, sessions on which no symbol has a bar.
    pub sessions_without_bars: u64,
    /// The first of them.
    pub sessions_without_bars_listed: Vec<TimeMicros>,
    /// Dates with bars on which the calendar has no session.
    pub dates_without_session: u64,
    /// The first of them.
    pub dates_without_session_listed: Vec<TimeMicros>,
    /// Bars of a day or less on such dates.
    pub bars_without_session: u64,
    /// Bars shorter than a day outside of regular sessions: before and after the market too.
    pub bars_outside_sessions: u64,
    /// Cells without a number, by column: of columns that have some.
    #[serde(default)]
    pub missing_cells: BTreeMap<String, u64>,
    /// Of bars shorter than a day: sessions with less than half of the usual bars.
    #[serde(default)]
    pub short_sessions: u64,
    /// The first of them.
    #[serde(default)]
    pub short_sessions_listed: Vec<ShortSession>,
    /// Every date with a bar.
    pub days: Vec<DayCoverage>,
    /// Sessions within the history of a symbol on which it has no bar, of all symbols.
    pub gaps: u64,
    /// Symbols with such sessions.
    pub symbols_with_gaps: u64,
    /// The longest, longest first.
    pub gaps_listed: Vec<Gap>,
    /// Symbols without a bar on the last [`STALE_SESSIONS`] sessions, whose end no table of symbols gives.
    pub stale: u64,
    /// The first of them, by their last bar and by name.
    pub stale_listed: Vec<Stale>,
    /// Symbols that have ended, as the table of symbols has it.
    pub ended: u64,
    /// Jumps of the close that the dataset's splits do not explain.
    pub jumps: u64,
    /// The first of them, by symbol and time.
    pub jumps_listed: Vec<Jump>,
    /// Rows in quarantine by reason, of the import that made this snapshot.
    pub quarantined: BTreeMap<String, u64>,
    /// The same of all imports whose snapshots are kept; a row that was imported several times counts once.
    pub quarantined_in_all: BTreeMap<String, u64>,
}

/// A date.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct DayCoverage {
    /// Midnight in UTC.
    pub date: TimeMicros,
    /// Symbols with a bar.
    pub symbols: u64,
    /// Symbols with a bar on this date, or before and after it.
    pub expected: u64,
    /// Bars.
    pub bars: u64,
}

/// A session with less than half of the bars that its neighbours have: perhaps it was cut short, or its minutes have holes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ShortSession {
    /// Midnight in UTC.
    pub date: TimeMicros,
    /// Bars of all symbols.
    pub bars: u64,
    /// The median of the [`NEIGHBOURS`] sessions around it, each at the length of this one.
    pub usual: u64,
}

/// Sessions with bars around a session that say what is usual.
pub const NEIGHBOURS: usize = 20;
/// Fewer say nothing.
const NEIGHBOURS_MIN: usize = 3;

/// Sessions on which a symbol has no bar, between two on which it has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Gap {
    /// Whose.
    pub symbol: String,
    /// The date of the bar before.
    pub after: TimeMicros,
    /// The date of the bar behind.
    pub before: TimeMicros,
    /// Sessions in between.
    pub sessions: u64,
}

/// A symbol without recent bars.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Stale {
    /// Which.
    pub symbol: String,
    /// The date of its last bar.
    pub last: TimeMicros,
    /// Sessions since.
    pub sessions: u64,
}

/// What is found in some symbols.
#[derive(Default)]
struct Found {
    /// Symbols and bars by date.
    days: BTreeMap<TimeMicros, (u64, u64)>,
    /// First and last date of each symbol.
    lives: Vec<(String, TimeMicros, TimeMicros)>,
    outside: u64,
    gaps: u64,
    symbols_with_gaps: u64,
    listed: Vec<Gap>,
    jumps: Vec<Jump>,
    /// Cells without a number, by column.
    missing: BTreeMap<String, u64>,
}

/// Dates of bars: that of a session, else the one on the exchange's clock. Times come in order.
struct Dates {
    calendar: Calendar,
    dated: bool,
    /// The last regular session: its times and its date.
    session: (TimeMicros, TimeMicros, TimeMicros),
    /// The last day on the exchange's clock, in UTC, and its date.
    day: (TimeMicros, TimeMicros, TimeMicros),
}

impl Dates {
    fn new(calendar: Calendar, dated: bool) -> Self {
        Self { calendar, dated, session: (0, 0, 0), day: (0, 0, 0) }
    }

    /// The date, and whether the bar is in a regular session; dated bars are.
    fn of(&mut self, time: TimeMicros) -> (TimeMicros, bool) {
        if self.dated {
            return (time - time.rem_euclid(DAY), true);
        }
        if (self.session.0..self.session.1).contains(&time) && self.calendar.is_regular(time) {
            return (self.session.2, true);
        }
        if let Some(session) = self.calendar.session_at(time) {
            self.session = (session.open, session.close, session.date);
            return (session.date, true);
        }
        if !(self.day.0..self.day.1).contains(&time) {
            let zone = self.calendar.zone();
            let local = zone.wall(time);
            let date = local - local.rem_euclid(DAY);
            self.day = (zone.to_utc(date), zone.to_utc(date + DAY), date);
        }
        (self.day.2, false)
    }
}

impl Found {
    fn add(mut self, other: Self) -> Self {
        for (date, (symbols, bars)) in other.days {
            let day = self.days.entry(date).or_default();
            (day.0, day.1) = (day.0 + symbols, day.1 + bars);
        }
        self.lives.extend(other.lives);
        self.outside += other.outside;
        self.gaps += other.gaps;
        self.symbols_with_gaps += other.symbols_with_gaps;
        self.listed.extend(other.listed);
        longest_first(&mut self.listed);
        self.jumps.extend(other.jumps);
        for (column, cells) in other.missing {
            *self.missing.entry(column).or_default() += cells;
        }
        self
    }

    fn symbol(&mut self, symbol: &str, times: &[TimeMicros], calendar: Calendar, timeframe: Timeframe) {
        let dated = timeframe.is_dated();
        let mut dates = Dates::new(calendar, dated);
        let mut own: Vec<(TimeMicros, u64)> = Vec::new();
        for &time in times {
            let (date, regular) = dates.of(time);
            self.outside += u64::from(!regular);
            match own.last_mut() {
                Some(last) if last.0 == date => last.1 += 1,
                _ => own.push((date, 1)),
            }
        }
        // Bars outside of sessions may have the date of a session that bars between them have not.
        own.sort_unstable();
        let mut gaps = 0;
        let mut before: Option<TimeMicros> = None;
        for (date, bars) in own {
            let day = self.days.entry(date).or_default();
            day.1 += bars;
            if before == Some(date) {
                continue;
            }
            day.0 += 1;
            if let Some(before) = before.filter(|_| has_sessions(timeframe)) {
                let sessions = between(calendar, before, date);
                if sessions > 0 {
                    gaps += sessions;
                    self.listed.push(Gap { symbol: symbol.to_owned(), after: before, before: date, sessions });
                }
            }
            match self.lives.last_mut().filter(|life| before.is_some() && life.0 == symbol) {
                Some(life) => life.2 = date,
                None => self.lives.push((symbol.to_owned(), date, date)),
            }
            before = Some(date);
        }
        longest_first(&mut self.listed);
        self.gaps += gaps;
        self.symbols_with_gaps += u64::from(gaps > 0);
    }
}

/// Whether bars belong to one session each.
fn has_sessions(timeframe: Timeframe) -> bool {
    timeframe == Timeframe::DAY || !timeframe.is_dated()
}

/// Sessions after one date and before another.
fn between(calendar: Calendar, after: TimeMicros, before: TimeMicros) -> u64 {
    u64::try_from(calendar.ordinal(before) - calendar.ordinal(after + DAY)).unwrap_or(0)
}

/// Keeps the longest.
fn longest_first(gaps: &mut Vec<Gap>) {
    if gaps.len() > QUALITY_LISTED_MAX {
        gaps.sort_by(|a, b| (b.sessions, &a.symbol, a.after).cmp(&(a.sessions, &b.symbol, b.after)));
        gaps.truncate(QUALITY_LISTED_MAX);
    }
}

/// Looks at every bar of a snapshot.
///
/// # Errors
/// Those of reading the dataset.
pub(crate) fn quality(dataset: &Dataset) -> Result<Quality, MarketError> {
    let manifest = &*dataset.manifest;
    let (calendar, timeframe) = (manifest.calendar(), manifest.timeframe);
    let columns = &manifest.columns;
    let groups: Vec<u32> = manifest.filled_groups().into_iter().collect();
    let of_group = |group: &u32| -> Result<Found, MarketError> {
        let mut found = Found::default();
        for bars in dataset.load_group(*group, columns)? {
            found.symbol(&bars.symbol, &bars.times, calendar, timeframe);
            for (column, values) in columns.iter().zip(&bars.columns) {
                if column == "close" {
                    found.jumps.extend(find_jumps(&bars.symbol, &bars.times, values, TimeMicros::MIN));
                }
                let missing = values.iter().filter(|value| value.is_nan()).count() as u64;
                if missing > 0 {
                    *found.missing.entry(column.clone()).or_default() += missing;
                }
            }
        }
        Ok(found)
    };
    let found = groups.par_iter().map(of_group).try_reduce(Found::default, |a, b| Ok(a.add(b)))?;
    let Found { days, mut lives, outside, gaps, symbols_with_gaps, mut listed, mut jumps, missing } = found;
    listed.sort_by(|a, b| (b.sessions, &a.symbol, a.after).cmp(&(a.sessions, &b.symbol, b.after)));
    dataset.retain_unadjusted(&mut jumps)?;
    jumps.sort_by(|a, b| (&a.symbol, a.time).cmp(&(&b.symbol, b.time)));
    lives.sort_by(|a, b| (a.2, &a.0).cmp(&(b.2, &b.0)));
    let (quarantined, quarantined_in_all) = quarantined(dataset)?;
    let mut quality = Quality {
        bars_outside_sessions: outside,
        gaps,
        symbols_with_gaps,
        gaps_listed: listed,
        missing_cells: missing,
        jumps: jumps.len() as u64,
        quarantined,
        quarantined_in_all,
        ..Quality::default()
    };
    jumps.truncate(JUMPS_LISTED_MAX);
    quality.jumps_listed = jumps;
    let Some((&first, &last)) = days.keys().next().zip(days.keys().next_back()) else { return Ok(quality) };
    quality.days = coverage(&days, &lives);
    if !has_sessions(timeframe) {
        return Ok(quality);
    }
    let sessions = || {
        let all = std::iter::successors(calendar.next_session(first - DAY), |one| calendar.next_session(one.date));
        all.map(|session| session.date).take_while(|date| *date <= last)
    };
    for date in sessions() {
        quality.sessions += 1;
        if !days.contains_key(&date) {
            quality.sessions_without_bars += 1;
            list(&mut quality.sessions_without_bars_listed, || date);
        }
    }
    if !timeframe.is_dated() {
        for short in short_sessions(&days, calendar) {
            quality.short_sessions += 1;
            list(&mut quality.short_sessions_listed, || short);
        }
    }
    let range = calendar.range();
    let off =
        days.iter().filter(|(date, _)| (range.0..=range.1).contains(*date) && calendar.session_on(**date).is_none());
    for (date, (_, bars)) in off {
        quality.bars_without_session += bars;
        quality.dates_without_session += 1;
        list(&mut quality.dates_without_session_listed, || *date);
    }
    let ended = ended(&*dataset.symbol_table()?, manifest.last_time);
    for (symbol, _, end) in &lives {
        let sessions = between(calendar, *end, last + DAY);
        if sessions < STALE_SESSIONS {
            continue;
        }
        if ended.contains(symbol) {
            quality.ended += 1;
        } else {
            quality.stale += 1;
            list(&mut quality.stale_listed, || Stale { symbol: symbol.clone(), last: *end, sessions });
        }
    }
    Ok(quality)
}

/// Adds an item to a list that is not full.
fn list<T>(items: &mut Vec<T>, item: impl FnOnce() -> T) {
    if items.len() < QUALITY_LISTED_MAX {
        items.push(item());
    }
}

/// Symbols of the table none of whose rows lasts until a time.
fn ended(table: &SymbolTable, time: TimeMicros) -> BTreeSet<String> {
    let rows = || table.rows().iter();
    let lasting: BTreeSet<&str> =
        rows().filter(|row| row.to.is_none_or(|to| to > time)).map(|row| row.symbol.as_str()).collect();
    rows().filter(|row| !lasting.contains(row.symbol.as_str())).map(|row| row.symbol.clone()).collect()
}

/// Each date with the number of symbols whose history includes it.
fn coverage(days: &BTreeMap<TimeMicros, (u64, u64)>, lives: &[(String, TimeMicros, TimeMicros)]) -> Vec<DayCoverage> {
    let mut firsts: Vec<TimeMicros> = lives.iter().map(|life| life.1).collect();
    let mut lasts: Vec<TimeMicros> = lives.iter().map(|life| life.2).collect();
    firsts.sort_unstable();
    lasts.sort_unstable();
    let expected = |date: TimeMicros| {
        (firsts.partition_point(|first| *first <= date) - lasts.partition_point(|last| *last < date)) as u64
    };
    let day = |(&date, &(symbols, bars)): (&TimeMicros, &(u64, u64))| DayCoverage {
        date,
        symbols,
        expected: expected(date),
        bars,
    };
    days.iter().map(day).collect()
}

/// Sessions with less than half of the bars that are usual around them. A session that closes early has fewer.
fn short_sessions(days: &BTreeMap<TimeMicros, (u64, u64)>, calendar: Calendar) -> Vec<ShortSession> {
    // Bars and minutes of each session with bars.
    let sessions: Vec<(TimeMicros, u64, f64)> = days
        .iter()
        .filter_map(|(date, (_, bars))| {
            let session = calendar.session_on(*date)?;
            Some((*date, *bars, (session.close - session.open) as f64))
        })
        .collect();
    let usual = |at: usize| {
        let first = at.saturating_sub(NEIGHBOURS / 2);
        let around = sessions.iter().enumerate().skip(first).take(NEIGHBOURS + 1).filter(|(other, _)| *other != at);
        let mut rates: Vec<f64> = around.map(|(_, (_, bars, length))| *bars as f64 / length).collect();
        rates.sort_by(f64::total_cmp);
        (rates.len() >= NEIGHBOURS_MIN).then(|| rates[rates.len() / 2])
    };
    let short = |(at, &(date, bars, length)): (usize, &(TimeMicros, u64, f64))| {
        let usual = (usual(at)? * length).round() as u64;
        (bars < usual / 2).then_some(ShortSession { date, bars, usual })
    };
    sessions.iter().enumerate().filter_map(short).collect()
}

/// Rows in quarantine by reason.
type ByReason = BTreeMap<String, u64>;

/// Rows in quarantine by reason: those of the import that made the snapshot, and those of all whose snapshots are kept.
fn quarantined(dataset: &Dataset) -> Result<(ByReason, ByReason), MarketError> {
    let name = &dataset.manifest.name;
    let own_path = quarantine_path(&dataset.manifest.snapshot);
    let (mut own, mut all, mut seen) = (ByReason::new(), ByReason::new(), BTreeSet::new());
    let mut count = |file: &str, bytes: &[u8]| {
        let is_own = own_path.rsplit('/').next() == Some(file);
        // A row has file, line, reason and text.
        for record in csv::Reader::from_reader(bytes).records().map_while(Result::ok) {
            let reason = record.get(2).unwrap_or_default();
            if is_own {
                *own.entry(reason.to_owned()).or_default() += 1;
            }
            if seen.insert(XxHash3_128::oneshot(record.iter().collect::<Vec<_>>().join("\0").as_bytes())) {
                *all.entry(reason.to_owned()).or_default() += 1;
            }
        }
    };
    match dataset.files() {
        Files::Directory(folder) => {
            let entries = fs::read_dir(folder.join(QUARANTINE)).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "csv")) {
                let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
                count(file, &fs::read(&path).map_err(MarketError::io("read", format!("{name}/{QUARANTINE}")))?);
            }
        }
        Files::Remote(remote) => {
            for object in remote.root.list(&format!("{name}/{QUARANTINE}"))?.objects {
                let bytes = remote.root.read(name, &format!("{QUARANTINE}/{}", object.name))?;
                count(&object.name, &bytes.unwrap_or_default());
            }
        }
        Files::Memory(_) => {}
    }
    Ok((own, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_time;

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    #[test]
    fn gaps_are_sessions_between_bars_of_a_symbol() {
        let mut found = Found::default();
        // 2024-07-04 is a holiday, 5 is a Friday.
        let days = ["2024-07-01", "2024-07-03", "2024-07-05", "2024-07-08", "2024-07-12"].map(at);
        found.symbol("X", &days, Calendar::XNYS, Timeframe::DAY);
        found.symbol("Y", &days[..1], Calendar::XNYS, Timeframe::DAY);
        assert_eq!((found.gaps, found.symbols_with_gaps), (4, 1));
        let spans: Vec<_> = found.listed.iter().map(|gap| (gap.after, gap.before, gap.sessions)).collect();
        assert_eq!(spans, [(days[0], days[1], 1), (days[3], days[4], 3)]);
        assert_eq!(found.lives, [("X".to_owned(), days[0], days[4]), ("Y".to_owned(), days[0], days[0])]);
        assert_eq!(found.days[&days[0]], (2, 2));
        let cover = coverage(&found.days, &found.lives);
        assert_eq!(cover.iter().map(|day| day.expected).collect::<Vec<_>>(), [2, 1, 1, 1, 1]);
    }

    #[test]
    fn minutes_belong_to_the_date_of_their_session_or_of_the_exchanges_clock() {
        let mut found = Found::default();
        let times = ["2024-01-02T14:30:00Z", "2024-01-03T00:59:00Z", "2024-01-03T14:30:00Z", "2024-01-06T15:00:00Z"];
        found.symbol("X", &times.map(at), Calendar::XNYS, "1m".parse().unwrap());
        let dates: Vec<_> = found.days.iter().map(|(date, day)| (*date, *day)).collect();
        assert_eq!(dates, [(at("2024-01-02"), (1, 2)), (at("2024-01-03"), (1, 1)), (at("2024-01-06"), (1, 1))]);
        assert_eq!((found.outside, found.gaps), (2, 2), "Thursday and Friday");
    }

    #[test]
    fn a_session_with_holes_is_short_and_one_that_closes_early_is_not() {
        let dates: Vec<TimeMicros> =
            std::iter::successors(Calendar::XNYS.next_session(at("2024-06-24") - DAY), |one| {
                Calendar::XNYS.next_session(one.date)
            })
            .map(|session| session.date)
            .take_while(|date| *date <= at("2024-07-12"))
            .collect();
        // Two symbols with a bar each minute: 780 a day, 420 on the early close of 2024-07-03.
        let usual = |date: TimeMicros| if date == at("2024-07-03") { 420 } else { 780 };
        let mut days: BTreeMap<_, _> = dates.iter().map(|date| (*date, (2, usual(*date)))).collect();
        assert_eq!(short_sessions(&days, Calendar::XNYS), []);
        days.insert(at("2024-07-01"), (2, 389));
        days.insert(at("2024-07-03"), (2, 209));
        // Saturday: no session.
        days.insert(at("2024-07-06"), (1, 1));
        let expected = [("2024-07-01", 389, 780), ("2024-07-03", 209, 420)];
        let expected = expected.map(|(date, bars, usual)| ShortSession { date: at(date), bars, usual });
        assert_eq!(short_sessions(&days, Calendar::XNYS), expected);
        let few = days.into_iter().take(3).collect();
        assert_eq!(short_sessions(&few, Calendar::XNYS), [], "too few to say what is usual");
    }
}
