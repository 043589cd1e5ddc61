//! The engine of Trawl as the module `trawl._native` of the Python package: tables in and out, scans, expressions.
//!
//! What users call is Python (`python/trawl/`); this module has no arguments with defaults that mean something, and its errors are one
//! class whose argument is a JSON object. It computes nothing itself.

mod arrow_c;
mod chart;
mod compute;
mod device;
mod engine;
mod failure;
mod features;
mod frame;
mod interruptible;
mod scan;
mod tensor;

use pyo3::prelude::*;

/// The engine of Trawl.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NUMERICS", trawl_kernels::NUMERICS_ID)?;
    module.add("Failure", module.py().get_type::<failure::Failure>())?;
    module.add_class::<arrow_c::Table>()?;
    module.add_class::<arrow_c::Numbers>()?;
    module.add_class::<compute::Expressions>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<scan::Answer>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_function(wrap_pyfunction!(arrow_c::table_of_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(arrow_c::table_of_ipc, module)?)?;
    module.add_function(wrap_pyfunction!(arrow_c::file_of_ipc, module)?)?;
    module.add_function(wrap_pyfunction!(features::features_of_ipc, module)?)?;
    module.add_function(wrap_pyfunction!(device::close_devices, module)?)?;
    module.add_function(wrap_pyfunction!(scan::read_document, module)?)?;
    module.add_function(wrap_pyfunction!(scan::cores, module)?)?;
    module.add_function(wrap_pyfunction!(chart::chart, module)?)?;
    module.add_function(wrap_pyfunction!(indicators, module)?)?;
    Ok(())
}

/// The functions of the scan language as JSON, as `trawl indicators --json`.
#[pyfunction]
fn indicators() -> PyResult<String> {
    engine::text_of(&trawl_front::indicators::all())
}
