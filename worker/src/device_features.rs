//! Select columns of panels that stay on a device: which of its bars is in which row of a table.

use std::ops::Range;
use std::sync::Arc;

use trawl_kernels::cuda::{Fault, FeatureTable, KeptOutputs, TableRow};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Cancel, EngineError, Executable, Values};
use trawl_market::TimeMicros;

use crate::piece::PieceInputs;

/// A table on a device with the select columns of a scan over history. Row `time * symbols + symbol` is that of a symbol at a time.
#[derive(Debug)]
pub struct DeviceFeatures {
    /// The table, of as many rows.
    pub table: FeatureTable,
    /// Every symbol of the scan, ascending.
    pub symbols: Arc<Vec<String>>,
    /// Every time of the panel, ascending.
    pub times: Vec<TimeMicros>,
}

/// The last piece of a stage, whose select columns stay on the device.
pub(crate) struct Keeping<'a> {
    table: &'a FeatureTable,
    select: Range<usize>,
    /// The axes that were computed, and what stayed.
    kept: Option<(Vec<usize>, KeptOutputs)>,
}

impl<'a> Keeping<'a> {
    pub fn new(table: &'a FeatureTable, select: Range<usize>) -> Self {
        Self { table, select, kept: None }
    }

    /// The values of the piece, of which those that stay are left out.
    pub fn evaluate(
        &mut self,
        executable: &Executable,
        read: &PieceInputs<'_>,
        cancel: &dyn Cancel,
        stages: &mut Stages,
    ) -> Result<Values, EngineError> {
        let (symbols, select) = (read.symbols(), self.select.clone());
        let (values, kept) = self.table.evaluate(executable, &symbols, &read.from, select, cancel, stages)?;
        self.kept = Some((read.axes().to_vec(), kept));
        Ok(values)
    }

    /// Writes rows of the table, each with its axis and bar.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn put(&self, rows: &[(usize, usize, u64)]) -> Result<(), Fault> {
        let Some((axes, kept)) = &self.kept else { return Ok(()) };
        let mut symbol_of = vec![None; axes.iter().max().map_or(0, |last| last + 1)];
        for (symbol, axis) in axes.iter().enumerate() {
            symbol_of[*axis] = Some(symbol);
        }
        let row = |&(axis, bar, row): &(usize, usize, u64)| {
            let symbol = symbol_of.get(axis).copied().flatten();
            let row = u32::try_from(row).ok();
            symbol.zip(row).map(|(symbol, row)| TableRow { row, symbol, bar })
        };
        let rows: Option<Vec<TableRow>> = rows.iter().map(row).collect();
        let unknown = || Fault::Failed("a bar that was not computed".to_owned());
        self.table.put(kept, &rows.ok_or_else(unknown)?)
    }
}
