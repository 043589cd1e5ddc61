//! Kernels compile for real, without a GPU: by NVIDIA's run-time compiler from the tests' Python environment, for an
//! H200. The report of ptxas is checked: no spills, no more registers than a block's threads can have.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use trawl_kernels::cuda::{
    CompileError, Compiled, Compiler, Constants, Kernel, Limits, Market, OneBar, REGISTERS_MAX, Resources, Search,
    Sequence, Wanted, fixed_kernels,
};
use trawl_kernels::{Precision, SymbolInput};

use crate::fused::{catalogue, program};

pub const ARCHITECTURE: u32 = 90;

/// Registers of a multiprocessor that the threads of a block share.
const BLOCK_REGISTERS: usize = 65_536;

/// Bytes of shared memory that the system reserves per block: 227 KiB of a block's 228.
const RESERVED_SHARED_BYTES: usize = 1024;

/// Maximum bytes of code of a classification with constant lengths, including rarely executed code: 128 KiB are cached.
const CONSTANT_CODE_BYTES_MAX: usize = 128 * 1024;

/// Maximum bytes of stack per thread: the averages of a family, and registers saved by a call.
const STACK_BYTES_MAX: u64 = 400;

/// The screen used for comparisons with other programs: fifteen indicators, each at the last bar.
pub const SCREEN: &[&str] = &[
    "sma(close,20)",
    "ema(close,20)",
    "wma(close,20)",
    "rsi(close,14)",
    "macd(close,12,26,9).line",
    "macd(close,12,26,9).signal",
    "macd(close,12,26,9).hist",
    "bbands(close,20,2).upper",
    "bbands(close,20,2).middle",
    "bbands(close,20,2).lower",
    "atr(14)",
    "stoch(14,3,3).k",
    "stoch(14,3,3).d",
    "adx(14)",
    "cci(20)",
    "obv()",
    "vwap()",
    "mfi(14)",
    "kama(close,10)",
    "donchian(20).upper",
    "donchian(20).middle",
    "donchian(20).lower",
];

/// Plans of every family, of one warp and of many.
const PLANS: &[&[&str]] = &[
    SCREEN,
    &["rsi(close,14) < 30 and close > sma(close,50) and adx(14) > 20 and macd().hist > 0 and cci(20) < 100"],
    &["atc().signal", "atc().trend"],
    &["ht_trendmode(close)", "ht_sine(close).sine", "mama(close).fama", "sar()", "supertrend(7,3).line"],
    &[
        "correl(close,open,30)",
        "beta(close,open,20)",
        "linearreg(close,14)",
        "percentile(close,50,0.5)",
        "pow(close,1.5)",
    ],
];

/// The interpreter of the Python environment that `tools/get-venv` makes.
pub fn python() -> String {
    std::env::var("TRAWL_PYTHON").unwrap_or_else(|_| {
        let made = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/get-venv")).output();
        let made = made.expect("tools/get-venv runs");
        assert!(made.status.success(), "tools/get-venv: {}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8_lossy(&made.stdout).trim().to_owned()
    })
}

/// NVIDIA's compiler in that environment.
fn compiler() -> Compiler {
    let environment: Option<PathBuf> = Path::new(&python()).parent().and_then(Path::parent).map(Path::to_path_buf);
    let search = Search::of_python(&environment.expect("bin/python of an environment"));
    Compiler::find(&search).unwrap_or_else(|e| panic!("this test needs the package nvidia-cuda-nvrtc: {e}"))
}

/// The code of kernels, compiled by several threads at a time. Each takes the next kernel: a large one takes as long as forty others.
pub fn compiled(kernels: &BTreeMap<String, Kernel>, architecture: u32) -> Vec<(&Kernel, Compiled)> {
    let compiler = compiler();
    let (next, made) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let all: Vec<&Kernel> = kernels.values().collect();
    let compile = || {
        while let Some(kernel) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let code = compiler.compile(kernel, architecture).unwrap_or_else(|e| panic!("{e}\n{}", kernel.source));
            assert!(code.cubin.starts_with(b"\x7fELF"), "code for a device");
            made.lock().expect("no thread died").insert(&*kernel.name, code);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(compile);
        }
    });
    let made = made.into_inner().expect("no thread died");
    made.into_iter().map(|(name, code)| (&kernels[name], code)).collect()
}

/// The report of ptxas on kernels.
fn resources(kernels: &BTreeMap<String, Kernel>) -> Vec<(&Kernel, Resources)> {
    compiled(kernels, ARCHITECTURE).into_iter().map(|(kernel, code)| (kernel, Resources::of_log(&code.log))).collect()
}

fn kernels(plans: impl IntoIterator<Item = Vec<String>>) -> BTreeMap<String, Kernel> {
    let sequences = |items: Vec<String>| {
        let program = program(&items);
        let fused = Sequence::fused(&program).unwrap_or_else(|e| panic!("{items:?}: {e}"));
        // Over chunks too, if there are such kernels.
        [Some(fused), Sequence::in_chunks(&program, false).ok()].into_iter().flatten()
    };
    let calls = plans.into_iter().flat_map(sequences).flat_map(|plan| plan.calls);
    calls.map(|call| (call.lowered.kernel.name.clone(), call.lowered.kernel)).collect()
}

/// Kernels of a plan in `f32`.
fn short_kernels(items: &[&str]) -> Vec<(String, Kernel)> {
    let program = program(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
    let fused = Sequence::fused_in(&program, Constants::None, Precision::F32).expect("every primitive");
    fused.calls.into_iter().map(|call| (call.lowered.kernel.name.clone(), call.lowered.kernel)).collect()
}

/// The kernel of a plan's states.
fn one_bar_kernel(items: Vec<String>) -> (String, Kernel) {
    let kernel = OneBar::new(&program(&items)).unwrap_or_else(|e| panic!("{items:?}: {e}")).lowered.kernel;
    (kernel.name.clone(), kernel)
}

#[test]
fn kernels_compile_without_spills_and_within_their_registers() {
    let plans = PLANS.iter().map(|items| items.iter().map(|item| (*item).to_owned()).collect());
    let mut kernels = kernels(plans.chain(catalogue()));
    kernels.extend(PLANS.iter().flat_map(|items| short_kernels(items)));
    kernels.extend(PLANS.iter().map(|items| items.iter().map(|item| (*item).to_owned()).collect()).map(one_bar_kernel));
    kernels.extend(fixed_kernels().into_iter().map(|kernel| (kernel.name.clone(), kernel)));
    let mut most = Resources::default();
    let mut wrong = Vec::new();
    for (kernel, taken) in resources(&kernels) {
        let budget = (BLOCK_REGISTERS / (32 * kernel.warps)).min(REGISTERS_MAX as usize) as u32;
        let fits = taken.spilled_bytes == 0 && (1..=budget).contains(&taken.registers);
        if !fits || taken.stack_bytes > STACK_BYTES_MAX {
            wrong.push(format!("{} warps, {budget} registers each: {taken:?}\n{}", kernel.warps, kernel.source));
        }
        most.registers = most.registers.max(taken.registers);
        most.stack_bytes = most.stack_bytes.max(taken.stack_bytes);
    }
    assert!(
        wrong.is_empty(),
        "{} of {} kernels spill or take too much:\n{}",
        wrong.len(),
        kernels.len(),
        wrong.join("\n")
    );
    println!("{} kernels compiled, at most {most:?}", kernels.len());
}

/// Asserts that two blocks of a classification fit a multiprocessor, which bounds its speed over many symbols. Returns
/// the kernel.
fn two_blocks_fit(constants: Constants) -> Kernel {
    let program = program(&["atc().signal".to_owned()]);
    let plan = Sequence::fused_with(&program, constants).expect("every primitive");
    let [call] = plan.calls.as_slice() else { panic!("{} kernels", plan.calls.len()) };
    let series = vec![0.0; 2_000];
    let symbol = SymbolInput { columns: vec![series.as_slice(); program.inputs.len()], visible: series.len() };
    let market = Market::new(program.inputs.len(), &[symbol]);
    let launch = call.lowered.launch(&market, Wanted::Last, Limits::default());
    let kernel = &call.lowered.kernel;
    let taken = resources(&BTreeMap::from([(kernel.name.clone(), kernel.clone())]))[0].1;
    println!(
        "{} warps, tiles of {} bars, {} bytes of shared memory: {taken:?}",
        kernel.warps, kernel.tile, launch.shared_bytes
    );
    assert_eq!(kernel.blocks, 2);
    assert_eq!(launch.scratch_len, 0, "every ring finds room");
    assert!(
        2 * (launch.shared_bytes + RESERVED_SHARED_BYTES) <= Limits::default().shared_bytes + RESERVED_SHARED_BYTES
    );
    assert!(2 * launch.threads * taken.registers as usize <= BLOCK_REGISTERS, "{taken:?}");
    assert_eq!(taken.spilled_bytes, 0);
    kernel.clone()
}

#[test]
fn two_blocks_of_the_classification_fit_a_multiprocessor() {
    two_blocks_fit(Constants::None);
}

/// With constant lengths too, and the code of the whole kernel fits a multiprocessor's instruction cache.
#[test]
fn two_blocks_of_the_classification_with_constant_lengths_fit_a_multiprocessor() {
    let kernel = two_blocks_fit(Constants::Lengths);
    let code = code_bytes(&compiler().compile(&kernel, ARCHITECTURE).unwrap_or_else(|e| panic!("{e}")).cubin);
    assert!(code <= CONSTANT_CODE_BYTES_MAX, "{code} bytes");
}

/// Bytes of machine code in a CUBIN: of the sections of an ELF file of 64 bits that can be executed.
fn code_bytes(cubin: &[u8]) -> usize {
    let number = |at: usize, bytes: usize| -> usize {
        cubin[at..at + bytes].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
    };
    let (table, entry, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let sections = (0..count).map(|section| table + section * entry);
    // Flags of a section are at 8, its size at 32; 4 is SHF_EXECINSTR.
    sections.filter(|at| number(at + 8, 8) & 4 != 0).map(|at| number(at + 32, 8)).sum()
}

#[test]
fn what_does_not_compile_is_reported_with_the_log() {
    let outcome = compiler().compile_text("wrong", "#include \"kernel.cuh\"\nint x = nothing;\n", ARCHITECTURE);
    let Err(CompileError::Failed { log, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(log.contains("nothing") && log.contains("wrong.cu"), "{log}");
}
