//! Tables that cross to Python and back by the Arrow C stream interface, and arrays of NumPy, without copies. This module and `tensor`
//! have the only `unsafe`.

use std::ffi::CStr;
use std::io::Cursor;
use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType, UInt32Type};
use arrow_array::{
    Array as _, ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator,
    RecordBatchReader as _, StringArray, TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};

/// The name of the capsule, by the interface.
const STREAM: &CStr = c"arrow_array_stream";
/// NumPy's `NaT`.
const NOT_A_TIME: i64 = i64::MIN;

/// Record batches of one schema.
#[pyclass(frozen, module = "trawl._native")]
#[derive(Debug, Clone)]
pub struct Table {
    /// Names and types of the columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

impl Table {
    /// Takes the batches of an object that has `__arrow_c_stream__`. Their buffers stay where they are.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(table) = object.cast::<Self>() {
            return Ok(table.get().clone());
        }
        if !object.hasattr("__arrow_c_stream__")? {
            let kind = object.get_type().name()?.to_string();
            return Err(PyTypeError::new_err(format!("a table with __arrow_c_stream__ is expected, not {kind}")));
        }
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>().as_ptr();
        // SAFETY: the name of the capsule says that the pointer is to a stream, which is moved out of it: by the interface the
        // capsule's destructor then finds it released. The capsule lives until the end of this function.
        let reader = unsafe { RecordBatchStreamReader::from_raw(pointer) }.map_err(arrow)?;
        let schema = reader.schema();
        // A producer may compute its batches: other threads of Python may run meanwhile.
        let batches = py.detach(|| reader.collect::<Result<Vec<_>, _>>()).map_err(arrow)?;
        Ok(Self { schema, batches })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

#[pymethods]
impl Table {
    /// The rows as an Arrow C stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // By the interface, a request is best effort.
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok::<_, ArrowError>);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, STREAM)
    }

    /// Number of rows.
    fn __len__(&self) -> usize {
        self.rows()
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The type of each column: `f64`, `bool`, `time`, `text` or another.
    #[getter]
    fn kinds(&self) -> Vec<&'static str> {
        let kind = |kind: &DataType| match kind {
            DataType::Float64 => "f64",
            DataType::Boolean => "bool",
            DataType::Timestamp(..) => "time",
            DataType::Date32 => "date",
            DataType::Utf8 => "text",
            DataType::Int64 | DataType::UInt32 => "whole",
            _ => "other",
        };
        self.schema.fields().iter().map(|field| kind(field.data_type())).collect()
    }

    /// A column of numbers or times as an object that NumPy reads without a copy (`numpy.asarray`), NA as NaN and NaT. `writable` is for
    /// a table that nobody else has or will have.
    #[pyo3(signature = (column, writable=false))]
    fn array(&self, column: usize, writable: bool) -> PyResult<Vec<Numbers>> {
        let of = |batch: &RecordBatch| {
            let array = batch.columns().get(column).ok_or_else(|| PyValueError::new_err("no such column"))?;
            let kind = array.data_type();
            match kind {
                DataType::Float64 => {
                    let values = array.as_primitive::<Float64Type>();
                    let is_nan = |row| !values.is_null(row) || values.values()[row].is_nan();
                    // NumPy has no nulls. Results of expressions have NaN there already, and stay where they are.
                    let array: ArrayRef = match values.null_count() == 0 || (0..values.len()).all(is_nan) {
                        true => Arc::clone(array),
                        false => {
                            let filled = values.iter().map(|value| value.unwrap_or(f64::NAN));
                            Arc::new(Float64Array::from(filled.collect::<Vec<f64>>()))
                        }
                    };
                    let at = array.as_primitive::<Float64Type>().values().as_ptr() as usize;
                    Ok(Numbers { at, len: array.len(), typestr: "<f8", writable, _kept: array })
                }
                DataType::Timestamp(..) => {
                    let values = array.as_primitive::<TimestampMicrosecondType>();
                    let array: ArrayRef = match values.null_count() {
                        0 => Arc::clone(array),
                        _ => {
                            let filled = values.iter().map(|value| value.unwrap_or(NOT_A_TIME));
                            Arc::new(TimestampMicrosecondArray::from(filled.collect::<Vec<i64>>()))
                        }
                    };
                    let at = array.as_primitive::<TimestampMicrosecondType>().values().as_ptr() as usize;
                    Ok(Numbers { at, len: array.len(), typestr: "<M8[us]", writable, _kept: array })
                }
                _ => Err(PyTypeError::new_err(format!("a column of {kind} has no array of numbers"))),
            }
        };
        self.batches.iter().map(of).collect()
    }

    /// A column as a list of Python's own values.
    fn values<'py>(&self, py: Python<'py>, column: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut values = Vec::with_capacity(self.rows());
        for batch in &self.batches {
            let array = batch.columns().get(column).ok_or_else(|| PyValueError::new_err("no such column"))?;
            for row in 0..array.len() {
                values.push(value(py, array, row)?);
            }
        }
        Ok(values)
    }

    /// The metadata of the schema.
    #[getter]
    fn metadata(&self) -> Vec<(String, String)> {
        self.schema.metadata().iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }
}

/// A value as Python has it; NA is `None`.
fn value<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::Boolean => array.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into_pyobject(py)?.into_any(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::Timestamp(..) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).into_pyobject(py)?.into_any()
        }
        kind => return Err(PyTypeError::new_err(format!("a value of {kind} has no Python type here"))),
    })
}

/// Numbers of a column in memory of this module, as NumPy's array interface describes them.
#[pyclass(frozen, module = "trawl._native")]
#[derive(Debug)]
pub struct Numbers {
    at: usize,
    len: usize,
    typestr: &'static str,
    writable: bool,
    /// Keeps the memory: NumPy keeps this object as long as the array lives.
    _kept: ArrayRef,
}

impl Numbers {
    /// Numbers that nobody else has.
    pub fn own(values: ScalarBuffer<f64>) -> Self {
        let (at, len) = (values.as_ptr() as usize, values.len());
        Self { at, len, typestr: "<f8", writable: true, _kept: Arc::new(Float64Array::new(values, None)) }
    }
}

#[pymethods]
impl Numbers {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.len,))?;
        interface.set_item("typestr", self.typestr)?;
        interface.set_item("data", (self.at, !self.writable))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.len
    }
}

/// A table of columns from arrays of NumPy, whose memory it reads as long as it lives: `f8` (numbers), `i8` (whole numbers), `M8`
/// (microseconds of a clock without a zone), `M8:ZONE` (microseconds in UTC, shown in a zone), `category` (a pair of whole numbers, -1 for
/// missing, and the texts that they mean). Numbers are not copied; times and categories are if some are missing.
#[pyfunction]
pub fn table_of_arrays(columns: Vec<(String, String, Bound<'_, PyAny>)>) -> PyResult<Table> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (name, kind, value) in columns {
        let array: ArrayRef = match kind.as_str() {
            "f8" => Arc::new(Float64Array::new(numbers_of(&value)?, None)),
            "i8" => Arc::new(Int64Array::new(cells(&value, "<i8")?.into(), None)),
            kind if kind == "M8" || kind.starts_with("M8:") => {
                let times = ScalarBuffer::<i64>::from(cells(&value, "<M8[us]")?);
                let times: TimestampMicrosecondArray = match times.contains(&NOT_A_TIME) {
                    false => TimestampMicrosecondArray::new(times, None),
                    true => times.iter().map(|time| (*time != NOT_A_TIME).then_some(*time)).collect(),
                };
                Arc::new(times.with_timezone_opt(kind.strip_prefix("M8:")))
            }
            "category" => {
                let (codes, texts): (Bound<'_, PyAny>, Vec<String>) = value.extract()?;
                let codes = ScalarBuffer::<i64>::from(cells(&codes, "<i8")?);
                let keys: Int64Array = match codes.iter().any(|code| *code < 0) {
                    false => Int64Array::new(codes, None),
                    true => codes.iter().map(|code| (*code >= 0).then_some(*code)).collect(),
                };
                let texts = Arc::new(StringArray::from_iter_values(texts));
                Arc::new(DictionaryArray::try_new(keys, texts).map_err(arrow)?)
            }
            _ => return Err(PyValueError::new_err(format!("a column of kind '{kind}' is not known"))),
        };
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(arrow)?;
    Ok(Table { schema, batches: vec![batch] })
}

/// Bytes of a number, and how it must be aligned.
const CELL_BYTES: usize = 8;

/// The numbers of an array of 64-bit floats, where they are.
pub fn numbers_of(array: &Bound<'_, PyAny>) -> PyResult<ScalarBuffer<f64>> {
    Ok(cells(array, "<f8")?.into())
}

/// The memory of an array of NumPy of one dimension, whose cells of 8 bytes are of a type, aligned and one after the other.
fn cells(array: &Bound<'_, PyAny>, typestr: &str) -> PyResult<Buffer> {
    let wrong =
        |what: &str| PyTypeError::new_err(format!("an array of type {typestr} in one piece is expected: {what}"));
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let item = |key: &str| interface.get_item(key)?.ok_or_else(|| wrong(&format!("it has no {key}")));
    let kind: String = item("typestr")?.extract()?;
    if kind != typestr {
        return Err(wrong(&format!("it is of type {kind}")));
    }
    let (length,): (usize,) = item("shape")?.extract()?;
    let (at, _read_only): (usize, bool) = item("data")?.extract()?;
    if length == 0 {
        return Ok(Buffer::from_vec(Vec::<u64>::new()));
    }
    if interface.get_item("strides")?.is_some_and(|strides| !strides.is_none()) {
        return Err(wrong("it has gaps"));
    }
    let bytes = length.checked_mul(CELL_BYTES).filter(|_| at.is_multiple_of(CELL_BYTES));
    let (Some(bytes), Some(pointer)) = (bytes, NonNull::new(at as *mut u8)) else {
        return Err(wrong("it is not aligned"));
    };
    let owner = Arc::new(AssertUnwindSafe(array.clone().unbind()));
    // SAFETY: by NumPy's array interface the array's memory is `length` cells of `typestr` from `data` on, without strides one after the
    // other, as long as the array lives, which the buffer keeps. They are aligned, and every bit pattern is a number. As with every table that
    // crosses from Python, whoever hands an array over does not write to it before the call returns.
    Ok(unsafe { Buffer::from_custom_allocation(pointer, bytes, owner) })
}

/// The table in the bytes of an Arrow IPC stream or file, as a server sends it.
#[pyfunction]
pub fn table_of_ipc(py: Python<'_>, bytes: &Bound<'_, PyBytes>) -> PyResult<Table> {
    let bytes = bytes.as_bytes();
    let read = || {
        if bytes.starts_with(b"ARROW1") {
            let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(bytes), None)?;
            return Ok(Table { schema: reader.schema(), batches: reader.collect::<Result<Vec<_>, _>>()? });
        }
        let reader = arrow_ipc::reader::StreamReader::try_new(Cursor::new(bytes), None)?;
        Ok(Table { schema: reader.schema(), batches: reader.collect::<Result<Vec<_>, _>>()? })
    };
    py.detach(read).map_err(arrow)
}

/// The Arrow file of an Arrow IPC stream, with its batches and metadata: what `trawl scan --output FILE.arrow` writes.
#[pyfunction]
pub fn file_of_ipc<'py>(py: Python<'py>, bytes: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
    let table = table_of_ipc(py, bytes)?;
    let write = || {
        let mut file = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &table.schema)?;
        table.batches.iter().try_for_each(|batch| file.write(batch))?;
        file.into_inner()
    };
    Ok(PyBytes::new(py, &py.detach(write).map_err(arrow)?))
}

/// An error of Arrow as Python's.
pub fn arrow(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
