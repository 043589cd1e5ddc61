//! Bars brought to a device before a request asks for them: at low priority, one buffer at a time, and only into memory
//! that nothing else is cached in, or something that is superseded. What is brought and then read hides a copy; what is not
//! read was in vain, and too much of it turns prefetching off for a while.
//!
//! No value depends on it: bars are cached under the key under which a request looks for them.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use trawl_plan::Input;

use crate::cuda::codegen::number::row_bytes;
use crate::cuda::device::arguments::{Laid, Market};
use crate::cuda::device::memory_mode::MemoryMode;
use crate::cuda::device::{Fault, Urgency};
use crate::cuda::execute::column_cache::{Brought, ColumnKey};
use crate::cuda::execute::device_laying::Laying;
use crate::cuda::execute::device_queue::Executor;
use crate::cuda::execute::fleet::Fleet;
use crate::cuda::execute::paying::Prefetches;
use crate::cuda::execute::policy::Lowering;
use crate::cuda::execute::request::{RequestPart, keys_of};
use crate::{Cancel, Executable, SymbolInput};

/// For what bars are brought.
#[derive(Clone, Copy)]
pub enum Ahead<'a> {
    /// The next call of a shard that is being computed: off for a while if too little of it is read.
    NextCall,
    /// Scans that are expected. Whether that pays decides who brings them, by [`Fleet::end_round`].
    Expected {
        /// Numbers what is brought together.
        round: u64,
        /// Whether bars of a source may be evicted for these: nobody is expected to read them again.
        is_superseded: &'a dyn Fn(&str) -> bool,
    },
}

/// A group of symbols of a part, as a request will look for it.
struct Wanted<'a> {
    symbols: Vec<SymbolInput<'a>>,
    /// Which bars its columns hold.
    holds: Laid,
    /// Columns that are not on the device, and their keys.
    columns: Vec<(usize, ColumnKey)>,
    /// Bytes of a column.
    bytes: u64,
}

impl Executor {
    /// Brings the bars of these parts to the device, as far as they are not there, there is room, and `cancel` allows it; the bytes
    /// that were brought. Evicts nothing but what is superseded.
    ///
    /// # Errors
    /// [`Fault::Lost`] and [`Fault::Failed`]; lack of memory is none.
    pub fn prefetch(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        ahead: Ahead<'_>,
        cancel: &dyn Cancel,
    ) -> Result<u64, Fault> {
        // Over a coherent link the first scan reads bars where the host has them.
        let is_copied = self.placement.mode() != MemoryMode::Coherent;
        if !self.options.prefetch || !is_copied || self.lost().is_some() {
            return Ok(0);
        }
        if matches!(ahead, Ahead::NextCall) && !self.paying.is_on(self.resident.read_next_bytes()) {
            return Ok(0);
        }
        let done = self.bring(program, parts, ahead, cancel);
        if let Err(fault) = &done {
            self.notice(fault);
        }
        done
    }

    fn bring(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        ahead: Ahead<'_>,
        cancel: &dyn Cancel,
    ) -> Result<u64, Fault> {
        // The CPU computes what has no kernels.
        let Ok(sequence) = program.sequence(Lowering::Serial) else { return Ok(0) };
        let (read, mut brought) = (sequence.uses().columns, 0);
        // What the host lacks it cannot bring.
        for part in parts.iter().filter(|part| !part.is_unread()) {
            for group in self.wanted_of(program, &read, part) {
                let Wanted { symbols, holds, columns, bytes } = group;
                for (column, key) in columns {
                    if cancel.cancelled() || !self.makes_room(bytes, ahead) {
                        return Ok(brought);
                    }
                    match self.bring_column(program, (&symbols, holds), (column, key), ahead) {
                        Ok(()) => {}
                        // A request needs it more.
                        Err(Fault::OutOfMemory { .. }) => return Ok(brought),
                        Err(fault) => return Err(fault),
                    }
                    brought += bytes;
                    self.paying.brought(bytes, matches!(ahead, Ahead::NextCall));
                }
            }
        }
        Ok(brought)
    }

    /// Whether all bars that kernels of a program read of a part are on the device, so that the host needs none of them but those that it
    /// passes on as they are.
    pub fn holds(&self, program: &Executable, part: &RequestPart<'_>) -> bool {
        let Ok(sequence) = program.sequence(Lowering::Serial) else { return false };
        if self.lost().is_some() || part.source.is_none() {
            return false;
        }
        let read = sequence.uses().columns;
        part.groups().iter().all(|group| {
            let keys = keys_of(program, program.precision(), part, group);
            let mut columns = read.iter().filter(|column| matches!(program.inputs[**column], Input::Column(_)));
            columns.all(|column| {
                keys.get(*column).is_some_and(|key| key.as_ref().is_some_and(|key| self.resident.touch(key)))
            })
        })
    }

    /// Whether any bars of a source are on the device.
    pub fn holds_any(&self, source: &str) -> bool {
        self.lost().is_none() && self.resident.has_any(source)
    }

    /// Whether so many bytes fit, once what is superseded is evicted as far as necessary.
    fn makes_room(&self, bytes: u64, ahead: Ahead<'_>) -> bool {
        while !self.resident.has_room(bytes) {
            match ahead {
                Ahead::Expected { is_superseded, .. } if self.resident.let_go_of(is_superseded) => {}
                _ => return false,
            }
        }
        true
    }

    fn wanted_of<'a>(&self, program: &Executable, read: &BTreeSet<usize>, part: &RequestPart<'a>) -> Vec<Wanted<'a>> {
        let precision = program.precision();
        let wanted = |members: &[usize]| {
            let keys = keys_of(program, precision, part, members);
            let is_column = |input: &Input| matches!(input, Input::Column(_));
            let missing = keys.into_iter().zip(&program.inputs).enumerate().filter_map(|(column, (key, input))| {
                let is_wanted = read.contains(&column) && is_column(input);
                let key = key.filter(|key| is_wanted && !self.resident.has(key))?;
                Some((column, key))
            });
            let holds = part.holds(members);
            Wanted {
                holds,
                symbols: members.iter().map(|i| part.symbols[*i].clone()).collect(),
                columns: missing.collect(),
                bytes: (part.rows(members, holds) * row_bytes(precision)) as u64,
            }
        };
        part.groups().iter().map(|members| wanted(members)).collect()
    }

    /// Brings one column of a group, and waits for it: a request's copies wait for no more than one.
    fn bring_column(
        &self,
        program: &Executable,
        (symbols, holds): (&[SymbolInput<'_>], Laid),
        (column, key): (usize, ColumnKey),
        ahead: Ahead<'_>,
    ) -> Result<(), Fault> {
        let Some(mut lent) = self.pool.lend(Urgency::Prefetch, true)? else { return Ok(()) };
        let market = Market::of_groups_by(std::iter::once((symbols, holds)));
        let precision = program.precision();
        let laying = Laying { market: &market, symbols, column, precision, kernels: &self.laying_kernels() };
        let placed = self.placement.place(&mut lent, &laying);
        // The track's buffers are free again, whatever came of it.
        let settled = lent.settle();
        let (held, _) = placed?;
        settled?;
        let brought = match ahead {
            Ahead::NextCall => Brought::NextCall,
            Ahead::Expected { round, .. } => Brought::Round(round),
        };
        self.resident.keep_prefetched(key, &Arc::new(held), brought);
        Ok(())
    }

    /// Ends a round of [`Ahead::Expected`]: bytes that were brought in it and then read.
    pub fn end_round(&self, round: u64) -> u64 {
        self.resident.end_round(round)
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
    pub fn prefetch(
        &self,
        program: &Executable,
        parts: &[RequestPart<'_>],
        ahead: Ahead<'_>,
        cancel: &dyn Cancel,
    ) -> u64 {
        let first = |part: &RequestPart<'_>| self.ranked(part.source.as_ref()).first().copied();
        let known = parts.iter().filter(|part| part.source.is_some());
        let placed = known.filter_map(|part| Some((first(part)?, std::slice::from_ref(part))));
        placed.map(|(at, part)| self.executors[at].prefetch(program, part, ahead, cancel).unwrap_or(0)).sum()
    }

    /// Whether any bars of a source are on any of the devices.
    pub fn holds_any(&self, source: &str) -> bool {
        self.executors.iter().any(|executor| executor.holds_any(source))
    }

    /// As [`Executor::holds`], of the device that is a part's first choice.
    pub fn holds(&self, program: &Executable, part: &RequestPart<'_>) -> bool {
        let first = self.ranked(part.source.as_ref()).first().copied();
        first.is_some_and(|at| self.executors[at].holds(program, part))
    }

    /// Whether a device may be brought bars before a request asks for them.
    pub fn prefetches_at_all(&self) -> bool {
        self.executors.iter().any(|executor| executor.options.prefetch)
    }

    /// As [`Executor::end_round`], on all devices together.
    pub fn end_round(&self, round: u64) -> u64 {
        self.executors.iter().map(|executor| executor.end_round(round)).sum()
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
