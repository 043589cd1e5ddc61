//! The GPUs that Python's engine computes on: opened once in a process, and closed when it ends.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use trawl_front::{UserMistake, devices};
use trawl_kernels::cuda::{DeviceName, ExecutorOptions, Fleet};
use trawl_plan::Diagnostic;

/// The devices that are open, each with the number that was asked for; none is the first usable one.
static OPEN: Mutex<Vec<(Option<usize>, Arc<Fleet>)>> = Mutex::new(Vec::new());

/// The device of an argument such as `cuda` or `cuda:1`, as a fleet of one. Takes about half a second when it is first asked for; compiled
/// kernels are kept in `cache`.
///
/// # Errors
/// A [`UserMistake`] with what is expected in place of the argument.
pub fn fleet(device: &str, cache: Option<&Path>) -> anyhow::Result<Arc<Fleet>> {
    let refused = |why: &str, label: &str, help: &str| {
        UserMistake::Drawn(vec![Diagnostic {
            message: format!("device='{device}': {why}"),
            clause: "device".to_owned(),
            text: device.to_owned(),
            span: 0..device.len(),
            label: label.to_owned(),
            help: Some(help.to_owned()),
        }])
    };
    let number = match device.split_once(':') {
        None if device == "cuda" => None,
        Some(("cuda", number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => number.parse().ok(),
        _ => return Err(refused("this is no device", "'cpu', 'cuda' or 'cuda:NUMBER'", "device='cpu'").into()),
    };
    if device != "cuda" && number.is_none() {
        return Err(refused("this is no device", "the number of a GPU, from 0", "device='cuda'").into());
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, fleet)) = open.iter().find(|(known, _)| *known == number) {
        return Ok(Arc::clone(fleet));
    }
    let wanted = number.map(|number| vec![DeviceName::Ordinal(number)]);
    let opened = devices::gpus(wanted.as_deref()).and_then(|gpus| {
        let cache = Arc::new(devices::kernel_cache(cache));
        devices::open_all(&gpus[..gpus.len().min(1)], &cache, |_| ExecutorOptions::default())
    });
    let help = "device='cpu' makes the same tensors in main memory; 'trawl devices' shows what was checked";
    let fleet = Arc::new(opened.map_err(|why| refused(&why, "a GPU that can be used", help))?);
    open.push((number, Arc::clone(&fleet)));
    Ok(fleet)
}

/// Closes the devices, and waits for kernels that are being compiled: a process that ends meanwhile may crash. Tensors that were handed
/// out live on.
#[pyfunction]
pub fn close_devices(py: Python<'_>) {
    py.detach(|| OPEN.lock().unwrap_or_else(PoisonError::into_inner).clear());
}
