//! Kernels that advance resident states by new bars, on the emulator: push by push the bits of the CPU's resident states, for
//! every function of the catalogue, whichever symbols have a bar, and however many bars come at once.

use std::collections::BTreeMap;

use trawl_kernels::cuda::{Bound, GROUP_LANES, Launch, Launcher as _, LowerError, OneBar};
use trawl_kernels::{NoCancel, Resident, SymbolInput};
use trawl_plan::Program;

use crate::emulator::{Emulator, Order};
use crate::fused::{catalogue, inputs, lowered, market, program};
use crate::parts::many_numbers;
use crate::resume::Random;

/// Bars that symbols get one at a time, at most.
const LAST_BARS: usize = 45;

/// Rows of the first launches over histories.
const ROWS: usize = 100;

/// What a symbol without a bar is given: nobody may read it.
const NOBODYS: f64 = -3e7;

/// States in host memory.
struct HostStates<'a> {
    device: &'a Emulator,
    one: &'a OneBar,
    launch: Launch,
    memory: Vec<f64>,
    values: Vec<f64>,
}

impl<'a> HostStates<'a> {
    fn new(device: &'a Emulator, one: &'a OneBar, symbols: usize) -> Self {
        let launch = one.launch(symbols.div_ceil(GROUP_LANES), 1_000);
        // Memory of a device is not initialised: a number that would show in a sum.
        let memory = vec![77.25; launch.scratch_len];
        Self { device, one, memory, values: vec![f64::NAN; launch.out_len], launch }
    }

    fn value(&self, symbol: usize, output: usize) -> f64 {
        self.values[output * self.launch.output_stride() + symbol]
    }

    /// Adds rows of bars; `bar` of a symbol in a row is the number of its bar, if it has one.
    fn push(
        &mut self,
        symbols: &[SymbolInput<'_>],
        rows: usize,
        begins: bool,
        bar: impl Fn(usize, usize) -> Option<usize>,
    ) {
        let lanes = self.launch.output_stride();
        let mut flags = vec![0i32; rows.max(1) * lanes];
        for row in 0..rows {
            for symbol in 0..symbols.len() {
                let is_last = (row + 1..rows).all(|later| bar(later, symbol).is_none());
                flags[row * lanes + symbol] = bar(row, symbol).map_or(0, |_| 1 + i32::from(is_last));
            }
        }
        let columns = self.one.lowered.kernel.columns;
        let column = |column: usize| -> Vec<f64> {
            let cell = |at: usize| {
                let (row, symbol) = (at / lanes, at % lanes);
                let value = symbols.get(symbol).and_then(|s| s.columns[column].get(bar(row, symbol)?).copied());
                value.unwrap_or(NOBODYS)
            };
            (0..rows * lanes).map(cell).collect()
        };
        let columns: Vec<Vec<f64>> = (0..columns).map(column).collect();
        self.launch.set_rows(rows, begins);
        let memory = Bound {
            columns: columns.iter().map(Vec::as_slice).collect(),
            out: &mut self.values,
            scratch: &mut self.memory,
            table: &self.launch.table,
            first_row: &[],
            visible: &flags,
            tail: &[],
        };
        let ran = self.device.run(&self.one.lowered, &self.launch, memory);
        ran.unwrap_or_else(|e| panic!("{e}\n{}", self.one.lowered.kernel.source));
    }
}

/// Walks histories on the emulator and by the CPU, and adds the last bars one or a few at a time. Returns the first symbol and
/// output with other bits, and how many values were compared.
fn differs(
    device: &Emulator,
    program: &Program,
    one: &OneBar,
    bars: &[Vec<Vec<f64>>],
    random: &mut Random,
) -> (Option<(usize, usize)>, usize) {
    let begins: Vec<f64> = (0..5_000).map(|t| f64::from(u8::from(t % 11 == 0))).collect();
    let whole = inputs(program, bars, &begins);
    let mut seen: Vec<usize> = whole.iter().map(|s| s.visible.saturating_sub(random.below(LAST_BARS))).collect();
    let first: Vec<SymbolInput<'_>> =
        whole.iter().zip(&seen).map(|(s, n)| SymbolInput { visible: *n, ..s.clone() }).collect();
    let mut cpu = Resident::new(&lowered(program), &first, &NoCancel).expect("not cancelled");
    let mut states = HostStates::new(device, one, whole.len());
    let longest = seen.iter().copied().max().unwrap_or(0);
    let mut row = 0;
    while row < longest {
        let rows = ROWS.min(longest - row);
        states.push(&whole, rows, row == 0, |at, symbol| Some(row + at).filter(|bar| *bar < seen[symbol]));
        row += rows;
    }
    let mut compared = 0;
    for day in 0.. {
        for symbol in (0..whole.len()).filter(|symbol| seen[*symbol] > 0) {
            for output in 0..program.outputs.len() {
                compared += 1;
                if states.value(symbol, output).to_bits() != cpu.value(symbol, output).to_bits() {
                    return (Some((symbol, output)), compared);
                }
            }
        }
        if seen.iter().zip(&whole).all(|(n, s)| *n == s.visible) {
            break;
        }
        // Now and then several bars in one launch.
        let rows = if day % 5 == 3 { 3 } else { 1 };
        let mut given: Vec<Vec<Option<usize>>> = Vec::new();
        for _ in 0..rows {
            let row: Vec<Option<usize>> = seen
                .iter()
                .zip(&whole)
                .map(|(n, s)| Some(*n).filter(|n| *n < s.visible && random.below(5) > 0))
                .collect();
            let present: Vec<bool> = row.iter().map(Option::is_some).collect();
            let column = |c: usize| -> Vec<f64> {
                row.iter().zip(&whole).map(|(bar, s)| bar.map_or(NOBODYS, |bar| s.columns[c][bar])).collect()
            };
            let columns: Vec<Vec<f64>> = (0..program.inputs.len()).map(column).collect();
            let columns: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
            cpu.push(&columns, Some(&present)).expect("fits");
            seen.iter_mut().zip(&row).for_each(|(n, bar)| *n += usize::from(bar.is_some()));
            given.push(row);
        }
        states.push(&whole, rows, false, |row, symbol| given[row][symbol]);
    }
    (None, compared)
}

fn order(plan: usize) -> Order {
    [Order::Random, Order::Reverse, Order::Forward][plan % 3]
}

/// Symbols of two groups: without a bar at first, past every warm-up, dirty ones.
fn lengths() -> Vec<usize> {
    let mut lengths: Vec<usize> = [1, 2, 17, 33, 47, 100, 161, 290].iter().flat_map(|n| [*n; 4]).collect();
    lengths.extend([290, 240, 3]);
    lengths
}

#[test]
fn states_of_every_function_have_the_bits_of_the_cpus() {
    let plans: Vec<(Vec<String>, Program, OneBar)> = catalogue()
        .into_iter()
        .map(|items| {
            let program = program(&items);
            let one = OneBar::new(&program).unwrap_or_else(|e| panic!("{items:?}: {e}"));
            (items, program, one)
        })
        .collect();
    let kernels: BTreeMap<String, String> =
        plans.iter().map(|(.., one)| (one.lowered.kernel.name.clone(), one.lowered.kernel.source.clone())).collect();
    let mut device = Emulator::new(&kernels);
    let bars = market(&lengths(), 11);
    let (mut wrong, mut values) = (BTreeMap::new(), 0);
    for (number, (items, program, one)) in plans.iter().enumerate() {
        (device.order, device.seed) = (order(number), number as u64);
        let (differs, compared) = differs(&device, program, one, &bars, &mut Random(0x51ed_270b + number as u64));
        values += compared;
        if let Some((symbol, output)) = differs {
            wrong.insert(items[output.min(items.len() - 1)].clone(), (symbol, output));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{} plans, {values} values: bit for bit", plans.len());
}

#[test]
fn what_does_not_fit_a_kernels_argument_says_so() {
    let refused = OneBar::new(&many_numbers()).err();
    assert!(matches!(refused, Some(LowerError::Arguments { .. })), "{refused:?}");
}

#[test]
fn a_plan_of_more_parts_than_warps_has_the_bits_of_the_cpus() {
    // Families of averages are single steps here: 54 averages, and what follows them.
    let items = ["atc().signal", "atc().trend", "close", "1 + 1"].map(str::to_owned);
    let program = program(&items);
    let one = OneBar::new(&program).expect("every primitive");
    let kernels = BTreeMap::from([(one.lowered.kernel.name.clone(), one.lowered.kernel.source.clone())]);
    let mut device = Emulator::new(&kernels);
    let bars = market(&[400, 390, 380, 37, 395], 5);
    for order in [Order::Random, Order::Forward] {
        device.order = order;
        let (differs, compared) = differs(&device, &program, &one, &bars, &mut Random(7));
        assert_eq!(differs, None);
        assert!(compared > 100);
    }
}
