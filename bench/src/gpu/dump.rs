//! Bars and outputs of W1 and of Adaptive Trend Classification as files, for programs in other languages that compute the same
//! (`benches/gpu_peers.py`).
//!
//! `dump.json` names the files and their shapes, [series, symbol, bar]; numbers are f64, little-endian, NaN where missing.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use trawl_kernels::cuda::Executor;
use trawl_kernels::stages::Stages;
use trawl_kernels::{Executable, NoCancel, Precision, Values};

use super::figures::{ATC, compiled, inputs, market, screen_items};
use super::{Outcome, Size};
use crate::COLUMNS;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A file of series.
#[derive(Serialize)]
struct DumpFile {
    file: String,
    /// Series, symbols, bars.
    shape: [usize; 3],
    names: Vec<String>,
}

#[derive(Serialize)]
struct Plans {
    w1: DumpFile,
    atc: DumpFile,
}

#[derive(Serialize)]
struct Dump {
    /// What computed the outputs.
    backend: &'static str,
    device: String,
    symbols: u32,
    bars: u32,
    inputs: DumpFile,
    plans: Plans,
}

/// Writes the dump into `folder`, which is made if need be.
///
/// # Errors
/// A plan that does not run, a file that cannot be written.
pub(super) fn write(executor: &Executor, size: &Size, folder: &Path) -> Result<Outcome> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make '{}'", folder.display()))?;
    let market = market(size.symbols, size.bars);
    let shape = |series: usize| [series, size.symbols as usize, size.bars as usize];
    let (file, names) = ("inputs.f64".to_owned(), COLUMNS.map(str::to_owned).to_vec());
    written(
        &folder.join(&file),
        (0..COLUMNS.len()).flat_map(|c| market.iter().map(move |symbol| symbol[c].as_slice())),
    )?;
    let inputs = DumpFile { file, shape: shape(COLUMNS.len()), names };
    let outputs = |file: &str, items: &[&str]| {
        let values = computed(executor, items, &market)?;
        let of_output = |output| (0..values.symbols()).map(move |symbol| (symbol, output));
        let series = (0..items.len()).flat_map(of_output).map(|(symbol, output)| values.series(symbol, output));
        written(&folder.join(file), series)?;
        let names = items.iter().map(|item| (*item).to_owned()).collect();
        anyhow::Ok(DumpFile { file: file.to_owned(), shape: shape(items.len()), names })
    };
    let plans = Plans { w1: outputs("w1.f64", &screen_items())?, atc: outputs("atc.f64", &[ATC])? };
    let (facts, symbols, bars) = (executor.facts(), size.symbols, size.bars);
    let dump = Dump { backend: facts.backend, device: facts.name.clone(), symbols, bars, inputs, plans };
    let path = folder.join("dump.json");
    let text = serde_json::to_string_pretty(&dump)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("cannot write '{}'", path.display()))?;
    let mut outcome = Outcome::done();
    outcome.line("bars and outputs", path.display().to_string());
    Ok(outcome)
}

/// Every bar of every output.
fn computed(executor: &Executor, items: &[&str], market: &[[Vec<f64>; 5]]) -> Result<Values> {
    let plan = compiled(items)?;
    let program = Executable::new(plan.program(), Precision::F64);
    let symbols = inputs(&program, market)?;
    let from = vec![0; symbols.len()];
    Ok(executor.evaluate_from(&program, &symbols, &from, None, &NoCancel, &mut Stages::default())?)
}

fn written<'a>(path: &Path, series: impl Iterator<Item = &'a [f64]>) -> Result<()> {
    let write = || {
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        for value in series.flatten() {
            file.write_all(&value.to_le_bytes())?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write '{}'", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trawl_kernels::cuda::{Cache, ExecutorOptions};
    use trawl_test_driver::TestDevice;

    use super::*;

    #[test]
    fn a_dump_is_of_the_market_and_of_the_engines_values() {
        let options = ExecutorOptions { wait_for_fused: true, ..ExecutorOptions::default() };
        let device = Arc::new(TestDevice::new("").open());
        let executor = Executor::new(device, Cache::in_memory(), options).unwrap();
        let size = Size { symbols: 3, bars: 40, long_bars: 1, repeats: 1, functions: None };
        let folder = tempfile::tempdir().unwrap();
        write(&executor, &size, folder.path()).unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("dump.json")).unwrap()).unwrap();
        let market = market(3, 40);
        // The last bar of the second symbol's series number `series`.
        let read = |part: &serde_json::Value, series: usize| {
            assert_eq!(part["shape"][0], part["names"].as_array().unwrap().len());
            let bytes = std::fs::read(folder.path().join(part["file"].as_str().unwrap())).unwrap();
            assert_eq!(part["shape"].as_array().unwrap()[1..], [3, 40]);
            assert_eq!(bytes.len(), part["names"].as_array().unwrap().len() * 3 * 40 * 8);
            let at = ((series * 3 + 1) * 40 + 39) * 8;
            f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        assert_eq!(read(&json["inputs"], 3).to_bits(), market[1][3][39].to_bits());
        let plans = &json["plans"];
        let mean = read(&plans["w1"], 0);
        let close = &market[1][3][20..];
        assert!((mean - close.iter().sum::<f64>() / 20.0).abs() < 1e-9, "{mean}");
        assert_eq!(plans["w1"]["names"][0], "sma(close, 20)");
        assert!(read(&plans["atc"], 0).abs() <= 1.0);
    }
}
