//! Kernels on the CPU: their text is compiled by the machine's C++ compiler beside `kernels/cuda/emulator` and called.
//! No GPU is needed; a C++ compiler is, and its absence is reported as an error.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use trawl_kernels::Precision;
use trawl_kernels::cuda::{Bound, GROUP_LANES, HEADERS, Launch, Launcher, Lowered, Pointers, SCATTERED};

/// Kernels of one shared object: a compiler's time grows faster than the text.
const KERNELS_MAX: usize = 24;

/// In which order threads and blocks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Forward,
    Reverse,
    Random,
}

type Entry = unsafe extern "C" fn(*const c_void, u32, u32, u64, i32, u64) -> *const c_char;

/// Compiled kernels.
#[derive(Debug)]
pub struct Emulator {
    libraries: Vec<libloading::Library>,
    pub order: Order,
    pub seed: u64,
    /// Whether each group's columns are allocated separately, as cached columns on a device are.
    pub scattered: bool,
}

fn headers() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cuda")
}

/// The emulator sees every access to shared memory, and conversions to integers: the compiler calls it at each.
const SHADOW: &str = "-DEMULATOR_SHADOW -fsanitize=thread,float-cast-overflow";

/// Compiler flags beyond those of every text: sanitizers, or the emulator's own checks.
fn more_flags() -> Vec<String> {
    let flags = std::env::var("TRAWL_EMULATOR_FLAGS").unwrap_or_else(|_| SHADOW.to_owned());
    flags.split_whitespace().map(str::to_owned).collect()
}

/// A file name that no other text has.
fn digest(texts: &[&str]) -> u64 {
    // FNV-1a.
    let bytes = texts.iter().flat_map(|text| text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Compiles a text to a shared object, unless that was done before.
fn compile(text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated");
    std::fs::create_dir_all(&folder).expect("a folder for shared objects");
    let emulator = std::fs::read_to_string(headers().join("emulator/emulator.h")).expect("the emulator");
    let flags = more_flags();
    let mut all: Vec<&str> = vec![text, &emulator];
    all.extend(HEADERS.iter().map(|(_, header)| *header));
    all.extend(flags.iter().map(String::as_str));
    let name = format!("{:016x}", digest(&all));
    let library = folder.join(format!("{name}.so"));
    if library.exists() {
        return library;
    }
    // Under names of their own until it is complete: tests run in parallel, and two may compile one text.
    static COMPILED: AtomicUsize = AtomicUsize::new(0);
    let own = format!("{}-{}", std::process::id(), COMPILED.fetch_add(1, Ordering::Relaxed));
    let source = folder.join(format!("{name}.{own}.cpp"));
    std::fs::write(&source, text).expect("a source file");
    let fresh = folder.join(format!("{name}.{own}.tmp"));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let run = |arguments: &mut Command| {
        let run = arguments.output();
        let run = run.unwrap_or_else(|e| panic!("this test needs a C++ compiler, and '{compiler}' does not run: {e}"));
        assert!(run.status.success(), "{}:\n{}", source.display(), String::from_utf8_lossy(&run.stderr));
    };
    let object = fresh.with_extension("o");
    run(Command::new(&compiler)
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-c", "-w", "-include", "emulator/emulator.h"])
        // A local variable that nobody wrote is no zero.
        .arg("-ftrivial-auto-var-init=pattern")
        .args(&flags)
        .arg("-I")
        .arg(headers())
        .arg(&source)
        .arg("-o")
        .arg(&object));
    // Without a sanitizer's library where the emulator is in its place.
    let libraries = flags.iter().filter(|_| !flags.iter().any(|flag| flag.contains("EMULATOR_SHADOW")));
    run(Command::new(&compiler).args(["-shared", "-fPIC"]).args(libraries).arg(&object).arg("-o").arg(&fresh));
    let _ = std::fs::remove_file(&object);
    let _ = std::fs::rename(&source, folder.join(format!("{name}.cpp")));
    std::fs::rename(&fresh, &library).expect("a shared object");
    library
}

impl Emulator {
    /// Compiles kernels, name to text.
    pub fn new(kernels: &BTreeMap<String, String>) -> Self {
        // A text compiles all headers for one number type, which its first line says.
        let head = |text: &str| text.lines().next().map(str::to_owned);
        let mut by_head: BTreeMap<Option<String>, Vec<&str>> = BTreeMap::new();
        kernels.values().for_each(|text| by_head.entry(head(text)).or_default().push(text));
        let texts: Vec<String> =
            by_head.values().flat_map(|texts| texts.chunks(KERNELS_MAX)).map(<[&str]>::concat).collect();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut paths: Vec<Option<PathBuf>> = vec![None; texts.len()];
        let share = texts.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (texts, paths) in texts.chunks(share).zip(paths.chunks_mut(share)) {
                scope.spawn(move || texts.iter().zip(paths).for_each(|(text, path)| *path = Some(compile(text))));
            }
        });
        let open = |path: &PathBuf| {
            // SAFETY: the object was built from our text just now and runs no code when it is opened.
            unsafe { libloading::Library::new(path) }.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let libraries = paths.iter().flatten().map(open).collect();
        Self { libraries, order: Order::Forward, seed: 1, scattered: false }
    }
}

impl Emulator {
    /// A column's rows in one allocation, or one per group.
    fn pieces(&self, column: &[f64], first_row: &[i64], precision: Precision) -> Vec<Aligned> {
        if !self.scattered {
            return vec![Aligned::of(column, precision)];
        }
        let cell = |row: i64| row as usize * GROUP_LANES;
        let piece = |ends: &[i64]| Aligned::of(&column[cell(ends[0])..cell(ends[1])], precision);
        // From the last to the first, so that no piece directly follows the previous one.
        let mut pieces: Vec<Aligned> = first_row.windows(2).rev().map(piece).collect();
        pieces.reverse();
        pieces
    }
}

impl Launcher for Emulator {
    fn run(&self, lowered: &Lowered, launch: &Launch, memory: Bound<'_>) -> Result<(), String> {
        let kernel = &lowered.kernel.name;
        let symbol = format!("{kernel}_emulated");
        // SAFETY: functions of this name are made by TRAWL_ENTRY, with this signature.
        let entry = self.libraries.iter().find_map(|library| unsafe { library.get::<Entry>(symbol.as_bytes()) }.ok());
        let entry = entry.ok_or_else(|| format!("no kernel {kernel} was compiled"))?;
        // Aligned as a device's allocations are, and of exactly their size.
        let precision = launch.precision();
        let columns: Vec<Vec<Aligned>> =
            memory.columns.iter().map(|c| self.pieces(c, memory.first_row, precision)).collect();
        let address = |pieces: &Vec<Aligned>| pieces.iter().map(|piece| piece.address).collect();
        let tables: Vec<Vec<u64>> = columns.iter().map(address).collect();
        let out = Aligned::of(memory.out, precision);
        let scratch = Aligned::of(memory.scratch, precision);
        let pointers = Pointers {
            columns: tables
                .iter()
                .map(|table| if self.scattered { table.as_ptr() as u64 | SCATTERED } else { table[0] })
                .collect(),
            out: out.address,
            scratch: scratch.address,
            table: memory.table.as_ptr() as u64,
            first_row: memory.first_row.as_ptr() as u64,
            visible: memory.visible.as_ptr() as u64,
            tail: memory.tail.as_ptr() as u64,
        };
        let arguments = launch.arguments(&pointers);
        // SAFETY: the argument has the kernel's layout, and its pointers are valid until the call returns.
        let problem = unsafe {
            entry(
                arguments.as_ptr().cast(),
                launch.blocks as u32,
                launch.threads as u32,
                launch.shared_bytes as u64,
                self.order as i32,
                self.seed,
            )
        };
        if problem.is_null() {
            memory.out.copy_from_slice(&out.numbers());
            // States are in it, if the kernel has any that stay.
            memory.scratch.copy_from_slice(&scratch.numbers());
            return Ok(());
        }
        // SAFETY: a text that is valid until the next launch.
        Err(unsafe { CStr::from_ptr(problem) }.to_string_lossy().into_owned())
    }
}

/// Numbers of a kernel's type at an address divisible by 16, in memory of exactly their size.
struct Aligned {
    bytes: Vec<u8>,
    skipped: usize,
    address: u64,
    precision: Precision,
}

impl Aligned {
    fn of(values: &[f64], precision: Precision) -> Self {
        let mut numbers: Vec<u8> = Vec::with_capacity(8 * values.len());
        match precision {
            Precision::F64 => values.iter().for_each(|x| numbers.extend(x.to_ne_bytes())),
            Precision::F32 => values.iter().for_each(|x| numbers.extend((*x as f32).to_ne_bytes())),
        }
        let mut bytes: Vec<u8> = Vec::with_capacity(numbers.len() + 15);
        let skipped = (bytes.as_ptr() as usize).wrapping_neg() % 16;
        bytes.resize(skipped, 0);
        bytes.extend(numbers);
        let address = bytes[skipped..].as_mut_ptr() as u64;
        Self { bytes, skipped, address, precision }
    }

    /// The numbers, as a kernel may have written them.
    fn numbers(&self) -> Vec<f64> {
        let bytes = &self.bytes[self.skipped..];
        match self.precision {
            Precision::F64 => {
                bytes.chunks_exact(8).map(|x| f64::from_ne_bytes(x.try_into().expect("8 bytes"))).collect()
            }
            Precision::F32 => {
                let of = |x: &[u8]| f64::from(f32::from_ne_bytes(x.try_into().expect("4 bytes")));
                bytes.chunks_exact(4).map(of).collect()
            }
        }
    }
}
