//! Symbols whose state stays in memory: each new bar updates every output incrementally.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::cpu::{Course, Cut, LANES, Lane, ResidentTile, Scratch, Source, Tile, Workspace};
use crate::{Cancel, Cancelled, Executable, SymbolInput, chunks};

/// Tiles that a thread takes at a time: few, so that all threads finish at about the same time.
const TILES_TOGETHER: usize = 4;

/// Why a push of bars was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResidentError {
    /// The number of columns is not that of the program's inputs.
    #[error("{found} columns of new bars where the program reads {expected}")]
    Columns {
        /// Columns given.
        found: usize,
        /// Columns that the program reads.
        expected: usize,
    },
    /// A column has not one value for each symbol.
    #[error("{found} values of new bars for {expected} symbols")]
    Symbols {
        /// Values given.
        found: usize,
        /// Symbols of the state.
        expected: usize,
    },
}

/// The state of a program over many symbols, as of the last bar of each.
///
/// Its values are those of [`crate::evaluate_last`] over the whole histories, bit for bit. They do not depend on which
/// symbols share a tile or on the number of threads.
pub struct Resident {
    executable: Executable,
    tiles: Vec<ResidentTile>,
    /// Per symbol: tile and lane.
    places: Vec<(usize, usize)>,
}

impl Resident {
    /// Runs the program in `f64` over the visible bars of `symbols` and keeps the state needed to continue, on the
    /// threads of the current rayon pool. Symbols are identified by their index in `symbols`.
    ///
    /// # Errors
    /// [`Cancelled`].
    pub fn new(executable: &Executable, symbols: &[SymbolInput<'_>], cancel: &dyn Cancel) -> Result<Self, Cancelled> {
        let layout = executable.resident_layout();
        let chunks: Vec<Vec<usize>> = chunks(symbols).collect();
        let lanes: Vec<Vec<Lane<f64>>> = chunks
            .par_iter()
            .map_init(
                || Workspace::resident(executable.schedule()),
                |w, chunk| ran(executable, w, symbols, chunk, cancel),
            )
            .collect::<Result<_, _>>()?;
        let mut pools: BTreeMap<usize, Vec<Lane<f64>>> = BTreeMap::new();
        for lane in lanes.into_iter().flatten() {
            pools.entry(layout.class(lane.bars)).or_default().push(lane);
        }
        let mut resident =
            Self { executable: executable.clone(), tiles: Vec::new(), places: vec![(0, 0); symbols.len()] };
        pools.into_values().for_each(|pool| resident.seat(pool));
        resident.find_places();
        Ok(resident)
    }

    /// Adds one bar to every symbol whose `present` flag is set (`None`: to all symbols), on the threads of the current
    /// rayon pool. `columns[input][symbol]`, inputs in the order of the program, NaN for NA. The other symbols keep
    /// their values.
    ///
    /// # Errors
    /// [`ResidentError`]; the state is then unchanged.
    pub fn push(&mut self, columns: &[&[f64]], present: Option<&[bool]>) -> Result<(), ResidentError> {
        self.check(columns, present)?;
        let (layout, advances) = self.parted(present);
        self.tiles.par_iter_mut().with_min_len(TILES_TOGETHER).for_each_init(
            || Scratch::new(layout.resident_layout()),
            |scratch, tile| {
                if advances(tile) {
                    tile.push(layout.resident_layout(), scratch, columns);
                }
            },
        );
        Ok(())
    }

    /// As [`Self::push`], on the calling thread alone.
    ///
    /// # Errors
    /// [`ResidentError`]; the state is then unchanged.
    pub fn push_sequentially(&mut self, columns: &[&[f64]], present: Option<&[bool]>) -> Result<(), ResidentError> {
        self.check(columns, present)?;
        let (layout, advances) = self.parted(present);
        let mut scratch = Scratch::new(layout.resident_layout());
        for tile in self.tiles.iter_mut().filter(|tile| advances(tile)) {
            tile.push(layout.resident_layout(), &mut scratch, columns);
        }
        Ok(())
    }

    /// Whether bars of this shape can be added.
    ///
    /// # Errors
    /// [`ResidentError`].
    pub(crate) fn check(&self, columns: &[&[f64]], present: Option<&[bool]>) -> Result<(), ResidentError> {
        let expected = self.places.len();
        let inputs = self.executable.inputs.len();
        if columns.len() != inputs {
            return Err(ResidentError::Columns { found: columns.len(), expected: inputs });
        }
        let counts = columns.iter().map(|c| c.len()).chain(present.map(<[bool]>::len));
        match counts.into_iter().find(|found| *found != expected) {
            Some(found) => Err(ResidentError::Symbols { found, expected }),
            None => Ok(()),
        }
    }

    /// Separates symbols with a new bar from those without one; returns what tiles are laid out by, and which of them advance.
    fn parted<'a>(
        &mut self,
        present: Option<&'a [bool]>,
    ) -> (Executable, impl Fn(&ResidentTile) -> bool + Sync + use<'a>) {
        if let Some(present) = present {
            self.part(present);
        }
        let advances =
            move |tile: &ResidentTile| tile.symbols().next().is_some_and(|(_, s)| present.is_none_or(|p| p[s]));
        (self.executable.clone(), advances)
    }

    /// The value of an output at a symbol's last bar; NaN for a symbol without bars.
    pub fn value(&self, symbol: usize, output: usize) -> f64 {
        let (tile, lane) = self.places[symbol];
        self.tiles[tile].value(self.executable.resident_layout(), output, lane)
    }

    /// Number of outputs per symbol.
    pub fn outputs(&self) -> usize {
        self.executable.outputs.len()
    }

    /// Number of bars seen by a symbol.
    pub fn bars(&self, symbol: usize) -> usize {
        let (tile, lane) = self.places[symbol];
        self.tiles[tile].bars(lane)
    }

    /// Number of tiles in use.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// Bytes of the stored series; the private state of the steps takes about as much again.
    pub fn bytes(&self) -> usize {
        self.tiles.iter().map(ResidentTile::bytes).sum()
    }

    /// Separates symbols with a new bar from symbols without one into different tiles: window blocks begin at fixed bar
    /// numbers, so all lanes of a tile must be at the same bar number.
    fn part(&mut self, present: &[bool]) {
        let Self { executable, tiles, .. } = self;
        let layout = executable.resident_layout();
        let mut pools: BTreeMap<(usize, bool), Vec<Lane<f64>>> = BTreeMap::new();
        for tile in tiles.iter_mut() {
            let (there, absent): (Vec<_>, Vec<_>) = tile.symbols().partition(|(_, symbol)| present[*symbol]);
            if there.is_empty() || absent.is_empty() {
                continue;
            }
            let (fewer, has_bar) = if there.len() < absent.len() { (there, true) } else { (absent, false) };
            let pool = pools.entry((tile.class(layout), has_bar)).or_default();
            pool.extend(fewer.into_iter().filter_map(|(at, _)| tile.take(layout, at)));
        }
        if pools.is_empty() {
            return;
        }
        // Fill tiles that have free lanes, which bounds the number of tiles.
        for tile in tiles.iter_mut() {
            let seated: Vec<(usize, usize)> = tile.symbols().collect();
            let has_bar = seated.first().is_some_and(|(_, symbol)| present[*symbol]);
            let pool = pools.get_mut(&(tile.class(layout), has_bar));
            if let Some(pool) = pool.filter(|_| seated.len() < LANES) {
                pool.extend(seated.into_iter().filter_map(|(at, _)| tile.take(layout, at)));
            }
        }
        tiles.retain(|tile| tile.symbols().next().is_some());
        pools.into_values().for_each(|pool| self.seat(pool));
        self.find_places();
    }

    /// Packs lanes of one class into tiles.
    fn seat(&mut self, mut pool: Vec<Lane<f64>>) {
        pool.sort_by_key(|lane| lane.symbol);
        while !pool.is_empty() {
            let rest = pool.split_off(pool.len().min(LANES));
            self.tiles.push(ResidentTile::new(self.executable.resident_layout(), std::mem::replace(&mut pool, rest)));
        }
    }

    fn find_places(&mut self) {
        for (at, tile) in self.tiles.iter().enumerate() {
            tile.symbols().for_each(|(lane, symbol)| self.places[symbol] = (at, lane));
        }
    }
}

/// Runs symbols to their last bar and extracts their lanes.
fn ran(
    executable: &Executable,
    workspace: &mut Workspace<'_>,
    symbols: &[SymbolInput<'_>],
    chunk: &[usize],
    cancel: &dyn Cancel,
) -> Result<Vec<Lane<f64>>, Cancelled> {
    let layout = executable.resident_layout();
    let inputs: Vec<&SymbolInput<'_>> = chunk.iter().map(|&i| &symbols[i]).collect();
    let columns: Vec<usize> = (0..executable.inputs.len()).collect();
    let tile = Tile::load(&inputs, vec![0; columns.len()]);
    let tasks = executable.schedule().tasks.tasks.len();
    let ends = || {
        let mut ends: Vec<Cut> = Vec::new();
        ends.extend(inputs.iter().enumerate().map(|(lane, input)| Cut { bar: input.visible, lane, words: None }));
        ends.sort_by_key(|cut| cut.bar);
        ends
    };
    let cuts = (0..tasks).map(|_| ends()).collect();
    let take =
        |w: &Workspace<'_>, lane: usize| layout.lane(w, lane, chunk[lane], &inputs[lane].columns, inputs[lane].visible);
    let mut lanes: Vec<Option<Lane<f64>>> = Vec::new();
    lanes.resize_with(chunk.len(), || None);
    let course = Course { wanted_from: 0, begins: vec![0; tasks], read: vec![0; tasks], cuts };
    let saved = workspace.run_course(Source::Tile { tile: &tile, columns: &columns }, course, cancel, |w, strip| {
        for (at, lane) in lanes.iter_mut().enumerate() {
            if inputs[at].visible.checked_sub(1).is_some_and(|last| strip.contains(&last)) {
                *lane = Some(take(w, at));
            }
        }
    })?;
    let whole = |(at, lane): (usize, Option<Lane<f64>>)| {
        let mut lane = lane.unwrap_or_else(|| take(workspace, at));
        lane.words = saved.iter().flatten().filter(|(l, _)| *l == at).flat_map(|(_, words)| words).copied().collect();
        lane
    };
    Ok(lanes.into_iter().enumerate().map(whole).collect())
}
