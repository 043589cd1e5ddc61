//! Kernel text that advances resident states by new bars: every step runs at every bar, from the first one on, and keeps
//! its state in the device's memory between launches. See `kernels/cuda/one_bar.cuh`.
//!
//! The steps are those of all kernels, in their general form, so the bits are the CPU's. Families of averages are single
//! steps here. In `f64` only, as [`crate::Resident`].

use std::fmt::Write as _;

use trawl_plan::Program;

use crate::Precision;
use crate::cuda::codegen::averages::Constants;
use crate::cuda::codegen::lower::{LowerError, Lowered, forms, kernel};
use crate::cuda::codegen::ring_slots::RingSlots;
use crate::cuda::codegen::step_abi::{Form, Takes};
use crate::cuda::codegen::steps::{KernelSteps, StepInput};
use crate::cuda::codegen::text::{RingUse, Text, Values};
use crate::cuda::codegen::warp_partition::{WarpPart, WarpPartition};

/// The frame of these kernels: part of their text, so that no other kernel depends on it.
const FRAME: &str = include_str!("../../../cuda/one_bar.cuh");

/// Maximum warps of a block. Parts of a level beyond it follow each other in a warp: their states are in memory between bars
/// anyway.
const WARPS_MAX: usize = 8;

/// Parts that a plan is cut into, if it has as many: small ones, whose states leave registers to three blocks side by side.
const PARTS_MAX: usize = 16;

/// Blocks side by side on a multiprocessor: 10,000 symbols are 313 groups, three for each of 132 multiprocessors.
const BLOCKS: usize = 3;

/// Words of a state beyond one for each of its registers: registers are counted without what the compiler leaves out, and
/// without padding.
const WORDS_MORE: usize = 8;

/// Index of the integer argument with the number of rows of a launch.
pub(crate) const ROWS_AT: usize = 0;

/// The kernel of a program's states.
#[derive(Debug, Clone)]
pub struct OneBar {
    /// The kernel and its parameters.
    pub lowered: Lowered,
    /// Words of eight bytes of a symbol in front of its rings, at most.
    pub(crate) words: usize,
}

impl OneBar {
    /// Lowers a program in `f64`.
    ///
    /// # Errors
    /// [`LowerError`]: a primitive that no device runs, or more numbers than a kernel's argument holds.
    pub fn new(program: &Program) -> Result<Self, LowerError> {
        let steps = KernelSteps::of(program);
        let forms = forms(&steps, Constants::None, Precision::F64)?;
        let parts = WarpPartition::many(&steps, &forms, PARTS_MAX);
        // Parts of one level run side by side.
        let of_level = |level: usize| parts.parts.iter().filter(|part| part.level == level).count();
        let warps = (0..=parts.top()).map(of_level).max().unwrap_or(1).clamp(1, WARPS_MAX);
        let mut writer = Writer {
            steps: &steps,
            forms: &forms,
            parts: &parts,
            warps,
            values: Values { ints: vec![0], ..Values::default() },
            offsets: String::new(),
            states: 0,
            words: 1,
        };
        let source = writer.kernel();
        let (values, words) = (writer.values, writer.words);
        let series_rows = steps.columns + parts.passed.len();
        let text = Text { source, values, tile: 1, series_rows, blocks: BLOCKS, precision: Precision::F64 };
        let kernel = kernel(&text, warps, steps.columns, steps.outputs.len())?;
        Ok(Self { lowered: Lowered { kernel, values: text.values, reach: 0, gives_maps: false }, words })
    }

    /// Rows of a group of symbols in the device's memory: words of states, and rings.
    pub(crate) fn rows(&self) -> usize {
        self.words + self.lowered.values.rings.iter().map(|ring| ring.slots.rows()).sum::<usize>()
    }

    /// Bytes of a symbol's states and rings in the device's memory.
    pub fn symbol_bytes(&self) -> usize {
        8 * self.rows()
    }
}

struct Writer<'a> {
    steps: &'a KernelSteps,
    forms: &'a [Form],
    parts: &'a WarpPartition,
    warps: usize,
    values: Values,
    /// Places of the states, one line of text each.
    offsets: String,
    /// States so far, and an upper bound of their words.
    states: usize,
    words: usize,
}

/// The text of a part, by when it runs.
#[derive(Default)]
struct Body {
    /// Declarations, and what they hold before the first bar, or behind the one before.
    states: String,
    starts: String,
    loads: String,
    bar: String,
    /// Series with look-back, by index of their history, and the lines that keep these.
    histories: Vec<(StepInput, String)>,
    /// Columns and series of other parts that were loaded.
    read: Vec<StepInput>,
}

impl Writer<'_> {
    fn kernel(&mut self) -> String {
        let (parts, columns) = (self.parts, self.steps.columns);
        let bodies: Vec<String> = parts.parts.iter().enumerate().map(|(at, part)| self.part(at, part)).collect();
        let warps = self.warps;
        let length = |n: usize| n.max(1);
        let mut out = format!("#include \"kernel.cuh\"\n\n{FRAME}\n");
        let _ = write!(
            out,
            "struct @_arguments {{\n    Run run;\n    const real* column[{}];\n    real f[{}];\n    int p[{}];\n    u32 \
             ring[{}];\n}};\n\nconstexpr int @_w0 = 1;\n{}static_assert(@_w{} <= {}, \"words of states\");\n",
            length(columns),
            length(self.values.doubles.len()),
            length(self.values.ints.len()),
            length(2 * self.values.rings.len()),
            self.offsets,
            self.states,
            self.words,
        );
        bodies.iter().for_each(|body| out.push_str(body));
        let _ = write!(
            out,
            "\nextern \"C\" __global__ void __launch_bounds__({}, TRAWL_BLOCKS) @(const __grid_constant__ @_arguments a) {{\n    \
             States<{warps}> b(a.run, {});\n    for (int row = 0; row < a.p[{ROWS_AT}]; ++row) {{\n        b.begin_row(row);\n",
            32 * warps,
            self.words,
        );
        for column in 0..columns {
            let _ = writeln!(out, "        b.fetch(a.column[{column}], {column}, row);");
        }
        out.push_str("        block_barrier(b.threads);\n");
        for level in 0..=parts.top() {
            for warp in 0..warps {
                let of_level = parts.parts.iter().enumerate().filter(|(_, part)| part.level == level);
                let calls: Vec<String> =
                    of_level.skip(warp).step_by(warps).map(|(at, _)| format!("@_part{at}(a, b);")).collect();
                if !calls.is_empty() {
                    let _ = writeln!(out, "        if (b.warp() == {warp} && b.has_bar) {{ {} }}", calls.join(" "));
                }
            }
            out.push_str("        block_barrier(b.threads);\n");
        }
        out.push_str("        b.end_row();\n    }\n    b.keep();\n}\n\nTRAWL_ENTRY(@, @_arguments)\n");
        out
    }

    fn part(&mut self, number: usize, part: &WarpPart) -> String {
        let warps = self.warps;
        let mut body = Body::default();
        self.histories(part, &mut body);
        for at in part.first..part.end {
            self.step(part, at, &mut body);
        }
        for (output, source) in self.steps.outputs.clone().into_iter().enumerate() {
            let mine = source.step().map_or(number == 0, |step| part.holds(step));
            if mine {
                let value = self.value(part, source, &mut body);
                let _ = writeln!(body.bar, "b.put({output}, {value});");
            }
        }
        let mut text = format!(
            "\nSTEP void @_part{number}(const @_arguments& a, const States<{warps}>& b) {{\n    const int t = b.t;\n"
        );
        let indent = |text: &mut String, levels: usize, lines: &str| {
            for line in lines.lines() {
                let _ = writeln!(text, "{:1$}{line}", "", 4 * levels);
            }
        };
        indent(&mut text, 1, &body.states);
        if !body.starts.is_empty() {
            text.push_str("    if (t == 0) {\n");
            indent(&mut text, 2, &body.starts);
            text.push_str("    } else {\n");
            indent(&mut text, 2, &body.loads);
            text.push_str("    }\n");
        }
        indent(&mut text, 1, &body.bar.replace("\n\n", "\n"));
        text.push_str("}\n");
        text
    }

    /// Adds a state of `words` words at most that begins by `start`; returns the line that keeps it, which follows the one that
    /// advances it, so that its registers are free for the steps behind it.
    fn state(&mut self, body: &mut Body, kind: &str, name: &str, start: &str, words: usize) -> String {
        let (at, next) = (self.states, self.states + 1);
        let _ = writeln!(self.offsets, "constexpr int @_w{next} = @_w{at} + words_of<{kind}>;");
        let _ = writeln!(body.states, "{kind} {name};");
        let _ = writeln!(body.starts, "{name}.{start};");
        let _ = writeln!(body.loads, "b.load({name}, @_w{at});");
        self.states = next;
        self.words += words;
        format!("b.store({name}, @_w{at});\n")
    }

    /// Adds a ring that is NA before the first bar; returns its name.
    fn ring(&mut self, body: &mut Body, slots: RingSlots, wide: bool) -> String {
        let at = self.values.rings.len();
        self.values.rings.push(RingUse { slots, shared: false, wide });
        let _ = writeln!(body.states, "const Ring r{at} = b.ring(a.ring[{}], a.ring[{}]);", 2 * at, 2 * at + 1);
        let _ = writeln!(body.starts, "b.blank_ring(r{at});");
        format!("r{at}")
    }

    /// The expression of a value; one of another part, or of a column, is loaded when it is first used.
    fn value(&mut self, part: &WarpPart, source: StepInput, body: &mut Body) -> String {
        let (name, row) = match source {
            StepInput::Constant(value) => return self.values.number(value, false, Precision::F64),
            StepInput::Step(step) if part.holds(step) => return format!("v{step}"),
            StepInput::Step(step) => (format!("v{step}"), self.passed_row(step).unwrap_or(0)),
            StepInput::Column(column) => (format!("x{column}"), column),
        };
        if !body.read.contains(&source) {
            body.read.push(source);
            let _ = writeln!(body.bar, "const real {name} = b.series({row});");
        }
        name
    }

    /// Row of shared memory of a series that passes between parts.
    fn passed_row(&self, step: usize) -> Option<usize> {
        let at = self.parts.passed.iter().position(|passed| passed.step == step)?;
        Some(self.steps.columns + at)
    }

    /// One history per series with look-back in the part.
    fn histories(&mut self, part: &WarpPart, body: &mut Body) {
        let mut found: Vec<(StepInput, usize)> = Vec::new();
        for at in part.first..part.end {
            let Takes::Past(bars) = self.forms[at].takes else { continue };
            let source = self.steps.steps[at].inputs[0];
            match found.iter_mut().find(|(known, _)| *known == source) {
                Some((_, most)) => *most = (*most).max(bars),
                None => found.push((source, bars)),
            }
        }
        for (number, (source, bars)) in found.into_iter().enumerate() {
            let ring = self.ring(body, RingSlots::UpTo(bars.saturating_add(1)), false);
            let _ = writeln!(body.states, "const Ring k{number} = {ring};");
            let keeps = self.state(body, "History", &format!("h{number}"), "start(0)", 1);
            body.histories.push((source, keeps.clone()));
            // A series of this part is pushed when it is computed.
            if !matches!(source, StepInput::Step(step) if part.holds(step)) {
                let value = self.value(part, source, body);
                let _ = writeln!(body.bar, "h{number}.push({value}, k{number});\n{keeps}");
            }
        }
    }

    /// One step: its state, and the line that advances it by one bar.
    fn step(&mut self, part: &WarpPart, at: usize, body: &mut Body) {
        let form = self.forms[at].clone();
        let mut given: Vec<String> = Vec::new();
        for (i, input) in self.steps.steps[at].inputs.clone().iter().enumerate() {
            if i == 0 && matches!(form.takes, Takes::Past(_)) {
                let history = body.histories.iter().position(|(source, _)| source == input).unwrap_or(0);
                given.push(format!("Past{{k{history}, h{history}.now, t}}"));
            } else {
                given.push(self.value(part, *input, body));
            }
        }
        if let Takes::Array(from) = form.takes {
            let values = given.split_off(from.min(given.len())).join(", ");
            let _ = writeln!(body.bar, "const real a{at}[] = {{{values}}};");
            given.push(format!("a{at}"));
        }
        if form.wants_bar {
            given.push("t".to_owned());
        }
        let first_int = self.values.of_form(&form, Precision::F64, &mut given);
        for slots in &form.rings {
            given.push(self.ring(body, *slots, form.wide));
        }
        let mut keeps = String::new();
        if form.has_state {
            let first = if form.ints.is_empty() { "0".to_owned() } else { format!("a.p[{first_int}]") };
            let words = form.registers + WORDS_MORE;
            keeps = self.state(body, &form.name, &format!("s{at}"), &format!("start(0, {first})"), words);
        }
        let call = if form.has_state { format!("s{at}.next") } else { form.name };
        let _ = writeln!(body.bar, "const real v{at} = {call}({});\n{keeps}", given.join(", "));
        if let Some(row) = self.passed_row(at) {
            let _ = writeln!(body.bar, "b.series({row}) = v{at};");
        }
        if let Some(number) = body.histories.iter().position(|(source, _)| *source == StepInput::Step(at)) {
            let keeps = body.histories[number].1.clone();
            let _ = writeln!(body.bar, "h{number}.push(v{at}, k{number});\n{keeps}");
        }
    }
}
