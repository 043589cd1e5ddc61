//! Answers on a terminal: tables, pages and waterfalls. Files of answers are `trawl_front::output`.

mod matrix;
pub mod page;
pub mod table;
pub mod waterfall;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trawl_front::output::Format;

/// Some formats by name, for `--format`.
pub fn format_parser(formats: impl IntoIterator<Item = Format>) -> impl TypedValueParser<Value = Format> {
    let value = |format: Format| PossibleValue::new(format.name()).aliases(format.aliases());
    PossibleValuesParser::new(formats.into_iter().map(value))
        .try_map(|name| Format::named(&name).ok_or("no format has this name"))
}
