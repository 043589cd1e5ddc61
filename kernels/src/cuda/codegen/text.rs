//! The text of a kernel.

use std::fmt::Write as _;

use crate::Precision;
use crate::cuda::codegen::number::{number_bytes, row_bytes, rows_of_slot};
use crate::cuda::codegen::part_text::{Body, Kept, Loop, Shared};
use crate::cuda::codegen::ring_slots::RingSlots;
use crate::cuda::codegen::side_by_side::{READ_TOGETHER, TAIL_TOGETHER};
use crate::cuda::codegen::statement::{Divided, INSIDE, NEXT, Pair, Statement, TOGETHER, When, Window};
use crate::cuda::codegen::step_abi::{Division, Form, Table, Takes};
use crate::cuda::codegen::steps::{KernelSteps, StepInput};
use crate::cuda::codegen::warp_partition::{WarpPart, WarpPartition};

/// Where the position of a step's table is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableUse {
    pub table: Table,
    /// Index of the integer argument with the table's start.
    pub at: usize,
    /// Index of the integer argument with its number of bars, if the step uses it.
    pub bars: Option<usize>,
}

/// A ring of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingUse {
    pub slots: RingSlots,
    /// Whether the text places it in shared memory; otherwise the launch decides.
    pub shared: bool,
    /// Whether its slots are `f64` whatever the kernel's numbers are.
    pub wide: bool,
}

/// The parameters of one plan, in the order of its kernel's arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    /// Numbers of the kernel's type.
    pub doubles: Vec<f64>,
    /// Numbers that are `f64` in a kernel of `f32`.
    pub wides: Vec<f64>,
    pub ints: Vec<i32>,
    pub rings: Vec<RingUse>,
    pub tables: Vec<TableUse>,
}

impl Values {
    /// Adds a number; returns its expression. `wide`: whether its step computes in `f64` whatever the precision.
    pub fn number(&mut self, x: f64, wide: bool, precision: Precision) -> String {
        let (name, numbers) =
            if wide && precision != Precision::F64 { ("w", &mut self.wides) } else { ("f", &mut self.doubles) };
        numbers.push(x);
        format!("a.{name}[{}]", numbers.len() - 1)
    }

    /// Adds the parameters of a step, and their expressions to what it is given: integers, numbers, a table. Returns the index of
    /// its first integer.
    pub fn of_form(&mut self, form: &Form, precision: Precision, given: &mut Vec<String>) -> usize {
        let first = self.ints.len();
        given.extend((0..form.ints.len()).map(|i| format!("a.p[{}]", first + i)));
        self.ints.extend(&form.ints);
        given.extend(form.doubles.iter().map(|x| self.number(*x, form.wide, precision)));
        if let Some(table) = form.table {
            let at = self.ints.len();
            self.ints.push(0);
            let bars = matches!(table, Table::Growth { .. }).then_some(first);
            self.tables.push(TableUse { table, at, bars });
            given.push(format!("a.run.table + a.p[{at}]"));
        }
        first
    }

    /// Adds the table of the lanes' bars: the first integer is its position.
    pub fn lanes(&mut self) {
        self.tables.push(TableUse { table: Table::Lanes, at: self.ints.len(), bars: None });
        self.ints.push(0);
    }
}

/// Maximum bars of a tile.
const TILE_MAX: usize = 16;

/// Maximum bytes of shared memory for the series of a block; the rest is for rings.
const SERIES_BYTES_MAX: usize = 72 * 1024;

/// Maximum bytes of rings that the text places in shared memory: those used at every bar, as far as they fit.
const SHARED_RING_BYTES_MAX: usize = 64 * 1024;

/// Warps per multiprocessor that leave each thread enough registers: three per scheduler, 168 registers per thread.
const WARPS_WANTED: usize = 12;

/// Maximum blocks per multiprocessor: more have no further latency to hide.
const BLOCKS_MAX: usize = 8;

/// Maximum columns whose addresses are kept in registers.
const COLUMNS_HELD_MAX: usize = 8;

/// Maximum parts of a kernel of families for two concurrent blocks per multiprocessor: chains of additions leave its
/// units half idle, and 65,536 registers are 128 for each of 512 threads.
const PAIRED_PARTS_MAX: usize = 8;

/// Number of inputs of a family's signal before its averages: price, return, bar number.
const SIGNAL_SHARED: usize = 3;

/// Threads of a warp.
const LANES: usize = 32;

/// A kernel's text before it is named.
pub(crate) struct Text {
    /// Source with `@` in place of the name.
    pub source: String,
    pub values: Values,
    pub tile: usize,
    /// Rows of shared memory before the rings.
    pub series_rows: usize,
    /// Number of blocks that should run concurrently on a multiprocessor.
    pub blocks: usize,
    /// The number type of its series.
    pub precision: Precision,
}

pub(crate) struct Writer<'a> {
    pub(crate) steps: &'a KernelSteps,
    pub(crate) forms: &'a [Form],
    pub(crate) parts: &'a WarpPartition,
    /// Whether lanes are chunks: bar numbers then differ from rows, and rows before bar 0 are unused.
    pub(crate) over_chunks: bool,
    pub(crate) precision: Precision,
    pub(crate) tile: usize,
    pub(crate) values: Values,
    /// First row of each passed series in shared memory.
    pub(crate) bases: Vec<usize>,
    /// Past values of the series that families of averages look back at.
    pub(crate) pasts: Vec<Shared>,
    /// Number of rows of rings placed in shared memory so far.
    pub(crate) ring_rows: usize,
    pub(crate) out: String,
}

/// Writes the kernel; `over_chunks`: lanes are chunks, and no step is recursive.
pub(crate) fn write(
    steps: &KernelSteps,
    forms: &[Form],
    parts: &WarpPartition,
    over_chunks: bool,
    precision: Precision,
) -> Text {
    let tiles = steps.columns * parts.column_depth + parts.passed.iter().map(|p| p.depth).sum::<usize>();
    let mut tile = TILE_MAX;
    while tile > 1 && tiles * tile * row_bytes(precision) > SERIES_BYTES_MAX {
        tile /= 2;
    }
    let mut row = steps.columns * parts.column_depth * tile;
    let mut base = |depth: usize| {
        row += depth * tile;
        row - depth * tile
    };
    let bases = parts.passed.iter().map(|p| base(p.depth)).collect();
    let mut values = Values::default();
    if over_chunks {
        values.lanes();
    }
    let pasts = Vec::new();
    let blocks = blocks(parts.parts.len(), forms);
    let out = String::new();
    let mut writer =
        Writer { steps, forms, parts, over_chunks, precision, tile, values, bases, pasts, ring_rows: 0, out };
    writer.share();
    let bodies: Vec<String> = parts.parts.iter().enumerate().map(|(i, part)| writer.part(i, part)).collect();
    writer.frame(&bodies, tiles * tile);
    Text { source: writer.out, values: writer.values, tile, series_rows: tiles * tile, blocks, precision }
}

/// Number of blocks of `warps` warps that should run concurrently on a multiprocessor.
fn blocks(warps: usize, forms: &[Form]) -> usize {
    if forms.iter().any(|form| form.means.is_some()) {
        return if warps <= PAIRED_PARTS_MAX { 2 } else { 1 };
    }
    (WARPS_WANTED / warps).clamp(1, BLOCKS_MAX)
}

/// C++ has no empty arrays.
fn length(n: usize) -> usize {
    n.max(1)
}

impl Writer<'_> {
    fn frame(&mut self, bodies: &[String], series_rows: usize) {
        let (columns, tile, warps) = (self.steps.columns, self.tile, bodies.len());
        let threads = LANES * warps;
        // What headers are compiled for is set before they are included.
        let (head, wides) = match self.precision {
            Precision::F64 => ("", String::new()),
            Precision::F32 => {
                ("#define TRAWL_SHORT\n", format!("    double w[{}];\n", length(self.values.wides.len())))
            }
        };
        let _ = write!(
            self.out,
            "{head}#include \"kernel.cuh\"\n\nstatic_assert(sizeof(real) == {}, \"numbers of another type\");\nstruct \
             @_arguments {{\n    Run run;\n    const real* column[{}];\n{wides}    real f[{}];\n    int p[{}];\n    u32 \
             ring[{}];\n}};\n\n",
            number_bytes(self.precision),
            length(columns),
            length(self.values.doubles.len()),
            length(self.values.ints.len()),
            length(2 * self.values.rings.len()),
        );
        let held = columns <= COLUMNS_HELD_MAX;
        let _ = writeln!(
            self.out,
            "struct @_columns {{\n    const real* at[{}];\n}};\n\nSTEP void @_fetch(const @_arguments& a, const \
             Frame<{tile}, {warps}>& b, const @_columns& c, int tile) {{",
            if held { length(columns) } else { 1 }
        );
        for column in 0..columns {
            let (base, depth) = self.column_buffer(column);
            let from = if held { format!("c.at[{column}]") } else { format!("b.first_of(a.column[{column}])") };
            let _ = writeln!(self.out, "    b.fetch({from}, {base}, {depth}, tile);");
        }
        self.out.push_str("    copies_end();\n}\n");
        bodies.iter().for_each(|body| self.out.push_str(body));
        let whole = self.parts.when.contains(&When::Every);
        let _ = write!(
            self.out,
            "\nextern \"C\" __global__ void __launch_bounds__({threads}, TRAWL_BLOCKS) @(const __grid_constant__ @_arguments a) {{\n    \
             const Frame<{tile}, {warps}> b(a.run, {series_rows}, {whole});\n    @_columns c;\n"
        );
        for column in (0..columns).filter(|_| held) {
            let _ = writeln!(self.out, "    c.at[{column}] = b.first_of(a.column[{column}]);");
        }
        let order = self.parts.by_load(self.forms);
        let fetcher = order.iter().position(|part| *part == self.parts.fetcher(self.forms)).unwrap_or(0);
        let _ = write!(
            self.out,
            "    if (b.warp == {fetcher}) {{\n        @_fetch(a, b, c, b.first_tile);\n        copies_wait<0>();\n    }}\n    \
             block_barrier(b.threads);\n"
        );
        for (warp, part) in order.into_iter().enumerate() {
            let _ = writeln!(self.out, "    if (b.warp == {warp}) return @_part{part}(a, b, c);");
        }
        self.out.push_str("}\n\nTRAWL_ENTRY(@, @_arguments)\n");
    }

    /// First row and tiles of a column's buffers.
    fn column_buffer(&self, column: usize) -> (usize, usize) {
        let depth = self.parts.column_depth;
        (column * depth * self.tile, depth)
    }

    /// First row and tiles of the buffers of a series passed between parts.
    fn passed_buffer(&self, step: usize) -> Option<(usize, usize)> {
        let at = self.parts.passed.iter().position(|p| p.step == step)?;
        Some((self.bases[at], self.parts.passed[at].depth))
    }

    /// Writes the function of a part.
    fn part(&mut self, number: usize, part: &WarpPart) -> String {
        let mut body = Body::default();
        self.histories(part, &mut body);
        for at in part.first..part.end {
            self.step(part, at, &mut body);
        }
        self.fill(number, part, &mut body);
        self.outputs(number, part, &mut body);
        let families = self.forms[part.first..part.end].iter().any(|form| form.means.is_some());
        body.runs_in_order = families || self.over_chunks;
        let over = Loop {
            number,
            tile: self.tile,
            warps: self.parts.parts.len(),
            level: part.level,
            top: self.parts.top(),
            fetches: self.parts.fetcher(self.forms) == number,
            over_chunks: self.over_chunks,
        };
        over.around(&body, &self.buffers(part, &body))
    }

    /// Loads a value from another part unless it is already loaded; returns its name.
    pub(crate) fn value(&mut self, part: &WarpPart, source: StepInput, when: When, body: &mut Body) -> String {
        match source {
            StepInput::Constant(value) => {
                return self.values.number(value, false, self.precision);
            }
            StepInput::Step(step) if part.holds(step) => return format!("v{step}"),
            _ => {}
        }
        let (name, from) = match source {
            StepInput::Column(column) => (format!("x{column}"), format!("c{column}")),
            StepInput::Step(step) => (format!("v{step}"), format!("e{step}")),
            StepInput::Constant(_) => return String::new(),
        };
        // A value loaded at every bar is also available in the tail, and those at wanted bars.
        let known = body.read.iter().any(|(read, loaded)| *read == source && *loaded <= when);
        if !known {
            body.read.push((source, when));
            body.push(when, Statement::load(format!("const real {name} = {from}[at];")));
        }
        name
    }

    /// Writes one history per series with look-back in the part.
    fn histories(&mut self, part: &WarpPart, body: &mut Body) {
        // Source, look-back, when it is kept, and when it is looked at last.
        let mut found: Vec<(StepInput, usize, When, When)> = Vec::new();
        for at in part.first..part.end {
            let Takes::Past(bars) = self.forms[at].takes else { continue };
            if self.forms[at].means.is_some() {
                continue;
            }
            // What is looked back at is kept at every bar of the tail, whenever it is looked at.
            let (source, read) = (self.steps.steps[at].inputs[0], self.parts.when[at]);
            let when = read.min(When::Tail);
            match found.iter_mut().find(|(known, ..)| *known == source) {
                Some((_, most, earliest, last)) => {
                    (*most, *earliest, *last) = ((*most).max(bars), when.min(*earliest), read.max(*last));
                }
                None => found.push((source, bars, when, read)),
            }
        }
        for (number, (source, bars, when, last)) in found.into_iter().enumerate() {
            // At wanted bars it is read when all bars side by side have been kept.
            let is_late = last == When::Wanted && !self.over_chunks;
            let slots = bars.saturating_add(if is_late { TAIL_TOGETHER } else { 1 });
            let (slots, push) = if is_late && self.is_read_by_pairs(part, source) {
                let again = READ_TOGETHER - 1;
                (RingSlots::Again { slots, again }, format!("push_again<{again}>"))
            } else {
                (RingSlots::UpTo(slots), "push".to_owned())
            };
            let ring = self.ring(slots, when == When::Every, false);
            let _ = writeln!(body.states, "History h{number};\nconst Ring k{number} = {};", self.ring_of(ring));
            let _ = writeln!(body.starts, "h{number}.start(0);");
            // A series of this part is pushed when it is computed.
            if !matches!(source, StepInput::Step(step) if part.holds(step)) {
                let value = self.value(part, source, when, body);
                body.push(when, Statement::of(0, format!("h{number}.{push}({value}, k{number});")).of_history(number));
            }
            body.histories.push(Kept { source, when, push });
        }
    }

    /// Whether a step of the part that has a function of two bars looks back at a series.
    fn is_read_by_pairs(&self, part: &WarpPart, source: StepInput) -> bool {
        (part.first..part.end).any(|at| self.forms[at].pairs && self.steps.steps[at].inputs[0] == source)
    }

    /// Adds a ring, used at every bar or from the first wanted one on, of `f64` or of the kernel's numbers; returns its
    /// index.
    pub(crate) fn ring(&mut self, slots: RingSlots, every: bool, wide: bool) -> usize {
        let rows = slots.rows().saturating_mul(rows_of_slot(self.precision, wide));
        let most = SHARED_RING_BYTES_MAX / row_bytes(self.precision);
        let shared = every && self.ring_rows.saturating_add(rows) <= most;
        self.ring_rows += if shared { rows } else { 0 };
        self.values.rings.push(RingUse { slots, shared, wide });
        self.values.rings.len() - 1
    }

    /// The expression of a ring.
    pub(crate) fn ring_of(&self, ring: usize) -> String {
        let RingUse { shared, wide, .. } = self.values.rings[ring];
        let place = if shared { "shared_ring" } else { "ring" };
        let wide = if wide { "wide_" } else { "" };
        format!("b.{wide}{place}(a.ring[{}], a.ring[{}])", 2 * ring, 2 * ring + 1)
    }

    /// The inputs of a step, as values or with their past.
    fn given(&mut self, part: &WarpPart, at: usize, form: &Form, body: &mut Body) -> Vec<String> {
        let mut given = Vec::new();
        for (i, input) in self.steps.steps[at].inputs.clone().iter().enumerate() {
            if i == 0 && matches!(form.takes, Takes::Past(_)) {
                let history = body.histories.iter().position(|kept| kept.source == *input).unwrap_or(0);
                given.push(format!("Past{{k{history}, h{history}.now, t}}"));
            } else {
                given.push(self.value(part, *input, self.parts.when[at], body));
            }
        }
        given
    }

    /// Writes one step: its state, and the line that advances it by one bar.
    fn step(&mut self, part: &WarpPart, at: usize, body: &mut Body) {
        let form = self.forms[at].clone();
        let when = self.parts.when[at];
        let whole = when == When::Every;
        let mut given: Vec<String> = match &form.means {
            Some(means) => self.means(part, at, means, body),
            None => self.given(part, at, &form, body),
        };
        let stage = body.stage_of(self.steps.steps[at].inputs.iter().filter_map(|input| input.step()));
        let array = match form.takes {
            _ if form.means.is_some() => Some(SIGNAL_SHARED),
            Takes::Array(from) => Some(from),
            _ => None,
        };
        if let Some(from) = array {
            let values = given.split_off(from.min(given.len())).join(", ");
            body.push(when, Statement::of(stage, format!("const real a{at}[] = {{{values}}};")));
            given.push(format!("a{at}"));
        }
        if form.wants_bar {
            given.push("t".to_owned());
        }
        let first_int = self.values.of_form(&form, self.precision, &mut given);
        for slots in &form.rings {
            let ring = self.ring(*slots, whole, form.wide);
            given.push(self.ring_of(ring));
        }
        if form.has_state {
            let first = if form.ints.is_empty() { "0".to_owned() } else { format!("a.p[{first_int}]") };
            let from = match (self.over_chunks, whole) {
                (true, _) => "start_of(first, b.tail)",
                (false, true) => "0",
                (false, false) => "b.tail",
            };
            let _ = writeln!(body.states, "{} s{at};", form.name);
            let _ = writeln!(body.starts, "s{at}.start({from}, {first});");
            if form.keeps_block && !whole {
                let _ = writeln!(body.left_out, "s{at}.block.leave_out(bars, {first});");
            }
            if form.divides == Some(Division::OfMean) && whole {
                // A lane without bars would do every group of bars twice.
                let _ = writeln!(body.starts, "if (b.visible == 0) s{at}.begin();");
            }
        }
        if form.settles {
            let ints: Vec<String> = (0..form.ints.len()).map(|i| format!("a.p[{}]", first_int + i)).collect();
            body.settles.push(format!("s{at}.is_settled({})", ints.join(", ")));
        }
        if form.blocks {
            if whole {
                body.blocks.push(format!("s{at}.block.is_inside({TOGETHER}, a.p[{first_int}])"));
            }
            body.tail_blocks.push(format!("s{at}.block.allows({TOGETHER}, a.p[{first_int}])"));
        }
        let next = match form {
            _ if form.settles => NEXT,
            _ if form.blocks => INSIDE,
            _ => "next",
        };
        let owner = match form.divides {
            Some(Division::OfValues(name)) => format!("{name}::"),
            Some(Division::ByWhole) => "DividedByWhole::".to_owned(),
            _ => format!("s{at}."),
        };
        let call = if form.has_state { format!("s{at}.{next}") } else { form.name.clone() };
        let arguments = given.join(", ");
        // A condition of numbers is a `Truth`, of stored conditions a number.
        let kind = if form.is_condition { "auto" } else { "real" };
        let text = format!("const {kind} v{at} = {call}({arguments});");
        let looks_back = matches!(form.takes, Takes::Past(_)) && form.means.is_none();
        let source = self.steps.steps[at].inputs.first().filter(|_| looks_back);
        let history = body.histories.iter().position(|kept| Some(&kept.source) == source);
        let line = match form.divides {
            Some(division) => Statement::divided(stage, Divided { step: at, owner, arguments, division }, text),
            None if form.begins_together && whole => {
                let window = Window { step: at, input: given[0].clone(), arguments: given[1..].join(", ") };
                Statement::window(stage, window, text)
            }
            None if form.pairs && history.is_some() => {
                let (name, input, arguments) = (form.name, given[1].clone(), given[2..].join(", "));
                let pair = Pair { step: at, name, history: history.unwrap_or(0), input, arguments };
                Statement::pair(stage, pair, text)
            }
            None => Statement::of(stage, text),
        };
        let line = match history {
            Some(history) => line.of_history(history),
            None => line,
        };
        let after = body.push_step(at, when, line);
        if self.passed_buffer(at).is_some() {
            body.push(when, Statement::store(after, format!("e{at}[at] = v{at};")));
        }
        if let Some(number) = body.histories.iter().position(|kept| kept.source == StepInput::Step(at)) {
            let Kept { when, push, .. } = &body.histories[number];
            let (when, line) = (*when, Statement::of(after, format!("h{number}.{push}(v{at}, k{number});")));
            body.push(when, line.of_history(number));
        }
    }

    /// Writes the stores of outputs: in the part that computes them; columns and constants in the first part.
    fn outputs(&mut self, number: usize, part: &WarpPart, body: &mut Body) {
        for (output, source) in self.steps.outputs.clone().into_iter().enumerate() {
            let mine = match source {
                StepInput::Step(step) => part.holds(step),
                _ => number == 0,
            };
            if mine {
                let value = self.value(part, source, When::Wanted, body);
                let row = if self.over_chunks { "row" } else { "t" };
                body.push(When::Wanted, Statement::fixed(format!("b.put({output}, {row}, {value});")));
            }
        }
    }

    /// The tiles of the columns and series that a part reads and writes, one line each of text.
    fn buffers(&self, part: &WarpPart, body: &Body) -> String {
        let mut sources: Vec<(StepInput, String, String)> = Vec::new();
        for (source, _) in &body.read {
            let buffer = match *source {
                StepInput::Column(column) => Some((format!("c{column}"), self.column_buffer(column))),
                StepInput::Step(step) => self.passed_buffer(step).map(|buffer| (format!("e{step}"), buffer)),
                StepInput::Constant(_) => None,
            };
            if let Some((name, (base, depth))) = buffer
                && !sources.iter().any(|(known, ..)| known == source)
            {
                sources.push((*source, format!("const real* {name}"), format!("{base}, {depth}")));
            }
        }
        for passed in self.parts.passed.iter().filter(|p| part.holds(p.step)) {
            let (base, depth) = self.passed_buffer(passed.step).unwrap_or_default();
            sources.push((StepInput::Step(passed.step), format!("real* e{}", passed.step), format!("{base}, {depth}")));
        }
        sources.iter().map(|(_, name, at)| format!("{name} = b.tile_of({at}, tile);\n")).collect()
    }
}
