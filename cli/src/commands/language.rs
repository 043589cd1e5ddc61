//! `trawl help language`: the scan language on one page.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;

/// The page.
pub const PAGE: &str = include_str!("language.txt");

/// Prints the page.
pub fn run() -> anyhow::Result<ExitCode> {
    io::stdout().write_all(PAGE.as_bytes()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use trawl_plan::{ScanDocument, Schema, compile_expressions, compile_scan};

    use super::*;

    fn schema() -> Schema {
        Schema::of_columns(["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec())
    }

    #[test]
    fn the_document_of_the_page_compiles() {
        let lines: Vec<&str> = PAGE
            .lines()
            .skip_while(|line| !line.starts_with("A document"))
            .skip(1)
            .take_while(|line| !line.is_empty())
            .map(str::trim)
            .collect();
        let document = ScanDocument::from_toml(&lines.join("\n")).unwrap();
        let plan = compile_scan(&document, &schema()).unwrap();
        assert_eq!(plan.points.len(), 6);
    }

    #[test]
    fn every_function_of_the_page_exists() {
        let mut found = 0;
        let calls = PAGE.lines().take_while(|line| !line.starts_with("A document")).flat_map(|line| line.split(' '));
        let names = calls.filter_map(|word| word.split_once('(')).map(|(name, _)| name);
        for name in names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && name.len() > 1) {
            let known = trawl_plan::catalogue::find(name).is_some() || trawl_plan::catalogue::find_form(name).is_some();
            assert!(known, "{name}");
            found += 1;
        }
        assert!(found > 20, "{found}");
        let compiled = compile_expressions(&["close > sma(close, 200) and rsi(14) < 30".to_owned()], "page", &schema());
        assert!(compiled.is_ok());
    }

    #[test]
    fn every_line_fits_a_page() {
        assert!(PAGE.lines().all(|line| line.chars().count() <= 140));
    }
}
