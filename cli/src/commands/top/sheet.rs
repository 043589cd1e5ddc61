//! A table of one pane: columns of different importance, rows in an order that the user chose, and one selected row.
//!
//! The selected row is kept by its id: it stays selected when rows before it come and go. Drawing is in `draw`.

use std::cmp::Ordering;

use ratatui::widgets::TableState;

/// Characters of a cell that are kept; the rest of a longer one is never shown.
const CELL_CHARS_MAX: usize = 200;

/// A column.
#[derive(Debug)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// Whether it holds numbers, which are aligned to the right.
    pub number: bool,
    /// Its widest width in cells of the terminal; `None` for the column that takes what is left.
    pub width_max: Option<u16>,
    /// How important it is: 0 is always shown, the greatest is dropped first where the terminal is narrow.
    pub rank: u8,
}

/// What a cell is sorted by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Key {
    /// By its text.
    Text,
    /// By a number; not a number is last in both directions.
    Number(f64),
}

/// How much attention a cell deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be, and nothing to look at.
    Plain,
    /// At work.
    Good,
    /// May become a problem.
    Warn,
    /// A problem.
    Bad,
    /// Of minor importance.
    Quiet,
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// What is shown.
    pub text: String,
    /// What it is sorted by.
    pub key: Key,
    /// How it is shown.
    pub tone: Tone,
}

impl Cell {
    /// A text, which others may have chosen: without characters that control a terminal or the direction of text.
    pub fn text(text: &str) -> Self {
        Self { text: clean(text), key: Key::Text, tone: Tone::Plain }
    }

    /// A number as it is to be shown.
    pub fn number(text: String, value: f64) -> Self {
        Self { text, key: Key::Number(value), tone: Tone::Plain }
    }

    /// A value that is not known.
    pub fn unknown() -> Self {
        Self { text: "-".to_owned(), key: Key::Number(f64::NAN), tone: Tone::Quiet }
    }

    /// The same with a tone.
    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// A text that others chose, made safe for a terminal.
pub fn clean(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|c| !steers(*c)).take(CELL_CHARS_MAX).collect()
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What distinguishes it from the others, also after the next refresh.
    pub id: String,
    /// One cell for each column.
    pub cells: Vec<Cell>,
}

/// The order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// The column; `None` is the order in which the rows were given.
    pub column: Option<usize>,
    /// Whether it is turned round.
    pub reversed: bool,
}

/// Columns, rows, and what the user does with them.
#[derive(Debug)]
pub struct Sheet {
    /// Its columns.
    pub columns: &'static [Column],
    order: Order,
    /// As they were given.
    given: Vec<Row>,
    /// As they are shown.
    rows: Vec<Row>,
    selected: Option<String>,
    /// What is scrolled to.
    pub table: TableState,
}

impl Sheet {
    /// Without rows.
    pub fn new(columns: &'static [Column]) -> Self {
        let table = TableState::default();
        Self { columns, order: Order::default(), given: Vec::new(), rows: Vec::new(), selected: None, table }
    }

    /// Replaces the rows. A selected row that is gone passes its place on to the one that is there now.
    pub fn set_rows(&mut self, rows: Vec<Row>) {
        let place = self.selected_place();
        self.given = rows;
        self.sort();
        if self.selected.as_ref().is_some_and(|id| !self.rows.iter().any(|row| row.id == *id)) {
            let last = self.rows.len().saturating_sub(1);
            self.selected = place.and_then(|place| self.rows.get(place.min(last))).map(|row| row.id.clone());
        }
    }

    /// The rows in the order in which they are shown.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The order of the rows.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The id of the selected row.
    pub fn selected(&self) -> Option<&str> {
        self.selected.as_deref()
    }

    /// Which of the rows is selected.
    pub fn selected_place(&self) -> Option<usize> {
        self.rows.iter().position(|row| Some(row.id.as_str()) == self.selected())
    }

    /// Moves the selection by so many rows, up to the ends. Without one, a step of one row selects the first.
    pub fn move_by(&mut self, rows: isize) {
        let last = self.rows.len().saturating_sub(1);
        let place = match self.selected_place() {
            None if rows.unsigned_abs() == 1 => 0,
            place => place.unwrap_or(0).saturating_add_signed(rows).min(last),
        };
        self.selected = self.rows.get(place).map(|row| row.id.clone());
    }

    /// Sorts by the next column, or the one before; before the first column is the order in which rows are given.
    pub fn sort_by_next(&mut self, forward: bool) {
        let count = self.columns.len();
        self.order.column = match (self.order.column, forward) {
            (None, true) => Some(0),
            (None, false) => count.checked_sub(1),
            (Some(column), true) => Some(column + 1).filter(|next| *next < count),
            (Some(column), false) => column.checked_sub(1),
        };
        self.sort();
    }

    /// Turns the order round.
    pub fn reverse(&mut self) {
        self.order.reversed = !self.order.reversed;
        self.sort();
    }

    fn sort(&mut self) {
        self.rows.clone_from(&self.given);
        let Order { column, reversed } = self.order;
        match column {
            Some(column) => self.rows.sort_by(|a, b| compare(a.cells.get(column), b.cells.get(column), reversed)),
            None if reversed => self.rows.reverse(),
            None => {}
        }
    }

    /// Which columns fit, with their widths: the least important ones are left out, and the last of those that are left takes what
    /// remains. `width`: of the pane; `gap`: between two columns.
    pub fn fitting(&self, width: u16, gap: u16) -> Vec<(usize, u16)> {
        let mut kept: Vec<(usize, u16)> =
            self.columns.iter().enumerate().map(|(i, column)| (i, self.width_of(i, column))).collect();
        let taken = |kept: &[(usize, u16)]| {
            let gaps = gap.saturating_mul(u16::try_from(kept.len().saturating_sub(1)).unwrap_or(u16::MAX));
            kept.iter().fold(gaps, |sum, (_, width)| sum.saturating_add(*width))
        };
        while taken(&kept) > width {
            let least =
                kept.iter().max_by_key(|(i, _)| self.columns[*i].rank).filter(|(i, _)| self.columns[*i].rank > 0);
            let Some(&(least, _)) = least else { break };
            kept.retain(|(i, _)| *i != least);
        }
        let rest = width.saturating_sub(taken(&kept));
        let grows = kept.iter().position(|(i, _)| self.columns[*i].width_max.is_none());
        if let Some(place) = grows {
            kept[place].1 = kept[place].1.saturating_add(rest);
        }
        kept
    }

    /// As wide as its widest cell, within its limit; the column that grows is asked for a little only.
    fn width_of(&self, place: usize, column: &Column) -> u16 {
        /// What is reserved for the column that takes the rest.
        const GROWING: u16 = 12;
        let wide = |text: &str| u16::try_from(ratatui::text::Span::raw(text).width()).unwrap_or(u16::MAX);
        // With room for the mark of the order.
        let title = wide(column.title).saturating_add(u16::from(self.order.column == Some(place)));
        let widest =
            self.rows.iter().filter_map(|row| row.cells.get(place)).map(|cell| wide(&cell.text)).max().unwrap_or(0);
        title.max(widest.min(column.width_max.unwrap_or(GROWING)))
    }
}

/// The order of two cells. What is not known is last, whichever way the order goes.
fn compare(a: Option<&Cell>, b: Option<&Cell>, reversed: bool) -> Ordering {
    let (Some(a), Some(b)) = (a, b) else { return Ordering::Equal };
    let turned = |order: Ordering| if reversed { order.reverse() } else { order };
    match (a.key, b.key) {
        (Key::Number(x), Key::Number(y)) => match (x.is_nan(), y.is_nan()) {
            (false, false) => turned(x.total_cmp(&y)),
            (x, y) => x.cmp(&y),
        },
        (Key::Text, Key::Text) => turned(a.text.cmp(&b.text)),
        // A value that is not known, in a column of texts.
        (Key::Number(_), Key::Text) => Ordering::Greater,
        (Key::Text, Key::Number(_)) => Ordering::Less,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static COLUMNS: [Column; 3] = [
        Column { title: "NAME", number: false, width_max: Some(8), rank: 0 },
        Column { title: "SIZE", number: true, width_max: Some(6), rank: 2 },
        Column { title: "WHAT", number: false, width_max: None, rank: 1 },
    ];

    fn row(name: &str, size: Option<f64>, what: &str) -> Row {
        let size = size.map_or_else(Cell::unknown, |size| Cell::number(size.to_string(), size));
        Row { id: name.to_owned(), cells: vec![Cell::text(name), size, Cell::text(what)] }
    }

    fn sheet() -> Sheet {
        let mut sheet = Sheet::new(&COLUMNS);
        sheet.set_rows(vec![row("b", Some(10.0), "x"), row("c", None, "y"), row("a", Some(9.0), "z")]);
        sheet
    }

    fn names(sheet: &Sheet) -> String {
        sheet.rows().iter().map(|row| row.id.as_str()).collect()
    }

    #[test]
    fn numbers_are_sorted_as_numbers_and_what_is_unknown_is_last_both_ways() {
        let mut sheet = sheet();
        assert_eq!(names(&sheet), "bca", "as given");
        sheet.sort_by_next(true);
        assert_eq!(names(&sheet), "abc", "by name");
        sheet.sort_by_next(true);
        assert_eq!(names(&sheet), "abc", "9 before 10, then the unknown");
        sheet.reverse();
        assert_eq!(names(&sheet), "bac");
        sheet.sort_by_next(false);
        sheet.sort_by_next(false);
        assert_eq!((sheet.order().column, names(&sheet).as_str()), (None, "acb"), "as given, turned round");
    }

    #[test]
    fn the_selected_row_stays_selected_wherever_it_moves_and_its_neighbour_follows_it() {
        let mut sheet = sheet();
        assert_eq!(sheet.selected(), None);
        sheet.move_by(1);
        sheet.move_by(1);
        assert_eq!(sheet.selected(), Some("c"));
        sheet.set_rows(vec![row("new", None, ""), row("a", None, ""), row("b", None, ""), row("c", None, "")]);
        assert_eq!((sheet.selected(), sheet.selected_place()), (Some("c"), Some(3)));
        sheet.move_by(99);
        assert_eq!(sheet.selected(), Some("c"));
        sheet.set_rows(vec![row("a", None, ""), row("b", None, "")]);
        assert_eq!(sheet.selected(), Some("b"), "the last one, as the place is gone too");
        sheet.set_rows(Vec::new());
        assert_eq!(sheet.selected(), None);
        sheet.move_by(-1);
        assert_eq!(sheet.selected(), None);
    }

    #[test]
    fn a_narrow_pane_drops_the_least_important_columns_and_a_wide_one_gives_the_rest_to_one() {
        let sheet = sheet();
        let places = |width: u16| sheet.fitting(width, 1).iter().map(|(i, _)| *i).collect::<Vec<_>>();
        assert_eq!(places(80), [0, 1, 2]);
        assert_eq!(sheet.fitting(80, 1), [(0, 4), (1, 4), (2, 70)]);
        assert_eq!(places(11), [0, 2], "SIZE goes first");
        assert_eq!(places(4), [0]);
        assert_eq!(places(0), [0], "the first is always there");
    }

    #[test]
    fn the_order_goes_through_every_column_and_back_to_none() {
        let mut sheet = sheet();
        let mut seen = Vec::new();
        for _ in 0..4 {
            sheet.sort_by_next(true);
            seen.push(sheet.order().column);
        }
        assert_eq!(seen, [Some(0), Some(1), Some(2), None]);
        sheet.sort_by_next(false);
        assert_eq!(sheet.order().column, Some(2), "before the first is the last");
        sheet.reverse();
        assert_eq!(names(&sheet), "acb");
        sheet.reverse();
        assert_eq!((sheet.order().reversed, names(&sheet).as_str()), (false, "bca"), "turned round twice");
        // Not known, in a column of texts: last.
        let unknown = Row { id: "u".to_owned(), cells: vec![Cell::unknown(), Cell::unknown(), Cell::text("")] };
        sheet.sort_by_next(false);
        sheet.sort_by_next(false);
        sheet.set_rows(vec![unknown.clone(), row("b", None, ""), row("a", None, "")]);
        assert_eq!((sheet.order().column, names(&sheet).as_str()), (Some(0), "abu"));
        sheet.set_rows(vec![row("a", None, ""), unknown]);
        assert_eq!(names(&sheet), "au");
    }

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell_within_its_limit_and_has_room_for_the_mark() {
        let mut sheet = sheet();
        sheet.set_rows(vec![row("a name that is longer than its column", Some(1.0), "x")]);
        assert_eq!(sheet.fitting(80, 1)[..2], [(0, 8), (1, 4)]);
        sheet.sort_by_next(true);
        sheet.sort_by_next(true);
        assert_eq!(sheet.fitting(80, 1)[..2], [(0, 8), (1, 5)], "SIZE and its mark");
    }

    #[test]
    fn names_of_others_cannot_steer_the_terminal_or_the_direction_of_text() {
        assert_eq!(Cell::text("a\u{1b}[31m\u{202e}b\u{2066}\n").text, "a[31mb");
        assert_eq!(Cell::text(&"x".repeat(5000)).text.len(), CELL_CHARS_MAX);
    }
}
