//! Inputs of the static model of machine code (`tools/gpu_model`): kernels' code, and the memory that each launch
//! reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::{Value, json};
use trawl_kernels::cuda::{
    Bound, CHUNK_BARS, Compiled, Constants, Cut, Kernel, Launch, Launcher, Limits, Lowered, Market, OneBar, Pointers,
    Resources, Sequence, Series, Wanted,
};
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::catalogue::{Function, functions, sample};

use crate::compile::{ARCHITECTURE, SCREEN, compiled, python};
use crate::emulator::Emulator;
use crate::fused::{inputs, market, program};

/// Bars of the model's symbol before those that finite windows are wanted from: past the seeds of every recursive step.
const SETTLED_BARS: usize = 320;

/// Symbols of the market that estimates are for: how many blocks share a multiprocessor depends on it.
const MANY_SYMBOLS: usize = 10_016;

/// Bars of the market that estimates are for, and the most that the model's symbol has behind its settled ones.
const MANY_BARS: usize = 2_000;
const REACH_MAX: usize = 400;

/// Bars that are added to W1's states: one of a prime number, at which no window begins a block, and one divisible by
/// the periods of all of its windows (20, 14, 10, 3).
const ONE_BAR: usize = 421;
const ONE_BAR_BLOCKS: usize = 420;

/// Chunks of the model's long symbol: the first, which differs, and the next one, which stands for all others.
const CHUNKS_WALKED: usize = 2;

/// Narrow chunks that show what a map costs, and the two of their lanes that are compared. Maps are applied in batches of
/// eight: that is the distance of the lanes, which lie behind the chunks in which means are seeded.
const NARROW_CHUNKS: usize = 26;
const NARROW_LANES: [usize; 2] = [17, 25];

/// Functions whose kernels are compiled as one text.
const BATCH_PLANS: usize = 14;

/// Address of the first buffer of a launch, and distance between buffers, in the model's address space.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
const ADDRESS_STEP: u64 = 0x1000_0000;

/// Exit code of the model when there is no disassembler.
const NVDISASM_MISSING: i32 = 77;

/// Records what each launch reads, instead of running it.
#[derive(Debug)]
struct Recorder {
    folder: PathBuf,
    plan: String,
    /// Call, output of it, and the CPU's value at the last bar of the model's symbol, which is in lane 0.
    expected: Vec<(usize, usize, f64)>,
    /// Per call: the shared memory of a block over many bars, where it differs from the model's.
    shared_bytes: Vec<usize>,
    /// The lanes that are walked in order.
    lanes: Vec<usize>,
    /// Runs what is recorded, if later launches are to read its outputs.
    emulator: Option<Emulator>,
    written: Mutex<Vec<Value>>,
}

/// Buffers of a launch: their contents are concatenated in a file.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    places: Vec<Value>,
    next: u64,
}

impl Buffers {
    fn add(&mut self, bytes: Vec<u8>) -> u64 {
        let address = FIRST_ADDRESS + self.next * ADDRESS_STEP;
        self.next += 1;
        self.places.push(json!({"address": address, "offset": self.bytes.len(), "bytes": bytes.len()}));
        self.bytes.extend(bytes);
        address
    }

    fn doubles(&mut self, values: &[f64]) -> u64 {
        self.add(values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// Numbers of a kernel's type.
    fn numbers(&mut self, values: &[f64], precision: Precision) -> u64 {
        match precision {
            Precision::F64 => self.doubles(values),
            Precision::F32 => self.add(values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect()),
        }
    }

    fn ints(&mut self, values: &[i32]) -> u64 {
        self.add(values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }
}

impl Launcher for Recorder {
    fn run(&self, lowered: &Lowered, launch: &Launch, memory: Bound<'_>) -> Result<(), String> {
        let mut buffers = Buffers::default();
        let precision = launch.precision();
        let number_bytes = if precision == Precision::F64 { 8 } else { 4 };
        let columns = memory.columns.iter().map(|column| buffers.numbers(column, precision)).collect();
        let pointers = Pointers {
            columns,
            out: buffers.numbers(memory.out, precision),
            scratch: buffers.numbers(memory.scratch, precision),
            table: buffers.doubles(memory.table),
            first_row: buffers.add(memory.first_row.iter().flat_map(|x| x.to_le_bytes()).collect()),
            visible: buffers.ints(memory.visible),
            tail: buffers.ints(memory.tail),
        };
        let mut written = self.written.lock().expect("no test died with it");
        let call = written.len();
        let name = format!("{}.{call}", self.plan);
        let stride = launch.output_stride();
        let kernel = &lowered.kernel;
        let last = launch.wanted() == Wanted::Last;
        let place = |output: usize| pointers.out + (output * stride * number_bytes) as u64;
        let mine = self.expected.iter().filter(|(of, ..)| last && *of == call);
        let wanted = |(_, output, value): &(usize, usize, f64)| json!({"address": place(*output), "bits": bits_of(*value, precision)});
        let expected: Vec<Value> = mine.map(wanted).collect();
        std::fs::write(self.folder.join(format!("{name}.mem")), &buffers.bytes).map_err(|e| e.to_string())?;
        std::fs::write(self.folder.join(format!("{name}.cu")), &kernel.source).map_err(|e| e.to_string())?;
        written.push(json!({
            "name": name,
            "plan": self.plan,
            "kernel": kernel.name,
            "every_bar": !last,
            "warps": kernel.warps,
            "tile": kernel.tile,
            "shared_bytes": self.shared_bytes.get(call).copied().unwrap_or(launch.shared_bytes),
            "columns": kernel.columns,
            "outputs": kernel.outputs,
            "number_bytes": number_bytes,
            "threads": launch.threads,
            "lanes": self.lanes,
            "bars": memory.visible.first(),
            "tail": memory.tail.first(),
            "arguments": hex::encode(launch.arguments(&pointers)),
            "memory": buffers.places,
            "expected": expected,
        }));
        self.emulator.as_ref().map_or(Ok(()), |emulator| emulator.run(lowered, launch, memory))
    }
}

/// A value's bits in a precision, as hexadecimal digits.
fn bits_of(value: f64, precision: Precision) -> String {
    match precision {
        Precision::F64 => format!("{:016x}", value.to_bits()),
        Precision::F32 => format!("{:08x}", (value as f32).to_bits()),
    }
}

/// The resources of the devices of a compute capability, as kernels are launched there.
fn limits(architecture: u32) -> Limits {
    match architecture {
        89 => Limits { shared_bytes: 99 * 1024, multiprocessors: 58 },
        _ => Limits::default(),
    }
}

/// How a plan is lowered and launched.
#[derive(Debug, Clone, Copy)]
struct Way {
    wanted: Wanted,
    constants: Constants,
    precision: Precision,
    limits: Limits,
}

impl Way {
    /// The last bar, of a plan whose parameters are arguments, in `f64`.
    fn last(limits: Limits) -> Self {
        Self { wanted: Wanted::Last, constants: Constants::None, precision: Precision::F64, limits }
    }
}

/// Records a plan over one symbol; its kernels.
fn record(folder: &Path, plan: &str, items: &[String], way: Way) -> Batch {
    let Way { wanted, constants, precision, limits } = way;
    let program = program(items);
    let sequence = Sequence::fused_in(&program, constants, precision).unwrap_or_else(|e| panic!("{items:?}: {e}"));
    // Of many long histories: how far before the last bar a launch begins to want finite windows, and its shared
    // memory.
    let long = vec![0.0; MANY_BARS];
    let far = SymbolInput { columns: vec![&long; program.inputs.len()], visible: MANY_BARS };
    let places = Market::places(&vec![far; MANY_SYMBOLS]);
    let launches: Vec<Launch> =
        sequence.calls.iter().map(|call| call.lowered.launch(&places, Wanted::Last, limits)).collect();
    let reach = launches.iter().map(|launch| MANY_BARS - launch.tail[0] as usize).max().unwrap_or(0);
    let bars = SETTLED_BARS + reach.min(REACH_MAX);
    let series = market(&[bars], 1);
    let period_begins: Vec<f64> = (0..bars).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
    let symbols = inputs(&program, &series, &period_begins);
    let executable = Executable::new(&program, precision);
    let values = executable.evaluate_from(&symbols[..1], &[0], &NoCancel).expect("not cancelled").nested().remove(0);
    let expected = sequence.outputs.iter().zip(&values).filter_map(|(output, series)| match *output {
        Series::Made { call, output } => Some((call, output, series[bars - 1])),
        _ => None,
    });
    let market = Market::new(program.inputs.len(), &symbols);
    let recorder = Recorder {
        folder: folder.to_owned(),
        plan: plan.to_owned(),
        expected: expected.collect(),
        shared_bytes: launches.iter().map(|launch| launch.shared_bytes).collect(),
        lanes: vec![0],
        emulator: None,
        written: Mutex::default(),
    };
    // Rings are placed as for many symbols, whose blocks share a multiprocessor.
    let shared_bytes = launches.iter().map(|launch| launch.shared_bytes).max().unwrap_or(0);
    sequence.run(&recorder, &market, wanted, Limits { shared_bytes, ..limits }).expect("files are written");
    let kernels = sequence.calls.iter().map(|call| (call.lowered.kernel.name.clone(), call.lowered.kernel.clone()));
    (recorder.written.into_inner().expect("no test died with it"), kernels.collect())
}

/// Records the launch that adds bar `bar` to states of a plan over one symbol, which the emulator has walked so far.
fn record_one_bar(folder: &Path, plan: &str, items: &[String], bar: usize) -> Batch {
    let program = program(items);
    let one = OneBar::new(&program).unwrap_or_else(|e| panic!("{items:?}: {e}"));
    let kernel = &one.lowered.kernel;
    let series = market(&[bar + 1], 1);
    let symbols = inputs(&program, &series, &[]);
    let expected = Executable::new(&program, Precision::F64).evaluate_last(&symbols, &NoCancel).expect("not cancelled");
    let recorder = Recorder {
        folder: folder.to_owned(),
        plan: plan.to_owned(),
        expected: expected[0].iter().enumerate().map(|(output, value)| (0, output, *value)).collect(),
        shared_bytes: Vec::new(),
        lanes: vec![0],
        emulator: None,
        written: Mutex::default(),
    };
    let emulator = Emulator::new(&BTreeMap::from([(kernel.name.clone(), kernel.source.clone())]));
    let mut launch = one.launch(1, MANY_BARS);
    let (mut out, mut scratch) = (vec![f64::NAN; launch.out_len], vec![f64::NAN; launch.scratch_len]);
    let lanes = launch.output_stride();
    let rows: [(usize, usize, &dyn Launcher); 2] = [(0, bar, &emulator), (bar, 1, &recorder)];
    for (first, rows, launcher) in rows {
        let row = |column: &[f64]| -> Vec<f64> {
            column[first..first + rows]
                .iter()
                .flat_map(|x| (0..lanes).map(|lane| if lane == 0 { *x } else { 0.0 }))
                .collect()
        };
        let columns: Vec<Vec<f64>> = symbols[0].columns.iter().map(|column| row(column)).collect();
        // The last bar's values are wanted.
        let flags: Vec<i32> = (0..rows * lanes)
            .map(|at| if at % lanes > 0 { 0 } else { 1 + i32::from(at / lanes + 1 == rows) })
            .collect();
        launch.set_rows(rows, first == 0);
        let memory = Bound {
            columns: columns.iter().map(Vec::as_slice).collect(),
            out: &mut out,
            scratch: &mut scratch,
            table: &launch.table,
            first_row: &[],
            visible: &flags,
            tail: &[],
        };
        launcher.run(&one.lowered, &launch, memory).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut written = recorder.written.into_inner().expect("no test died with it");
    for launch in &mut written {
        launch["one_bar"] = json!(true);
        (launch["bars"], launch["tail"]) = (json!(1), json!(0));
    }
    (written, BTreeMap::from([(kernel.name.clone(), kernel.clone())]))
}

/// As [`record`], for a plan over chunks of one symbol; series passed between kernels are named by call and output. Its
/// launches are followed by those over narrow chunks, which name the call whose maps they are about (`maps_of`).
fn record_chunks(folder: &Path, plan: &str, items: &[String]) -> Batch {
    let program = program(items);
    let sequence = Sequence::in_chunks(&program, false).unwrap_or_else(|e| panic!("{items:?}: {e}"));
    let lead = sequence.lead.expect("over chunks");
    let record = |plan: String, width: usize, chunks: usize, lanes: Vec<usize>, emulator: Option<Emulator>| {
        let cut = Cut { width, lead };
        let series = market(&[chunks * width], 1);
        let symbols = inputs(&program, &series, &[]);
        let all = cut.lanes(symbols.iter().map(|symbol| symbol.visible));
        let heads = cut.heads(&symbols);
        let pieces = cut.pieces(&symbols, &heads, &all);
        let market = cut.places(&all).with_columns(program.inputs.len(), &pieces);
        let (expected, shared_bytes, written) = (Vec::new(), Vec::new(), Mutex::default());
        let recorder = Recorder { folder: folder.to_owned(), plan, expected, shared_bytes, lanes, emulator, written };
        sequence.run(&recorder, &market, Wanted::Last, Limits::default()).expect("files are written");
        recorder.written.into_inner().expect("no test died with it")
    };
    let mut written = record(plan.to_owned(), CHUNK_BARS, CHUNKS_WALKED, (0..CHUNKS_WALKED).collect(), None);
    for (launch, call) in written.iter_mut().zip(&sequence.calls) {
        let read = |series: &Series| match *series {
            Series::Made { call, output } => json!([call, output]),
            _ => Value::Null,
        };
        launch["reads"] = call.reads.iter().map(read).collect();
    }
    let emulator = Emulator::new(&sequence.kernels());
    let narrow = record(format!("{plan}_narrow"), lead, NARROW_CHUNKS, NARROW_LANES.to_vec(), Some(emulator));
    written.extend(narrow.into_iter().enumerate().map(|(call, mut launch)| {
        launch["plan"] = json!(plan);
        launch["maps_of"] = json!(call);
        launch
    }));
    let kernels = sequence.calls.iter().map(|call| (call.lowered.kernel.name.clone(), call.lowered.kernel.clone()));
    (written, kernels.collect())
}

/// Compute capability of the code: 90 in CI; `just gpu-model 80` and `100` select others.
fn architecture() -> u32 {
    std::env::var("TRAWL_MODEL_ARCHITECTURE")
        .map_or(ARCHITECTURE, |number| number.parse().expect("a number such as 90"))
}

/// Launches of one or more plans, and their kernels by name.
type Batch = (Vec<Value>, BTreeMap<String, Kernel>);

/// Every plan that is modelled. Neighbours share a text: then headers are compiled, and code is disassembled, once for
/// all.
fn batches(folder: &Path, architecture: u32) -> Vec<Batch> {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<String>>();
    let last = Way::last(limits(architecture));
    let named = [
        ("w1", SCREEN, last),
        ("w1_every_bar", SCREEN, Way { wanted: Wanted::All, ..last }),
        ("atc", &["atc().signal"], last),
        ("atc_lengths", &["atc().signal"], Way { constants: Constants::Lengths, ..last }),
    ];
    // A text compiles all headers for one number type.
    let [named, short] = Precision::ALL.map(|precision| {
        let suffix = if precision == Precision::F64 { "" } else { "_f32" };
        let of = |(plan, items, way): &(&str, &[&str], Way)| {
            (format!("{plan}{suffix}"), owned(items), Way { precision, ..*way })
        };
        named.iter().map(of).collect::<Vec<_>>()
    });
    // What the calendar says is given: there is nothing to compute.
    let computes = |f: &&Function| program(&sample(f)).nodes().iter().any(|node| !node.op.facts().is_leaf());
    let alone = functions().filter(computes);
    let alone = alone.map(|f| (format!("only_{}", f.name), sample(f), last));
    let alone: Vec<_> = alone.collect();
    let together = |plans: &[(String, Vec<String>, Way)]| {
        let each = plans.iter().map(|(plan, items, way)| record(folder, plan, items, *way));
        let (launches, kernels): (Vec<_>, Vec<_>) = each.unzip();
        (launches.concat(), kernels.into_iter().flatten().collect())
    };
    let mut batches = vec![record_chunks(folder, "long", &owned(SCREEN)), together(&named), together(&short)];
    // The states of W1: at most bars, and where the blocks of all its windows begin.
    let one_bar = |(plan, bar)| record_one_bar(folder, plan, &owned(SCREEN), bar);
    let (launches, kernels): (Vec<_>, Vec<_>) =
        [("w1_one_bar", ONE_BAR), ("w1_one_bar_blocks", ONE_BAR_BLOCKS)].map(one_bar).into_iter().unzip();
    batches.push((launches.concat(), kernels.into_iter().flatten().collect()));
    batches.extend(alone.chunks(BATCH_PLANS).map(together));
    batches
}

/// Writes launches, code and the report of ptxas for the model.
fn write(folder: &Path, batches: Vec<Batch>, architecture: u32) {
    let name = |number: usize| format!("batch_{number:02}");
    // As `Compiler::compile`: for fewer blocks, until no register of a kernel spills to memory.
    let mut blocks: BTreeMap<String, usize> = BTreeMap::new();
    for kernel in batches.iter().flat_map(|(_, kernels)| kernels.values()) {
        blocks.insert(kernel.name.clone(), kernel.blocks.max(1));
    }
    let mut code: BTreeMap<String, Compiled> = BTreeMap::new();
    loop {
        let missing = batches.iter().enumerate().filter(|(number, _)| !code.contains_key(&name(*number)));
        let texts = missing.map(|(number, (_, kernels))| {
            let text = |k: &Kernel| k.source.replace("TRAWL_BLOCKS", &blocks[&k.name].to_string());
            let any = kernels.values().next().expect("a plan has a kernel").clone();
            (
                name(number),
                Kernel { name: name(number), source: kernels.values().map(text).collect(), blocks: 1, ..any },
            )
        });
        let texts: BTreeMap<String, Kernel> = texts.collect();
        if texts.is_empty() {
            break;
        }
        code.extend(compiled(&texts, architecture).into_iter().map(|(text, code)| (text.name.clone(), code)));
        for (number, (_, kernels)) in
            batches.iter().enumerate().filter(|(number, _)| texts.contains_key(&name(*number)))
        {
            let taken = of_functions(&code[&name(number)].log);
            let spills = |k: &&Kernel| taken[k.name.as_str()].spilled_bytes > 0 && blocks[&k.name] > 1;
            let again: Vec<String> = kernels.values().filter(spills).map(|k| k.name.clone()).collect();
            for kernel in &again {
                blocks.entry(kernel.clone()).and_modify(|blocks| *blocks = (*blocks * 2 / 3).max(1));
            }
            if !again.is_empty() {
                code.remove(&name(number));
            }
        }
    }
    let mut all = Vec::new();
    for (number, (launches, _)) in batches.into_iter().enumerate() {
        let name = name(number);
        let code = &code[name.as_str()];
        std::fs::write(folder.join(format!("{name}.cubin")), &code.cubin).expect("a file");
        let resources = of_functions(&code.log);
        all.extend(launches.into_iter().map(|mut launch| {
            let taken = resources[launch["kernel"].as_str().expect("a name")];
            launch["code"] = json!(name);
            launch["registers"] = json!(taken.registers);
            launch["spilled_bytes"] = json!(taken.spilled_bytes);
            launch
        }));
    }
    let text = serde_json::to_string_pretty(&Value::Array(all)).expect("JSON");
    std::fs::write(folder.join("launches.json"), text).expect("a file");
}

/// The report of ptxas, per function of a text.
fn of_functions(log: &str) -> BTreeMap<&str, Resources> {
    log.split("Compiling entry function '")
        .skip(1)
        .filter_map(|text| text.split_once('\''))
        .map(|(name, rest)| (name, Resources::of_log(rest)))
        .collect()
}

/// An empty folder for a test.
fn fresh(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu_model").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs the tool over a folder. Returns its exit code, stdout and stderr.
fn model(folder: &Path, arguments: &[&std::ffi::OsStr]) -> (Option<i32>, String, String) {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/gpu_model");
    let run = Command::new(python()).arg(tool).arg(folder).args(arguments).output().expect("Python runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (run.status.code(), text(&run.stdout), text(&run.stderr))
}

/// The model walks the machine code of W1, of Adaptive Trend Classification and of every function alone: its outputs
/// are the CPU's to the bit, it has no contraction and no spill, and no figure has grown by a tenth.
/// `TRAWL_BLESS_MODEL=1` keeps the figures.
#[test]
fn the_static_model_of_machine_code() {
    let architecture = architecture();
    let folder = fresh(&format!("sm_{architecture}"));
    write(&folder, batches(&folder, architecture), architecture);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model");
    let (figures, measured) = (kept.join("figures.json"), kept.join("measured.json"));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gpu.md");
    let number = architecture.to_string();
    let mut arguments: Vec<&std::ffi::OsStr> = vec!["--architecture".as_ref(), number.as_ref()];
    if architecture == ARCHITECTURE {
        arguments.extend(["--known".as_ref(), figures.as_os_str(), "--measured".as_ref(), measured.as_os_str()]);
        arguments.extend(["--page".as_ref(), page.as_os_str()]);
    }
    if std::env::var_os("TRAWL_BLESS_MODEL").is_some() {
        arguments.push("--bless".as_ref());
    }
    let (code, printed, complaints) = model(&folder, &arguments);
    println!("{printed}");
    match code {
        Some(0) => {}
        Some(NVDISASM_MISSING) => eprintln!("SKIPPED: {complaints}"),
        _ => panic!("{complaints}\nIf this is meant: `just gpu-model-bless`, and read the difference"),
    }
}

/// The model's rules are broken on purpose: a contraction, another result, and figures that were half as large.
#[test]
fn the_static_model_reports_what_it_forbids() {
    let folder = fresh("broken");
    let (launches, mut kernels) =
        record(&folder, "only_ema", &["ema(close,20)".to_owned()], Way::last(Limits::default()));
    for kernel in kernels.values_mut() {
        // `0.5*x` rounds by itself, `x*x + x` in one step only as an fma: neither a division nor the error of a
        // product.
        let whole = kernel.source.replace("const real v0 = ", "const real v0 = 0.5 * fma(x0, x0, x0) + ");
        assert_ne!(whole, kernel.source, "the text of an average");
        kernel.source = whole;
    }
    write(&folder, vec![(launches, kernels)], ARCHITECTURE);
    let known = folder.join("known.json");
    // Fewer than no generic accesses: any count is more.
    let half = json!({"only_ema.0": {
        "ms": 0.01, "cycles": 50.0, "parts": [{"cycles": 50.0, "instructions": 5.0, "f64": 2.0, "tail_cycles": 0}],
        "registers": 20, "shared_bytes": 8192, "code_bytes": 2000, "hot_bytes": 300, "generic": -1, "local": 0
    }});
    std::fs::write(&known, half.to_string()).expect("a file");
    let (code, _, complaints) = model(&folder, &["--known".as_ref(), known.as_os_str()]);
    if code == Some(NVDISASM_MISSING) {
        return eprintln!("SKIPPED: {complaints}");
    }
    assert_eq!(code, Some(1), "{complaints}");
    for complaint in [
        "DFMA that are neither",
        "not the CPU's to the bit",
        "ms grew from",
        "cycles grew from",
        "instructions a bar grew",
        "generic accesses a bar rose",
    ] {
        assert!(complaints.contains(complaint), "{complaint}: {complaints}");
    }
}
