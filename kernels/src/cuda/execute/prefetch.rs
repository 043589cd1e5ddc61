//! Bars brought to a device before a request asks for them: at low priority, one buffer at a time, and only into memory
//! that nothing else is cached in. What is brought and then read hides a copy; what is not read was in vain, and too much
//! of it turns prefetching off for a while.
//!
//! No value depends on it: bars are cached under the key under which a request looks for them.

use std::sync::{Arc, PoisonError};

use trawl_plan::Input;

use crate::cuda::codegen::number::row_bytes;
use crate::cuda::device::arguments::{GROUP_LANES, Market};
use crate::cuda::device::memory_mode::MemoryMode;
use crate::cuda::device::{Fault, Urgency};
use crate::cuda::execute::cells::{lay, row_cells};
use crate::cuda::execute::column_cache::ColumnKey;
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::fleet::Fleet;
use crate::cuda::execute::paying::Prefetches;
use crate::cuda::execute::request::{RequestPart, keys_of};
use crate::{Cancel, Executable, SymbolInput};

/// A group of symbols of a part, as a request will look for it.
struct Wanted<'a> {
    symbols: Vec<SymbolInput<'a>>,
    /// Columns that are not on the device, and their keys.
    columns: Vec<(usize, ColumnKey)>,
    /// Bytes of a column.
    bytes: u64,
}

impl Executor {
    /// Brings the bars of these parts to the device, as far as they are not there, there is room, and `cancel` allows it; the bytes
    /// that were brought. Evicts nothing.
    ///
    /// # Errors
    /// [`Fault::Lost`] and [`Fault::Failed`]; lack of memory is none.
    pub fn prefetch(&self, program: &Executable, parts: &[RequestPart<'_>], cancel: &dyn Cancel) -> Result<u64, Fault> {
        // Coherent bars are read where they are.
        let is_copied = self.placement.mode() != MemoryMode::Coherent;
        if !self.options.prefetch || !is_copied || self.lost().is_some() {
            return Ok(0);
        }
        if !self.paying.is_on(self.resident.read_bytes()) {
            return Ok(0);
        }
        let done = self.bring(program, parts, cancel);
        if let Err(fault) = &done {
            self.notice(fault);
        }
        done
    }

    fn bring(&self, program: &Executable, parts: &[RequestPart<'_>], cancel: &dyn Cancel) -> Result<u64, Fault> {
        let mut brought = 0;
        for part in parts {
            for group in self.wanted_of(program, part) {
                let Wanted { symbols, columns, bytes } = group;
                for (column, key) in columns {
                    if cancel.cancelled() || !self.resident.has_room(bytes) {
                        return Ok(brought);
                    }
                    match self.bring_column(program, &symbols, column, key) {
                        Ok(()) => {}
                        // A request needs it more.
                        Err(Fault::OutOfMemory { .. }) => return Ok(brought),
                        Err(fault) => return Err(fault),
                    }
                    brought += bytes;
                    self.paying.brought(bytes);
                }
            }
        }
        Ok(brought)
    }

    fn wanted_of<'a>(&self, program: &Executable, part: &RequestPart<'a>) -> Vec<Wanted<'a>> {
        let mut order: Vec<usize> = (0..part.symbols.len()).filter(|i| part.symbols[*i].visible > 0).collect();
        order.sort_by_key(|i| part.symbols[*i].visible);
        let precision = program.precision();
        let wanted = |members: &[usize]| {
            let keys = keys_of(program, precision, part, members);
            let is_column = |input: &Input| matches!(input, Input::Column(_));
            let missing = keys.into_iter().zip(&program.inputs).enumerate().filter_map(|(column, (key, input))| {
                let key = key.filter(|key| is_column(input) && !self.resident.has(key))?;
                Some((column, key))
            });
            let rows = members.last().map_or(0, |i| part.symbols[*i].visible);
            Wanted {
                symbols: members.iter().map(|i| part.symbols[*i].clone()).collect(),
                columns: missing.collect(),
                bytes: (rows * row_bytes(precision)) as u64,
            }
        };
        order.chunks(GROUP_LANES).map(wanted).collect()
    }

    /// Brings one column of a group, and waits for it: a request's copies wait for no more than one.
    fn bring_column(
        &self,
        program: &Executable,
        symbols: &[SymbolInput<'_>],
        column: usize,
        key: ColumnKey,
    ) -> Result<(), Fault> {
        let Some(mut lent) = self.pool.lend(Urgency::Prefetch, true)? else { return Ok(()) };
        let market = Market::of_groups(std::iter::once(symbols));
        let precision = program.precision();
        let cells = market.rows() * row_cells(precision);
        let mut fill = |first: usize, to: &mut [u64]| lay(&market, symbols, (column, precision), first, to);
        let placed = self.placement.place(&mut lent, cells, &mut fill);
        // The track's buffers are free again, whatever came of it.
        let settled = lent.settle();
        let (held, _) = placed?;
        settled?;
        self.resident.keep_prefetched(key, &Arc::new(held));
        Ok(())
    }

    /// What prefetching did so far.
    pub fn prefetches(&self) -> Prefetches {
        let (brought_bytes, left_out) = self.paying.so_far();
        let (read_bytes, copied_bytes) = (self.resident.read_bytes(), self.resident.copied_bytes());
        Prefetches { brought_bytes, read_bytes, copied_bytes, left_out }
    }
}

impl Fleet {
    /// As [`Executor::prefetch`], of each part on the device that is its first choice; the bytes that were brought. Faults are
    /// left to the request that needs the bars.
    pub fn prefetch(&self, program: &Executable, parts: &[RequestPart<'_>], cancel: &dyn Cancel) -> u64 {
        let first = |part: &RequestPart<'_>| self.ranked(part.source.as_ref()).first().copied();
        let known = parts.iter().filter(|part| part.source.is_some());
        let placed = known.filter_map(|part| Some((first(part)?, std::slice::from_ref(part))));
        placed.map(|(at, part)| self.executors[at].prefetch(program, part, cancel).unwrap_or(0)).sum()
    }

    /// What prefetching did so far, on all devices together.
    pub fn prefetches(&self) -> Prefetches {
        self.executors.iter().map(Executor::prefetches).fold(Prefetches::default(), Prefetches::plus)
    }

    /// What it did since this was called last.
    pub fn take_prefetches(&self) -> Prefetches {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.prefetches();
        now.minus(std::mem::replace(&mut *taken, now))
    }
}
