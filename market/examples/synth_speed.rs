//! Measures how long it takes to generate and to load a synthetic market: `synth_speed DIRECTORY SYMBOLS BARS`.

use std::time::Instant;

use trawl_market::Timeframe;
use trawl_market::{Store, SynthOptions, synthesise};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: synth_speed DIRECTORY SYMBOLS BARS";
    let store = Store::new(args.next().ok_or(usage)?.into());
    let (symbols, bars) = (args.next().ok_or(usage)?.parse()?, args.next().ok_or(usage)?.parse()?);
    let name = format!("speed-{symbols}-{bars}");
    let options = SynthOptions { name: name.clone(), symbols, bars, seed: 1, timeframe: Timeframe::DAY };
    let start = Instant::now();
    let report = synthesise(&store, &options)?;
    println!("made {} bars, {} MB, in {:.2?}", report.bars, report.bytes / 1_000_000, start.elapsed());
    let start = Instant::now();
    let dataset = store.open(&name)?;
    println!("opened in {:.2?}", start.elapsed());
    let start = Instant::now();
    let mut loaded = 0;
    for group in 0..dataset.manifest.groups {
        loaded += dataset.load_group(group, &["close".to_owned()])?.iter().map(|b| b.times.len()).sum::<usize>();
    }
    println!("loaded {loaded} closes on one thread in {:.2?}", start.elapsed());
    Ok(())
}
