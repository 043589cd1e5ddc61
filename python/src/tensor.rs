//! Arrays for models: `trawl.features` as tensors, which other libraries take by DLPack without a copy.
//!
//! They are in main memory, or in that of a GPU. The structures are those of DLPack's header, version 1.0, and of versions before it for
//! libraries that do not ask for one. A tensor's memory is not read here once it was handed out, so that whoever has it may write into
//! it: capsules never say that it is read-only. This module and `arrow_c` have the only `unsafe`.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use trawl_kernels::cuda::{DeviceTensor, ForeignStream};

/// Names of capsules that nobody has taken yet, of either kind.
const FRESH: &CStr = c"dltensor";
const FRESH_VERSIONED: &CStr = c"dltensor_versioned";
/// The version that capsules of the second kind have.
const VERSION: Version = Version { major: 1, minor: 0 };
/// The main memory of this machine, as DLPack names it.
const CPU: (i32, i32) = (1, 0);
/// The kind of a GPU's memory; the number is the driver's.
const CUDA_KIND: i32 = 2;
/// Flag of a capsule: its memory is a copy for whoever takes it.
const IS_COPIED: u64 = 2;
/// What is said of another place.
const STAYS: &str = "the tensor is handed out where it is: copy it afterwards";

/// Values in row-major order.
#[derive(Debug)]
pub enum Values {
    /// 1 or 0, a byte each.
    Bool(Vec<u8>),
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
    /// On a GPU, of one of these kinds.
    Device(DeviceTensor, Kind),
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// 1 or 0, a byte.
    Bool,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Kind {
    /// Code and bits as DLPack has them, and NumPy's name.
    fn names(self) -> (u8, u8, &'static str) {
        match self {
            Self::Bool => (6, 8, "|b1"),
            Self::F32 => (2, 32, "<f4"),
            Self::F64 => (2, 64, "<f8"),
        }
    }
}

/// As a vector that there may be no memory for.
fn copied<T: Copy>(values: &[T]) -> Option<Vec<T>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(values.len()).ok()?;
    copy.extend_from_slice(values);
    Some(copy)
}

impl Values {
    fn start(&self) -> *mut c_void {
        match self {
            Self::Bool(values) => values.as_ptr().cast_mut().cast(),
            Self::F32(values) => values.as_ptr().cast_mut().cast(),
            Self::F64(values) => values.as_ptr().cast_mut().cast(),
            Self::Device(tensor, _) => tensor.address() as *mut c_void,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Bool(_) => Kind::Bool,
            Self::F32(_) => Kind::F32,
            Self::F64(_) => Kind::F64,
            Self::Device(_, kind) => *kind,
        }
    }

    /// Where they are, as DLPack has it.
    fn device(&self) -> (i32, i32) {
        match self {
            Self::Device(tensor, _) => (CUDA_KIND, i32::try_from(tensor.ordinal()).unwrap_or(i32::MAX)),
            _ => CPU,
        }
    }

    /// The same in other memory of the same place.
    fn copied(&self) -> PyResult<Self> {
        let copy = match self {
            Self::Bool(values) => copied(values).map(Self::Bool),
            Self::F32(values) => copied(values).map(Self::F32),
            Self::F64(values) => copied(values).map(Self::F64),
            Self::Device(tensor, kind) => {
                let copy = tensor.copied().map_err(|fault| PyBufferError::new_err(fault.to_string()))?;
                Some(Self::Device(copy, *kind))
            }
        };
        copy.ok_or_else(|| PyBufferError::new_err("there is no memory for a copy"))
    }
}

/// An array in main memory, or in that of a GPU.
#[pyclass(frozen, module = "trawl._native")]
#[derive(Debug)]
pub struct Tensor {
    values: Arc<Values>,
    shape: Vec<usize>,
}

impl Tensor {
    /// As many values as the shape has places.
    pub fn new(values: Values, shape: Vec<usize>) -> Self {
        Self { values: Arc::new(values), shape }
    }
}

#[repr(C)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Described {
    data: *mut c_void,
    device: Device,
    axes: i32,
    kind: DataType,
    shape: *mut i64,
    /// Null: row-major.
    strides: *mut i64,
    byte_offset: u64,
}

/// What a capsule points to. Its first fields are those of DLPack.
trait Managed: Sized {
    /// The capsule's name until somebody takes it.
    const NAME: &'static CStr;

    fn new(tensor: Described, context: *mut c_void, flags: u64) -> Self;

    fn context(&self) -> *mut c_void;
}

/// Before version 1.
#[repr(C)]
struct Unversioned {
    tensor: Described,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// Since version 1.
#[repr(C)]
struct Versioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Described,
}

impl Managed for Unversioned {
    const NAME: &'static CStr = FRESH;

    fn new(tensor: Described, context: *mut c_void, _flags: u64) -> Self {
        Self { tensor, context, deleter: Some(delete_taken) }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = FRESH_VERSIONED;

    fn new(tensor: Described, context: *mut c_void, flags: u64) -> Self {
        Self { version: VERSION, context, deleter: Some(delete_taken), flags, tensor }
    }

    fn context(&self) -> *mut c_void {
        self.context
    }
}

/// What a [`Managed`] keeps.
struct Kept {
    shape: Vec<i64>,
    values: Arc<Values>,
    /// The stream that whoever takes it has named; none if it asked for no waiting.
    stream: Option<ForeignStream>,
}

/// Ends what was handed out. `was_taken`: work of whoever took it may be under way on the device.
///
/// # Safety
/// Called once, with the pointer that `__dlpack__` made of two boxes.
unsafe fn delete<M: Managed>(managed: *mut M, was_taken: bool) {
    // SAFETY: the caller's promise.
    let kept = unsafe {
        let kept = Box::from_raw((*managed).context().cast::<Kept>());
        drop(Box::from_raw(managed));
        kept
    };
    if let (Values::Device(tensor, _), true) = (&*kept.values, was_taken) {
        tensor.used_in(kept.stream);
    }
}

/// What whoever took a tensor calls; on any thread, with the interpreter's lock or without it.
unsafe extern "C" fn delete_taken<M: Managed>(managed: *mut M) {
    // SAFETY: by DLPack it is called once.
    unsafe { delete(managed, true) }
}

/// Frees what nobody has taken: whoever takes a tensor gives its capsule another name.
unsafe extern "C" fn end<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls it with the capsule that is going away; its pointer is the one that `__dlpack__` gave it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) == 1 {
            delete::<M>(ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()).cast(), false);
        }
    }
}

/// The stream that a library names for memory of a GPU: `None` is the legacy default stream, -1 wants no waiting.
fn stream_of(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<ForeignStream>> {
    let unknown = "stream: None, -1, 1 (legacy default), 2 (per-thread default) or a handle is expected";
    let Some(stream) = stream else { return Ok(Some(ForeignStream::LEGACY)) };
    match stream.extract::<i64>() {
        Ok(-1) => Ok(None),
        Ok(handle @ 1..) => Ok(ForeignStream::of_handle(handle.unsigned_abs())),
        _ => Err(PyBufferError::new_err(unknown)),
    }
}

fn capsule<'py, M: Managed>(
    py: Python<'py>,
    (values, stream): (Arc<Values>, Option<ForeignStream>),
    shape: &[usize],
    flags: u64,
) -> PyResult<Bound<'py, PyCapsule>> {
    let (code, bits, _) = values.kind().names();
    let ((kind, id), data) = (values.device(), values.start());
    let mut kept = Box::new(Kept { shape: shape.iter().map(|length| *length as i64).collect(), values, stream });
    let tensor = Described {
        data,
        device: Device { kind, id },
        axes: kept.shape.len() as i32,
        kind: DataType { code, bits, lanes: 1 },
        shape: kept.shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let context = Box::into_raw(kept).cast::<c_void>();
    let managed = Box::into_raw(Box::new(M::new(tensor, context, flags)));
    // SAFETY: the pointer and the name live as long as the capsule; `end` frees what nobody has taken. Without a capsule it is freed
    // here.
    unsafe {
        let made = ffi::PyCapsule_New(managed.cast(), M::NAME.as_ptr(), Some(end::<M>));
        if made.is_null() {
            delete(managed, false);
        }
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into::<PyCapsule>()?)
    }
}

#[pymethods]
impl Tensor {
    /// The lengths of its axes.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    /// Where it is: `cpu`, or `cuda:0` and the like.
    #[getter]
    fn device(&self) -> String {
        match self.values.device() {
            (CUDA_KIND, id) => format!("cuda:{id}"),
            _ => "cpu".to_owned(),
        }
    }

    /// Where it is, by DLPack.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.values.device()
    }

    /// Hands its memory out by DLPack. `stream` is where the other library will use memory of a GPU: it waits until the values are
    /// complete, and the memory is kept until its work is done; it has to live as long as what is handed out.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if dl_device.is_some_and(|device| device != self.values.device()) {
            return Err(PyBufferError::new_err(STAYS));
        }
        // Main memory has no streams.
        let is_on_device = matches!(*self.values, Values::Device(..));
        let stream = if is_on_device { stream_of(stream.as_ref())? } else { None };
        let (values, flags) = match copy {
            Some(true) => (Arc::new(self.values.copied()?), IS_COPIED),
            _ => (Arc::clone(&self.values), 0),
        };
        if let (Values::Device(tensor, _), Some(stream)) = (&*values, stream) {
            tensor.ready_for(stream).map_err(|fault| PyBufferError::new_err(fault.to_string()))?;
        }
        match max_version {
            Some((1.., _)) => capsule::<Versioned>(py, (values, stream), &self.shape, flags),
            _ => capsule::<Unversioned>(py, (values, stream), &self.shape, flags),
        }
    }

    /// The same as NumPy reads it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Values::Device(..) = *self.values {
            let help = "torch.from_dlpack, cupy.from_dlpack and jax.dlpack.from_dlpack take it there";
            return Err(PyAttributeError::new_err(format!("the tensor is on {}: {help}", self.device())));
        }
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", self.values.kind().names().2)?;
        interface.set_item("data", (self.values.start() as usize, false))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        let lengths: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let place =
            if matches!(*self.values, Values::Device(..)) { format!(" {}", self.device()) } else { String::new() };
        format!("<Tensor {} [{}]{place}>", self.values.kind().names().2, lengths.join(", "))
    }
}
