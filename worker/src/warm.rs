//! Compiles a device's kernels in advance: all primitives, from plans that together contain every function and
//! operator.

use trawl_kernels::cuda::Fleet;
use trawl_plan::catalogue::samples;
use trawl_plan::{Program, Schema, compile_expressions};

/// The columns that functions read by default.
const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// Programs whose kernels, one primitive at a time, cover those of all plans.
fn programs() -> Vec<Program> {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let program = |items: &Vec<String>| Some(compile_expressions(items, "warm", &schema).ok()?.program().clone());
    samples().iter().filter_map(program).collect()
}

/// Starts compiling a device's primitives in the background.
pub(crate) fn start(fleet: &Fleet) {
    fleet.warm(&programs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_and_every_operator_is_compiled_ahead() {
        assert_eq!(programs().len(), samples().len());
    }
}
