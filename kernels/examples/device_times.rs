//! Measures plans on this machine's GPU and compares their values with the CPU's; with `--dump FOLDER` writes the text
//! and code of their kernels, which needs no GPU.
//!
//! With `--constants` the dumped kernels have lengths as constants, as the measured ones do.
//!
//!     device_times [--dump FOLDER [--constants]] [--all] [--symbols N] [--bars N] NAME=ITEM;ITEM...

use std::sync::Arc;
use std::time::Duration;

use trawl_kernels::cuda::{
    BarsSource, Cache, Compiler, Constants, Cuda, Executor, ExecutorOptions, Resources, Search, Sequence, SourceSymbol,
    gpus,
};
use trawl_kernels::stages::{EngineStage, Stages};
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::{Input, Schema, compile_expressions};

const COLUMNS: [&str; 5] = ["open", "high", "low", "close", "volume"];
const SCREEN: &str = "sma(close,20);ema(close,20);wma(close,20);rsi(close,14);macd(close,12,26,9).line;macd(close,12,26,9).signal;macd(close,12,26,9).hist;bbands(close,20,2).upper;bbands(close,20,2).middle;bbands(close,20,2).lower;atr(14);stoch(14,3,3).k;stoch(14,3,3).d;adx(14);cci(20);obv();vwap();mfi(14);kama(close,10);donchian(20).upper;donchian(20).middle;donchian(20).lower";

fn walk(symbol: u64, bars: usize) -> [Vec<f64>; 5] {
    let mut state = (0x5eed ^ symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) % below) as i64
    };
    let mut columns: [Vec<f64>; 5] = std::array::from_fn(|_| Vec::with_capacity(bars));
    let mut cents = 5_000 + random(10_000);
    for _ in 0..bars {
        let open = cents;
        cents = (cents + random(201) - 100).max(100);
        let (high, low) = (open.max(cents) + random(80), (open.min(cents) - random(80)).max(1));
        let volume = (random(900_000) + 100_000) as f64;
        let bar = [open as f64 / 100.0, high as f64 / 100.0, low as f64 / 100.0, cents as f64 / 100.0, volume];
        for (column, value) in columns.iter_mut().zip(bar) {
            column.push(value);
        }
    }
    columns
}

fn inputs<'a>(executable: &Executable, market: &'a [[Vec<f64>; 5]], begins: &'a [f64]) -> Vec<SymbolInput<'a>> {
    let column = |symbol: &'a [Vec<f64>; 5], input: &Input| match input {
        Input::Column(name) => symbol[COLUMNS.iter().position(|c| c == name).unwrap_or(0)].as_slice(),
        _ => &begins[..symbol[0].len()],
    };
    let symbol = |symbol: &'a [Vec<f64>; 5]| SymbolInput {
        columns: executable.inputs.iter().map(|input| column(symbol, input)).collect(),
        visible: symbol[0].len(),
    };
    market.iter().map(symbol).collect()
}

fn main() {
    let mut constants = Constants::None;
    let (mut dump, mut all, mut symbols, mut bars, mut plans) = (None, false, 10_000u64, 2_000usize, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dump" => dump = arguments.next(),
            "--all" => all = true,
            "--constants" => constants = Constants::Lengths,
            "--symbols" => symbols = arguments.next().and_then(|n| n.parse().ok()).expect("symbols"),
            "--bars" => bars = arguments.next().and_then(|n| n.parse().ok()).expect("bars"),
            plan => plans.push(plan.to_owned()),
        }
    }
    let schema = Schema::of_columns(COLUMNS.map(str::to_owned).to_vec());
    let compiled = |plan: &str| {
        let (name, items) = plan.split_once('=').unwrap_or((plan, plan));
        let items = if items == "W1" { SCREEN } else { items };
        let items: Vec<String> = items.split(';').enumerate().map(|(i, item)| format!("{item} as o{i}")).collect();
        let plan = compile_expressions(&items, "times", &schema).unwrap_or_else(|e| panic!("{name}: {}", e[0]));
        (name.to_owned(), plan)
    };
    if let Some(folder) = dump {
        let python = std::env::var("TRAWL_PYTHON").expect("TRAWL_PYTHON");
        let environment = std::path::Path::new(&python).parent().and_then(std::path::Path::parent).expect("bin/python");
        let compiler = Compiler::find(&Search::of_python(environment)).expect("NVRTC");
        for (name, plan) in plans.iter().map(|plan| compiled(plan)) {
            let sequence = Sequence::fused_with(plan.program(), constants).expect("kernels");
            for (number, call) in sequence.calls.iter().enumerate() {
                let kernel = &call.lowered.kernel;
                std::fs::write(format!("{folder}/{name}-{number}.cu"), &kernel.source).expect("written");
                let begun = std::time::Instant::now();
                let made = compiler.compile(kernel, 90).unwrap_or_else(|e| panic!("{e}"));
                std::fs::write(format!("{folder}/{name}-{number}.cubin"), &made.cubin).expect("written");
                println!(
                    "{name}-{number}: {} warps, tile {}, series {} bytes, {} blocks, {:?}, compiled in {:?}",
                    kernel.warps,
                    kernel.tile,
                    kernel.series_rows * 256,
                    kernel.blocks,
                    Resources::of_log(&made.log),
                    begun.elapsed()
                );
            }
        }
        return;
    }
    let gpu = gpus(&Search::of_environment(), None).expect("a GPU").remove(0);
    let device = Arc::new(Cuda::open(&gpu).expect("it opens"));
    let options =
        ExecutorOptions { wait_for_fused: true, batch_time_max: Duration::from_secs(60), ..Default::default() };
    let executor = Executor::new(device, Cache::in_memory(), options).expect("an executor");
    let market: Vec<_> = (0..symbols).map(|symbol| walk(symbol, bars)).collect();
    // For parity: odd lengths, missing and infinite values.
    let small: Vec<_> = (0..70u64)
        .map(|symbol| {
            let mut columns = walk(symbol, [1, 31, 32, 33, 100, 161, 500, 900][symbol as usize % 8]);
            let count = columns[0].len();
            let at = |k: usize| (0..count).skip(k).step_by(29);
            match symbol % 5 {
                1 => at(3).for_each(|bar| columns[symbol as usize % 5][bar] = f64::NAN),
                2 => at(70).for_each(|bar| columns[symbol as usize % 5][bar] = f64::INFINITY),
                3 => columns.iter_mut().take(4).for_each(|column| column.fill(25.0)),
                4 => {
                    at(7).for_each(|bar| columns[symbol as usize % 5][bar] = if bar % 2 == 0 { 1e308 } else { 5e-324 })
                }
                _ => {}
            }
            columns
        })
        .collect();
    let begins: Vec<f64> = (0..bars.max(1000)).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
    for (name, plan) in plans.iter().map(|plan| compiled(plan)) {
        let executable = Executable::new(plan.program(), Precision::F64);
        let few = inputs(&executable, &small, &begins);
        let mut differ = 0usize;
        for last in [false, true] {
            let from: Vec<usize> = few.iter().map(|s| if last { s.visible - 1 } else { 0 }).collect();
            let cpu = executable.evaluate_from(&few, &from, &NoCancel).expect("the CPU");
            let gpu = executor
                .evaluate_from(&executable, &few, &from, None, &NoCancel, &mut Stages::default())
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let pairs = cpu.iter().zip(gpu.iter());
            differ += pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        }
        let names: Vec<String> = (0..symbols).map(|i| i.to_string()).collect();
        let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
        let source = BarsSource { bars: Arc::from("times"), group: 0, symbols: &names };
        let many = inputs(&executable, &market, &begins);
        for every in [false, true].into_iter().filter(|every| !every || all) {
            let from: Vec<usize> = many.iter().map(|s| if every { 0 } else { s.visible - 1 }).collect();
            let mut times = Vec::new();
            for _ in 0..=8 {
                let mut stages = Stages::default();
                executor.compute_only(&executable, &many, &from, Some(&source), &mut stages).expect("it runs");
                let spans = stages.spans().iter().filter(|span| span.stage == EngineStage::Kernel);
                times.push(spans.map(|span| span.ended.saturating_duration_since(span.started)).sum::<Duration>());
            }
            times.remove(0);
            times.sort_unstable();
            println!(
                "{name} {}: best {:.3} ms, median {:.3} ms, {differ} cells differ",
                if every { "all bars" } else { "last bar" },
                times[0].as_secs_f64() * 1e3,
                times[times.len() / 2].as_secs_f64() * 1e3
            );
        }
    }
}
