//! Runs lowered programs: over strips of bars, from saved states, and over tiles that stay in memory.

#[cfg(test)]
mod agreement;
pub(super) mod resident;
pub(super) mod resume;
pub(super) mod strips;
pub(super) mod tile;
