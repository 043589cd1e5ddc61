//! What a device has compiled before anybody asks: every primitive, by plans that have every function and operator between them.

use trawl_kernels::cuda::Executor;
use trawl_plan::catalogue::samples;
use trawl_plan::{Program, Schema, compile_expressions};

/// The columns that functions read where nothing else is said.
const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];

/// The plans whose kernels, a primitive at a time, are those of all plans.
fn programs() -> Vec<Program> {
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let program = |items: &Vec<String>| Some(compile_expressions(items, "warm", &schema).ok()?.program().clone());
    samples().iter().filter_map(program).collect()
}

/// Has a device's primitives compiled in the background.
pub(crate) fn start(executor: &Executor) {
    executor.warm(programs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_and_every_operator_is_compiled_ahead() {
        assert_eq!(programs().len(), samples().len());
    }
}
