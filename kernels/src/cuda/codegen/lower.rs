//! Lowers steps to their kernel.

use trawl_plan::graph::{Binary, Op};
use twox_hash::XxHash3_128;

use crate::Precision;
use crate::cuda::HEADERS;
use crate::cuda::codegen::averages::Constants;
use crate::cuda::codegen::number::number_bytes;
use crate::cuda::codegen::step_abi::Form;
use crate::cuda::codegen::steps::{KernelStep, KernelSteps, StepInput};
use crate::cuda::codegen::text::{self, Text, Values};
use crate::cuda::codegen::warp_partition::{WarpPartition, reach};

/// Maximum bytes of kernel arguments on devices since compute capability 7.0.
const ARGUMENT_BYTES_MAX: usize = 32_764;

/// Bytes of the arguments common to all kernels.
pub(crate) const RUN_BYTES: usize = 72;

/// The text of a kernel and the data shared by its launches: everything that depends on a plan's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the function, unique for the shape.
    pub name: String,
    /// CUDA C++ source, which includes `kernel.cuh`.
    pub source: String,
    /// Fingerprint of the text and all headers: the cache key, together with the device's architecture and the
    /// compiler's version.
    pub fingerprint: u128,
    /// Number of warps of a block.
    pub warps: usize,
    /// Number of bars loaded into shared memory at a time.
    pub tile: usize,
    /// Rows of shared memory for series: 32 numbers each.
    pub series_rows: usize,
    /// Number of blocks that should run concurrently on a multiprocessor.
    pub blocks: usize,
    /// Number of columns that it reads.
    pub columns: usize,
    /// Number of series that it writes.
    pub outputs: usize,
    /// The number type of its series, which its text contains.
    pub precision: Precision,
}

/// A kernel with the parameters of one plan.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The text, shared by all plans of its shape.
    pub kernel: Kernel,
    pub(crate) values: Values,
    /// Look-back of steps with finite windows, in bars before the first wanted one. Recursive steps run from the first
    /// bar.
    pub(crate) reach: usize,
    /// Whether it computes maps of chunks: one value per lane and output, whichever bars are wanted.
    pub(crate) gives_maps: bool,
}

/// Why a program has no kernels.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum LowerError {
    /// No step of `kernels/cuda` computes this primitive, given in its canonical form.
    #[error("the GPU does not run the primitive {0}")]
    Primitive(String),
    /// The plan can be lowered, but not to kernels over chunks of a history.
    #[error("the plan goes through time serially: {0}")]
    Serial(String),
    /// The parameters do not fit into a kernel's argument.
    #[error("the plan's numbers take {bytes} bytes, and a kernel takes {ARGUMENT_BYTES_MAX}")]
    Arguments {
        /// Size of the parameters.
        bytes: usize,
    },
}

/// The form of each step.
pub(crate) fn forms(steps: &KernelSteps, constants: Constants, precision: Precision) -> Result<Vec<Form>, LowerError> {
    let form = |step: &KernelStep| {
        let by = match step.inputs.as_slice() {
            [_, StepInput::Constant(by)] if step.op == Op::Binary(Binary::Divide) => Some(*by),
            _ => None,
        };
        let by_whole = by.and_then(|by| Form::division_by(by, precision));
        let form = match &step.averages {
            Some(averages) => Form::family(step.op, averages, constants, precision),
            None => by_whole.or_else(|| Form::of(step.op, step.inputs.len())),
        };
        form.ok_or_else(|| LowerError::Primitive(step.op.canonical()))
    };
    steps.steps.iter().map(form).collect()
}

/// Lowers steps to one fused kernel.
pub(crate) fn lower_steps(
    steps: &KernelSteps,
    constants: Constants,
    precision: Precision,
) -> Result<Lowered, LowerError> {
    let forms = forms(steps, constants, precision)?;
    lower(steps, &forms, &WarpPartition::of(steps, &forms, precision), false, precision)
}

/// As [`lower_steps`] in `f64`, for steps without recursion over lanes that are chunks, split over up to `warps_max`
/// warps.
pub(crate) fn lower_over_chunks(steps: &KernelSteps, warps_max: usize) -> Result<Lowered, LowerError> {
    let forms = forms(steps, Constants::None, Precision::F64)?;
    lower(steps, &forms, &WarpPartition::many(steps, &forms, warps_max), true, Precision::F64)
}

fn lower(
    steps: &KernelSteps,
    forms: &[Form],
    parts: &WarpPartition,
    over_chunks: bool,
    precision: Precision,
) -> Result<Lowered, LowerError> {
    let reach = reach(steps, forms, &parts.when);
    let text = text::write(steps, forms, parts, over_chunks, precision);
    let kernel = kernel(&text, parts.parts.len(), steps.columns, steps.outputs.len())?;
    Ok(Lowered { kernel, values: text.values, reach, gives_maps: false })
}

/// Names a text, and makes it a kernel.
pub(crate) fn kernel(text: &Text, warps: usize, columns: usize, outputs: usize) -> Result<Kernel, LowerError> {
    let values = &text.values;
    let numbers = values.doubles.len() * number_bytes(text.precision) + 8 * values.wides.len();
    let bytes = RUN_BYTES + 8 * (columns + values.rings.len()) + numbers + 4 * values.ints.len();
    if bytes > ARGUMENT_BYTES_MAX {
        return Err(LowerError::Arguments { bytes });
    }
    let fingerprint = fingerprint(&text.source);
    let name = format!("plan_{fingerprint:032x}");
    Ok(Kernel {
        source: text.source.replace('@', &name),
        name,
        fingerprint,
        warps,
        tile: text.tile,
        series_rows: text.series_rows,
        blocks: text.blocks,
        columns,
        outputs,
        precision: text.precision,
    })
}

/// Fingerprint of a text and all headers.
pub(crate) fn fingerprint(text: &str) -> u128 {
    let mut all = text.to_owned();
    for (name, header) in HEADERS {
        all.push_str(name);
        all.push_str(header);
    }
    XxHash3_128::oneshot(all.as_bytes())
}
