//! Numbers as files write them, and the probable cause when a cell is not a number.

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// May be infinite, never NaN.
    Number(f64),
    Missing,
    Text,
}

/// Parses a cell; with `comma` the decimal sign is a comma and dots separate thousands.
pub(super) fn parse_number(cell: &str, comma: bool) -> Cell {
    let cell = cell.trim();
    let value = match comma {
        true if cell.contains([',', '.']) => cell.replace('.', "").replace(',', ".").parse(),
        _ => cell.parse::<f64>(),
    };
    match value {
        Ok(value) if value.is_nan() => Cell::Missing,
        Ok(value) => Cell::Number(value),
        _ if ["", "null", "na", "n/a", "none", "-"].iter().any(|na| cell.eq_ignore_ascii_case(na)) => Cell::Missing,
        _ => Cell::Text,
    }
}

/// What the cells of a file show about its decimal sign.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DecimalSign {
    comma: usize,
    point: usize,
    /// `1,234`: a number with three decimals, or thousands.
    open: usize,
}

impl DecimalSign {
    pub fn look(&mut self, cell: &str) {
        let cell = cell.trim().trim_start_matches(['-', '+']);
        if !cell.contains([',', '.']) || !cell.bytes().all(|c| c.is_ascii_digit() || c == b',' || c == b'.') {
            return;
        }
        let Some((whole, decimals)) = cell.rsplit_once(',') else {
            // In `1.234` the dot may separate thousands.
            let decimal = cell.rsplit_once('.').is_some_and(|(whole, d)| d.len() != 3 || whole.len() > 3);
            self.point += usize::from(decimal && cell.matches('.').count() == 1);
            return;
        };
        if decimals.contains('.') {
            self.point += 1;
        } else if whole.contains(',') {
            // Several commas separate thousands.
        } else if decimals.len() == 3 && !whole.contains('.') {
            self.open += 1;
        } else if !decimals.is_empty() {
            self.comma += 1;
        }
    }

    /// Whether the decimal sign is a comma. `likely` where commas do not separate the cells of the file.
    pub fn is_comma(self, likely: bool) -> bool {
        self.comma > self.point || (likely && self.open > 0 && self.point == 0)
    }
}

/// The probable cause when a cell is not a number.
pub(super) fn likely_cause(cell: &str) -> &'static str {
    let cell = cell.trim();
    let (comma, point) = (cell.find(','), cell.find('.'));
    let digits = cell.bytes().any(|c| c.is_ascii_digit());
    match (comma, point) {
        _ if !digits => "",
        _ if cell.starts_with(['$', '€', '£', '¥']) => ": a currency sign? write the number alone",
        _ if cell.ends_with('%') => ": a percentage? write the number alone",
        _ if cell.ends_with(['k', 'K', 'm', 'M', 'b', 'B']) => ": a suffix for thousands or millions? write them out",
        (Some(comma), Some(point)) if comma < point => {
            ": commas that separate thousands? write the number without them"
        }
        (Some(_), _) => ": a decimal comma? write a point, or separate the cells by semicolons",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_either_decimal_sign() {
        assert_eq!(parse_number(" 1.5 ", false), Cell::Number(1.5));
        assert_eq!(parse_number("1.234,50", true), Cell::Number(1234.5));
        assert_eq!(parse_number("1.234.567", true), Cell::Number(1_234_567.0));
        assert_eq!(parse_number("1,5", false), Cell::Text);
        for missing in ["", "NaN", "n/a", "null", "-", "None"] {
            assert_eq!(parse_number(missing, true), Cell::Missing, "{missing}");
        }
    }

    #[test]
    fn the_decimal_sign_is_inferred_from_all_cells_together() {
        let is_comma = |cells: &[&str], likely: bool| {
            let mut sign = DecimalSign::default();
            cells.iter().for_each(|cell| sign.look(cell));
            sign.is_comma(likely)
        };
        assert!(is_comma(&["1.234,50", "12,5", "1000", "10.000"], true));
        assert!(is_comma(&["151,234"], true) && !is_comma(&["151,234"], false));
        assert!(!is_comma(&["1,234.50", "1.5"], true));
        assert!(!is_comma(&["1,234,567", "1.5"], true));
        assert!(!is_comma(&["1.234", "1"], true));
    }

    #[test]
    fn a_cell_that_is_not_a_number_is_explained() {
        for (cell, expected) in
            [("1,234.50", "thousands"), ("1234,50", "decimal comma"), ("1.25M", "suffix"), ("$5", "sign")]
        {
            assert!(likely_cause(cell).contains(expected), "{cell}");
        }
        assert_eq!(likely_cause("eleven"), "");
    }
}
