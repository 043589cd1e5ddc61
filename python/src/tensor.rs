//! Arrays for models: `trawl.features` as tensors, which other libraries take by DLPack without a copy.
//!
//! The structures are those of DLPack's header, version 0.8, whose capsules every library takes. A tensor's memory is not read here once
//! it was handed out, so that whoever has it may write into it. This module and `arrow_c` have the only `unsafe`.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

/// The name of a capsule that nobody has taken yet.
const FRESH: &CStr = c"dltensor";
/// The main memory of this machine.
const CPU: (i32, i32) = (1, 0);

/// Values in row-major order.
#[derive(Debug)]
pub enum Values {
    /// 1 or 0, a byte each.
    Bool(Vec<u8>),
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
}

impl Values {
    fn start(&self) -> *const c_void {
        match self {
            Self::Bool(values) => values.as_ptr().cast(),
            Self::F32(values) => values.as_ptr().cast(),
            Self::F64(values) => values.as_ptr().cast(),
        }
    }

    /// Code and bits as DLPack has them, and NumPy's name.
    fn kind(&self) -> (u8, u8, &'static str) {
        match self {
            Self::Bool(_) => (6, 8, "|b1"),
            Self::F32(_) => (2, 32, "<f4"),
            Self::F64(_) => (2, 64, "<f8"),
        }
    }
}

/// An array in main memory.
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
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct Kind {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Described {
    data: *mut c_void,
    device: Device,
    axes: i32,
    kind: Kind,
    shape: *mut i64,
    /// Null: row-major.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Described,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// What a [`Managed`] points to.
struct Kept {
    shape: Vec<i64>,
    _values: Arc<Values>,
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: by DLPack it is called once, with the pointer that `__dlpack__` made of two boxes.
    unsafe {
        drop(Box::from_raw((*managed).context.cast::<Kept>()));
        drop(Box::from_raw(managed));
    }
}

/// Frees what nobody has taken: whoever takes a tensor gives its capsule another name.
unsafe extern "C" fn end(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls it with the capsule that is going away; its pointer is the one that `__dlpack__` gave it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}

#[pymethods]
impl Tensor {
    /// The lengths of its axes.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    /// Where it is, by DLPack.
    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }

    /// Hands its memory out by DLPack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Main memory has no streams, and libraries that know later versions take this one.
        let _ = (stream, max_version);
        if dl_device.is_some_and(|device| device != CPU) || copy == Some(true) {
            return Err(PyBufferError::new_err("the tensor is handed out where it is: copy it afterwards"));
        }
        let (code, bits, _) = self.values.kind();
        let shape: Vec<i64> = self.shape.iter().map(|length| *length as i64).collect();
        let mut kept = Box::new(Kept { shape, _values: Arc::clone(&self.values) });
        let tensor = Described {
            data: self.values.start().cast_mut(),
            device: Device { kind: CPU.0, id: CPU.1 },
            axes: self.shape.len() as i32,
            kind: Kind { code, bits, lanes: 1 },
            shape: kept.shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let context = Box::into_raw(kept).cast::<c_void>();
        let managed = Box::into_raw(Box::new(Managed { tensor, context, deleter: Some(delete) }));
        // SAFETY: the pointer and the name live as long as the capsule; `end` frees what nobody has taken. Without a capsule it is freed
        // here.
        unsafe {
            let made = ffi::PyCapsule_New(managed.cast(), FRESH.as_ptr(), Some(end));
            if made.is_null() {
                delete(managed);
            }
            Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into::<PyCapsule>()?)
        }
    }

    /// The same as NumPy reads it.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", self.values.kind().2)?;
        interface.set_item("data", (self.values.start() as usize, false))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        let lengths: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        format!("<Tensor {} [{}]>", self.values.kind().2, lengths.join(", "))
    }
}
