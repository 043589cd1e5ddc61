//! Every bound of the language, named. A plan that would pass one of them is refused with its name and value.

/// Bytes in one clause's text.
pub const CLAUSE_BYTES_MAX: usize = 64 * 1024;
/// Depth of an expression's tree: parentheses, calls and operators; a run of one of `or`, `and`, `+`, `*` is one level.
pub const EXPRESSION_DEPTH_MAX: usize = 256;
/// Nodes in a plan's graph that one point of a sweep adds.
pub const PLAN_NODES_MAX: usize = 4096;
/// Nodes in a plan's graph, those of all points of a sweep together.
pub const SWEEP_NODES_MAX: usize = 1 << 20;
/// Combinations of a sweep's values, and values of one variable.
pub const SWEEP_POINTS_MAX: usize = 16_384;
/// Bytes of a word in a sweep.
pub const SETTING_TEXT_BYTES_MAX: usize = 64;
/// Variables of a sweep.
pub const SWEEP_VARIABLES_MAX: usize = 8;
/// Cross-sections in a plan that one point of a sweep adds.
pub const CROSS_SECTIONS_MAX: usize = 256;
/// Cross-sections in a plan, those of all points of a sweep together.
pub const SWEEP_CROSS_SECTIONS_MAX: usize = SWEEP_POINTS_MAX;
/// Frames of a plan: the own bars, each reference and each higher timeframe of either.
pub const FRAMES_MAX: usize = 64;
/// Values in the parentheses of `in (...)`.
pub const LABEL_VALUES_MAX: usize = 256;
/// Bars that a value may look back through lags and windows, along one frame.
pub const LOOK_BACK_MAX: usize = 1_000_000;
/// Columns in `select`.
pub const SELECT_COLUMNS_MAX: usize = 256;
/// Keys in `rank`.
pub const RANK_KEYS_MAX: usize = 16;
/// Functions in `def`.
pub const DEFINITIONS_MAX: usize = 256;
/// Calls of defined functions in a scan, those within their texts included.
pub const DEFINED_CALLS_MAX: usize = 10_000;
/// Names in `let`.
pub const LETS_MAX: usize = 256;
/// The largest period, offset or other number of bars: TA-Lib's own limit.
pub const PERIOD_MAX: u32 = 100_000;
/// Mistakes reported at once.
pub const DIAGNOSTICS_MAX: usize = 20;

/// Parts of a scan that `--why` shows.
pub const WHY_PARTS_MAX: usize = 1000;
