//! This machine's copies of the files of a dataset in an object store, and of the parts of those that are much larger than what is needed
//! of them.

use std::fs;
use std::sync::Arc;

use super::Dataset;
use super::load::unread_of;
use crate::column_parts::{ColumnParts, PartPlan};
use crate::error::MarketError;
use crate::files::Files;
use crate::manifest::GroupFile;
use crate::reference::Adjustment;
use crate::snapshot::{file_path, parts_path, sums_path};
use crate::sums::{Run, Sums};

/// What is read of the bars of groups.
#[derive(Debug, Clone, Copy)]
pub struct Reads<'a> {
    /// Names of columns.
    pub columns: &'a [String],
    /// How they are adjusted, which may need another column.
    pub adjustment: &'a Adjustment,
    /// How many of the newest bars of each symbol; all if `None`.
    pub newest: Option<u64>,
}

/// Keeps what is read of a group open (see [`Dataset::hold_group`]).
#[derive(Debug)]
pub struct HeldGroup {
    _files: Vec<Arc<fs::File>>,
}

/// How fetching a group ahead ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchedGroup {
    /// What is read of it is on this machine.
    Here,
    /// It is larger than the cache, and is fetched for each use.
    TooLarge,
    /// The cache has no room for it beside what is in use.
    NoRoom,
}

/// The parts of a group that are read, with their paths in the dataset.
type PartPlans<'s> = Vec<(String, PartPlan<'s>)>;

impl Dataset {
    /// Whether files come from an object store, through a cache on this machine.
    pub fn is_in_objects(&self) -> bool {
        matches!(self.files, Files::Remote(_))
    }

    /// Whether what is read of a group's file is on this machine. Where that is only known once its checksums are fetched, it is not.
    pub fn is_here(&self, group: u32, reads: &Reads<'_>) -> bool {
        let (Files::Remote(remote), Some(file)) = (&self.files, self.manifest.file(group)) else { return true };
        if remote.is_here(&file_path(&file.sha256)) {
            return true;
        }
        let sums = || match remote.is_here(&sums_path(&file.sha256)) {
            true => self.sums_of(file, self.runs(group)).ok().flatten(),
            false => self.tables.sums.of(group),
        };
        sums().is_some_and(|sums| {
            let plans = self.plans_of_reads(file, &sums, reads);
            plans.is_some_and(|plans| plans.iter().all(|(path, _)| remote.is_here(path)))
        })
    }

    /// The groups of whose files this machine has a copy, or a part of one, ascending; none of a directory. Looks at every file.
    pub fn groups_on_disk(&self) -> Vec<u32> {
        let Files::Remote(remote) = &self.files else { return Vec::new() };
        let has =
            |file: &&GroupFile| remote.is_here(&file_path(&file.sha256)) || remote.has_any(&parts_path(&file.sha256));
        self.manifest.files.iter().filter(has).map(|file| file.group).collect()
    }

    /// Opens what is read of a group that comes from an object store, for a group that is read in parts: as long as the result lives, it
    /// is fetched at most once, also where the cache cannot keep it. `None` where there is nothing to hold.
    ///
    /// # Errors
    /// [`MarketError::DataRoot`]: reading would fail as well. What else is wrong is reported by what reads it.
    pub fn hold_group(&self, group: u32, reads: &Reads<'_>) -> Result<Option<HeldGroup>, MarketError> {
        let Some(file) = self.manifest.file(group).filter(|_| self.is_in_objects()) else { return Ok(None) };
        if let Some(sums) = self.sums_of(file, self.runs(group))?
            && let Some(plans) = self.plans_of_reads(file, &sums, reads)
            && let Some(ColumnParts(parts)) = self.fetched(file, plans)?
        {
            return Ok(Some(HeldGroup { _files: parts.into_iter().map(|(_, part)| part.file).collect() }));
        }
        let opened = self.opened(&file_path(&file.sha256), &file.sha256)?;
        Ok(opened.map(|file| HeldGroup { _files: vec![file] }))
    }

    /// Brings what is read of a group to this machine, if it comes from an object store: of its file, its checksums, and the files of
    /// appended bars that have any of it.
    ///
    /// # Errors
    /// [`MarketError::Io`], [`MarketError::DataRoot`], [`MarketError::Checksum`].
    pub fn fetch_group(&self, group: u32, reads: &Reads<'_>) -> Result<FetchedGroup, MarketError> {
        let Files::Remote(remote) = &self.files else { return Ok(FetchedGroup::Here) };
        let name = &self.manifest.name;
        for tail in self.tails().map_or(&[][..], |tails| &tails.files) {
            if tail.pieces(group, self.members(group)).is_some() {
                let sha256 = &tail.file.sha256;
                self.files.open(name, &file_path(sha256), Some(sha256))?;
            }
        }
        let Some(file) = self.manifest.file(group) else { return Ok(FetchedGroup::Here) };
        // A dataset may have none.
        let sums = self.sums_of(file, self.runs(group))?;
        let plans = sums.as_ref().and_then(|sums| self.plans_of_reads(file, sums, reads));
        let bytes = plans.as_ref().map_or(file.bytes, |plans| plans.iter().map(|(_, plan)| plan.bytes()).sum());
        if !remote.can_keep(bytes) {
            return Ok(FetchedGroup::TooLarge);
        }
        match plans {
            Some(plans) => drop(self.fetched(file, plans)?),
            None => drop(self.files.open(name, &file_path(&file.sha256), Some(&file.sha256))?),
        }
        Ok(if self.is_here(group, reads) { FetchedGroup::Here } else { FetchedGroup::NoRoom })
    }

    /// The parts that are read of a group; `None` where its file is read.
    fn plans_of_reads<'s>(&self, file: &GroupFile, sums: &'s Sums, reads: &Reads<'_>) -> Option<PartPlans<'s>> {
        let (columns, newest) = self.read_of_files(file.group, reads);
        let runs = self.runs(file.group);
        let unread = unread_of(runs, self.symbols_of(file.group), newest);
        self.plans(file, sums, &columns, (runs, &unread))
    }

    /// The parts of columns that have the rows of some runs; `None` where the group's file is read: it is not in an object store, here
    /// already, small, or mostly needed.
    fn plans<'s>(
        &self,
        file: &GroupFile,
        sums: &'s Sums,
        columns: &[String],
        runs: (&[Run], &[usize]),
    ) -> Option<PartPlans<'s>> {
        let Files::Remote(remote) = &self.files else { return None };
        if remote.reads_whole(&file_path(&file.sha256), file.bytes) {
            return None;
        }
        let names = std::iter::once(crate::arrow_file::TIME).chain(columns.iter().map(String::as_str));
        let plan = |name| {
            let plan = PartPlan::new(sums.column(name)?, runs)?;
            Some((format!("{}/{}", parts_path(&file.sha256), plan.name()), plan))
        };
        let plans: PartPlans<'s> = names.map(plan).collect::<Option<_>>()?;
        let bytes: u64 = plans.iter().map(|(_, plan)| plan.bytes()).sum();
        (bytes <= file.bytes / 2).then_some(plans)
    }

    /// Parts of columns with the rows of some runs, which are fetched if they are not here; `None` where the group's file is read.
    ///
    /// # Errors
    /// An object store that fails.
    pub(super) fn parts_of(
        &self,
        file: &GroupFile,
        sums: &Sums,
        columns: &[String],
        runs: (&[Run], &[usize]),
    ) -> Result<Option<ColumnParts>, MarketError> {
        self.plans(file, sums, columns, runs).map_or(Ok(None), |plans| self.fetched(file, plans))
    }

    /// These parts, which are fetched if they are not here; `None` where that does not succeed although the store answers: the group's
    /// file says why.
    fn fetched(&self, file: &GroupFile, plans: PartPlans<'_>) -> Result<Option<ColumnParts>, MarketError> {
        let Files::Remote(remote) = &self.files else { return Ok(None) };
        let mut parts = Vec::with_capacity(plans.len());
        for (path, plan) in plans {
            let is_right = |copy: &fs::File| plan.is_right(copy);
            match remote.open_ranges(&path, &file_path(&file.sha256), &plan.ranges(), &is_right) {
                Ok(Some(opened)) => parts.push((path, plan.with(opened))),
                Err(error @ MarketError::DataRoot { .. }) => return Err(error),
                Ok(None) | Err(_) => return Ok(None),
            }
        }
        Ok(Some(ColumnParts(parts)))
    }

    /// Deletes copies of parts of which one is damaged.
    pub(super) fn discard_parts(&self, parts: &ColumnParts) {
        if let Files::Remote(remote) = &self.files {
            for (path, part) in &parts.0 {
                remote.discard(path, &part.file);
            }
        }
    }
}
