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
use super::run::{Run, RunPlace, RunWriter};
use crate::error::MarketError;
use crate::limits::CLASSIFY_ROWS;
use crate::reading::{NewIds, RawRows, Receiver, SymbolIds};
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

/// Collects the rows of all files.
pub(super) struct RowSpool {
    state: Mutex<State>,
    /// Held while a run is written, so that memory does not fill up meanwhile.
    writing: Mutex<()>,
    /// Bytes of rows from which they are written to a run.
    bytes_max: u64,
    root: PathBuf,
}

impl RowSpool {
    /// Rows beyond `bytes_max` bytes go to files in `root`.
    pub fn new(root: &Path, bytes_max: u64) -> Self {
        Self { state: Mutex::default(), writing: Mutex::default(), bytes_max, root: root.to_path_buf() }
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
struct Stretch {
    file: usize,
    block: u32,
    /// The run, or `None` where they are in memory; and the place of the symbol's rows in it.
    run: Option<usize>,
    start: usize,
    rows: usize,
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
        let mut stretches = Vec::with_capacity(places.held.len());
        let file_of = |block: u32| self.of_pass[self.blocks[block as usize].pass as usize];
        for &(block, start, rows) in &places.held {
            let file = file_of(block);
            let of = |file| Stretch { file, block, run: None, start: start as usize, rows: rows as usize };
            stretches.extend(file.map(of));
        }
        let failed = |e| MarketError::io("read", "rows of an import")(e);
        let mut read = Vec::with_capacity(places.runs.len());
        for (at, place) in places.runs.iter().enumerate() {
            let run = &self.runs[place.run as usize];
            let values = if let Load::Values(_) = what { self.layouts[place.layout as usize].len() } else { 0 };
            let rows = run.read(place, values).map_err(failed)?;
            let mut start = 0;
            for part in rows.rows.chunk_by(|a, b| a.0 == b.0) {
                let block = part.first().map_or(0, |(block, _)| *block);
                let of = |file| Stretch { file, block, run: Some(at), start, rows: part.len() };
                stretches.extend(file_of(block).map(of));
                start += part.len();
            }
            read.push(rows);
        }
        // Blocks of a file are numbered in its order.
        stretches.sort_by_key(|s| (s.file, s.block));
        let total = stretches.iter().map(|s| s.rows).sum();
        let mut all =
            SymbolRows { local: Vec::with_capacity(total), offset: Vec::with_capacity(total), ..SymbolRows::default() };
        if let Load::Values(columns) = what {
            all.values = columns.iter().map(|_| Vec::with_capacity(total)).collect();
        }
        for Stretch { file, block, run, start, rows } in stretches {
            let range = start..start + rows;
            let before = all.local.len();
            match all.files.last_mut() {
                Some((last, known)) if *last == file => known.end += rows,
                _ => all.files.push((file, before..before + rows)),
            }
            let (layout, values) = match run {
                Some(run) => {
                    let (place, from) = (&places.runs[run], &read[run]);
                    all.local.extend_from_slice(&from.local[range.clone()]);
                    all.offset.extend_from_slice(&from.offset[range.clone()]);
                    if what == Load::Rows {
                        all.rows.extend_from_slice(&from.rows[range.clone()]);
                    }
                    (place.layout, &from.values)
                }
                None => {
                    let Some((layout, from)) = &self.held[block as usize] else { continue };
                    all.local.extend_from_slice(&from.local[range.clone()]);
                    from.offset.copy(start, rows, &mut all.offset);
                    if what == Load::Rows {
                        all.rows.extend(range.clone().map(|place| (block, from.number(place))));
                    }
                    (*layout, &from.values)
                }
            };
            let Load::Values(columns) = what else { continue };
            let own = &self.layouts[layout as usize];
            for ((at, column), to) in columns.iter().enumerate().zip(&mut all.values) {
                // Usually in the same place.
                let from = if own.get(at) == Some(column) { Some(at) } else { own.iter().position(|c| c == column) };
                match from.and_then(|from| values.get(from)) {
                    Some(values) => to.extend_from_slice(&values[range.clone()]),
                    None => to.resize(to.len() + rows, f64::NAN),
                }
            }
        }
        Ok(all)
    }
}
