//! Every bound of the language, named. A plan that would pass one of them is refused with its name and value.

/// Bytes in one clause's text.
pub const CLAUSE_BYTES_MAX: usize = 64 * 1024;
/// Depth of an expression's tree: parentheses, calls and long chains of operators alike.
pub const EXPRESSION_DEPTH_MAX: usize = 256;
/// Nodes in a plan's graph.
pub const PLAN_NODES_MAX: usize = 4096;
/// Columns in `select`.
pub const SELECT_COLUMNS_MAX: usize = 256;
/// Keys in `rank`.
pub const RANK_KEYS_MAX: usize = 16;
/// Names in `let`.
pub const LETS_MAX: usize = 256;
/// The largest period, offset or other number of bars: TA-Lib's own limit.
pub const PERIOD_MAX: u32 = 100_000;
/// Mistakes reported at once.
pub const DIAGNOSTICS_MAX: usize = 20;
