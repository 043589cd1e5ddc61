//! Kernel text of recursive steps over chunks: one kernel computes the maps of chunks, one the values. Each step is a
//! warp; no data is passed between warps, and inputs are read directly from device memory. In `f64` only.

use std::fmt::Write as _;

use crate::Precision;
use crate::cuda::codegen::averages::Constants;
use crate::cuda::codegen::lower::{LowerError, Lowered, forms, kernel};
use crate::cuda::codegen::step_abi::Form;
use crate::cuda::codegen::steps::{KernelSteps, StepInput};
use crate::cuda::codegen::text::{Text, Values};

/// The outputs of a kernel of recursive steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// Per step: the words of its map, as outputs of one value per lane.
    Maps,
    /// The steps' values. The words of the maps are columns after the others.
    Values,
}

/// The kernel that computes the maps of recursive steps. `right_from`: per step, the first row at which its inputs are
/// valid.
pub(crate) fn lower_maps(steps: &KernelSteps, right_from: &[usize]) -> Result<Lowered, LowerError> {
    lower(steps, right_from, Gives::Maps)
}

/// The kernel that walks recursive steps through each chunk, from the state given by the maps of earlier chunks.
pub(crate) fn lower_walks(steps: &KernelSteps, right_from: &[usize]) -> Result<Lowered, LowerError> {
    lower(steps, right_from, Gives::Values)
}

fn lower(steps: &KernelSteps, right_from: &[usize], gives: Gives) -> Result<Lowered, LowerError> {
    let forms = forms(steps, Constants::None, Precision::F64)?;
    let words: Vec<usize> = steps.steps.iter().map(|step| step.op.facts().chunk_words().unwrap_or(0)).collect();
    let all: usize = words.iter().sum();
    let (map_columns, outputs) = match gives {
        Gives::Maps => (0, all),
        Gives::Values => (all, steps.outputs.len()),
    };
    let columns = steps.columns + map_columns;
    let mut values = Values::default();
    values.lanes();
    let mut bodies = String::new();
    let mut word = 0;
    for (at, form) in forms.iter().enumerate() {
        let from = right_from.get(at).copied().unwrap_or(0);
        bodies += &step(Given { steps, at, form, from, words: word..word + words[at], gives }, &mut values);
        word += words[at];
    }
    let length = |n: usize| n.max(1);
    let threads = 32 * forms.len();
    let mut source = format!(
        "#include \"kernel.cuh\"\n\nstruct @_arguments {{\n    Run run;\n    const double* column[{}];\n    double \
         f[{}];\n    int p[{}];\n    u32 ring[1];\n}};\n{bodies}\nextern \"C\" __global__ void __launch_bounds__({threads}, 1) \
         @(const __grid_constant__ @_arguments a) {{\n    const Chunks b(a.run, a.run.table + a.p[0]);\n",
        length(columns),
        length(values.doubles.len()),
        length(values.ints.len()),
    );
    for at in 0..forms.len() {
        let _ = writeln!(source, "    if (b.warp == {at}) @_step{at}(a, b);");
    }
    source.push_str("}\n\nTRAWL_ENTRY(@, @_arguments)\n");
    let text = Text { source, values, tile: 1, series_rows: 0, blocks: 1, precision: Precision::F64 };
    let kernel = kernel(&text, forms.len(), columns, outputs)?;
    let gives_maps = gives == Gives::Maps;
    Ok(Lowered { kernel, values: text.values, reach: 0, gives_maps })
}

/// A step of a kernel.
struct Given<'a> {
    steps: &'a KernelSteps,
    at: usize,
    form: &'a Form,
    /// The first row at which its inputs are valid.
    from: usize,
    /// Range of its map's words among those of all maps.
    words: std::ops::Range<usize>,
    gives: Gives,
}

fn step(given: Given<'_>, values: &mut Values) -> String {
    let Given { steps, at, form, from, words, gives } = given;
    let mut series: Vec<usize> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for input in &steps.steps[at].inputs {
        match *input {
            StepInput::Column(column) => {
                let known = series.iter().position(|s| *s == column);
                inputs.push(format!("x[{}]", known.unwrap_or(series.len())));
                if known.is_none() {
                    series.push(column);
                }
            }
            StepInput::Constant(value) => {
                inputs.push(format!("a.f[{}]", values.doubles.len()));
                values.doubles.push(value);
            }
            // Recursive steps of one level do not read each other.
            StepInput::Step(_) => inputs.push("na()".to_owned()),
        }
    }
    let row = values.ints.len();
    values.ints.push(i32::try_from(from).unwrap_or(i32::MAX));
    let first_int = values.ints.len();
    values.ints.extend(&form.ints);
    let first_double = values.doubles.len();
    values.doubles.extend(&form.doubles);
    let mut numbers: Vec<String> = (0..form.ints.len()).map(|i| format!("a.p[{}]", first_int + i)).collect();
    numbers.extend((0..form.doubles.len()).map(|i| format!("a.f[{}]", first_double + i)));
    let next = [inputs, numbers.clone()].concat().join(", ");
    let (name, count) = (&form.name, series.len());
    let columns = |of: &mut dyn Iterator<Item = usize>| {
        let addresses: Vec<String> = of.map(|column| format!("a.column[{column}]")).collect();
        if addresses.is_empty() { "nullptr".to_owned() } else { addresses.join(", ") }
    };
    let bars = Bars {
        at,
        form,
        gives,
        next: &next,
        is_settled: numbers[..form.ints.len()].join(", "),
        carry: [vec!["step".to_owned()], numbers].concat().join(", "),
    };
    let divides = form.divides.is_some();
    let mut text = format!(
        "\nstatic_assert(sizeof(ChunkMap<{name}>) == {} * sizeof(double), \"words of a map\");\n{}STEP void @_step{at}(const \
         @_arguments& a, const Chunks& b) {{\n    const double* const series[] = {{{}}};\n    const int from = a.p[{row}];\n    \
         @_bars{at} bars{{a}};\n",
        words.len(),
        bars.text(),
        columns(&mut series.iter().copied()),
    );
    if gives == Gives::Maps {
        let _ = write!(
            text,
            "    bars.step.start();\n    b.walk<{count}, {divides}>(series, b.lane, b.begin(b.lane, from), b.end(b.lane, from), \
             bars, NoOutput{{}});\n    b.tell(bars.step, {});\n}}\n",
            words.start
        );
        return text;
    }
    let first = if form.ints.is_empty() { "0".to_owned() } else { format!("a.p[{first_int}]") };
    let output = steps.outputs.iter().position(|source| *source == StepInput::Step(at)).unwrap_or(0);
    let _ = write!(
        text,
        "    const double* const words[] = {{{}}};\n    bars.step.start(0, {first});\n    \
         b.carry_before<ChunkMap<{name}>>(words, bars, [&](int of) {{ b.walk<{count}, {divides}>(series, of, b.begin(of, from), \
         b.end(of, from), bars, NoOutput{{}}); }});\n    const int begin = b.begin(b.lane, from), rows = \
         a.run.visible[b.lane];\n    const LaneOutput out(b, {output});\n    for (int row = 0; row < least(begin, rows); ++row) \
         out.put(row, na());\n    b.walk<{count}, {divides}>(series, b.lane, begin, rows, bars, out);\n}}\n",
        columns(&mut words.map(|word| steps.columns + word)),
    );
    text
}

/// The type `Bars` of a step (`Chunks` of chunk_lanes.cuh): what the kernel does with a row, and with a map.
struct Bars<'a> {
    at: usize,
    form: &'a Form,
    gives: Gives,
    /// Arguments of `next`, of `is_settled` and of `carry`.
    next: &'a str,
    is_settled: String,
    carry: String,
}

impl Bars<'_> {
    fn text(&self) -> String {
        let Self { at, form, gives, next, is_settled, carry } = self;
        let name = &form.name;
        let values = *gives == Gives::Values;
        let settles = values && form.settles;
        // A map has no seed.
        let state = if values { name.clone() } else { format!("ChunkMap<{name}>") };
        let is_settled = if settles { format!("step.is_settled({is_settled})") } else { "true".to_owned() };
        // The next state of a map is its only result.
        let call = |function: &str, arguments: &str| {
            if values {
                format!("return step.{function}({arguments});")
            } else {
                format!("step.{function}({arguments}); return 0.0;")
            }
        };
        let mut text = format!("struct @_bars{at} {{\n    const @_arguments& a;\n    {state} step;\n");
        let mut function = |declaration: &str, body: &str| {
            let _ = writeln!(text, "    __device__ __forceinline__ {declaration} {{ {body} }}");
        };
        function("bool is_settled() const", &format!("return {is_settled};"));
        function("double next(const double* x)", &call("next", next));
        if form.divides.is_some() {
            let operands = format!("step.operands({next}, of, by);");
            function("void operands(const double* x, double& of, double& by) const", &operands);
            let arguments = format!("quotient, {next}");
            function("double with_quotient(double quotient, const double* x)", &call("with_quotient", &arguments));
        } else {
            let settled = if settles { "next_settled" } else { "next" };
            function("double next_settled(const double* x)", &call(settled, next));
        }
        if values {
            function(&format!("bool carry(const ChunkMap<{name}>& map)"), &format!("return map.carry({carry});"));
        }
        text.push_str("};\n");
        text
    }
}
