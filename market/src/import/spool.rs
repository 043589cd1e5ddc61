//! The rows of an import, found by symbol: in memory as long as they fit, otherwise in runs, sorted by symbol, in files
//! without a name beside the datasets. Such a file goes away with the process, however that ends, so that an import that
//! was killed leaves nothing behind.
//!
//! What needs all rows of a symbol asks for them once all files are read: the rows of each file in the file's order, files in
//! theirs, wherever they are. So the result does not depend on how much memory there is, nor on the number of threads.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

use super::block::{Block, BlockFacts, BlockRows};
use super::run::{Run, RunPlace, RunRows, RunWriter};
use crate::error::MarketError;
use crate::limits::CLASSIFY_ROWS;
use crate::reading::{NewIds, Numbered, RawRows, Receiver, SymbolIds};
use crate::time::TimeMicros;

/// Where rows of a symbol are in memory: block, first row, rows.
type HeldPlace = (u32, u32, u32);

/// Where the rows of a symbol are.
#[derive(Default)]
struct Places {
    held: Vec<HeldPlace>,
    runs: Vec<RunPlace>,
}

#[derive(Default)]
struct State {
    symbols: SymbolIds,
    /// By symbol.
    places: Vec<Places>,
    /// By block.
    blocks: Vec<BlockFacts>,
    /// By block; `None` once its rows are in a run.
    held: Vec<Option<(u32, Arc<BlockRows>)>>,
    /// Different lists of columns.
    layouts: Vec<Vec<String>>,
    runs: Vec<Run>,
    /// Bytes of what is held.
    bytes: u64,
    /// Readings of files so far.
    passes: u32,
}

/// Symbols that rows of a file were numbered with, and by their ids in the file those in the import.
#[derive(Default)]
struct Numbering {
    symbols: SymbolIds,
    ids: Vec<u32>,
}

/// Collects the rows of all files.
pub(super) struct RowSpool {
    state: Mutex<State>,
    /// Of files that were read, for the next ones: a file of all symbols of a day has mostly those of the day before, in their
    /// order. Which file has which depends on threads, and shows nowhere: ids only say which rows have the same symbol.
    numberings: Mutex<Vec<Numbering>>,
    /// Held while a run is written, so that memory does not fill up meanwhile.
    writing: Mutex<()>,
    /// Bytes of rows from which they are written to a run.
    bytes_max: u64,
    root: PathBuf,
}

impl RowSpool {
    /// Rows beyond `bytes_max` bytes go to files in `root`.
    pub fn new(root: &Path, bytes_max: u64) -> Self {
        let root = root.to_path_buf();
        Self { state: Mutex::default(), numberings: Mutex::default(), writing: Mutex::default(), bytes_max, root }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the rows of one file.
    pub fn file(&self) -> FileRows<'_> {
        FileRows { spool: self, pass: 0, ids: Vec::new(), head: Vec::new(), naive: 0 }
    }

    /// Writes the rows that are held to a run, if they are too many.
    fn relieve(&self) -> Result<(), MarketError> {
        if self.state().bytes <= self.bytes_max {
            return Ok(());
        }
        // No work of other threads is waited for under this lock.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (layouts, held, places) = {
            let mut state = self.state();
            // Another thread has written them meanwhile.
            if state.bytes <= self.bytes_max {
                return Ok(());
            }
            state.bytes = 0;
            let held: Vec<_> = state.held.iter_mut().map(Option::take).collect();
            let places: Vec<Vec<HeldPlace>> = state.places.iter_mut().map(|p| std::mem::take(&mut p.held)).collect();
            (state.layouts.clone(), held, places)
        };
        let shown = "rows of an import".to_owned();
        fs::create_dir_all(&self.root).map_err(MarketError::io("write", &shown))?;
        let file = tempfile::tempfile_in(&self.root).map_err(MarketError::io("write", &shown))?;
        let written = Self::write(&file, &layouts, &held, places).map_err(MarketError::io("write", &shown))?;
        drop(held);
        let mut state = self.state();
        let run = state.runs.len() as u32;
        state.runs.push(Run::new(file));
        for (symbol, mut place) in written {
            place.run = run;
            state.places[symbol].runs.push(place);
        }
        Ok(())
    }

    /// Writes rows sorted by symbol; returns where those of each symbol are.
    fn write(
        file: &File,
        layouts: &[Vec<String>],
        held: &[Option<(u32, Arc<BlockRows>)>],
        places: Vec<Vec<HeldPlace>>,
    ) -> std::io::Result<Vec<(usize, RunPlace)>> {
        let mut writer = RunWriter::new(file);
        let mut written = Vec::new();
        for (symbol, places) in places.into_iter().enumerate().filter(|(_, places)| !places.is_empty()) {
            let rows_of = |block: u32| held.get(block as usize).and_then(Option::as_ref);
            for (layout, columns) in (0u32..).zip(layouts) {
                let parts = places.iter().filter_map(|(block, start, rows)| {
                    let (own, source) = rows_of(*block)?;
                    (*own == layout).then_some((*block, &**source, *start as usize..(*start + *rows) as usize))
                });
                let parts: Vec<(u32, &BlockRows, Range<usize>)> = parts.collect();
                if !parts.is_empty() {
                    written.push((symbol, writer.write(&parts, layout, columns.len())?));
                }
            }
        }
        writer.finish()?;
        Ok(written)
    }

    /// Ends the collecting. `files` has for each reading of a file the place of the file among those of the import, `None`
    /// for rows that are void.
    pub fn finish(self, files: impl IntoIterator<Item = (u32, usize)>) -> Spooled {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let State { symbols, places, blocks, held, layouts, runs, passes, .. } = state;
        let mut of_pass = vec![None; passes as usize];
        for (pass, file) in files {
            if let Some(of) = of_pass.get_mut(pass as usize) {
                *of = Some(file);
            }
        }
        Spooled { symbols: symbols.into_names(), places, blocks, held, layouts, runs, of_pass }
    }
}

/// The rows of one file on their way into the spool.
pub(super) struct FileRows<'s> {
    spool: &'s RowSpool,
    /// The current reading of the file.
    pub pass: u32,
    /// By id in the file: the id in the import.
    ids: Vec<u32>,
    /// The first rows: id in the file, local time, offset.
    pub head: Vec<(u32, TimeMicros, i32)>,
    /// Rows with a time without a zone.
    pub naive: u64,
}

impl FileRows<'_> {
    /// The file was read: the next one may begin with its numbering.
    pub fn ended(&mut self, symbols: Numbered) {
        // Each piece of a file costs a little for each symbol that is known.
        if symbols.met >= symbols.ids.len().div_ceil(2) {
            let numbering = Numbering { symbols: symbols.ids, ids: std::mem::take(&mut self.ids) };
            self.spool.numberings.lock().unwrap_or_else(PoisonError::into_inner).push(numbering);
        }
    }
}

impl Receiver for FileRows<'_> {
    type Ready = Block;

    fn begin(&mut self) {
        let mut state = self.spool.state();
        self.pass = state.passes;
        state.passes += 1;
        drop(state);
        self.ids.clear();
        self.head.clear();
        self.naive = 0;
    }

    fn known(&mut self) -> SymbolIds {
        let before = self.spool.numberings.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Numbering { symbols, ids } = before.unwrap_or_default();
        self.ids = ids;
        symbols
    }

    fn ready(&self, rows: RawRows) -> Block {
        Block::of(rows)
    }

    fn take(
        &mut self,
        block: Block,
        columns: &[String],
        new: &NewIds,
        symbols: &[Arc<str>],
    ) -> Result<(), MarketError> {
        let Block { mut facts, rows, symbols: places, head } = block;
        let missing = CLASSIFY_ROWS - self.head.len().min(CLASSIFY_ROWS);
        self.head.extend(head.into_iter().take(missing).map(|(id, local, offset)| (new.of(id), local, offset)));
        (facts.pass, facts.naive_before) = (self.pass, self.naive);
        self.naive += facts.naive_rows();
        if facts.rows == 0 {
            return Ok(());
        }
        let mut state = self.spool.state();
        let state_ref = &mut *state;
        self.ids.extend(symbols.iter().skip(self.ids.len()).map(|name| state_ref.symbols.id(name)));
        state_ref.places.resize_with(state_ref.symbols.len(), Places::default);
        let layout = match state_ref.layouts.iter().position(|known| known == columns) {
            Some(known) => known,
            None => {
                state_ref.layouts.push(columns.to_vec());
                state_ref.layouts.len() - 1
            }
        };
        // There are fewer blocks and layouts than 2^32: each takes more memory than a byte.
        let id = state_ref.blocks.len() as u32;
        for (symbol, start, rows) in &places {
            let symbol = self.ids[new.of(*symbol) as usize];
            state_ref.places[symbol as usize].held.push((id, *start, *rows));
        }
        state_ref.bytes += facts.bytes() + rows.bytes() + (places.len() * size_of::<HeldPlace>()) as u64;
        state_ref.blocks.push(facts);
        state_ref.held.push(Some((layout as u32, Arc::new(rows))));
        drop(state);
        self.spool.relieve()
    }
}

/// The rows of all files of an import.
pub(super) struct Spooled {
    /// By id.
    pub symbols: Vec<Arc<str>>,
    places: Vec<Places>,
    blocks: Vec<BlockFacts>,
    held: Vec<Option<(u32, Arc<BlockRows>)>>,
    layouts: Vec<Vec<String>>,
    runs: Vec<Run>,
    of_pass: Vec<Option<usize>>,
}

/// What to load of the rows of a symbol besides their times.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Load<'a> {
    Times,
    /// Also which rows of which blocks they are.
    Rows,
    /// Also the values of these columns.
    Values(&'a [String]),
}

/// The rows of one symbol: file by file, those of a file in its order.
#[derive(Default)]
pub(super) struct SymbolRows {
    /// Place of a file among those of the import, and its rows.
    pub files: Vec<(usize, Range<usize>)>,
    pub local: Vec<TimeMicros>,
    pub offset: Vec<i32>,
    /// With [`Load::Rows`]: block, and number in the block.
    pub rows: Vec<(u32, u32)>,
    /// With [`Load::Values`]: by column, then by row; NaN where missing.
    pub values: Vec<Vec<f64>>,
}

/// Consecutive rows of one block.
struct Stretch<'a> {
    file: usize,
    block: u32,
    holder: Holder<'a>,
    /// Index of the list of columns.
    layout: u32,
    /// Places among the rows of the holder.
    range: Range<usize>,
}

/// What has the rows of a stretch.
#[derive(Clone, Copy)]
enum Holder<'a> {
    Block(&'a BlockRows),
    Run(&'a RunRows),
}

/// Adds some values. One alone, as of a file that has all symbols of a day, is no call.
#[inline]
fn add<T: Copy>(to: &mut Vec<T>, from: &[T], range: &Range<usize>) {
    match (range.len(), from.get(range.start)) {
        (1, Some(value)) => to.push(*value),
        _ => to.extend_from_slice(&from[range.clone()]),
    }
}

impl Spooled {
    /// Whether all rows are in memory.
    pub fn is_held(&self) -> bool {
        self.runs.is_empty()
    }

    /// The line of a row, by block and number.
    pub fn line(&self, (block, row): (u32, u32)) -> u64 {
        self.blocks[block as usize].line(row)
    }

    /// How many rows of its file without a zone come before this one; `None` if it has a zone.
    pub fn naive_rank(&self, (block, row): (u32, u32)) -> Option<u64> {
        self.blocks[block as usize].naive_rank(row)
    }

    /// What is found in the rows of each symbol, by name.
    ///
    /// # Errors
    /// Those of [`Spooled::load`].
    pub fn scan<T: Send>(
        &self,
        what: Load<'_>,
        found: impl Fn(&SymbolRows) -> T + Sync,
    ) -> Result<Vec<T>, MarketError> {
        let mut ids: Vec<usize> = (0..self.symbols.len()).collect();
        ids.sort_by(|a, b| self.symbols[*a].cmp(&self.symbols[*b]));
        ids.into_par_iter().map(|id| self.load(id, what).map(|rows| found(&rows))).collect()
    }

    /// The rows of a symbol.
    ///
    /// # Errors
    /// [`MarketError::Io`] where they are in a file that cannot be read.
    pub fn load(&self, symbol: usize, what: Load<'_>) -> Result<SymbolRows, MarketError> {
        let places = &self.places[symbol];
        let file_of = |block: u32| self.of_pass[self.blocks[block as usize].pass as usize];
        let failed = |e| MarketError::io("read", "rows of an import")(e);
        let mut read = Vec::with_capacity(places.runs.len());
        for place in &places.runs {
            let run = &self.runs[place.run as usize];
            let values = if let Load::Values(_) = what { self.layouts[place.layout as usize].len() } else { 0 };
            read.push((place.layout, run.read(place, values).map_err(failed)?));
        }
        let mut stretches = Vec::with_capacity(places.held.len());
        for &(block, start, rows) in &places.held {
            if let (Some(file), Some((layout, from))) = (file_of(block), &self.held[block as usize]) {
                let range = start as usize..(start + rows) as usize;
                stretches.push(Stretch { file, block, holder: Holder::Block(from), layout: *layout, range });
            }
        }
        for (layout, from) in &read {
            let mut start = 0;
            for part in from.rows.chunk_by(|a, b| a.0 == b.0) {
                let block = part.first().map_or(0, |(block, _)| *block);
                let range = start..start + part.len();
                let of = |file| Stretch { file, block, holder: Holder::Run(from), layout: *layout, range };
                stretches.extend(file_of(block).map(of));
                start += part.len();
            }
        }
        // Blocks of a file are numbered in its order.
        stretches.sort_by_key(|s| (s.file, s.block));
        let total = stretches.iter().map(|s| s.range.len()).sum();
        let mut all =
            SymbolRows { local: Vec::with_capacity(total), offset: Vec::with_capacity(total), ..SymbolRows::default() };
        for stretch in &stretches {
            let before = all.local.len();
            match stretch.holder {
                Holder::Block(from) => {
                    add(&mut all.local, &from.local, &stretch.range);
                    from.offset.copy(stretch.range.start, stretch.range.len(), &mut all.offset);
                }
                Holder::Run(from) => {
                    add(&mut all.local, &from.local, &stretch.range);
                    add(&mut all.offset, &from.offset, &stretch.range);
                }
            }
            match all.files.last_mut() {
                Some((last, known)) if *last == stretch.file => known.end = all.local.len(),
                _ => all.files.push((stretch.file, before..all.local.len())),
            }
        }
        match what {
            Load::Times => {}
            Load::Rows => {
                for Stretch { block, holder, range, .. } in &stretches {
                    match holder {
                        Holder::Block(from) => all.rows.extend(range.clone().map(|at| (*block, from.number(at)))),
                        Holder::Run(from) => add(&mut all.rows, &from.rows, range),
                    }
                }
            }
            // Column by column, so that the memory of many blocks is waited for at once.
            Load::Values(columns) => {
                all.values = columns.iter().map(|name| self.column(name, &stretches, total)).collect()
            }
        }
        Ok(all)
    }

    /// A column of some rows; NaN where a file does not have it.
    fn column(&self, name: &String, stretches: &[Stretch<'_>], total: usize) -> Vec<f64> {
        let places: Vec<_> = self.layouts.iter().map(|own| own.iter().position(|column| column == name)).collect();
        let mut all = Vec::with_capacity(total);
        for Stretch { holder, layout, range, .. } in stretches {
            let values = match holder {
                Holder::Block(from) => &from.values,
                Holder::Run(from) => &from.values,
            };
            match places[*layout as usize].and_then(|place| values.get(place)) {
                Some(values) => add(&mut all, values, range),
                None => all.resize(all.len() + range.len(), f64::NAN),
            }
        }
        all
    }
}
