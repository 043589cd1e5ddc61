//! The language from outside: what compiles, what it means, what is refused and how.

mod calls;
mod definitions;
mod edge_flags;
mod frames;
mod headings;
mod legality;
mod market;
mod mistakes;
mod robustness;
mod sameness;
mod session;
mod soup;

use market::schema;
use trawl_plan::{Diagnostic, Plan, ScanDocument, compile_scan};

fn scan(condition: &str) -> Result<Plan, Vec<Diagnostic>> {
    compile_scan(&ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() }, &schema())
}

/// The plan of a condition that must compile.
fn plan(condition: &str) -> Plan {
    scan(condition).unwrap_or_else(|d| panic!("{condition}: {}", d[0]))
}

/// The only mistake of a condition.
fn mistake(condition: &str) -> Diagnostic {
    let mut all = scan(condition).expect_err("a mistake was expected");
    assert_eq!(all.len(), 1, "{condition}: {all:?}");
    all.remove(0)
}
