//! Where text goes: how wide it is and whether it takes colours; and tables that fit it.
//!
//! A table that is wider than the page has its longest texts cut, and its columns in several blocks if that is not enough. Numbers are
//! never cut. Standard output that is no terminal has no width and no colours: its text is always the same.

use std::io::IsTerminal as _;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Least characters to which a text or a heading is cut.
const TEXT_CHARACTERS_MIN: usize = 12;
/// Characters that a column takes besides its cells: a blank on each side and one between columns.
const PADDING: usize = 3;
/// What the rest of a cut text is replaced by.
const CUT: &str = "...";

/// Characters of a heading or cell; a long expression is cut.
const CELL_CHARACTERS_MAX: usize = 40;
/// A terminal, a pipe or a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page {
    /// Characters of a line; `None` for any number.
    pub width: Option<usize>,
    /// Whether it shows colours.
    pub colours: bool,
}

/// What a text says, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Head,
    /// What was looked for.
    Good,
    /// What must not be overlooked.
    Bad,
    /// What may be overlooked.
    Quiet,
}

impl Page {
    /// Standard output. `NO_COLOR` and a dumb terminal switch colours off.
    pub fn of_stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::default();
        }
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let width = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let colours = !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { width: width.filter(|width| *width > 0), colours }
    }

    /// A text in the colour of its tone.
    pub fn toned(self, tone: Tone, text: &str) -> String {
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Head => "1",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Quiet => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Symbols and reasons may come from other people's files: control characters never reach the terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A text as a cell: truncated, without control characters.
pub fn cell(text: &str) -> String {
    let text = clean(text);
    if text.chars().count() <= CELL_CHARACTERS_MAX {
        return text;
    }
    text.chars().take(CELL_CHARACTERS_MAX - 3).chain("...".chars()).collect()
}

/// The style of every table: a line under the header, no other lines, no wrapping.
pub fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-')));
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Numbers are aligned to the right.
pub fn right_align(table: &mut Table, columns: &[usize]) {
    for &i in columns {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Appends a table without trailing blanks, and an empty line; its head in the page's colours.
pub fn push_table(text: &mut String, table: &Table, page: Page) {
    for (number, line) in table.lines().enumerate() {
        let line = line.trim_end();
        match [Tone::Head, Tone::Quiet].get(number) {
            Some(tone) => text.push_str(&page.toned(*tone, line)),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text.push('\n');
}

/// A table of texts. The first `keys` columns are repeated in each block.
#[derive(Debug)]
pub struct Grid {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    keys: usize,
    /// For each column whether it has numbers, which are aligned to the right and never cut.
    numbers: Vec<bool>,
}

impl Grid {
    /// A table without rows.
    pub fn new(headings: Vec<String>, keys: usize) -> Self {
        let numbers = vec![false; headings.len()];
        Self { headings, rows: Vec::new(), keys, numbers }
    }

    /// Columns that have numbers.
    pub fn numbers(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        for column in columns {
            if let Some(is) = self.numbers.get_mut(column) {
                *is = true;
            }
        }
        self
    }

    /// Adds a row, which has a cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Appends the table and an empty line.
    pub fn push(mut self, text: &mut String, page: Page) {
        let blocks = match page.width {
            Some(width) => self.fit(width),
            None => vec![(0..self.headings.len()).collect()],
        };
        for columns in blocks {
            let pick = |cells: &[String]| -> Vec<String> {
                columns.iter().map(|at| cells.get(*at).cloned().unwrap_or_default()).collect()
            };
            let mut table = new_table();
            table.set_header(pick(&self.headings));
            for row in &self.rows {
                table.add_row(pick(row));
            }
            let right: Vec<usize> = (0..columns.len()).filter(|at| self.numbers[columns[*at]]).collect();
            right_align(&mut table, &right);
            push_table(text, &table, page);
        }
    }

    /// Cuts texts so that lines have at most `width` characters, and returns the columns of each block.
    fn fit(&mut self, width: usize) -> Vec<Vec<usize>> {
        let length = |text: &str| text.chars().count();
        let cells =
            |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| length(cell)).max().unwrap_or(0);
        let mut widths = Vec::with_capacity(self.headings.len());
        let mut least = Vec::with_capacity(self.headings.len());
        for (at, heading) in self.headings.iter().enumerate() {
            let (cells, heading) = (cells(at), length(heading));
            widths.push(cells.max(heading));
            let number = if self.numbers[at] { cells } else { cells.min(TEXT_CHARACTERS_MIN) };
            least.push(number.max(heading.min(TEXT_CHARACTERS_MIN)));
        }
        let line = |widths: &[usize]| widths.iter().map(|width| width + PADDING).sum::<usize>().saturating_sub(1);
        let keys: Vec<usize> = (0..self.keys.min(widths.len())).collect();
        if line(&least) > width {
            // In several blocks texts need to be cut to the width of one only.
            let beside = width.saturating_sub(line(&widths[..keys.len()]) + PADDING);
            for (at, width_of) in widths.iter_mut().enumerate().skip(keys.len()) {
                *width_of = (*width_of).min(beside.max(least[at]));
            }
            least.clone_from(&widths);
        }
        // The longest column that can be cut loses a character, until the line fits or none can.
        while line(&widths) > width {
            let longest = (0..widths.len()).filter(|at| widths[*at] > least[*at]).max_by_key(|at| widths[*at]);
            let Some(longest) = longest else { break };
            widths[longest] -= 1;
        }
        let fits = |text: &mut String, most: usize| {
            if length(text) > most {
                *text = text.chars().take(most.saturating_sub(CUT.len())).chain(CUT.chars()).collect();
            }
        };
        for (at, most) in widths.iter().enumerate() {
            fits(&mut self.headings[at], *most);
            for row in self.rows.iter_mut().filter(|_| !self.numbers[at]) {
                if let Some(cell) = row.get_mut(at) {
                    fits(cell, *most);
                }
            }
        }
        let taken = line(&widths[..keys.len()]) + 1;
        let mut blocks = vec![keys.clone()];
        let mut used = taken;
        for (at, width_of) in widths.iter().enumerate().skip(keys.len()) {
            let more = width_of + PADDING;
            let block = blocks.last().map_or(0, Vec::len);
            if used + more > width + 1 && block > keys.len() {
                blocks.push(keys.clone());
                used = taken;
            }
            if let Some(block) = blocks.last_mut() {
                block.push(at);
            }
            used += more;
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let headings = ["place", "symbol", "a heading that is very long", "b", "reason"].map(str::to_owned);
        let mut grid = Grid::new(headings.to_vec(), 2).numbers([0, 2, 3]);
        grid.row(
            ["1", "IBM", "123456.5", "17", "a text that can be cut where there is no room"].map(str::to_owned).to_vec(),
        );
        grid
    }

    fn drawn(width: Option<usize>) -> String {
        let mut text = String::new();
        grid().push(&mut text, Page { width, colours: false });
        text
    }

    #[test]
    fn a_table_fits_the_page_and_numbers_are_never_cut() {
        assert_eq!(drawn(None), drawn(Some(200)), "there is room");
        for width in [100, 80, 60, 45, 30, 20, 1] {
            let text = drawn(Some(width));
            assert!(text.contains("123456.5") && text.contains("17"), "{width}\n{text}");
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            // One number beside the keys is the least.
            assert!(widest <= width.max(35), "{width}: {widest}\n{text}");
        }
        assert_eq!(drawn(Some(80)).matches("IBM").count(), 1, "texts are cut first");
        assert!(drawn(Some(30)).matches("IBM").count() > 1, "then there are several blocks");
    }

    #[test]
    fn only_a_page_with_colours_has_colours() {
        let page = Page { width: None, colours: true };
        let mut text = String::new();
        grid().push(&mut text, page);
        let plain = text.replace("\u{1b}[1m", "").replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        assert_ne!(text, plain);
        assert_eq!(plain, drawn(None));
        assert_eq!(Page::default().toned(Tone::Bad, "x"), "x");
    }
}
