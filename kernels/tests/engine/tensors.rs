//! Tables of features on a device, and tensors that other libraries take: the values are those that the host would gather, they are not
//! copied to it, and memory lives as long as anybody uses it.

use std::sync::Arc;

use trawl_kernels::cuda::{
    Cache, DeviceTensor, Executor, ExecutorOptions, Fault, FeatureTable, Fleet, ForeignStream, KeptOutputs, TableRow,
};
use trawl_kernels::stages::Stages;
use trawl_kernels::{EngineError, Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::Program;
use trawl_test_driver::TestDevice;

use crate::device::{plan, waits};
use crate::fused::{inputs, market};

/// Bars of the longest symbol.
const BARS: usize = 60;
const SYMBOLS: usize = 75;
const WINDOW: usize = 7;
/// The outputs that the host reads come first.
const READ: usize = 2;

fn bars() -> Vec<Vec<Vec<f64>>> {
    let lengths: Vec<usize> = (0..SYMBOLS).map(|i| 1 + (i * 37) % BARS).collect();
    market(&lengths, 11)
}

fn small() -> ExecutorOptions {
    ExecutorOptions { batch_bytes_max: Some(200_000), ..waits() }
}

fn opened(settings: &str, options: ExecutorOptions) -> (TestDevice, Arc<Fleet>) {
    let device = TestDevice::new(settings);
    let executor = Executor::new(Arc::new(device.open()), Cache::in_memory(), options).expect("a device");
    (device, Arc::new(executor.into()))
}

/// Scales of the features: some are not scaled.
fn scales(program: &Program) -> Vec<Option<(f64, f64)>> {
    (0..program.outputs.len() - READ).map(|at| (at % 2 == 0).then_some((3.25 + at as f64, 1.75))).collect()
}

/// Of the symbols' bars: those that are rows. Symbol 4 has none, every fifth bar of the others is missing, and of symbol 6 bars are read
/// late, at the next time.
fn rows(symbols: &[SymbolInput<'_>]) -> Vec<TableRow> {
    let mut rows = Vec::new();
    for (symbol, input) in symbols.iter().enumerate().filter(|(symbol, _)| *symbol != 4) {
        for bar in (0..input.visible).filter(|bar| bar % 5 != symbol % 5) {
            let row = |time: usize| u32::try_from(time * SYMBOLS + symbol).expect("small");
            rows.push(TableRow { row: row(bar), symbol, bar });
            if symbol == 6 && bar + 1 < BARS && (bar + 1) % 5 == symbol % 5 {
                rows.push(TableRow { row: row(bar + 1), symbol, bar });
            }
        }
    }
    rows
}

fn samples() -> Vec<u32> {
    (0..u32::try_from(BARS * SYMBOLS).expect("small")).filter(|cell| cell % 3 != 1).collect()
}

/// The same windows by the host: values, and where there are any.
fn by_host(
    values: &[Vec<Vec<f64>>],
    rows: &[TableRow],
    scales: &[Option<(f64, f64)>],
    samples: &[u32],
) -> (Vec<f32>, Vec<u8>) {
    let features = scales.len();
    let mut table = vec![f32::NAN; BARS * SYMBOLS * features];
    for row in rows {
        for (feature, scale) in scales.iter().enumerate() {
            let value = values[row.symbol][READ + feature][row.bar];
            let scaled = scale.map_or(value, |(mean, deviation)| (value - mean) / deviation);
            table[row.row as usize * features + feature] = scaled as f32;
        }
    }
    let (mut x, mut mask) = (Vec::new(), Vec::new());
    for sample in samples {
        for before in (0..WINDOW).rev() {
            let row = (*sample as usize).checked_sub(before * SYMBOLS);
            for feature in 0..features {
                let value = row.map_or(f32::NAN, |row| table[row * features + feature]);
                x.push(if value.is_finite() { value } else { 0.0 });
                mask.push(u8::from(value.is_finite()));
            }
        }
    }
    (x, mask)
}

fn kept(table: &FeatureTable, executable: &Executable, bars: &[Vec<Vec<f64>>]) -> Result<KeptOutputs, EngineError> {
    let symbols = inputs(executable, bars, &[]);
    let from = vec![0; symbols.len()];
    let outputs = READ..executable.outputs.len();
    let (read, kept) = table.evaluate(executable, &symbols, &from, outputs, &NoCancel, &mut Stages::default())?;
    let whole = executable.evaluate_from(&symbols, &from, &NoCancel).expect("not cancelled");
    for (read, whole) in read.nested().iter().zip(&whole.nested()) {
        let bits = |outputs: &[Vec<f64>]| outputs.concat().iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&read[..READ]), bits(&whole[..READ]));
        assert!(read[READ..].iter().all(Vec::is_empty), "what stays has no values here");
    }
    Ok(kept)
}

fn shorts(device: &TestDevice, tensor: &DeviceTensor, count: usize) -> Vec<u32> {
    let bytes = device.read(tensor.address(), 4 * count).expect("memory");
    bytes.chunks_exact(4).map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// Values and mask of all windows, as the device and as the host has them, and the bytes that left the device.
fn agrees(settings: &str, options: ExecutorOptions, precision: Precision) -> u64 {
    let (device, fleet) = opened(settings, options);
    let (bars, executable) = (bars(), Executable::new(&plan(), precision));
    let symbols = inputs(&executable, &bars, &[]);
    let (rows, samples, scales) = (rows(&symbols), samples(), scales(&executable));
    let table = FeatureTable::new(&fleet, BARS * SYMBOLS, &scales).expect("memory");
    let kept = kept(&table, &executable, &bars).expect("a healthy device");
    table.put(&kept, &rows).expect("a healthy device");
    let (x, mask) = table.windows(&samples, WINDOW, SYMBOLS).expect("a healthy device");
    let out = device.counts().copied_out_bytes;
    drop((kept, table));
    let values = executable.evaluate_from(&symbols, &vec![0; symbols.len()], &NoCancel).expect("not cancelled");
    let (want, want_mask) = by_host(&values.nested(), &rows, &scales, &samples);
    assert_eq!(device.read(mask.address(), want_mask.len()).expect("memory"), want_mask, "{settings}");
    let want: Vec<u32> = want.iter().map(|value| value.to_bits()).collect();
    assert!(shorts(&device, &x, want.len()) == want, "{settings} {precision:?}");
    drop((x, mask));
    fleet.executors()[0].free_bytes().expect("a healthy device");
    out
}

#[test]
fn windows_are_those_of_the_host_in_one_batch_and_in_many() {
    for when in ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"] {
        for (options, precision) in [(small(), Precision::F64), (small(), Precision::F32), (waits(), Precision::F64)] {
            agrees(when, options, precision);
        }
    }
    // Buffers so small that they are filled many times.
    agrees("when=random seed=3", ExecutorOptions { staging_bytes: 1_000, ..small() }, Precision::F64);
}

#[test]
fn only_the_outputs_that_decide_about_rows_leave_the_device() {
    let out = agrees("", waits(), Precision::F64);
    // Rows of 32 symbols as long as the longest of them, of two outputs in double precision.
    let mut lengths: Vec<usize> = bars().iter().map(|columns| columns[0].len()).collect();
    lengths.sort_unstable();
    let rows: usize = lengths.chunks(32).map(|group| group[group.len() - 1]).sum();
    assert_eq!(out, (rows * 32 * READ * 8) as u64);
}

#[test]
fn a_program_without_kernels_is_computed_here_and_its_values_are_sent() {
    // The compiler of the test driver refuses every kernel of a plan whose code does not load.
    let (device, fleet) = opened("fault=cuModuleLoadData:2+:209", waits());
    let (bars, executable) = (bars(), Executable::new(&plan(), Precision::F64));
    let symbols = inputs(&executable, &bars, &[]);
    let scales = scales(&executable);
    let table = FeatureTable::new(&fleet, BARS * SYMBOLS, &scales).expect("the table's own kernel loads");
    let kept = kept(&table, &executable, &bars).expect("by the CPU");
    table.put(&kept, &rows(&symbols)).expect("the kernel that is there");
    assert_eq!(device.counts().copied_out_bytes, 0);
    assert!(device.counts().copied_in_bytes > 0);
}

#[test]
fn rows_and_bars_that_there_are_not_are_refused() {
    let (_device, fleet) = opened("", waits());
    let (bars, executable) = (bars(), Executable::new(&plan(), Precision::F64));
    let table = FeatureTable::new(&fleet, 10, &scales(&executable)).expect("memory");
    let kept = kept(&table, &executable, &bars).expect("a healthy device");
    for (row, symbol, bar) in [(10, 0, 0), (0, SYMBOLS, 0), (0, 0, BARS)] {
        assert!(matches!(table.put(&kept, &[TableRow { row, symbol, bar }]), Err(Fault::Failed(_))), "{row} {symbol}");
    }
    assert!(matches!(FeatureTable::new(&fleet, usize::MAX / 16, &[None]), Err(Fault::Failed(_))));
    assert!(fleet.lost().is_none());
}

#[test]
fn memory_that_is_short_is_reported_and_the_device_goes_on() {
    let (device, fleet) = opened("memory=3000000", waits());
    let small = FeatureTable::new(&fleet, 1000, &[None; 10]).expect("memory");
    let large = FeatureTable::new(&fleet, 1_000_000, &[None; 10]);
    assert!(matches!(large, Err(Fault::OutOfMemory { .. })), "{large:?}");
    let windows = small.windows(&vec![999; 100_000], 100, 1);
    assert!(matches!(windows, Err(Fault::OutOfMemory { .. })), "{windows:?}");
    drop(small.windows(&[999], 10, 1).expect("memory"));
    assert!(fleet.lost().is_none());
    drop((small, fleet));
    assert_eq!(device.counts().used_bytes, 0);
}

/// A tensor of 1000 numbers, and its device.
fn tensor(settings: &str) -> (TestDevice, Arc<Fleet>, DeviceTensor, Vec<u8>) {
    let (device, fleet) = opened(settings, waits());
    let table = FeatureTable::new(&fleet, 1, &[None]).expect("memory");
    let numbers: Vec<f64> = (0..1000).map(f64::from).collect();
    let tensor = table.upload(&numbers).expect("memory");
    let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    (device, fleet, tensor, bytes)
}

fn foreign(handle: u64) -> ForeignStream {
    ForeignStream::of_handle(handle).expect("a stream")
}

#[test]
fn a_tensor_outlives_its_engine_and_its_memory_is_released_with_it() {
    let (device, fleet, tensor, bytes) = tensor("when=late");
    drop(fleet);
    let address = tensor.address();
    assert_eq!(device.read(address, bytes.len()), Some(bytes));
    assert_eq!(tensor.ordinal(), device.ordinal());
    drop(tensor);
    // The context ended with its last user.
    assert_eq!(device.read(address, 1), None);
}

#[test]
fn memory_is_released_behind_the_work_of_whoever_used_it() {
    for settings in ["when=late", "when=early", "when=random seed=4"] {
        let (device, fleet, tensor, bytes) = tensor(settings);
        let (address, stream) = (tensor.address(), device.stream());
        device.block(stream);
        tensor.used_in(Some(foreign(stream)));
        drop(tensor);
        fleet.executors()[0].probe().expect("a healthy device");
        assert_eq!(device.read(address, bytes.len()), Some(bytes), "{settings}: the other library still reads it");
        device.go_on();
        let later = FeatureTable::new(&fleet, 1, &[None]).expect("memory");
        assert_eq!(device.read(address, 1), None, "{settings}: released before later work of its stream");
        drop(later);
    }
}

#[test]
fn streams_of_others_wait_for_values_and_see_them() {
    for stream in [None, Some(1), Some(2)] {
        let (device, _fleet, tensor, bytes) = tensor("when=late");
        let stream = stream.unwrap_or_else(|| device.stream());
        let copied = tensor.copied().expect("memory");
        assert_ne!(copied.address(), tensor.address());
        assert_ne!(device.read(copied.address(), bytes.len()), Some(bytes.clone()), "not copied yet");
        copied.ready_for(foreign(stream)).expect("a stream");
        assert!(device.run(stream), "what it waits for happens");
        assert_eq!(device.read(copied.address(), bytes.len()), Some(bytes));
    }
    assert_eq!(ForeignStream::of_handle(0), None);
}

#[test]
fn a_stream_that_was_destroyed_is_refused_and_memory_is_released_all_the_same() {
    let (device, fleet, tensor, _) = tensor("when=late");
    let (address, stream) = (tensor.address(), device.stream());
    device.destroy(stream);
    assert!(matches!(tensor.ready_for(foreign(stream)), Err(Fault::Failed(_))));
    let before = device.calls("cuCtxSynchronize");
    tensor.used_in(Some(foreign(stream)));
    tensor.used_in(None);
    assert_eq!(device.calls("cuCtxSynchronize"), before + 2, "all work is waited for where no stream is known");
    drop(tensor);
    drop(FeatureTable::new(&fleet, 1, &[None]).expect("memory"));
    assert_eq!(device.read(address, 1), None);
}

#[test]
fn a_context_that_has_ended_keeps_nobody_from_releasing() {
    let (device, fleet, tensor, _) = tensor("fault=cuMemcpyDtoDAsync_v2:1:700");
    assert!(matches!(tensor.copied(), Err(Fault::Lost(_))));
    let stream = device.stream();
    assert!(matches!(tensor.ready_for(foreign(stream)), Err(Fault::Lost(_))));
    tensor.used_in(Some(foreign(stream)));
    tensor.used_in(None);
    assert!(matches!(FeatureTable::new(&fleet, 1, &[None]), Err(Fault::Lost(_))));
    assert!(fleet.lost().is_some(), "a request that comes next has the reason");
    drop((tensor, fleet));
}
