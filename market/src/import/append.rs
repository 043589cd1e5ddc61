//! Appends imported bars to a dataset without writing its groups again: bars that are later than those of their symbols become
//! one file of appended bars (see [`crate::tail`]).
//!
//! Bars that the dataset has already may come again, as in a file of the whole history, as long as they are the same. A bar that is
//! revised, or that comes between others, and a new column: the groups are written again (`groups`), as are those that are so
//! small that nothing is gained. What is decided depends on the bars alone, so that the same imports give the same snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use super::imported::{Imported, ImportedSymbol};
use crate::arrow_file::SymbolBars;
use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::group::group_of;
use crate::jumps::{Jump, find_jumps};
use crate::limits::{REWRITTEN_BYTES_MAX, REWRITTEN_FACTOR_MAX, SYMBOLS_MAX, TAILS_MAX};
use crate::manifest::{Appended, Manifest, TailFile};
use crate::manifest_reader::complete;
use crate::merge::MergeCounts;
use crate::series::VALUE_BYTES;
use crate::snapshot::{CompactionLock, Heading, Sink, assemble_appended, unite};
use crate::tail::{TailWriter, Tails, levels};
use crate::time::TimeMicros;

/// Whether an import appends to the groups of a dataset, or writes those that change again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Appending {
    /// Appends where that writes much less.
    #[default]
    Auto,
    /// Writes the groups again.
    Never,
    /// Appends wherever the bars allow it, however small the groups are.
    Always,
}

const CLOSE: &str = "close";

/// Bars that were appended.
pub(super) struct AppendedBars {
    /// `None` where all bars were known.
    pub tail: Option<TailFile>,
    /// Its distinct times.
    times: Vec<TimeMicros>,
    pub counts: MergeCounts,
    pub jumps: Vec<Jump>,
    first: TimeMicros,
    last: TimeMicros,
}

/// The bars of a symbol that are new.
struct Later<'a> {
    symbol: &'a ImportedSymbol,
    group: u32,
    /// Its place among the dataset's symbols.
    place: Option<u32>,
    /// Bars that the dataset has already.
    known: usize,
    /// Jumps, if they were looked for already.
    jumps: Option<Vec<Jump>>,
}

/// Appends imported bars to a dataset; `None` where its groups are to be written again.
///
/// # Errors
/// Those of reading the dataset and the imported bars; [`MarketError::Limit`]; [`MarketError::Io`].
pub(super) fn append(
    sink: &Sink,
    existing: &Dataset,
    (imported, columns): (&Imported, &[String]),
    appending: Appending,
    memory: u64,
) -> Result<Option<AppendedBars>, MarketError> {
    let manifest = &*existing.manifest;
    let tails = existing.tails();
    if appending == Appending::Never
        || columns.iter().any(|column| !manifest.columns.contains(column))
        || manifest.tails().len() >= TAILS_MAX
        || (imported.symbols.is_empty() && tails.is_none())
    {
        return Ok(None);
    }
    let rewritten = rewritten_bytes(manifest, tails, imported);
    let worth = |bars: u64| {
        let own = bars * VALUE_BYTES * (1 + manifest.columns.len() as u64);
        appending == Appending::Always
            || (rewritten > REWRITTEN_BYTES_MAX && rewritten > own.saturating_mul(REWRITTEN_FACTOR_MAX))
    };
    if !worth(0) {
        return Ok(None);
    }
    let later = imported.symbols.par_iter().map(|symbol| later(existing, imported, symbol));
    let Some(mut later) = later.collect::<Result<Option<Vec<Later<'_>>>, MarketError>>()? else { return Ok(None) };
    let symbols = manifest.symbols.len() + later.iter().filter(|later| later.place.is_none()).count();
    if symbols > SYMBOLS_MAX {
        let (found, limit) = (symbols as u64, SYMBOLS_MAX as u64);
        return Err(MarketError::Limit { what: "symbols of a dataset".to_owned(), found, limit });
    }
    let mut bars = AppendedBars {
        tail: None,
        times: Vec::new(),
        counts: MergeCounts::default(),
        jumps: Vec::new(),
        first: manifest.first_time,
        last: manifest.last_time,
    };
    for later in &mut later {
        bars.counts.unchanged += later.known as u64;
        bars.counts.added += (later.symbol.bars - later.known) as u64;
        bars.jumps.extend(later.jumps.iter_mut().flat_map(|jumps| jumps.drain(..)));
    }
    later.retain(|later| later.known < later.symbol.bars);
    if !worth(bars.counts.added) || (later.is_empty() && tails.is_none()) {
        return Ok(None);
    }
    if !later.is_empty() {
        later.sort_by_key(|later| later.group);
        write(sink, existing, imported, &later, memory, &mut bars)?;
    }
    bars.jumps.sort_by(|a, b| (&a.symbol, a.time).cmp(&(&b.symbol, b.time)));
    Ok(Some(bars))
}

/// Bytes of the files that would be written again.
fn rewritten_bytes(manifest: &Manifest, tails: Option<&Tails>, imported: &Imported) -> u64 {
    let mut groups: BTreeSet<u32> =
        imported.symbols.iter().map(|symbol| group_of(&symbol.name, manifest.groups)).collect();
    groups.extend(tails.map(Tails::groups).into_iter().flatten());
    let files = groups.iter().filter_map(|group| manifest.file(*group)).map(|file| file.bytes);
    files.chain(manifest.tails().iter().map(|tail| tail.bytes)).sum()
}

/// Which bars of a symbol are new; `None` where some of the others are not the dataset's.
fn later<'a>(
    existing: &Dataset,
    imported: &Imported,
    symbol: &'a ImportedSymbol,
) -> Result<Option<Later<'a>>, MarketError> {
    let manifest = &*existing.manifest;
    let group = group_of(&symbol.name, manifest.groups);
    let place = manifest.symbols.binary_search_by(|entry| entry.symbol.as_str().cmp(&symbol.name)).ok();
    let entry = place.and_then(|place| manifest.symbols.get(place));
    let mut later = Later { symbol, group, place: place.map(|place| place as u32), known: 0, jumps: None };
    let Some(entry) = entry.filter(|entry| symbol.first <= entry.last_time) else { return Ok(Some(later)) };
    let known = existing.load_symbol(&symbol.name, &manifest.columns)?;
    let new = imported.load(symbol, &manifest.columns)?;
    later.known = new.times.partition_point(|time| *time <= entry.last_time);
    let mut at = 0;
    for (row, time) in new.times[..later.known].iter().enumerate() {
        at += known.times[at..].partition_point(|known| known < time);
        if known.times.get(at) != Some(time) {
            return Ok(None);
        }
        // As when bars are merged: a missing number never replaces a known one, and others are compared as bits.
        let same = |(old, new): (&[f64], f64)| new.is_nan() || old[at].to_bits() == new.to_bits();
        if !known.columns.iter().map(|old| &old[..]).zip(new.columns.iter().map(|new| new[row])).all(same) {
            return Ok(None);
        }
    }
    if let Some(close) = manifest.columns.iter().position(|column| column == CLOSE) {
        let times = [&known.times[..], &new.times[later.known..]].concat();
        let closes = [&known.columns[close][..], &new.columns[close][later.known..]].concat();
        later.jumps = Some(find_jumps(&symbol.name, &times, &closes, symbol.first));
    }
    Ok(Some(later))
}

/// Writes the file; several groups are loaded side by side, as far as there is memory.
fn write(
    sink: &Sink,
    existing: &Dataset,
    imported: &Imported,
    later: &[Later<'_>],
    memory: u64,
    to: &mut AppendedBars,
) -> Result<(), MarketError> {
    let columns = &existing.manifest.columns;
    let width = VALUE_BYTES * (1 + columns.len() as u64);
    let names = later.iter().map(|later| &*later.symbol.name);
    let mut writer = TailWriter::new(sink, 0, columns, (names, to.counts.added))?;
    let mut groups = later.chunk_by(|a, b| a.group == b.group).peekable();
    while groups.peek().is_some() {
        let (mut wave, mut bytes) = (Vec::new(), 0);
        while let Some(group) = groups.next_if(|_| wave.is_empty() || bytes < memory) {
            bytes += 2 * width * group.iter().map(|later| later.symbol.bars as u64).sum::<u64>();
            wave.push(group);
        }
        let loaded = wave.into_par_iter().map(|group| load(existing, imported, group));
        for (group, bars, jumps) in loaded.collect::<Result<Vec<_>, MarketError>>()? {
            to.jumps.extend(jumps);
            for bars in &bars {
                if let (Some(first), Some(last)) = (bars.times.first(), bars.times.last()) {
                    (to.first, to.last) = (to.first.min(*first), to.last.max(*last));
                }
                writer.push(group, bars)?;
            }
        }
    }
    let (tail, times) = writer.finish()?;
    (to.tail, to.times) = (Some(tail), times);
    Ok(())
}

/// The new bars of the symbols of one group, and their jumps.
fn load(
    existing: &Dataset,
    imported: &Imported,
    later: &[Later<'_>],
) -> Result<(u32, Vec<SymbolBars>, Vec<Jump>), MarketError> {
    let columns = &existing.manifest.columns;
    let group = later.first().map_or(0, |later| later.group);
    let close = columns.iter().position(|column| column == CLOSE);
    let before = match close {
        Some(_) => {
            let places = later.iter().filter(|later| later.jumps.is_none()).filter_map(|later| later.place);
            existing.newest_values(group, CLOSE, &places.collect::<Vec<u32>>())?
        }
        None => BTreeMap::new(),
    };
    let (mut all, mut jumps) = (Vec::with_capacity(later.len()), Vec::new());
    for later in later {
        let mut bars = imported.load(later.symbol, columns)?;
        if later.known > 0 {
            bars.times.drain(..later.known);
            bars.columns.iter_mut().for_each(|column| drop(column.drain(..later.known)));
        }
        if let Some(closes) = close.filter(|_| later.jumps.is_none()).and_then(|close| bars.columns.get(close)) {
            let known = later.place.and_then(|place| before.get(&place));
            let times: Vec<TimeMicros> = known.iter().map(|known| known.0).chain(bars.times.iter().copied()).collect();
            let closes: Vec<f64> = known.iter().map(|known| known.1).chain(closes.iter().copied()).collect();
            jumps.extend(find_jumps(&bars.symbol, &times, &closes, later.symbol.first));
        }
        all.push(bars);
    }
    Ok((group, all, jumps))
}

impl AppendedBars {
    /// The snapshot of a dataset with these bars, which is not published yet, and how many files were written.
    ///
    /// # Errors
    /// [`MarketError::Checksum`], [`MarketError::Corrupt`] and [`MarketError::Io`].
    pub fn snapshot(
        &self,
        sink: &Sink,
        existing: &Dataset,
        heading: impl Fn() -> Heading,
    ) -> Result<(Dataset, u64), MarketError> {
        let Some((files, locks)) = sink.reads().zip(sink.locks()) else {
            return Err(MarketError::Refused("bars are not appended to a dataset in memory".to_owned()));
        };
        let old = &existing.manifest;
        let base = match existing.tails() {
            Some(tails) => Arc::clone(&tails.base),
            None => {
                sink.keep_base(&old.snapshot)?;
                Arc::clone(old)
            }
        };
        let mut tails = old.tails().to_vec();
        tails.extend(self.tail.clone());
        let times = unite(existing.times()?, &self.times).len() as u64;
        let bars = (old.bars + self.counts.added, self.first, self.last);
        let mut written = u64::from(self.tail.is_some());
        loop {
            let appended = Appended { base: base.snapshot.clone(), times, tails: tails.clone() };
            let manifest = assemble_appended(heading(), &base, bars, appended)?;
            let (manifest, opened) = complete(&files, manifest, Some(Arc::clone(&base)))?;
            let dataset = Dataset::new(Arc::new(manifest), files.clone());
            let dataset = dataset.with_tails(Some(opened));
            let count = levels::due(&tails);
            // What a compaction reads stays as it is until it has ended: files are merged by an append after that.
            let merging = if count > 0 { CompactionLock::take(&locks, &old.name).ok() } else { None };
            if merging.is_none() {
                return Ok((dataset, written));
            }
            let merged = levels::merge(&dataset, sink, count)?;
            tails.truncate(tails.len() - count);
            tails.push(merged);
            written += 1;
        }
    }
}
