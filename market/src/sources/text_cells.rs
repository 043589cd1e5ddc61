//! Cells of text: places in a piece, copied only where they were quoted, or are values of an object.

use std::sync::Arc;

/// The cells of one column of a batch.
pub(crate) struct TextCells<'a> {
    /// The text of the piece.
    text: &'a str,
    places: Places,
}

/// Where the cells of a column are.
enum Places {
    /// In lines that were split as they are: the column's number, and the delimiters of all lines.
    Split { column: usize, grid: Arc<Grid> },
    /// By row: start and end in the text; beyond its end, in what was made.
    Each {
        places: Vec<(u32, u32)>,
        /// Cells that are not in the text as they are.
        made: String,
    },
}

/// The places of the delimiters in lines: for each line where it begins, and the end of each cell, which the next one follows.
pub(super) struct Grid {
    pub places: Vec<u32>,
    /// Places of a line: one more than it has cells.
    pub width: usize,
}

impl Grid {
    pub fn rows(&self) -> usize {
        self.places.len() / self.width
    }

    #[inline]
    pub fn cell(&self, row: usize, column: usize) -> (u32, u32) {
        let at = row * self.width + column;
        // The first cell begins where its line does, the others behind a delimiter.
        (self.places[at] + u32::from(column > 0), self.places[at + 1])
    }
}

impl<'a> TextCells<'a> {
    /// The cells of a column in lines that were split as they are.
    pub(super) fn split(text: &'a str, column: usize, grid: &Arc<Grid>) -> Self {
        Self { text, places: Places::Split { column, grid: Arc::clone(grid) } }
    }

    /// No cells yet.
    pub fn each(text: &'a str) -> Self {
        Self { text, places: Places::Each { places: Vec::new(), made: String::new() } }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match &self.places {
            Places::Split { grid, .. } => grid.rows(),
            Places::Each { places, .. } => places.len(),
        }
    }

    /// The cell of a row.
    #[inline]
    pub fn value(&self, row: usize) -> &str {
        match &self.places {
            Places::Split { column, grid } => {
                let (start, end) = grid.cell(row, *column);
                self.text.get(start as usize..end as usize).unwrap_or_default()
            }
            Places::Each { places, made } => {
                let (start, end) = places[row];
                let (start, end) = (start as usize, end as usize);
                match self.text.get(start..end) {
                    Some(cell) => cell,
                    None => start
                        .checked_sub(self.text.len())
                        .and_then(|start| made.get(start..end - self.text.len()))
                        .unwrap_or_default(),
                }
            }
        }
    }

    /// Calls `read` for each row with the bytes that its cell is in, and the cell's start and end there.
    #[inline]
    pub fn for_each(&self, mut read: impl FnMut(usize, &[u8], usize, usize)) {
        let text = self.text.as_bytes();
        match &self.places {
            Places::Split { column, grid } => {
                let first = usize::from(*column > 0);
                for (row, places) in grid.places.chunks_exact(grid.width).enumerate() {
                    read(row, text, places[*column] as usize + first, places[column + 1] as usize);
                }
            }
            Places::Each { places, made } => {
                for (row, (start, end)) in places.iter().enumerate() {
                    let (start, end) = (*start as usize, *end as usize);
                    match end <= text.len() {
                        true => read(row, text, start, end),
                        false => read(row, made.as_bytes(), start - text.len(), end - text.len()),
                    }
                }
            }
        }
    }

    /// Adds a cell that is not in the text. Both are shorter than a batch may be, which fits the places of cells.
    pub fn make(&mut self, cell: &str) {
        let Places::Each { places, made } = &mut self.places else { return };
        let start = self.text.len() + made.len();
        made.push_str(cell);
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        places.push((place(start), place(start + cell.len())));
    }

    /// Adds a cell of the text.
    pub fn push(&mut self, cell: (u32, u32)) {
        if let Places::Each { places, .. } = &mut self.places {
            places.push(cell);
        }
    }
}
