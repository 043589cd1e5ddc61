//! `--values`.

/// Whose select columns have values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Values {
    /// Those of the matches.
    #[default]
    Matches,
    /// Those of every symbol that has a bar and is in the universe.
    All,
}
