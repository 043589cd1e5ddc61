//! Columns that the device lays out itself: the same bits in every mode, precision and order of work; fewer bytes where histories are
//! unequal; and the host lays them where the device cannot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trawl_kernels::cuda::{
    Ahead, BarsSource, ExecutorOptions, Fault, MemoryMode, RequestPart, SourceSymbol, fixed_kernels,
};
use trawl_kernels::stages::Stages;
use trawl_kernels::{Executable, NoCancel, Precision, SymbolInput};
use trawl_plan::Program;

use crate::device::{World, bits, last_of, waits, world};
use crate::fused::{inputs, lowered, market, program};

/// Bytes of pinned buffers in which a strip of 512 rows just finds room, so that columns come in many pieces.
const STRIP_BUFFER: usize = 140_000;

/// Every column is laid out by the device.
fn all() -> ExecutorOptions {
    ExecutorOptions { laid_by_device_bytes_min: 0, ..waits() }
}

fn in_mode(mode: MemoryMode, options: ExecutorOptions) -> ExecutorOptions {
    ExecutorOptions { memory_mode: Some(mode), ..options }
}

fn plan() -> Program {
    program(&["ema(close,9)".to_owned(), "close - open".to_owned(), "close".to_owned()])
}

fn program_of_one() -> Program {
    program(&["ema(close,9)".to_owned()])
}

/// Three groups: strips that end within a group, lanes that end within strips, and symbols of one bar.
fn bars() -> Vec<Vec<Vec<f64>>> {
    let lengths: Vec<usize> = (0..70).map(|i| [1, 17, 511, 512, 513, 1_300, 2_049][i % 7]).collect();
    market(&lengths, 5)
}

/// Values at all bars, or at the last ones of a source that is known.
fn values(world: &World, executable: &Executable, symbols: &[SymbolInput<'_>], source: Option<&str>) -> Vec<u64> {
    let names: Vec<String> = (0..symbols.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let source = source.map(|bars| BarsSource { bars: Arc::from(bars), group: 0, symbols: &names });
    let from = if source.is_some() { last_of(symbols) } else { vec![0; symbols.len()] };
    let stages = &mut Stages::default();
    let got = world.executor.evaluate_from(executable, symbols, &from, source.as_ref(), &NoCancel, stages);
    bits(&got.expect("a healthy device"))
}

fn of_cpu(executable: &Executable, symbols: &[SymbolInput<'_>], from: &[usize]) -> Vec<u64> {
    bits(&executable.evaluate_from(symbols, from, &NoCancel).expect("not cancelled"))
}

#[test]
fn columns_that_the_device_lays_have_the_bits_of_those_that_the_host_lays() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let small = || ExecutorOptions { staging_bytes: STRIP_BUFFER, batch_bytes_max: Some(2 << 20), ..all() };
    for when in ["when=late", "when=early", "when=random seed=1", "when=random seed=2 order=reverse"] {
        for (mode, options) in
            MemoryMode::ALL.into_iter().flat_map(|mode| [(mode, in_mode(mode, all())), (mode, in_mode(mode, small()))])
        {
            for precision in Precision::ALL {
                let world = world(&format!("card=gh200 {when}"), options.clone());
                let executable = Executable::new(&program, precision);
                let expected = of_cpu(&executable, &symbols, &vec![0; symbols.len()]);
                assert!(values(&world, &executable, &symbols, None) == expected, "{mode} {precision:?} {when}");
                // The host has bars of one precision only, and managed memory it writes itself.
                let by_device = match mode {
                    MemoryMode::Pinned => true,
                    MemoryMode::Managed => false,
                    MemoryMode::Coherent => precision == Precision::F64,
                };
                assert_eq!(world.device.plain() > 0, by_device, "{mode} {precision:?} {when}");
            }
        }
    }
}

#[test]
fn bars_alone_are_copied_and_bars_in_place_are_read_once() {
    let program = plan();
    // One symbol of a group is long.
    let lengths: Vec<usize> = (0..32).map(|i| if i == 0 { 40_000 } else { 100 }).collect();
    let bars = market(&lengths, 3);
    let symbols = inputs(&program, &bars, &[]);
    let executable = lowered(&program);
    let expected = of_cpu(&executable, &symbols, &last_of(&symbols));
    let bytes = (lengths.iter().sum::<usize>() * 2 * 8) as u64;
    for (mode, by_device) in [(MemoryMode::Pinned, true), (MemoryMode::Pinned, false), (MemoryMode::Coherent, true)] {
        let least = if by_device { 0 } else { u64::MAX };
        let world = world("card=gh200", in_mode(mode, ExecutorOptions { laid_by_device_bytes_min: least, ..waits() }));
        for _ in 0..2 {
            assert!(values(&world, &executable, &symbols, Some("bars")) == expected, "{mode}");
        }
        let copied = world.device.counts().copied_in_bytes;
        match (mode, by_device) {
            // Of both columns, and descriptions of strips.
            (MemoryMode::Pinned, true) => assert!((bytes..bytes * 5 / 4).contains(&copied), "{copied} of {bytes}"),
            (MemoryMode::Pinned, false) => assert!(copied > 15 * bytes, "{copied} of {bytes}"),
            _ => assert!(copied < bytes / 4, "{copied} of {bytes}"),
        }
        // The second call found them.
        assert_eq!(world.executor.resident_bytes(), 40_000 * 32 * 8 * 2, "{mode}");
        assert_eq!(world.device.plain() > 0, by_device);
    }
}

#[test]
fn the_host_lays_columns_where_the_device_cannot() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let executable = lowered(&program);
    let expected = of_cpu(&executable, &symbols, &last_of(&symbols));
    let agrees = |world: &World, source: &str| assert!(values(world, &executable, &symbols, Some(source)) == expected);
    // Buffers have no room for a strip.
    let cramped = world("", ExecutorOptions { staging_bytes: 20_000, ..all() });
    agrees(&cramped, "bars");
    assert_eq!(cramped.device.plain(), 0);
    // Columns are small.
    let few = world("", waits());
    agrees(&few, "bars");
    assert_eq!(few.device.plain(), 0);
    // Little memory: columns are evicted, batches halved.
    for mode in [MemoryMode::Pinned, MemoryMode::Coherent] {
        let tight = ExecutorOptions { device_memory_bytes: Some(5 << 18), batch_bytes_max: Some(1 << 19), ..all() };
        let tight = world("card=gh200 memory=4194304 when=random seed=3", in_mode(mode, tight));
        ["a", "b", "a"].into_iter().for_each(|source| agrees(&tight, source));
        assert!(tight.device.plain() > 0, "{mode}");
    }
    // A column of 512 KiB finds room, but not its bars beside it; and on a device that reads host memory, no column.
    let (one, bars) = (program_of_one(), market(&[2_048; 32], 7));
    let (symbols, executable) = (inputs(&one, &bars, &[]), lowered(&one));
    let expected = of_cpu(&executable, &symbols, &last_of(&symbols));
    for (settings, mode, bytes) in [("", MemoryMode::Pinned, 700_000), ("memory=400000", MemoryMode::Coherent, 4 << 20)]
    {
        let options = ExecutorOptions { device_memory_bytes: Some(bytes), ..all() };
        let tight = world(&format!("card=gh200 {settings}"), in_mode(mode, options));
        assert!(values(&tight, &executable, &symbols, Some("bars")) == expected, "{mode}");
        assert_eq!(tight.device.plain(), 0, "{mode}");
    }
    // The kernel is not compiled yet; once it is, it is used.
    let soon = world("", ExecutorOptions { wait_for_fused: false, ..all() });
    let _letting_go = soon.device.letting_go();
    let lays = fixed_kernels().into_iter().filter(|kernel| kernel.name.starts_with("lay_rows"));
    lays.for_each(|kernel| soon.device.hold(kernel.fingerprint));
    agrees(&soon, "a");
    assert_eq!(soon.device.plain(), 0);
    soon.device.let_go();
    let until = Instant::now() + Duration::from_secs(600);
    for round in 0.. {
        agrees(&soon, &format!("b{round}"));
        if soon.device.plain() > 0 {
            break;
        }
        assert!(Instant::now() < until, "the kernel is never used");
    }
}

/// The device has a group of one column, so that what is missing of it is small and the host lays it, behind what the device lays.
#[test]
fn columns_of_one_batch_are_laid_by_the_device_and_by_the_host() {
    let (first, both) = (program(&["ema(open,9)".to_owned()]), program(&["ema(close,9) - open".to_owned()]));
    let bars = market(&[vec![1_000; 32], vec![2_049; 32]].concat(), 5);
    let options = ExecutorOptions { staging_bytes: STRIP_BUFFER, laid_by_device_bytes_min: 300_000, ..waits() };
    let world = world("", options);
    let source = |from: usize| {
        let names: Vec<String> = (from..64).map(|i| format!("S{i}")).collect();
        let run = |program: &Program, bars: &[Vec<Vec<f64>>]| {
            let (symbols, executable) = (inputs(program, bars, &[]), lowered(program));
            let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
            let source = BarsSource { bars: Arc::from("bars"), group: 0, symbols: &names };
            let (from, stages) = (last_of(&symbols), &mut Stages::default());
            let got = world.executor.evaluate_from(&executable, &symbols, &from, Some(&source), &NoCancel, stages);
            assert!(bits(&got.expect("a healthy device")) == of_cpu(&executable, &symbols, &from));
        };
        run(if from == 0 { &both } else { &first }, &bars[from..]);
        world.device.plain()
    };
    let pieces = source(32);
    assert_eq!(pieces, 4, "open of the second group: a strip each, the last one with one more row");
    assert_eq!(source(0) - pieces, 6, "close of both groups");
}

#[test]
fn a_kernel_that_fails_fails_the_call_alone_or_loses_the_device() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let executable = lowered(&program);
    for (fault, is_lost) in [("fault=cuLaunchKernel:1:1", false), ("fault=kernel:1:700", true)] {
        for mode in [MemoryMode::Pinned, MemoryMode::Coherent] {
            let world = world(&format!("card=gh200 {fault}"), in_mode(mode, all()));
            let from = last_of(&symbols);
            let stages = &mut Stages::default();
            let first = world.executor.evaluate_from(&executable, &symbols, &from, None, &NoCancel, stages);
            let failed = first.expect_err("the first kernel fails");
            assert_eq!(matches!(failed, Fault::Lost(_)), is_lost, "{failed}");
            assert!(world.device.plain() > 0, "the first kernel lays out bars");
            if !is_lost {
                let second = world.executor.evaluate_from(&executable, &symbols, &from, None, &NoCancel, stages);
                assert!(bits(&second.expect("a healthy device")) == of_cpu(&executable, &symbols, &from));
            }
        }
    }
}

#[test]
fn bars_that_are_brought_before_they_are_asked_for_are_laid_by_the_device_too() {
    let (program, bars) = (plan(), bars());
    let symbols = inputs(&program, &bars, &[]);
    let executable = lowered(&program);
    let world = world("when=random seed=4", all());
    let names: Vec<String> = (0..symbols.len()).map(|i| format!("S{i}")).collect();
    let names: Vec<SourceSymbol<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    let source = BarsSource { bars: Arc::from("bars"), group: 0, symbols: &names };
    let part = RequestPart { symbols: symbols.clone(), from: last_of(&symbols), source: Some(source) };
    let ahead = Ahead::Expected { round: 1, is_superseded: &|_| false };
    let brought = world.executor.prefetch(&executable, std::slice::from_ref(&part), ahead, &NoCancel);
    assert!(brought.expect("a healthy device") > 0);
    let laid = world.device.plain();
    assert!(laid > 0);
    let expected = of_cpu(&executable, &symbols, &part.from);
    assert!(values(&world, &executable, &symbols, Some("bars")) == expected);
    assert_eq!(world.device.plain(), laid, "they were there");
}
