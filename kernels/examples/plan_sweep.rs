//! Measures planning of a wide sweep: Bollinger bands with each of many periods, from the document's text to the
//! lowered program. `benches/plan.sh` records the results.
//!
//!     plan_sweep [SETTINGS] [REPEATS]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use trawl_kernels::{Executable, Precision};
use trawl_plan::{ScanDocument, Schema, compile_scan};

const SETTINGS: usize = 16_384;
const REPEATS: usize = 5;

fn milliseconds<T>(repeats: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let (mut best, mut made) = (f64::INFINITY, None);
    for _ in 0..repeats.max(1) {
        let begun = Instant::now();
        made = Some(black_box(run()));
        best = best.min(begun.elapsed().as_secs_f64() * 1e3);
    }
    (best, made.expect("at least one run"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let settings = arguments.next().transpose()?.unwrap_or(SETTINGS);
    let repeats = arguments.next().transpose()?.unwrap_or(REPEATS);
    let text =
        format!("where = 'close > bbands(close, n).upper'\n[sweep]\nn = {{ from = 2, to = {} }}\n", settings + 1);
    let document = ScanDocument::from_toml(&text).map_err(|mistake| mistake.to_string())?;
    let schema = Schema::of_columns(["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec());
    let (compiled_ms, plan) = milliseconds(repeats, || compile_scan(&document, &schema));
    let plan = plan.map_err(|mistakes| mistakes[0].to_string())?;
    let (lowered_ms, executable) = milliseconds(repeats, || Executable::new(plan.program(), Precision::F64));
    println!(
        "{{\"settings\": {settings}, \"steps\": {}, \"compiled_ms\": {compiled_ms:.1}, \"lowered_ms\": {lowered_ms:.1}}}",
        executable.nodes().len()
    );
    Ok(())
}
