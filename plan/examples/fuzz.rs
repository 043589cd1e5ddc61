//! `cargo run --profile ci -p trawl-plan --example fuzz -- SECONDS [SEED]`: random documents through parser and planner.
//!
//! Prints the document before a panic ends it; `just fuzz SECONDS SEED` does the same.

#[path = "../tests/language/market.rs"]
mod market;
#[path = "../tests/language/soup.rs"]
mod soup;

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// As in the tests: a quarter of a thread's usual stack.
const STACK_BYTES: usize = 512 * 1024;

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (seconds, first) = (number(1).unwrap_or(60), number(2).unwrap_or(1));
    let run = move || {
        let schema = market::schema();
        let end = Instant::now() + Duration::from_secs(seconds);
        let (mut seed, mut good) = (first << 32, 0u64);
        let texts = soup::long_texts(1 << 14);
        while Instant::now() < end {
            let mut document = soup::document(seed);
            // A long text in a place of the document now and then.
            if seed % 64 == 0 {
                document.lets.insert("rs".to_owned(), texts[(seed / 64) as usize % texts.len()].clone());
            }
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| soup::check(&document, &schema)));
            match result {
                Ok(result) => good += u64::from(result.is_ok()),
                Err(_) => {
                    eprintln!("seed {seed}: {document:#?}");
                    std::process::exit(1);
                }
            }
            seed += 1;
        }
        println!("{} documents from seed {first}, {good} of them legal: no panic", seed - (first << 32));
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    if thread.is_ok_and(|thread| thread.join().is_err()) {
        std::process::exit(1);
    }
}
